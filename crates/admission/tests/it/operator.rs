//! Building generations, and reading them back.

use crate::fixture::{
    LOG, NONCE, Sale, attempt, claim, config, eventually, fresh, head_of_start, key, key_of, redis,
    sale_id, user,
};
use dropgate_admission::{
    Admission, CallError, Claimed, Entry, NotCertified, Operator, Scope, Scripts, StoredState,
    Switched, hashes_for,
};
use dropgate_domain::{Definition, Digest, Generation, LogId, Nonce, Seq, TimeMs, Unit, UserId};
use dropgate_testkit::{Redis, RedisOptions, Value};
use std::collections::BTreeMap;

fn operator(redis: &Redis) -> Operator {
    Operator::new(config(&redis.operator_url()))
}

#[tokio::test]
async fn a_plain_master_is_certified() {
    let redis = redis();
    operator(&redis).certify(&sale_id("a")).await.unwrap();
    let gateway = Admission::connect(&config(&redis.gateway_url())).await;
    assert_eq!(gateway.unwrap().problems().await.unwrap(), [""; 0]);
    let facts = operator(&redis).policy(&sale_id("a")).await.unwrap();
    assert_eq!(
        (&*facts.role, &*facts.maxmemory_policy),
        ("master", "noeviction")
    );
}

#[tokio::test]
async fn a_redis_that_evicts_keys_is_refused_and_the_policy_named() {
    let redis = Redis::start(&RedisOptions {
        maxmemory_policy: "allkeys-lru".into(),
        ..RedisOptions::default()
    })
    .unwrap();
    let gateway = Admission::connect(&config(&redis.gateway_url())).await;
    let problems = gateway.unwrap().problems().await.unwrap();
    assert!(problems[0].contains("allkeys-lru"), "{problems:?}");
    let error = operator(&redis).certify(&sale_id("a")).await.unwrap_err();
    assert_eq!(error, NotCertified::Unfit(problems));
}

#[tokio::test]
async fn a_replica_or_a_master_that_takes_no_writes_is_refused() {
    let redis = redis();
    let operator = operator(&redis);
    redis
        .cli(&["CONFIG", "SET", "min-replicas-to-write", "1"])
        .unwrap();
    let error = operator.certify(&sale_id("a")).await.unwrap_err();
    assert!(
        matches!(error, NotCertified::Call(CallError::NotWritable(_))),
        "{error:?}"
    );
    redis.cli(&["REPLICAOF", "127.0.0.1", "1"]).unwrap();
    let error = operator.certify(&sale_id("a")).await.unwrap_err();
    assert!(matches!(error, NotCertified::Unfit(_)), "{error:?}");
}

#[tokio::test]
async fn a_server_whose_address_another_one_has_by_now_is_refused() {
    let (old, new) = (redis(), redis());
    let operator = operator(&old);
    let sale = sale_id("a");
    operator.certify(&sale).await.unwrap();
    // The old one keeps its connections, and new ones reach the other.
    let port = old.port().to_string();
    let mut to_old = old.connect().unwrap();
    to_old.command(&["CONFIG", "SET", "port", "0"]).unwrap();
    let moved = new
        .connect()
        .unwrap()
        .command(&["CONFIG", "SET", "port", &port]);
    assert_eq!(moved.unwrap(), Value::Status("OK".into()));
    let error = operator.certify(&sale).await.unwrap_err();
    let named = matches!(&error, NotCertified::Unfit(all) if all[0].contains("another server"));
    assert!(named, "{error:?}");
    // The old connection was given up.
    let ask = || operator.certify(&sale);
    let answer = eventually("the other server", ask, Result::is_ok).await;
    answer.unwrap();
}

