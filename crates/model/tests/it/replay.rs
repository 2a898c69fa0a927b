//! Runs that the model can make, and runs that it cannot.

use dropgate_domain::{
    AttemptId, Body, CALLS_VERSION, ClaimId, Definition, Digest, Event, Generation, IdempotencyKey,
    Identity, Link, Nonce, Offset, RULE_VERSION, Record, SaleId, Seq, Started, TimeMs, Unit,
    UserId, Won,
};
use dropgate_model::replay::{Accepted, At, Outcome, Rejected, Run, Told, Why, replay};
use std::num::NonZeroU32;

const WINDOW: u32 = 3;

/// A run that is written down by hand. The digests are its records' numbers.
struct Written {
    records: Vec<(Offset, Record)>,
    told: Vec<Told>,
    redis_forgot: bool,
    digests: u8,
}

fn user(name: &str) -> UserId {
    UserId::new(name).unwrap()
}

impl Written {
    /// A sale of so many units, opened.
    fn of(stock: u64) -> (Self, Record) {
        let mut run = Self {
            records: Vec::new(),
            told: Vec::new(),
            redis_forgot: false,
            digests: 0,
        };
        let start = run.start(1, Some(Definition::of(stock)));
        run.lands(&start);
        (run, start)
    }

    fn record(&mut self, generation: u32, body: Body) -> Record {
        self.digests += 1;
        Record {
            event: Event {
                sale: SaleId::new("drop").unwrap(),
                generation: Generation(generation),
                body,
            },
            digest: Digest([self.digests; 20]),
        }
    }

    fn start(&mut self, generation: u32, definition: Option<Definition>) -> Record {
        let identity = self.digests + 1;
        let started = Started {
            identity: Identity([identity; 16]),
            nonce: Nonce([identity; 16]),
            scripts: Vec::new(),
            rule: RULE_VERSION,
            calls: CALLS_VERSION,
            window: NonZeroU32::new(WINDOW).unwrap(),
            definition,
            by: String::new(),
            reason: String::new(),
            at: None,
        };
        self.record(generation, Body::Started(Box::new(started)))
    }

    fn won(&mut self, after: &Record, generation: u32, seq: u64, unit: u64, who: &str) -> Record {
        let attempt = self.digests + 1;
        self.record(
            generation,
            Body::Won(Won {
                link: Link {
                    seq: Seq(seq),
                    time: TimeMs(seq),
                    prev: after.digest,
                },
                user: user(who),
                attempt: AttemptId([attempt; 16]),
                key: IdempotencyKey::none(),
                unit: Unit(unit),
            }),
        )
    }

    fn closed(&mut self, after: &Record, generation: u32, seq: u64) -> Record {
        let link = Link {
            seq: Seq(seq),
            time: TimeMs(seq),
            prev: after.digest,
        };
        self.record(generation, Body::Closed(link))
    }

    fn lands(&mut self, record: &Record) {
        let offset = Offset(self.records.len() as u64);
        self.records.push((offset, record.clone()));
    }

    fn tell(&mut self, who: &str, outcome: Outcome) {
        self.told.push(Told {
            user: user(who),
            outcome,
        });
    }

    fn judge(&self) -> Result<Accepted, Rejected> {
        replay(&Run {
            sale: &SaleId::new("drop").unwrap(),
            records: &self.records,
            told: &self.told,
            redis_forgot: self.redis_forgot,
        })
    }

    /// The run is refused at this record.
    #[track_caller]
    fn refused(&self, offset: u64, why: Why) {
        let at = At::Record(Offset(offset));
        assert_eq!(self.judge(), Err(Rejected { at, why }));
    }

    /// What was told last is refused.
    #[track_caller]
    fn untrue(&self, why: Why) {
        let at = At::Told(self.told.len() - 1);
        assert_eq!(self.judge(), Err(Rejected { at, why }));
    }
}

fn claim(record: &Record) -> ClaimId {
    let Body::Won(won) = &record.event.body else {
        panic!("a win");
    };
    ClaimId {
        generation: record.event.generation,
        seq: won.link.seq,
        attempt: won.attempt,
    }
}

fn won(record: &Record) -> Outcome {
    let Body::Won(won) = &record.event.body else {
        panic!("a win");
    };
    Outcome::Won {
        claim: claim(record),
        unit: won.unit,
    }
}

fn void(record: &Record) -> Outcome {
    Outcome::Void {
        claim: claim(record),
    }
}

