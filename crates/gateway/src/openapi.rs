//! The description of the API, OpenAPI 3.1: collected from the handlers.

use actix_web::web::{Bytes, Data};
use actix_web::{HttpResponse, http::header};
use utoipa::openapi::OpenApi as Document;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::{Modify, OpenApi};

/// What the handlers do not say: of the clients' API.
#[derive(OpenApi)]
#[openapi(
    info(
        title = "Dropgate",
        description = "Claims on the units of a sale. Every error is a problem with a stable `code`; \
            `retry` answers whether, with which key and when to ask again.",
        license(name = "Apache-2.0", identifier = "Apache-2.0"),
    ),
    modifiers(&UserToken),
    tags(
        (name = "claims", description = "One unit a claim"),
        (name = "sales", description = "What everybody may know"),
    ),
)]
pub struct ClientApi;

/// What the handlers do not say: of the operators' API.
#[derive(OpenApi)]
#[openapi(
    info(
        title = "Dropgate, for operators",
        description = "Creates, opens, closes and recovers sales.",
        license(name = "Apache-2.0", identifier = "Apache-2.0"),
    ),
    modifiers(&AdminKey),
    tags((name = "admin", description = "Sales")),
)]
pub struct AdminApi;

struct UserToken;
struct AdminKey;

impl Modify for UserToken {
    fn modify(&self, document: &mut Document) {
        let scheme = HttpBuilder::new()
            .scheme(HttpAuthScheme::Bearer)
            .bearer_format("JWT")
            .description(Some(
                "A user token: HS256, `typ: dropgate-user+jwt`, `kid`, `sub`, `exp`, `aud`",
            ));
        add(document, "user_token", SecurityScheme::Http(scheme.build()));
    }
}

impl Modify for AdminKey {
    fn modify(&self, document: &mut Document) {
        let scheme = HttpBuilder::new()
            .scheme(HttpAuthScheme::Bearer)
            .description(Some("One of the configured admin keys"));
        add(document, "admin_key", SecurityScheme::Http(scheme.build()));
    }
}

fn add(document: &mut Document, name: &str, scheme: SecurityScheme) {
    let components = document.components.get_or_insert_default();
    components.add_security_scheme(name, scheme);
}

/// The document, as it is served.
#[derive(Debug, Clone)]
pub struct Served(Bytes);

impl Served {
    /// Writes the document once, for all requests.
    ///
    /// # Errors
    /// A document that cannot be written as JSON.
    pub fn new(document: &Document) -> Result<Self, serde_json::Error> {
        serde_json::to_vec(document).map(|json| Self(Bytes::from(json)))
    }
}

/// `/openapi.json`.
pub async fn document(served: Data<Served>) -> HttpResponse {
    HttpResponse::Ok()
        .content_type("application/json")
        .insert_header((header::CACHE_CONTROL, "public, max-age=300"))
        .body(served.0.clone())
}
