//! The order-writer as a process.

use crate::backoff::Backoff;
use crate::config::Config;
use crate::consumer::{OrderWriter, RunError};
use crate::metrics::Metrics;
use dropgate_runtime::health::{Health, Pace};
use dropgate_runtime::ops::{Ops, OpsServer};
use dropgate_runtime::shutdown::{Report, Shutdown};
use dropgate_store::{OpenError as StoreOpenError, Store, StoreError};
use dropgate_stream::{Log, LogConfig, OpenError as LogOpenError};
use parking_lot::Mutex;
use prometheus_client::registry::Registry;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// How long a step of the shutdown takes that has nothing to wait for.
const STEP_MAX: Duration = Duration::from_secs(2);

/// Why the process cannot start, or ended by itself.
#[derive(Debug, thiserror::Error)]
pub enum AppError {
    /// The database's settings cannot be.
    #[error("the database cannot be used")]
    Store(#[from] StoreOpenError),
    /// The schema cannot be brought up to date.
    #[error("the schema cannot be brought up to date")]
    Migrate(#[source] StoreError),
    /// The log cannot be used as it is.
    #[error("the log cannot be used")]
    Log(#[from] LogOpenError),
    /// The port for operators cannot be had.
    #[error("cannot listen on {0}")]
    Bind(SocketAddr, #[source] std::io::Error),
    /// The writer ended.
    #[error("the writer ended")]
    Run(#[from] RunError),
}

/// The order-writer, with its port for operators open. It is not ready until it runs.
pub struct App {
    config: Config,
    store: Store,
    metrics: Metrics,
    health: Health,
    /// What is still missing at the start.
    starting: Arc<Mutex<Option<String>>>,
    ops: OpsServer,
}

impl App {
    /// Opens the port for operators. The log and the database need not answer yet.
    ///
    /// # Errors
    /// What no waiting will mend.
    pub fn build(config: Config) -> Result<Self, AppError> {
        let store = Store::lazy(&config.store)?;
        let mut registry = Registry::default();
        let metrics = Metrics::register(&mut registry);
        let health = Health::new();
        let starting = Arc::new(Mutex::new(Some("starting".to_owned())));
        let seen = Arc::clone(&starting);
        health.probe("start", Pace::default(), move || {
            let missing = seen.lock().clone();
            async move { missing.map_or(Ok(()), |missing| Err(vec![missing])) }
        });
        let asked = store.clone();
        health.probe("database", Pace::default(), move || {
            let store = asked.clone();
            async move { store.ping().await.map_err(|error| vec![error.to_string()]) }
        });
        let bind = config.ops.bind;
        let ops = Ops::new(health.clone(), Arc::new(registry)).serve(bind);
        Ok(Self {
            ops: ops.map_err(|error| AppError::Bind(bind, error))?,
            config,
            store,
            metrics,
            health,
            starting,
        })
    }

    /// Where the port for operators is.
    #[must_use]
    pub fn ops_addr(&self) -> SocketAddr {
        self.ops.addr
    }

    /// Runs until `shutdown` begins, then ends in order.
    ///
    /// # Errors
    /// Why it ended without having been told to.
    pub async fn run(self, shutdown: Shutdown) -> Result<Report, AppError> {
        let writer_config = &self.config.writer;
        let opened = tokio::select! {
            () = shutdown.begun() => None,
            opened = self.open() => Some(opened),
        };
        let (log, mut writer) = match opened {
            None => (None, None),
            Some(Err(error)) => {
                self.ops.stop().await;
                return Err(error);
            }
            Some(Ok(log)) => {
                let (store, metrics) = (self.store.clone(), self.metrics.clone());
                let writer = OrderWriter::start(writer_config, log.clone(), store, metrics);
                (Some(log), Some(writer))
            }
        };
        if let Some(writer) = &writer {
            let status = writer.status();
            self.health.probe("writer", Pace::default(), move || {
                let ready = status.ready();
                async move { ready }
            });
            *self.starting.lock() = None;
        }
        let ended = tokio::select! {
            () = shutdown.begun() => Ok(()),
            ended = ended(&mut writer) => ended,
        };
        if ended.is_err() {
            writer = None;
        }
        let report = self.shut_down(&shutdown, log, writer).await;
        ended?;
        Ok(report)
    }

    async fn shut_down(
        self,
        shutdown: &Shutdown,
        log: Option<Log>,
        writer: Option<OrderWriter>,
    ) -> Report {
        let patience = self.config.writer.shutdown_timeout;
        let mut steps = shutdown.steps();
        let health = self.health.clone();
        steps
            .run("readiness", STEP_MAX, async { health.shut_down() })
            .await;
        if let Some(writer) = writer {
            steps.try_run("writer", patience, writer.stop()).await;
        }
        if let Some(log) = log {
            steps.run("log", STEP_MAX, log.close(STEP_MAX)).await;
        }
        steps
            .run("database", STEP_MAX, self.store.close(STEP_MAX))
            .await;
        steps.run("ops", STEP_MAX, self.ops.stop()).await;
        steps.finish()
    }

    /// Brings the schema up to date and opens the log, for as long as it takes.
    async fn open(&self) -> Result<Log, AppError> {
        let mut backoff = Backoff::new(self.config.writer.backoff_max);
        if self.config.writer.migrate {
            self.migrate(&mut backoff).await?;
        }
        backoff.succeeded();
        self.open_log(&self.config.log, &mut backoff).await
    }

    async fn migrate(&self, backoff: &mut Backoff) -> Result<(), AppError> {
        loop {
            match self.store.migrate().await {
                Ok(_) => return Ok(()),
                Err(StoreError::Transient(error)) => self.wait(&error, backoff).await,
                Err(error) => return Err(AppError::Migrate(error)),
            }
        }
    }

    /// The log is opened for reading alone: beside a gateway that writes the same file, too.
    async fn open_log(&self, config: &LogConfig, backoff: &mut Backoff) -> Result<Log, AppError> {
        loop {
            match Log::open_read_only(config).await {
                Ok(log) => return Ok(log),
                Err(error @ (LogOpenError::Unreachable { .. } | LogOpenError::Missing { .. })) => {
                    self.wait(&error, backoff).await;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    async fn wait(&self, error: &impl std::fmt::Display, backoff: &mut Backoff) {
        let pause = backoff.failed();
        tracing::warn!(%error, ?pause, "not started yet, trying again");
        *self.starting.lock() = Some(error.to_string());
        tokio::time::sleep(pause).await;
    }
}

async fn ended(writer: &mut Option<OrderWriter>) -> Result<(), RunError> {
    match writer {
        Some(writer) => writer.ended().await,
        None => std::future::pending().await,
    }
}
