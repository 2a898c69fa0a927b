//! A Redis that forgot must not answer, and one that takes no writes must not half do so.

use crate::fixture::{PATIENCE, Sale, claim, config, eventually, redis_ms};
use dropgate_admission::{Admission, CallError, Claimed, Outage, RedisConfig, Reply, Scripts};
use dropgate_domain::{Definition, Nonce, Seq};
use dropgate_testkit::{AppendOnly, Proxy, Redis, RedisOptions};
use std::time::Duration;

async fn ask(sale: &Sale, name: &str) -> Result<Reply<Claimed>, CallError> {
    let claim = claim(name, 1);
    let reply = sale
        .gateway
        .claim(&sale.scope, &sale.scripts, Seq(0), &claim);
    reply.await
}

/// What a claim, a close and a tip answer: the same for all three.
async fn all_refuse(sale: &Sale) -> CallError {
    let claimed = ask(sale, "new").await.unwrap_err();
    let closed = sale.gateway.close(&sale.scope, &sale.scripts, Seq(0)).await;
    assert_eq!(closed.unwrap_err(), claimed);
    let tip = sale.gateway.tip(&sale.scope, &sale.scripts, Seq(0), 10);
    assert_eq!(tip.await.unwrap_err(), claimed);
    claimed
}

#[tokio::test]
async fn after_flushall_the_sale_is_missing_never_sold_out() {
    let sale = Sale::open(Definition::of(5)).await;
    ask(&sale, "u").await.unwrap();
    sale.cli(&["FLUSHALL"]);
    assert_eq!(all_refuse(&sale).await, CallError::Missing);
    assert!(sale.dump().is_empty());
    assert_eq!(sale.operator.state(&sale.scope).await.unwrap(), None);
    let current = sale.operator.current(sale.scope.sale()).await;
    assert_eq!(current.unwrap(), None);
}

#[tokio::test]
async fn without_its_state_a_sale_is_missing() {
    let sale = Sale::open(Definition::of(5)).await;
    sale.cli(&["DEL", &sale.key("state")]);
    assert_eq!(all_refuse(&sale).await, CallError::Missing);
}

#[tokio::test]
async fn after_script_flush_every_call_says_noscript() {
    let sale = Sale::open(Definition::of(5)).await;
    let before = sale.dump();
    sale.cli(&["SCRIPT", "FLUSH"]);
    assert_eq!(all_refuse(&sale).await, CallError::NoScript);
    assert_eq!(sale.dump(), before);
}

#[tokio::test]
async fn the_scripts_of_another_nonce_do_not_answer_for_these() {
    let sale = Sale::open(Definition::of(5)).await;
    sale.cli(&["SCRIPT", "FLUSH"]);
    let nonce = Nonce([1; 16]);
    let other = sale.operator.load_scripts(sale.scope.sale(), nonce);
    let other = other.await.unwrap();
    assert_eq!(all_refuse(&sale).await, CallError::NoScript);
    let other = Scripts::from_started(&other).unwrap();
    let claim = claim("u", 1);
    let reply = sale.gateway.claim(&sale.scope, &other, Seq(0), &claim);
    assert!(matches!(reply.await.unwrap().value, Claimed::Won { .. }));
}

#[tokio::test]
async fn a_redis_that_restarted_with_its_data_says_noscript() {
    let options = RedisOptions {
        append_only: AppendOnly::Always,
        ..RedisOptions::default()
    };
    let mut sale = Sale::open(Definition::of(5)).await;
    sale.redis = Redis::start(&options).unwrap();
    let sale = reopened(sale).await;
    ask(&sale, "u").await.unwrap();
    let before = sale.dump();
    let mut sale = sale;
    sale.redis.restart().unwrap();
    assert_eq!(sale.dump(), before);
    let error = eventually(
        "an answer after the restart",
        || async { ask(&sale, "new").await.unwrap_err() },
        |error| !matches!(error, CallError::Unavailable(_)),
    )
    .await;
    assert_eq!(error, CallError::NoScript);
    assert_eq!(all_refuse(&sale).await, CallError::NoScript);
    assert_eq!(sale.dump(), before);
}

/// The same sale once more, on the Redis that the fixture now holds.
async fn reopened(old: Sale) -> Sale {
    let operator = dropgate_admission::Operator::new(config(&old.redis.operator_url()));
    let gateway = Admission::connect(&config(&old.redis.gateway_url()))
        .await
        .unwrap();
    let nonce = crate::fixture::NONCE;
    operator
        .load_scripts(old.scope.sale(), nonce)
        .await
        .unwrap();
    let state = crate::fixture::fresh(old.scope.sale(), Definition::of(5));
    crate::fixture::make_current(&operator, &old.scripts, &old.scope, &state, []).await;
    Sale {
        operator,
        gateway,
        ..old
    }
}

