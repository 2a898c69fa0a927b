//! What is wrong around the gateway, and what it then says.

use crate::stack::{Stack, Wanted, build};
use crate::wire::BOUND;
use dropgate_gateway::BuildError;
use dropgate_testkit::{Redis, RedisOptions};
use serde_json::json;
use std::time::Duration;

#[tokio::test(flavor = "multi_thread")]
async fn a_redis_that_evicts_keys_makes_it_unready_and_it_says_why() {
    let wanted = Wanted {
        redis: RedisOptions {
            maxmemory_policy: "allkeys-lru".into(),
            ..RedisOptions::default()
        },
        ..Wanted::default()
    };
    let stack = Stack::unready(wanted).await;
    let mut seen = json!(null);
    let says_why = async {
        loop {
            seen = stack.until_ready(false).await;
            if seen.to_string().contains("allkeys-lru") {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    assert!(
        tokio::time::timeout(BOUND, says_why).await.is_ok(),
        "{seen}"
    );
    assert_eq!(seen["reasons"][0]["probe"], "engine");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_key_is_halted_and_never_sold_out() {
    let stack = Stack::start().await;
    stack.sell("s", 5).await;
    let won = stack.claim_finally("s", "alice", "k").await;
    assert_eq!(won.status, 201);
    stack.redis.cli(&["FLUSHALL"]).unwrap();
    // Whatever comes first, the script or the tip: no answer but 503, and "halted" in the end.
    let mut halted = 0;
    let asking = async {
        while halted < 20 {
            let reply = stack.claim("s", "bob", "k").await;
            assert_eq!(reply.status, 503, "{reply:?}");
            if reply.code() == "halted" {
                assert!(reply.header("retry-after").is_some());
                halted += 1;
            }
        }
    };
    assert!(
        tokio::time::timeout(BOUND, asking).await.is_ok(),
        "halted {halted} times"
    );
    // What was told stays true, from the log.
    let again = stack.claim_finally("s", "alice", "k").await;
    assert_eq!((again.status, &again.body), (200, &won.body));
    assert_eq!(stack.get("/v1/sales/s", &[]).await.body["state"], "halted");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_redis_claims_are_503_and_known_claims_are_still_told() {
    let mut stack = Stack::start().await;
    stack.sell("s", 5).await;
    let won = stack.claim_finally("s", "alice", "k").await;
    stack.redis.kill9().unwrap();
    let reply = stack.claim("s", "bob", "k").await;
    assert_eq!(reply.status, 503, "{reply:?}");
    assert!(
        ["unavailable", "not_ready", "halted"].contains(&reply.code()),
        "{reply:?}"
    );
    let location = won.header("location").unwrap();
    let told = stack.look_up(location, "alice").await;
    assert_eq!((told.status, &told.body), (200, &won.body));
    stack.until_ready(false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_is_unreachable_at_start_is_an_error_that_names_it() {
    let redis = Redis::start(&RedisOptions::default()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let wanted = Wanted {
        config: vec![
            "log.backend = 'kafka'".into(),
            "log.kafka.brokers = '127.0.0.1:1'".into(),
            "log.kafka.open_timeout = '1s'".into(),
        ],
        ..Wanted::default()
    };
    let started = tokio::time::timeout(BOUND, build(&redis, &folder, &wanted)).await;
    match started.expect("it hangs") {
        Err(error @ BuildError::Log(_)) => {
            assert!(error.to_string().contains("127.0.0.1:1"), "{error}");
        }
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("it started"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_is_unreachable_at_start_keeps_nobody_from_winning() {
    let wanted = Wanted {
        config: vec!["store.url = 'postgres://u:hunter2@127.0.0.1:1/db'".into()],
        ..Wanted::default()
    };
    let stack = Stack::with(wanted).await;
    stack.sell("s", 5).await;
    let won = stack.claim_finally("s", "alice", "k").await;
    assert_eq!(won.status, 201);
    assert!(won.body["persisted"].is_null(), "{:?}", won.body);
    assert!(stack.stop().await.is_clean());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redis_that_is_unreachable_at_start_is_waited_for() {
    let mut redis = Redis::start(&RedisOptions::default()).unwrap();
    redis.kill9().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let app = build(&redis, &folder, &Wanted::default())
        .await
        .expect("it starts");
    let engine = app.engine().clone();
    let shutdown = dropgate_runtime::shutdown::Shutdown::manual();
    let running = tokio::spawn(app.run(shutdown.clone()));
    assert!(engine.ready().is_err());
    redis.restart().unwrap();
    let mut last = Ok(());
    let ready = async {
        loop {
            last = engine.ready();
            if last.is_ok() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    assert!(tokio::time::timeout(BOUND, ready).await.is_ok(), "{last:?}");
    shutdown.begin();
    tokio::time::timeout(BOUND, running)
        .await
        .unwrap()
        .unwrap()
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_that_is_taken_is_an_error_that_names_it() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = taken.local_addr().unwrap();
    let redis = Redis::start(&RedisOptions::default()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let wanted = Wanted {
        config: vec![format!("http.bind = '{addr}'")],
        ..Wanted::default()
    };
    match build(&redis, &folder, &wanted).await {
        Err(error @ BuildError::Bind { .. }) => {
            assert!(error.to_string().contains(&addr.to_string()), "{error}");
        }
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("it started"),
    }
}
