//! What the client does when Redis does not answer.

use crate::fixture::{PATIENCE, Sale, claim, config, eventually};
use dropgate_admission::{Admission, CallError, Claimed, ConnectError, Outage, RedisConfig, Reply};
use dropgate_domain::{Definition, Seq};
use dropgate_testkit::{Proxy, Redis};
use std::time::Duration;

/// A client with a short patience, by way of a proxy.
async fn through(proxy: &Proxy, change: impl FnOnce(&mut RedisConfig)) -> Admission {
    let mut config = RedisConfig {
        command_timeout: Duration::from_millis(300),
        connect_timeout: Duration::from_millis(500),
        reconnect_delay_min: Duration::from_millis(10),
        reconnect_delay_max: Duration::from_millis(100),
        ..config(&Redis::gateway_url_at(proxy.port()))
    };
    change(&mut config);
    Admission::connect(&config).await.unwrap()
}

async fn ask(sale: &Sale, gateway: &Admission, name: &str) -> Result<Reply<Claimed>, CallError> {
    let claim = claim(name, 1);
    gateway
        .claim(&sale.scope, &sale.scripts, Seq(0), &claim)
        .await
}

async fn answers_again(sale: &Sale, gateway: &Admission, name: &str) -> Claimed {
    let reply = eventually(
        "an answer",
        || async { ask(sale, gateway, name).await },
        Result::is_ok,
    );
    reply.await.unwrap().value
}

#[tokio::test]
async fn a_paused_redis_is_unavailable_in_bounded_time_and_no_call_is_sent_twice() {
    let mut sale = Sale::open(Definition::of(50)).await;
    let proxy = Proxy::start(sale.redis.port()).unwrap();
    // The watchdog keeps out of this one: the calls must not be sent again by anybody.
    let gateway = through(&proxy, |config| config.timeouts_in_row_max = 1000).await;
    ask(&sale, &gateway, "first").await.unwrap();
    let before = sale.calls("evalsha");

    sale.redis.pause().unwrap();
    let calls = (0..10).map(|n| {
        let (gateway, scope, scripts) = (gateway.clone(), sale.scope.clone(), sale.scripts);
        tokio::spawn(async move {
            let claim = claim(&format!("u{n}"), n);
            gateway.claim(&scope, &scripts, Seq(0), &claim).await
        })
    });
    for call in calls.collect::<Vec<_>>() {
        let answer = tokio::time::timeout(PATIENCE, call).await;
        let error = answer.expect("bounded").unwrap().unwrap_err();
        assert_eq!(error, CallError::Unavailable(Outage::TimedOut));
        assert!(error.may_have_run());
    }
    sale.redis.resume().unwrap();

    // Redis runs what was sent before it answers what comes after.
    let value = answers_again(&sale, &gateway, "last").await;
    assert!(matches!(value, Claimed::Won { .. }), "{value:?}");
    assert_eq!(sale.calls("evalsha"), before + 11);
    let winners = sale.operator.claims_count(&sale.scope).await.unwrap();
    let seq = sale.operator.state(&sale.scope).await.unwrap().unwrap().seq;
    assert_eq!(seq, Seq(winners));
}

#[tokio::test]
async fn a_call_whose_reply_is_lost_is_not_sent_again() {
    let sale = Sale::open(Definition::of(5)).await;
    let proxy = Proxy::start(sale.redis.port()).unwrap();
    let gateway = through(&proxy, |_| {}).await;
    ask(&sale, &gateway, "first").await.unwrap();
    let before = sale.calls("evalsha");

    proxy.swallow_replies().unwrap();
    let call = tokio::spawn({
        let (gateway, scope, scripts) = (gateway.clone(), sale.scope.clone(), sale.scripts);
        async move {
            let claim = claim("u", 1);
            gateway.claim(&scope, &scripts, Seq(0), &claim).await
        }
    });
    eventually(
        "the call to have run",
        || async { sale.calls("evalsha") },
        |calls| *calls == before + 1,
    )
    .await;
    proxy.cut().unwrap();
    let error = call.await.unwrap().unwrap_err();
    assert!(error.may_have_run(), "{error:?}");
    proxy.heal().unwrap();

    // The repeat is the caller's, and gets what the lost call won.
    let value = answers_again(&sale, &gateway, "u").await;
    assert!(matches!(value, Claimed::Again { .. }), "{value:?}");
    assert_eq!(sale.calls("evalsha"), before + 2);
}

