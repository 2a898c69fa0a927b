//! `/v1/sales/{sale}`: what everybody may know.

use super::sale_id;
use crate::error::{Body as ProblemBody, Problem};
use crate::state::State;
use crate::time::{Rfc3339, now_ms};
use actix_web::http::header;
use actix_web::{HttpResponse, get, web};
use dropgate_domain::TimeMs;
use dropgate_domain::code::Code;
use dropgate_engine::{State as SaleState, View};
use serde::Serialize;
use utoipa::ToSchema;

/// The public state of a sale: the same for everybody.
#[derive(Debug, Serialize, ToSchema)]
pub struct SaleBody {
    /// The sale's id.
    id: String,
    /// `scheduled`, `open`, `sold_out`, `closed` or `halted`.
    state: &'static str,
    /// From when claims are taken; null: from the opening by the operator.
    #[schema(value_type = Option<String>, format = "date-time")]
    opens_at: Option<Rfc3339>,
    /// From when claims are no longer taken; null: until the operator closes it.
    #[schema(value_type = Option<String>, format = "date-time")]
    closes_at: Option<Rfc3339>,
    /// Now, by this server's clock.
    #[schema(value_type = String, format = "date-time")]
    server_time: Rfc3339,
    /// Units for sale.
    stock: u64,
    /// Units that nobody has: exact up to 100, above that rounded down to two digits; null when
    /// it is not known.
    remaining: Option<u64>,
    /// `generation.seq` of what is told here; null before the opening.
    version: Option<String>,
    /// When this was read.
    #[schema(value_type = String, format = "date-time")]
    as_of: Rfc3339,
    /// How old it may be besides, in milliseconds; null when that is not known.
    staleness_ms_max: Option<u64>,
}

impl SaleBody {
    /// What is told of a sale at `now`.
    #[must_use]
    pub fn of(id: String, view: &View, now: TimeMs) -> Self {
        Self {
            id,
            state: state_text(view.state),
            opens_at: view.definition.opens_at.map(Rfc3339),
            closes_at: view.definition.closes_at.map(Rfc3339),
            server_time: Rfc3339(now),
            stock: view.definition.stock,
            remaining: view.counts.map(|counts| shown_remaining(counts.free)),
            version: view.position.map(|p| format!("{}.{}", p.generation, p.seq)),
            as_of: Rfc3339(now),
            staleness_ms_max: view
                .staleness_max
                .map(|age| u64::try_from(age.as_millis()).unwrap_or(u64::MAX)),
        }
    }
}

/// A sale's state, as clients read it.
#[must_use]
pub fn state_text(state: SaleState) -> &'static str {
    match state {
        SaleState::Scheduled => "scheduled",
        SaleState::Open => "open",
        SaleState::SoldOut => "sold_out",
        SaleState::Closed => "closed",
        SaleState::Halted => "halted",
    }
}

/// What is told of the units left: exact up to 100, above that rounded down to two significant
/// digits, so that the answer changes rarely and caches well.
#[must_use]
pub fn shown_remaining(free: u64) -> u64 {
    if free <= 100 {
        return free;
    }
    let unit = 10u64.pow(free.ilog10() - 1);
    free / unit * unit
}

/// The public state of a sale.
#[utoipa::path(
    tag = "sales",
    params(("sale" = String, Path, description = "The sale's id")),
    responses(
        (status = 200, body = SaleBody, description = "The sale; the same for everybody, cacheable for a second"),
        (status = 404, body = ProblemBody, content_type = "application/problem+json", description = "`unknown_sale`"),
        (status = 422, body = ProblemBody, content_type = "application/problem+json", description = "`invalid_fields`"),
    ),
)]
#[get("/v1/sales/{sale}")]
pub async fn get_sale(
    path: web::Path<String>,
    state: web::Data<State>,
) -> Result<HttpResponse, Problem> {
    let id = sale_id(&path)?;
    let handle = state
        .engine
        .sale(&id)
        .ok_or(Problem::new(Code::UnknownSale))?;
    let now = now_ms();
    let body = SaleBody::of(id.to_string(), &handle.view(now), now);
    Ok(HttpResponse::Ok()
        .insert_header((header::CACHE_CONTROL, "public, max-age=1"))
        .json(body))
}

#[cfg(test)]
mod tests {
    use super::*;
    use dropgate_domain::{Counts, Definition, Digest, Generation, Position, Seq};

    #[test]
    fn remaining_is_exact_to_a_hundred_and_floored_to_two_digits_above() {
        let cases = [
            (0, 0),
            (1, 1),
            (99, 99),
            (100, 100),
            (101, 100),
            (109, 100),
            (110, 110),
            (999, 990),
            (1000, 1000),
            (1099, 1000),
            (12_345, 12_000),
            (9_999_999, 9_900_000),
            (10_000_000, 10_000_000),
            (u64::MAX, 18_000_000_000_000_000_000),
        ];
        for (free, shown) in cases {
            assert_eq!(shown_remaining(free), shown, "{free}");
        }
    }

    #[test]
    fn what_is_not_known_is_null_and_never_zero() {
        let mut view = View {
            state: SaleState::Scheduled,
            definition: Definition::of(1500),
            position: None,
            counts: None,
            closed_at: None,
            staleness_max: None,
        };
        let json = |view: &View| {
            serde_json::to_value(SaleBody::of("s".into(), view, TimeMs(1000))).unwrap()
        };
        let body = json(&view);
        for name in [
            "remaining",
            "version",
            "opens_at",
            "closes_at",
            "staleness_ms_max",
        ] {
            assert!(
                body[name].is_null() && body.as_object().unwrap().contains_key(name),
                "{name}"
            );
        }
        assert_eq!(body["stock"], 1500);
        view.counts = Some(Counts {
            stock: 1500,
            sold: 1500,
            held: 0,
            free: 0,
        });
        view.position = Some(Position {
            generation: Generation(2),
            seq: Seq(1500),
            chain: Digest([0; 20]),
        });
        let body = json(&view);
        assert_eq!(body["remaining"], 0);
        assert_eq!(body["version"], "2.1500");
    }
}