#[tokio::test]
async fn wrong_credentials_of_the_operator_are_a_clear_error_at_the_first_call() {
    let redis = redis();
    let url = format!("redis://operator:hunter2@127.0.0.1:{}", redis.port());
    let operator = Operator::new(config(&url));
    let error = operator.certify(&sale_id("a")).await.unwrap_err();
    let shown = format!("{error} {error:?}");
    assert!(
        matches!(error, NotCertified::Call(CallError::Denied(_))),
        "{shown}"
    );
    assert!(shown.contains("WRONGPASS") && !shown.contains("hunter2"));
    // A gateway's user is told apart from one who may load scripts.
    let gateway = Operator::new(config(&redis.gateway_url()));
    let error = gateway
        .load_scripts(&sale_id("a"), NONCE)
        .await
        .unwrap_err();
    assert!(matches!(error, CallError::Denied(_)), "{error:?}");
}

#[tokio::test]
async fn scripts_are_known_by_the_hashes_of_their_texts() {
    let redis = redis();
    let operator = operator(&redis);
    let hashes = hashes_for(NONCE);
    assert!(
        !operator
            .scripts_loaded(&sale_id("a"), &hashes)
            .await
            .unwrap()
    );
    assert_eq!(
        operator.load_scripts(&sale_id("a"), NONCE).await.unwrap(),
        hashes
    );
    assert!(
        operator
            .scripts_loaded(&sale_id("a"), &hashes)
            .await
            .unwrap()
    );
    let other = hashes_for(Nonce([1; 16]));
    assert!(
        !operator
            .scripts_loaded(&sale_id("a"), &other)
            .await
            .unwrap()
    );
    // One of another nonce among them is enough.
    let mixed = [&hashes[..3], &other[3..]].concat();
    assert!(
        !operator
            .scripts_loaded(&sale_id("a"), &mixed)
            .await
            .unwrap()
    );
    redis.cli(&["SCRIPT", "FLUSH"]).unwrap();
    assert!(
        !operator
            .scripts_loaded(&sale_id("a"), &hashes)
            .await
            .unwrap()
    );
}

fn entries(n: u64) -> Vec<Entry> {
    let entry = |seq| Entry {
        seq: Seq(seq),
        unit: Unit(seq),
        attempt: attempt(seq),
        key: key(if n.is_multiple_of(2) { "" } else { "k" }),
    };
    (0..=n % 3).map(|i| entry(n * 3 + i + 1)).collect()
}

#[tokio::test]
async fn a_generation_is_read_back_as_it_was_built_and_built_again_it_stays() {
    let redis = redis();
    let operator = operator(&redis);
    let scope = Scope::new(sale_id("a"), LOG, Generation(1));
    let definition = Definition {
        per_user_limit: 3,
        opens_at: Some(TimeMs(5)),
        closes_at: None,
        ..Definition::of(9000)
    };
    let mut state = fresh(scope.sale(), definition);
    (state.next, state.seq, state.closed) = (Unit(4), Seq(6002), true);
    let claims: BTreeMap<UserId, Vec<Entry>> = (0..2001)
        .map(|n| (user(&format!("u{n}")), entries(n)))
        .collect();
    operator
        .build(&scope, &state, claims.clone())
        .await
        .unwrap();

    let expected = StoredState {
        open: false,
        stock: 9000,
        per_user_limit: 3,
        next: Unit(4),
        seq: Seq(6002),
        head: state.head,
        time: state.time,
        applied: Seq(6002),
        window: 10_000,
        opens_at: Some(TimeMs(5)),
        closes_at: None,
    };
    assert_eq!(operator.state(&scope).await.unwrap(), Some(expected));
    let mut found = BTreeMap::new();
    let mut from = None;
    let mut pages = 0;
    loop {
        let page = operator.scan_claims(&scope, from.as_deref()).await.unwrap();
        found.extend(page.claims);
        pages += 1;
        from = page.next;
        if from.is_none() {
            break;
        }
    }
    assert!(pages > 1);
    assert_eq!(found, claims);
    assert_eq!(operator.claims_count(&scope).await.unwrap(), 2001);
    assert_eq!(operator.outbox(&scope, Seq(0), 9).await.unwrap(), []);

    let before = crate::fixture::dump(&redis);
    operator.build(&scope, &state, []).await.unwrap();
    assert_eq!(crate::fixture::dump(&redis), before);
    state.seq = Seq(1);
    let error = operator.build(&scope, &state, []).await.unwrap_err();
    assert!(matches!(error, CallError::Protocol(_)), "{error:?}");
    assert_eq!(crate::fixture::dump(&redis), before);
}

