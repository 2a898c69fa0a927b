//! Every status of every script, one by one.

use crate::fixture::{
    CLAIM_KEYS, CLOSE_KEYS, LOG, NEVER, PATIENCE, Sale, attempt, claim, claim_args, close_args,
    evalsha, head_of_start, key, keys, make_current, raw, redis_ms, user,
};
use dropgate_admission::{CallError, Claim, Claimed, Closed, Entry, Scope, State};
use dropgate_domain::{Body, Definition, Generation, Seq, TimeMs, Unit};
use dropgate_testkit::Value;
use std::num::NonZeroU32;

fn status(reply: &Value) -> String {
    match reply {
        Value::Array(fields) => fields[0].text().unwrap(),
        other => other.text().unwrap_or_default(),
    }
}

/// A sale in which the user `old` has won the first unit.
async fn sale_with_one_win(definition: Definition, change: impl FnOnce(&mut State)) -> Sale {
    let sale = Sale::open_with(definition, change, crate::fixture::config).await;
    won(&sale, Seq(0), &claim("old", 1)).await;
    sale
}

async fn won(sale: &Sale, applied: Seq, claim: &Claim) -> (Seq, bytes::Bytes) {
    let reply = sale
        .gateway
        .claim(&sale.scope, &sale.scripts, applied, claim);
    match reply.await.unwrap().value {
        Claimed::Won { seq, event } => (seq, event),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn units_go_out_in_order_and_events_hold_the_digest_of_the_one_before() {
    let sale = Sale::open(Definition::of(3)).await;
    let mut prev = head_of_start(sale.scope.sale(), Generation(1));
    let mut events = Vec::new();
    let mut time = TimeMs(0);
    for n in 1..=3 {
        let claim = Claim {
            key: key("k"),
            ..claim(&format!("u{n}"), n)
        };
        let (seq, event) = won(&sale, Seq(0), &claim).await;
        assert_eq!(seq, Seq(n));
        let record = dropgate_events::decode_event(&event).unwrap();
        let Body::Won(won) = &record.event.body else {
            panic!("{record:?}");
        };
        assert_eq!(won.link.prev, prev);
        assert_eq!((won.link.seq, won.unit), (Seq(n), Unit(n)));
        assert_eq!((&won.user, &won.key), (&claim.user, &claim.key));
        assert_eq!(won.attempt, claim.attempt);
        assert!(won.link.time >= time);
        time = won.link.time;
        prev = record.digest;
        events.push((seq, event));
    }
    let reply = sale.gateway.close(&sale.scope, &sale.scripts, Seq(0)).await;
    let Closed::Now { seq, event } = reply.unwrap().value else {
        panic!("not closed");
    };
    let record = dropgate_events::decode_event(&event).unwrap();
    let Body::Closed(link) = record.event.body else {
        panic!("{record:?}");
    };
    assert_eq!((link.seq, link.prev), (Seq(4), prev));
    events.push((seq, event));

    let tip = sale.gateway.tip(&sale.scope, &sale.scripts, Seq(0), 500);
    let tip = tip.await.unwrap().value;
    assert_eq!((tip.seq, tip.head), (Seq(4), record.digest));
    assert_eq!(tip.outbox, events);
    let kept = sale.operator.outbox(&sale.scope, Seq(1), 500).await;
    assert_eq!(kept.unwrap(), events);
}

#[tokio::test]
async fn every_refusal_of_a_claim_has_its_status_and_writes_nothing() {
    let sale = sale_with_one_win(Definition::of(2), |_| {}).await;
    let mut gateway = raw(&sale.redis);
    let stale = Scope::new(sale.scope.sale().clone(), LOG, Generation(2));
    let old = claim("old", 5);
    let new = claim("new", 6);
    let admin = |args: &[&str]| sale.cli(args);
    let state = sale.key("state");
    let now = redis_ms(&sale.redis).to_string();
    let later = (redis_ms(&sale.redis) + 3_600_000).to_string();
    // What is changed in the state, and what the claim of that user then gets.
    type Case<'a> = (&'a str, &'a Scope, u64, u64, &'a Claim, &'a [&'a str]);
    let cases: [Case; 11] = [
        ("stale", &stale, 0, NEVER, &new, &[]),
        ("behind", &sale.scope, 2, NEVER, &new, &[]),
        ("late", &sale.scope, 0, 1, &new, &[]),
        ("late", &sale.scope, 0, 1, &old, &[]),
        ("again", &sale.scope, 0, NEVER, &old, &["st", "closed"]),
        ("again", &sale.scope, 1, NEVER, &old, &["next", "3"]),
        ("closed", &sale.scope, 0, NEVER, &new, &["st", "closed"]),
        ("closed", &sale.scope, 1, NEVER, &new, &["closes", &now]),
        ("early", &sale.scope, 1, NEVER, &new, &["opens", &later]),
        (
            "busy",
            &sale.scope,
            0,
            NEVER,
            &new,
            &["window", "1", "next", "3"],
        ),
        ("sold_out", &sale.scope, 1, NEVER, &new, &["next", "3"]),
    ];
    let whole = sale.dump();
    for (expected, scope, applied, deadline, claim, change) in cases {
        if !change.is_empty() {
            admin(&[&["HSET", &state], change].concat());
        }
        let before = sale.dump();
        let reply = evalsha(
            &mut gateway,
            sale.scripts.claim_unit,
            &keys(scope, &CLAIM_KEYS),
            &claim_args(scope, applied, deadline, claim),
        );
        assert_eq!(status(&reply), expected, "{reply:?}");
        assert_eq!(sale.dump(), before, "{expected} wrote something");
        admin(&[
            "HSET", &state, "st", "open", "next", "2", "window", "10000", "opens", "0", "closes",
            "0",
        ]);
        assert_eq!(sale.dump(), whole);
    }
}

