//! `/admin/v1`: what operators do. On a port of its own, with a key.

use super::sale_id;
use super::sales::state_text;
use crate::answer::unavailable;
use crate::body;
use crate::error::{Body as ProblemBody, Problem};
use crate::fields::Fields;
use crate::state::State;
use crate::time::{Rfc3339, now_ms};
use actix_web::http::header;
use actix_web::{HttpResponse, get, post, web};
use dropgate_domain::code::Code;
use dropgate_domain::{Definition, SaleId};
use dropgate_engine::{AdminError, Closed, Created, Opened, SaleHandle, Unavailable};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Who opened or recovered a sale, in its log, when it was done by this API.
pub(super) const BY: &str = "admin api";

/// A sale to be created.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[expect(
    dead_code,
    reason = "only its schema is used: the fields are read one by one, to tell every problem"
)]
pub struct CreateSale {
    /// 1 to 63 of a-z, 0-9 and `-`, not beginning with `-`.
    id: String,
    /// Units for sale, 0 to 10000000.
    stock: u64,
    /// Units that one user may have, 1 to 16. Default 1.
    per_user_limit: Option<u32>,
    /// From when claims are taken; null: from the opening on.
    #[schema(format = "date-time")]
    opens_at: Option<String>,
    /// From when claims are no longer taken; null: until it is closed.
    #[schema(format = "date-time")]
    closes_at: Option<String>,
    /// 0: wins are final at once.
    hold_seconds: Option<u32>,
}

/// A sale, as operators see it.
#[derive(Debug, Serialize, ToSchema)]
pub struct AdminSale {
    /// The sale's id.
    id: String,
    /// `scheduled`, `open`, `sold_out`, `closed` or `halted`.
    state: &'static str,
    /// Why it is not served by this gateway; null when it is.
    trouble: Option<String>,
    /// Units for sale.
    stock: u64,
    /// Units won for good; null when it is not known.
    sold: Option<u64>,
    /// Units that wait for a confirmation; null when it is not known.
    held: Option<u64>,
    /// Units that nobody has; null when it is not known.
    free: Option<u64>,
    /// Units that one user may have.
    per_user_limit: u32,
    /// How long a win waits for its confirmation.
    hold_seconds: u32,
    /// From when claims are taken.
    #[schema(value_type = Option<String>, format = "date-time")]
    opens_at: Option<Rfc3339>,
    /// From when claims are no longer taken.
    #[schema(value_type = Option<String>, format = "date-time")]
    closes_at: Option<Rfc3339>,
    /// When it was closed, by the sale's time.
    #[schema(value_type = Option<String>, format = "date-time")]
    closed_at: Option<Rfc3339>,
    /// `generation.seq` of what is told here; null before the opening.
    version: Option<String>,
    /// The log that holds it.
    log_id: String,
    /// The partition of the log.
    partition: u32,
    /// The opening is at this offset or later.
    from_offset: u64,
    /// How old this may be, in milliseconds; null when that is not known.
    staleness_ms_max: Option<u64>,
}

impl AdminSale {
    fn of(handle: &SaleHandle) -> Self {
        let view = handle.view(now_ms());
        let pin = handle.sale().pin();
        let definition = &pin.definition;
        Self {
            id: pin.sale.to_string(),
            state: state_text(view.state),
            trouble: handle.sale().unfollowable().map(|why| why.to_string()),
            stock: definition.stock,
            sold: view.counts.map(|counts| counts.sold),
            held: view.counts.map(|counts| counts.held),
            free: view.counts.map(|counts| counts.free),
            per_user_limit: definition.per_user_limit,
            hold_seconds: definition.hold_seconds,
            opens_at: definition.opens_at.map(Rfc3339),
            closes_at: definition.closes_at.map(Rfc3339),
            closed_at: view.closed_at.map(Rfc3339),
            version: view.position.map(|p| format!("{}.{}", p.generation, p.seq)),
            log_id: pin.log_id.to_string(),
            partition: pin.partition.0,
            from_offset: pin.from_offset.0,
            staleness_ms_max: view
                .staleness_max
                .map(|age| u64::try_from(age.as_millis()).unwrap_or(u64::MAX)),
        }
    }
}

/// All sales.
#[derive(Debug, Serialize, ToSchema)]
pub struct AdminSales {
    /// By id.
    sales: Vec<AdminSale>,
}

/// What a command came to.
#[derive(Debug, Serialize, ToSchema)]
pub struct Outcome {
    /// `opened`, `closed`, or `already`.
    outcome: &'static str,
}

pub(super) fn json(body: impl Serialize) -> HttpResponse {
    HttpResponse::Ok()
        .insert_header((header::CACHE_CONTROL, "no-store"))
        .json(body)
}

