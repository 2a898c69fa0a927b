//! Publishing events to the log. An event whose publication fails is still in Redis' outbox,
//! from where the relay, here or in another gateway, publishes it again.
//!
//! A failure opens a breaker: a gateway that cannot publish takes no claims, since each would only
//! wait. The event that failed is then published again, by itself, until that succeeds: this
//! closes the breaker. Twice is harmless, so the probe is a real publication and nothing else.

use crate::metrics::{Metrics, PublishOutcome};
use crate::session::Session;
use bytes::Bytes;
use dropgate_domain::Seq;
use dropgate_stream::{AppendError, Lane, Log, Refused};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// The pause before a probe, doubled from the first to the second.
const PROBE_PAUSE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));

/// Publishes in tasks of its own, so that a claim whose client went away is published all the
/// same. Bounded in number; stopped by its engine.
#[derive(Debug)]
pub(crate) struct Publisher {
    permits: Arc<Semaphore>,
    tasks: TaskTracker,
    channel: Channel,
}

/// What a publication needs. Clones share all of it.
#[derive(Debug, Clone)]
struct Channel {
    log: Log,
    metrics: Metrics,
    breaker: Arc<Breaker>,
    draining: CancellationToken,
}

/// Open from a failure until a publication succeeds.
#[derive(Debug, Default)]
struct Breaker {
    /// Why it is open, if it is.
    open: Mutex<Option<String>>,
    /// How often it was closed.
    closed: AtomicU64,
}

impl Publisher {
    pub fn new(log: Log, in_flight_max: usize, metrics: Metrics) -> Self {
        Self {
            permits: Arc::new(Semaphore::new(in_flight_max)),
            tasks: TaskTracker::new(),
            channel: Channel {
                log,
                metrics,
                breaker: Arc::default(),
                draining: CancellationToken::new(),
            },
        }
    }

    /// Begins to publish an event of the session's generation. False when it does not: the event
    /// is being published, or too many are.
    pub fn publish(&self, session: &Arc<Session>, lane: Lane, seq: Seq, event: Bytes) -> bool {
        let Ok(permit) = Arc::clone(&self.permits).try_acquire_owned() else {
            self.channel.metrics.published(PublishOutcome::Deferred);
            return false;
        };
        if !session.begin_publish(seq) {
            return false;
        }
        let (channel, session) = (self.channel.clone(), Arc::clone(session));
        self.tasks.spawn(async move {
            let _permit = permit;
            let sent = channel.append(lane, event.clone()).await;
            session.end_publish(seq);
            if sent == Sent::Failed {
                channel.probe(lane, event).await;
            }
        });
        true
    }

    /// Why nothing is published at present, if so.
    pub fn trouble(&self) -> Option<String> {
        self.channel.breaker.open.lock().clone()
    }

    /// How often publishing has begun to work again.
    pub fn reopened(&self) -> u64 {
        self.channel.breaker.closed.load(Ordering::Acquire)
    }

    /// Ends the probes and waits for what is in flight. Cancel safe: what is left goes on.
    pub async fn drain(&self) {
        self.channel.draining.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }
}

/// How a publication ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sent {
    /// Acknowledged, or left to the relay, or somebody else probes already.
    Done,
    /// It failed, and it is this one's task to find out when it works again.
    Failed,
}

impl Channel {
    async fn append(&self, lane: Lane, event: Bytes) -> Sent {
        match self.log.append(lane, event).await {
            Ok(_) => {
                self.metrics.published(PublishOutcome::Acknowledged);
                if self.breaker.close() {
                    self.metrics.breaker_open.set(0);
                    tracing::info!("events can be published again");
                }
                Sent::Done
            }
            // Not a failure of the log: others are on their way, and their fate will tell.
            Err(AppendError::Refused(Refused::Busy)) => {
                self.metrics.published(PublishOutcome::Deferred);
                Sent::Done
            }
            Err(error) => {
                self.metrics.published(match error {
                    AppendError::Refused(_) => PublishOutcome::Refused,
                    AppendError::Unknown(_) => PublishOutcome::Unknown,
                });
                if !self.breaker.open(&error.to_string()) {
                    return Sent::Done;
                }
                tracing::warn!(%error, "an event could not be published");
                self.metrics.breaker_open.set(1);
                self.metrics.breaker_opened.inc();
                Sent::Failed
            }
        }
    }

    /// Publishes the event again until the breaker is closed, by this or by another publication
    /// that was on its way; or until the publisher is drained.
    async fn probe(&self, lane: Lane, event: Bytes) {
        let mut pause = PROBE_PAUSE.0;
        while self.breaker.is_open() {
            // Jitter, so that all gateways do not come back at once.
            let jittered = pause.mul_f64(rand::random_range(0.5..1.0));
            tokio::select! {
                () = tokio::time::sleep(jittered) => {}
                () = self.draining.cancelled() => return,
            }
            self.append(lane, event.clone()).await;
            pause = (pause * 2).min(PROBE_PAUSE.1);
        }
    }
}

impl Breaker {
    /// False when it was open.
    fn open(&self, why: &str) -> bool {
        let mut open = self.open.lock();
        open.replace(why.to_owned()).is_none()
    }

    /// False when it was closed.
    fn close(&self) -> bool {
        let closes = self.open.lock().take().is_some();
        if closes {
            self.closed.fetch_add(1, Ordering::AcqRel);
        }
        closes
    }

    fn is_open(&self) -> bool {
        self.open.lock().is_some()
    }
}
