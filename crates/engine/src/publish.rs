//! Publishing events to the log. An event whose publication fails is still in Redis' outbox,
//! from where the relay, here or in another gateway, publishes it again.

use crate::metrics::{Metrics, PublishOutcome};
use crate::session::Session;
use bytes::Bytes;
use dropgate_domain::Seq;
use dropgate_stream::{AppendError, Lane, Log, Refused};
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
    failed: Arc<Mutex<Option<Failed>>>,
}

/// The last publication that failed, with no success since.
#[derive(Debug)]
struct Failed {
    at: Instant,
    /// No other one will succeed.
    lasting: bool,
    error: String,
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

    /// Begins to publish an event of the session's generation. False when it does not: the event
    /// is being published, or too many are.
    pub fn publish(&self, session: &Arc<Session>, lane: Lane, seq: Seq, event: Bytes) -> bool {
        let Ok(permit) = Arc::clone(&self.permits).try_acquire_owned() else {
            self.metrics.published(PublishOutcome::Deferred);
            return false;
        };
        if !session.begin_publish(seq) {
            return false;
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
                None => {
                    if failed.take().is_some() {
                        session.relay_all();
                    }
                }
                Some(error) => {
                    if failed.is_none() {
                        tracing::warn!(%error, "an event could not be published");
                    }
                    let lasting = matches!(error, AppendError::Refused(Refused::Broken(_)));
                    *failed = Some(Failed {
                        at: Instant::now(),
                        lasting,
                        error: error.to_string(),
                    });
                }
            }
        });
        true
    }

    /// Why publishing does not work at present, if so.
    pub fn trouble(&self) -> Option<String> {
        let failed = self.failed.lock();
        let failed = failed.as_ref()?;
        let lasts = failed.lasting || failed.at.elapsed() < TROUBLE_LASTS;
        lasts.then(|| failed.error.clone())
    }

    /// Whether publishing will never work again in this process.
    pub fn is_broken(&self) -> bool {
        self.failed
            .lock()
            .as_ref()
            .is_some_and(|failed| failed.lasting)
    }

    /// Waits for what is in flight. Cancel safe: what is left goes on.
    pub async fn drain(&self) {
        self.tasks.close();
        self.tasks.wait().await;
    }
}
