//! Publishing events to the log. An event whose publication fails is still in Redis' outbox,
//! from where the relay, here or in another gateway, publishes it again.

use crate::metrics::{Metrics, PublishOutcome};
use crate::session::Session;
use bytes::Bytes;
use dropgate_domain::Seq;
use dropgate_stream::{AppendError, Lane, Log};
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

/// For so long after a failure, with no success since, publishing counts as troubled.
const TROUBLE_LASTS: Duration = Duration::from_secs(5);

/// Publishes in tasks of its own, so that a claim whose client went away is published all the
/// same. Bounded in number; stopped by its engine.
#[derive(Debug)]
pub(crate) struct Publisher {
    log: Log,
    permits: Arc<Semaphore>,
    tasks: TaskTracker,
    metrics: Metrics,
    failed: Arc<Mutex<Option<(Instant, String)>>>,
}

impl Publisher {
    pub fn new(log: Log, in_flight_max: usize, metrics: Metrics) -> Self {
        Self {
            log,
            permits: Arc::new(Semaphore::new(in_flight_max)),
            tasks: TaskTracker::new(),
            metrics,
            failed: Arc::default(),
        }
    }

    /// Begins to publish an event of the session's generation, unless it is being published.
    pub fn publish(&self, session: &Arc<Session>, lane: Lane, seq: Seq, event: Bytes) {
        let Ok(permit) = Arc::clone(&self.permits).try_acquire_owned() else {
            self.metrics.published(PublishOutcome::Deferred);
            return;
        };
        if !session.begin_publish(seq) {
            return;
        }
        let (log, session) = (self.log.clone(), Arc::clone(session));
        let (metrics, failed) = (self.metrics.clone(), Arc::clone(&self.failed));
        self.tasks.spawn(async move {
            let _permit = permit;
            let outcome = log.append(lane, event).await;
            session.end_publish(seq);
            let (outcome, error) = match outcome {
                Ok(_) => (PublishOutcome::Acknowledged, None),
                Err(error @ AppendError::Refused(_)) => (PublishOutcome::Refused, Some(error)),
                Err(error @ AppendError::Unknown(_)) => (PublishOutcome::Unknown, Some(error)),
            };
            metrics.published(outcome);
            let mut failed = failed.lock();
            match error {
                None => *failed = None,
                Some(error) => {
                    if failed.is_none() {
                        tracing::warn!(%error, "an event could not be published");
                    }
                    *failed = Some((Instant::now(), error.to_string()));
                }
            }
        });
    }

    /// Why publishing does not work at present, if so.
    pub fn trouble(&self) -> Option<String> {
        let failed = self.failed.lock();
        let (at, error) = failed.as_ref()?;
        (at.elapsed() < TROUBLE_LASTS).then(|| error.clone())
    }

    /// Waits for what is in flight. Cancel safe: what is left goes on.
    pub async fn drain(&self) {
        self.tasks.close();
        self.tasks.wait().await;
    }
}
