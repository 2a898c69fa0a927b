//! The edge: gives every request an id, writes problems, logs faults once.

use crate::error::{self, Problem, REQUEST_ID};
use crate::metrics::Metrics;
use actix_web::body::{EitherBody, MessageBody};
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::http::header::{HeaderMap, HeaderValue};
use actix_web::middleware::Next;
use actix_web::web::Data;
use actix_web::{HttpRequest, HttpResponse};

/// The longest id that is taken over from a request, in bytes.
const REQUEST_ID_BYTES_MAX: usize = 64;

/// The id of a request: the caller's if it sent a usable one, else drawn at random.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestId(String);

impl RequestId {
    /// The id of a request with these headers.
    #[must_use]
    pub fn of(headers: &HeaderMap) -> Self {
        let given = headers
            .get(REQUEST_ID)
            .and_then(|value| value.to_str().ok());
        let usable = |id: &&str| {
            (1..=REQUEST_ID_BYTES_MAX).contains(&id.len())
                && id
                    .bytes()
                    .all(|b| b.is_ascii_alphanumeric() || b"-_.:".contains(&b))
        };
        match given.filter(usable) {
            Some(id) => Self(id.to_owned()),
            None => Self(format!("{:016x}", rand::random::<u64>())),
        }
    }

    /// The id as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Runs the handler and makes what it answers presentable.
///
/// # Errors
/// Those of other middleware: a handler's error is a response by now.
pub async fn edge<B: MessageBody + 'static>(
    req: ServiceRequest,
    next: Next<B>,
) -> Result<ServiceResponse<EitherBody<B>>, actix_web::Error> {
    // The request itself must not be held here: the router needs it for itself.
    let id = RequestId::of(req.headers());
    let mut response = next.call(req).await?;
    if let Some(error) = response.response().error() {
        let answer = match error.as_error::<Problem>() {
            Some(problem) => present(problem, &id, response.request()),
            None => {
                let problem = error::of_status(response.status()).cause(error);
                present(&problem, &id, response.request())
            }
        };
        return Ok(response.into_response(answer).map_into_right_body());
    }
    if let Ok(value) = HeaderValue::from_str(id.as_str()) {
        response.headers_mut().insert(REQUEST_ID, value);
    }
    Ok(response.map_into_left_body())
}

/// Counts the problem; logs it if the service is at fault and not its caller; writes it.
fn present(problem: &Problem, id: &RequestId, req: &HttpRequest) -> HttpResponse {
    if let Some(metrics) = req.app_data::<Data<Metrics>>() {
        metrics.problem(problem.code);
    }
    if problem.code.status() < 500 {
        return problem.respond(id.as_str());
    }
    let route = req.match_pattern();
    let (code, cause) = (problem.code.as_str(), problem.cause.as_deref());
    if problem.code.status() == 500 {
        tracing::error!(
            code,
            cause,
            request_id = id.as_str(),
            route,
            "request failed"
        );
    } else {
        tracing::debug!(
            code,
            cause,
            request_id = id.as_str(),
            route,
            "request refused"
        );
    }
    problem.respond(id.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;
    use actix_web::{App, middleware::from_fn, test, web};
    use dropgate_domain::code::Code;
    use serde_json::Value;

    async fn call(path: &str, id: Option<&str>) -> (HeaderMap, Value) {
        async fn fails() -> Result<HttpResponse, Problem> {
            Err(Problem::new(Code::Busy))
        }
        let app = App::new()
            .wrap(from_fn(edge))
            .route("/fails", web::get().to(fails))
            .route(
                "/number/{n}",
                web::get().to(async |n: web::Path<u8>| n.to_string()),
            )
            .route("/ok", web::get().to(async || "fine"))
            .default_service(web::to(async || {
                Err::<&str, _>(Problem::new(Code::NotFound))
            }));
        let app = test::init_service(app).await;
        let mut request = test::TestRequest::get().uri(path);
        if let Some(id) = id {
            request = request.insert_header((REQUEST_ID, id));
        }
        let response = test::call_service(&app, request.to_request()).await;
        let headers = response.headers().clone();
        let body = test::read_body(response).await;
        (
            headers,
            serde_json::from_slice(&body).unwrap_or(Value::Null),
        )
    }

    #[actix_web::test]
    async fn an_error_becomes_a_problem_with_the_requests_id() {
        let (headers, body) = call("/fails", Some("abc-1")).await;
        assert_eq!(body["code"], "busy");
        assert_eq!(body["request_id"], "abc-1");
        assert_eq!(headers.get(REQUEST_ID).unwrap(), "abc-1");
        let (_, body) = call("/nowhere", None).await;
        assert_eq!(body["code"], "not_found");
        assert_eq!(body["request_id"].as_str().unwrap().len(), 16);
    }

    #[actix_web::test]
    async fn errors_of_the_framework_become_problems_too() {
        let (_, body) = call("/number/x", None).await;
        assert_eq!(body["code"], "not_found", "{body}");
    }

    #[actix_web::test]
    async fn answers_carry_the_id_and_unusable_ids_are_replaced() {
        let (headers, _) = call("/ok", Some("abc-1")).await;
        assert_eq!(headers.get(REQUEST_ID).unwrap(), "abc-1");
        for bad in ["", "a b", "<script>", &"x".repeat(65)] {
            let (headers, _) = call("/ok", Some(bad)).await;
            assert_eq!(headers.get(REQUEST_ID).unwrap().len(), 16, "{bad}");
        }
    }
}
