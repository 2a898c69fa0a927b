//! What goes wrong, as clients see it: `application/problem+json` (RFC 9457).
//!
//! A handler returns a [`Problem`]; the edge (`middleware::edge`) gives it the request's id and
//! writes it. What caused it is logged there, once, and never sent.

use crate::time::{Rfc3339, now_ms};
use actix_web::http::StatusCode;
use actix_web::http::header::{self, HeaderName};
use actix_web::{HttpResponse, HttpResponseBuilder, ResponseError};
use dropgate_domain::TimeMs;
use dropgate_domain::code::{Code, Retry, Wait};
use serde::Serialize;
use std::borrow::Cow;
use std::fmt;
use utoipa::ToSchema;

/// The header that names the request in logs and answers.
pub const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Where the codes are explained; a problem's `type` is this with the code as its fragment.
pub const CODES_URL: &str = "https://github.com/dropgate/dropgate/blob/main/docs/errors.md";

/// The longest `Retry-After`, in seconds: of a sale that opens next week, ask again tomorrow.
const RETRY_SECONDS_MAX: u64 = 86_400;

/// A problem: a code, and what there is to say besides.
#[derive(Debug)]
pub struct Problem {
    /// What happened.
    pub code: Code,
    /// What is special about this case, for people.
    pub detail: Option<Cow<'static, str>>,
    /// The fields that are wrong.
    pub fields: Vec<FieldProblem>,
    /// What a code brings with it.
    pub extra: Extra,
    /// What caused it, for the log only.
    pub cause: Option<String>,
    /// Whether the connection cannot be used again.
    pub close: bool,
}

/// Members that only some codes have.
#[derive(Debug)]
pub enum Extra {
    /// None.
    None,
    /// Of `not_open`: when it opens, if that is known.
    OpensAt(Option<TimeMs>),
    /// Of `limit_reached`: the user's claims.
    Claims(Vec<crate::answer::WonBody>),
    /// Of `method_not_allowed`: the methods that are.
    Allow(&'static str),
}

/// One field, id or header that is wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct FieldProblem {
    /// Where: a field's path, `path.sale`, or `header.Idempotency-Key`.
    pub path: String,
    /// What was expected there.
    pub expected: String,
}

impl FieldProblem {
    /// A problem at `path`.
    pub fn new(path: impl Into<String>, expected: impl Into<String>) -> Self {
        Self {
            path: path.into(),
            expected: expected.into(),
        }
    }
}

impl Problem {
    /// A problem that its code says all about.
    #[must_use]
    pub fn new(code: Code) -> Self {
        Self {
            code,
            detail: None,
            fields: Vec::new(),
            extra: Extra::None,
            cause: None,
            close: false,
        }
    }

    /// With a text for people. Never a driver's.
    #[must_use]
    pub fn detail(mut self, detail: impl Into<Cow<'static, str>>) -> Self {
        self.detail = Some(detail.into());
        self
    }

    /// With a cause for the log.
    #[must_use]
    pub fn cause(mut self, cause: impl fmt::Display) -> Self {
        self.cause = Some(cause.to_string());
        self
    }

    /// With the members that the code brings.
    #[must_use]
    pub fn extra(mut self, extra: Extra) -> Self {
        self.extra = extra;
        self
    }

    /// On a connection that cannot be used again.
    #[must_use]
    pub fn close(mut self) -> Self {
        self.close = true;
        self
    }

    /// Fields that are wrong.
    #[must_use]
    pub fn fields(fields: Vec<FieldProblem>) -> Self {
        Self {
            fields,
            ..Self::new(Code::InvalidFields)
        }
    }

    /// One field that is wrong.
    #[must_use]
    pub fn field(path: impl Into<String>, expected: impl Into<String>) -> Self {
        Self::fields(vec![FieldProblem::new(path, expected)])
    }

