//! What the ledgers applied and the database does not hold yet. Pure.
//!
//! Events come in the order of the log, from each sale's opening on. What the database holds
//! already is told from the stored position: everything before it is dropped, and the event at
//! it must be the very event that is stored, or the database belongs to another history.

use dropgate_domain::{Applied, Position, SaleId, TimeMs, What};
use dropgate_store::{Order, Pin, SaleRow, SaleState, SaleWrite};
use std::cmp::Ordering;
use std::collections::{BTreeMap, VecDeque};

/// The most sales of one transaction: each costs a statement, and locks a row until the end.
const SALES_MAX: usize = 64;

/// Why nothing more of a sale is written. It needs an operator.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Blocked {
    /// The stored position is not in the sale's log.
    #[error("the database belongs to another history: {0}")]
    OtherHistory(&'static str),
    /// The database will never take one of its rows.
    #[error("the database refuses a row: {0}")]
    Refused(String),
    /// The sale's row cannot be read.
    #[error("{0}")]
    Corrupt(String),
}

/// What is known of a sale when its first event comes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct About {
    /// Where its events are.
    pub pin: Pin,
    /// Units for sale.
    pub stock: u64,
    /// The instant from which it takes claims.
    pub opened_at: Option<TimeMs>,
}

/// What a look at a sale's row came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Look {
    /// It stands where it was thought to stand.
    Unmoved,
    /// Somebody has written.
    Moved,
    /// It is behind what was known to be stored: the database has forgotten. What it lacks is
    /// no longer here; the log must be read again.
    Rewound,
    /// It cannot be written any more, from now on or since before.
    Blocked,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stored {
    /// The row has not been looked at; every event is kept.
    Unknown,
    /// It is the event before the first that is kept; `None`: there is no row, and the first
    /// that is kept is the opening.
    At(Option<Position>),
    /// Events before it are still to come.
    Ahead(Position),
}

#[derive(Debug)]
struct Queue {
    about: About,
    stored: Stored,
    events: VecDeque<Applied>,
    /// Units sold before the first event that is kept.
    sold: u64,
    /// Of a close before the first event that is kept.
    closed_at: Option<TimeMs>,
    blocked: Option<Blocked>,
}

/// The events of all sales that are read and not written.
#[derive(Debug, Default)]
pub struct Pending {
    sales: BTreeMap<SaleId, Queue>,
    /// How many events are kept, over all sales.
    events: usize,
    /// The last sale of the last batch: the next batch begins behind it.
    turn: Option<SaleId>,
}

impl Pending {
    /// Takes events that follow those taken before.
    pub fn feed(
        &mut self,
        sale: &SaleId,
        about: impl FnOnce() -> About,
        events: impl IntoIterator<Item = Applied>,
    ) {
        let queue = self
            .sales
            .entry(sale.clone())
            .or_insert_with(|| Queue::new(about()));
        if queue.blocked.is_some() {
            return;
        }
        let before = queue.events.len();
        queue.events.extend(events);
        queue.settle();
        self.events = self.events - before + queue.events.len();
    }

    /// How many events are kept.
    pub fn events(&self) -> usize {
        self.events
    }

    /// Whether there is nothing to look at and nothing to write.
    pub fn is_idle(&self) -> bool {
        self.events == 0 && !self.sales.values().any(Queue::is_unknown)
    }

    /// Sales whose row must be looked at before anything of them can be written.
    pub fn unknown(&self) -> Vec<SaleId> {
        let sales = self.sales.iter().filter(|(_, queue)| queue.is_unknown());
        sales.map(|(sale, _)| sale.clone()).collect()
    }

    /// Sales with events that can be written.
    pub fn unwritten(&self) -> Vec<SaleId> {
        let sales = self
            .sales
            .iter()
            .filter(|(_, queue)| !queue.events.is_empty());
        sales.map(|(sale, _)| sale.clone()).collect()
    }

    /// The position that is known to be stored.
    pub fn stored(&self, sale: &SaleId) -> Option<Position> {
        match self.sales.get(sale)?.stored {
            Stored::At(position) => position,
            Stored::Ahead(position) => Some(position),
            Stored::Unknown => None,
        }
    }

    /// Takes note of a sale's row, which was just read.
    pub fn look(&mut self, sale: &SaleId, row: Option<&SaleRow>) -> Look {
        let Some(queue) = self.sales.get_mut(sale) else {
            return Look::Unmoved;
        };
        let before = queue.events.len();
        let look = queue.look(row);
        self.events = self.events - before + queue.events.len();
        look
    }

    /// Writes nothing more of a sale and forgets what it kept of it. The first reason stays.
    pub fn block(&mut self, sale: &SaleId, reason: Blocked) {
        if let Some(queue) = self.sales.get_mut(sale) {
            self.events -= queue.events.len();
            queue.block(reason);
        }
    }

    /// The sales of which nothing more is written.
    pub fn blocked(&self) -> impl Iterator<Item = (&SaleId, &Blocked)> {
        let sales = self.sales.iter();
        sales.filter_map(|(sale, queue)| Some((sale, queue.blocked.as_ref()?)))
    }

