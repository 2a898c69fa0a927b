//! The operators' calls.

use crate::stack::{ADMIN_KEY, Stack, Wanted, bearer};
use crate::wire;
use serde_json::{Value, json};

#[tokio::test(flavor = "multi_thread")]
async fn every_admin_call_needs_a_key_and_probes_and_metrics_do_not() {
    let stack = Stack::start().await;
    stack.create("s", 1).await;
    let wrong = format!("Bearer {}", ADMIN_KEY.to_uppercase());
    let user = bearer("alice");
    for (method, path) in [
        ("POST", "/admin/v1/sales"),
        ("GET", "/admin/v1/sales"),
        ("GET", "/admin/v1/sales/s"),
        ("POST", "/admin/v1/sales/s/open"),
        ("POST", "/admin/v1/sales/s/close"),
        ("POST", "/admin/v1/sales/s/recover"),
        ("GET", "/admin/v1/nothing"),
    ] {
        for headers in [
            vec![],
            vec![("authorization", wrong.as_str())],
            vec![("authorization", user.as_str())],
        ] {
            let reply = wire::call(stack.admin, method, path, &headers, b"").await;
            assert_eq!(reply.said(), (401, "admin_key_required"), "{method} {path}");
        }
    }
    for path in ["/livez", "/readyz", "/metrics"] {
        assert_eq!(
            wire::call(stack.admin, "GET", path, &[], b"").await.status,
            200,
            "{path}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn creating_the_same_sale_again_changes_nothing_and_another_is_refused() {
    let stack = Stack::start().await;
    let definition = json!({
        "id": "s", "stock": 10_000_000, "per_user_limit": 2, "opens_at": null,
        "closes_at": "2099-01-01T00:00:00+09:00", "hold_seconds": 0,
    });
    let created = stack.admin("POST", "/admin/v1/sales", &definition).await;
    assert_eq!(created.status, 201);
    assert_eq!(created.header("location"), Some("/admin/v1/sales/s"));
    assert_eq!(created.body["state"], "scheduled");
    assert_eq!(created.body["closes_at"], "2098-12-31T15:00:00.000Z");
    assert!(created.body["sold"].is_null(), "{}", created.body);
    assert_eq!(
        stack
            .admin("POST", "/admin/v1/sales", &definition)
            .await
            .status,
        200
    );
    let mut other = definition.clone();
    other["stock"] = json!(5);
    let reply = stack.admin("POST", "/admin/v1/sales", &other).await;
    assert_eq!(reply.said(), (409, "sale_exists"));
    let all = stack.admin("GET", "/admin/v1/sales", &Value::Null).await;
    assert_eq!(all.body["sales"].as_array().unwrap().len(), 1);
    assert_eq!(all.body["sales"][0]["stock"], 10_000_000);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_wrong_field_of_a_sale_is_told_at_once() {
    let stack = Stack::start().await;
    let wrong = json!({
        "id": "x".repeat(300), "stock": 10_000_001, "per_user_limit": 0, "hold_seconds": 60,
        "opens_at": "soon", "closes_at": 5, "colour": "red",
    });
    let reply = stack.admin("POST", "/admin/v1/sales", &wrong).await;
    assert_eq!(reply.said(), (422, "invalid_fields"));
    let fields = reply.body["fields"].as_array().unwrap();
    let paths: Vec<_> = fields.iter().map(|f| f["path"].as_str().unwrap()).collect();
    let expected = [
        "closes_at",
        "colour",
        "hold_seconds",
        "id",
        "opens_at",
        "per_user_limit",
        "stock",
    ];
    assert_eq!(paths, expected);
    let all = stack.admin("GET", "/admin/v1/sales", &Value::Null).await;
    assert_eq!(all.body["sales"], json!([]));
    let key = format!("Bearer {ADMIN_KEY}");
    let headers = [("authorization", key.as_str())];
    let reply = wire::call(stack.admin, "POST", "/admin/v1/sales", &headers, b"{").await;
    assert_eq!(reply.said(), (400, "malformed_body"));
    let huge = vec![b' '; 70_000];
    let reply = wire::call(stack.admin, "POST", "/admin/v1/sales", &headers, &huge).await;
    assert_eq!(reply.said(), (413, "body_too_large"));
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_are_idempotent_and_know_the_sales_life() {
    let stack = Stack::start().await;
    for command in ["open", "close"] {
        assert_eq!(
            stack.command("nope", command).await.said(),
            (404, "unknown_sale")
        );
        assert_eq!(
            stack.command("NOPE", command).await.said(),
            (422, "invalid_fields")
        );
    }
    stack.create("s", 3).await;
    assert_eq!(
        stack.command("s", "close").await.said(),
        (409, "sale_not_open")
    );
    stack.open("s").await;
    assert_eq!(
        stack.command("s", "open").await.body,
        json!({"outcome": "already"})
    );
    let won = stack.claim_finally("s", "alice", "").await;
    assert_eq!(won.status, 201);
    let shown = stack
        .admin("GET", "/admin/v1/sales/s", &Value::Null)
        .await
        .body;
    let counts = ["stock", "sold", "held", "free"].map(|name| shown[name].as_u64());
    assert_eq!(counts, [Some(3), Some(1), Some(0), Some(2)], "{shown}");
    assert_eq!(shown["version"], "1.1");
    assert_eq!(
        stack.command("s", "close").await.body,
        json!({"outcome": "closed"})
    );
    assert_eq!(
        stack.command("s", "open").await.said(),
        (409, "sale_closed")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_without_operator_credentials_creates_and_does_not_open() {
    let wanted = Wanted {
        no_operator: true,
        ..Wanted::default()
    };
    let stack = Stack::with(wanted).await;
    stack.create("s", 3).await;
    let reply = stack.command("s", "open").await;
    assert_eq!(reply.said(), (503, "operator_credentials_missing"));
    assert_eq!(reply.body["retry"]["may"], false);
}
