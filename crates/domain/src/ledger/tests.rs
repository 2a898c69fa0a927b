//! The ledger against its rule, over histories in which Redis loses writes.

use super::*;
use crate::event::{Event, Won};
use crate::ids::{AttemptId, IdempotencyKey, Unit};
use proptest::prelude::*;
use std::collections::{BTreeMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};

const WINDOW: u32 = 4;

fn sale() -> SaleId {
    SaleId::new("drop").unwrap()
}

fn user(n: u8) -> UserId {
    UserId::new(&format!("u{n}")).unwrap()
}

/// A stand-in for SHA-1: the domain knows digests, not how they are made.
fn digest(event: &Event) -> Digest {
    let mut hasher = DefaultHasher::new();
    format!("{event:?}").hash(&mut hasher);
    let mut bytes = [0u8; 20];
    bytes[..8].copy_from_slice(&hasher.finish().to_le_bytes());
    Digest(bytes)
}

fn record(generation: u32, body: Body) -> Record {
    let event = Event {
        sale: sale(),
        generation: Generation(generation),
        body,
    };
    Record {
        digest: digest(&event),
        event,
    }
}

fn started(generation: u32, identity: u8, definition: Option<Definition>) -> Record {
    record(
        generation,
        Body::Started(Box::new(Started {
            identity: Identity([identity; 16]),
            nonce: Nonce([identity; 16]),
            scripts: Vec::new(),
            rule: RULE_VERSION,
            calls: CALLS_VERSION,
            window: NonZeroU32::new(WINDOW).unwrap(),
            definition,
            by: "test".into(),
            reason: "test".into(),
        })),
    )
}

fn won(generation: u32, seq: u64, prev: Digest, who: u8, unit: u64, attempt: u8) -> Record {
    record(
        generation,
        Body::Won(Won {
            link: Link {
                seq: Seq(seq),
                time: TimeMs(seq),
                prev,
            },
            user: user(who),
            attempt: AttemptId([attempt; 16]),
            key: IdempotencyKey::none(),
            unit: Unit(unit),
        }),
    )
}

/// The part of Redis that matters to the log: what a script would do, and what a crash forgets.
#[derive(Clone)]
struct Redis {
    generation: u32,
    seq: u64,
    head: Digest,
    next: u64,
    owners: HashSet<u8>,
    applied: u64,
    closed: bool,
}

#[derive(Debug, Clone)]
enum Op {
    /// A claim by a user, whose event reaches the log `late` records later than it could.
    Claim {
        who: u8,
        late: u8,
    },
    /// The event before is published again.
    Again {
        which: u8,
    },
    Close,
    Halt,
    /// Redis forgets its last writes.
    Forget {
        writes: u8,
    },
    /// Somebody recovers the sale from the log as it stands.
    Recover,
    /// A second recovery of the same generation, which lost the race.
    RecoverLate,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        12 => (0u8..8, 0u8..3).prop_map(|(who, late)| Op::Claim { who, late }),
        3 => any::<u8>().prop_map(|which| Op::Again { which }),
        1 => Just(Op::Close),
        1 => Just(Op::Halt),
        2 => (1u8..4).prop_map(|writes| Op::Forget { writes }),
        1 => Just(Op::Recover),
        1 => Just(Op::RecoverLate),
    ]
}

/// Runs the operations and returns the log that they leave behind.
fn history(stock: u64, ops: &[Op]) -> Vec<Record> {
    let mut world = World::open(stock);
    for op in ops {
        world.land();
        world.step(op);
    }
    let World {
        mut log, flying, ..
    } = world;
    log.extend(flying.into_iter().map(|(_, record)| record));
    log
}

struct World {
    stock: u64,
    redis: Redis,
    log: Vec<Record>,
    undo: Vec<Redis>,
    /// Published and not yet in the log: the length of the log at which it may land, and what.
    flying: Vec<(usize, Record)>,
    attempts: u8,
}

impl World {
    fn open(stock: u64) -> Self {
        let opening = started(1, 1, Some(Definition::of(stock)));
        let redis = Redis {
            generation: 1,
            seq: 0,
            head: opening.digest,
            next: 1,
            owners: HashSet::new(),
            applied: 0,
            closed: false,
        };
        Self {
            stock,
            redis,
            log: vec![opening],
            undo: Vec::new(),
            flying: Vec::new(),
            attempts: 0,
        }
    }

