//! From pending events to the database, one transaction at a time.

use crate::backoff::{Backoff, spread};
use crate::batch::{About, Blocked, Look, Pending};
use crate::config::WriterConfig;
use crate::metrics::{BlockedReason, Metrics, WriteOutcome};
use crate::status::Status;
use dropgate_domain::{Position, SaleId};
use dropgate_engine::{Judged, Sale, Step, Unfollowable};
use dropgate_store::{
    Pin, SaleRow, SaleState, SaleWrite, Store, StoreError, Transient, TransientKind, WriteError,
};
use std::collections::{BTreeSet, HashMap};
use tokio::time::Instant;

/// The database holds less than it did: the log must be read again from the openings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rewound {
    pub sale: SaleId,
}

/// Why a turn ended early.
enum Halt {
    Later(Transient),
    Rewound(Rewound),
}

impl From<Rewound> for Halt {
    fn from(rewound: Rewound) -> Self {
        Self::Rewound(rewound)
    }
}

/// Writes pending events.
pub struct Writer {
    store: Store,
    config: WriterConfig,
    metrics: Metrics,
    status: Status,
    pending: Pending,
    /// Sales whose opening the log no longer has, until their row was looked at.
    gone: BTreeSet<SaleId>,
    backoff: Backoff,
    /// Not before this.
    resume_at: Instant,
    /// While another writer writes: where each sale with unwritten events stood at the last look.
    standby: Option<HashMap<SaleId, Option<Position>>>,
    /// Where the last transaction led to, if whether it was committed is not known.
    unsure: HashMap<SaleId, Position>,
}

impl Writer {
    pub fn new(store: Store, config: WriterConfig, metrics: Metrics, status: Status) -> Self {
        Self {
            backoff: Backoff::new(config.backoff_max),
            store,
            config,
            metrics,
            status,
            pending: Pending::default(),
            gone: BTreeSet::new(),
            resume_at: Instant::now(),
            standby: None,
            unsure: HashMap::new(),
        }
    }

    /// Takes what a step of the reader brought.
    pub fn feed(&mut self, step: Step) {
        if self.pending.events() == 0 && self.standby.as_ref().is_some_and(HashMap::is_empty) {
            // The other writer gets its time for what is new.
            self.resume_at = self
                .resume_at
                .max(Instant::now() + spread(self.config.standby));
        }
        for (sale, applied) in step.applied {
            self.pending.feed(sale.id(), || about(&sale), applied);
        }
        for (sale, judged) in step.judged {
            match judged {
                Judged::Foreign => {
                    self.metrics.foreign.inc();
                    tracing::debug!("record of a sale that its partition is not pinned for");
                }
                Judged::GaveUp(why) => {
                    if let Some(sale) = sale {
                        self.unfollowable(&sale, &why);
                    }
                }
                Judged::Fed(_) => {}
            }
        }
        self.count_pending();
    }

    /// Takes note of a sale whose log cannot be followed. What was read of it is written.
    pub fn unfollowable(&mut self, sale: &SaleId, why: &Unfollowable) {
        if *why == Unfollowable::OpeningGone {
            // Retention takes every sale's log in the end. Whether it had been written first is
            // for its row to say.
            self.gone.insert(sale.clone());
            return;
        }
        let reason = BlockedReason::Unfollowable;
        self.status
            .block(sale, reason, &why.to_string(), &self.metrics);
    }

    /// Whether no more may be read for now.
    pub fn is_full(&self) -> bool {
        self.pending.events() >= self.config.pending_events_max
    }

    /// When the next [`Writer::turn`] has something to do; `None`: when something was fed.
    pub fn due(&self) -> Option<Instant> {
        let idle = self.gone.is_empty() && self.pending.is_idle();
        (!idle).then_some(self.resume_at)
    }

    /// One step towards the database: a look at unknown rows, and one transaction.
    ///
    /// Not to be cancelled: whether a transaction was committed would not be noted.
    pub async fn turn(&mut self) -> Result<(), Rewound> {
        let turned = self.try_turn().await;
        self.count_pending();
        match turned {
            Ok(()) => {
                self.backoff.succeeded();
                self.status.database(None);
                Ok(())
            }
            Err(Halt::Later(transient)) => {
                let pause = self.backoff.failed();
                tracing::warn!(%transient, ?pause, "database not written, trying again");
                self.status.database(Some(transient.to_string()));
                self.resume_at = Instant::now() + pause;
                Ok(())
            }
            Err(Halt::Rewound(rewound)) => Err(rewound),
        }
    }

