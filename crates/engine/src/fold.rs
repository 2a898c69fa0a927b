//! The reader that every service uses: the index of sales, and the ledgers of all of them.
//!
//! The index says which partition, from which offset, in which log a sale's events are; nobody
//! hashes a key to find a sale. A record that names a sale which its partition is not pinned
//! for is counted and never applied. Every sale is folded from its opening.

use crate::sale::{Sale, Unfollowable};
use dropgate_domain::{Applied, Fed, LogId, Offset, PartitionId, SaleCreated, SaleId};
use dropgate_events::{Unknown, decode_event, decode_sale_created, peek_sale};
use dropgate_stream::{Item, Lane, Log, LogError, Tail};
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// How long reading the index to its end may take before the step fails, to be tried again.
const INDEX_WAIT_MAX: Duration = Duration::from_secs(5);
/// The pause before a partition that did not answer is asked again.
const BEGIN_PAUSE: Duration = Duration::from_secs(1);
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
    /// Pinned partitions that are not read yet, with the offset from which a sale needs them.
    unread: Vec<(PartitionId, Offset)>,
    /// Why they are not, and when it is tried again.
    unread_because: Option<(LogError, Instant)>,
    /// Read and not judged yet.
    pending: VecDeque<Item>,
    /// Whether the index has been read to an end that was asked for after `pending` was read.
    index_caught_up: bool,
    /// What has been judged and not returned yet. It outlives a step that fails or is cancelled:
    /// the ledgers have it, so whoever asks next must hear of it.
    done: Step,
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
            unread_because: None,
            pending: VecDeque::new(),
            index_caught_up: false,
            done: Step::default(),
        };
        fold.read_index_to(probe.end).await?;
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

    /// Why a partition that holds a sale cannot be read at present, if so. The others are.
    #[must_use]
    pub fn unread(&self) -> Option<String> {
        let (error, _) = self.unread_because.as_ref()?;
        let (partition, _) = self.unread.first()?;
        Some(format!("claims partition {partition} is not read: {error}"))
    }

    /// Reads and judges what is there, else what comes within `wait`.
    ///
    /// Cancel safe, and an error loses nothing: what was judged before is in the [`Step`] that
    /// the next call returns.
    ///
    /// # Errors
    /// [`FoldError`]; after a transient one, ask again.
    pub async fn step(&mut self, wait: Duration) -> Result<Step, FoldError> {
        self.begin_partitions().await?;
        if self.pending.is_empty() {
            self.read(wait).await?;
        }
        while let Some(item) = self.pending.front() {
            let known = peek_sale(&item.value).is_some_and(|id| self.sales.contains_key(&id));
            if !known && !self.index_caught_up {
                // A sale is in the index before it is in the log, so to the end of now is enough.
                let end = self.log.probe(Lane::Index).await?.end;
                self.read_index_to(end).await?;
                self.index_caught_up = true;
            }
            if let Some(item) = self.pending.pop_front() {
                self.judge(item);
            }
        }
        Ok(std::mem::take(&mut self.done))
    }

    async fn read(&mut self, wait: Duration) -> Result<(), FoldError> {
        tokio::select! {
            items = self.claims.next(READ_MAX, wait), if !self.next.is_empty() => {
                self.pending.extend(items?);
                self.index_caught_up = false;
                Ok(())
            }
            items = self.index.next(READ_MAX, wait) => {
                for item in items? {
                    self.index_record(&item)?;
                }
                self.begin_partitions().await
            }
        }
    }

    async fn read_index_to(&mut self, end: Offset) -> Result<(), FoldError> {
        let deadline = Instant::now() + INDEX_WAIT_MAX;
        while self.index_next < end {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let what = format!("the index was not read to offset {end} in time");
                return Err(FoldError::Transient(LogError::Unavailable(what)));
            }
            for item in self.index.next(READ_MAX, left).await? {
                self.index_record(&item)?;
            }
        }
        Ok(())
    }

    fn index_record(&mut self, item: &Item) -> Result<(), FoldError> {
        let pin =
            decode_sale_created(&item.value).map_err(|unknown| FoldError::IndexUnreadable {
                at: item.offset,
                reason: unknown.to_string(),
            })?;
        self.index_next = item.offset.next();
        // The first record of a sale id counts.
        if !self.sales.contains_key(&pin.sale) {
            let sale = self.pin(pin);
            self.done.created.push(sale);
        }
        Ok(())
    }

    fn pin(&mut self, pin: SaleCreated) -> Arc<Sale> {
        let (partition, from) = (pin.partition, pin.from_offset);
        let ours = pin.log_id == self.log_id;
        let sale = Arc::new(Sale::new(pin));
        self.sales.insert(sale.id().clone(), Arc::clone(&sale));
        if !ours {
            sale.give_up(Unfollowable::OtherLog);
        } else if partition.0 >= self.log.partitions() {
            sale.give_up(Unfollowable::PartitionUnknown);
        } else if !self.next.contains_key(&partition) {
            self.unread.push((partition, from));
        }
        sale
    }

    /// Begins to read the partitions that are pinned and not read yet, each from its oldest
    /// opening that is still there. One that does not answer is tried again later, and keeps
    /// nobody from reading the others.
    async fn begin_partitions(&mut self) -> Result<(), FoldError> {
        let later = self
            .unread_because
            .as_ref()
            .is_some_and(|(_, at)| Instant::now() < *at);
        if self.unread.is_empty() || later {
            return Ok(());
        }
        self.unread_because = None;
        let partitions: BTreeSet<PartitionId> = self.unread.iter().map(|(p, _)| *p).collect();
        for partition in partitions {
            match self.begin_partition(partition).await {
                Ok(()) => {}
                // A broker that has just started may not know the topic yet.
                Err(error) if error.is_transient() || matches!(error, LogError::Missing { .. }) => {
                    self.unread_because = Some((error, Instant::now() + BEGIN_PAUSE));
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    async fn begin_partition(&mut self, partition: PartitionId) -> Result<(), LogError> {
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
            Err(error) => return Err(error),
        }
        self.next.insert(partition, from);
        self.unread.retain(|(p, _)| *p != partition);
        for sale in self
            .sales_of(partition)
            .filter(|sale| sale.pin().from_offset < from)
        {
            sale.give_up(Unfollowable::OpeningGone);
        }
        Ok(())
    }

    fn judge(&mut self, item: Item) {
        let partition = item.lane.partition();
        self.next.insert(partition, item.offset.next());
        let record = match decode_event(&item.value) {
            Ok(record) => record,
            Err(unknown) => return self.unreadable(&item, &unknown),
        };
        let Some(sale) = self.pinned(&record.event.sale, &item).cloned() else {
            self.done
                .judged
                .push((Some(record.event.sale), Judged::Foreign));
            return;
        };
        if sale.unfollowable().is_some() {
            return;
        }
        let mut applied = Vec::new();
        match sale.feed(item.offset, record, &mut applied) {
            Ok(fed) => self
                .done
                .judged
                .push((Some(sale.id().clone()), Judged::Fed(fed))),
            Err(stop) => self.give_up(&sale, stop.into()),
        }
        if applied.is_empty() {
            return;
        }
        match self.done.applied.last_mut() {
            Some((last, list)) if Arc::ptr_eq(last, &sale) => list.append(&mut applied),
            _ => self.done.applied.push((sale, applied)),
        }
    }

    /// A record that cannot be read stops the sale that it names; if it names none, it may be
    /// any sale's that has been opened before it.
    fn unreadable(&mut self, item: &Item, unknown: &Unknown) {
        let why = Unfollowable::Unreadable {
            at: item.offset,
            reason: unknown.to_string(),
        };
        let named = peek_sale(&item.value);
        let hit: Vec<_> = match &named {
            Some(id) => self.pinned(id, item).into_iter().cloned().collect(),
            None => {
                let there = self.sales_of(item.lane.partition());
                there
                    .filter(|sale| sale.ledger().current().is_some())
                    .cloned()
                    .collect()
            }
        };
        if hit.is_empty() {
            self.done.judged.push((named, Judged::Foreign));
        }
        for sale in hit {
            self.give_up(&sale, why.clone());
        }
    }

    /// The sale, if this is its partition and the record is not from before its creation.
    fn pinned(&self, id: &SaleId, item: &Item) -> Option<&Arc<Sale>> {
        self.sales.get(id).filter(|sale| {
            let pin = sale.pin();
            pin.partition == item.lane.partition() && item.offset >= pin.from_offset
        })
    }

    fn sales_of(&self, partition: PartitionId) -> impl Iterator<Item = &Arc<Sale>> {
        self.sales
            .values()
            .filter(move |sale| sale.pin().partition == partition)
    }

    fn give_up(&mut self, sale: &Arc<Sale>, why: Unfollowable) {
        sale.give_up(why.clone());
        self.done
            .judged
            .push((Some(sale.id().clone()), Judged::GaveUp(why)));
    }
}