    fn step(&mut self, op: &Op) {
        match *op {
            Op::Claim { who, late } => self.claim(who, late),
            Op::Again { which } => {
                let copy = self.log[usize::from(which) % self.log.len()].clone();
                self.log.push(copy);
            }
            Op::Close => self.close(),
            Op::Halt => {
                let halted = Halted {
                    reason: "test".into(),
                    by: "test".into(),
                };
                self.log
                    .push(record(self.redis.generation, Body::Halted(halted)));
            }
            Op::Forget { writes } => {
                for _ in 0..writes {
                    if let Some(before) = self.undo.pop() {
                        self.redis = before;
                    }
                }
            }
            Op::Recover => {
                self.redis = recover(&mut self.log, self.redis.generation + 1);
                self.undo.clear();
            }
            Op::RecoverLate => self.log.push(started(self.redis.generation, 99, None)),
        }
    }

    fn claim(&mut self, who: u8, late: u8) {
        let folded = fold(&self.log);
        let redis = &mut self.redis;
        if folded.generation() == Generation(redis.generation) {
            redis.applied = redis.applied.max(folded.applied().0);
        }
        let refused = redis.closed
            || redis.owners.contains(&who)
            || redis.next > self.stock
            || redis.seq.saturating_sub(redis.applied) >= u64::from(WINDOW);
        if refused {
            return;
        }
        self.undo.push(redis.clone());
        self.attempts = self.attempts.wrapping_add(1);
        redis.seq += 1;
        let event = won(
            redis.generation,
            redis.seq,
            redis.head,
            who,
            redis.next,
            self.attempts,
        );
        redis.head = event.digest;
        redis.next += 1;
        redis.owners.insert(who);
        self.flying
            .push((self.log.len() + usize::from(late), event));
    }

    fn close(&mut self) {
        if self.redis.closed {
            return;
        }
        self.undo.push(self.redis.clone());
        self.redis.seq += 1;
        let link = Link {
            seq: Seq(self.redis.seq),
            time: TimeMs(self.redis.seq),
            prev: self.redis.head,
        };
        let event = record(self.redis.generation, Body::Closed(link));
        self.redis.head = event.digest;
        self.redis.closed = true;
        self.flying.push((self.log.len(), event));
    }

    /// What may land, lands; the last first, so that records overtake each other.
    fn land(&mut self) {
        let mut rest = Vec::new();
        for (from, record) in self.flying.drain(..).rev() {
            if from <= self.log.len() {
                self.log.push(record);
            } else {
                rest.push((from, record));
            }
        }
        rest.reverse();
        self.flying = rest;
    }
}

fn recover(log: &mut Vec<Record>, generation: u32) -> Redis {
    log.push(started(generation, generation as u8, None));
    let folded = fold(log);
    let position = folded.position().unwrap();
    assert_eq!(position.generation, Generation(generation));
    Redis {
        generation,
        seq: position.seq.0,
        head: position.chain,
        next: folded.next_fresh().0,
        owners: (0..8)
            .filter(|n| folded.win_of(&user(*n)).is_some())
            .collect(),
        applied: position.seq.0,
        closed: folded.closed_at().is_some(),
    }
}

fn fold(log: &[Record]) -> Ledger {
    let mut ledger = Ledger::new(sale());
    let mut out = Vec::new();
    for (at, record) in log.iter().enumerate() {
        ledger
            .feed(Offset(at as u64), record.clone(), &mut out)
            .unwrap();
    }
    ledger
}