    /// Writes what there is, and stops at the first thing that keeps it from that.
    pub async fn flush(&mut self) -> Result<(), Rewound> {
        while self.standby.is_none() && self.due().is_some() {
            let resume_at = self.resume_at;
            self.turn().await?;
            if self.resume_at > resume_at {
                break;
            }
        }
        Ok(())
    }

    async fn try_turn(&mut self) -> Result<(), Halt> {
        self.look_at_gone().await?;
        for sale in self.pending.unknown() {
            self.look(&sale).await?;
        }
        if self.standby.is_some() && !self.other_stands_still().await? {
            return Ok(());
        }
        let writes = self.pending.batch(self.config.batch_events_max);
        if writes.is_empty() {
            return Ok(());
        }
        match self.store.write(&writes).await {
            Ok(()) => {
                self.metrics.transaction(WriteOutcome::Written);
                let orders: usize = writes.iter().map(|write| write.orders.len()).sum();
                self.metrics.orders.inc_by(orders as u64);
                tracing::debug!(orders, sales = writes.len(), "orders written");
                self.pending.written(&writes);
                self.unsure.clear();
                Ok(())
            }
            Err(WriteError::Transient(transient)) => {
                self.metrics.transaction(WriteOutcome::Transient);
                // The commit may have gone through.
                self.unsure = writes
                    .into_iter()
                    .map(|write| (write.sale, write.to))
                    .collect();
                Err(Halt::Later(transient))
            }
            Err(WriteError::Conflict { sale }) => {
                self.metrics.transaction(WriteOutcome::Conflict);
                self.lost_to_another(&sale, &writes).await
            }
            Err(WriteError::Refused { sale, reason }) => {
                self.metrics.transaction(WriteOutcome::Refused);
                self.block(&sale, Blocked::Refused(reason));
                Ok(())
            }
        }
    }

    /// Another writer moved the sale's position, or this one's own commit did whose answer was
    /// lost.
    async fn lost_to_another(&mut self, sale: &SaleId, writes: &[SaleWrite]) -> Result<(), Halt> {
        for write in writes {
            self.look(&write.sale).await?;
        }
        let stored = self.pending.stored(sale);
        let own = stored.is_some() && stored.as_ref() == self.unsure.get(sale);
        self.unsure.clear();
        if !own {
            tracing::info!(%sale, "another writer is writing, standing by");
            self.standby = Some(HashMap::new());
            self.metrics.standing_by.set(1);
            self.resume_at = Instant::now() + spread(self.config.standby);
        }
        Ok(())
    }

    /// Whether to take over: a sale with unwritten events has not moved since the look before.
    async fn other_stands_still(&mut self) -> Result<bool, Halt> {
        for sale in self.pending.unwritten() {
            self.look(&sale).await?;
        }
        let before = self.standby.take().unwrap_or_default();
        let left = self.pending.unwritten().into_iter();
        let now: HashMap<_, _> = left
            .map(|sale| (sale.clone(), self.pending.stored(&sale)))
            .collect();
        let still = now.iter().find(|(sale, at)| before.get(*sale) == Some(at));
        if let Some((sale, _)) = still {
            tracing::warn!(%sale, "the other writer stands still, taking over");
            self.metrics.takeovers.inc();
            self.metrics.standing_by.set(0);
            return Ok(true);
        }
        self.standby = Some(now);
        self.resume_at = Instant::now() + spread(self.config.standby);
        Ok(false)
    }

    async fn look(&mut self, sale: &SaleId) -> Result<(), Halt> {
        let row = match self.row(sale).await? {
            Ok(row) => row,
            Err(corrupt) => {
                self.block(sale, corrupt);
                return Ok(());
            }
        };
        match self.pending.look(sale, row.as_ref()) {
            Look::Unmoved | Look::Moved => {}
            Look::Rewound => return Err(Rewound { sale: sale.clone() }.into()),
            Look::Blocked => self.tell_blocked(sale),
        }
        Ok(())
    }

