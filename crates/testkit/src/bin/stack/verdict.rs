//! What the demonstration showed, in a few lines.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::output::say;

/// What a gateway should stay below, in bytes. Told, and no promise.
const GATEWAY_BYTES_MAX: u64 = 200_000_000;

/// What the load generator reports.
#[derive(Debug, Deserialize)]
struct Load {
    won: u64,
    pending: u64,
    errors: u64,
    other_4xx: u64,
    distinct_winners: u64,
    repeats_same_claim: u64,
    repeats_other_claim: u64,
    repeats_no_claim: u64,
    units: Units,
    connection_errors: ConnectionErrors,
    peak_rss_bytes: BTreeMap<String, Option<u64>>,
}

#[derive(Debug, Deserialize)]
struct Units {
    min: Option<u64>,
    max: Option<u64>,
    distinct: u64,
}

#[derive(Debug, Deserialize)]
struct ConnectionErrors {
    total: u64,
}

/// What the reconciler reports.
#[derive(Debug, Deserialize)]
struct Reconcile {
    holds: bool,
    orders: u64,
    promises: Vec<Promise>,
}

#[derive(Debug, Deserialize)]
struct Promise {
    name: String,
    holds: Option<bool>,
}

/// What the oracle reports.
#[derive(Debug, Deserialize)]
struct Oracle {
    holds: bool,
}

/// Reads the reports in `out`, tells what they say together, and whether that is what a sale of
/// `stock` units to `users` users must come to.
///
/// # Errors
/// When a report cannot be read.
pub fn tell(out: &Path, stock: u64, users: u64) -> Result<bool> {
    let load: Load = read(&out.join("load.json"))?;
    let reconcile: Reconcile = read(&out.join("reconcile.json"))?;
    let oracle: Oracle = read(&out.join("oracle.json"))?;
    say("");
    say("peak memory");
    for (name, bytes) in &load.peak_rss_bytes {
        let size = bytes.map_or_else(
            || "unknown".to_owned(),
            |bytes| format!("{} MiB", bytes >> 20),
        );
        let is_gateway = name.starts_with("gateway") || name.ends_with("serve");
        let much = is_gateway && bytes.is_some_and(|bytes| bytes > GATEWAY_BYTES_MAX);
        let note = if much {
            "   more than a gateway should have (200 MB)"
        } else {
            ""
        };
        say(&format!("  {name:<20} {size:>9}{note}"));
    }
    let broken = broken(&load, &reconcile, &oracle, stock.min(users));
    say("");
    say(&format!(
        "{} told winners, {} distinct users, units {}..{} ({} distinct), {} orders; \
         {} repeat clicks of winners got the same claim",
        load.won,
        load.distinct_winners,
        load.units.min.unwrap_or(0),
        load.units.max.unwrap_or(0),
        load.units.distinct,
        reconcile.orders,
        load.repeats_same_claim,
    ));
    for line in &broken {
        say(&format!("BROKEN: {line}"));
    }
    if broken.is_empty() {
        say("every promise holds");
    }
    Ok(broken.is_empty())
}

