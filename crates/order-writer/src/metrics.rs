//! What the writer counts. Labels are enums: never a sale's or a user's name.

use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// How a transaction ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelValue)]
pub enum WriteOutcome {
    /// Committed.
    Written,
    /// The database was away or too slow; it is tried again.
    Transient,
    /// Another writer had moved a position.
    Conflict,
    /// The database refused a row.
    Refused,
}

/// The label of transactions.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct WriteLabel {
    /// How it ended.
    pub outcome: WriteOutcome,
}

/// Why a sale is not written any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelValue)]
pub enum BlockedReason {
    /// The stored position is not in the sale's log.
    OtherHistory,
    /// The database refused a row.
    Refused,
    /// Its row cannot be read.
    Corrupt,
    /// Its log cannot be followed.
    Unfollowable,
}

/// The label of sales that are not written any more.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct BlockedLabel {
    /// Why.
    pub reason: BlockedReason,
}

/// The writer's metrics. Clones count in the same place.
#[derive(Debug, Clone, Default)]
pub struct Metrics {
    pub(crate) orders: Counter,
    transactions: Family<WriteLabel, Counter>,
    blocked: Family<BlockedLabel, Gauge>,
    pub(crate) foreign: Counter,
    pub(crate) takeovers: Counter,
    pub(crate) pending: Gauge,
    pub(crate) lag: Gauge,
    pub(crate) standing_by: Gauge,
}

impl Metrics {
    /// Metrics that `registry` shows.
    #[must_use]
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register(
            "dropgate_orders_written",
            "Orders that were committed to the database",
            metrics.orders.clone(),
        );
        registry.register(
            "dropgate_write_transactions",
            "Transactions that were tried, by how they ended",
            metrics.transactions.clone(),
        );
        registry.register(
            "dropgate_writer_blocked_sales",
            "Sales of which nothing more is written until an operator has looked, by reason",
            metrics.blocked.clone(),
        );
        registry.register(
            "dropgate_writer_foreign_records",
            "Records that name a sale which their partition is not pinned for",
            metrics.foreign.clone(),
        );
        registry.register(
            "dropgate_writer_takeovers",
            "Times that this writer went on for another that stood still",
            metrics.takeovers.clone(),
        );
        registry.register(
            "dropgate_writer_pending_events",
            "Events that are read and not written",
            metrics.pending.clone(),
        );
        registry.register(
            "dropgate_writer_lag_records",
            "Records of the log that are not read, and events that are not written",
            metrics.lag.clone(),
        );
        registry.register(
            "dropgate_writer_standing_by",
            "1 while another writer writes",
            metrics.standing_by.clone(),
        );
        metrics
    }

    pub(crate) fn transaction(&self, outcome: WriteOutcome) {
        self.transactions
            .get_or_create(&WriteLabel { outcome })
            .inc();
    }

    pub(crate) fn blocked(&self, reason: BlockedReason, sales: usize) {
        let sales = i64::try_from(sales).unwrap_or(i64::MAX);
        self.blocked
            .get_or_create(&BlockedLabel { reason })
            .set(sales);
    }
}