#[tokio::test]
async fn while_not_connected_calls_fail_at_once_and_are_not_queued() {
    let sale = Sale::open(Definition::of(5)).await;
    let proxy = Proxy::start(sale.redis.port()).unwrap();
    let gateway = through(&proxy, |_| {}).await;
    ask(&sale, &gateway, "first").await.unwrap();
    let before = sale.calls("evalsha");
    proxy.cut().unwrap();
    let _ = eventually(
        "the client to notice",
        || async { ask(&sale, &gateway, "u").await },
        |reply| *reply == Err(CallError::Unavailable(Outage::NotConnected)),
    )
    .await;
    proxy.heal().unwrap();
    let value = answers_again(&sale, &gateway, "v").await;
    assert!(matches!(value, Claimed::Won { .. }), "{value:?}");
    assert_eq!(sale.calls("evalsha"), before + 1);
}

#[tokio::test]
async fn the_watchdog_takes_a_new_connection_when_the_old_one_is_silent() {
    let sale = Sale::open(Definition::of(5)).await;
    let proxy = Proxy::start(sale.redis.port()).unwrap();
    let gateway = through(&proxy, |_| {}).await;
    ask(&sale, &gateway, "first").await.unwrap();
    assert_eq!(proxy.connections(), 1);
    // Nothing is closed, so only the time-outs tell.
    proxy.blackhole().unwrap();
    eventually(
        "another connection",
        || async {
            let error = ask(&sale, &gateway, "u").await.unwrap_err();
            assert!(matches!(error, CallError::Unavailable(_)), "{error:?}");
            proxy.connections()
        },
        |connections| *connections > 1,
    )
    .await;
    proxy.heal().unwrap();
    answers_again(&sale, &gateway, "u").await;
}

#[tokio::test]
async fn the_client_comes_back_after_a_restart() {
    let mut sale = Sale::open(Definition::of(5)).await;
    let proxy = Proxy::start(sale.redis.port()).unwrap();
    let gateway = through(&proxy, |_| {}).await;
    ask(&sale, &gateway, "first").await.unwrap();
    sale.redis.kill9().unwrap();
    let _ = eventually(
        "the client to notice",
        || async { ask(&sale, &gateway, "u").await },
        |reply| matches!(reply, Err(CallError::Unavailable(_))),
    )
    .await;
    sale.redis.restart().unwrap();
    let _ = eventually(
        "an answer of the new process",
        || async { ask(&sale, &gateway, "u").await },
        |reply| *reply == Err(CallError::NoScript),
    )
    .await;
    assert_eq!(gateway.problems().await.unwrap(), [""; 0]);
}

#[tokio::test]
async fn a_redis_that_is_down_at_the_start_is_connected_to_when_it_comes() {
    let sale = Sale::open(Definition::of(5)).await;
    let proxy = Proxy::start(sale.redis.port()).unwrap();
    proxy.cut().unwrap();
    let gateway = through(&proxy, |_| {}).await;
    let error = ask(&sale, &gateway, "u").await.unwrap_err();
    assert_eq!(error, CallError::Unavailable(Outage::NotConnected));
    proxy.heal().unwrap();
    let value = answers_again(&sale, &gateway, "u").await;
    assert!(matches!(value, Claimed::Won { .. }), "{value:?}");
}

#[tokio::test]
async fn a_redis_that_does_not_answer_at_the_start_holds_nobody_up() {
    let sale = Sale::open(Definition::of(5)).await;
    let proxy = Proxy::start(sale.redis.port()).unwrap();
    proxy.blackhole().unwrap();
    let gateway = tokio::time::timeout(PATIENCE, through(&proxy, |_| {})).await;
    let gateway = gateway.expect("bounded");
    let error = ask(&sale, &gateway, "u").await.unwrap_err();
    assert_eq!(error, CallError::Unavailable(Outage::NotConnected));
    proxy.heal().unwrap();
    answers_again(&sale, &gateway, "u").await;
}