/// Creates a sale. The same again is answered 200.
#[utoipa::path(
    tag = "admin",
    request_body = CreateSale,
    responses(
        (status = 201, body = AdminSale, description = "Created; it is opened by another call"),
        (status = 200, body = AdminSale, description = "It was there, with the same definition"),
        (status = 400, body = ProblemBody, content_type = "application/problem+json", description = "`malformed_body`"),
        (status = 401, body = ProblemBody, content_type = "application/problem+json", description = "`admin_key_required`"),
        (status = 409, body = ProblemBody, content_type = "application/problem+json", description = "`sale_exists`"),
        (status = 422, body = ProblemBody, content_type = "application/problem+json", description = "`invalid_fields`: every one"),
        (status = 503, body = ProblemBody, content_type = "application/problem+json", description = "`unavailable`"),
    ),
    security(("admin_key" = [])),
)]
#[post("/sales")]
pub async fn create_sale(
    payload: web::Payload,
    state: web::Data<State>,
) -> Result<HttpResponse, Problem> {
    let body = body::read(payload, body::ADMIN_BYTES_MAX).await?;
    let (id, definition) = sale_to_create(Fields::of(body::object(&body)?))?;
    match state
        .engine
        .create(id, definition)
        .await
        .map_err(admin_problem)?
    {
        Created::Created(handle) => Ok(HttpResponse::Created()
            .insert_header((header::CACHE_CONTROL, "no-store"))
            .insert_header((
                header::LOCATION,
                format!("/admin/v1/sales/{}", handle.sale().id()),
            ))
            .json(AdminSale::of(&handle))),
        Created::Already(handle) => Ok(json(AdminSale::of(&handle))),
    }
}

/// The sale that the fields describe, or everything that is wrong with them.
fn sale_to_create(mut fields: Fields) -> Result<(SaleId, Definition), Problem> {
    let id = fields.text("id").and_then(|text| match SaleId::new(&text) {
        Ok(id) => Some(id),
        Err(invalid) => {
            fields.problem("id", invalid.expected);
            None
        }
    });
    let stock = fields.number("stock");
    let per_user_limit = fields.number_or("per_user_limit", 1);
    let hold_seconds = fields.number_or("hold_seconds", 0);
    let definition = Definition {
        // What could not be read has been noted, and need not be noted twice.
        stock: stock.unwrap_or(0),
        per_user_limit: per_user_limit.unwrap_or(1),
        opens_at: fields.instant("opens_at"),
        closes_at: fields.instant("closes_at"),
        hold_seconds: hold_seconds.unwrap_or(0),
    };
    for problem in definition.problems() {
        fields.problem(problem.field, problem.expected);
    }
    fields.finish()?;
    id.map(|id| (id, definition))
        .ok_or(Problem::field("id", "a text"))
}

/// All sales.
#[utoipa::path(
    tag = "admin",
    responses(
        (status = 200, body = AdminSales, description = "All sales, by id"),
        (status = 401, body = ProblemBody, content_type = "application/problem+json", description = "`admin_key_required`"),
    ),
    security(("admin_key" = [])),
)]
#[get("/sales")]
pub async fn list_sales(state: web::Data<State>) -> HttpResponse {
    let sales = state.engine.sales().iter().map(AdminSale::of).collect();
    json(AdminSales { sales })
}

/// One sale, with its counts.
#[utoipa::path(
    tag = "admin",
    params(("sale" = String, Path, description = "The sale's id")),
    responses(
        (status = 200, body = AdminSale, description = "The sale"),
        (status = 401, body = ProblemBody, content_type = "application/problem+json", description = "`admin_key_required`"),
        (status = 404, body = ProblemBody, content_type = "application/problem+json", description = "`unknown_sale`"),
    ),
    security(("admin_key" = [])),
)]
#[get("/sales/{sale}")]
pub async fn show_sale(
    path: web::Path<String>,
    state: web::Data<State>,
) -> Result<HttpResponse, Problem> {
    let handle = state
        .engine
        .sale(&sale_id(&path)?)
        .ok_or(Problem::new(Code::UnknownSale))?;
    Ok(json(AdminSale::of(&handle)))
}

/// Opens a sale: from now on, or from `opens_at` on, it takes claims.
#[utoipa::path(
    tag = "admin",
    params(("sale" = String, Path, description = "The sale's id")),
    responses(
        (status = 200, body = Outcome, description = "`opened`, or `already`"),
        (status = 401, body = ProblemBody, content_type = "application/problem+json", description = "`admin_key_required`"),
        (status = 404, body = ProblemBody, content_type = "application/problem+json", description = "`unknown_sale`"),
        (status = 409, body = ProblemBody, content_type = "application/problem+json", description = "`sale_closed`"),
        (status = 503, body = ProblemBody, content_type = "application/problem+json", description = "`operator_credentials_missing`, `halted`, `unavailable`"),
    ),
    security(("admin_key" = [])),
)]
#[post("/sales/{sale}/open")]
pub async fn open_sale(
    path: web::Path<String>,
    payload: web::Payload,
    state: web::Data<State>,
) -> Result<HttpResponse, Problem> {
    let sale = command(&path, payload).await?;
    match state.engine.open(&sale, BY).await.map_err(admin_problem)? {
        Opened::Opened => Ok(json(Outcome { outcome: "opened" })),
        Opened::Already => Ok(json(Outcome { outcome: "already" })),
    }
}

