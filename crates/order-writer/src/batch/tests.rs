//! Histories in which Redis loses writes, written by writers that crash, race and are deceived.

use super::*;
use dropgate_domain::{
    AttemptId, Body, CALLS_VERSION, Definition, Digest, Event, Generation, IdempotencyKey,
    Identity, Ledger, Link, LogId, Nonce, Offset, PartitionId, RULE_VERSION, Record, Seq, Started,
    Unit, UserId, Won,
};
use proptest::prelude::*;
use std::num::NonZeroU32;

const STOCK: u64 = 1000;

/// What happens in a sale.
#[derive(Debug, Clone, Copy)]
enum Happens {
    /// A user gets the next unit.
    Win(u8),
    /// Redis forgets the last event and gives its number again: the generation ends, and the
    /// next one begins.
    Loss,
    /// The sale is closed.
    Close,
}

fn happenings() -> impl Strategy<Value = Vec<Happens>> {
    let happens = prop_oneof![
        20 => any::<u8>().prop_map(Happens::Win),
        2 => Just(Happens::Loss),
        1 => Just(Happens::Close),
    ];
    prop::collection::vec(happens, 0..25)
}

fn sale(n: usize) -> SaleId {
    SaleId::new(&format!("sale-{n}")).unwrap()
}

fn about_sale() -> About {
    About {
        pin: Pin {
            log_id: LogId([4; 16]),
            partition: PartitionId(1),
            from_offset: Offset(0),
        },
        stock: STOCK,
        opened_at: None,
    }
}

/// Writes a sale's log and folds it with the ledger.
struct Script {
    sale: SaleId,
    ledger: Ledger,
    applied: Vec<Applied>,
    offset: u64,
    generation: u32,
    digests: u64,
}

impl Script {
    fn run(n: usize, happenings: &[Happens]) -> Vec<Applied> {
        let mut script = Self {
            sale: sale(n),
            ledger: Ledger::new(sale(n)),
            applied: Vec::new(),
            offset: 0,
            generation: 0,
            digests: (n as u64) << 32,
        };
        script.start();
        for happens in happenings {
            match *happens {
                Happens::Win(user) => script.win(user, 0),
                Happens::Close => script.close(),
                Happens::Loss => {
                    script.win(201, 0);
                    // The number is given again, to somebody else.
                    script.win(202, 1);
                    script.start();
                }
            }
        }
        script.ledger.check().unwrap();
        script.applied
    }

    fn feed(&mut self, body: Body) {
        self.digests += 1;
        let mut digest = [0; 20];
        digest[..8].copy_from_slice(&self.digests.to_le_bytes());
        let record = Record {
            digest: Digest(digest),
            event: Event {
                sale: self.sale.clone(),
                generation: Generation(self.generation),
                body,
            },
        };
        self.offset += 1;
        self.ledger
            .feed(Offset(self.offset), record, &mut self.applied)
            .unwrap();
    }

    fn start(&mut self) {
        self.generation += 1;
        let opening = self.generation == 1;
        self.feed(Body::Started(Box::new(Started {
            identity: Identity([1; 16]),
            nonce: Nonce([1; 16]),
            scripts: Vec::new(),
            rule: RULE_VERSION,
            calls: CALLS_VERSION,
            window: NonZeroU32::new(100).unwrap(),
            definition: opening.then(|| Definition {
                per_user_limit: 16,
                ..Definition::of(STOCK)
            }),
            by: "test".into(),
            reason: "test".into(),
            at: None,
        })));
    }

    fn link(&self, back: u64) -> Link {
        let at = self.ledger.position().unwrap();
        Link {
            seq: Seq(at.seq.0 + 1 - back),
            time: TimeMs(at.seq.0 + 1),
            prev: at.chain,
        }
    }

    fn win(&mut self, user: u8, back: u64) {
        self.feed(Body::Won(Won {
            link: self.link(back),
            user: UserId::new(&format!("user-{user}")).unwrap(),
            attempt: AttemptId([user; 16]),
            key: IdempotencyKey::none(),
            unit: self.ledger.next_fresh(),
        }));
    }

    fn close(&mut self) {
        self.feed(Body::Closed(self.link(0)));
    }
}

