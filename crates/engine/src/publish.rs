//! Publishing events to the log. An event whose publication fails is still in Redis' outbox,
//! from where the relay, here or in another gateway, publishes it again.
//!
//! A failure opens the breaker of its partition: where a gateway cannot publish it takes no claims,
//! since each would only wait. The event that failed is then published again, by itself, until that succeeds: this
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
    breakers: Arc<Breakers>,
    draining: CancellationToken,
}

/// One breaker for each lane that was published to: open from a failure until a publication
/// succeeds. As many as there are partitions.
#[derive(Debug, Default)]
struct Breakers {
    /// Why each is open, if it is.
    open: Mutex<Vec<(Lane, Option<String>)>>,
    /// How often one was closed.
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
                breakers: Arc::default(),
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

    /// Why nothing is published to this lane at present, if so.
    pub fn trouble(&self, lane: Lane) -> Option<String> {
        self.channel.breakers.why(lane)
    }

    /// Why nothing is published to any lane that this process has published to, if so: one
    /// partition without a leader is no reason to send no claims of others here.
    pub fn trouble_everywhere(&self) -> Option<String> {
        self.channel.breakers.why_everywhere()
    }

    /// How often publishing has begun to work again.
    pub fn reopened(&self) -> u64 {
        self.channel.breakers.closed.load(Ordering::Acquire)
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
                if self.breakers.set(lane, None) {
                    self.breakers.closed.fetch_add(1, Ordering::AcqRel);
                    self.metrics.breakers_open.dec();
                    tracing::info!(%lane, "events can be published again");
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
                if self.breakers.set(lane, Some(error.to_string())) {
                    return Sent::Done;
                }
                tracing::warn!(%lane, %error, "an event could not be published");
                self.metrics.breakers_open.inc();
                self.metrics.breaker_opened.inc();
                Sent::Failed
            }
        }
    }

    /// Publishes the event again until the breaker is closed, by this or by another publication
    /// that was on its way; or until the publisher is drained.
    async fn probe(&self, lane: Lane, event: Bytes) {
        let mut pause = PROBE_PAUSE.0;
        while self.breakers.why(lane).is_some() {
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

impl Breakers {
    fn why(&self, lane: Lane) -> Option<String> {
        let open = self.open.lock();
        let this = open.iter().find(|(other, _)| *other == lane);
        this.and_then(|(_, why)| why.clone())
    }

    /// The first reason, when all are open.
    fn why_everywhere(&self) -> Option<String> {
        let open = self.open.lock();
        let mut all = open.iter().map(|(_, why)| why);
        let first = all.next().cloned().flatten();
        first.filter(|_| all.all(Option::is_some))
    }

    /// Opens a lane's breaker, for a reason, or closes it; whether it was open.
    fn set(&self, lane: Lane, why: Option<String>) -> bool {
        let mut open = self.open.lock();
        match open.iter_mut().find(|(other, _)| *other == lane) {
            Some((_, this)) => std::mem::replace(this, why).is_some(),
            None => {
                open.push((lane, why));
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dropgate_domain::PartitionId;

    #[test]
    fn one_partition_in_trouble_leaves_the_others_alone() {
        let lane = |n| Lane::Claims(PartitionId(n));
        let breakers = Breakers::default();
        assert_eq!(breakers.why_everywhere(), None, "nothing was published yet");
        let no_leader = || Some("no leader".to_owned());
        assert!(!breakers.set(lane(1), no_leader()), "it was closed");
        assert!(breakers.set(lane(1), no_leader()), "it was open");
        assert_eq!(breakers.why(lane(1)), no_leader());
        assert_eq!(breakers.why_everywhere(), no_leader(), "it is the only one");
        breakers.set(lane(2), None);
        assert_eq!(breakers.why(lane(2)), None);
        assert_eq!(breakers.why_everywhere(), None);
        assert!(breakers.set(lane(1), None), "it was open");
        assert_eq!(breakers.why(lane(1)), None);
    }
}
