//! The gateway's follower: reads the log's tail into the ledgers, and asks the log how far it is.

use crate::fold::{Fold, Judged};
use crate::fresh::Freshness;
use crate::metrics::Metrics;
use crate::sale::Sale;
use dropgate_domain::{Fed, Incarnation, LogId, Nonce, SaleId, What};
use dropgate_stream::{Lane, Log, LogError};
use parking_lot::RwLock;
use rand::RngExt;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;

/// How long a step waits for a record before it looks whether it is to end.
const STEP_WAIT: Duration = Duration::from_millis(500);
/// A topic that is missing for longer is gone: a broker that has just started may say so for a
/// moment of one that is there.
const MISSING_FOR: Duration = Duration::from_secs(5);
/// The pause after a transient error, doubled from the first to the second.
const PAUSE: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));

/// What the follower shares with all who ask.
#[derive(Debug)]
pub(crate) struct Followed {
    pub log_id: LogId,
    pub sales: RwLock<HashMap<SaleId, Arc<Sale>>>,
    pub fresh: Freshness,
    /// Grows with every step that judged something: for those who wait for what they appended.
    pub changes: watch::Sender<u64>,
    /// Grows when a sale is created or one of its generations begins.
    pub begun: watch::Sender<u64>,
    /// The nonce of the generation whose beginning was read last.
    pub newest_nonce: RwLock<Option<Nonce>>,
    /// Why nothing is followed any more, once that is so.
    pub ended: RwLock<Option<String>>,
    /// Why nothing could be read lately; `None` when the last step went well.
    pub trouble: RwLock<Option<String>>,
}

impl Followed {
    pub fn new(fold: &Fold) -> Self {
        let followed = Self {
            log_id: fold.log_id(),
            sales: RwLock::default(),
            fresh: Freshness::default(),
            changes: watch::Sender::new(0),
            begun: watch::Sender::new(0),
            newest_nonce: RwLock::new(None),
            ended: RwLock::new(None),
            trouble: RwLock::new(None),
        };
        let sales = fold
            .sales()
            .map(|sale| (sale.id().clone(), Arc::clone(sale)));
        followed.sales.write().extend(sales);
        followed.positions(fold);
        followed
    }

    pub fn sale(&self, id: &SaleId) -> Option<Arc<Sale>> {
        self.sales.read().get(id).cloned()
    }

    fn positions(&self, fold: &Fold) {
        for (lane, log, next) in fold.lanes() {
            self.fresh.read_to(lane, log, next);
        }
    }

    fn end(&self, why: &str) {
        tracing::error!(reason = why, "the log can no longer be followed");
        self.ended.write().get_or_insert_with(|| why.to_owned());
        self.changes.send_modify(|n| *n += 1);
    }
}

/// Reads until cancelled, or until the log turns out not to be the log.
pub(crate) async fn follow(
    mut fold: Fold,
    followed: Arc<Followed>,
    metrics: Metrics,
    stop: CancellationToken,
) {
    let mut pause = PAUSE.0;
    while !stop.is_cancelled() {
        match fold.step(STEP_WAIT).await {
            Ok(step) => {
                pause = PAUSE.0;
                *followed.trouble.write() = fold.unread();
                for (sale, judged) in &step.judged {
                    metrics.judged(judged);
                    report(sale.as_ref(), judged);
                }
                let mut begun = !step.created.is_empty();
                for (sale, applied) in &step.applied {
                    if applied.iter().any(|applied| applied.what == What::Started) {
                        let nonce = sale.ledger().current().map(Incarnation::nonce);
                        *followed.newest_nonce.write() = nonce;
                        begun = true;
                    }
                }
                let changed = !step.judged.is_empty() || !step.created.is_empty();
                if !step.created.is_empty() {
                    let mut sales = followed.sales.write();
                    sales.extend(step.created.into_iter().map(|s| (s.id().clone(), s)));
                }
                followed.positions(&fold);
                if changed {
                    followed.changes.send_modify(|n| *n += 1);
                }
                if begun {
                    followed.begun.send_modify(|n| *n += 1);
                }
            }
            Err(error) if error.is_transient() => {
                tracing::warn!(%error, "the log cannot be read now");
                *followed.trouble.write() = Some(error.to_string());
                // Jitter, so that all gateways do not come back at once.
                let jittered = pause.mul_f64(rand::rng().random_range(0.5..1.0));
                tokio::select! {
                    () = tokio::time::sleep(jittered) => {}
                    () = stop.cancelled() => {}
                }
                pause = (pause * 2).min(PAUSE.1);
            }
            Err(error) => return followed.end(&error.to_string()),
        }
    }
}

fn report(sale: Option<&SaleId>, judged: &Judged) {
    let sale = sale.map_or("", SaleId::as_str);
    match judged {
        Judged::Fed(Fed::Ended(cause)) => {
            tracing::error!(sale, %cause, "generation ended: redis lost writes");
        }
        Judged::Fed(Fed::Halted) => tracing::warn!(sale, "halt read"),
        Judged::Fed(Fed::Started(generation)) => {
            tracing::info!(sale, %generation, "generation started");
        }
        Judged::GaveUp(why) => tracing::error!(sale, %why, "sale can no longer be followed"),
        Judged::Foreign => tracing::debug!(sale, "record of a sale that is not pinned here"),
        Judged::Fed(_) => {}
    }
}

/// Asks each lane that is read, in a task of its own: one that is slow to answer does not make
/// the others look stale.
pub(crate) async fn ask_freshness(
    log: Log,
    followed: Arc<Followed>,
    interval: Duration,
    stop: CancellationToken,
) {
    let mut asked = HashSet::new();
    let mut lanes = JoinSet::new();
    let mut ticks = tokio::time::interval(interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            // Dropping the set ends its tasks.
            () = stop.cancelled() => return,
        }
        for (lane, log_id) in followed.fresh.lanes() {
            if asked.insert(lane) {
                lanes.spawn(ask_lane(
                    log.clone(),
                    Arc::clone(&followed),
                    lane,
                    log_id,
                    interval,
                ));
            }
        }
    }
}

/// Asks one lane for its identity and end, at a fixed pace, on a client that does not fetch.
/// Returns when the log is not the log any more.
async fn ask_lane(
    log: Log,
    followed: Arc<Followed>,
    lane: Lane,
    log_id: LogId,
    interval: Duration,
) {
    let mut ticks = tokio::time::interval(interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut missing_since = None;
    loop {
        ticks.tick().await;
        let asked = Instant::now();
        match log.probe(lane).await {
            Ok(probe) if probe.log_id == log_id => {
                missing_since = None;
                followed.fresh.answered(lane, asked, probe.end);
            }
            Ok(probe) => {
                let is = probe.log_id;
                return followed.end(&format!("{lane}: the log was {log_id} and is now {is}"));
            }
            Err(error @ LogError::Missing { .. }) => {
                let since = *missing_since.get_or_insert(asked);
                if since.elapsed() > MISSING_FOR {
                    return followed.end(&error.to_string());
                }
            }
            Err(error) if error.is_transient() => {
                tracing::debug!(%error, %lane, "the log does not say how far it is");
            }
            Err(error) => return followed.end(&error.to_string()),
        }
    }
}
