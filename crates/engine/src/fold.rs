//! The reader that every service uses: the index of sales, and the ledgers of all of them.
//!
//! The index says which partition, from which offset, in which log a sale's events are; nobody
//! hashes a key to find a sale. A record that names a sale which its partition is not pinned
//! for is counted and never applied. Every sale is folded from its opening.

use crate::sale::{Sale, Unfollowable};
use dropgate_domain::{Applied, Fed, LogId, Offset, PartitionId, SaleCreated, SaleId};
use dropgate_events::{decode_event, decode_sale_created, peek_sale};
use dropgate_stream::{Item, Lane, Log, LogError, Tail};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// How long reading the index to its end may take before the step fails, to be tried again.
const INDEX_WAIT_MAX: Duration = Duration::from_secs(5);
/// How many records one read brings at most.
const READ_MAX: usize = 2_000;

/// Why the reader cannot go on, or not now.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FoldError {
    /// Ask again after a pause: nothing is lost.
    #[error("{0}")]
    Transient(LogError),
    /// The log is not what it was: this reader has ended.
    #[error("{0}")]
    Fatal(LogError),
    /// The index does not begin with its first record.
    #[error("the index of sales begins at offset {low}: its beginning is lost")]
    IndexCut {
        /// Its first offset.
        low: Offset,
    },
    /// A record of the index that this release cannot read. Which sale it creates is unknown, so
    /// nothing can be judged any more.
    #[error("the index of sales cannot be read at offset {at}: {reason}")]
    IndexUnreadable {
        /// Where.
        at: Offset,
        /// Why.
        reason: String,
    },
}

impl From<LogError> for FoldError {
    fn from(error: LogError) -> Self {
        if error.is_transient() {
            Self::Transient(error)
        } else {
            Self::Fatal(error)
        }
    }
}

impl FoldError {
    /// Whether the same step may succeed later.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Transient(_))
    }
}

/// What one record came to, for those who count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Judged {
    /// The ledger's word on a record of a sale.
    Fed(Fed),
    /// A record that names a sale which its partition is not pinned for.
    Foreign,
    /// A record that ended the following of a sale.
    GaveUp(Unfollowable),
}

/// What a step brought.
#[derive(Debug, Default)]
pub struct Step {
    /// What took effect, by sale, in the order of the log.
    pub applied: Vec<(Arc<Sale>, Vec<Applied>)>,
    /// What each record came to.
    pub judged: Vec<(Option<SaleId>, Judged)>,
    /// Sales that the index named anew.
    pub created: Vec<Arc<Sale>>,
}

/// A reader of the log, from the index and the openings on.
#[derive(Debug)]
pub struct Fold {
    log: Log,
    log_id: LogId,
    index_id: LogId,
    index: Tail,
    index_next: Offset,
    claims: Tail,
    sales: HashMap<SaleId, Arc<Sale>>,
    /// Of each partition that is read: the offset of the next record to be judged.
    next: BTreeMap<PartitionId, Offset>,
    /// Pinned partitions that are not read yet.
    unread: Vec<(PartitionId, Offset)>,
    /// Read and not judged yet.
    pending: VecDeque<Item>,
    /// Whether the index has been read to an end that was asked for after `pending` was read.
    index_caught_up: bool,
}

impl Fold {
    /// Opens the reader and reads the index to its end.
    ///
    /// # Errors
    /// The log does not answer, or is not one that can be folded.
    pub async fn open(log: &Log) -> Result<Self, FoldError> {
        let probe = log.probe(Lane::Index).await?;
        if probe.low != Offset(0) {
            return Err(FoldError::IndexCut { low: probe.low });
        }
        let log_id = log.probe(Lane::Claims(PartitionId(0))).await?.log_id;
        let mut fold = Self {
            log: log.clone(),
            log_id,
            index_id: probe.log_id,
            index: log.tail(&[(Lane::Index, Offset(0))]).await?,
            index_next: Offset(0),
            claims: log.tail(&[]).await?,
            sales: HashMap::new(),
            next: BTreeMap::new(),
            unread: Vec::new(),
            pending: VecDeque::new(),
            index_caught_up: false,
        };
        fold.read_index_to(probe.end, &mut Step::default()).await?;
        fold.begin_partitions().await?;
        Ok(fold)
    }

