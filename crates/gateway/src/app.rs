//! The gateway as a whole: built, run, and ended in order.

use crate::auth::{HmacVerifier, TokenVerifier};
use crate::config::Config;
use crate::metrics::Metrics;
use crate::middleware::connections::Connections;
use crate::persisted::Persisted;
use crate::server::{self, Servers};
use crate::state::State;
use actix_web::dev::{Server, ServerHandle};
use dropgate_admission::{Admission, ConnectError};
use dropgate_engine::{Engine, StartError};
use dropgate_runtime::health::{Health, Pace};
use dropgate_runtime::ops::Ops;
use dropgate_runtime::shutdown::{Report, Shutdown};
use dropgate_store::Store;
use dropgate_stream::{Log, OpenError};
use prometheus_client::registry::Registry;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinHandle;

/// How long what is in flight to the log has at shutdown.
const FLUSH_DEADLINE: Duration = Duration::from_secs(10);
/// How long a connection has to be closed at shutdown.
const CLOSE_DEADLINE: Duration = Duration::from_secs(3);

/// Why a gateway could not be started.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// A key of `[auth]` cannot be used.
    #[error("auth.keys: the key {0:?} cannot be used")]
    Key(String),
    /// The log cannot be opened.
    #[error(transparent)]
    Log(#[from] OpenError),
    /// Redis refuses, or its configuration cannot be. (One that does not answer is waited for.)
    #[error("redis: {0}")]
    Redis(#[from] ConnectError),
    /// The log cannot be followed.
    #[error(transparent)]
    Engine(#[from] StartError),
    /// The database's configuration cannot be. (One that does not answer is waited for.)
    #[error(transparent)]
    Store(#[from] dropgate_store::OpenError),
    /// An address cannot be bound.
    #[error("{addr} cannot be bound: {source}")]
    Bind {
        /// The address.
        addr: SocketAddr,
        /// Why.
        source: std::io::Error,
    },
    /// The description of the API cannot be written.
    #[error("the description of the api cannot be written: {0}")]
    OpenApi(#[from] serde_json::Error),
}

/// Why a gateway ended by itself.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// A server failed.
    #[error("the {name} server failed: {reason}")]
    Server {
        /// Which.
        name: &'static str,
        /// Why.
        reason: String,
    },
}

/// A gateway that listens.
#[derive(Debug)]
pub struct App {
    parts: Parts,
    public: Listening,
    admin: Listening,
    drain: Duration,
    shutdown_timeout: Duration,
}

/// What runs behind the servers.
#[derive(Debug)]
struct Parts {
    engine: Engine,
    admission: Admission,
    log: Log,
    store: Option<Store>,
    health: Health,
}

/// A server on a task of its own.
#[derive(Debug)]
struct Listening {
    addr: SocketAddr,
    handle: ServerHandle,
    task: JoinHandle<std::io::Result<()>>,
}

impl Listening {
    fn start((addr, server): (SocketAddr, Server)) -> Self {
        let handle = server.handle();
        Self {
            addr,
            handle,
            task: tokio::spawn(server),
        }
    }

    async fn stop(&mut self) {
        self.handle.stop(true).await;
        // Its outcome has no reader any more: it was asked to end.
        let _ = (&mut self.task).await;
    }
}

impl App {
    /// Opens the log, reaches for Redis and the database, and begins to listen. A Redis or a
    /// database that does not answer is waited for in the background; a log that does not is
    /// an error.
    ///
    /// # Errors
    /// [`BuildError`].
    pub async fn build(config: Config) -> Result<Self, BuildError> {
        server::check_limits(&config.http);
        let auth = &config.auth;
        let verifier =
            HmacVerifier::new(&auth.keys, &auth.audience, auth.leeway).map_err(BuildError::Key)?;
        let log = Log::open(&config.log).await?;
        let mut registry = Registry::default();
        let admission = Admission::connect(&config.redis).await?;
        let store = config.store.as_ref().map(Store::lazy).transpose()?;
        let engine = Engine::start(
            config.engine.clone(),
            instance(&config),
            log.clone(),
            admission.clone(),
            config.redis_operator.clone(),
            &mut registry,
        )
        .await?;
        let parts = Parts {
            engine: engine.clone(),
            admission,
            log,
            store: store.clone(),
            health: health(&engine),
        };
        let state = State {
            engine,
            verifier: TokenVerifier::Hmac(verifier),
            admin_keys: config.admin.keys.clone(),
            persisted: store.map_or_else(Persisted::unknown, Persisted::reading),
            metrics: Metrics::new(&mut registry),
        };
        let connections = Connections::new(config.http.connections_max, &mut registry);
        let servers = Servers {
            state: state.into(),
            connections,
            ops: Ops::new(parts.health.clone(), Arc::new(registry)),
            http: config.http.clone(),
        };
        match Self::listen(&servers) {
            Ok((public, admin)) => {
                tracing::info!(addr = %public.addr, admin = %admin.addr, "gateway listens");
                let (drain, shutdown_timeout) = (config.http.drain, config.http.shutdown_timeout);
                Ok(Self {
                    parts,
                    public,
                    admin,
                    drain,
                    shutdown_timeout,
                })
            }
            Err(error) => {
                parts.engine.shutdown().await;
                Err(error)
            }
        }
    }

    fn listen(servers: &Servers) -> Result<(Listening, Listening), BuildError> {
        // Both are bound before one is started, so that a failure leaves none behind.
        let (public, admin) = (servers.public()?, servers.admin()?);
        Ok((Listening::start(public), Listening::start(admin)))
    }

    /// Where clients come in; with the real port when 0 was configured.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.public.addr
    }

    /// Where operators come in.
    #[must_use]
    pub fn admin_addr(&self) -> SocketAddr {
        self.admin.addr
    }

    /// The engine behind it, for those who run in the same process.
    #[must_use]
    pub fn engine(&self) -> &Engine {
        &self.parts.engine
    }

    /// Serves until the shutdown begins, then ends in order: readiness off, time for load
    /// balancers to notice, no new connections, requests in flight, the log, connections.
    ///
    /// # Errors
    /// A server that failed. The rest has then been ended all the same.
    pub async fn run(mut self, shutdown: Shutdown) -> Result<Report, RunError> {
        let failed = tokio::select! {
            () = shutdown.begun() => None,
            ended = &mut self.public.task => Some(failure("public", ended)),
            ended = &mut self.admin.task => Some(failure("admin", ended)),
        };
        let report = self.end(&shutdown, failed.is_some()).await;
        tracing::info!(clean = report.is_clean(), "gateway ended");
        match failed {
            Some(error) => Err(error),
            None => Ok(report),
        }
    }

    async fn end(self, shutdown: &Shutdown, failed: bool) -> Report {
        let Self {
            parts,
            mut public,
            mut admin,
            drain,
            shutdown_timeout,
        } = self;
        let mut steps = shutdown.steps();
        parts.health.shut_down();
        if !failed {
            let drained = drain + Duration::from_secs(1);
            steps
                .run(
                    "wait for load balancers",
                    drained,
                    tokio::time::sleep(drain),
                )
                .await;
            // The server has a deadline of its own; the second is for it to say so.
            let requests = shutdown_timeout + Duration::from_secs(1);
            steps.run("finish requests", requests, public.stop()).await;
        }
        steps
            .run("flush the engine", FLUSH_DEADLINE, parts.engine.shutdown())
            .await;
        let log = parts.log.close(FLUSH_DEADLINE);
        steps
            .run("close the log", FLUSH_DEADLINE + CLOSE_DEADLINE, log)
            .await;
        steps
            .run("close redis", CLOSE_DEADLINE, parts.admission.shutdown())
            .await;
        if let Some(store) = &parts.store {
            steps
                .run(
                    "close the database",
                    CLOSE_DEADLINE,
                    store.close(CLOSE_DEADLINE),
                )
                .await;
        }
        if !failed {
            // Last, so that probes see "shutting down" and metrics can be read to the end.
            steps
                .run("stop the admin server", CLOSE_DEADLINE, admin.stop())
                .await;
        }
        steps.finish()
    }
}

fn failure(
    name: &'static str,
    ended: Result<std::io::Result<()>, tokio::task::JoinError>,
) -> RunError {
    let reason = match ended {
        Ok(Ok(())) => "it ended by itself".to_owned(),
        Ok(Err(error)) => error.to_string(),
        Err(error) => error.to_string(),
    };
    RunError::Server { name, reason }
}

fn health(engine: &Engine) -> Health {
    let health = Health::new();
    let engine = engine.clone();
    health.probe("engine", Pace::default(), move || {
        let ready = engine.ready();
        async move { ready }
    });
    health
}

/// Who this is, for people who read of it in the log.
fn instance(config: &Config) -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    format!("gateway {} {}", host.trim(), config.http.bind)
}