#[test]
fn a_sale_on_a_good_day_is_accepted_in_any_order_of_its_records() {
    let (mut run, start) = Written::of(2);
    let a = run.won(&start, 1, 1, 1, "a");
    let b = run.won(&a, 1, 2, 2, "b");
    let close = run.closed(&b, 1, 3);
    for record in [&b, &close, &a, &b, &a] {
        run.lands(record);
    }
    run.tell("a", Outcome::Pending { claim: claim(&a) });
    run.tell("a", won(&a));
    run.tell("b", won(&b));
    run.tell("c", Outcome::SoldOut);
    run.tell("a", Outcome::LimitReached);
    run.tell("d", Outcome::Closed);
    run.tell("d", Outcome::NotNow);
    let accepted = Accepted {
        generations: 1,
        applied: 3,
        void: 0,
        duplicates: 2,
        forgotten: 0,
        told: 7,
    };
    assert_eq!(run.judge(), Ok(accepted));
}

#[test]
fn a_redis_that_forgot_makes_two_histories_and_only_such_a_one() {
    let (mut run, start) = Written::of(3);
    let a = run.won(&start, 1, 1, 1, "a");
    let lost = run.won(&a, 1, 2, 2, "b");
    let other = run.won(&a, 1, 2, 2, "c");
    for record in [&a, &lost, &other] {
        run.lands(record);
    }
    let start = run.start(2, None);
    run.lands(&start);
    let again = run.won(&start, 2, 3, 3, "c");
    run.lands(&again);
    run.tell("b", won(&lost));
    run.tell("c", void(&other));
    run.tell("c", won(&again));
    run.refused(3, Why::Fork);
    run.redis_forgot = true;
    let accepted = run.judge().unwrap();
    assert_eq!((accepted.applied, accepted.void), (3, 1));
    assert_eq!((accepted.generations, accepted.forgotten), (2, 1));
}

#[test]
fn a_user_may_win_once_in_each_history() {
    let (mut run, start) = Written::of(3);
    run.redis_forgot = true;
    let a = run.won(&start, 1, 1, 1, "a");
    let b = run.won(&start, 1, 1, 1, "b");
    let a_after_b = run.won(&b, 1, 2, 2, "a");
    for record in [&b, &a_after_b, &a] {
        run.lands(record);
    }
    assert!(run.judge().is_ok());
    let twice = run.won(&a_after_b, 1, 3, 3, "a");
    run.lands(&twice);
    run.refused(4, Why::UserAtLimit);
}

#[test]
fn an_event_whose_forerunner_never_came_needs_a_loss() {
    let (mut run, start) = Written::of(3);
    let never = run.won(&start, 1, 1, 1, "a");
    let b = run.won(&never, 1, 2, 2, "b");
    run.lands(&b);
    run.refused(1, Why::Orphan);
    run.redis_forgot = true;
    assert_eq!(run.judge().unwrap().void, 1);
}

#[test]
fn an_event_that_came_too_late_needs_a_loss_and_a_late_copy_does_not() {
    let (mut run, start) = Written::of(3);
    let a = run.won(&start, 1, 1, 1, "a");
    run.lands(&a);
    let next = run.start(2, None);
    run.lands(&next);
    run.lands(&a);
    assert_eq!(run.judge().unwrap().duplicates, 1);
    let late = run.won(&a, 1, 2, 2, "b");
    run.lands(&late);
    run.refused(4, Why::Late);
    run.redis_forgot = true;
    assert_eq!(run.judge().unwrap().void, 1);
}

#[test]
fn what_no_script_would_have_made_is_refused() {
    let (mut run, start) = Written::of(2);
    let a = run.won(&start, 1, 1, 1, "a");
    run.lands(&a);
    let cases = [
        (
            run.won(&a, 1, 3, 2, "b"),
            Why::SeqWrong { expected: Seq(2) },
        ),
        (
            run.won(&a, 1, 2, 1, "b"),
            Why::UnitWrong { expected: Unit(2) },
        ),
        (run.won(&a, 1, 2, 3, "b"), Why::UnitUnknown),
        (run.won(&a, 1, 2, 2, "a"), Why::UserAtLimit),
        (run.won(&a, 1, 5, 2, "b"), Why::BeyondWindow),
        (run.won(&a, 2, 2, 2, "b"), Why::NotBegun),
    ];
    for (record, why) in cases {
        run.lands(&record);
        run.refused(2, why);
        run.records.pop();
    }
    let mut back = run.won(&a, 1, 2, 2, "b");
    if let Body::Won(won) = &mut back.event.body {
        won.link.time = TimeMs(0);
    }
    run.lands(&back);
    run.refused(2, Why::TimeBack);
}