#[tokio::test]
async fn a_repeat_gets_the_claim_that_won_and_costs_nothing() {
    let sale = sale_with_one_win(Definition::of(1), |_| {}).await;
    let before = sale.dump();
    // Whatever the key, and with nothing left: the limit is one.
    for k in ["", "other"] {
        let again = Claim {
            key: key(k),
            ..claim("old", 2)
        };
        let reply = sale
            .gateway
            .claim(&sale.scope, &sale.scripts, Seq(1), &again);
        let expected = Claimed::Again {
            seq: Seq(1),
            unit: Unit(1),
            attempt: attempt(1),
        };
        assert_eq!(reply.await.unwrap().value, expected);
    }
    assert_eq!(sale.dump(), before);
}

#[tokio::test]
async fn a_user_may_have_as_many_claims_as_the_limit_says_each_by_its_key() {
    let definition = Definition {
        per_user_limit: 2,
        ..Definition::of(10)
    };
    let sale = Sale::open(definition).await;
    let with = |k: &str, n: u64| Claim {
        key: key(k),
        ..claim("u", n)
    };
    let ask = async |claim: Claim| {
        let reply = sale
            .gateway
            .claim(&sale.scope, &sale.scripts, Seq(0), &claim);
        reply.await.unwrap().value
    };
    let again = |n: u64| Claimed::Again {
        seq: Seq(n),
        unit: Unit(n),
        attempt: attempt(n),
    };
    assert!(matches!(ask(with("a", 1)).await, Claimed::Won { .. }));
    assert_eq!(ask(with("", 9)).await, again(1));
    assert!(matches!(ask(with("A", 2)).await, Claimed::Won { .. }));
    assert_eq!(ask(with("A", 9)).await, again(2));
    assert_eq!(ask(with("a", 9)).await, again(1));
    let entry = |k: &str, n: u64| Entry {
        seq: Seq(n),
        unit: Unit(n),
        attempt: attempt(n),
        key: key(k),
    };
    let before = sale.dump();
    let claims = vec![entry("a", 1), entry("A", 2)];
    assert_eq!(ask(with("b", 9)).await, Claimed::Limit { claims });
    assert_eq!(sale.dump(), before);
}