/// The rule once more, told backwards and without regard to cost: of each generation, the
/// first record of each seq; how far they chain; and where the first breach is.
fn by_definition(log: &[Record]) -> (Vec<Digest>, BTreeMap<u32, usize>) {
    let mut applied: Vec<Digest> = Vec::new();
    let mut ends: BTreeMap<u32, usize> = BTreeMap::new();
    let mut generation = 0;
    let (mut root, mut base) = (Digest([0; 20]), 0usize);
    let mut first: BTreeMap<u64, (Digest, Digest)> = BTreeMap::new();
    for (at, record) in log.iter().enumerate() {
        let link = match &record.event.body {
            Body::Started(_) if record.event.generation.0 == generation + 1 => {
                generation += 1;
                (root, base) = (record.digest, applied.len());
                first.clear();
                continue;
            }
            Body::Started(_) | Body::Halted(_) => continue,
            Body::Won(won) => won.link,
            Body::Closed(link) => *link,
        };
        if record.event.generation.0 != generation || ends.contains_key(&generation) {
            continue;
        }
        let far = applied.len() as u64 + u64::from(WINDOW);
        let taken = first
            .get(&link.seq.0)
            .is_some_and(|(digest, _)| *digest != record.digest);
        if link.seq.0 <= base as u64 || link.seq.0 > far || taken {
            ends.insert(generation, at);
            continue;
        }
        first
            .entry(link.seq.0)
            .or_insert((record.digest, link.prev));
        while let Some((digest, prev)) = first.get(&(applied.len() as u64 + 1)) {
            let head = if applied.len() == base {
                root
            } else {
                applied[applied.len() - 1]
            };
            if *prev != head {
                ends.insert(generation, at);
                break;
            }
            applied.push(*digest);
        }
    }
    (applied, ends)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, ..ProptestConfig::default() })]

    /// The fold is the rule: same events, same ends, at the same offsets, with the promises
    /// kept at every step and nothing that applied ever taken back.
    #[test]
    fn the_fold_is_the_rule(stock in 0u64..7, ops in prop::collection::vec(op(), 0..60)) {
        let log = history(stock, &ops);
        let mut ledger = Ledger::new(sale());
        let mut told: Vec<Win> = Vec::new();
        let mut digests = Vec::new();
        let mut ends = BTreeMap::new();
        for (at, record) in log.iter().enumerate() {
            let mut out = Vec::new();
            let fed = ledger.feed(Offset(at as u64), record.clone(), &mut out).unwrap();
            if let Fed::Ended(cause) = fed {
                prop_assert!(!matches!(cause, Cause::Impossible { .. }), "the theorem fails: {cause}");
                ends.insert(ledger.generation().0, at);
            }
            for applied in out {
                match applied.what {
                    What::Started => {}
                    What::Won(win) => { told.push(win); digests.push(applied.position.chain); }
                    What::Closed(_) => digests.push(applied.position.chain),
                }
            }
            prop_assert_eq!(ledger.check(), Ok(()));
            prop_assert_eq!(ledger.wins(), &told[..], "a win that applied is kept");
            prop_assert!(ledger.buffered() < WINDOW as usize);
        }
        prop_assert_eq!((digests, ends), by_definition(&log));
    }

    /// Without a loss of writes, any order within the window and any repetition is one state.
    #[test]
    fn order_and_repetition_do_not_matter(
        stock in 0u64..20,
        claims in 0u8..8,
        picks in prop::collection::vec(any::<u8>(), 8),
        copies in prop::collection::vec((0usize..64, 0usize..64), 0..20),
    ) {
        let opening = started(1, 1, Some(Definition::of(stock)));
        let mut head = opening.digest;
        let mut events = Vec::new();
        for n in 0..u64::from(claims).min(stock) {
            let event = won(1, n + 1, head, n as u8, n + 1, n as u8);
            head = event.digest;
            events.push(event);
        }
        let straight: Vec<Record> = [opening.clone()].into_iter().chain(events.clone()).collect();
        // Every order in which no record is a whole window ahead of one that is missing.
        let mut order = Vec::new();
        let mut missing: Vec<usize> = (0..events.len()).collect();
        for pick in picks {
            let Some(&oldest) = missing.first() else { break };
            let reach = missing.partition_point(|&n| n < oldest + WINDOW as usize);
            order.push(missing.remove(usize::from(pick) % reach));
        }
        let mut shuffled: Vec<Record> = [opening].into_iter()
            .chain(order.iter().map(|&n| events[n].clone())).collect();
        for (from, to) in copies {
            let from = from % shuffled.len();
            let to = from + 1 + to % (shuffled.len() - from);
            shuffled.insert(to, shuffled[from].clone());
        }
        let (a, b) = (fold(&straight), fold(&shuffled));
        prop_assert_eq!(a.position(), b.position());
        prop_assert_eq!(a.wins(), b.wins());
        prop_assert_eq!(b.phase(), Phase::Open);
    }

    /// A writer that starts again from any position writes what one run would have written.
    #[test]
    fn suppressing_what_is_written_loses_and_repeats_nothing(
        stock in 0u64..7,
        ops in prop::collection::vec(op(), 0..60),
        cut in any::<prop::sample::Index>(),
    ) {
        let log = history(stock, &ops);
        let mut ledger = Ledger::new(sale());
        let mut all = Vec::new();
        for (at, record) in log.iter().enumerate() {
            ledger.feed(Offset(at as u64), record.clone(), &mut all).unwrap();
        }
        let cut = cut.index(all.len() + 1);
        let stored = cut.checked_sub(1).map(|last| all[last].position);
        let rest: Vec<&Applied> = all.iter()
            .filter(|a| stored.is_none_or(|s| {
                (a.position.generation, a.position.seq) > (s.generation, s.seq)
            }))
            .collect();
        prop_assert_eq!(rest, all[cut..].iter().collect::<Vec<_>>());
    }

    /// What a claim's URL says of itself is said for ever: applied or void, never both.
    #[test]
    fn a_verdict_is_final(stock in 0u64..7, ops in prop::collection::vec(op(), 0..60)) {
        let log = history(stock, &ops);
        let mut ledger = Ledger::new(sale());
        let mut verdicts: BTreeMap<(u32, u64), Option<AttemptId>> = BTreeMap::new();
        let mut out = Vec::new();
        for (at, record) in log.iter().enumerate() {
            ledger.feed(Offset(at as u64), record.clone(), &mut out).unwrap();
            for g in 1..=ledger.generation().0 {
                for seq in 0..=ledger.applied().0 + 2 {
                    let verdict = match ledger.event_at(Generation(g), Seq(seq)) {
                        Found::Applied(win) => Some(win.attempt),
                        Found::AppliedOther | Found::Void => None,
                        Found::Open => continue,
                    };
                    let before = verdicts.entry((g, seq)).or_insert(verdict);
                    prop_assert_eq!(*before, verdict, "g {} seq {}", g, seq);
                }
            }
        }
    }
}

