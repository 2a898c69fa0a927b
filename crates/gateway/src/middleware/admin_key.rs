//! Lets only operators in.

use crate::auth;
use crate::error::Problem;
use crate::state::State;
use actix_web::body::{EitherBody, MessageBody};
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::http::header;
use actix_web::middleware::Next;
use actix_web::web::Data;
use dropgate_domain::code::Code;

/// Answers 401 without one of the configured keys.
///
/// # Errors
/// Those of the handler.
pub async fn require<B: MessageBody + 'static>(
    req: ServiceRequest,
    next: Next<B>,
) -> Result<ServiceResponse<EitherBody<B>>, actix_web::Error> {
    let header = req
        .headers()
        .get(header::AUTHORIZATION)
        .and_then(|value| value.to_str().ok());
    let known = match (req.app_data::<Data<State>>(), auth::bearer(header)) {
        (Some(state), Some(key)) => auth::is_admin_key(key, &state.admin_keys),
        _ => false,
    };
    if known {
        return Ok(next.call(req).await?.map_into_left_body());
    }
    Ok(req
        .error_response(Problem::new(Code::AdminKeyRequired))
        .map_into_right_body())
}
