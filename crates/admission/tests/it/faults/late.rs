//! Calls that an old master runs when it goes on.

use super::{ask, told};
use crate::fixture::{eventually, sale_id};
use crate::place::{Live, Place};
use dropgate_admission::{CallError, Claimed};
use dropgate_domain::{SaleId, Seq};
use dropgate_testkit::{ClusterOptions, Redis, TrioOptions};
use std::cell::Cell;

fn evalsha_calls(server: &Redis) -> u64 {
    let stats = server.cli(&["INFO", "commandstats"]).unwrap();
    let count = |l: &str| {
        let rest = l.strip_prefix("cmdstat_evalsha:calls=")?;
        rest.split(',').next()?.parse().ok()
    };
    stats.lines().find_map(count).unwrap_or(0)
}

/// Calls wait in a paused master's socket while another takes its place.
async fn late(mut place: Place, sale: &SaleId) {
    let live = Live::brisk(&place, sale, 9).await;
    let won = ask(&live, "u").await.unwrap();
    assert!(matches!(won, Claimed::Won { .. }), "{won:?}");
    place.healthy();
    let old = place.master(sale);
    let before = evalsha_calls(place.server(old));
    place.server_mut(old).pause().unwrap();
    // Two: the third would make the watchdog take a new connection, which is not to be seen here.
    for name in ["v", "w"] {
        let error = ask(&live, name).await.unwrap_err();
        assert!(error.may_have_run(), "{error:?}");
    }
    let new = place.new_master(sale, old);
    let asked = Cell::new(2);
    let again = || {
        asked.set(asked.get() + 1);
        ask(&live, "x")
    };
    let fenced = |answer: &Result<_, _>| *answer == Err(CallError::NoScript);
    let _ = eventually("the new master's answer", again, fenced).await;
    place.server_mut(old).resume().unwrap();
    place.healthy();
    // It ran what was buffered, or refused it as late, but each once, and nothing of it stayed.
    let late = evalsha_calls(place.server(old)) - before;
    assert!(late <= asked.get(), "{late} of {}", asked.get());
    assert_eq!(place.master(sale), new);
    // The operator finds its own way to the new master.
    let state = || live.operator.state(&live.scope);
    let stored = eventually("the state", state, Result::is_ok).await;
    assert_eq!(stored.unwrap().unwrap().seq, Seq(1));
    assert_eq!(live.operator.claims_count(&live.scope).await.unwrap(), 1);
    assert_eq!(told(&live, "y").await, Err(CallError::NoScript));
}

#[tokio::test]
async fn what_a_demoted_master_ran_late_is_gone_behind_sentinels() {
    let place = Place::trio(&TrioOptions::default());
    late(place, &sale_id("drop-1")).await;
}

#[tokio::test]
async fn what_a_demoted_master_ran_late_is_gone_in_a_cluster() {
    let place = Place::cluster(&ClusterOptions::default());
    late(place, &sale_id("drop-1")).await;
}
