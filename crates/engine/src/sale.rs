//! A sale in the memory of a process: its pin, its ledger, and who waits for it.

use crate::Ledger;
use dropgate_domain::{
    Applied, Fed, Generation, Offset, Phase, Record, SaleCreated, SaleId, Seq, Stop,
};
use parking_lot::{Mutex, RwLock, RwLockReadGuard};
use std::collections::BTreeMap;
use tokio::sync::oneshot;

/// Why a sale cannot be followed. It is served no more, and its neighbours go on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unfollowable {
    /// The log that the index names is not the one that is there.
    #[error("the sale belongs to another log than the one that is there")]
    OtherLog,
    /// The log had fewer partitions when this process began to read it.
    #[error("the sale's partition is newer than this process: start it again")]
    PartitionUnknown,
    /// The log begins after the sale's creation: retention may have taken its opening. Retention
    /// must cover a sale from its creation to its settlement.
    #[error("the log no longer reaches back to the sale's creation")]
    OpeningGone,
    /// A record that this release cannot read.
    #[error("offset {at} cannot be read: {reason}")]
    Unreadable {
        /// Where.
        at: Offset,
        /// Why.
        reason: String,
    },
    /// What is read is not the log as it was written.
    #[error("{0}")]
    Stopped(#[from] Stop),
}

/// A sale of the index, folded as far as its log has been read. Shared by the reader, who alone
/// writes it, and everybody who asks.
#[derive(Debug)]
pub struct Sale {
    pin: SaleCreated,
    ledger: RwLock<Ledger>,
    unfollowable: RwLock<Option<Unfollowable>>,
    waiters: Mutex<Waiters>,
}

/// Who waits for which event. Sorted, so that whoever is served is found without a look at
/// those who are not.
#[derive(Debug, Default)]
struct Waiters {
    by_event: BTreeMap<(Generation, Seq), Vec<oneshot::Sender<()>>>,
    len: usize,
}

impl Sale {
    pub(crate) fn new(pin: SaleCreated) -> Self {
        Self {
            ledger: RwLock::new(Ledger::judged_by(pin.sale.clone())),
            pin,
            unfollowable: RwLock::new(None),
            waiters: Mutex::default(),
        }
    }

    /// The sale's id.
    #[must_use]
    pub fn id(&self) -> &SaleId {
        &self.pin.sale
    }

    /// Where its events are, and what is sold.
    #[must_use]
    pub fn pin(&self) -> &SaleCreated {
        &self.pin
    }

    /// The ledger, to be read and let go: the reader of the log waits meanwhile.
    pub fn ledger(&self) -> RwLockReadGuard<'_, Ledger> {
        self.ledger.read()
    }

    /// Why it is not followed, if it is not.
    #[must_use]
    pub fn unfollowable(&self) -> Option<Unfollowable> {
        self.unfollowable.read().clone()
    }

    pub(crate) fn give_up(&self, why: Unfollowable) {
        self.unfollowable.write().get_or_insert(why);
        self.wake_all();
    }

    /// Reads one record and wakes whoever waited for what it decides.
    pub(crate) fn feed(
        &self,
        at: Offset,
        record: Record,
        out: &mut Vec<Applied>,
    ) -> Result<Fed, Stop> {
        let mut ledger = self.ledger.write();
        let fed = ledger.feed(at, record, out);
        let through = (ledger.generation(), ledger.applied());
        drop(ledger);
        match fed {
            Ok(Fed::Applied(_)) => self.wake_through(through),
            Ok(Fed::Ended(_) | Fed::Started(_)) | Err(_) => self.wake_all(),
            Ok(Fed::Buffered | Fed::Duplicate | Fed::Void | Fed::Halted) => {}
        }
        fed
    }

    /// A receiver that is told when the event is decided; `None` when too many wait already.
    /// The caller looks at the ledger after this call, since the event may just have been.
    pub(crate) fn wait_for(
        &self,
        event: (Generation, Seq),
        waiters_max: usize,
    ) -> Option<oneshot::Receiver<()>> {
        let mut waiters = self.waiters.lock();
        if waiters.len >= waiters_max {
            waiters.sweep();
            if waiters.len >= waiters_max {
                return None;
            }
        }
        let (tell, told) = oneshot::channel();
        waiters.by_event.entry(event).or_default().push(tell);
        waiters.len += 1;
        Some(told)
    }

    fn wake_through(&self, (generation, seq): (Generation, Seq)) {
        let mut waiters = self.waiters.lock();
        let rest = waiters.by_event.split_off(&(generation, seq.next()));
        let due = std::mem::replace(&mut waiters.by_event, rest);
        waiters.len -= due.values().map(Vec::len).sum::<usize>();
        drop(waiters);
        wake(due);
    }

    fn wake_all(&self) {
        let due = std::mem::take(&mut *self.waiters.lock());
        wake(due.by_event);
    }

    /// In what state the sale is, by its log alone.
    #[must_use]
    pub fn phase(&self) -> Phase {
        self.ledger().phase()
    }
}

impl Waiters {
    /// Forgets those who have given up waiting.
    fn sweep(&mut self) {
        self.by_event.retain(|_, waiting| {
            waiting.retain(|tell| !tell.is_closed());
            !waiting.is_empty()
        });
        self.len = self.by_event.values().map(Vec::len).sum();
    }
}

fn wake(due: BTreeMap<(Generation, Seq), Vec<oneshot::Sender<()>>>) {
    for tell in due.into_values().flatten() {
        // Whoever no longer waits needs no word.
        let _ = tell.send(());
    }
}