    /// The answer, under the request's id.
    #[must_use]
    pub fn respond(&self, request_id: &str) -> HttpResponse {
        let status = status(self.code);
        let after = self.retry_after();
        let body = Body {
            kind: format!("{CODES_URL}#{}", self.code),
            title: self.code.title(),
            status: status.as_u16(),
            detail: self.detail.as_deref(),
            code: self.code.as_str(),
            request_id,
            retry: RetryBody {
                may: self.code.retry().may(),
                same_key: self.code.retry().may(),
                after_seconds: after,
            },
            fields: &self.fields,
            opens_at: match &self.extra {
                Extra::OpensAt(at) => Some(at.map(Rfc3339)),
                _ => None,
            },
            claims: match &self.extra {
                Extra::Claims(claims) => Some(claims),
                _ => None,
            },
        };
        let mut response = HttpResponse::build(status);
        self.headers(&mut response, after);
        response.insert_header((REQUEST_ID, request_id));
        match serde_json::to_vec(&body) {
            Ok(json) => response.body(json),
            Err(_) => response.finish(),
        }
    }

    fn headers(&self, response: &mut HttpResponseBuilder, after: Option<u64>) {
        response
            .insert_header((header::CONTENT_TYPE, "application/problem+json"))
            .insert_header((header::CACHE_CONTROL, "no-store"));
        if let Some(seconds) = after {
            response.insert_header((header::RETRY_AFTER, seconds));
        }
        match self.code {
            Code::MissingToken => {
                response.insert_header((header::WWW_AUTHENTICATE, "Bearer"));
            }
            Code::InvalidToken | Code::ExpiredToken | Code::AdminKeyRequired => {
                let challenge = "Bearer error=\"invalid_token\"";
                response.insert_header((header::WWW_AUTHENTICATE, challenge));
            }
            _ => {}
        }
        if let Extra::Allow(methods) = self.extra {
            response.insert_header((header::ALLOW, methods));
        }
        if self.close {
            response.force_close();
        }
    }

    fn retry_after(&self) -> Option<u64> {
        match (self.code.retry(), &self.extra) {
            (Retry::After(Wait::Seconds(base)), _) => Some(jittered(u64::from(base))),
            (Retry::After(Wait::Opening), Extra::OpensAt(Some(at))) => {
                let wait_ms = at.0.saturating_sub(now_ms().0);
                Some(wait_ms.div_ceil(1000).clamp(1, RETRY_SECONDS_MAX))
            }
            _ => None,
        }
    }
}

/// A wait in whole seconds: `base`, or up to half as long again and at least one more, so that
/// those who were turned away together do not come back together.
#[must_use]
pub fn jittered(base: u64) -> u64 {
    base + rand::random_range(0..=(base / 2).max(1))
}

fn status(code: Code) -> StatusCode {
    StatusCode::from_u16(code.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.code.fmt(f)
    }
}

impl ResponseError for Problem {
    fn status_code(&self) -> StatusCode {
        status(self.code)
    }

    /// Only the status: the edge, which knows the request's id, writes the rest.
    fn error_response(&self) -> HttpResponse {
        HttpResponse::new(status(self.code))
    }
}

/// A problem, as it is sent.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Problem)]
pub struct Body<'a> {
    /// A link to what the code means.
    #[serde(rename = "type")]
    #[schema(format = "uri-reference")]
    kind: String,
    /// A short text for people, the same for each code.
    title: &'static str,
    /// The HTTP status.
    status: u16,
    /// What is special about this case, for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<&'a str>,
    /// The stable code; see the table of error codes.
    code: &'static str,
    /// The request's id, as in the header `X-Request-Id`.
    request_id: &'a str,
    /// May I ask again?
    retry: RetryBody,
    /// Of `invalid_fields`: each field that is wrong.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    fields: &'a [FieldProblem],
    /// Of `not_open`: when the sale opens, null when that is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = "date-time")]
    opens_at: Option<Option<Rfc3339>>,
    /// Of `limit_reached`: the user's claims.
    #[serde(skip_serializing_if = "Option::is_none")]
    claims: Option<&'a Vec<crate::answer::WonBody>>,
}