/// The log of two sales, as the reader brings it.
fn log() -> impl Strategy<Value = Vec<(usize, Applied)>> {
    let histories = (happenings(), happenings(), any::<u64>());
    histories.prop_map(|(first, second, mix)| {
        let mut left = [Script::run(0, &first), Script::run(1, &second)].map(VecDeque::from);
        let mut merged = Vec::new();
        for turn in 0.. {
            let which = usize::from(mix.rotate_right(turn) & 1 == 1);
            let which = if left[which].is_empty() {
                1 - which
            } else {
                which
            };
            match left[which].pop_front() {
                Some(applied) => merged.push((which, applied)),
                None => return merged,
            }
        }
        merged
    })
}

/// The database, as the store's contract has it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Db {
    rows: BTreeMap<SaleId, SaleRow>,
    orders: BTreeMap<(SaleId, Unit), Order>,
}

impl Db {
    /// Whether it was written; if not, a position had moved.
    fn write(&mut self, writes: &[SaleWrite]) -> bool {
        let as_expected =
            |write: &SaleWrite| self.rows.get(&write.sale).map(|row| row.position) == write.from;
        if !writes.iter().all(as_expected) {
            return false;
        }
        for write in writes {
            let row = SaleRow {
                sale: write.sale.clone(),
                pin: write.pin,
                position: write.to,
                state: write.state,
                stock: write.stock,
                sold: write.sold,
                held: write.held,
                opened_at: write.opened_at,
                closed_at: write.closed_at,
            };
            self.rows.insert(write.sale.clone(), row);
            for order in &write.orders {
                let key = (write.sale.clone(), order.unit);
                let owner = self.orders.insert(key, order.clone());
                assert_eq!(owner, None, "a unit is written once");
            }
        }
        true
    }
}

fn look_at(pending: &mut Pending, db: &Db, sale: &SaleId) {
    let look = pending.look(sale, db.rows.get(sale));
    assert!(matches!(look, Look::Unmoved | Look::Moved), "{look:?}");
}

/// Writes what is pending, in batches, until nothing is left.
fn drain(pending: &mut Pending, db: &mut Db, events_max: usize, mut seen: impl FnMut(&Db)) {
    for sale in pending.unknown() {
        look_at(pending, db, &sale);
    }
    loop {
        let writes = pending.batch(events_max);
        if writes.is_empty() {
            assert!(pending.is_idle());
            return;
        }
        assert!(db.write(&writes), "nobody else writes");
        pending.written(&writes);
        seen(db);
    }
}

/// The database after one writer has written everything, and after each event.
fn written_alone(log: &[(usize, Applied)]) -> Vec<Db> {
    let (mut pending, mut db) = (Pending::default(), Db::default());
    let mut moments = vec![db.clone()];
    for (which, applied) in log {
        pending.feed(&sale(*which), about_sale, [applied.clone()]);
        drain(&mut pending, &mut db, 1, |db| moments.push(db.clone()));
    }
    moments
}

