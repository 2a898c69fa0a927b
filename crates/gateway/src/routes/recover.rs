//! `POST /admin/v1/sales/{sale}/recover`: a sale is recovered from its log, by hand.

use super::admin::{BY, admin_problem, json};
use super::sale_id;
use crate::body;
use crate::error::{Body as ProblemBody, Problem};
use crate::fields::Fields;
use crate::state::State;
use crate::time::{Rfc3339, now_ms};
use actix_web::{HttpResponse, post, web};
use dropgate_domain::TimeMs;
use dropgate_domain::code::Code;
use dropgate_engine::{ByHand, Condition, Mended, Preview, Standing, Stored, Survey, Verdict};
use serde::{Deserialize, Serialize};
use std::time::Instant;
use utoipa::ToSchema;

/// How a sale is to be recovered.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[expect(
    dead_code,
    reason = "only its schema is used: the fields are read one by one, to tell every problem"
)]
pub struct RecoverSale {
    /// Also a sale that is live: it takes this release's scripts. Default false.
    force: Option<bool>,
    /// Only tells what would be done, and changes nothing. Default false.
    dry_run: Option<bool>,
}

/// What a recovery came to, or would.
#[derive(Debug, Serialize, ToSchema)]
#[serde(untagged)]
pub enum RecoverAnswer {
    /// What it came to.
    Done(RecoverOutcome),
    /// What it would.
    Preview(Box<RecoverPreview>),
}

/// What a recovery came to.
#[derive(Debug, Serialize, ToSchema)]
pub struct RecoverOutcome {
    /// `recovered`: this generation was begun, and claims are taken in it; `overtaken`: somebody
    /// else began this one; `live`: nothing was done.
    outcome: &'static str,
    /// The generation.
    generation: u32,
    /// Wins that the sale has.
    wins: u64,
    /// How long it took, in milliseconds.
    took_ms: u64,
}

impl RecoverOutcome {
    /// As it is told.
    #[must_use]
    pub fn of(mended: Mended, wins: u64, took: std::time::Duration) -> Self {
        let (outcome, generation) = match mended {
            Mended::Live(generation) => ("live", generation),
            Mended::Recovered(generation) => ("recovered", generation),
            Mended::Overtaken(generation) => ("overtaken", generation),
        };
        Self {
            outcome,
            generation: generation.0,
            wins,
            took_ms: u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
        }
    }
}

/// What a recovery would do, found without changing anything.
#[derive(Debug, Serialize, ToSchema)]
pub struct RecoverPreview {
    /// `dry_run`.
    outcome: &'static str,
    /// The generation that would end.
    generation: u32,
    /// `recover`, `nothing` or `refuse`.
    would: &'static str,
    /// Why.
    why: String,
    /// Wins that would be written.
    wins: u64,
    /// How the sale stands.
    standing: StandingSeen,
    /// What Redis has of it; null when it does not answer.
    redis: Option<RedisSeen>,
    /// Why Redis says nothing; null when it answers.
    redis_trouble: Option<String>,
}

impl RecoverPreview {
    /// As it is told.
    #[must_use]
    pub fn of(preview: &Preview) -> Self {
        let standing = &preview.standing;
        let (would, why) = match &preview.verdict {
            Verdict::Recover { reason } => ("recover", reason.clone()),
            Verdict::Live => ("nothing", "the sale is live".to_owned()),
            Verdict::Refused(error) => ("refuse", error.to_string()),
        };
        Self {
            outcome: "dry_run",
            generation: standing.generation.0,
            would,
            why,
            wins: standing.wins,
            standing: StandingSeen::of(standing),
            redis: preview.redis.as_ref().ok().map(RedisSeen::of),
            redis_trouble: preview.redis.as_ref().err().cloned(),
        }
    }
}

/// How a sale stands.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct StandingSeen {
    /// `live`, `starting`, `unreachable`, `halted`, `ended`, `closed`, `not_opened`,
    /// `unfollowable` or `unknown`.
    pub condition: &'static str,
    /// Why it does not sell; null when there is nothing to say.
    pub why: Option<String>,
    /// Who halted it; null when nobody did.
    pub halted_by: Option<String>,
    /// When, by their clock.
    #[schema(value_type = Option<String>, format = "date-time")]
    pub halted_at: Option<Rfc3339>,
    /// When the generation was begun, by the clock of who began it.
    #[schema(value_type = Option<String>, format = "date-time")]
    pub begun_at: Option<Rfc3339>,
}

impl StandingSeen {
    /// As it is told.
    #[must_use]
    pub fn of(standing: &Standing) -> Self {
        let halted = match &standing.condition {
            Condition::Halted(halted) => Some(halted),
            _ => None,
        };
        Self {
            condition: standing.condition.word(),
            why: standing.condition.why(),
            halted_by: halted.map(|halted| halted.by.clone()),
            halted_at: halted.and_then(|halted| halted.at).map(Rfc3339),
            begun_at: standing.starts.last().copied().flatten().map(Rfc3339),
        }
    }
}

