//! The two HTTP servers, their settings, and what the system must allow for them.

use crate::app::BuildError;
use crate::config::HttpConfig;
use crate::middleware::connections::{Connections, refuse_above_cap};
use crate::middleware::edge::edge;
use crate::openapi::{AdminApi, ClientApi, Served};
use crate::routes;
use crate::state::State;
use actix_cors::Cors;
use actix_web::dev::Server;
use actix_web::http::{Method, header};
use actix_web::middleware::from_fn;
use actix_web::web::Data;
use actix_web::{App, HttpServer};
use dropgate_runtime::ops::Ops;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use std::net::SocketAddr;
use std::sync::Arc;
use utoipa::OpenApi;
use utoipa_actix_web::AppExt;

/// Files that a process needs besides its clients' connections.
const FILES_BESIDES: u64 = 512;

/// What both servers are made of.
pub struct Servers {
    /// What the handlers share.
    pub state: Arc<State>,
    /// Counts the clients' connections.
    pub connections: Connections,
    /// Health and metrics.
    pub ops: Ops,
    /// Ports and connections.
    pub http: HttpConfig,
}

/// Binds a server with the settings that both have. A macro, since its type cannot be named.
macro_rules! bind {
    ($server:expr, $http:expr, $addr:expr) => {{
        let addr: SocketAddr = $addr;
        let server = $server
            .backlog($http.backlog)
            // The cap is ours, which answers; at its own the server would stop accepting.
            .max_connections(usize::MAX)
            .keep_alive($http.keep_alive)
            .client_request_timeout($http.request_timeout)
            .client_disconnect_timeout($http.request_timeout)
            .shutdown_timeout($http.shutdown_timeout.as_secs())
            .disable_signals()
            .bind(addr)
            .map_err(|source| BuildError::Bind { addr, source })?;
        let bound = server.addrs().first().copied().unwrap_or(addr);
        Ok((bound, server.run()))
    }};
}

impl Servers {
    /// The clients' server, bound and not started.
    ///
    /// # Errors
    /// An address that cannot be bound.
    pub fn public(&self) -> Result<(SocketAddr, Server), BuildError> {
        let state = Data::from(Arc::clone(&self.state));
        let metrics = Data::new(self.state.metrics.clone());
        let ops = self.ops.clone();
        let http = self.http.clone();
        let document = Data::new(document(routes::client_api, ClientApi::openapi())?);
        let server = HttpServer::new(move || {
            let (app, _) = App::new()
                .into_utoipa_app()
                .configure(routes::client_api)
                .split_for_parts();
            app.app_data(state.clone())
                .app_data(metrics.clone())
                .app_data(document.clone())
                .configure(|config| ops.configure_public(config))
                .configure(routes::client_rest)
                .wrap(from_fn(refuse_above_cap))
                .wrap(from_fn(edge))
                .wrap(cors(&http))
        });
        let workers = self.http.workers;
        let server = if workers == 0 {
            server
        } else {
            server.workers(workers)
        };
        bind!(
            server.on_connect(self.connections.on_connect()),
            self.http,
            self.http.bind
        )
    }

    /// The operators' server, bound and not started.
    ///
    /// # Errors
    /// An address that cannot be bound.
    pub fn admin(&self) -> Result<(SocketAddr, Server), BuildError> {
        let state = Data::from(Arc::clone(&self.state));
        let metrics = Data::new(self.state.metrics.clone());
        let ops = self.ops.clone();
        let document = Data::new(document(routes::admin_api, AdminApi::openapi())?);
        let server = HttpServer::new(move || {
            let (app, _) = App::new()
                .into_utoipa_app()
                .configure(routes::admin_api)
                .split_for_parts();
            app.app_data(state.clone())
                .app_data(metrics.clone())
                .app_data(document.clone())
                .configure(|config| ops.configure(config))
                .configure(routes::admin_rest)
                .wrap(from_fn(edge))
        });
        bind!(server.workers(1), self.http, self.http.admin_bind)
    }
}

/// The description of the routes that `api` adds, with what `base` says besides.
fn document(
    api: fn(&mut utoipa_actix_web::service_config::ServiceConfig),
    base: utoipa::openapi::OpenApi,
) -> Result<Served, serde_json::Error> {
    let (_, document) = App::new()
        .into_utoipa_app()
        .openapi(base)
        .configure(api)
        .split_for_parts();
    Served::new(&document)
}

/// CORS for the configured origins, with preflights that browsers may remember.
pub fn cors(config: &HttpConfig) -> Cors {
    let max_age = usize::try_from(config.cors_max_age.as_secs()).unwrap_or(usize::MAX);
    let cors = Cors::default()
        .allowed_methods([Method::GET, Method::POST])
        .allowed_headers([header::AUTHORIZATION, header::CONTENT_TYPE])
        .allowed_header("idempotency-key")
        .allowed_header("x-request-id")
        .expose_headers([header::LOCATION, header::RETRY_AFTER])
        .expose_headers(["x-request-id"])
        .max_age(max_age)
        // What is not on the list gets no CORS headers, so a browser refuses it; other clients
        // have no origin and are not concerned.
        .block_on_origin_mismatch(false);
    config
        .cors_origins
        .iter()
        .fold(cors, |cors, origin| cors.allowed_origin(origin))
}

/// Raises the limit of open files as far as it may be, and warns about what is still too small
/// for the configured numbers.
pub fn check_limits(config: &HttpConfig) {
    let needed = u64::try_from(config.connections_max).unwrap_or(u64::MAX) + FILES_BESIDES;
    match raise_open_files(needed) {
        Ok(limit) if limit < needed => {
            tracing::warn!(
                limit,
                needed,
                "limit of open files is below http.connections_max"
            );
        }
        Ok(_) => {}
        Err(error) => tracing::warn!(%error, "limit of open files is not known"),
    }
    let somaxconn = std::fs::read_to_string("/proc/sys/net/core/somaxconn").ok();
    match somaxconn.and_then(|text| text.trim().parse::<u32>().ok()) {
        Some(limit) if limit < config.backlog => {
            tracing::warn!(
                limit,
                wanted = config.backlog,
                "somaxconn cuts http.backlog"
            );
        }
        Some(_) => {}
        None => tracing::debug!("somaxconn is not known"),
    }
}

fn raise_open_files(needed: u64) -> nix::Result<u64> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    if soft >= needed {
        return Ok(soft);
    }
    let wanted = needed.min(hard);
    setrlimit(Resource::RLIMIT_NOFILE, wanted, hard)?;
    Ok(wanted)
}
