//! What the store takes and gives.

use dropgate_domain::{
    AttemptId, ClaimId, Generation, IdempotencyKey, LogId, Offset, PartitionId, Position, SaleId,
    Seq, TimeMs, Unit, UserId, Win,
};

/// Where a sale's events are: fixed when its row is inserted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pin {
    /// The log.
    pub log_id: LogId,
    /// Its partition.
    pub partition: PartitionId,
    /// The opening is at this offset or later.
    pub from_offset: Offset,
}

/// Whether a sale takes claims, as far as it has been written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SaleState {
    /// It does.
    Open,
    /// It takes no more.
    Closed,
}

impl SaleState {
    /// As it stands in the table.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Closed => "closed",
        }
    }
}

/// What has become of an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OrderStatus {
    /// The unit is the user's for good.
    Won,
}

impl OrderStatus {
    /// As it stands in the table.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Won => "won",
        }
    }
}

/// A row of `orders`, without the sale.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Order {
    /// What.
    pub unit: Unit,
    /// What the claim is called; names the attempt, generation and seq too.
    pub claim: ClaimId,
    /// Whose.
    pub user: UserId,
    /// The attempt that won.
    pub attempt: AttemptId,
    /// The claim's key.
    pub key: IdempotencyKey,
    /// The generation of the win's event.
    pub generation: Generation,
    /// The seq of the win's event.
    pub seq: Seq,
    /// What has become of it.
    pub status: OrderStatus,
    /// When it was won, in the sale's time.
    pub won_at: TimeMs,
}

impl From<&Win> for Order {
    fn from(win: &Win) -> Self {
        Self {
            unit: win.unit,
            claim: win.claim(),
            user: win.user.clone(),
            attempt: win.attempt,
            key: win.key.clone(),
            generation: win.generation,
            seq: win.seq,
            status: OrderStatus::Won,
            won_at: win.won_at,
        }
    }
}

/// A row of `sales`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SaleRow {
    /// The sale.
    pub sale: SaleId,
    /// Where its events are.
    pub pin: Pin,
    /// Through which event it has been written.
    pub position: Position,
    /// Its state there.
    pub state: SaleState,
    /// Units for sale.
    pub stock: u64,
    /// Units won for good.
    pub sold: u64,
    /// Units that wait for a confirmation.
    pub held: u64,
    /// The instant from which it takes claims; `None`: as soon as it was open.
    pub opened_at: Option<TimeMs>,
    /// When it was closed, in the sale's time.
    pub closed_at: Option<TimeMs>,
}

/// One sale's part of a transaction: from one position to a later one, with the orders between.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SaleWrite {
    /// The sale.
    pub sale: SaleId,
    /// The position that must be stored now. `None`: there must be no row, and it is inserted.
    pub from: Option<Position>,
    /// The position that is stored then.
    pub to: Position,
    /// Where the sale's events are; written with the row, compared never.
    pub pin: Pin,
    /// The sale's state at `to`.
    pub state: SaleState,
    /// Units for sale; written with the row.
    pub stock: u64,
    /// Units won for good, at `to`.
    pub sold: u64,
    /// Units that wait for a confirmation, at `to`.
    pub held: u64,
    /// See [`SaleRow::opened_at`]; written with the row.
    pub opened_at: Option<TimeMs>,
    /// When it was closed, if it is at `to`.
    pub closed_at: Option<TimeMs>,
    /// The orders after `from` through `to`.
    pub orders: Vec<Order>,
}

/// Figures over a sale's orders.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OrderCounts {
    /// Rows.
    pub rows: u64,
    /// Different users.
    pub users: u64,
    /// The lowest unit; `None` when there is no row.
    pub unit_min: Option<Unit>,
    /// The highest unit; `None` when there is no row.
    pub unit_max: Option<Unit>,
}
