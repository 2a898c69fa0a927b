//! What the log says: the events of a sale, as the ledger reads them.

use crate::ids::{
    AttemptId, Digest, Generation, IdempotencyKey, Identity, Nonce, SaleId, Seq, TimeMs, Unit,
    UserId,
};
use std::num::NonZeroU32;

/// The version of the ledger's rule that this release follows; named by every `Started`.
pub const RULE_VERSION: u32 = 1;
/// The version of the scripts' calling convention that this release speaks.
pub const CALLS_VERSION: u32 = 1;
/// The most wins a user may have in one sale: a user's claims are one value in Redis that the
/// script reads whole, so the bound keeps the script O(1).
pub const PER_USER_LIMIT_MAX: u32 = 16;
/// The largest stock of a sale.
pub const STOCK_MAX: u64 = 10_000_000;

/// What is sold, to whom and when: fixed at creation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Definition {
    /// Units for sale, 0 to [`STOCK_MAX`].
    pub stock: u64,
    /// Live wins a user may have, 1 to [`PER_USER_LIMIT_MAX`].
    pub per_user_limit: u32,
    /// Claims before this instant are early. `None`: as soon as the sale is open.
    pub opens_at: Option<TimeMs>,
    /// Claims from this instant on are too late. `None`: until somebody closes it.
    pub closes_at: Option<TimeMs>,
    /// How long a win waits for its confirmation; 0: a win is final at once.
    pub hold_seconds: u32,
}

/// A field of a [`Definition`] that cannot be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {expected}")]
pub struct InvalidDefinition {
    /// The field's name.
    pub field: &'static str,
    /// What it must be.
    pub expected: &'static str,
}

impl Definition {
    /// A sale of `stock` units, one to a user, open until closed.
    #[must_use]
    pub fn of(stock: u64) -> Self {
        Self {
            stock,
            per_user_limit: 1,
            opens_at: None,
            closes_at: None,
            hold_seconds: 0,
        }
    }

    /// Every field that is out of its bounds, so that all are reported at once.
    #[must_use]
    pub fn problems(&self) -> Vec<InvalidDefinition> {
        let mut problems = Vec::new();
        let mut check = |ok: bool, field, expected| {
            if !ok {
                problems.push(InvalidDefinition { field, expected });
            }
        };
        check(self.stock <= STOCK_MAX, "stock", "0 to 10000000");
        check(
            (1..=PER_USER_LIMIT_MAX).contains(&self.per_user_limit),
            "per_user_limit",
            "1 to 16",
        );
        check(
            self.hold_seconds == 0,
            "hold_seconds",
            "0: wins that wait for a confirmation are not there yet",
        );
        let ordered = match (self.opens_at, self.closes_at) {
            (Some(opens), Some(closes)) => opens < closes,
            _ => true,
        };
        check(ordered, "closes_at", "later than opens_at");
        problems
    }
}

/// One record of the log, with the digest of its bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// What it says.
    pub event: Event,
    /// The SHA-1 of its bytes.
    pub digest: Digest,
}

/// One event of one sale.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// The sale.
    pub sale: SaleId,
    /// The generation that it belongs to (for `Started`: that it begins).
    pub generation: Generation,
    /// What happened.
    pub body: Body,
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Body {
    /// A generation begins; of the first one: the sale opens.
    Started(Box<Started>),
    /// New claims of the generation are to stop everywhere; nothing is voided.
    Halted(Halted),
    /// A user got a unit.
    Won(Won),
    /// The sale takes no more claims.
    Closed(Link),
}

/// What the script appends to an event: its place in the sale.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Link {
    /// The event's number.
    pub seq: Seq,
    /// When, in the sale's time, which never goes back.
    pub time: TimeMs,
    /// The digest of the event before it.
    pub prev: Digest,
}

/// A win.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Won {
    /// The event's place.
    pub link: Link,
    /// Who.
    pub user: UserId,
    /// The attempt that won.
    pub attempt: AttemptId,
    /// The claim's key.
    pub key: IdempotencyKey,
    /// What.
    pub unit: Unit,
}

/// The beginning of a generation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Started {
    /// Drawn at random by its author, who knows it again by this.
    pub identity: Identity,
    /// The nonce in the text of the generation's scripts.
    pub nonce: Nonce,
    /// The scripts, by name and SHA-1: gateways take the hashes from here.
    pub scripts: Vec<ScriptHash>,
    /// The version of the ledger's rule; see [`RULE_VERSION`].
    pub rule: u32,
    /// The version of the calling convention; see [`CALLS_VERSION`].
    pub calls: u32,
    /// How many events may be in flight. Part of the rule, hence of the log: two readers
    /// with different windows would end a generation at different offsets.
    pub window: NonZeroU32,
    /// What is sold; there in generation 1 and only there.
    pub definition: Option<Definition>,
    /// Who started it, for people.
    pub by: String,
    /// Why, for people.
    pub reason: String,
    /// When, by its author's clock: for people, and for who bounds how often a sale is
    /// recovered. Judges nothing. `None` in records of before it was written.
    pub at: Option<TimeMs>,
}

/// A script of a generation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScriptHash {
    /// The file's stem, `claim_unit`.
    pub name: String,
    /// The SHA-1 by which Redis knows its text.
    pub sha1: Digest,
}

/// Why a generation takes no more claims.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Halted {
    /// Why, for people.
    pub reason: String,
    /// Who saw it, for people.
    pub by: String,
    /// When, by its author's clock, for people. `None` in records of before it was written.
    pub at: Option<TimeMs>,
}

/// A record of the index of sales: where a sale's events are to be found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SaleCreated {
    /// The sale.
    pub sale: SaleId,
    /// The log that holds it, and no other of the same name.
    pub log_id: crate::ids::LogId,
    /// Its partition.
    pub partition: crate::ids::PartitionId,
    /// The opening is at this offset or later.
    pub from_offset: crate::ids::Offset,
    /// What is sold.
    pub definition: Definition,
    /// When, by the creating gateway's clock.
    pub created_at: TimeMs,
    /// Drawn at random by its author, who knows it again by this.
    pub attempt: AttemptId,
}