/// Closes a sale, for good.
#[utoipa::path(
    tag = "admin",
    params(("sale" = String, Path, description = "The sale's id")),
    responses(
        (status = 200, body = Outcome, description = "`closed`, or `already`"),
        (status = 401, body = ProblemBody, content_type = "application/problem+json", description = "`admin_key_required`"),
        (status = 404, body = ProblemBody, content_type = "application/problem+json", description = "`unknown_sale`"),
        (status = 409, body = ProblemBody, content_type = "application/problem+json", description = "`sale_not_open`"),
        (status = 503, body = ProblemBody, content_type = "application/problem+json", description = "`halted`, `unavailable`"),
    ),
    security(("admin_key" = [])),
)]
#[post("/sales/{sale}/close")]
pub async fn close_sale(
    path: web::Path<String>,
    payload: web::Payload,
    state: web::Data<State>,
) -> Result<HttpResponse, Problem> {
    let sale = command(&path, payload).await?;
    match state.engine.close(&sale).await.map_err(admin_problem)? {
        Closed::Closed => Ok(json(Outcome { outcome: "closed" })),
        Closed::Already => Ok(json(Outcome { outcome: "already" })),
    }
}

/// The sale of a command, whose body is an empty object or nothing.
async fn command(path: &str, payload: web::Payload) -> Result<SaleId, Problem> {
    let body = body::read(payload, body::ADMIN_BYTES_MAX).await?;
    let sale = sale_id(path)?;
    Fields::of(body::object(&body)?).finish()?;
    Ok(sale)
}

pub(super) fn admin_problem(error: AdminError) -> Problem {
    match error {
        AdminError::Invalid(problems) => {
            let field = |p: dropgate_domain::InvalidDefinition| {
                crate::error::FieldProblem::new(p.field, p.expected)
            };
            Problem::fields(problems.into_iter().map(field).collect())
        }
        AdminError::Exists => Problem::new(Code::SaleExists),
        AdminError::Unknown => Problem::new(Code::UnknownSale),
        AdminError::Closed => Problem::new(Code::SaleClosed),
        AdminError::NotOpen => Problem::new(Code::SaleNotOpen),
        AdminError::OperatorCredentialsMissing => Problem::new(Code::OperatorCredentialsMissing),
        AdminError::Unfollowable(why) => Problem::new(Code::SaleUnreadable).detail(why),
        // An operator may read why; the texts are the engine's and hold no credentials.
        AdminError::Halted(why) => unavailable(Unavailable::Halted).detail(why),
        AdminError::NotCertified(why) => {
            Problem::new(Code::Unavailable).detail(format!("redis is not fit for a sale: {why}"))
        }
        AdminError::Unavailable(why) => Problem::new(Code::Unavailable).detail(why),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn read(body: Value) -> Result<(SaleId, Definition), Vec<String>> {
        let Value::Object(object) = body else {
            unreachable!()
        };
        sale_to_create(Fields::of(object))
            .map_err(|problem| problem.fields.into_iter().map(|field| field.path).collect())
    }

    #[test]
    fn a_sale_needs_an_id_and_a_stock_and_the_rest_has_defaults() {
        let (id, definition) = read(json!({"id": "a", "stock": 0})).unwrap();
        assert_eq!(id.as_str(), "a");
        assert_eq!(definition, Definition::of(0));
        let (_, definition) = read(json!({
            "id": "a", "stock": 1, "per_user_limit": 16, "hold_seconds": 0,
            "opens_at": "2026-01-01T00:00:00Z", "closes_at": "2026-01-02T00:00:00+09:00",
        }))
        .unwrap();
        assert_eq!(definition.opens_at.unwrap().0, 1_767_225_600_000);
    }

    #[test]
    fn every_field_that_is_wrong_is_told() {
        let problems = read(json!({
            "id": "Ä".repeat(300), "stock": 10_000_001, "per_user_limit": 17, "hold_seconds": 30,
            "opens_at": "2026-01-02T00:00:00Z", "closes_at": "2026-01-01T00:00:00Z", "color": 1,
        }));
        let expected = [
            "closes_at",
            "color",
            "hold_seconds",
            "id",
            "per_user_limit",
            "stock",
        ];
        assert_eq!(problems.unwrap_err(), expected);
        assert_eq!(read(json!({})).unwrap_err(), ["id", "stock"]);
        assert_eq!(
            read(json!({"id": "a", "stock": -1})).unwrap_err(),
            ["stock"]
        );
        assert_eq!(
            read(json!({"id": "a", "stock": 1.5})).unwrap_err(),
            ["stock"]
        );
    }
}
