//! The click, and what comes of it.

use crate::stack::{AUDIENCE, Stack, Wanted, bearer, bearer_of};
use crate::wire::{BOUND, Connection, Reply};
use dropgate_domain::{ClaimId, Digest, LogId, Offset, PartitionId, Position};
use dropgate_store::{Pin, SaleState, SaleWrite, Store, StoreConfig};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Duration;

#[tokio::test(flavor = "multi_thread")]
async fn a_click_wins_a_unit_and_every_repeat_is_the_same_claim() {
    let stack = Stack::start().await;
    stack.sell("s", 3).await;
    let won = stack.claim_finally("s", "alice", "k").await;
    assert_eq!(won.status, 201, "{won:?}");
    assert_eq!(won.body["unit"], 1);
    assert_eq!(won.body["status"], "won");
    assert_eq!(won.body["sale"], "s");
    assert!(won.body["label"].is_null() && won.body["persisted"].is_null());
    assert!(won.body["won_at"].as_str().unwrap().ends_with('Z'));
    // With a limit of one, whatever the key.
    for key in ["k", "", "another"] {
        let again = stack.claim_finally("s", "alice", key).await;
        assert_eq!((again.status, &again.body), (200, &won.body), "key {key:?}");
    }
    let location = won.header("location").unwrap();
    let mine = stack.look_up(location, "alice").await;
    assert_eq!((mine.status, &mine.body), (200, &won.body));
    let other = stack.look_up(location, "bob").await;
    assert_eq!(other.said(), (404, "unknown_claim"));
    assert!(stack.stop().await.is_clean());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_clicks_of_one_user_at_once_are_one_claim() {
    let stack = Stack::start().await;
    stack.sell("s", 100).await;
    let clicks = (0..50).map(|n| {
        let (addr, bearer) = (stack.addr, bearer("alice"));
        tokio::spawn(async move {
            let mut connection = Connection::open(addr).await;
            let mut replies = Vec::new();
            for i in 0..20 {
                // Some with a key, some without, some with another.
                let key = format!("k{}", (n + i) % 3);
                let mut headers = vec![("authorization", bearer.as_str())];
                if i % 4 != 0 {
                    headers.push(("idempotency-key", &key));
                }
                replies.push(
                    connection
                        .send("POST", "/v1/sales/s/claims", &headers, b"{}")
                        .await,
                );
            }
            replies
        })
    });
    let clicks: Vec<_> = clicks.collect();
    let mut replies = Vec::new();
    for click in clicks {
        replies.extend(click.await.unwrap());
    }
    assert_eq!(replies.len(), 1000);
    let other: Vec<&Reply> = replies
        .iter()
        .filter(|r| ![200, 201, 202, 503].contains(&r.status))
        .collect();
    assert!(other.is_empty(), "{:?}", other.first());
    let created = replies.iter().filter(|r| r.status == 201).count();
    assert!(created <= 1, "{created} were told that they had created it");
    let claims: BTreeSet<&str> = replies
        .iter()
        .filter_map(|r| r.body["claim"].as_str())
        .collect();
    assert_eq!(claims.len(), 1, "{claims:?}");
    let sale = stack.admin("GET", "/admin/v1/sales/s", &Value::Null).await;
    assert_eq!(sale.body["sold"], 1, "{:?}", sale.body);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_last_units_go_to_exactly_as_many_users() {
    let stack = Stack::start().await;
    stack.sell("s", 5).await;
    let tasks = (0..60).map(|n| {
        let (addr, bearer) = (stack.addr, bearer(&format!("user-{n}")));
        tokio::spawn(async move {
            let mut connection = Connection::open(addr).await;
            loop {
                let headers = [("authorization", bearer.as_str()), ("idempotency-key", "k")];
                let reply = connection
                    .send("POST", "/v1/sales/s/claims", &headers, b"")
                    .await;
                if ![202, 503].contains(&reply.status) {
                    return reply;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        })
    });
    let tasks: Vec<_> = tasks.collect();
    let mut units = BTreeSet::new();
    for task in tasks {
        let reply = tokio::time::timeout(BOUND, task)
            .await
            .expect("not final")
            .unwrap();
        match reply.said() {
            (200 | 201, _) => assert!(units.insert(reply.body["unit"].as_u64().unwrap())),
            (409, "sold_out") => {}
            _ => panic!("{reply:?}"),
        }
    }
    assert_eq!(units, (1..=5).collect());
    let sale = stack.get("/v1/sales/s", &[]).await;
    assert_eq!(
        (&sale.body["state"], &sale.body["remaining"]),
        (&json!("sold_out"), &json!(0))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sale_of_nothing_is_sold_out_and_one_of_one_unit_after_one_claim() {
    let stack = Stack::start().await;
    stack.sell("none", 0).await;
    let reply = stack.claim_finally("none", "alice", "").await;
    assert_eq!(reply.said(), (409, "sold_out"));
    stack.sell("one", 1).await;
    assert_eq!(stack.claim_finally("one", "alice", "").await.status, 201);
    assert_eq!(
        stack.claim_finally("one", "bob", "").await.said(),
        (409, "sold_out")
    );
    assert_eq!(stack.claim_finally("one", "alice", "x").await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn while_sold_out_is_latched_no_token_is_checked_but_an_owners() {
    let wanted = Wanted {
        config: vec!["engine.latch = '10s'".into()],
        ..Wanted::default()
    };
    let stack = Stack::with(wanted).await;
    stack.sell("s", 1).await;
    let won = stack.claim_finally("s", "alice", "k").await;
    let latch = async || {
        let reply = stack.claim_finally("s", "bob", "").await;
        assert_eq!(reply.said(), (409, "sold_out"));
    };
    let forged = "ffffffffffffffffffffffffffffffff";
    for bearer in [
        bearer_of(forged, "mallory", AUDIENCE, None),
        bearer_of(forged, "alice", AUDIENCE, None),
        bearer_of(crate::stack::SECRET, "carol", "elsewhere", None),
        "Bearer nonsense".to_owned(),
    ] {
        latch().await;
        let reply = stack.claim_with("s", &bearer, "", b"{}").await;
        assert_eq!(reply.said(), (409, "sold_out"), "{bearer}");
        assert_eq!(reply.header("cache-control"), Some("no-store"));
    }
    latch().await;
    let again = stack.claim_finally("s", "alice", "k").await;
    assert_eq!((again.status, &again.body), (200, &won.body));
    // Who sends no token at all is told so even then.
    let reply = stack.claim_with("s", "", "", b"{}").await;
    assert_eq!(reply.said(), (401, "missing_token"));
}

#[tokio::test(flavor = "multi_thread")]
async fn with_a_higher_limit_each_key_is_a_claim_up_to_the_limit() {
    let stack = Stack::start().await;
    stack
        .create_as(&json!({"id": "s", "stock": 9, "per_user_limit": 2}))
        .await;
    stack.open("s").await;
    let first = stack.claim_finally("s", "alice", "a").await;
    let second = stack.claim_finally("s", "alice", "b").await;
    assert_eq!((first.status, second.status), (201, 201));
    assert_ne!(first.body["claim"], second.body["claim"]);
    for (key, same) in [("a", &first), ("b", &second)] {
        let again = stack.claim_finally("s", "alice", key).await;
        assert_eq!((again.status, &again.body), (200, &same.body));
    }
    let third = stack.claim_finally("s", "alice", "c").await;
    assert_eq!(third.said(), (409, "limit_reached"));
    assert_eq!(third.body["claims"], json!([first.body, second.body]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sale_that_is_not_open_says_when_it_will_be() {
    let stack = Stack::start().await;
    stack.create("unopened", 1).await;
    let reply = stack.claim_finally("unopened", "alice", "").await;
    assert_eq!(reply.said(), (403, "not_open"));
    assert!(reply.body["opens_at"].is_null() && reply.header("retry-after").is_none());
    let later = json!({"id": "later", "stock": 1, "opens_at": "2099-01-01T00:00:00Z"});
    stack.create_as(&later).await;
    stack.open("later").await;
    let reply = stack.claim_finally("later", "alice", "").await;
    assert_eq!(reply.said(), (403, "not_open"));
    assert_eq!(reply.body["opens_at"], "2099-01-01T00:00:00.000Z");
    assert_eq!(reply.header("retry-after"), Some("86400"));
    let sale = stack.get("/v1/sales/later", &[]).await;
    assert_eq!(sale.body["state"], "scheduled");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_closed_sale_takes_no_claims_and_keeps_those_it_took() {
    let stack = Stack::start().await;
    stack.sell("s", 9).await;
    let won = stack.claim_finally("s", "alice", "k").await;
    assert_eq!(stack.command("s", "close").await.body["outcome"], "closed");
    assert_eq!(stack.command("s", "close").await.body["outcome"], "already");
    assert_eq!(
        stack.claim_finally("s", "bob", "k").await.said(),
        (403, "closed")
    );
    let again = stack.claim_finally("s", "alice", "k").await;
    assert_eq!((again.status, &again.body), (200, &won.body));
    assert_eq!(stack.get("/v1/sales/s", &[]).await.body["state"], "closed");
    assert_eq!(
        stack.command("s", "open").await.said(),
        (409, "sale_closed")
    );
    // And a sale whose time is over, by its definition.
    let past = json!({
        "id": "past", "stock": 1,
        "opens_at": "2020-01-01T00:00:00Z", "closes_at": "2020-01-02T00:00:00Z",
    });
    stack.create_as(&past).await;
    stack.open("past").await;
    assert_eq!(
        stack.claim_finally("past", "alice", "").await.said(),
        (403, "closed")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn persisted_follows_the_position_of_the_database() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", folder.path().join("store.db").display());
    let store = Store::connect(&StoreConfig::with_url(&url)).await.unwrap();
    store.migrate().await.unwrap();
    let wanted = Wanted {
        config: vec![format!("store.url = '{url}'")],
        ..Wanted::default()
    };
    let stack = Stack::with(wanted).await;
    stack.sell("s", 9).await;
    let won = stack.claim_finally("s", "alice", "k").await;
    let path = won.header("location").unwrap().to_owned();
    assert_eq!(persisted(&stack, &path, &json!(false)).await, json!(false));
    let claim: ClaimId = won.body["claim"].as_str().unwrap().parse().unwrap();
    let to = Position {
        generation: claim.generation,
        seq: claim.seq,
        chain: Digest([7; 20]),
    };
    let write = SaleWrite {
        sale: "s".parse().unwrap(),
        from: None,
        to,
        pin: Pin {
            log_id: LogId([1; 16]),
            partition: PartitionId(0),
            from_offset: Offset(0),
        },
        state: SaleState::Open,
        stock: 9,
        sold: 0,
        held: 0,
        opened_at: None,
        closed_at: None,
        orders: Vec::new(),
    };
    store.write(&[write]).await.unwrap();
    assert_eq!(persisted(&stack, &path, &json!(true)).await, json!(true));
    let again = stack.claim_finally("s", "alice", "k").await;
    assert_eq!(again.body["persisted"], true);
}

/// Asks until `persisted` is as wanted, and gives what was seen last.
async fn persisted(stack: &Stack, path: &str, wanted: &Value) -> Value {
    let bearer = bearer("alice");
    let mut last = Value::Null;
    let asking = async {
        while last != *wanted {
            last = stack.get(path, &[("authorization", &bearer)]).await.body["persisted"].clone();
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let _ = tokio::time::timeout(BOUND, asking).await;
    last
}
