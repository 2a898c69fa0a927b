//! The watch as a process.

use super::{Metrics, Watch};
use crate::config::Config;
use dropgate_admission::{Admission, ConnectError};
use dropgate_engine::{Engine, StartError};
use dropgate_runtime::health::{Health, Pace};
use dropgate_runtime::ops::{Ops, OpsServer};
use dropgate_runtime::shutdown::{Report, Shutdown};
use dropgate_stream::{Log, OpenError};
use prometheus_client::registry::Registry;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// How long each step of the shutdown may take.
const STEP_MAX: Duration = Duration::from_secs(3);

/// Why the watch cannot start.
#[derive(Debug, thiserror::Error)]
pub enum AppError {
    /// The log cannot be opened.
    #[error(transparent)]
    Log(#[from] OpenError),
    /// Redis refuses, or its configuration cannot be. (One that does not answer is waited for.)
    #[error("redis: {0}")]
    Redis(#[from] ConnectError),
    /// The log cannot be followed.
    #[error(transparent)]
    Engine(#[from] StartError),
    /// The port for operators cannot be had.
    #[error("cannot listen on {0}")]
    Bind(SocketAddr, #[source] std::io::Error),
}

/// The watch, with its port for operators open.
#[derive(Debug)]
pub struct App {
    engine: Engine,
    admission: Admission,
    log: Log,
    health: Health,
    ops: OpsServer,
    watch: Watch,
}

impl App {
    /// Opens the log, reaches for Redis, and opens the port for operators. A Redis that does not
    /// answer is waited for in the background.
    ///
    /// # Errors
    /// [`AppError`].
    pub async fn build(config: Config) -> Result<Self, AppError> {
        let log = Log::open(&config.log).await?;
        let admission = Admission::connect(&config.redis).await?;
        let mut registry = Registry::default();
        let instance = instance();
        let engine = Engine::start(
            config.engine.clone(),
            instance.clone(),
            log.clone(),
            admission.clone(),
            Some(config.redis.clone()),
            &mut registry,
        )
        .await?;
        let metrics = Metrics::register(&mut registry);
        let watch = Watch::new(engine.clone(), config.watch.clone(), instance, metrics);
        let health = Health::new();
        let asked = engine.clone();
        health.probe("engine", Pace::default(), move || {
            let ready = asked.ready();
            async move { ready }
        });
        let board = watch.board();
        let bind = config.ops.bind;
        let ops = Ops::new(health.clone(), Arc::new(registry))
            .with_page("/watch", move || serde_json::json!(board.thoughts()))
            .serve(bind)
            .map_err(|error| AppError::Bind(bind, error))?;
        Ok(Self {
            engine,
            admission,
            log,
            health,
            ops,
            watch,
        })
    }

    /// Where the port for operators is.
    #[must_use]
    pub fn ops_addr(&self) -> SocketAddr {
        self.ops.addr
    }

    /// Watches until `shutdown` begins, then ends in order.
    pub async fn run(self, shutdown: Shutdown) -> Report {
        let stop = CancellationToken::new();
        let watching = tokio::spawn(self.watch.run(stop.clone()));
        shutdown.begun().await;
        let mut steps = shutdown.steps();
        let health = self.health.clone();
        steps
            .run("readiness", STEP_MAX, async { health.shut_down() })
            .await;
        stop.cancel();
        steps
            .run("watch", STEP_MAX, async {
                // A panic is on record already.
                let _ = watching.await;
            })
            .await;
        steps.run("engine", STEP_MAX, self.engine.shutdown()).await;
        steps.run("log", STEP_MAX, self.log.close(STEP_MAX)).await;
        steps
            .run("redis", STEP_MAX, self.admission.shutdown())
            .await;
        steps.run("ops", STEP_MAX, self.ops.stop()).await;
        steps.finish()
    }
}

/// Who this is, for people who read of it in the log.
fn instance() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    format!("watch {} {}", host.trim(), std::process::id())
}
