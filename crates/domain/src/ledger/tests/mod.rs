//! The ledger against its rule, over histories in which Redis loses writes.

mod parts;
mod world;

use super::*;
use crate::ids::{AttemptId, Unit};
use proptest::prelude::*;
use std::collections::BTreeMap;
use world::{WINDOW, fold, history, op, record, recover, sale, started, user, won};

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
            at: None,
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
fn what_was_given_after_the_close_is_void() {
    let opening = started(1, 1, Some(Definition::of(2)));
    let link = |seq, prev| Link {
        seq: Seq(seq),
        time: TimeMs(seq),
        prev,
    };
    let closed = record(1, Body::Closed(link(1, opening.digest)));
    let log = [opening, closed];
    let open = fold(&log[..1]);
    assert_eq!(open.event_at(Generation(1), Seq(2)), Found::Open);
    let over = fold(&log);
    assert_eq!(over.event_at(Generation(1), Seq(1)), Found::AppliedOther);
    assert_eq!(over.event_at(Generation(1), Seq(2)), Found::Void);
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
