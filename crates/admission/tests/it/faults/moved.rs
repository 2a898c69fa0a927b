//! A slot that another master owns than the client knows of.

use super::ask;
use crate::fixture::{eventually, sale_id};
use crate::place::{As, Live, Place};
use dropgate_admission::{Admission, CallError, Operator, RedisConfig};
use dropgate_testkit::ClusterOptions;
use std::time::Duration;

#[tokio::test]
async fn a_call_is_followed_to_where_its_slot_has_moved_and_runs_once() {
    let place = Place::cluster(&ClusterOptions::default());
    let sale = sale_id("drop-1");
    let live = Live::open(&place, &sale, 9).await;
    // They do not ask by themselves who owns what.
    let stubborn = |user| RedisConfig {
        discovery_interval: Duration::from_secs(60),
        ..place.config(user)
    };
    let operator = Operator::connect(&stubborn(As::Operator)).await.unwrap();
    let gateway = Admission::connect(&stubborn(As::Gateway)).await.unwrap();
    let current = || operator.current(&sale);
    let known = eventually("the owner", current, Result::is_ok).await;
    assert_eq!(known.unwrap().as_deref(), Some(live.scope.tag()));
    let live = Live { gateway, ..live };
    ask(&live, "u").await.unwrap();

    let old = place.master(&sale);
    let new = place.failover(&sale);
    place.healthy();
    for server in [old, new] {
        let reset = place.server(server).cli(&["CONFIG", "RESETSTAT"]);
        reset.unwrap();
    }
    // The first call already: it is answered by the new owner, which does not know the scripts.
    assert_eq!(ask(&live, "v").await, Err(CallError::NoScript));
    let tag = operator.current(&sale).await.unwrap();
    assert_eq!(tag.as_deref(), Some(live.scope.tag()));
    let count = |server: usize, what: &str| {
        let stats = place.server(server).cli(&["INFO", "commandstats"]).unwrap();
        let line = stats
            .lines()
            .find(|line| line.starts_with(what))
            .map(str::to_owned);
        line.unwrap_or_default()
    };
    let (refused, ran) = (count(old, "cmdstat_evalsha"), count(new, "cmdstat_evalsha"));
    assert!(refused.contains("rejected_calls=1"), "{refused}");
    assert!(ran.contains("calls=1,"), "{ran}");
    place.nobody_was_refused();
}

#[tokio::test]
async fn a_slot_on_its_way_is_not_followed_and_nothing_runs() {
    let place = Place::cluster(&ClusterOptions::default());
    let sale = sale_id("drop-1");
    let live = Live::open(&place, &sale, 9).await;
    ask(&live, "u").await.unwrap();
    let (from, to) = {
        let from = place.master(&sale);
        (from, (0..3).find(|to| *to != from).unwrap())
    };
    let key = format!("dropgate:{{{sale}}}:current");
    let slot = place
        .server(from)
        .cli(&["CLUSTER", "KEYSLOT", &key])
        .unwrap();
    let id = |server: usize| place.server(server).cli(&["CLUSTER", "MYID"]).unwrap();
    let set = |server: usize, what: &str, node: &str| {
        let set = ["CLUSTER", "SETSLOT", &slot, what, node];
        place.server(server).cli(&set).unwrap();
    };
    set(to, "IMPORTING", &id(from));
    set(from, "MIGRATING", &id(to));
    // One key has gone ahead: a script on all of them can run nowhere.
    let target = place.server(to).port().to_string();
    let first = format!("dropgate:{{{sale}}}:{}:state", live.scope.tag());
    let migrate = ["MIGRATE", "127.0.0.1", &target, &first, "0", "5000"];
    place.server(from).cli(&migrate).unwrap();
    let error = ask(&live, "v").await.unwrap_err();
    assert!(matches!(&error, CallError::NotWritable(_)), "{error:?}");
    assert!(!error.may_have_run());
}