#[tokio::test]
async fn a_sale_opens_and_closes_by_the_clock() {
    let sale = Sale::open(Definition::of(5)).await;
    let state = sale.key("state");
    let opens = redis_ms(&sale.redis) + 300;
    sale.cli(&["HSET", &state, "opens", &opens.to_string()]);
    let begun = std::time::Instant::now();
    loop {
        let claim = claim("u", 1);
        let reply = sale
            .gateway
            .claim(&sale.scope, &sale.scripts, Seq(0), &claim);
        let reply = reply.await.unwrap();
        match reply.value {
            Claimed::Early { opens_at } => {
                assert_eq!(opens_at, TimeMs(opens));
                assert!(reply.redis_time < opens_at);
            }
            Claimed::Won { .. } => {
                assert!(reply.redis_time >= TimeMs(opens));
                break;
            }
            other => panic!("{other:?}"),
        }
        assert!(begun.elapsed() < PATIENCE);
    }
    let closes = redis_ms(&sale.redis);
    sale.cli(&["HSET", &state, "closes", &closes.to_string()]);
    let claim = claim("v", 2);
    let reply = sale
        .gateway
        .claim(&sale.scope, &sale.scripts, Seq(0), &claim);
    assert_eq!(reply.await.unwrap().value, Claimed::Closed);
    // The event of its end is written all the same.
    let reply = sale.gateway.close(&sale.scope, &sale.scripts, Seq(0)).await;
    assert!(matches!(reply.unwrap().value, Closed::Now { .. }));
}

#[tokio::test]
async fn a_sale_is_closed_once_and_refusals_write_nothing() {
    let sale = sale_with_one_win(Definition::of(5), |state| {
        state.window = NonZeroU32::new(1).unwrap();
    })
    .await;
    let mut gateway = raw(&sale.redis);
    let stale = Scope::new(sale.scope.sale().clone(), LOG, Generation(2));
    let mut close = |scope: &Scope, applied, deadline| {
        let reply = evalsha(
            &mut gateway,
            sale.scripts.close_sale,
            &keys(scope, &CLOSE_KEYS),
            &close_args(scope, applied, deadline),
        );
        status(&reply)
    };
    let before = sale.dump();
    assert_eq!(close(&stale, 0, NEVER), "stale");
    assert_eq!(close(&sale.scope, 2, NEVER), "behind");
    assert_eq!(close(&sale.scope, 0, 1), "late");
    assert_eq!(close(&sale.scope, 0, NEVER), "busy");
    assert_eq!(sale.dump(), before);
    assert_eq!(close(&sale.scope, 1, NEVER), "closed_now");
    let before = sale.dump();
    assert_eq!(close(&sale.scope, 1, NEVER), "closed");
    assert_eq!(sale.dump(), before);
    let reply = sale.gateway.close(&sale.scope, &sale.scripts, Seq(1)).await;
    assert_eq!(reply.unwrap().value, Closed::Already);
}

#[tokio::test]
async fn what_is_applied_goes_only_forward_and_the_outbox_is_trimmed_through_it() {
    let sale = Sale::open(Definition::of(100)).await;
    for n in 1..=10 {
        won(&sale, Seq(0), &claim(&format!("u{n}"), n)).await;
    }
    let tip = async |applied, max| {
        let tip = sale
            .gateway
            .tip(&sale.scope, &sale.scripts, Seq(applied), max);
        let tip = tip.await.unwrap().value;
        let seqs: Vec<u64> = tip.outbox.iter().map(|(seq, _)| seq.0).collect();
        (tip.applied.0, tip.backlog, seqs)
    };
    assert_eq!(tip(4, 3).await, (4, 6, vec![5, 6, 7]));
    assert_eq!(sale.cli(&["XLEN", &sale.key("outbox")]), "6");
    // A gateway that is behind the others neither takes it back nor gets what is gone.
    assert_eq!(tip(2, 500).await, (4, 6, vec![5, 6, 7, 8, 9, 10]));
    let before = sale.dump();
    assert_eq!(tip(4, 0).await, (4, 6, vec![]));
    assert_eq!(sale.dump(), before);
    // A win tells as well.
    won(&sale, Seq(9), &claim("v", 11)).await;
    assert_eq!(tip(0, 500).await, (9, 2, vec![10, 11]));
    assert_eq!(tip(11, 500).await, (11, 0, vec![]));
    assert_eq!(sale.cli(&["XLEN", &sale.key("outbox")]), "0");
    let behind = sale.gateway.tip(&sale.scope, &sale.scripts, Seq(12), 1);
    assert_eq!(behind.await, Err(CallError::Behind));
}

