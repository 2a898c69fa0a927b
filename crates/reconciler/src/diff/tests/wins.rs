//! Rows, claims and what clients were told, against the wins.

use super::super::{Compared, Complete, Diff, Kind, Told, ToldStatus};
use super::world::{World, attempt, entry, user};
use dropgate_admission::Entry;
use dropgate_domain::{ClaimId, Generation, IdempotencyKey, Seq, TimeMs, Unit, UserId, Win};
use dropgate_store::{Order, OrderStatus};
use proptest::prelude::*;
use proptest::sample::Index;
use std::collections::{BTreeMap, BTreeSet};

const STOCK: u64 = 60;

/// One change of a correct world, of the win that it is given to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Change {
    MissingRow,
    ExtraRow,
    RowUser,
    RowUnit,
    RowClaim,
    RowAttempt,
    RowKey,
    RowSeq,
    RowWonAt,
    ClaimMissing,
    ClaimExtra,
    ClaimUser,
    ClaimUnit,
    ClaimAttempt,
    ClaimKey,
    ToldAbsent,
    ToldUser,
    ToldUnit,
    ToldVoid,
}

use Change::*;

const CHANGES: [Change; 19] = [
    MissingRow,
    ExtraRow,
    RowUser,
    RowUnit,
    RowClaim,
    RowAttempt,
    RowKey,
    RowSeq,
    RowWonAt,
    ClaimMissing,
    ClaimExtra,
    ClaimUser,
    ClaimUnit,
    ClaimAttempt,
    ClaimKey,
    ToldAbsent,
    ToldUser,
    ToldUnit,
    ToldVoid,
];

impl Change {
    fn kind(self) -> Kind {
        match self {
            MissingRow => Kind::MissingRow,
            ExtraRow => Kind::ExtraRow,
            RowUser => Kind::ChangedUser,
            RowUnit => Kind::ChangedUnit,
            RowClaim => Kind::ChangedClaim,
            RowAttempt => Kind::ChangedAttempt,
            RowKey => Kind::ChangedKey,
            RowSeq => Kind::ChangedSeq,
            RowWonAt => Kind::ChangedWonAt,
            ClaimMissing => Kind::RedisClaimMissing,
            ClaimExtra => Kind::RedisClaimExtra,
            ClaimUser | ClaimUnit | ClaimAttempt | ClaimKey => Kind::RedisClaimChanged,
            ToldAbsent => Kind::ToldWinnerAbsent,
            ToldUser => Kind::ToldUserDiffers,
            ToldUnit => Kind::ToldUnitDiffers,
            ToldVoid => Kind::ToldVoidButWon,
        }
    }
}

/// What the sources say, as it can be changed.
struct Said {
    orders: Vec<Order>,
    claims: BTreeMap<UserId, Vec<Entry>>,
    told: Vec<Told>,
}

fn told(win: &Win) -> Told {
    Told {
        user: win.user.clone(),
        claim: win.claim(),
        status: ToldStatus::Won(win.unit),
    }
}

fn strange_claim(n: u64) -> ClaimId {
    ClaimId {
        generation: Generation(1),
        seq: Seq(1000 + n),
        attempt: attempt(1000 + n),
    }
}

impl Said {
    fn of(world: &World) -> Self {
        Self {
            orders: world.orders(),
            claims: world.claims(),
            told: world.wins().iter().map(told).collect(),
        }
    }

    fn entry(&mut self, win: &Win) -> &mut Entry {
        let entries = self.claims.get_mut(&win.user).unwrap();
        entries
            .iter_mut()
            .find(|entry| entry.seq == win.seq)
            .unwrap()
    }

    fn drop_entry(&mut self, win: &Win) {
        let entries = self.claims.get_mut(&win.user).unwrap();
        entries.retain(|entry| entry.seq != win.seq);
    }

