//! A sale is recovered by the operators' call.

use crate::stack::{Stack, Wanted};
use crate::wire::{BOUND, Reply};
use serde_json::{Value, json};
use std::time::Duration;

impl Stack {
    async fn recover(&self, sale: &str, body: &Value) -> Reply {
        let path = format!("/admin/v1/sales/{sale}/recover");
        self.admin("POST", &path, body).await
    }

    /// Every key with its content, but for the time that a certification leaves behind.
    fn redis_contents(&self) -> Vec<(String, String)> {
        let keys = self.redis.cli(&["KEYS", "*"]).expect("keys");
        let mut contents: Vec<_> = keys
            .lines()
            .map(|key| {
                let dump = self.redis.cli(&["DUMP", key]).expect("dump");
                (key.to_owned(), dump)
            })
            .collect();
        contents.sort();
        contents
    }

    async fn state(&self, sale: &str, wanted: &str) -> Value {
        let mut last = Value::Null;
        let path = format!("/admin/v1/sales/{sale}");
        let wait = async {
            loop {
                last = self.admin("GET", &path, &Value::Null).await.body;
                if last["state"] == wanted {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let in_time = tokio::time::timeout(BOUND, wait).await;
        assert!(in_time.is_ok(), "never {wanted}: {last}");
        last
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sale_whose_redis_forgot_is_recovered_and_keeps_its_winners() {
    let stack = Stack::start().await;
    stack.sell("s", 5).await;
    let told = stack.claim_finally("s", "alice", "").await;
    assert_eq!(told.status, 201);
    stack.redis.cli(&["FLUSHALL"]).expect("flush");
    stack.redis.cli(&["SCRIPT", "FLUSH"]).expect("flush");
    stack.state("s", "halted").await;
    let reply = stack.recover("s", &json!({})).await;
    assert_eq!(reply.status, 200, "{reply:?}");
    assert_eq!(
        (&reply.body["outcome"], &reply.body["generation"]),
        (&json!("recovered"), &json!(2)),
        "{reply:?}"
    );
    assert_eq!(reply.body["wins"], 1);
    let again = stack.claim_finally("s", "alice", "").await;
    assert_eq!(
        (again.status, &again.body["claim"]),
        (200, &told.body["claim"])
    );
    let other = stack.claim_finally("s", "bob", "").await;
    assert_eq!((other.status, &other.body["unit"]), (201, &json!(2)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_live_sale_is_left_alone_unless_forced() {
    let stack = Stack::start().await;
    stack.sell("s", 5).await;
    assert_eq!(stack.claim_finally("s", "alice", "").await.status, 201);
    let reply = stack.recover("s", &Value::Null).await;
    assert_eq!(
        (&reply.body["outcome"], &reply.body["generation"]),
        (&json!("live"), &json!(1)),
        "{reply:?}"
    );
    let reply = stack.recover("s", &json!({"force": true})).await;
    assert_eq!(
        (&reply.body["outcome"], &reply.body["generation"]),
        (&json!("recovered"), &json!(2)),
        "{reply:?}"
    );
    let other = stack.claim_finally("s", "bob", "").await;
    assert_eq!((other.status, &other.body["unit"]), (201, &json!(2)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_tells_what_would_be_done_and_changes_nothing() {
    let stack = Stack::start().await;
    stack.sell("s", 5).await;
    assert_eq!(stack.claim_finally("s", "alice", "").await.status, 201);
    let dry = |force| json!({"dry_run": true, "force": force});
    let reply = stack.recover("s", &dry(false)).await;
    assert_eq!(
        (&reply.body["outcome"], &reply.body["would"]),
        (&json!("dry_run"), &json!("nothing")),
        "{reply:?}"
    );
    assert_eq!(reply.body["redis"]["state"], "there");
    assert_eq!(reply.body["redis"]["scripts_loaded"], true);
    assert!(reply.body["redis"]["loss"].is_null(), "{reply:?}");
    let reply = stack.recover("s", &dry(true)).await;
    assert_eq!(reply.body["would"], "recover", "{reply:?}");

    stack.redis.cli(&["SCRIPT", "FLUSH"]).expect("flush");
    stack.state("s", "halted").await;
    let before = stack.redis_contents();
    // It says that it is halted before it has read so in the log.
    let in_log = async {
        loop {
            let reply = stack.recover("s", &dry(false)).await;
            if reply.body["standing"]["halted_at"].is_string() {
                return reply;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let reply = tokio::time::timeout(BOUND, in_log).await.expect("a halt");
    assert_eq!(
        (&reply.body["would"], &reply.body["wins"]),
        (&json!("recover"), &json!(1)),
        "{reply:?}"
    );
    assert_eq!(reply.body["redis"]["scripts_loaded"], false, "{reply:?}");
    let standing = &reply.body["standing"];
    assert_eq!(standing["condition"], "halted", "{reply:?}");
    assert!(standing["halted_by"].is_string(), "{reply:?}");
    assert_eq!(stack.redis_contents(), before);
    let shown = stack.admin("GET", "/admin/v1/sales/s", &Value::Null).await;
    assert_eq!(shown.body["version"], "1.1", "{shown:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_recovered_is_refused_with_its_reason() {
    let stack = Stack::start().await;
    let none = Value::Null;
    assert_eq!(
        stack.recover("nope", &none).await.said(),
        (404, "unknown_sale")
    );
    assert_eq!(
        stack.recover("NOPE", &none).await.said(),
        (422, "invalid_fields")
    );
    let wrong = json!({"force": "yes", "dry_run": 1, "sale": "s"});
    let reply = stack.recover("nope", &wrong).await;
    assert_eq!(reply.said(), (422, "invalid_fields"));
    let fields = reply.body["fields"].as_array().expect("fields");
    let paths: Vec<_> = fields.iter().map(|f| f["path"].as_str()).collect();
    assert_eq!(paths, [Some("dry_run"), Some("force"), Some("sale")]);
    stack.create("s", 3).await;
    assert_eq!(
        stack.recover("s", &none).await.said(),
        (409, "sale_not_open")
    );
    stack.open("s").await;
    assert_eq!(stack.command("s", "close").await.status, 200);
    for body in [none, json!({"force": true})] {
        assert_eq!(stack.recover("s", &body).await.said(), (409, "sale_closed"));
    }
    let dry = stack.recover("s", &json!({"dry_run": true})).await;
    assert_eq!(dry.body["would"], "refuse", "{dry:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unfit_redis_keeps_the_sale_closed_and_the_call_may_be_made_again() {
    let stack = Stack::start().await;
    stack.sell("s", 3).await;
    assert_eq!(stack.claim_finally("s", "alice", "").await.status, 201);
    let evicting = ["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"];
    stack.redis.cli(&evicting).expect("config");
    stack.redis.cli(&["FLUSHALL"]).expect("flush");
    stack.state("s", "halted").await;
    let reply = stack.recover("s", &Value::Null).await;
    assert_eq!(reply.said(), (503, "unavailable"));
    assert_eq!(reply.body["retry"]["may"], true);
    let detail = reply.body["detail"].as_str().unwrap_or_default();
    assert!(detail.contains("noeviction"), "{reply:?}");
    let dry = stack.recover("s", &json!({"dry_run": true})).await;
    assert_eq!(dry.body["redis"]["unfit"].as_array().map(Vec::len), Some(1));
    let keeping = ["CONFIG", "SET", "maxmemory-policy", "noeviction"];
    stack.redis.cli(&keeping).expect("config");
    let reply = stack.recover("s", &Value::Null).await;
    assert_eq!(reply.body["outcome"], "recovered", "{reply:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_without_operator_credentials_recovers_nothing() {
    let wanted = Wanted {
        no_operator: true,
        ..Wanted::default()
    };
    let stack = Stack::with(wanted).await;
    stack.create("s", 3).await;
    let dry = stack.recover("s", &json!({"dry_run": true})).await;
    assert_eq!(dry.said(), (503, "operator_credentials_missing"));
}