proptest! {
    #[test]
    fn a_writer_that_starts_anew_at_any_position_writes_the_same_rows(
        log in log(), moment: prop::sample::Index, chunk in 1..9_usize, batch in 1..9_usize,
    ) {
        let moments = written_alone(&log);
        let whole = &moments[moments.len() - 1];
        let mut db = moments[moment.index(moments.len())].clone();
        let before = db.orders.len();
        let (mut pending, mut written) = (Pending::default(), 0);
        for events in log.chunks(chunk) {
            for (which, applied) in events {
                pending.feed(&sale(*which), about_sale, [applied.clone()]);
            }
            drain(&mut pending, &mut db, batch, |_| written += 1);
        }
        prop_assert_eq!(&db, whole);
        prop_assert!(written <= log.len() - before, "what is stored is not written again");
    }

    #[test]
    fn the_rows_are_the_ledgers_wins(log in log()) {
        let moments = written_alone(&log);
        let db = &moments[moments.len() - 1];
        let wins = log.iter().filter_map(|(which, applied)| match &applied.what {
            What::Won(win) => Some(((sale(*which), win.unit), Order::from(win))),
            What::Started | What::Closed(_) => None,
        });
        let wins: BTreeMap<_, _> = wins.collect();
        prop_assert_eq!(&db.orders, &wins);
        for (which, last) in [0, 1].map(|n| (n, log.iter().rfind(|(which, _)| *which == n))) {
            let row = &db.rows[&sale(which)];
            let sold = wins.keys().filter(|(of, _)| *of == sale(which)).count() as u64;
            prop_assert_eq!(Some(row.position), last.map(|(_, applied)| applied.position));
            prop_assert_eq!((row.sold, row.stock), (sold, STOCK));
        }
    }

    /// Three writers take turns as chance has it; some commits are not told of, some writers
    /// crash and start anew. Each does on a conflict what the writer does: it looks again.
    #[test]
    fn writers_that_race_crash_and_are_deceived_write_one_history(
        log in log(), turns in prop::collection::vec((0..3_usize, 0..6_u8, 1..6_usize), 0..120),
    ) {
        let moments = written_alone(&log);
        let mut db = Db::default();
        let mut writers: [(Pending, usize); 3] = Default::default();
        for (who, what, amount) in turns {
            let (pending, read) = &mut writers[who];
            match what {
                0 => (*pending, *read) = (Pending::default(), 0),
                1 | 2 => for (which, applied) in log.iter().skip(*read).take(amount) {
                    pending.feed(&sale(*which), about_sale, [applied.clone()]);
                    *read += 1;
                },
                _ => {
                    for sale in pending.unknown() {
                        look_at(pending, &db, &sale);
                    }
                    let writes = pending.batch(amount);
                    // Of what it was not told of, it learns by the next conflict.
                    if db.write(&writes) && what != 3 {
                        pending.written(&writes);
                    } else if what != 3 {
                        for write in &writes {
                            look_at(pending, &db, &write.sale);
                        }
                    }
                }
            }
        }
        let (pending, read) = &mut writers[0];
        for (which, applied) in log.iter().skip(*read) {
            pending.feed(&sale(*which), about_sale, [applied.clone()]);
        }
        for n in 0..2 {
            look_at(pending, &db, &sale(n));
        }
        drain(pending, &mut db, 7, |_| ());
        prop_assert_eq!(&db, &moments[moments.len() - 1]);
    }
}

fn wins(users: impl IntoIterator<Item = u8>) -> Vec<Happens> {
    users.into_iter().map(Happens::Win).collect()
}

fn row_at(position: Position) -> SaleRow {
    SaleRow {
        sale: sale(0),
        pin: about_sale().pin,
        position,
        state: SaleState::Open,
        stock: STOCK,
        sold: 0,
        held: 0,
        opened_at: None,
        closed_at: None,
    }
}

fn blocked(pending: &Pending) -> Option<Blocked> {
    let reason = pending.blocked().next().map(|(_, why)| why.clone());
    assert!(
        reason.is_none() || pending.batch(10).is_empty(),
        "nothing of it is written"
    );
    reason
}

#[test]
fn a_stored_position_that_the_log_does_not_have_stops_the_sale() {
    let log = Script::run(0, &wins(1..=5));
    let mut other_chain = log[3].position;
    other_chain.chain = Digest([0xee; 20]);
    let mut between = log[3].position;
    between.generation = Generation(7);
    for (position, events) in [
        (other_chain, &log[..4]),
        (other_chain, &log[..]),
        (log[3].position, &[]),
    ] {
        // Looked at before and after the events.
        let mut pending = Pending::default();
        pending.feed(&sale(0), about_sale, events.iter().cloned());
        pending.look(&sale(0), Some(&row_at(position)));
        let mut early = Pending::default();
        early.feed(&sale(0), about_sale, []);
        early.look(&sale(0), Some(&row_at(position)));
        early.feed(&sale(0), about_sale, events.iter().cloned());
        let expected = !events.is_empty();
        assert_eq!(blocked(&pending).is_some(), expected, "{position:?}");
        assert_eq!(blocked(&early).is_some(), expected, "{position:?}");
    }
    // A generation that the log never had: seen as soon as the log goes past it, not before.
    let mut pending = Pending::default();
    pending.feed(&sale(0), about_sale, log.iter().cloned());
    assert_eq!(pending.look(&sale(0), Some(&row_at(between))), Look::Moved);
    assert_eq!(blocked(&pending), None);
    assert_eq!(pending.batch(10), []);
}