#[tokio::test]
async fn more_calls_than_may_be_in_flight_are_refused_at_once() {
    let mut sale = Sale::open(Definition::of(50)).await;
    let proxy = Proxy::start(sale.redis.port()).unwrap();
    let gateway = through(&proxy, |config| {
        config.calls_in_flight_max = 3;
        config.timeouts_in_row_max = 1000;
    })
    .await;
    ask(&sale, &gateway, "first").await.unwrap();
    sale.redis.pause().unwrap();
    let calls = (0..10).map(|n| {
        let (gateway, scope, scripts) = (gateway.clone(), sale.scope.clone(), sale.scripts);
        tokio::spawn(async move {
            let claim = claim(&format!("u{n}"), n);
            gateway.claim(&scope, &scripts, Seq(0), &claim).await
        })
    });
    let mut refused = 0;
    for call in calls.collect::<Vec<_>>() {
        match call.await.unwrap().unwrap_err() {
            CallError::Unavailable(Outage::TooMany) => refused += 1,
            CallError::Unavailable(Outage::TimedOut) => {}
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(refused, 7);
    sale.redis.resume().unwrap();
    // After refusals the client still sends at once.
    answers_again(&sale, &gateway, "u").await;
}

#[tokio::test]
async fn callers_that_went_away_keep_their_place_until_redis_could_have_answered() {
    let mut sale = Sale::open(Definition::of(50)).await;
    let proxy = Proxy::start(sale.redis.port()).unwrap();
    let gateway = through(&proxy, |config| {
        config.calls_in_flight_max = 3;
        config.timeouts_in_row_max = 1000;
    })
    .await;
    ask(&sale, &gateway, "first").await.unwrap();
    sale.redis.pause().unwrap();
    for n in 0..3 {
        let user = format!("gone-{n}");
        let call = ask(&sale, &gateway, &user);
        let gone = tokio::time::timeout(Duration::from_millis(20), call).await;
        assert!(gone.is_err(), "{gone:?}");
    }
    let error = ask(&sale, &gateway, "one-more").await.unwrap_err();
    assert_eq!(error, CallError::Unavailable(Outage::TooMany));
    sale.redis.resume().unwrap();
    answers_again(&sale, &gateway, "u").await;
}

#[tokio::test]
async fn a_wrong_password_is_a_clear_error_without_the_password() {
    let redis = crate::fixture::redis();
    let port = redis.port();
    for (url, what) in [
        (
            format!("redis://gateway:hunter2@127.0.0.1:{port}"),
            "WRONGPASS",
        ),
        (
            format!("redis://nobody:hunter2@127.0.0.1:{port}"),
            "WRONGPASS",
        ),
        // The gateway's user may not choose another database.
        (format!("{}/3", redis.gateway_url()), "NOPERM"),
    ] {
        let error = Admission::connect(&config(&url)).await.unwrap_err();
        let shown = format!("{error} {error:?}");
        assert!(matches!(error, ConnectError::Denied(_)), "{shown}");
        assert!(shown.contains(what), "{shown}");
        assert!(!shown.contains("hunter2") && !shown.contains("test-password"));
    }
    let mut config = config(&format!("redis://127.0.0.1:{port}"));
    config.username = Some("gateway".into());
    config.password = Some(dropgate_testkit::redis::GATEWAY_PASSWORD.into());
    let gateway = Admission::connect(&config).await.unwrap();
    gateway.problems().await.unwrap();
    let shown = format!("{gateway:?} {config:?}");
    assert!(!shown.contains("test-password"), "{shown}");
}

#[tokio::test]
async fn a_configuration_that_cannot_be_is_an_error_without_its_values() {
    let config = RedisConfig::at("not a url: hunter2");
    let error = Admission::connect(&config).await.unwrap_err();
    let shown = format!("{error} {error:?} {config:?}");
    assert!(matches!(error, ConnectError::Invalid(_)), "{shown}");
    assert!(!shown.contains("hunter2"), "{shown}");
}