/// What Redis has of the sale's current generation.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct RedisSeen {
    /// The tag that names the generation in Redis; null before the opening.
    pub expected: Option<String>,
    /// The tag that is current there; null when none is.
    pub current: Option<String>,
    /// `there`, `missing` (or taken out of use), or `unreadable`.
    pub state: &'static str,
    /// The last event's number there; null without a state.
    pub seq: Option<u64>,
    /// Whether the generation's scripts are loaded; null before the opening.
    pub scripts_loaded: Option<bool>,
    /// Events in the outbox that are not in the log.
    pub outbox_events: u64,
    /// Whether there are more than were counted.
    pub outbox_more: bool,
    /// The age of the oldest of them by this machine's clock, in milliseconds; null when there is
    /// none.
    pub outbox_age_ms: Option<u64>,
    /// Why this is not what the log says; null when it is.
    pub loss: Option<String>,
    /// Why no sale should run on this Redis, each with what to do.
    pub unfit: Vec<String>,
}

impl RedisSeen {
    /// As it is told.
    #[must_use]
    pub fn of(survey: &Survey) -> Self {
        let age = |at: TimeMs| now_ms().0.saturating_sub(at.0);
        Self {
            expected: Some(survey.expected.clone()).filter(|tag| !tag.is_empty()),
            current: survey.current.clone(),
            state: match &survey.state {
                Stored::There(_) => "there",
                Stored::Missing => "missing",
                Stored::Unreadable(_) => "unreadable",
            },
            seq: survey.state.there().map(|state| state.seq.0),
            scripts_loaded: survey.scripts,
            outbox_events: survey.unlogged.events,
            outbox_more: survey.unlogged.more,
            outbox_age_ms: survey.unlogged.oldest.map(age),
            loss: survey.loss.clone(),
            unfit: survey.unfit.clone(),
        }
    }
}

/// Recovers a sale from its log: a new generation of its state is built in Redis and made
/// current. A sale that is live is left alone, unless it is forced.
///
/// The answer comes when claims are taken again; a large sale takes minutes. A call that breaks
/// off at any moment does no harm, and may be made again.
#[utoipa::path(
    tag = "admin",
    params(("sale" = String, Path, description = "The sale's id")),
    request_body = RecoverSale,
    responses(
        (status = 200, body = RecoverAnswer, description = "`recovered`, `overtaken` or `live`; with `dry_run` what would be done"),
        (status = 400, body = ProblemBody, content_type = "application/problem+json", description = "`malformed_body`"),
        (status = 401, body = ProblemBody, content_type = "application/problem+json", description = "`admin_key_required`"),
        (status = 404, body = ProblemBody, content_type = "application/problem+json", description = "`unknown_sale`"),
        (status = 409, body = ProblemBody, content_type = "application/problem+json", description = "`sale_closed`, `sale_not_open`, `sale_unreadable`"),
        (status = 422, body = ProblemBody, content_type = "application/problem+json", description = "`invalid_fields`: every one"),
        (status = 503, body = ProblemBody, content_type = "application/problem+json", description = "`operator_credentials_missing`, `halted`, `unavailable`: the sale stays closed, and the call may be made again"),
    ),
    security(("admin_key" = [])),
)]
#[post("/sales/{sale}/recover")]
pub async fn recover_sale(
    path: web::Path<String>,
    payload: web::Payload,
    state: web::Data<State>,
) -> Result<HttpResponse, Problem> {
    let body = body::read(payload, body::ADMIN_BYTES_MAX).await?;
    let sale = sale_id(&path)?;
    let mut fields = Fields::of(body::object(&body)?);
    let (force, dry_run) = (fields.flag("force"), fields.flag("dry_run"));
    fields.finish()?;
    let engine = &state.engine;
    if dry_run {
        let preview = engine.preview_by_hand(&sale, force).await;
        let preview = RecoverPreview::of(&preview.map_err(admin_problem)?);
        return Ok(json(RecoverAnswer::Preview(Box::new(preview))));
    }
    let handle = engine.sale(&sale).ok_or(Problem::new(Code::UnknownSale))?;
    let begun = Instant::now();
    let by = BY.to_owned();
    let order = ByHand { sale, by, force };
    let mended = engine.recover_by_hand(&order, &|_| {}).await;
    let mended = mended.map_err(admin_problem)?;
    let wins = handle.standing().wins;
    let outcome = RecoverOutcome::of(mended, wins, begun.elapsed());
    Ok(json(RecoverAnswer::Done(outcome)))
}