#[tokio::test]
async fn wins_alone_keep_the_outbox_bounded() {
    let sale = Sale::open(Definition::of(2000)).await;
    for n in 1..=1000u64 {
        won(&sale, Seq(n - 1), &claim(&format!("u{n}"), n)).await;
    }
    let len: u64 = sale.cli(&["XLEN", &sale.key("outbox")]).parse().unwrap();
    // Redis cuts whole blocks, of 100 events at most.
    assert!((1..=101).contains(&len), "{len}");
}

#[tokio::test]
async fn a_state_without_any_one_field_is_missing_never_sold_out() {
    let sale = sale_with_one_win(Definition::of(1), |_| {}).await;
    let state = sale.key("state");
    let fields = sale.cli(&["HKEYS", &state]);
    assert_eq!(fields.lines().count(), 12, "{fields}");
    let (claim, applied) = (claim("new", 2), Seq(1));
    for field in fields.lines() {
        let reply = sale.redis.command(&["HGET", &state, field]).unwrap();
        let value = reply.bytes().unwrap();
        sale.cli(&["HDEL", &state, field]);
        let before = sale.dump();
        let reply = sale
            .gateway
            .claim(&sale.scope, &sale.scripts, applied, &claim);
        assert_eq!(reply.await, Err(CallError::Missing), "without {field}");
        assert_eq!(sale.dump(), before);
        sale.redis
            .command(&[b"HSET", state.as_bytes(), field.as_bytes(), value])
            .unwrap();
    }
    let reply = sale
        .gateway
        .claim(&sale.scope, &sale.scripts, applied, &claim);
    let sold_out = Claimed::SoldOut { seq: Seq(1) };
    assert_eq!(reply.await.unwrap().value, sold_out);
}

#[tokio::test]
async fn a_key_of_another_type_is_an_error_and_nothing_is_written() {
    for name in CLAIM_KEYS {
        let sale = sale_with_one_win(Definition::of(5), |_| {}).await;
        sale.cli(&["DEL", &sale.key(name)]);
        sale.cli(&["SADD", &sale.key(name), "x"]);
        let before = sale.dump();
        let claim = claim("new", 2);
        let reply = sale
            .gateway
            .claim(&sale.scope, &sale.scripts, Seq(1), &claim);
        let is_type = |error: &CallError| matches!(error, CallError::Protocol(text) if text.starts_with("WRONGTYPE"));
        let error = reply.await.unwrap_err();
        assert!(is_type(&error), "{name}: {error:?}");
        if name != "claims" {
            let reply = sale.gateway.close(&sale.scope, &sale.scripts, Seq(1)).await;
            assert!(is_type(&reply.unwrap_err()));
            let reply = sale.gateway.tip(&sale.scope, &sale.scripts, Seq(1), 9);
            assert!(is_type(&reply.await.unwrap_err()));
        }
        assert_eq!(sale.dump(), before, "{name}");
    }
}

#[tokio::test]
async fn an_outbox_that_is_ahead_of_the_state_refuses_the_event_and_nothing_is_written() {
    let sale = sale_with_one_win(Definition::of(5), |_| {}).await;
    sale.cli(&["XADD", &sale.key("outbox"), "7-0", "e", "x"]);
    let before = sale.dump();
    let claim = claim("new", 2);
    let reply = sale
        .gateway
        .claim(&sale.scope, &sale.scripts, Seq(0), &claim);
    let error = reply.await.unwrap_err();
    assert!(matches!(error, CallError::Protocol(_)), "{error:?}");
    assert_eq!(sale.dump(), before);
}

#[tokio::test]
async fn arguments_of_the_wrong_length_are_an_error_and_nothing_is_written() {
    let sale = Sale::open(Definition::of(5)).await;
    let mut gateway = raw(&sale.redis);
    let before = sale.dump();
    for (index, bad) in [(5, vec![1; 15]), (4, vec![b'k'; 256])] {
        let mut args = claim_args(&sale.scope, 0, NEVER, &claim("u", 1));
        args[index] = bad;
        let keys = keys(&sale.scope, &CLAIM_KEYS);
        let reply = evalsha(&mut gateway, sale.scripts.claim_unit, &keys, &args);
        assert!(matches!(reply, Value::Error(_)), "{reply:?}");
    }
    assert_eq!(sale.dump(), before);
}