#[tokio::test]
async fn building_a_live_generation_again_does_not_take_it_back() {
    let sale = Sale::open(Definition::of(5)).await;
    let claim = claim("u", 1);
    let reply = sale
        .gateway
        .claim(&sale.scope, &sale.scripts, Seq(0), &claim);
    assert!(matches!(reply.await.unwrap().value, Claimed::Won { .. }));
    let before = sale.dump();
    let state = fresh(sale.scope.sale(), Definition::of(5));
    sale.operator.build(&sale.scope, &state, []).await.unwrap();
    assert_eq!(sale.dump(), before);
}

#[tokio::test]
async fn a_generation_that_lost_claims_while_it_was_built_is_refused() {
    let redis = redis();
    let operator = operator(&redis);
    let scope = Scope::new(sale_id("a"), LOG, Generation(2));
    let state = fresh(scope.sale(), Definition::of(5));
    // A user twice in place of one that was lost: what was written is not what is there.
    let claims = [(user("u"), entries(0)), (user("u"), entries(0))];
    let error = operator.build(&scope, &state, claims).await.unwrap_err();
    assert!(matches!(error, CallError::Protocol(_)), "{error:?}");
    assert_eq!(operator.state(&scope).await.unwrap(), None);
}

#[tokio::test]
async fn only_a_built_generation_becomes_current_and_never_an_earlier_one() {
    let redis = redis();
    let operator = operator(&redis);
    let hashes = operator.load_scripts(&sale_id("a"), NONCE).await.unwrap();
    let scripts = Scripts::from_started(&hashes).unwrap();
    let sale = sale_id("a");
    let scope = |log, g| Scope::new(sale.clone(), LogId([log; 16]), Generation(g));
    let head = |g| head_of_start(&sale, Generation(g));
    let switch = async |from: Option<&Scope>, to: &Scope, seq: u64, head: Digest| {
        let reply = operator.switch(&scripts, from, to, Seq(seq), head);
        reply.await.unwrap().value
    };
    let (one, two, three) = (scope(7, 1), scope(7, 2), scope(7, 3));
    assert_eq!(switch(None, &one, 0, head(1)).await, Switched::NotBuilt);
    for (g, scope) in [(1, &one), (2, &two), (3, &three), (1, &scope(8, 1))] {
        let mut state = fresh(&sale, Definition::of(5));
        state.head = head(g);
        operator.build(scope, &state, []).await.unwrap();
    }
    let wrong = Digest([0; 20]);
    assert_eq!(switch(None, &two, 0, wrong).await, Switched::NotBuilt);
    assert_eq!(switch(None, &two, 1, head(2)).await, Switched::NotBuilt);
    assert_eq!(operator.current(&sale).await.unwrap(), None);
    // As after a demotion and a promotion in the middle of the building: the state came, and a
    // claim that was written before it is gone.
    let (four, mut state) = (scope(7, 4), fresh(&sale, Definition::of(5)));
    state.head = head(4);
    let claims = [(user("u"), entries(0)), (user("v"), entries(0))];
    operator.build(&four, &state, claims.clone()).await.unwrap();
    redis.cli(&["HDEL", &key_of(&four, "claims"), "v"]).unwrap();
    assert_eq!(switch(None, &four, 0, head(4)).await, Switched::NotBuilt);
    // A builder who was paused, while a recovery ended the generation before it was built.
    let (five, mut state) = (scope(7, 5), fresh(&sale, Definition::of(5)));
    state.head = head(5);
    assert!(!operator.halt(&five).await.unwrap(), "nothing is there yet");
    operator.build(&five, &state, claims).await.unwrap();
    assert_eq!(switch(None, &five, 0, head(5)).await, Switched::NotBuilt);
    assert_eq!(
        switch(Some(&one), &two, 0, head(2)).await,
        Switched::Switched
    );
    assert_eq!(
        switch(Some(&one), &two, 0, head(2)).await,
        Switched::Already
    );
    assert_eq!(
        switch(Some(&two), &one, 0, head(1)).await,
        Switched::Backwards
    );
    assert_eq!(switch(None, &one, 0, head(1)).await, Switched::Backwards);
    let current = operator.current(&sale).await.unwrap();
    assert_eq!(current.as_deref(), Some(two.tag()));
    // Forward past what the caller took for current, and to another log only from what it knows.
    assert_eq!(switch(None, &three, 0, head(3)).await, Switched::Switched);
    let other = scope(8, 1);
    assert_eq!(switch(None, &other, 0, head(1)).await, Switched::Backwards);
    assert_eq!(
        switch(Some(&two), &other, 0, head(1)).await,
        Switched::Backwards
    );
    assert_eq!(
        switch(Some(&three), &other, 0, head(1)).await,
        Switched::Switched
    );
}