#[tokio::test]
async fn a_replica_refuses_writes_and_once_promoted_says_noscript() {
    let sale = Sale::open(Definition::of(5)).await;
    ask(&sale, "u").await.unwrap();
    let options = RedisOptions {
        replica_of: Some(sale.redis.port()),
        ..RedisOptions::default()
    };
    let replica = Redis::start(&options).unwrap();
    replica.wait_for_replication().unwrap();
    let gateway = Admission::connect(&config(&replica.gateway_url()))
        .await
        .unwrap();
    let problems = gateway.problems().await.unwrap();
    assert!(problems[0].contains("slave"), "{problems:?}");
    let ask = || async {
        let claim = claim("new", 2);
        let reply = gateway.claim(&sale.scope, &sale.scripts, Seq(0), &claim);
        reply.await.unwrap_err()
    };
    assert_eq!(ask().await, CallError::NoScript);
    replica.promote().unwrap();
    let before = crate::fixture::dump(&replica);
    assert_eq!(before, sale.dump(), "the data came along");
    assert_eq!(ask().await, CallError::NoScript);
    assert_eq!(crate::fixture::dump(&replica), before);
}

#[tokio::test]
async fn a_redis_that_takes_no_writes_says_so_and_writes_nothing() {
    let sale = Sale::open(Definition::of(5)).await;
    ask(&sale, "u").await.unwrap();
    let whole = sale.dump();
    let cases: [(&str, &[&str], &[&str]); 3] = [
        (
            "OOM",
            &["CONFIG", "SET", "maxmemory", "1"],
            &["CONFIG", "SET", "maxmemory", "0"],
        ),
        (
            "NOREPLICAS",
            &["CONFIG", "SET", "min-replicas-to-write", "1"],
            &["CONFIG", "SET", "min-replicas-to-write", "0"],
        ),
        (
            "READONLY",
            &["REPLICAOF", "127.0.0.1", "1"],
            &["REPLICAOF", "NO", "ONE"],
        ),
    ];
    for (prefix, break_it, heal) in cases {
        sale.cli(break_it);
        let error = ask(&sale, "new").await.unwrap_err();
        let named = matches!(&error, CallError::NotWritable(text) if text.starts_with(prefix));
        assert!(named && !error.may_have_run(), "{prefix}: {error:?}");
        let closed = sale.gateway.close(&sale.scope, &sale.scripts, Seq(0)).await;
        let closed = closed.unwrap_err();
        assert!(!closed.may_have_run(), "{prefix}: {closed:?}");
        sale.cli(heal);
        assert_eq!(sale.dump(), whole, "{prefix}");
        // Also after READONLY, for which the client takes a new connection.
        let _ = eventually(
            "a repeat to be answered again",
            || async { ask(&sale, "u").await },
            |reply| matches!(reply, Ok(reply) if matches!(reply.value, Claimed::Again { .. })),
        )
        .await;
    }
}

#[tokio::test]
async fn a_call_that_arrives_after_its_deadline_does_nothing() {
    let mut sale = Sale::open(Definition::of(5)).await;
    let proxy = Proxy::start(sale.redis.port()).unwrap();
    let config = RedisConfig {
        call_deadline: Duration::from_millis(50),
        command_timeout: PATIENCE,
        ..config(&Redis::gateway_url_at(proxy.port()))
    };
    let gateway = Admission::connect(&config).await.unwrap();
    // The clock is known from here on, so that the next call is the claim itself.
    let tip = gateway.tip(&sale.scope, &sale.scripts, Seq(0), 0);
    tip.await.unwrap();
    let before = sale.dump();

    sale.redis.pause().unwrap();
    let sent_before = proxy.bytes_to_server();
    let paused_at = std::time::SystemTime::now();
    let (scope, scripts) = (sale.scope.clone(), sale.scripts);
    let call = tokio::spawn(async move {
        let claim = claim("u", 1);
        gateway.claim(&scope, &scripts, Seq(0), &claim).await
    });
    eventually(
        "the call to be on its way",
        || async { proxy.bytes_to_server() },
        |sent| *sent > sent_before,
    )
    .await;
    // The deadline is a time by the clock; nothing tells that it is over but the clock.
    while paused_at.elapsed().unwrap() < Duration::from_millis(500) {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    sale.redis.resume().unwrap();
    assert_eq!(call.await.unwrap(), Err(CallError::Late));
    assert_eq!(sale.dump(), before);
}

#[tokio::test]
async fn deadlines_follow_redis_clock_not_ours() {
    let sale = Sale::open(Definition::of(5)).await;
    // A sale whose time is an hour ahead of every other's, as after a failover.
    let ahead = redis_ms(&sale.redis) + 3_600_000;
    sale.cli(&["HSET", &sale.key("state"), "time", &ahead.to_string()]);
    let config = RedisConfig {
        call_deadline: Duration::from_secs(10),
        ..config(&sale.redis.gateway_url())
    };
    let gateway = Admission::connect(&config).await.unwrap();
    let claim = claim("u", 1);
    let ask = || gateway.claim(&sale.scope, &sale.scripts, Seq(0), &claim);
    // The first call learns of it; from then on deadlines are right.
    assert_eq!(ask().await, Err(CallError::Late));
    assert!(matches!(ask().await.unwrap().value, Claimed::Won { .. }));
}

#[tokio::test]
async fn a_client_that_was_shut_down_says_so_at_once() {
    let sale = Sale::open(Definition::of(5)).await;
    sale.gateway.shutdown().await;
    sale.gateway.shutdown().await;
    let error = ask(&sale, "u").await.unwrap_err();
    assert_eq!(error, CallError::Unavailable(Outage::NotConnected));
}
