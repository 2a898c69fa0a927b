//! What the engine counts. Labels are enums: never a sale's or a user's name.

use crate::fold::Judged;
use crate::recover::Recovered;
use dropgate_domain::Fed;
use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// What a record of the log came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelValue)]
#[expect(missing_docs, reason = "named as in `Fed` and `Judged`")]
pub enum RecordOutcome {
    Applied,
    Buffered,
    Duplicate,
    Void,
    Ended,
    Started,
    Halted,
    Foreign,
    Unreadable,
}

/// The label of records.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct RecordLabel {
    /// What it came to.
    pub outcome: RecordOutcome,
}

/// How a publication went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelValue)]
pub enum PublishOutcome {
    /// It is in the log.
    Acknowledged,
    /// It is surely not; the relay will see to it.
    Refused,
    /// It may be; the relay will see to it.
    Unknown,
    /// Too many were in flight to begin it; the relay will see to it.
    Deferred,
}

/// The label of publications.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct PublishLabel {
    /// How it went.
    pub outcome: PublishOutcome,
}

/// What a recovery came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelValue)]
pub enum RecoveryOutcome {
    /// The next generation is current.
    Begun,
    /// Somebody else was first.
    Overtaken,
    /// It could not be made; it may be tried again.
    Failed,
}

/// The label of recoveries.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct RecoveryLabel {
    /// What it came to.
    pub outcome: RecoveryOutcome,
}

/// The engine's metrics. Clones count in the same place.
#[derive(Debug, Clone, Default)]
pub struct Metrics {
    records: Family<RecordLabel, Counter>,
    publishes: Family<PublishLabel, Counter>,
    /// Events that were published again from the outbox.
    pub(crate) relays: Counter,
    /// Tips that told of lost writes.
    pub(crate) disagreements: Counter,
    /// Halts that this process wrote.
    pub(crate) halts: Counter,
    /// Events in the outbox that the log's readers had not applied at the last tip, over all sales.
    pub(crate) backlog: Gauge,
    /// The age of the oldest of them by the sale's clock, in ms.
    pub(crate) backlog_age_ms: Gauge,
    /// Partitions to which nothing is published until a probe succeeds.
    pub(crate) breakers_open: Gauge,
    /// How often it was stopped.
    pub(crate) breaker_opened: Counter,
    recoveries: Family<RecoveryLabel, Counter>,
}

impl Metrics {
    /// Metrics that appear in the registry.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        let m = metrics.clone();
        registry.register(
            "dropgate_log_records",
            "Records read, by what they came to",
            m.records,
        );
        registry.register(
            "dropgate_publishes",
            "Events published, by outcome",
            m.publishes,
        );
        registry.register(
            "dropgate_relays",
            "Events published again from the outbox",
            m.relays,
        );
        registry.register(
            "dropgate_tip_disagreements",
            "Tips that told of writes lost by Redis",
            m.disagreements,
        );
        registry.register("dropgate_halts", "Halts written by this process", m.halts);
        registry.register(
            "dropgate_outbox_backlog_events",
            "Events not applied yet, at the last tip",
            m.backlog,
        );
        registry.register(
            "dropgate_outbox_age_ms",
            "Age of the oldest event not applied yet, at the last tip",
            m.backlog_age_ms,
        );
        registry.register(
            "dropgate_publish_breakers_open",
            "Partitions to which nothing is published because the last event failed",
            m.breakers_open,
        );
        registry.register(
            "dropgate_publish_breaker_opened",
            "How often publishing was stopped by a failure",
            m.breaker_opened,
        );
        registry.register(
            "dropgate_recoveries",
            "Recoveries made by this process, by outcome",
            m.recoveries,
        );
        metrics
    }

    pub(crate) fn recovered(&self, recovered: Option<&Recovered>) {
        let outcome = match recovered {
            Some(Recovered::Begun(_)) => RecoveryOutcome::Begun,
            Some(Recovered::Overtaken(_)) => RecoveryOutcome::Overtaken,
            None => RecoveryOutcome::Failed,
        };
        self.recoveries
            .get_or_create(&RecoveryLabel { outcome })
            .inc();
    }

    pub(crate) fn published(&self, outcome: PublishOutcome) {
        self.publishes
            .get_or_create(&PublishLabel { outcome })
            .inc();
    }

    /// How many records came to this.
    #[must_use]
    pub fn records(&self, outcome: RecordOutcome) -> u64 {
        self.records.get_or_create(&RecordLabel { outcome }).get()
    }

    /// Counts what a record came to.
    pub fn judged(&self, judged: &Judged) {
        let outcome = match judged {
            Judged::Fed(Fed::Applied(_)) => RecordOutcome::Applied,
            Judged::Fed(Fed::Buffered) => RecordOutcome::Buffered,
            Judged::Fed(Fed::Duplicate) => RecordOutcome::Duplicate,
            Judged::Fed(Fed::Void) => RecordOutcome::Void,
            Judged::Fed(Fed::Ended(_)) => RecordOutcome::Ended,
            Judged::Fed(Fed::Started(_)) => RecordOutcome::Started,
            Judged::Fed(Fed::Halted) => RecordOutcome::Halted,
            Judged::Foreign => RecordOutcome::Foreign,
            Judged::GaveUp(_) => RecordOutcome::Unreadable,
        };
        self.records.get_or_create(&RecordLabel { outcome }).inc();
    }
}
