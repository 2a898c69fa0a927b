//! The watch as a process.

use super::running::{Running, instance};
use crate::config::Config;
use dropgate_admission::{Admission, ConnectError};
use dropgate_engine::{Engine, StartError};
use dropgate_runtime::shutdown::{Report, Shutdown};
use dropgate_stream::{Log, OpenError};
use prometheus_client::registry::Registry;
use std::net::SocketAddr;
use std::time::Duration;

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

/// The watch, with an engine of its own.
#[derive(Debug)]
pub struct App {
    engine: Engine,
    admission: Admission,
    log: Log,
    running: Running,
}

impl App {
    /// Opens the log, reaches for Redis, opens the port for operators, and watches. A Redis that
    /// does not answer is waited for in the background.
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
        let bind = config.ops.bind;
        let running = Running::start(&engine, &config.watch, instance, bind, registry)
            .map_err(|error| AppError::Bind(bind, error))?;
        Ok(Self {
            engine,
            admission,
            log,
            running,
        })
    }

    /// Where the port for operators is.
    #[must_use]
    pub fn ops_addr(&self) -> SocketAddr {
        self.running.ops_addr()
    }

    /// Watches until `shutdown` begins, then ends in order.
    pub async fn run(mut self, shutdown: Shutdown) -> Report {
        shutdown.begun().await;
        let mut steps = shutdown.steps();
        self.running.stop(&mut steps).await;
        steps.run("engine", STEP_MAX, self.engine.shutdown()).await;
        steps.run("log", STEP_MAX, self.log.close(STEP_MAX)).await;
        steps
            .run("redis", STEP_MAX, self.admission.shutdown())
            .await;
        self.running.close(&mut steps).await;
        steps.finish()
    }
}