#[test]
fn a_number_given_twice_ends_the_generation_at_the_second_record() {
    let opening = started(1, 1, Some(Definition::of(2)));
    let a = won(1, 1, opening.digest, 1, 1, 1);
    let b = won(1, 1, opening.digest, 2, 1, 2);
    let mut ledger = Ledger::new(sale());
    let mut out = Vec::new();
    let mut feed = |at, r: &Record| ledger.feed(Offset(at), r.clone(), &mut out).unwrap();
    feed(0, &opening);
    assert_eq!(feed(1, &a), Fed::Applied(1));
    assert_eq!(feed(2, &a), Fed::Duplicate);
    assert_eq!(feed(3, &b), Fed::Ended(Cause::OtherBytes { seq: Seq(1) }));
    assert_eq!(feed(4, &won(1, 2, a.digest, 3, 2, 3)), Fed::Void);
    assert_eq!(ledger.win_of(&user(1)).unwrap().unit, Unit(1));
    assert_eq!(ledger.win_of(&user(3)), None);
}

#[test]
fn an_event_of_a_generation_that_has_not_begun_stops_the_ledger_for_good() {
    let mut ledger = Ledger::new(sale());
    let mut out = Vec::new();
    let early = won(1, 1, Digest([0; 20]), 1, 1, 1);
    let stop = Stop::GenerationNotStarted {
        generation: Generation(1),
        now: Generation(0),
    };
    assert_eq!(ledger.feed(Offset(0), early, &mut out), Err(stop.clone()));
    let opening = started(1, 1, Some(Definition::of(2)));
    assert_eq!(ledger.feed(Offset(1), opening, &mut out), Err(stop));
}

#[test]
fn a_rule_that_is_not_known_stops_the_ledger() {
    let mut opening = started(1, 1, Some(Definition::of(2)));
    if let Body::Started(started) = &mut opening.event.body {
        started.rule = RULE_VERSION + 1;
    }
    let stop = Ledger::new(sale()).feed(Offset(0), opening, &mut Vec::new());
    assert!(matches!(stop, Err(Stop::UnknownVersion { .. })), "{stop:?}");
}

#[test]
fn a_halt_voids_nothing_and_the_next_generation_lifts_it() {
    let opening = started(1, 1, Some(Definition::of(2)));
    let a = won(1, 1, opening.digest, 1, 1, 1);
    let halt = record(
        1,
        Body::Halted(Halted {
            reason: "tip disagrees".into(),
            by: "gateway".into(),
        }),
    );
    let mut log = vec![opening, halt, a];
    let ledger = fold(&log);
    assert!(matches!(ledger.phase(), Phase::Halted(_)));
    assert_eq!(ledger.counts().sold, 1);
    recover(&mut log, 2);
    assert_eq!(fold(&log).phase(), Phase::Open);
}

#[test]
fn the_chain_is_known_at_every_applied_seq_of_the_generation() {
    let opening = started(1, 1, Some(Definition::of(2)));
    let a = won(1, 1, opening.digest, 1, 1, 1);
    let ledger = fold(&[opening.clone(), a.clone()]);
    assert_eq!(ledger.chain_at(Seq(0)), Some(opening.digest));
    assert_eq!(ledger.chain_at(Seq(1)), Some(a.digest));
    assert_eq!(ledger.chain_at(Seq(2)), None);
}

#[test]
fn a_stock_of_nothing_has_nothing_to_claim() {
    let ledger = fold(&[started(1, 1, Some(Definition::of(0)))]);
    assert_eq!(ledger.claimable(), 0);
    assert_eq!(ledger.phase(), Phase::Open);
}