    /// Makes one change around the n-th win. Units and users that it brings in are new ones.
    fn change(&mut self, change: Change, n: usize, win: &Win) {
        let fresh = n as u64;
        let order = self
            .orders
            .iter_mut()
            .find(|order| order.claim == win.claim());
        match (change, order) {
            (MissingRow, _) => self.orders.retain(|order| order.claim != win.claim()),
            (ExtraRow, _) => self.orders.push(Order {
                unit: Unit(STOCK / 2 + 1 + fresh),
                claim: strange_claim(fresh),
                user: user(1000 + fresh),
                attempt: attempt(1000 + fresh),
                key: IdempotencyKey::none(),
                generation: Generation(1),
                seq: Seq(1000 + fresh),
                status: OrderStatus::Won,
                won_at: TimeMs(1),
            }),
            (RowUser, Some(order)) => order.user = user(2000 + fresh),
            (RowUnit, Some(order)) => order.unit = Unit(STOCK / 2 + 1 + fresh),
            (RowClaim, Some(order)) => order.claim = strange_claim(fresh),
            (RowAttempt, Some(order)) => order.attempt = attempt(3000 + fresh),
            (RowKey, Some(order)) => order.key = IdempotencyKey::new("other").unwrap(),
            (RowSeq, Some(order)) => order.seq = Seq(4000 + fresh),
            (RowWonAt, Some(order)) => order.won_at = TimeMs(5),
            (ClaimMissing, _) => self.drop_entry(win),
            (ClaimExtra, _) => {
                let extra = Entry {
                    seq: Seq(1000 + fresh),
                    unit: Unit(STOCK / 2 + 1 + fresh),
                    ..entry(win)
                };
                self.claims.insert(user(1000 + fresh), vec![extra]);
            }
            (ClaimUser, _) => {
                self.drop_entry(win);
                self.claims.insert(user(2000 + fresh), vec![entry(win)]);
            }
            (ClaimUnit, _) => self.entry(win).unit = Unit(STOCK / 2 + 1 + fresh),
            (ClaimAttempt, _) => self.entry(win).attempt = attempt(3000 + fresh),
            (ClaimKey, _) => self.entry(win).key = IdempotencyKey::none(),
            (ToldAbsent, _) => {
                let mut absent = told(win);
                absent.claim = strange_claim(fresh);
                // Told twice, as a winner who clicks twice is: still one winner.
                self.told.extend([absent.clone(), absent]);
            }
            (ToldUser, _) => self.told.push(Told {
                user: user(2000 + fresh),
                ..told(win)
            }),
            (ToldUnit, _) => self.told.push(Told {
                status: ToldStatus::Won(Unit(STOCK + 1)),
                ..told(win)
            }),
            (ToldVoid, _) => self.told.push(Told {
                status: ToldStatus::Void,
                ..told(win)
            }),
            (_, None) => unreachable!("{change:?} of a row that was removed"),
        }
    }
}

/// Compares, with the rows in the order of units and the claims in two overlapping pages.
fn compare(world: &World, limit: u32, said: &Said) -> Compared {
    let wins = world.wins();
    let mut diff = Diff::new(STOCK, limit, 3);
    diff.require(wins);
    let mut orders: Vec<_> = said.orders.iter().collect();
    orders.sort_by_key(|order| order.unit);
    for order in orders {
        diff.row(wins, order);
    }
    let claims: Vec<_> = said
        .claims
        .iter()
        .filter(|(_, entries)| !entries.is_empty())
        .collect();
    let again = claims.iter().step_by(2);
    for (user, entries) in claims.iter().chain(again) {
        diff.claim(wins, user, entries);
    }
    for told in &said.told {
        diff.told(wins, told);
    }
    let complete = Complete {
        rows: true,
        claims: true,
    };
    diff.finish(wins, world.ledger.position(), complete)
}

fn kinds(compared: &Compared) -> BTreeMap<Kind, u64> {
    compared
        .found
        .iter()
        .map(|(kind, found)| (kind, found.count))
        .collect()
}

/// Units of the first half of the stock, in any order; the second half is for what is planted.
fn units() -> impl Strategy<Value = Vec<u64>> {
    (1..=STOCK / 2).prop_flat_map(|count| Just((1..=count).collect::<Vec<_>>()).prop_shuffle())
}