/// Whether the same request may be sent again.
#[derive(Debug, Serialize, ToSchema)]
pub struct RetryBody {
    /// Whether it may.
    may: bool,
    /// Whether with the same `Idempotency-Key`.
    same_key: bool,
    /// After how long, as in `Retry-After`; null when that is not known or does not apply.
    after_seconds: Option<u64>,
}

/// The problem behind an answer that the framework gave.
#[must_use]
pub fn of_status(status: StatusCode) -> Problem {
    match status.as_u16() {
        404 => Problem::new(Code::NotFound),
        405 => Problem::new(Code::MethodNotAllowed),
        408 => Problem::new(Code::BodyTooSlow).close(),
        413 => Problem::new(Code::BodyTooLarge).close(),
        400..500 => Problem::new(Code::MalformedRequest),
        _ => Problem::new(Code::Internal),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use actix_web::body::to_bytes;
    use serde_json::Value;

    async fn json(problem: &Problem) -> (HttpResponse, Value) {
        let response = problem.respond("r-1");
        let (head, body) = response.into_parts();
        let bytes = to_bytes(body).await.unwrap_or_default();
        (
            head.set_body(actix_web::body::BoxBody::new(())),
            serde_json::from_slice(&bytes).unwrap(),
        )
    }

    #[actix_web::test]
    async fn every_code_is_a_complete_problem() {
        for code in Code::ALL {
            let (head, body) = json(&Problem::new(*code)).await;
            assert_eq!(head.status().as_u16(), code.status());
            let header = |name| {
                head.headers()
                    .get(name)
                    .map(|v| v.to_str().unwrap().to_owned())
            };
            assert_eq!(
                header("content-type").as_deref(),
                Some("application/problem+json")
            );
            assert_eq!(header("cache-control").as_deref(), Some("no-store"));
            assert_eq!(header("x-request-id").as_deref(), Some("r-1"));
            assert_eq!(body["code"], code.as_str());
            assert_eq!(body["status"], code.status());
            assert_eq!(body["request_id"], "r-1");
            assert_eq!(body["retry"]["may"], code.retry().may());
            let seconds = header("retry-after").map(|s| s.parse::<u64>().unwrap());
            assert_eq!(body["retry"]["after_seconds"].as_u64(), seconds);
            if code.status() == 503 && code.retry().may() {
                assert!(seconds.is_some_and(|s| s >= 1), "{code}");
            }
            assert_eq!(
                header("www-authenticate").is_some(),
                code.status() == 401,
                "{code}"
            );
        }
    }

    #[actix_web::test]
    async fn the_opening_is_told_and_null_when_it_is_not_known() {
        let at = TimeMs(now_ms().0 + 90_500);
        let problem = Problem::new(Code::NotOpen).extra(Extra::OpensAt(Some(at)));
        let (_, body) = json(&problem).await;
        assert!(body["opens_at"].as_str().unwrap().ends_with('Z'), "{body}");
        let after = body["retry"]["after_seconds"].as_u64().unwrap();
        assert!((90..=91).contains(&after), "{after}");
        let problem = Problem::new(Code::NotOpen).extra(Extra::OpensAt(None));
        let (_, body) = json(&problem).await;
        assert_eq!(body["opens_at"], Value::Null);
        assert!(body.as_object().unwrap().contains_key("opens_at"));
        assert_eq!(body["retry"]["after_seconds"], Value::Null);
    }

    #[actix_web::test]
    async fn a_cause_is_never_sent() {
        let problem = Problem::new(Code::Internal).cause("postgres://u:hunter2@db");
        let (_, body) = json(&problem).await;
        assert!(!body.to_string().contains("hunter2"));
    }

    #[test]
    fn waits_are_whole_seconds_and_differ() {
        let waits: std::collections::BTreeSet<u64> = (0..200).map(|_| jittered(2)).collect();
        assert_eq!(waits, [2, 3].into());
    }
}
