//! Plays the load balancer in front of the targets: asks each whether it is
//! ready, and sends nobody to one that is not while another is.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Context as _;
use bytes::Bytes;
use http_body_util::Full;
use hyper::header::HOST;
use hyper::{Request, Uri};
use serde::Serialize;

use crate::client::Link;
use crate::target::Target;

/// How long a question for readiness may take; then the answer is no.
const ANSWER_MAX: Duration = Duration::from_secs(1);

/// A target became ready, or unready.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Change {
    /// When it was noticed, in Unix milliseconds.
    pub at_ms: u64,
    /// The base URL of the target.
    pub target: String,
    /// Whether it is ready from then on.
    pub ready: bool,
}

/// What is known of the targets. All begin as ready.
#[derive(Debug)]
pub struct Balancer {
    ready: Vec<AtomicBool>,
    changes: Mutex<Vec<Change>>,
}

impl Balancer {
    /// For so many targets.
    #[must_use]
    pub fn new(targets: usize) -> Self {
        Self {
            ready: (0..targets).map(|_| AtomicBool::new(true)).collect(),
            changes: Mutex::default(),
        }
    }

    /// Where the plan's `nth` connection goes now: to its own target while that
    /// is ready, else to one that is, else to its own after all.
    #[must_use]
    pub fn target_of(&self, nth: usize) -> usize {
        let count = self.ready.len().max(1);
        let own = nth % count;
        let is_ready = |&at: &usize| {
            let ready = self.ready.get(at);
            ready.is_some_and(|ready| ready.load(Ordering::Relaxed))
        };
        if is_ready(&own) {
            return own;
        }
        let others: Vec<_> = (0..count).filter(is_ready).collect();
        let turn = nth / count % others.len().max(1);
        others.get(turn).copied().unwrap_or(own)
    }

    /// What changed so far, in the order of time.
    #[must_use]
    pub fn changes(&self) -> Vec<Change> {
        self.changes
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn learn(&self, at: usize, target: &Target, ready: bool) {
        let Some(known) = self.ready.get(at) else {
            return;
        };
        if known.swap(ready, Ordering::Relaxed) == ready {
            return;
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let at_ms = now.map_or(0, |now| u64::try_from(now.as_millis()).unwrap_or(u64::MAX));
        let mut changes = self.changes.lock().unwrap_or_else(PoisonError::into_inner);
        changes.push(Change {
            at_ms,
            target: target.base.clone(),
            ready,
        });
    }
}

/// The thread that asks; it ends with this value.
#[derive(Debug)]
pub struct Asking {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Asking {
    /// Asks every target at its readiness URL, at this interval.
    ///
    /// # Errors
    /// When there is no thread or runtime for it, or a URL's path is none.
    pub fn start(
        balancer: &Arc<Balancer>,
        targets: &[Arc<Target>],
        urls: &[Target],
        every: Duration,
    ) -> anyhow::Result<Self> {
        let over = Arc::new(AtomicBool::new(false));
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let mut questions = Vec::new();
        for (at, (target, url)) in targets.iter().zip(urls).enumerate() {
            questions.push(Question {
                at,
                target: Arc::clone(target),
                url: Arc::new(url.clone()),
                path: url.path().context("a readiness URL")?,
                every,
                balancer: Arc::clone(balancer),
                over: Arc::clone(&over),
            });
        }
        let run = async move {
            let set: Vec<_> = questions
                .into_iter()
                .map(|q| tokio::spawn(q.ask()))
                .collect();
            for task in set {
                // A task that failed has asked for the last time, no more.
                let _ = task.await;
            }
        };
        let thread = std::thread::Builder::new()
            .name("balancer".to_owned())
            .spawn(move || runtime.block_on(run))?;
        Ok(Self {
            over,
            thread: Some(thread),
        })
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // Within a question and a pause.
            let _ = thread.join();
        }
    }
}

struct Question {
    at: usize,
    target: Arc<Target>,
    url: Arc<Target>,
    path: Uri,
    every: Duration,
    balancer: Arc<Balancer>,
    over: Arc<AtomicBool>,
}

impl Question {
    async fn ask(self) {
        let any_source = std::net::Ipv4Addr::UNSPECIFIED;
        let mut link = Link::new(Arc::clone(&self.url), any_source);
        while !self.over.load(Ordering::Relaxed) {
            let mut request = Request::new(Full::new(Bytes::new()));
            *request.uri_mut() = self.path.clone();
            request.headers_mut().insert(HOST, self.url.host.clone());
            let answer = link.exchange(request, ANSWER_MAX).await;
            let ready = answer.is_ok_and(|answer| answer.status == 200);
            self.balancer.learn(self.at, &self.target, ready);
            tokio::time::sleep(self.every).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn balancer(ready: &[bool]) -> Balancer {
        let target: Target = "http://127.0.0.1:1".parse().unwrap();
        let balancer = Balancer::new(ready.len());
        for (at, &ready) in ready.iter().enumerate() {
            balancer.learn(at, &target, ready);
        }
        balancer
    }

    #[test]
    fn connections_keep_their_own_target_while_it_is_ready() {
        let balancer = balancer(&[true, true]);
        let to: Vec<_> = (0..4).map(|nth| balancer.target_of(nth)).collect();
        assert_eq!(to, [0, 1, 0, 1]);
        assert!(balancer.changes().is_empty());
    }

    #[test]
    fn those_of_an_unready_one_are_spread_over_the_others() {
        let balancer = balancer(&[true, false, true]);
        let to: Vec<_> = (0..9).map(|nth| balancer.target_of(nth)).collect();
        assert_eq!(to, [0, 0, 2, 0, 2, 2, 0, 0, 2]);
        assert_eq!(balancer.changes().len(), 1);
    }

    #[test]
    fn with_none_ready_nothing_is_turned() {
        let balancer = balancer(&[false, false]);
        let to: Vec<_> = (0..4).map(|nth| balancer.target_of(nth)).collect();
        assert_eq!(to, [0, 1, 0, 1]);
    }
}
