//! Request bodies: always read, bounded in size and time.
//!
//! A body that is not read makes the server close the connection, so it is read even when the
//! answer is known before.

use crate::error::Problem;
use actix_web::web::{Bytes, BytesMut, Payload};
use dropgate_domain::code::Code;
use futures::StreamExt;
use serde_json::{Map, Value};
use std::time::Duration;

/// The largest body of a claim, in bytes: there is nothing to say in it yet.
pub const CLAIM_BYTES_MAX: usize = 4 * 1024;

/// The largest body of an operators' call, in bytes.
pub const ADMIN_BYTES_MAX: usize = 64 * 1024;

/// How much more than is allowed is read and thrown away, so that the connection can be kept.
const DRAINED_BYTES_MAX: usize = 64 * 1024;

/// How long a body may take to arrive.
const PATIENCE: Duration = Duration::from_secs(5);

/// Reads the body to its end.
///
/// # Errors
/// A body that is larger than `bytes_max`, that does not come in time, or that breaks off.
pub async fn read(payload: Payload, bytes_max: usize) -> Result<Bytes, Problem> {
    match tokio::time::timeout(PATIENCE, collect(payload, bytes_max)).await {
        Ok(result) => result,
        Err(_) => Err(Problem::new(Code::BodyTooSlow).close()),
    }
}

async fn collect(mut payload: Payload, bytes_max: usize) -> Result<Bytes, Problem> {
    let mut body = BytesMut::new();
    let mut seen = 0usize;
    while let Some(chunk) = payload.next().await {
        let chunk = chunk.map_err(|_| Problem::new(Code::MalformedRequest).close())?;
        seen = seen.saturating_add(chunk.len());
        if seen <= bytes_max {
            body.extend_from_slice(&chunk);
        } else if seen > bytes_max + DRAINED_BYTES_MAX {
            return Err(too_large(bytes_max).close());
        }
    }
    if seen > bytes_max {
        Err(too_large(bytes_max))
    } else {
        Ok(body.freeze())
    }
}

fn too_large(bytes_max: usize) -> Problem {
    Problem::new(Code::BodyTooLarge).detail(format!("at most {bytes_max} bytes"))
}

/// The body as a JSON object; nothing at all is an empty one.
///
/// # Errors
/// What is not a JSON object.
pub fn object(body: &[u8]) -> Result<Map<String, Value>, Problem> {
    if body.is_empty() {
        return Ok(Map::new());
    }
    match serde_json::from_slice(body) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(_) => Err(Problem::new(Code::MalformedBody).detail("not an object")),
        Err(error) => {
            let place = format!("line {}, column {}", error.line(), error.column());
            Err(Problem::new(Code::MalformedBody).detail(format!("not JSON at {place}")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use actix_web::{FromRequest, test::TestRequest};

    async fn read_of(bytes: usize) -> Result<usize, Problem> {
        let (request, mut payload) = TestRequest::post()
            .set_payload(vec![b'x'; bytes])
            .to_http_parts();
        let payload = Payload::from_request(&request, &mut payload).await.unwrap();
        read(payload, CLAIM_BYTES_MAX).await.map(|body| body.len())
    }

    #[actix_web::test]
    async fn a_body_is_read_up_to_its_bound() {
        assert_eq!(read_of(0).await.unwrap(), 0);
        assert_eq!(read_of(CLAIM_BYTES_MAX).await.unwrap(), CLAIM_BYTES_MAX);
        let over = read_of(CLAIM_BYTES_MAX + 1).await.unwrap_err();
        assert_eq!(over.code, Code::BodyTooLarge);
        assert!(!over.close, "what was drained leaves the connection usable");
        let far_over = read_of(CLAIM_BYTES_MAX + DRAINED_BYTES_MAX + 1)
            .await
            .unwrap_err();
        assert!(far_over.close);
    }

    #[test]
    fn only_objects_are_bodies() {
        assert!(object(b"").unwrap().is_empty());
        assert!(object(b"{}").unwrap().is_empty());
        for bad in ["{", "[]", "1", "null", "{}{}", "\u{feff}{}", "{\"a\":}"] {
            assert_eq!(
                object(bad.as_bytes()).unwrap_err().code,
                Code::MalformedBody,
                "{bad}"
            );
        }
    }
}
