//! What all parts of an engine share: the connections, the sales as they are served, the halt.

use crate::admin::AdminError;
use crate::config::EngineConfig;
use crate::fold::Fold;
use crate::follow::Followed;
use crate::generation::now_ms;
use crate::handle::Served;
use crate::metrics::Metrics;
use crate::publish::Publisher;
use crate::session::Session;
use bytes::Bytes;
use dropgate_admission::{Admission, CallError, Operator};
use dropgate_domain::{Body, Event, Halted, Phase, SaleId};
use dropgate_events::encode_event;
use dropgate_stream::{AppendError, Lane, Log};
use parking_lot::{Mutex, RwLock};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// What all parts of an engine share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub config: EngineConfig,
    pub log: Log,
    pub admission: Admission,
    pub followed: Arc<Followed>,
    pub publisher: Publisher,
    pub metrics: Metrics,
    pub operator: Option<Operator>,
    /// Who this is, in halts: for people.
    pub instance: String,
    pub served: RwLock<HashMap<SaleId, Arc<Served>>>,
    /// Why Redis is not fit, as it said last; `None` before it said anything.
    pub policy: RwLock<Option<Vec<String>>>,
    pub warned: Mutex<HashSet<(SaleId, String)>>,
    pub stop: CancellationToken,
    pub tasks: TaskTracker,
}

impl Shared {
    pub fn new(
        config: EngineConfig,
        instance: String,
        log: Log,
        fold: &Fold,
        admission: Admission,
        operator: Option<Operator>,
        metrics: Metrics,
    ) -> Self {
        Self {
            followed: Arc::new(Followed::new(fold)),
            publisher: Publisher::new(log.clone(), config.publish_in_flight_max, metrics.clone()),
            log,
            admission,
            metrics,
            operator,
            instance,
            served: RwLock::default(),
            policy: RwLock::new(None),
            warned: Mutex::default(),
            stop: CancellationToken::new(),
            tasks: TaskTracker::new(),
            config,
        }
    }

    pub fn served(&self, id: &SaleId) -> Option<Arc<Served>> {
        if let Some(served) = self.served.read().get(id) {
            return Some(Arc::clone(served));
        }
        let sale = self.followed.sale(id)?;
        let mut all = self.served.write();
        let served = all
            .entry(id.clone())
            .or_insert_with(|| Arc::new(Served::new(sale)));
        Some(Arc::clone(served))
    }

    pub fn operator(&self) -> Result<&Operator, AdminError> {
        self.operator
            .as_ref()
            .ok_or(AdminError::OperatorCredentialsMissing)
    }

    pub fn random(&self) -> Result<[u8; 16], AdminError> {
        let mut bytes = [0; 16];
        match getrandom::fill(&mut bytes) {
            Ok(()) => Ok(bytes),
            Err(error) => Err(AdminError::Unavailable(format!("no randomness: {error}"))),
        }
    }

    /// Appends a record. An outcome that is not known is none: reading the log will tell.
    pub async fn append(&self, lane: Lane, bytes: Bytes) -> Result<(), AdminError> {
        match self.log.append(lane, bytes).await {
            Ok(_) | Err(AppendError::Unknown(_)) => Ok(()),
            Err(error @ AppendError::Refused(_)) => {
                Err(AdminError::Unavailable(format!("log: {error}")))
            }
        }
    }

    /// Waits until the log that was read shows what is asked for. Cancel safe.
    pub async fn until<T>(
        &self,
        deadline: Instant,
        look: impl Fn() -> Option<T>,
    ) -> Result<T, AdminError> {
        let mut changes = self.followed.changes.subscribe();
        loop {
            if let Some(found) = look() {
                return Ok(found);
            }
            if let Some(why) = self.followed.ended.read().as_ref() {
                return Err(AdminError::Unavailable(format!("log: {why}")));
            }
            // Freshness changes without a record, so a look is due now and then all the same.
            let wake = deadline.min(Instant::now() + self.config.freshness_interval);
            if timeout_at(wake, changes.changed()).await.is_err() && wake == deadline {
                let what = "the log did not show it in time; ask again".to_owned();
                return Err(AdminError::Unavailable(what));
            }
        }
    }

    /// Stops the sale here at once, and everywhere by a record in the log. Voids nothing.
    pub fn halt(&self, served: &Served, session: &Arc<Session>, reason: &str) {
        if session.halt(reason) {
            tracing::error!(sale = %served.sale.id(), reason, "sale halted");
        }
        self.send_halt(served, session);
    }

    /// Redis says that it has forgotten. A master is believed, and the sale is halted everywhere;
    /// anything else (a replica, a server on its way out) keeps claims from being taken here until
    /// a tip agrees again.
    pub async fn suspect(&self, served: &Served, session: &Arc<Session>, error: &CallError) {
        if session.halted().is_some() {
            return;
        }
        session.disown();
        // One asks for all.
        let Ok(_asks) = session.suspecting.try_lock() else {
            return;
        };
        match self.admission.is_master(&session.scope).await {
            Ok(true) => self.halt(served, session, &error.to_string()),
            Ok(false) => tracing::warn!(sale = %served.sale.id(), %error, "not a master's word"),
            Err(unknown) => {
                tracing::warn!(sale = %served.sale.id(), %error, %unknown, "whose word is unknown");
            }
        }
    }

    /// Appends the halt of a session that is halted, unless it is in the log or on its way.
    pub fn send_halt(&self, served: &Served, session: &Arc<Session>) {
        let Some(reason) = session.halted() else {
            return;
        };
        // A halt that is in the log, or a sale that is over, needs no other.
        let current = served.sale.ledger().generation() == session.generation();
        if !current || !matches!(served.sale.phase(), Phase::Open) {
            return;
        }
        if session.halt_sent.swap(true, Ordering::AcqRel) {
            return;
        }
        let event = Event {
            sale: served.sale.id().clone(),
            generation: session.generation(),
            body: Body::Halted(Halted {
                reason: reason.to_owned(),
                at: Some(now_ms()),
                by: self.instance.clone(),
            }),
        };
        let (log, lane, session) = (self.log.clone(), served.lane(), Arc::clone(session));
        let halts = self.metrics.halts.clone();
        self.tasks.spawn(async move {
            match log.append(lane, encode_event(&event)).await {
                Ok(_) => {
                    halts.inc();
                }
                Err(error) => {
                    tracing::warn!(%error, "the halt could not be written; the next tip tries again");
                    session.halt_sent.store(false, Ordering::Release);
                }
            }
        });
    }

    /// Warns of what would otherwise be said at every call.
    pub fn warn_once(&self, sale: &SaleId, what: &str) {
        /// Distinct warnings remembered; beyond that all are forgotten and said again.
        const WARNINGS_MAX: usize = 1000;
        let mut warned = self.warned.lock();
        if warned.len() >= WARNINGS_MAX {
            warned.clear();
        }
        if warned.insert((sale.clone(), what.to_owned())) {
            tracing::warn!(%sale, what, "unexpected");
        }
    }

    pub fn gauge_backlog(&self) {
        let all = self.served.read();
        let (mut backlog, mut oldest_ms) = (0, 0);
        for session in all.values().filter_map(|served| served.session(self)) {
            backlog += session.backlog.load(Ordering::Acquire);
            oldest_ms = session
                .backlog_age_ms
                .load(Ordering::Acquire)
                .max(oldest_ms);
        }
        let gauged = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
        self.metrics.backlog.set(gauged(backlog));
        self.metrics.backlog_age_ms.set(gauged(oldest_ms));
    }
}
