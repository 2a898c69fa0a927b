//! What clients send wrong, and what they are told.

use crate::stack::{AUDIENCE, SECRET, Stack, bearer, bearer_of};
use crate::wire::Connection;
use serde_json::json;

const POST: &str = "/v1/sales/s/claims";

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_sale_is_404_and_an_impossible_id_422() {
    let stack = Stack::start().await;
    let user = bearer("alice");
    let headers = [("authorization", user.as_str())];
    let claim = format!("1-1-{}", "ab".repeat(16));
    for path in [
        "/v1/sales/nope".to_owned(),
        format!("/v1/sales/nope/claims/{claim}"),
    ] {
        assert_eq!(
            stack.get(&path, &headers).await.said(),
            (404, "unknown_sale"),
            "{path}"
        );
    }
    assert_eq!(
        stack.claim("nope", "alice", "").await.said(),
        (404, "unknown_sale")
    );
    let long = "x".repeat(300);
    for id in [
        "A",
        "-a",
        "a_b",
        "a%20b",
        "%00",
        "%F0%9F%8E%AB",
        "a%2Fb",
        "..%2f",
        &long,
    ] {
        let reply = stack.get(&format!("/v1/sales/{id}"), &[]).await;
        assert_eq!(reply.said(), (422, "invalid_fields"), "{id}");
        assert_eq!(reply.body["fields"][0]["path"], "path.sale");
        assert_eq!(
            stack.claim(id, "alice", "").await.said(),
            (422, "invalid_fields"),
            "{id}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_is_a_small_object_without_fields() {
    let stack = Stack::start().await;
    stack.sell("s", 9).await;
    let user = bearer("alice");
    let mut connection = Connection::open(stack.addr).await;
    let headers = [("authorization", user.as_str())];
    let small = |text: &str| text.as_bytes().to_vec();
    let cases = [
        (small("{"), 400, "malformed_body"),
        (small("[]"), 400, "malformed_body"),
        (small("\"x\""), 400, "malformed_body"),
        (vec![0xff, 0xfe], 400, "malformed_body"),
        (small("{\"unit\": 7}"), 422, "invalid_fields"),
        (vec![b' '; 5000], 413, "body_too_large"),
    ];
    for (body, status, code) in cases {
        // All on one connection: it lives on after each of them.
        let reply = connection.send("POST", POST, &headers, &body).await;
        assert_eq!(
            reply.said(),
            (status, code),
            "{:?}",
            String::from_utf8_lossy(&body)
        );
        if status == 422 {
            assert_eq!(
                reply.body["fields"],
                json!([{"path": "unit", "expected": "no such field"}])
            );
        }
    }
    // The same without a token or a sale: the body is read all the same.
    let reply = connection
        .send("POST", "/v1/sales/nope/claims", &[], b"{}")
        .await;
    assert_eq!(reply.said(), (404, "unknown_sale"));
    assert_eq!(
        connection.send("POST", POST, &[], b"{}").await.said(),
        (401, "missing_token")
    );
    let reply = connection.send("POST", POST, &headers, b"").await;
    assert!([201, 202, 503].contains(&reply.status), "{reply:?}");
    // What is far too large is not read to its end: told, and closed.
    let mut connection = Connection::open(stack.addr).await;
    let huge = vec![b'x'; 300_000];
    let reply = connection.send("POST", POST, &headers, &huge).await;
    assert_eq!(reply.said(), (413, "body_too_large"));
    assert!(connection.is_closed().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_that_are_not_good_are_401_with_their_code() {
    let stack = Stack::start().await;
    stack.sell("s", 9).await;
    let forged = bearer_of("ffffffffffffffffffffffffffffffff", "alice", AUDIENCE, None);
    let cases = [
        (String::new(), "missing_token"),
        ("Basic YTpi".to_owned(), "missing_token"),
        ("Bearer ".to_owned(), "missing_token"),
        ("Bearer nonsense".to_owned(), "invalid_token"),
        (forged, "invalid_token"),
        (
            bearer_of(SECRET, "alice", "elsewhere", None),
            "invalid_token",
        ),
        (
            bearer_of(SECRET, "alice", AUDIENCE, Some("other")),
            "invalid_token",
        ),
        (expired(), "expired_token"),
    ];
    let claim = format!("{POST}/1-1-{}", "ab".repeat(16));
    for (bearer, code) in cases {
        let reply = stack.claim_with("s", &bearer, "", b"{}").await;
        assert_eq!(reply.said(), (401, code), "{bearer}");
        assert!(
            reply
                .header("www-authenticate")
                .unwrap()
                .starts_with("Bearer")
        );
        let reply = stack.get(&claim, &[("authorization", &bearer)]).await;
        assert_eq!(reply.said(), (401, code), "{bearer}");
    }
    assert_eq!(stack.claim_finally("s", "alice", "").await.status, 201);
}

fn expired() -> String {
    use jsonwebtoken::{Algorithm, EncodingKey, Header};
    let header = Header {
        typ: Some("dropgate-user+jwt".into()),
        kid: Some("k1".into()),
        ..Header::new(Algorithm::HS256)
    };
    let claims = json!({"sub": "alice", "aud": AUDIENCE, "exp": 1_000_000_000});
    let key = EncodingKey::from_secret(SECRET.as_bytes()).unwrap();
    format!(
        "Bearer {}",
        jsonwebtoken::encode(&header, &claims, &key).unwrap()
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_and_claim_ids_that_cannot_be_are_422() {
    let stack = Stack::start().await;
    stack.sell("s", 9).await;
    for key in ["k".repeat(65).as_str(), "a\tb"] {
        let reply = stack.claim("s", "alice", key).await;
        assert_eq!(reply.said(), (422, "invalid_fields"), "{key:?}");
        assert_eq!(reply.body["fields"][0]["path"], "header.Idempotency-Key");
    }
    let user = bearer("alice");
    let twice = [
        ("authorization", user.as_str()),
        ("idempotency-key", "a"),
        ("idempotency-key", "b"),
    ];
    let reply = crate::wire::call(stack.addr, "POST", POST, &twice, b"{}").await;
    assert_eq!(reply.said(), (422, "invalid_fields"));
    for id in [
        "x",
        "1-2-3",
        "01-1-abababababababababababababababab",
        &"9".repeat(300),
    ] {
        let path = format!("{POST}/{id}");
        let reply = stack.get(&path, &[("authorization", &user)]).await;
        assert_eq!(reply.said(), (422, "invalid_fields"), "{id}");
    }
    let never = format!("{POST}/1-99999999-{}", "ab".repeat(16));
    let reply = stack.get(&never, &[("authorization", &user)]).await;
    assert_eq!(reply.said(), (404, "unknown_claim"));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_there_is_404_and_what_is_not_done_405() {
    let stack = Stack::start().await;
    for path in [
        "/",
        "/v1",
        "/v1/sales",
        "/v1/sales/",
        "/admin/v1/sales",
        "/metrics",
    ] {
        assert_eq!(
            stack.get(path, &[]).await.said(),
            (404, "not_found"),
            "{path}"
        );
    }
    for (method, path, allow) in [
        ("GET", "/v1/sales/s/claims", "POST"),
        ("DELETE", "/v1/sales/s", "GET"),
        ("POST", "/v1/sales/s/claims/x", "GET"),
    ] {
        let reply = crate::wire::call(stack.addr, method, path, &[], b"").await;
        assert_eq!(reply.said(), (405, "method_not_allowed"), "{method} {path}");
        assert_eq!(reply.header("allow"), Some(allow));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_never_comes_does_not_hold_a_connection_for_ever() {
    let stack = Stack::start().await;
    let mut connection = Connection::open(stack.addr).await;
    let head = b"POST /v1/sales/s/claims HTTP/1.1\r\nhost: x\r\ncontent-length: 10\r\n\r\n{";
    let reply = connection.raw(head).await;
    assert_eq!(reply.said(), (408, "body_too_slow"));
    assert!(connection.is_closed().await);
}