#[test]
fn a_stored_position_that_the_log_goes_past_stops_the_sale() {
    // Generation 1 ends after two wins; what is stored would be its eighth.
    let log = Script::run(0, &[Happens::Win(1), Happens::Loss, Happens::Win(2)]);
    let mut lost = log[2].position;
    lost.seq = Seq(8);
    assert!(order(log[2].position, lost).is_lt() && order(lost, log[3].position).is_lt());
    let mut pending = Pending::default();
    pending.feed(&sale(0), about_sale, log[..3].iter().cloned());
    assert_eq!(pending.look(&sale(0), Some(&row_at(lost))), Look::Moved);
    assert_eq!(blocked(&pending), None, "its event may still come");
    pending.feed(&sale(0), about_sale, log[3..].iter().cloned());
    assert!(matches!(blocked(&pending), Some(Blocked::OtherHistory(_))));
}

#[test]
fn a_chain_that_changes_under_a_writer_stops_the_sale() {
    let log = Script::run(0, &wins(1..=5));
    let mut pending = Pending::default();
    pending.feed(&sale(0), about_sale, log.iter().cloned());
    assert_eq!(
        pending.look(&sale(0), Some(&row_at(log[2].position))),
        Look::Moved
    );
    let mut changed = log[2].position;
    changed.chain = Digest([0xee; 20]);
    assert_eq!(
        pending.look(&sale(0), Some(&row_at(changed))),
        Look::Blocked
    );
    assert!(matches!(blocked(&pending), Some(Blocked::OtherHistory(_))));
}

#[test]
fn a_row_of_another_place_in_the_log_stops_the_sale() {
    let log = Script::run(0, &wins(1..=2));
    let mut pending = Pending::default();
    pending.feed(&sale(0), about_sale, log.iter().cloned());
    let mut row = row_at(log[1].position);
    row.pin.log_id = LogId([5; 16]);
    assert_eq!(pending.look(&sale(0), Some(&row)), Look::Blocked);
    assert!(matches!(blocked(&pending), Some(Blocked::OtherHistory(_))));
    assert!(pending.is_idle());
}

#[test]
fn a_database_that_forgot_is_told_from_one_that_was_written() {
    let log = Script::run(0, &wins(1..=9));
    let mut pending = Pending::default();
    pending.feed(&sale(0), about_sale, log.iter().cloned());
    let mut look = |event: usize| pending.look(&sale(0), Some(&row_at(log[event].position)));
    assert_eq!(look(2), Look::Moved);
    assert_eq!(look(2), Look::Unmoved);
    assert_eq!(look(5), Look::Moved);
    assert_eq!(look(2), Look::Rewound);
    assert_eq!(pending.look(&sale(0), None), Look::Rewound);
}

#[test]
fn a_refused_sale_is_forgotten_and_the_others_go_on() {
    let mut pending = Pending::default();
    for n in 0..3 {
        pending.feed(&sale(n), about_sale, Script::run(n, &wins(1..=4)));
        pending.look(&sale(n), None);
    }
    assert_eq!(pending.events(), 15);
    pending.block(&sale(1), Blocked::Refused("a reason".into()));
    pending.feed(&sale(1), about_sale, Script::run(1, &wins(1..=4)));
    assert_eq!(pending.events(), 10);
    assert_eq!(pending.unwritten(), [sale(0), sale(2)]);
    let written: Vec<_> = pending
        .batch(100)
        .into_iter()
        .map(|write| write.sale)
        .collect();
    assert_eq!(written, [sale(0), sale(2)]);
}

#[test]
fn batches_are_bounded_and_every_sale_gets_its_turn() {
    let mut pending = Pending::default();
    for n in 0..4 {
        pending.feed(&sale(n), about_sale, Script::run(n, &wins(0..200)));
        pending.look(&sale(n), None);
    }
    let mut turns = Vec::new();
    while !pending.is_idle() {
        let writes = pending.batch(67);
        let events: u64 = writes
            .iter()
            .map(|w| w.to.seq.0 - w.from.map_or(0, |p| p.seq.0))
            .sum();
        assert!(events <= 67);
        turns.push(writes[0].sale.clone());
        pending.written(&writes);
    }
    assert_eq!(turns[..4], [sale(0), sale(1), sale(2), sale(3)]);
}

#[test]
fn an_opening_alone_is_a_write() {
    let mut pending = Pending::default();
    pending.feed(&sale(0), about_sale, Script::run(0, &[]));
    assert_eq!(pending.batch(10), [], "its row has not been looked at");
    pending.look(&sale(0), None);
    let writes = pending.batch(10);
    assert_eq!(
        (writes.len(), writes[0].from, writes[0].orders.len()),
        (1, None, 0)
    );
    assert_eq!(writes[0].to.seq, Seq(0));
}
