//! Readiness: named probes that are asked in the background, and a switch that is off at
//! shutdown.
//!
//! A readiness question is answered from the last result of each probe and costs nothing: a
//! load balancer that asks often, or a probe that hangs, cannot take the service down.

use parking_lot::Mutex;
use serde::Serialize;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// How often a probe is asked and how long it may take.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    /// The pause between two questions.
    pub every: Duration,
    /// A question that takes longer than this counts as failed.
    pub timeout: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            every: Duration::from_millis(500),
            timeout: Duration::from_secs(2),
        }
    }
}

/// Why a service is not ready.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Reason {
    /// The probe that says so.
    pub probe: &'static str,
    /// What is wrong, for people. Probes put no secrets here.
    pub reason: String,
}

/// What `/readyz` says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Readiness {
    /// Whether requests may be sent here.
    pub ready: bool,
    /// Why not; empty when ready.
    pub reasons: Vec<Reason>,
}

#[derive(Debug)]
struct Probed {
    name: &'static str,
    pace: Pace,
    last: Mutex<Last>,
}

#[derive(Debug)]
struct Last {
    at: Instant,
    reasons: Vec<String>,
}

/// The readiness of a service. Clones are the same one; when the last is dropped, the probes stop.
#[derive(Debug, Clone)]
pub struct Health(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    probes: Mutex<Vec<Arc<Probed>>>,
    tasks: Mutex<JoinSet<()>>,
    shutting_down: AtomicBool,
}

impl Default for Health {
    fn default() -> Self {
        Self::new()
    }
}

impl Health {
    /// A service without probes: ready.
    #[must_use]
    pub fn new() -> Self {
        Self(Arc::new(Inner {
            probes: Mutex::new(Vec::new()),
            tasks: Mutex::new(JoinSet::new()),
            shutting_down: AtomicBool::new(false),
        }))
    }

    /// Asks `question` from now on, in a task of its own on the runtime of the caller. Until its
    /// first answer the service is not ready.
    ///
    /// `question` says every reason why not. It is dropped when its time is up, so it must be
    /// cancel safe.
    pub fn probe<F, Fut>(&self, name: &'static str, pace: Pace, question: F)
    where
        F: Fn() -> Fut + Send + 'static,
        Fut: Future<Output = Result<(), Vec<String>>> + Send,
    {
        let probed = Arc::new(Probed {
            name,
            pace,
            last: Mutex::new(Last {
                at: Instant::now(),
                reasons: vec!["not asked yet".into()],
            }),
        });
        self.0.probes.lock().push(Arc::clone(&probed));
        self.0.tasks.lock().spawn(async move {
            loop {
                let reasons = match tokio::time::timeout(pace.timeout, question()).await {
                    Ok(Ok(())) => Vec::new(),
                    Ok(Err(reasons)) => reasons,
                    Err(_) => vec![format!("no answer in {} ms", pace.timeout.as_millis())],
                };
                let at = Instant::now();
                *probed.last.lock() = Last { at, reasons };
                tokio::time::sleep(pace.every).await;
            }
        });
    }

    /// Not ready from now on, whatever the probes say: the first step of a shutdown.
    pub fn shut_down(&self) {
        self.0.shutting_down.store(true, Ordering::Release);
    }

    /// The readiness by the last answers. Does no I/O and does not wait.
    #[must_use]
    pub fn readiness(&self) -> Readiness {
        let mut reasons = Vec::new();
        if self.0.shutting_down.load(Ordering::Acquire) {
            reasons.push(Reason {
                probe: "shutdown",
                reason: "shutting down".into(),
            });
        }
        for probed in self.0.probes.lock().iter() {
            reasons.extend(probed.reasons());
        }
        Readiness {
            ready: reasons.is_empty(),
            reasons,
        }
    }
}

impl Probed {
    fn reasons(&self) -> Vec<Reason> {
        let last = self.last.lock();
        let mut texts = last.reasons.clone();
        // A task that no longer runs (a panic, a stuck runtime) must not look healthy for ever.
        let age_max = 4 * (self.pace.every + self.pace.timeout);
        if texts.is_empty() && last.at.elapsed() > age_max {
            texts.push("its last answer is too old".into());
        }
        let reason = |reason| Reason {
            probe: self.name,
            reason,
        };
        texts.into_iter().map(reason).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAST: Pace = Pace {
        every: Duration::from_millis(5),
        timeout: Duration::from_millis(20),
    };

    async fn until(health: &Health, what: impl Fn(&Readiness) -> bool) -> Readiness {
        let wait = async {
            loop {
                let readiness = health.readiness();
                if what(&readiness) {
                    return readiness;
                }
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        match tokio::time::timeout(Duration::from_secs(20), wait).await {
            Ok(readiness) => readiness,
            Err(_) => panic!("last seen: {:?}", health.readiness()),
        }
    }

    #[tokio::test]
    async fn ready_only_after_every_probe_has_said_so() {
        let health = Health::new();
        let good = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&good);
        health.probe("log", FAST, move || {
            let good = seen.load(Ordering::Acquire);
            async move {
                if good {
                    Ok(())
                } else {
                    Err(vec!["behind".into(), "stale".into()])
                }
            }
        });
        assert_eq!(health.readiness().reasons[0].reason, "not asked yet");
        let bad = until(&health, |r| r.reasons.len() == 2).await;
        assert_eq!(bad.reasons[0].probe, "log");
        assert_eq!(bad.reasons[0].reason, "behind");
        good.store(true, Ordering::Release);
        until(&health, |r| r.ready).await;
    }

    #[tokio::test]
    async fn a_probe_that_hangs_fails_and_is_asked_again() {
        let health = Health::new();
        health.probe("redis", FAST, std::future::pending);
        until(&health, |r| {
            r.reasons.iter().any(|r| r.reason.starts_with("no answer"))
        })
        .await;
    }

    #[tokio::test]
    async fn a_shutdown_is_never_ready_again() {
        let health = Health::new();
        assert!(health.readiness().ready);
        health.shut_down();
        assert_eq!(health.readiness().reasons[0].probe, "shutdown");
    }

    #[tokio::test]
    async fn probes_stop_with_their_owner() {
        let health = Health::new();
        let alive = Arc::new(());
        let held = Arc::clone(&alive);
        health.probe("x", FAST, move || {
            let _held = &held;
            async { Ok(()) }
        });
        until(&health, |r| r.ready).await;
        drop(health);
        let gone = async {
            while Arc::strong_count(&alive) > 1 {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), gone)
            .await
            .expect("the task still runs");
    }
}