proptest! {
    #[test]
    fn a_correct_world_has_no_differences(units in units(), limit in 1u32..4, closed: bool) {
        let world = World::new(STOCK, limit, &units, closed);
        let compared = compare(&world, limit, &Said::of(&world));
        prop_assert_eq!(kinds(&compared), BTreeMap::new());
        let wins = units.len() as u64;
        prop_assert_eq!((compared.rows, compared.claims), (wins, wins));
        prop_assert_eq!((compared.wins_with_row, compared.wins_with_claim), (wins, wins));
        prop_assert_eq!(compared.told.unwrap().winners, wins);
    }

    #[test]
    fn every_change_is_found_by_its_kind_and_counted_once(
        units in units(),
        limit in 1u32..4,
        changes in prop::collection::btree_map(any::<Index>().prop_map(|i| i.index(30)), 0usize..19, 1..8),
    ) {
        let world = World::new(STOCK, limit, &units, true);
        let mut said = Said::of(&world);
        let mut expected: BTreeMap<Kind, u64> = BTreeMap::new();
        for (n, change) in changes {
            let (change, Some(win)) = (CHANGES[change], world.wins().get(n)) else { continue };
            said.change(change, n, win);
            *expected.entry(change.kind()).or_default() += 1;
        }
        prop_assert_eq!(kinds(&compare(&world, limit, &said)), expected);
    }

    #[test]
    fn oversell_and_limit_are_found_whatever_the_rows_and_claims_are(
        units in units(),
        limit in 1u32..3,
        plants in prop::collection::vec((any::<Index>(), 0u64..70, any::<Index>()), 0..6),
    ) {
        let world = World::new(STOCK, limit, &units, true);
        let mut said = Said::of(&world);
        // Any row gets any unit and any user, known ones as well; the same in Redis.
        for (at, unit, who) in &plants {
            let row = at.index(said.orders.len());
            let who = world.wins()[who.index(world.wins().len())].user.clone();
            said.orders[row].unit = Unit(*unit);
            said.orders[row].user = who.clone();
            let seq = said.orders[row].seq;
            let from = said.claims.iter().find(|(_, e)| e.iter().any(|e| e.seq == seq));
            let from = from.unwrap().0.clone();
            let entries = said.claims.get_mut(&from).unwrap();
            let mut moved = entries.remove(entries.iter().position(|e| e.seq == seq).unwrap());
            moved.unit = Unit(*unit);
            said.claims.entry(who).or_default().push(moved);
        }
        let compared = compare(&world, limit, &said);
        let rows: Vec<_> = said.orders.iter().map(|o| (o.unit, o.user.clone())).collect();
        let entries: Vec<_> = said
            .claims
            .iter()
            .flat_map(|(user, entries)| entries.iter().map(|e| (e.unit, user.clone())))
            .collect();
        for (owners, oversold, over_limit) in [
            (rows, Kind::RowOversold, Kind::RowOverLimit),
            (entries, Kind::RedisOversold, Kind::RedisOverLimit),
        ] {
            let mut seen = BTreeSet::new();
            let sold_badly = owners
                .iter()
                .filter(|(unit, _)| unit.0 == 0 || unit.0 > STOCK || !seen.insert(*unit))
                .count();
            let mut held: BTreeMap<&UserId, u32> = BTreeMap::new();
            for (_, user) in &owners {
                *held.entry(user).or_default() += 1;
            }
            let over = held.values().filter(|count| **count > limit).count() as u64;
            prop_assert_eq!(compared.found.count(oversold) > 0, sold_badly > 0, "{:?}", owners);
            prop_assert_eq!(compared.found.count(over_limit), over, "{:?}", owners);
        }
    }
}

#[test]
fn what_came_while_it_was_read_is_judged_by_the_log_as_it_is_then() {
    let early = World::new(STOCK, 1, &[1, 2, 3], false);
    let late = World::new(STOCK, 1, &[1, 2, 3, 4, 5], false);
    let mut diff = Diff::new(STOCK, 1, 3);
    diff.require(early.wins());
    let said = Said::of(&late);
    for order in &said.orders[..4] {
        diff.row(early.wins(), order);
    }
    for (user, entries) in &said.claims {
        diff.claim(early.wins(), user, entries);
    }
    let complete = Complete {
        rows: true,
        claims: true,
    };
    // The fifth row was not there yet: nobody said that it should be.
    let compared = diff.finish(late.wins(), late.ledger.position(), complete);
    assert_eq!(kinds(&compared), BTreeMap::new());
    assert_eq!((compared.rows, compared.claims), (4, 5));
}

#[test]
fn rows_beyond_the_databases_position_are_unwritten_and_not_missing() {
    let world = World::new(STOCK, 1, &[1, 2, 3, 4], false);
    let written = World::new(STOCK, 1, &[1, 2], false);
    let mut diff = Diff::new(STOCK, 1, 3);
    diff.require(world.wins());
    diff.row(world.wins(), &world.orders()[0]);
    let complete = Complete {
        rows: true,
        claims: false,
    };
    let compared = diff.finish(world.wins(), written.ledger.position(), complete);
    let expected = BTreeMap::from([(Kind::MissingRow, 1), (Kind::UnwrittenRow, 2)]);
    assert_eq!(kinds(&compared), expected);
}

#[test]
fn examples_name_no_users() {
    let world = World::new(STOCK, 1, &[1, 2, 3], true);
    for change in CHANGES {
        let mut said = Said::of(&world);
        said.change(change, 1, &world.wins()[1]);
        let compared = compare(&world, 1, &said);
        let text = format!("{:?}", compared.found);
        assert!(!text.contains("user-"), "{change:?}: {text}");
        assert!(!text.contains("key-"), "{change:?}: {text}");
    }
}
