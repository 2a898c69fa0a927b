//! `/v1/sales/{sale}/claims`: the click.

use super::sale_id;
use crate::answer::{self, StatusBody, WonBody};
use crate::auth::{self, TokenError};
use crate::body;
use crate::error::{Body as ProblemBody, Extra, FieldProblem, Problem};
use crate::fields::Fields;
use crate::metrics::Answered;
use crate::state::State;
use actix_web::http::header;
use actix_web::{HttpRequest, HttpResponse, get, post, web};
use dropgate_domain::code::Code;
use dropgate_domain::{AttemptId, ClaimId, IdempotencyKey, Phase, SaleId, UserId};
use dropgate_engine::{Answer, SaleHandle, Unavailable};
use serde::{Deserialize, Serialize};
use std::time::Instant;
use utoipa::ToSchema;

/// The name of the header that makes a repeat the same claim.
const IDEMPOTENCY_KEY: &str = "Idempotency-Key";

/// The body of a claim: an empty object. It may be left out.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ClaimRequest {}

/// Claims one unit.
///
/// A repeat with the same `Idempotency-Key` is the same claim and never takes a second unit,
/// however often and at once it is sent. With a limit of one unit a user, any repeat is.
#[utoipa::path(
    tag = "claims",
    params(
        ("sale" = String, Path, description = "The sale's id"),
        ("Idempotency-Key" = Option<String>, Header, description =
            "At most 64 printable ASCII characters; without it, the claim is the user's first"),
    ),
    request_body(content = Option<ClaimRequest>, description = "`{}`, or nothing"),
    responses(
        (status = 201, body = WonBody, description = "Won: the unit is the user's, for good"),
        (status = 200, body = WonBody, description = "The same claim again"),
        (status = 202, body = StatusBody, description = "Not decided yet: ask `Location`", headers(
            ("Location" = String, description = "Where the claim's answer will be"),
            ("Retry-After" = u64, description = "When to ask, in seconds"),
        )),
        (status = 400, body = ProblemBody, content_type = "application/problem+json", description = "`malformed_body`"),
        (status = 401, body = ProblemBody, content_type = "application/problem+json", description = "`missing_token`, `invalid_token`, `expired_token`"),
        (status = 403, body = ProblemBody, content_type = "application/problem+json", description = "`not_open`, `closed`"),
        (status = 404, body = ProblemBody, content_type = "application/problem+json", description = "`unknown_sale`"),
        (status = 409, body = ProblemBody, content_type = "application/problem+json", description = "`sold_out`, `limit_reached`"),
        (status = 413, body = ProblemBody, content_type = "application/problem+json", description = "`body_too_large`"),
        (status = 422, body = ProblemBody, content_type = "application/problem+json", description = "`invalid_fields`"),
        (status = 503, body = ProblemBody, content_type = "application/problem+json", description = "`halted`, `busy`, `void`, `not_ready`, `unavailable`, `overloaded`: the same key, after `Retry-After`"),
    ),
    security(("user_token" = [])),
)]
#[post("/v1/sales/{sale}/claims")]
pub async fn post_claim(
    req: HttpRequest,
    path: web::Path<String>,
    payload: web::Payload,
    state: web::Data<State>,
) -> Result<HttpResponse, Problem> {
    let began = Instant::now();
    let (answered, result) = match answer_claim(&req, &path, payload, &state).await {
        Ok((answered, response)) => (answered, Ok(response)),
        Err(Refusal::Latched) => (Answered::SoldOutLatched, Err(Problem::new(Code::SoldOut))),
        Err(Refusal::Problem(problem)) => (Answered::Problem, Err(*problem)),
    };
    state.metrics.claim(answered, began.elapsed());
    result
}

/// Why a claim has no unit to tell of.
enum Refusal {
    /// Sold out, from memory.
    Latched,
    Problem(Box<Problem>),
}

impl From<Problem> for Refusal {
    fn from(problem: Problem) -> Self {
        Self::Problem(Box::new(problem))
    }
}

async fn answer_claim(
    req: &HttpRequest,
    path: &str,
    payload: web::Payload,
    state: &State,
) -> Result<(Answered, HttpResponse), Refusal> {
    // First of all, and whatever the answer: the body is read, so that the connection lives on.
    let body = body::read(payload, body::CLAIM_BYTES_MAX).await?;
    let sale = sale_id(path)?;
    let handle = state
        .engine
        .sale(&sale)
        .ok_or(Problem::new(Code::UnknownSale))?;
    Fields::of(body::object(&body)?).finish()?;
    let key = idempotency_key(req)?;
    let user = claimant(req, state, &sale, &handle)?;
    let attempt = AttemptId(rand::random());
    let answer = match handle.claim(user, key, attempt).await {
        Answer::Unavailable(Unavailable::Starting) if never_opened(&handle) => {
            let opens_at = handle.sale().pin().definition.opens_at;
            let problem = Problem::new(Code::NotOpen).extra(Extra::OpensAt(opens_at));
            return Err(problem.into());
        }
        answer => answer,
    };
    let answered = Answered::of(&answer);
    let response = answer::claimed(&sale, answer, |win| state.persisted.has(&sale, win))?;
    Ok((answered, response))
}

