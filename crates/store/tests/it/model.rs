//! Random transactions against a model of the store.

use crate::db::{self, Db};
use crate::fixture::{all_orders, order, position, sale_id};
use dropgate_domain::{LogId, Offset, PartitionId, Position};
use dropgate_store::{Order, Pin, SaleState, SaleWrite, WriteError};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};

const STOCK: u64 = 12;

/// One sale's part of a transaction, relative to what is stored when it runs.
#[derive(Debug, Clone)]
struct Part {
    sale: usize,
    /// 0: from the stored position; else from one that is not stored.
    stale: u8,
    /// Units to be sold, as distances from the next fresh one: 0 is right, -1 is taken.
    units: Vec<i64>,
}

#[derive(Default, Clone)]
struct Stored {
    position: Option<Position>,
    orders: BTreeMap<u64, Order>,
}

#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    Written,
    Conflict(String),
    Refused(String),
}

fn part() -> impl Strategy<Value = Part> {
    let stale = prop_oneof![6 => Just(0_u8), 1 => Just(1_u8), 1 => Just(2_u8)];
    let unit = prop_oneof![12 => Just(0_i64), 1 => Just(-1_i64)];
    let units = prop::collection::vec(unit, 0..4);
    (0..3_usize, stale, units).prop_map(|(sale, stale, units)| Part { sale, stale, units })
}

fn transactions() -> impl Strategy<Value = Vec<Vec<Part>>> {
    let parts = prop::collection::vec(part(), 1..4).prop_map(|mut parts| {
        let mut seen = BTreeSet::new();
        parts.retain(|part| seen.insert(part.sale));
        parts
    });
    prop::collection::vec(parts, 1..10)
}

fn build(part: &Part, salt: u64, name: &str, stored: &Stored) -> SaleWrite {
    let sold = stored.orders.len() as u64;
    let seq = stored.position.map_or(0, |p| p.seq.0);
    let mut fresh = stored.orders.keys().last().copied().unwrap_or(0);
    let mut orders = Vec::new();
    for (n, step) in (seq + 1..).zip(&part.units) {
        fresh += 1;
        let unit = fresh.saturating_add_signed(*step).max(1);
        orders.push(order(salt, n, unit, &format!("u{}", n % 5)));
    }
    let from = match part.stale {
        0 => stored.position,
        1 => Some(position(1, seq + 1)),
        _ => stored.position.is_none().then(|| position(1, 0)),
    };
    SaleWrite {
        sale: sale_id(name),
        from,
        to: position(1, seq + orders.len() as u64),
        pin: Pin {
            log_id: LogId([1; 16]),
            partition: PartitionId(0),
            from_offset: Offset(0),
        },
        state: SaleState::Open,
        stock: STOCK,
        sold: sold + orders.len() as u64,
        held: 0,
        opened_at: None,
        closed_at: None,
        orders,
    }
}

/// What must happen to a transaction, and what is stored then.
fn expected(writes: &[SaleWrite], stored: &BTreeMap<String, Stored>) -> (Outcome, Vec<Stored>) {
    let mut after = Vec::new();
    let mut ordered: Vec<_> = writes.iter().collect();
    ordered.sort_by(|a, b| a.sale.cmp(&b.sale));
    for write in ordered {
        let name = write.sale.as_str().to_owned();
        let mut sale = stored.get(&name).cloned().unwrap_or_default();
        if sale.position.is_none() && write.from.is_none() && write.sold > STOCK {
            return (Outcome::Refused(name), Vec::new());
        }
        if sale.position != write.from {
            return (Outcome::Conflict(name), Vec::new());
        }
        if write.sold > STOCK {
            return (Outcome::Refused(name), Vec::new());
        }
        for order in &write.orders {
            if sale.orders.insert(order.unit.0, order.clone()).is_some() {
                return (Outcome::Refused(name), Vec::new());
            }
        }
        sale.position = Some(write.to);
        after.push(sale);
    }
    (Outcome::Written, after)
}

async fn run(db: &Db, case: u64, transactions: &[Vec<Part>]) {
    let name = |sale: usize| format!("m{case}-{sale}");
    let mut stored: BTreeMap<String, Stored> = BTreeMap::new();
    for parts in transactions {
        let writes: Vec<_> = parts
            .iter()
            .map(|part| {
                let name = name(part.sale);
                let now = stored.get(&name).cloned().unwrap_or_default();
                build(part, case * 3 + part.sale as u64, &name, &now)
            })
            .collect();
        let (outcome, after) = expected(&writes, &stored);
        let seen = match db.store.write(&writes).await {
            Ok(()) => Outcome::Written,
            Err(WriteError::Conflict { sale }) => Outcome::Conflict(sale.to_string()),
            Err(WriteError::Refused { sale, .. }) => Outcome::Refused(sale.to_string()),
            Err(WriteError::Transient(transient)) => panic!("{transient}"),
        };
        assert_eq!(seen, outcome, "of {writes:?}");
        let mut names: Vec<_> = writes.iter().map(|w| w.sale.to_string()).collect();
        names.sort();
        stored.extend(names.into_iter().zip(after));
    }
    for sale in 0..3 {
        let model = stored.get(&name(sale)).cloned().unwrap_or_default();
        let id = sale_id(&name(sale));
        let row = db.store.sale(&id).await.unwrap();
        assert_eq!(row.map(|row| row.position), model.position);
        let rows = all_orders(&db.store, &id).await;
        assert_eq!(rows, model.orders.into_values().collect::<Vec<_>>());
    }
}

fn check(open: impl Future<Output = Db>) {
    static CASE: AtomicU64 = AtomicU64::new(0);
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let db = runtime.block_on(open);
    let mut runner = TestRunner::new(Config {
        cases: 96,
        failure_persistence: None,
        ..Config::default()
    });
    let checked = runner.run(&transactions(), |transactions| {
        let case = CASE.fetch_add(1, Ordering::Relaxed);
        runtime.block_on(run(&db, case, &transactions));
        Ok(())
    });
    if let Err(failure) = checked {
        panic!("{failure}");
    }
}

#[test]
fn any_transactions_do_in_sqlite_what_the_model_says() {
    check(db::sqlite());
}

#[test]
fn any_transactions_do_in_postgres_what_the_model_says() {
    check(db::postgres());
}