    /// The identity of the log of claims.
    #[must_use]
    pub fn log_id(&self) -> LogId {
        self.log_id
    }

    /// A sale of the index.
    #[must_use]
    pub fn sale(&self, id: &SaleId) -> Option<&Arc<Sale>> {
        self.sales.get(id)
    }

    /// All sales of the index, in no order.
    pub fn sales(&self) -> impl Iterator<Item = &Arc<Sale>> {
        self.sales.values()
    }

    /// The partitions that are read, each with the offset of its next record to be judged.
    #[must_use]
    pub fn positions(&self) -> &BTreeMap<PartitionId, Offset> {
        &self.next
    }

    /// The lanes that are read, each with its log's identity and the offset of its next record
    /// to be judged.
    pub(crate) fn lanes(&self) -> impl Iterator<Item = (Lane, LogId, Offset)> {
        let claims = self.next.iter();
        let claims = claims.map(|(p, next)| (Lane::Claims(*p), self.log_id, *next));
        std::iter::once((Lane::Index, self.index_id, self.index_next)).chain(claims)
    }

    /// Reads and judges what is there, else what comes within `wait`.
    ///
    /// Cancel safe: a record that was read and not judged is judged by the next step. What a
    /// cancelled step has judged is in the ledgers, though not in any returned [`Step`].
    ///
    /// # Errors
    /// [`FoldError`]; a transient one loses nothing.
    pub async fn step(&mut self, wait: Duration) -> Result<Step, FoldError> {
        let mut step = Step::default();
        if !self.unread.is_empty() {
            self.begin_partitions().await?;
        }
        if self.pending.is_empty() {
            self.read(wait, &mut step).await?;
        }
        while let Some(item) = self.pending.front() {
            let known = peek_sale(&item.value).is_none_or(|id| self.sales.contains_key(&id));
            if !known && !self.index_caught_up {
                // A sale is in the index before it is in the log, so to the end of now is enough.
                let end = self.log.probe(Lane::Index).await?.end;
                self.read_index_to(end, &mut step).await?;
                self.index_caught_up = true;
            }
            if let Some(item) = self.pending.pop_front() {
                self.judge(item, &mut step);
            }
        }
        Ok(step)
    }

    async fn read(&mut self, wait: Duration, step: &mut Step) -> Result<(), FoldError> {
        tokio::select! {
            items = self.claims.next(READ_MAX, wait), if !self.next.is_empty() => {
                self.pending.extend(items?);
                self.index_caught_up = false;
                Ok(())
            }
            items = self.index.next(READ_MAX, wait) => {
                for item in items? {
                    self.index_record(&item, step)?;
                }
                self.begin_partitions().await
            }
        }
    }