#[tokio::test]
async fn time_never_goes_back_behind_the_last_event() {
    let sale = Sale::open(Definition::of(5)).await;
    let ahead = redis_ms(&sale.redis) + 3_600_000;
    sale.cli(&["HSET", &sale.key("state"), "time", &ahead.to_string()]);
    let mut gateway = raw(&sale.redis);
    let mut claimed = |n, deadline| {
        let claim = claim(&format!("u{n}"), n);
        evalsha(
            &mut gateway,
            sale.scripts.claim_unit,
            &keys(&sale.scope, &CLAIM_KEYS),
            &claim_args(&sale.scope, 0, deadline, &claim),
        )
    };
    let reply = claimed(1, NEVER);
    let fields = reply.items().unwrap();
    assert_eq!(fields[1].int(), i64::try_from(ahead).ok());
    let record = dropgate_events::decode_event(fields[3].bytes().unwrap()).unwrap();
    assert!(matches!(record.event.body, Body::Won(won) if won.link.time == TimeMs(ahead)));
    assert_eq!(status(&claimed(2, ahead)), "late");
}

#[tokio::test]
async fn a_generation_goes_on_where_the_one_before_was_applied() {
    let sale = sale_with_one_win(Definition::of(3), |_| {}).await;
    let next = Scope::new(sale.scope.sale().clone(), LOG, Generation(2));
    let head = head_of_start(next.sale(), Generation(2));
    let state = State {
        next: Unit(2),
        seq: Seq(1),
        head,
        ..crate::fixture::fresh(next.sale(), Definition::of(3))
    };
    let entry = Entry {
        seq: Seq(1),
        unit: Unit(1),
        attempt: attempt(1),
        key: key(""),
    };
    let claims = [(user("old"), vec![entry])];
    make_current(&sale.operator, &sale.scripts, &next, &state, claims).await;

    let ask = async |scope: &Scope, claim: Claim| {
        let reply = sale.gateway.claim(scope, &sale.scripts, Seq(1), &claim);
        reply.await
    };
    let ended = ask(&sale.scope, claim("new", 2));
    assert_eq!(ended.await, Err(CallError::Stale));
    let again = ask(&next, claim("old", 3));
    let expected = Claimed::Again {
        seq: Seq(1),
        unit: Unit(1),
        attempt: attempt(1),
    };
    assert_eq!(again.await.unwrap().value, expected);
    let won = ask(&next, claim("new", 2));
    let Claimed::Won { seq, event } = won.await.unwrap().value else {
        panic!("not won");
    };
    let record = dropgate_events::decode_event(&event).unwrap();
    let Body::Won(won) = record.event.body else {
        panic!("not a win");
    };
    assert_eq!((seq, won.unit, won.link.prev), (Seq(2), Unit(2), head));
}

#[tokio::test]
async fn no_key_of_a_sale_runs_out() {
    let sale = sale_with_one_win(Definition::of(3), |_| {}).await;
    for name in CLAIM_KEYS {
        assert_eq!(sale.cli(&["PTTL", &sale.key(name)]), "-1", "{name}");
    }
}

#[tokio::test]
async fn stock_0_is_sold_out_and_stock_1_sells_one() {
    let none = Sale::open(Definition::of(0)).await;
    let ask = |sale: &Sale, name: &str, n| {
        let (gateway, scope, scripts) = (sale.gateway.clone(), sale.scope.clone(), sale.scripts);
        let claim = claim(name, n);
        async move {
            gateway
                .claim(&scope, &scripts, Seq(0), &claim)
                .await
                .unwrap()
                .value
        }
    };
    assert_eq!(ask(&none, "u", 1).await, Claimed::SoldOut { seq: Seq(0) });
    let one = Sale::open(Definition::of(1)).await;
    assert!(matches!(ask(&one, "u", 1).await, Claimed::Won { .. }));
    assert_eq!(ask(&one, "v", 2).await, Claimed::SoldOut { seq: Seq(1) });
}
