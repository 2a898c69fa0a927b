//! What the writer says of itself, for readiness.

use crate::batch::Blocked;
use crate::metrics::{BlockedReason, Metrics};
use dropgate_domain::{Offset, PartitionId, SaleId};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The most sales that are named in the reasons; more are counted.
const NAMED_MAX: usize = 10;

/// The state of a writer. Clones show the same.
#[derive(Debug, Clone)]
pub struct Status(Arc<Mutex<Inner>>);

#[derive(Debug)]
struct Inner {
    /// Why it is not reading, if it is not.
    log: Option<String>,
    /// Why the last try at the database failed, if it did.
    database: Option<String>,
    /// By sale: why nothing more of it is written.
    blocked: BTreeMap<SaleId, (BlockedReason, String)>,
    /// Of each partition that is read: the next offset.
    positions: BTreeMap<PartitionId, Offset>,
}

impl Default for Status {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(Inner {
            log: Some("the log is not open yet".to_owned()),
            database: None,
            blocked: BTreeMap::new(),
            positions: BTreeMap::new(),
        })))
    }
}

impl Status {
    /// Whether the writer reads and writes.
    ///
    /// # Errors
    /// Every reason why not, for people. They name sales, and no users.
    pub fn ready(&self) -> Result<(), Vec<String>> {
        let inner = self.0.lock();
        let mut reasons = Vec::new();
        reasons.extend(inner.log.iter().cloned());
        reasons.extend(inner.database.iter().cloned());
        for (sale, (_, why)) in inner.blocked.iter().take(NAMED_MAX) {
            reasons.push(format!("sale {sale} is not written: {why}"));
        }
        let more = inner.blocked.len().saturating_sub(NAMED_MAX);
        if more > 0 {
            reasons.push(format!("{more} more sales are not written"));
        }
        if reasons.is_empty() {
            Ok(())
        } else {
            Err(reasons)
        }
    }

    pub(crate) fn log(&self, problem: Option<String>) {
        self.0.lock().log = problem;
    }

    pub(crate) fn database(&self, problem: Option<String>) {
        self.0.lock().database = problem;
    }

    /// Takes note of a sale that is not written any more, tells of it once, and counts.
    pub(crate) fn block(&self, sale: &SaleId, reason: BlockedReason, why: &str, metrics: &Metrics) {
        let mut inner = self.0.lock();
        let entry = (reason, why.to_owned());
        if inner.blocked.insert(sale.clone(), entry).is_none() {
            tracing::error!(%sale, ?reason, why, "sale is not written any more");
        }
        let alike = inner
            .blocked
            .values()
            .filter(|(other, _)| *other == reason)
            .count();
        metrics.blocked(reason, alike);
    }

    /// Forgets the sales: the log is read again from its beginning.
    pub(crate) fn start_over(&self, metrics: &Metrics) {
        let mut inner = self.0.lock();
        for (reason, _) in inner.blocked.values() {
            metrics.blocked(*reason, 0);
        }
        inner.blocked.clear();
        inner.positions.clear();
    }

    pub(crate) fn reading(&self, positions: &BTreeMap<PartitionId, Offset>) {
        let mut inner = self.0.lock();
        inner.log = None;
        inner.positions.clone_from(positions);
    }

    pub(crate) fn positions(&self) -> BTreeMap<PartitionId, Offset> {
        self.0.lock().positions.clone()
    }
}

impl Blocked {
    pub(crate) fn reason(&self) -> BlockedReason {
        match self {
            Self::OtherHistory(_) => BlockedReason::OtherHistory,
            Self::Refused(_) => BlockedReason::Refused,
            Self::Corrupt(_) => BlockedReason::Corrupt,
        }
    }
}