    async fn read_index_to(&mut self, end: Offset, step: &mut Step) -> Result<(), FoldError> {
        let deadline = Instant::now() + INDEX_WAIT_MAX;
        while self.index_next < end {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let what = format!("the index was not read to offset {end} in time");
                return Err(FoldError::Transient(LogError::Unavailable(what)));
            }
            for item in self.index.next(READ_MAX, left).await? {
                self.index_record(&item, step)?;
            }
        }
        Ok(())
    }

    fn index_record(&mut self, item: &Item, step: &mut Step) -> Result<(), FoldError> {
        let pin =
            decode_sale_created(&item.value).map_err(|unknown| FoldError::IndexUnreadable {
                at: item.offset,
                reason: unknown.to_string(),
            })?;
        self.index_next = item.offset.next();
        // The first record of a sale id counts.
        if !self.sales.contains_key(&pin.sale) {
            step.created.push(self.pin(pin));
        }
        Ok(())
    }

    fn pin(&mut self, pin: SaleCreated) -> Arc<Sale> {
        let (partition, from) = (pin.partition, pin.from_offset);
        let ours = pin.log_id == self.log_id && partition.0 < self.log.partitions();
        let sale = Arc::new(Sale::new(pin));
        self.sales.insert(sale.id().clone(), Arc::clone(&sale));
        if !ours {
            sale.give_up(Unfollowable::OtherLog);
        } else if !self.next.contains_key(&partition) {
            self.unread.push((partition, from));
        }
        sale
    }

    /// Begins to read the partitions that are pinned and not read yet, each from its oldest
    /// opening that is still there.
    async fn begin_partitions(&mut self) -> Result<(), FoldError> {
        while let Some(&(partition, _)) = self.unread.first() {
            let lane = Lane::Claims(partition);
            let probe = self.log.probe(lane).await?;
            let pins = self.unread.iter().filter(|(p, _)| *p == partition);
            let there = pins
                .map(|(_, from)| *from)
                .filter(|from| *from >= probe.low);
            let from = there.min().unwrap_or(probe.end);
            match self.claims.add(lane, from).await {
                // A cancelled step may have added it and not noted it.
                Ok(()) | Err(LogError::LaneTaken { .. }) => {}
                Err(error) => return Err(error.into()),
            }
            self.next.insert(partition, from);
            self.unread.retain(|(p, _)| *p != partition);
            for sale in self.sales.values() {
                if sale.pin().partition == partition && sale.pin().from_offset < from {
                    sale.give_up(Unfollowable::OpeningGone);
                }
            }
        }
        Ok(())
    }

    fn judge(&mut self, item: Item, step: &mut Step) {
        let partition = item.lane.partition();
        self.next.insert(partition, item.offset.next());
        let pinned = |id: &SaleId| {
            self.sales.get(id).filter(|sale| {
                let pin = sale.pin();
                pin.partition == partition && item.offset >= pin.from_offset
            })
        };
        let record = match decode_event(&item.value) {
            Ok(record) => record,
            Err(unknown) => {
                let why = Unfollowable::Unreadable {
                    at: item.offset,
                    reason: unknown.to_string(),
                };
                // Whose it is may be unreadable too; then it may be anybody's.
                let named = peek_sale(&item.value);
                let hit: Vec<_> = match &named {
                    Some(id) => pinned(id).into_iter().cloned().collect(),
                    None => self.sales_of(partition).cloned().collect(),
                };
                if hit.is_empty() {
                    step.judged.push((named, Judged::Foreign));
                }
                for sale in hit {
                    Self::give_up(&sale, why.clone(), step);
                }
                return;
            }
        };
        let Some(sale) = pinned(&record.event.sale).cloned() else {
            step.judged.push((Some(record.event.sale), Judged::Foreign));
            return;
        };
        if sale.unfollowable().is_some() {
            return;
        }
        let mut applied = Vec::new();
        match sale.feed(item.offset, record, &mut applied) {
            Ok(fed) => step
                .judged
                .push((Some(sale.id().clone()), Judged::Fed(fed))),
            Err(stop) => Self::give_up(&sale, stop.into(), step),
        }
        if applied.is_empty() {
            return;
        }
        match step.applied.last_mut() {
            Some((last, list)) if Arc::ptr_eq(last, &sale) => list.append(&mut applied),
            _ => step.applied.push((sale, applied)),
        }
    }

    fn sales_of(&self, partition: PartitionId) -> impl Iterator<Item = &Arc<Sale>> {
        self.sales
            .values()
            .filter(move |sale| sale.pin().partition == partition)
    }

    fn give_up(sale: &Arc<Sale>, why: Unfollowable, step: &mut Step) {
        sale.give_up(why.clone());
        step.judged
            .push((Some(sale.id().clone()), Judged::GaveUp(why)));
    }
}
