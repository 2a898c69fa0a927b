//! The calls, and nothing but: each reads a request, asks the engine, and answers.

pub mod admin;
pub mod claims;
pub mod recover;
pub mod sales;

use crate::error::{Extra, Problem};
use crate::middleware::admin_key;
use crate::openapi;
use actix_web::middleware::from_fn;
use actix_web::web;
use dropgate_domain::SaleId;
use dropgate_domain::code::Code;
use utoipa_actix_web::scope;
use utoipa_actix_web::service_config::ServiceConfig;

/// The clients' calls.
pub fn client_api(config: &mut ServiceConfig<'_>) {
    config
        .service(claims::post_claim)
        .service(claims::get_claim)
        .service(sales::get_sale);
}

/// What else the clients' server answers.
pub fn client_rest(config: &mut web::ServiceConfig) {
    config
        .route("/openapi.json", web::get().to(openapi::document))
        .service(only("/v1/sales/{sale}/claims", "POST"))
        .service(only("/v1/sales/{sale}/claims/{claim}", "GET"))
        .service(only("/v1/sales/{sale}", "GET"))
        .default_service(web::to(not_found));
}

/// The operators' calls, behind their key.
pub fn admin_api(config: &mut ServiceConfig<'_>) {
    config.service(
        scope::scope("/admin/v1")
            .wrap(from_fn(admin_key::require))
            .service(admin::create_sale)
            .service(admin::list_sales)
            .service(admin::open_sale)
            .service(admin::close_sale)
            .service(recover::recover_sale)
            .service(admin::show_sale),
    );
}

/// What else the operators' server answers.
pub fn admin_rest(config: &mut web::ServiceConfig) {
    config
        .route("/openapi.json", web::get().to(openapi::document))
        .default_service(web::to(not_found));
}

/// The sale of a path.
fn sale_id(text: &str) -> Result<SaleId, Problem> {
    SaleId::new(text).map_err(|invalid| Problem::field("path.sale", invalid.expected))
}

/// What no call answers.
pub async fn not_found() -> Result<&'static str, Problem> {
    Err(Problem::new(Code::NotFound))
}

/// Answers 405 for the methods that the calls of a path do not have. To be registered after
/// them.
fn only(path: &str, methods: &'static str) -> actix_web::Resource {
    web::resource(path.to_owned()).to(move || async move {
        let problem = Problem::new(Code::MethodNotAllowed).extra(Extra::Allow(methods));
        Err::<&'static str, _>(problem)
    })
}