    /// The next transaction: what is there, at most `events_max` events, of one sale after the
    /// other, beginning behind those that had the last turn. Nothing is taken out; see
    /// [`Pending::written`].
    pub fn batch(&self, events_max: usize) -> Vec<SaleWrite> {
        let mut left = events_max;
        let mut writes = Vec::new();
        let turn = self.turn.as_ref();
        let behind = self
            .sales
            .iter()
            .filter(|(sale, _)| turn.is_none_or(|turn| *sale > turn));
        let before = self
            .sales
            .iter()
            .filter(|(sale, _)| turn.is_some_and(|turn| *sale <= turn));
        for (sale, queue) in behind.chain(before) {
            if left == 0 || writes.len() == SALES_MAX {
                break;
            }
            if let Some((write, events)) = queue.next_write(sale, left) {
                left -= events;
                writes.push(write);
            }
        }
        writes
    }

    /// The transaction of these writes, made by [`Pending::batch`], was committed.
    pub fn written(&mut self, writes: &[SaleWrite]) {
        for write in writes {
            if let Some(queue) = self.sales.get_mut(&write.sale) {
                let before = queue.events.len();
                queue.pass_through(write.to);
                queue.stored = Stored::At(Some(write.to));
                debug_assert_eq!(queue.sold, write.sold, "the counts follow the position");
                self.events = self.events - before + queue.events.len();
            }
        }
        self.turn = writes.last().map(|write| write.sale.clone());
    }
}

/// Positions by how far the sale is; the chain is not part of the order.
fn order(a: Position, b: Position) -> Ordering {
    (a.generation, a.seq).cmp(&(b.generation, b.seq))
}

impl Queue {
    fn new(about: About) -> Self {
        Self {
            about,
            stored: Stored::Unknown,
            events: VecDeque::new(),
            sold: 0,
            closed_at: None,
            blocked: None,
        }
    }

    fn is_unknown(&self) -> bool {
        self.blocked.is_none() && self.stored == Stored::Unknown
    }

    fn block(&mut self, reason: Blocked) {
        self.events = VecDeque::new();
        self.blocked.get_or_insert(reason);
    }

    fn look(&mut self, row: Option<&SaleRow>) -> Look {
        if self.blocked.is_some() {
            return Look::Blocked;
        }
        let Some(row) = row else {
            return match self.stored {
                Stored::Unknown | Stored::At(None) => {
                    self.stored = Stored::At(None);
                    Look::Unmoved
                }
                Stored::At(Some(_)) | Stored::Ahead(_) => Look::Rewound,
            };
        };
        if row.pin != self.about.pin {
            self.block(Blocked::OtherHistory(
                "the sale's row names another place in the log",
            ));
            return Look::Blocked;
        }
        let known = match self.stored {
            Stored::At(known) => known,
            Stored::Ahead(known) => Some(known),
            Stored::Unknown => None,
        };
        match known.map(|known| (order(row.position, known), known)) {
            Some((Ordering::Less, _)) => return Look::Rewound,
            Some((Ordering::Equal, known)) if known.chain == row.position.chain => {
                return Look::Unmoved;
            }
            Some((Ordering::Equal, _)) => {
                self.block(Blocked::OtherHistory("its chain changed at the same event"));
                return Look::Blocked;
            }
            Some((Ordering::Greater, _)) | None => {}
        }
        self.stored = Stored::Ahead(row.position);
        self.settle();
        if self.blocked.is_some() {
            Look::Blocked
        } else {
            Look::Moved
        }
    }

    /// Drops what is stored, as far as the events go.
    fn settle(&mut self) {
        let Stored::Ahead(position) = self.stored else {
            return;
        };
        let met = self.pass_through(position);
        match met {
            Some(met) if met == position => self.stored = Stored::At(Some(position)),
            Some(met) if order(met, position) == Ordering::Equal => {
                self.block(Blocked::OtherHistory(
                    "the log has another event at its position",
                ));
            }
            _ if !self.events.is_empty() => {
                self.block(Blocked::OtherHistory(
                    "the log has no event at its position",
                ));
            }
            _ => {}
        }
    }

    /// Drops the events through `position`, counting them; returns the last one's.
    fn pass_through(&mut self, position: Position) -> Option<Position> {
        let mut last = None;
        while let Some(event) = self.events.front()
            && order(event.position, position) != Ordering::Greater
        {
            match &event.what {
                What::Won(_) => self.sold += 1,
                What::Closed(at) => self.closed_at = Some(*at),
                What::Started => {}
            }
            last = Some(event.position);
            self.events.pop_front();
        }
        last
    }

    /// The write of at most `events_max` of the events, and how many they are.
    fn next_write(&self, sale: &SaleId, events_max: usize) -> Option<(SaleWrite, usize)> {
        let Stored::At(from) = self.stored else {
            return None;
        };
        let events = self.events.len().min(events_max);
        let to = self.events.get(events.checked_sub(1)?)?.position;
        let mut closed_at = self.closed_at;
        let mut orders = Vec::with_capacity(events);
        for event in self.events.iter().take(events) {
            match &event.what {
                What::Won(win) => orders.push(Order::from(win)),
                What::Closed(at) => closed_at = Some(*at),
                What::Started => {}
            }
        }
        let write = SaleWrite {
            sale: sale.clone(),
            from,
            to,
            pin: self.about.pin,
            state: closed_at.map_or(SaleState::Open, |_| SaleState::Closed),
            stock: self.about.stock,
            sold: self.sold + orders.len() as u64,
            held: 0,
            opened_at: self.about.opened_at,
            closed_at,
            orders,
        };
        Some((write, events))
    }
}

#[cfg(test)]
mod tests;