    async fn look_at_gone(&mut self) -> Result<(), Halt> {
        while let Some(sale) = self.gone.first().cloned() {
            let written = match self.row(&sale).await? {
                Ok(row) => row.is_some_and(|row| row.state == SaleState::Closed),
                Err(_) => false,
            };
            if !written {
                let why = Unfollowable::OpeningGone.to_string();
                self.status
                    .block(&sale, BlockedReason::Unfollowable, &why, &self.metrics);
            }
            self.gone.remove(&sale);
        }
        Ok(())
    }

    async fn row(&self, sale: &SaleId) -> Result<Result<Option<SaleRow>, Blocked>, Halt> {
        match self.store.sale(sale).await {
            Ok(row) => Ok(Ok(row)),
            Err(StoreError::Transient(transient)) => Err(Halt::Later(transient)),
            Err(StoreError::Corrupt(what)) => {
                let what = format!("the database holds a value that cannot be: {what}");
                Ok(Err(Blocked::Corrupt(what)))
            }
            Err(StoreError::Migrate(error)) => Err(Halt::Later(Transient {
                kind: TransientKind::Other,
                detail: error.to_string(),
            })),
        }
    }

    fn block(&mut self, sale: &SaleId, reason: Blocked) {
        self.pending.block(sale, reason);
        self.tell_blocked(sale);
    }

    fn tell_blocked(&self, sale: &SaleId) {
        let mut blocked = self.pending.blocked();
        if let Some((_, why)) = blocked.find(|(blocked, _)| *blocked == sale) {
            self.status
                .block(sale, why.reason(), &why.to_string(), &self.metrics);
        }
    }

    fn count_pending(&self) {
        let events = i64::try_from(self.pending.events()).unwrap_or(i64::MAX);
        self.metrics.pending.set(events);
    }
}

fn about(sale: &Sale) -> About {
    let pin = sale.pin();
    About {
        pin: Pin {
            log_id: pin.log_id,
            partition: pin.partition,
            from_offset: pin.from_offset,
        },
        stock: pin.definition.stock,
        opened_at: pin.definition.opens_at,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dropgate_domain::{Digest, Generation, LogId, Offset, PartitionId, Seq};
    use dropgate_store::StoreConfig;
    use std::time::Duration;

    fn closed_or_open(sale: &str, state: SaleState) -> SaleWrite {
        SaleWrite {
            sale: SaleId::new(sale).unwrap(),
            from: None,
            to: Position {
                generation: Generation(1),
                seq: Seq(1),
                chain: Digest([1; 20]),
            },
            pin: Pin {
                log_id: LogId([1; 16]),
                partition: PartitionId(0),
                from_offset: Offset(0),
            },
            state,
            stock: 1,
            sold: 0,
            held: 0,
            opened_at: None,
            closed_at: None,
            orders: Vec::new(),
        }
    }

    #[tokio::test]
    async fn a_sale_whose_log_is_gone_is_told_of_unless_it_was_written_to_its_end() {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}/orders.db", folder.path().display());
        let store = Store::connect(&StoreConfig::with_url(url)).await.unwrap();
        let status = Status::default();
        let config = WriterConfig {
            backoff_max: Duration::from_millis(100),
            ..WriterConfig::default()
        };
        let mut writer = Writer::new(store.clone(), config, Metrics::default(), status.clone());
        for sale in ["closed", "open", "unwritten"] {
            let sale = SaleId::new(sale).unwrap();
            writer.unfollowable(&sale, &Unfollowable::OpeningGone);
        }
        writer.turn().await.unwrap();
        let reasons = status.ready().unwrap_err().join(", ");
        assert!(
            reasons.contains("no such table"),
            "not known without the schema: {reasons}"
        );

        store.migrate().await.unwrap();
        let states = [("closed", SaleState::Closed), ("open", SaleState::Open)];
        store
            .write(&states.map(|(sale, state)| closed_or_open(sale, state)))
            .await
            .unwrap();
        writer.turn().await.unwrap();
        assert_eq!(writer.due(), None);
        let reasons = status.ready().unwrap_err().join(", ");
        for (sale, told) in [("closed", false), ("open", true), ("unwritten", true)] {
            assert_eq!(
                reasons.contains(&format!("sale {sale} ")),
                told,
                "{reasons}"
            );
        }
    }
}