#[test]
fn nothing_comes_after_the_close() {
    let (mut run, start) = Written::of(2);
    let close = run.closed(&start, 1, 1);
    let a = run.won(&close, 1, 2, 1, "a");
    run.lands(&close);
    run.lands(&a);
    run.refused(2, Why::AfterClose);
}

#[test]
fn generations_begin_one_after_the_other_on_what_was_applied() {
    let (mut run, start) = Written::of(3);
    let a = run.won(&start, 1, 1, 1, "a");
    run.lands(&a);
    let skipped = run.start(3, None);
    run.lands(&skipped);
    run.refused(2, Why::NotBegun);
    run.records.pop();

    let second = run.start(2, None);
    let overtaken = run.start(2, None);
    run.lands(&second);
    run.lands(&overtaken);
    assert!(
        run.judge().is_ok(),
        "of two recoveries at once the first counts"
    );
    let of_the_other = run.won(&overtaken, 2, 2, 2, "b");
    run.lands(&of_the_other);
    run.refused(4, Why::ParentForeign);
    run.records.pop();
    let of_the_first = run.won(&start, 2, 2, 2, "b");
    run.lands(&of_the_first);
    run.refused(4, Why::ParentForeign);
    run.records.pop();
    let owner = run.won(&second, 2, 2, 2, "a");
    run.lands(&owner);
    run.refused(4, Why::UserAtLimit);
}

#[test]
fn a_start_is_a_new_one_and_the_definition_is_in_the_first() {
    let (mut run, _) = Written::of(3);
    let mut same_nonce = run.start(2, None);
    if let (Body::Started(new), Body::Started(old)) =
        (&mut same_nonce.event.body, &run.records[0].1.event.body)
    {
        new.nonce = old.nonce;
    }
    run.lands(&same_nonce);
    run.refused(1, Why::StartRepeated);
    run.records.pop();
    let defined = run.start(2, Some(Definition::of(4)));
    run.lands(&defined);
    run.refused(1, Why::DefinitionMisplaced);
    let (mut headless, start) = Written::of(3);
    headless.records.clear();
    let a = headless.won(&start, 1, 1, 1, "a");
    headless.lands(&a);
    headless.refused(0, Why::DefinitionMisplaced);
}

#[test]
fn what_was_told_must_be_true_of_the_whole_log() {
    let (mut run, start) = Written::of(3);
    run.redis_forgot = true;
    let a = run.won(&start, 1, 1, 1, "a");
    let other = run.won(&start, 1, 1, 1, "b");
    run.lands(&a);
    assert!(run.judge().is_ok());
    let open = run.won(&a, 1, 2, 2, "c");
    let cases = [
        ("b", won(&other), Why::NotWon),
        ("b", won(&a), Why::NotWon),
        ("a", void(&a), Why::NotVoid),
        ("b", void(&a), Why::ClaimOfAnother),
        ("c", void(&open), Why::VoidTooEarly),
        ("c", Outcome::SoldOut, Why::NotSoldOut { left: 2 }),
        ("c", Outcome::Closed, Why::NotClosed),
        ("c", Outcome::Early, Why::NotEarly),
        (
            "c",
            Outcome::LimitReached,
            Why::BelowLimit { has: 0, limit: 1 },
        ),
    ];
    for (who, outcome, why) in cases {
        run.tell(who, outcome);
        run.untrue(why);
        run.told.pop();
    }
    let mut unknown = claim(&a);
    unknown.generation = Generation(7);
    run.tell("a", Outcome::Pending { claim: unknown });
    run.untrue(Why::ClaimUnknown);
    run.told.pop();

    run.tell("b", void(&other));
    assert!(run.judge().is_ok(), "another event has its place");
    let wrong_unit = Outcome::Won {
        claim: claim(&a),
        unit: Unit(2),
    };
    run.tell("a", wrong_unit);
    run.untrue(Why::NotWon);
}

#[test]
fn records_of_other_sales_are_passed_over() {
    let (mut run, start) = Written::of(1);
    let a = run.won(&start, 1, 1, 1, "a");
    let mut foreign = run.won(&start, 9, 9, 9, "a");
    foreign.event.sale = SaleId::new("another").unwrap();
    run.lands(&foreign);
    run.lands(&a);
    assert_eq!(run.judge().unwrap().applied, 1);
}
