//! The port for operators: `/livez`, `/readyz`, `/metrics`, and pages of the service's own.

use crate::health::Health;
use actix_web::dev::{Server, ServerHandle};
use actix_web::{App, HttpResponse, HttpServer, web};
use prometheus_client::registry::Registry;
use std::net::SocketAddr;
use std::sync::Arc;

/// The media type of the metrics, as the OpenMetrics text format names it.
const METRICS_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// What the port shows. Clones show the same.
#[derive(Clone)]
pub struct Ops {
    health: Health,
    registry: Arc<Registry>,
    pages: Vec<Page>,
}

/// A page of a service's own, made anew each time that it is asked for.
#[derive(Clone)]
struct Page {
    path: &'static str,
    json: Arc<dyn Fn() -> serde_json::Value + Send + Sync>,
}

impl Ops {
    /// The readiness and the metrics of one service.
    #[must_use]
    pub fn new(health: Health, registry: Arc<Registry>) -> Self {
        Self {
            health,
            registry,
            pages: Vec::new(),
        }
    }

    /// With one more page, of JSON, beside the three routes. It is made on the server's thread:
    /// it must not block.
    #[must_use]
    pub fn with_page(
        mut self,
        path: &'static str,
        json: impl Fn() -> serde_json::Value + Send + Sync + 'static,
    ) -> Self {
        let json = Arc::new(json);
        self.pages.push(Page { path, json });
        self
    }

    /// The three routes, for a service that has a port of its own for operators.
    pub fn configure(&self, config: &mut web::ServiceConfig) {
        config
            .app_data(web::Data::new(self.clone()))
            .route("/livez", web::get().to(livez))
            .route("/readyz", web::get().to(readyz))
            .route("/metrics", web::get().to(metrics));
        for page in &self.pages {
            let json = Arc::clone(&page.json);
            let handler = move || {
                let body = json();
                async move { answer(true, body) }
            };
            config.route(page.path, web::get().to(handler));
        }
    }

    /// `/livez` and `/readyz` for a port that is open to the public and that load balancers
    /// probe: without the reasons, which are the operators' business.
    pub fn configure_public(&self, config: &mut web::ServiceConfig) {
        config
            .app_data(web::Data::new(self.clone()))
            .route("/livez", web::get().to(livez))
            .route("/readyz", web::get().to(readyz_public));
    }

    /// A server with these routes and nothing else, on one worker.
    ///
    /// The server runs when it is awaited, on the caller's task or on one that the caller
    /// spawns, and ends with [`OpsServer::stop`].
    ///
    /// # Errors
    /// An address that cannot be bound.
    pub fn serve(&self, bind: SocketAddr) -> std::io::Result<OpsServer> {
        let ops = self.clone();
        let server = HttpServer::new(move || App::new().configure(|c| ops.configure(c)))
            .workers(1)
            .disable_signals()
            .shutdown_timeout(1)
            .bind(bind)?;
        let addr = server.addrs().first().copied().unwrap_or(bind);
        let server = server.run();
        let handle = server.handle();
        let task = tokio::spawn(run(server));
        Ok(OpsServer { addr, handle, task })
    }
}

async fn run(server: Server) {
    if let Err(error) = server.await {
        tracing::error!(%error, "ops server failed");
    }
}

/// A running server of the three routes.
#[derive(Debug)]
pub struct OpsServer {
    /// Where it listens; with the real port when 0 was asked for.
    pub addr: SocketAddr,
    handle: ServerHandle,
    task: tokio::task::JoinHandle<()>,
}

impl OpsServer {
    /// Stops it; a request in flight has a second.
    pub async fn stop(self) {
        self.handle.stop(true).await;
        if let Err(error) = self.task.await {
            tracing::error!(%error, "ops server panicked");
        }
    }
}

async fn livez() -> HttpResponse {
    HttpResponse::Ok()
        .content_type("text/plain; charset=utf-8")
        .body("ok\n")
}

async fn readyz(ops: web::Data<Ops>) -> HttpResponse {
    let readiness = ops.health.readiness();
    answer(readiness.ready, readiness)
}

async fn readyz_public(ops: web::Data<Ops>) -> HttpResponse {
    let ready = ops.health.readiness().ready;
    answer(ready, serde_json::json!({ "ready": ready }))
}

fn answer(ready: bool, body: impl serde::Serialize) -> HttpResponse {
    let mut response = if ready {
        HttpResponse::Ok()
    } else {
        HttpResponse::ServiceUnavailable()
    };
    response
        .insert_header(("Cache-Control", "no-store"))
        .json(body)
}

async fn metrics(ops: web::Data<Ops>) -> HttpResponse {
    let mut text = String::new();
    match prometheus_client::encoding::text::encode(&mut text, &ops.registry) {
        Ok(()) => HttpResponse::Ok().content_type(METRICS_TYPE).body(text),
        Err(error) => {
            tracing::error!(%error, "metrics could not be written");
            HttpResponse::InternalServerError().finish()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use actix_web::http::StatusCode;
    use actix_web::test;
    use prometheus_client::metrics::counter::Counter;

    fn ops() -> (Health, Ops) {
        let health = Health::new();
        let mut registry = Registry::default();
        let claims = Counter::<u64>::default();
        claims.inc();
        registry.register("dropgate_claims", "Claims", claims);
        (health.clone(), Ops::new(health, Arc::new(registry)))
    }

    #[actix_web::test]
    async fn readiness_tells_its_reasons_and_liveness_does_not_depend_on_it() {
        let (health, ops) = ops();
        let app = test::init_service(App::new().configure(|c| ops.configure(c))).await;
        let get = |path| test::TestRequest::get().uri(path).to_request();
        let response = test::call_service(&app, get("/readyz")).await;
        assert_eq!(response.status(), StatusCode::OK);
        health.shut_down();
        let response = test::call_service(&app, get("/readyz")).await;
        assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
        let body: serde_json::Value = test::read_body_json(response).await;
        assert_eq!(body["reasons"][0]["probe"], "shutdown");
        let response = test::call_service(&app, get("/livez")).await;
        assert_eq!(response.status(), StatusCode::OK);
    }

    #[actix_web::test]
    async fn the_public_is_not_told_the_reasons() {
        let (health, ops) = ops();
        health.shut_down();
        let app = App::new().configure(|c| ops.configure_public(c));
        let app = test::init_service(app).await;
        let request = test::TestRequest::get().uri("/readyz").to_request();
        let response = test::call_service(&app, request).await;
        assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
        let body: serde_json::Value = test::read_body_json(response).await;
        assert_eq!(body, serde_json::json!({"ready": false}));
        let request = test::TestRequest::get().uri("/metrics").to_request();
        let response = test::call_service(&app, request).await;
        assert_eq!(response.status(), StatusCode::NOT_FOUND);
    }

    #[actix_web::test]
    async fn metrics_are_those_of_the_registry() {
        let (_, ops) = ops();
        let server = ops.serve(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        assert_ne!(server.addr.port(), 0);
        let app = test::init_service(App::new().configure(|c| ops.configure(c))).await;
        let request = test::TestRequest::get().uri("/metrics").to_request();
        let body = test::call_and_read_body(&app, request).await;
        let text = String::from_utf8(body.to_vec()).unwrap();
        assert!(text.contains("dropgate_claims_total 1"), "{text}");
        server.stop().await;
    }
}