/// Everything that is not as it must be, in words.
fn broken(load: &Load, reconcile: &Reconcile, oracle: &Oracle, winners: u64) -> Vec<String> {
    let mut broken = Vec::new();
    let mut must = |holds: bool, text: String| {
        if !holds {
            broken.push(text);
        }
    };
    for (what, number) in [
        ("users were told that they won", load.won),
        (
            "distinct users were told that they won",
            load.distinct_winners,
        ),
        ("distinct units were told", load.units.distinct),
        ("orders are in the database", reconcile.orders),
    ] {
        must(number == winners, format!("{number} {what}, not {winners}"));
    }
    let first_and_last = (load.units.min, load.units.max);
    let expected = (winners > 0).then_some((1, winners)).unzip();
    must(
        first_and_last == expected,
        format!(
            "the units told run from {:?} to {:?}",
            load.units.min, load.units.max
        ),
    );
    for (what, number) in [
        ("clicks ended pending", load.pending),
        ("clicks ended in errors", load.errors),
        (
            "clicks were refused with another 4xx than sold out",
            load.other_4xx,
        ),
        (
            "requests met a connection error",
            load.connection_errors.total,
        ),
        (
            "repeat clicks of winners got another claim",
            load.repeats_other_claim,
        ),
        ("repeat clicks of winners got none", load.repeats_no_claim),
    ] {
        must(number == 0, format!("{number} {what}"));
    }
    for promise in reconcile
        .promises
        .iter()
        .filter(|promise| promise.holds == Some(false))
    {
        must(false, format!("by the reconciler: {}", promise.name));
    }
    must(
        reconcile.holds,
        "the reconciler says that not all holds".to_owned(),
    );
    must(
        oracle.holds,
        "the oracle says that not all holds".to_owned(),
    );
    broken
}

fn read<T: DeserializeOwned>(path: &Path) -> Result<T> {
    let text = std::fs::read(path).with_context(|| format!("reading {}", path.display()))?;
    serde_json::from_slice(&text).with_context(|| format!("understanding {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> (Load, Reconcile, Oracle) {
        let load = serde_json::json!({
            "won": 3, "pending": 0, "errors": 0, "other_4xx": 0, "distinct_winners": 3,
            "repeats_same_claim": 1, "repeats_other_claim": 0, "repeats_no_claim": 0,
            "units": {"min": 1, "max": 3, "distinct": 3, "told_to_several_users": 0},
            "connection_errors": {"total": 0, "by_kind": {}}, "peak_rss_bytes": {"a": 1, "b": null},
        });
        let reconcile = serde_json::json!({
            "holds": true, "orders": 3, "promises": [{"name": "never_oversell", "holds": true}],
        });
        (
            serde_json::from_value(load).unwrap(),
            serde_json::from_value(reconcile).unwrap(),
            Oracle { holds: true },
        )
    }

    #[test]
    fn a_good_run_holds() {
        let (load, reconcile, oracle) = good();
        assert_eq!(broken(&load, &reconcile, &oracle, 3), Vec::<String>::new());
    }

    #[test]
    fn every_single_fault_is_told() {
        let faults: [fn(&mut Load, &mut Reconcile, &mut Oracle); 15] = [
            |load, _, _| load.won = 4,
            |load, _, _| load.pending = 1,
            |load, _, _| load.errors = 1,
            |load, _, _| load.other_4xx = 1,
            |load, _, _| load.distinct_winners = 2,
            |load, _, _| load.repeats_other_claim = 1,
            |load, _, _| load.repeats_no_claim = 1,
            |load, _, _| load.units.min = Some(2),
            |load, _, _| load.units.max = Some(4),
            |load, _, _| load.units.distinct = 2,
            |load, _, _| load.connection_errors.total = 1,
            |_, reconcile, _| reconcile.holds = false,
            |_, reconcile, _| reconcile.orders = 2,
            |_, reconcile, _| reconcile.promises[0].holds = Some(false),
            |_, _, oracle| oracle.holds = false,
        ];
        for (number, fault) in faults.iter().enumerate() {
            let (mut load, mut reconcile, mut oracle) = good();
            fault(&mut load, &mut reconcile, &mut oracle);
            let found = broken(&load, &reconcile, &oracle, 3);
            assert_eq!(found.len(), 1, "fault {number}: {found:?}");
        }
    }

    #[test]
    fn a_sale_of_nothing_has_no_winners() {
        let (mut load, mut reconcile, oracle) = good();
        (load.won, load.distinct_winners, reconcile.orders) = (0, 0, 0);
        load.units = Units {
            min: None,
            max: None,
            distinct: 0,
        };
        assert_eq!(broken(&load, &reconcile, &oracle, 0), Vec::<String>::new());
    }
}
