//! Ids, states, the ledger and the promises of a sale: pure, no I/O.

pub mod code;
mod event;
mod ids;
mod ledger;
pub mod promise;

pub use event::{
    Body, CALLS_VERSION, Definition, Event, Halted, InvalidDefinition, Link, PER_USER_LIMIT_MAX,
    RULE_VERSION, Record, STOCK_MAX, SaleCreated, ScriptHash, Started, Won,
};
pub use ids::{
    AttemptId, ClaimId, Digest, Generation, IdempotencyKey, Identity, InvalidId, LogId, Nonce,
    Offset, PartitionId, SaleId, Seq, TimeMs, Unit, UserId,
};
pub use ledger::{
    Applied, Cause, Counts, Fed, Found, FullRule, Incarnation, Ledger, Phase, Position, Rule, Stop,
    What, Win,
};
