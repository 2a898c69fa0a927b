//! What every client sees besides the answers: CORS, caching, ids, the description.

use crate::stack::{ADMIN_KEY, Stack, Wanted, bearer};
use crate::wire;
use serde_json::Value;
use std::collections::BTreeSet;

fn with_origin() -> Wanted {
    Wanted {
        config: vec!["http.cors_origins = ['https://shop.example']".into()],
        ..Wanted::default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_preflight_of_a_listed_origin_is_answered_and_may_be_cached() {
    let stack = Stack::with(with_origin()).await;
    let ask = async |origin: &str| {
        let headers = [
            ("origin", origin),
            ("access-control-request-method", "POST"),
            (
                "access-control-request-headers",
                "authorization,idempotency-key,content-type",
            ),
        ];
        wire::call(stack.addr, "OPTIONS", "/v1/sales/s/claims", &headers, b"").await
    };
    let listed = ask("https://shop.example").await;
    assert!(listed.status < 300, "{listed:?}");
    assert_eq!(
        listed.header("access-control-allow-origin"),
        Some("https://shop.example")
    );
    assert_eq!(listed.header("access-control-max-age"), Some("3600"));
    let allowed = listed
        .header("access-control-allow-headers")
        .unwrap()
        .to_lowercase();
    for name in ["authorization", "idempotency-key", "content-type"] {
        assert!(allowed.contains(name), "{allowed}");
    }
    let other = ask("https://evil.example").await;
    assert_eq!(other.header("access-control-allow-origin"), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_of_a_listed_origin_can_read_errors_and_their_waits() {
    let stack = Stack::with(with_origin()).await;
    let origin = [("origin", "https://shop.example")];
    let reply = stack.get("/v1/sales/nope", &origin).await;
    assert_eq!(reply.said(), (404, "unknown_sale"));
    assert_eq!(
        reply.header("access-control-allow-origin"),
        Some("https://shop.example")
    );
    let exposed = reply
        .header("access-control-expose-headers")
        .unwrap()
        .to_lowercase();
    assert!(
        exposed.contains("retry-after") && exposed.contains("location"),
        "{exposed}"
    );
    // Who has no origin is no browser and is not concerned.
    assert_eq!(stack.get("/v1/sales/nope", &[]).await.status, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sale_is_the_same_for_everybody_and_cacheable_and_an_error_never_is() {
    let stack = Stack::start().await;
    stack.sell("s", 12_345).await;
    let sale = stack.get("/v1/sales/s", &[]).await;
    assert_eq!(sale.header("cache-control"), Some("public, max-age=1"));
    assert_eq!(sale.body["state"], "open");
    assert_eq!(sale.body["stock"], 12_345);
    assert_eq!(sale.body["remaining"], 12_000);
    assert_eq!(sale.body["version"], "1.0");
    assert!(sale.body["opens_at"].is_null());
    assert!(sale.body["staleness_ms_max"].is_u64(), "{}", sale.body);
    let nope = stack.get("/v1/sales/nope", &[]).await;
    assert_eq!(nope.header("cache-control"), Some("no-store"));
    let won = stack.claim_finally("s", "alice", "").await;
    assert_eq!(won.header("cache-control"), Some("no-store"));
}

#[tokio::test(flavor = "multi_thread")]
async fn every_answer_carries_the_requests_id() {
    let stack = Stack::start().await;
    let reply = stack
        .get("/v1/sales/nope", &[("x-request-id", "shop-42")])
        .await;
    assert_eq!(reply.header("x-request-id"), Some("shop-42"));
    assert_eq!(reply.body["request_id"], "shop-42");
    assert_eq!(
        reply.header("content-type"),
        Some("application/problem+json")
    );
    let reply = wire::call(
        stack.admin,
        "GET",
        "/admin/v1/sales",
        &[("x-request-id", "a")],
        b"",
    )
    .await;
    assert_eq!(reply.body["request_id"], "a");
}

#[tokio::test(flavor = "multi_thread")]
async fn probes_are_answered_on_both_ports() {
    let stack = Stack::start().await;
    for addr in [stack.addr, stack.admin] {
        assert_eq!(
            wire::call(addr, "GET", "/livez", &[], b"").await.status,
            200
        );
        let ready = wire::call(addr, "GET", "/readyz", &[], b"").await;
        assert_eq!(
            (ready.status, &ready.body["ready"]),
            (200, &Value::Bool(true))
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_description_is_openapi_3_1_and_complete() {
    let stack = Stack::start().await;
    let clients = stack.get("/openapi.json", &[]).await.body;
    check(&clients);
    let paths: BTreeSet<&str> = clients["paths"]
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect();
    let expected = [
        "/v1/sales/{sale}",
        "/v1/sales/{sale}/claims",
        "/v1/sales/{sale}/claims/{claim}",
    ];
    assert_eq!(paths, expected.into());
    let operators = wire::call(stack.admin, "GET", "/openapi.json", &[], b"")
        .await
        .body;
    check(&operators);
    let expected = [
        "/admin/v1/sales",
        "/admin/v1/sales/{sale}",
        "/admin/v1/sales/{sale}/close",
        "/admin/v1/sales/{sale}/open",
        "/admin/v1/sales/{sale}/recover",
    ];
    let paths: BTreeSet<&str> = operators["paths"]
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect();
    assert_eq!(paths, expected.into());
}

/// What the specification asks of a document, as far as ours could get it wrong.
fn check(document: &Value) {
    assert!(
        document["openapi"].as_str().unwrap().starts_with("3.1."),
        "{}",
        document["openapi"]
    );
    assert!(document["info"]["title"].is_string() && document["info"]["version"].is_string());
    let mut ids = BTreeSet::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let id = operation["operationId"].as_str().expect("an id");
            assert!(ids.insert(id), "{id} twice");
            let responses = operation["responses"].as_object().expect("responses");
            assert!(!responses.is_empty(), "{method} {path}");
            for response in responses.values() {
                assert!(response["description"].is_string(), "{method} {path}");
            }
            let named: BTreeSet<&str> = operation["parameters"]
                .as_array()
                .into_iter()
                .flatten()
                .filter(|p| p["in"] == "path" && p["required"] == true)
                .filter_map(|p| p["name"].as_str())
                .collect();
            let used: BTreeSet<&str> = path.split(['{', '}']).skip(1).step_by(2).collect();
            assert_eq!(named, used, "{method} {path}");
            for scheme in operation["security"].as_array().into_iter().flatten() {
                for name in scheme.as_object().unwrap().keys() {
                    let defined = &document["components"]["securitySchemes"][name];
                    assert!(defined.is_object(), "{name}");
                }
            }
        }
    }
    resolve(document, document);
}

/// Every reference leads somewhere.
fn resolve(document: &Value, part: &Value) {
    match part {
        Value::Object(fields) => {
            if let Some(target) = fields.get("$ref").and_then(Value::as_str) {
                let pointer = target.strip_prefix('#').expect("a local reference");
                assert!(document.pointer(pointer).is_some(), "{target}");
            }
            fields.values().for_each(|field| resolve(document, field));
        }
        Value::Array(items) => items.iter().for_each(|item| resolve(document, item)),
        _ => {}
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_count_and_hold_no_secret() {
    let stack = Stack::start().await;
    stack.sell("s", 1).await;
    stack.claim_finally("s", "alice-the-user", "").await;
    stack.claim_finally("s", "bob-the-user", "").await;
    let port = stack.admin.port();
    let fetch = move || dropgate_testkit::http::get(port, "/metrics").expect("metrics");
    let text = tokio::task::spawn_blocking(fetch).await.unwrap().body;
    for line in [
        "dropgate_http_claims_total{answer=\"won\"} 1",
        "dropgate_http_problems_total{code=\"sold_out\"} 1",
        "dropgate_http_connections ",
    ] {
        assert!(text.contains(line), "{line} in {text}");
    }
    for secret in ["the-user", ADMIN_KEY, &bearer("alice-the-user")[..40]] {
        assert!(!text.contains(secret), "{secret}");
    }
}
