//! The engine: everything that runs for a gateway's sales, started and stopped as one.

use crate::config::EngineConfig;
use crate::fold::{Fold, FoldError};
use crate::follow::{ask_freshness, follow};
use crate::handle::SaleHandle;
use crate::metrics::Metrics;
use crate::shared::Shared;
use crate::tip::watch_tip;
use dropgate_admission::{Admission, Operator, RedisConfig};
use dropgate_domain::SaleId;
use dropgate_stream::Log;
use prometheus_client::registry::Registry;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// How often Redis is asked whether its settings are fit for a sale.
const POLICY_INTERVAL: Duration = Duration::from_secs(5);

/// For how long a log that does not answer is asked again at the start.
const START_PATIENCE: Duration = Duration::from_secs(20);

/// The pause between two such questions.
const START_PAUSE: Duration = Duration::from_millis(500);

/// Why an engine could not be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The log cannot be read.
    #[error("the log cannot be read: {0}")]
    Log(#[from] FoldError),
}

/// Follows the log, publishes, watches the tips, and opens sales. Clones are the same engine.
#[derive(Debug, Clone)]
pub struct Engine {
    shared: Arc<Shared>,
}

impl Engine {
    /// Starts the engine: reads the index, then follows in tasks of its own until
    /// [`Engine::shutdown`]. `operator` are the credentials that may open a sale, if this
    /// process has them; `instance` names it in halts.
    ///
    /// # Errors
    /// The log does not answer, or is not one that can be folded. Redis may come later.
    pub async fn start(
        config: EngineConfig,
        instance: String,
        log: Log,
        admission: Admission,
        operator: Option<RedisConfig>,
        registry: &mut Registry,
    ) -> Result<Self, StartError> {
        let fold = open_fold(&log).await?;
        let metrics = Metrics::register(registry);
        let operator = operator.map(Operator::new);
        let shared = Shared::new(config, instance, log, &fold, admission, operator, metrics);
        let shared = Arc::new(shared);
        let engine = Self { shared };
        engine.spawn(fold);
        Ok(engine)
    }

    fn spawn(&self, fold: Fold) {
        let shared = &self.shared;
        let stop = || shared.stop.clone();
        let followed = || Arc::clone(&shared.followed);
        let tasks = &shared.tasks;
        tasks.spawn(follow(fold, followed(), shared.metrics.clone(), stop()));
        let interval = shared.config.freshness_interval;
        tasks.spawn(ask_freshness(
            shared.log.clone(),
            followed(),
            interval,
            stop(),
        ));
        tasks.spawn(watch_sales(Arc::clone(shared), stop()));
        tasks.spawn(watch_policy(Arc::clone(shared), stop()));
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// A sale of the index.
    #[must_use]
    pub fn sale(&self, id: &SaleId) -> Option<SaleHandle> {
        let served = self.shared.served(id)?;
        Some(SaleHandle {
            shared: Arc::clone(&self.shared),
            served,
        })
    }

    /// All sales of the index, by id.
    #[must_use]
    pub fn sales(&self) -> Vec<SaleHandle> {
        let mut ids: Vec<SaleId> = self.shared.followed.sales.read().keys().cloned().collect();
        ids.sort();
        ids.iter().filter_map(|id| self.sale(id)).collect()
    }

    /// Changes whenever something was read from the log, for those who look again then.
    #[must_use]
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.shared.followed.changes.subscribe()
    }

    /// What the engine counts.
    #[must_use]
    pub fn metrics(&self) -> &Metrics {
        &self.shared.metrics
    }

    /// Every reason why claims should not be sent here now. Does no I/O.
    ///
    /// # Errors
    /// The reasons.
    pub fn ready(&self) -> Result<(), Vec<String>> {
        let shared = &self.shared;
        let mut reasons = Vec::new();
        if let Some(why) = shared.followed.ended.read().as_ref() {
            reasons.push(format!("the log can no longer be followed: {why}"));
        } else {
            if let Some(why) = shared.followed.trouble.read().as_ref() {
                reasons.push(format!("the log cannot be read: {why}"));
            }
            match shared.followed.fresh.age_max() {
                Some(age) if age <= shared.config.fresh_for => {}
                Some(age) => reasons.push(format!(
                    "the log was last read to its end {:.1} s ago",
                    age.as_secs_f64()
                )),
                None => reasons.push("the log has not been read to its end yet".to_owned()),
            }
        }
        if let Some(why) = shared.publisher.trouble_everywhere() {
            reasons.push(format!("events cannot be published: {why}"));
        }
        match shared.policy.read().as_ref() {
            None => reasons.push("redis has not answered yet".to_owned()),
            Some(problems) => reasons.extend(problems.iter().cloned()),
        }
        if reasons.is_empty() {
            Ok(())
        } else {
            Err(reasons)
        }
    }

    /// Stops following and waits for the publications in flight. Bounded by the caller's
    /// deadline: cancel safe, what is left then is in the outbox.
    pub async fn shutdown(&self) {
        self.shared.publisher.drain().await;
        self.shared.stop.cancel();
        self.shared.tasks.close();
        self.shared.tasks.wait().await;
        if let Some(operator) = &self.shared.operator {
            operator.shutdown().await;
        }
    }
}

/// Opens the reader, asking again for a while: a busy broker may be late with its first answers.
async fn open_fold(log: &Log) -> Result<Fold, FoldError> {
    let deadline = Instant::now() + START_PATIENCE;
    loop {
        match Fold::open(log).await {
            Err(error) if error.is_transient() && Instant::now() < deadline => {
                tracing::warn!(%error, "the log does not answer yet");
                tokio::time::sleep(START_PAUSE).await;
            }
            other => return other,
        }
    }
}

/// Watches the tip of each sale that has begun and is not over.
async fn watch_sales(shared: Arc<Shared>, stop: CancellationToken) {
    let mut begun = shared.followed.begun.subscribe();
    let mut gauge = tokio::time::interval(shared.config.tip_interval);
    loop {
        let ids: Vec<SaleId> = shared.followed.sales.read().keys().cloned().collect();
        for served in ids.iter().filter_map(|id| shared.served(id)) {
            let session = served.session(&shared);
            let due = session
                .as_ref()
                .is_some_and(|s| !s.settled.load(Ordering::Acquire));
            if session.is_some_and(|s| !s.ever_agreed()) {
                served.ask_tip.notify_one();
            }
            if due && !served.watched.swap(true, Ordering::AcqRel) {
                let task = watch_tip(Arc::clone(&shared), served, stop.clone());
                shared.tasks.spawn(task);
            }
        }
        loop {
            tokio::select! {
                changed = begun.changed() => match changed {
                    Ok(()) => break,
                    Err(_) => return,
                },
                _ = gauge.tick() => shared.gauge_backlog(),
                () = stop.cancelled() => return,
            }
        }
    }
}

/// Asks Redis now and then whether its settings are fit for a sale.
async fn watch_policy(shared: Arc<Shared>, stop: CancellationToken) {
    loop {
        let problems = match shared.admission.problems().await {
            Ok(problems) => problems,
            Err(error) => vec![format!("redis: {error}")],
        };
        let pause = if problems.is_empty() {
            POLICY_INTERVAL
        } else {
            POLICY_INTERVAL / 5
        };
        *shared.policy.write() = Some(problems);
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = stop.cancelled() => return,
        }
    }
}