#[tokio::test]
async fn a_generation_that_was_halted_is_missing_to_every_script() {
    let sale = Sale::open(Definition::of(5)).await;
    let ask = |name: &'static str| {
        let (gateway, scope, scripts) = (sale.gateway.clone(), sale.scope.clone(), sale.scripts);
        async move {
            let claim = claim(name, 1);
            gateway.claim(&scope, &scripts, Seq(0), &claim).await
        }
    };
    ask("u").await.unwrap();
    assert_eq!(sale.operator.outbox_len(&sale.scope).await.unwrap(), 1);
    assert!(sale.operator.halt(&sale.scope).await.unwrap());
    assert!(!sale.operator.halt(&sale.scope).await.unwrap());
    assert_eq!(ask("u").await, Err(CallError::Missing));
    let tip = sale.gateway.tip(&sale.scope, &sale.scripts, Seq(0), 1);
    assert_eq!(tip.await, Err(CallError::Missing));
    // What was proposed can still be read, to be published.
    let outbox = sale.operator.outbox(&sale.scope, Seq(0), 9).await.unwrap();
    assert_eq!(outbox.len(), 1);
    assert_eq!(sale.operator.state(&sale.scope).await.unwrap(), None);
}

#[tokio::test]
async fn only_a_generation_before_the_current_one_of_its_log_is_deleted() {
    let sale = Sale::open(Definition::of(5)).await;
    let scope = |log, g| Scope::new(sale.scope.sale().clone(), log, Generation(g));
    let other = LogId([8; 16]);
    let mut state = fresh(sale.scope.sale(), Definition::of(5));
    for (log, g) in [(LOG, 2), (LOG, 3), (other, 1)] {
        state.head = head_of_start(sale.scope.sale(), Generation(g));
        let claims = [(user("u"), entries(0))];
        let scope = scope(log, g);
        sale.operator.build(&scope, &state, claims).await.unwrap();
    }
    let head = head_of_start(sale.scope.sale(), Generation(2));
    let two = scope(LOG, 2);
    let switch = sale
        .operator
        .switch(&sale.scripts, None, &two, Seq(0), head);
    assert_eq!(switch.await.unwrap().value, Switched::Switched);
    let before = sale.dump();
    for kept in [scope(LOG, 2), scope(LOG, 3), scope(other, 1)] {
        assert!(!sale.operator.delete(&kept).await.unwrap(), "{kept:?}");
    }
    assert_eq!(sale.dump(), before);
    assert!(sale.operator.delete(&sale.scope).await.unwrap());
    assert!(sale.operator.delete(&sale.scope).await.unwrap());
    let after = sale.dump();
    let gone: Vec<_> = before.keys().filter(|k| !after.contains_key(*k)).collect();
    assert_eq!(gone, [sale.key("state").as_bytes()]);
    // Nothing is current: what is there may be about to become so.
    sale.cli(&["DEL", &sale.key("current")]);
    assert!(!sale.operator.delete(&scope(LOG, 2)).await.unwrap());
}
