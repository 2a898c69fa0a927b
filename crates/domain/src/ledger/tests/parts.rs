//! What a ledger does that leaves a part of the rule out: the mistakes that the model and the
//! faults' suite show to matter.

use super::super::*;
use super::world::{sale, started, user, won};
use crate::ids::Unit;

macro_rules! without {
    ($name:ident, $($part:ident),+) => {
        #[derive(Debug, Clone)]
        struct $name;
        impl Rule for $name {
            $(fn $part() -> bool { false })+
        }
    };
}

fn fold<R: Rule>(log: &[Record]) -> (Ledger<R>, Vec<Fed>) {
    let mut ledger = Ledger::judged_by(sale());
    let mut fed = Vec::new();
    for (at, record) in log.iter().enumerate() {
        let at = Offset(at as u64);
        fed.push(ledger.feed(at, record.clone(), &mut Vec::new()).unwrap());
    }
    (ledger, fed)
}

fn opening(stock: u64) -> Record {
    started(1, 1, Some(Definition::of(stock)))
}

#[test]
fn without_the_first_winning_the_last_does() {
    without!(LastWins, first_wins);
    let opening = opening(3);
    let a = won(1, 1, opening.digest, 1, 1, 1);
    let b = won(1, 1, opening.digest, 2, 1, 2);
    let c = won(1, 2, b.digest, 3, 2, 3);
    let (ledger, fed) = fold::<LastWins>(&[opening.clone(), a.clone(), b.clone(), c.clone()]);
    assert_eq!(fed[2..], [Fed::Applied(1), Fed::Applied(1)]);
    assert_eq!(ledger.win_of(&user(1)), None);
    assert_eq!(ledger.win_of(&user(2)).unwrap().unit, Unit(1));
    assert_eq!((ledger.check(), ledger.applied()), (Ok(()), Seq(2)));

    let d = won(1, 2, b.digest, 4, 2, 4);
    let (ledger, fed) = fold::<LastWins>(&[opening, c, d, b]);
    assert_eq!(fed[1..], [Fed::Buffered, Fed::Buffered, Fed::Applied(2)]);
    assert_eq!(ledger.win_of(&user(4)).unwrap().unit, Unit(2));
}

#[test]
fn a_second_record_that_the_state_forbids_changes_nothing_and_ends_the_generation() {
    without!(LastWins, first_wins);
    let opening = opening(3);
    let a = won(1, 1, opening.digest, 1, 1, 1);
    let b = won(1, 2, a.digest, 2, 2, 2);
    let c = won(1, 2, a.digest, 1, 2, 3);
    let (ledger, fed) = fold::<LastWins>(&[opening, a, b, c]);
    assert!(matches!(fed[3], Fed::Ended(Cause::Impossible { .. })));
    assert_eq!(ledger.win_of(&user(2)).unwrap().unit, Unit(2));
}

#[test]
fn without_the_chain_two_histories_are_mixed_and_only_the_guard_sees_it() {
    without!(Unchained, chain);
    without!(Unguarded, chain, guard);
    let opening = opening(3);
    let lost = won(1, 1, opening.digest, 1, 1, 1);
    let b = won(1, 2, lost.digest, 2, 2, 2);
    let again = won(1, 1, opening.digest, 2, 1, 3);
    let log = [opening, b, again];
    let (_, fed) = fold::<FullRule>(&log);
    assert_eq!(fed[2], Fed::Ended(Cause::ChainBroken { seq: Seq(2) }));
    let (_, fed) = fold::<Unchained>(&log);
    assert!(matches!(fed[2], Fed::Ended(Cause::Impossible { .. })));
    let (ledger, fed) = fold::<Unguarded>(&log);
    assert_eq!(fed[2], Fed::Applied(2));
    assert_eq!(ledger.wins_of(&user(2)).count(), 2);
    assert!(ledger.check().is_err());
}

#[test]
fn without_strict_order_an_early_record_ends_the_generation() {
    without!(Hasty, strict_order);
    without!(HastyUnchained, strict_order, chain);
    let opening = opening(3);
    let a = won(1, 1, opening.digest, 1, 1, 1);
    let b = won(1, 2, a.digest, 2, 2, 2);
    let log = [opening, b, a];
    let (_, fed) = fold::<Hasty>(&log);
    assert_eq!(fed[1], Fed::Ended(Cause::ChainBroken { seq: Seq(2) }));
    let (ledger, fed) = fold::<HastyUnchained>(&log);
    assert_eq!(
        fed[1..],
        [
            Fed::Applied(1),
            Fed::Ended(Cause::OtherBytes { seq: Seq(1) })
        ]
    );
    assert_eq!(ledger.win_of(&user(2)).unwrap().seq, Seq(2));
}

#[test]
fn without_the_cut_a_late_record_ends_the_generation_after_its_own() {
    without!(Uncut, generation_cut);
    let opening = opening(3);
    let a = won(1, 1, opening.digest, 1, 1, 1);
    let next = started(2, 2, None);
    let log = [opening, a.clone(), next, a];
    assert_eq!(fold::<FullRule>(&log).1[3], Fed::Void);
    let cause = Cause::SeqTaken { seq: Seq(1) };
    assert_eq!(fold::<Uncut>(&log).1[3], Fed::Ended(cause));
}