/// Whether the operator has not opened the sale yet.
fn never_opened(handle: &SaleHandle) -> bool {
    handle.sale().phase() == Phase::NotOpened
}

/// The user whose claim it is. While the sale is known to be sold out, nobody's token is
/// checked but that of somebody who has a claim: all others get the same answer anyway.
fn claimant(
    req: &HttpRequest,
    state: &State,
    sale: &SaleId,
    handle: &SaleHandle,
) -> Result<UserId, Refusal> {
    let token = token(req)?;
    let latched = handle.latched_sold_out();
    let named = || auth::unverified_subject(token);
    let names_an_owner = || named().is_some_and(|user| handle.owns(&user));
    if latched && !names_an_owner() {
        return Err(Refusal::Latched);
    }
    match state.verifier.verify(token, sale) {
        Ok(user) => Ok(user),
        Err(_) if latched => Err(Refusal::Latched),
        Err(error) => Err(token_problem(error).into()),
    }
}

/// What became of a claim.
#[utoipa::path(
    tag = "claims",
    params(
        ("sale" = String, Path, description = "The sale's id"),
        ("claim" = String, Path, description = "The claim's id, as given by the claim"),
    ),
    responses(
        (status = 200, body = ClaimStatus, description = "Decided: `won`, `void` or `sold_out`"),
        (status = 202, body = StatusBody, description = "Not decided yet: ask again", headers(
            ("Retry-After" = u64, description = "When to ask, in seconds"),
        )),
        (status = 401, body = ProblemBody, content_type = "application/problem+json", description = "`missing_token`, `invalid_token`, `expired_token`"),
        (status = 404, body = ProblemBody, content_type = "application/problem+json", description = "`unknown_sale`; `unknown_claim`, also of another user's"),
        (status = 422, body = ProblemBody, content_type = "application/problem+json", description = "`invalid_fields`"),
        (status = 503, body = ProblemBody, content_type = "application/problem+json", description = "`halted`, `not_ready`, `unavailable`"),
    ),
    security(("user_token" = [])),
)]
#[get("/v1/sales/{sale}/claims/{claim}")]
pub async fn get_claim(
    req: HttpRequest,
    path: web::Path<(String, String)>,
    state: web::Data<State>,
) -> Result<HttpResponse, Problem> {
    let (sale, claim) = path.into_inner();
    let sale = sale_id(&sale)?;
    let claim: ClaimId = claim
        .parse()
        .map_err(|invalid: dropgate_domain::InvalidId| {
            Problem::field("path.claim", invalid.expected)
        })?;
    let handle = state
        .engine
        .sale(&sale)
        .ok_or(Problem::new(Code::UnknownSale))?;
    let user = state
        .verifier
        .verify(token(&req)?, &sale)
        .map_err(token_problem)?;
    let found = handle.look_up(&claim, &user);
    answer::looked_up(&sale, &claim, found, |win| state.persisted.has(&sale, win))
}

/// One of the two bodies of a decided claim.
#[derive(Serialize, ToSchema)]
#[expect(dead_code, reason = "only its schema is used")]
#[serde(untagged)]
enum ClaimStatus {
    Won(WonBody),
    Other(StatusBody),
}

fn token(req: &HttpRequest) -> Result<&str, Problem> {
    let header = req
        .headers()
        .get(header::AUTHORIZATION)
        .and_then(|value| value.to_str().ok());
    auth::bearer(header).ok_or(Problem::new(Code::MissingToken))
}

fn token_problem(error: TokenError) -> Problem {
    match error {
        TokenError::Missing => Problem::new(Code::MissingToken),
        TokenError::Expired => Problem::new(Code::ExpiredToken),
        TokenError::Invalid(what) => Problem::new(Code::InvalidToken).detail(what),
    }
}

fn idempotency_key(req: &HttpRequest) -> Result<IdempotencyKey, Problem> {
    let wrong = |expected: &str| {
        let path = format!("header.{IDEMPOTENCY_KEY}");
        Problem::fields(vec![FieldProblem::new(path, expected)])
    };
    let mut given = req.headers().get_all(IDEMPOTENCY_KEY);
    let Some(value) = given.next() else {
        return Ok(IdempotencyKey::none());
    };
    if given.next().is_some() {
        return Err(wrong("one header"));
    }
    let text = value
        .to_str()
        .map_err(|_| wrong("at most 64 printable ASCII characters"))?;
    IdempotencyKey::new(text).map_err(|invalid| wrong(invalid.expected))
}
