//! Could the model have done this? Judges a real run by its log and by what clients were told.
//!
//! Nothing here asks the ledger: what counts of the log is told once more, in a few lines of its
//! own, so that a mistake of the ledger does not hide itself. Accepted means that
//!
//! - generations began one after the other, each on what was applied by then;
//! - every event is one that a script could have made: it hangs on its generation's start or on
//!   another event of it, is numbered after it, gives the next fresh unit of that history to a
//!   user who has none in it, within the window, and not before its time;
//! - a script that forgot nothing makes one history, and all of it counts: two events after one,
//!   an event whose forerunner never came, or one that came too late to count, are only possible
//!   if the run's faults made Redis forget ([`Run::redis_forgot`]);
//! - what was told is true of the whole log.
//!
//! A run is to be judged when it has settled: nothing is on its way any more.

mod counts;
mod told;
mod tree;

use dropgate_domain::{ClaimId, Offset, Record, SaleId, Seq, Unit, UserId};

/// A run, as it is to be judged.
#[derive(Debug)]
pub struct Run<'a> {
    /// The sale. Records of others are passed over.
    pub sale: &'a SaleId,
    /// The log, in its order.
    pub records: &'a [(Offset, Record)],
    /// What clients were told, in their order.
    pub told: &'a [Told],
    /// Whether anything happened that makes a Redis forget writes, or two take themselves for
    /// the master.
    pub redis_forgot: bool,
}

/// What a client was told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Told {
    /// Who.
    pub user: UserId,
    /// What.
    pub outcome: Outcome,
}

/// An answer to a claim, or to the question what became of one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The claim has this unit. For a repeat, too.
    Won {
        /// Which claim.
        claim: ClaimId,
        /// What it got.
        unit: Unit,
    },
    /// It is not decided yet.
    Pending {
        /// Which claim.
        claim: ClaimId,
    },
    /// The claim will never have a unit.
    Void {
        /// Which claim.
        claim: ClaimId,
    },
    /// Nothing is left.
    SoldOut,
    /// The sale takes no more claims.
    Closed,
    /// The sale has not begun.
    Early,
    /// The user has as many units as they may.
    LimitReached,
    /// Not now: nothing is said about the claim.
    NotNow,
}

/// What an accepted run was like.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Accepted {
    /// Generations that counted.
    pub generations: u32,
    /// Events that applied.
    pub applied: u64,
    /// Events that are void.
    pub void: u64,
    /// Records that were there before.
    pub duplicates: u64,
    /// Signs that Redis forgot writes.
    pub forgotten: u64,
    /// Answers that were checked.
    pub told: u64,
}

/// Where a run leaves what the model can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum At {
    /// At a record.
    Record(Offset),
    /// At an answer, counted from 0.
    Told(usize),
}

impl std::fmt::Display for At {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Record(offset) => write!(f, "record at offset {offset}"),
            Self::Told(index) => write!(f, "answer {index}"),
        }
    }
}

/// The first step of a run that the model cannot make.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{at}: {why}")]
pub struct Rejected {
    /// Where.
    pub at: At,
    /// Why not.
    pub why: Why,
}

/// Why the model cannot make a step.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Why {
    /// The log's first record does not open the sale, or a later one does once more.
    #[error("the definition belongs in the first start and nowhere else")]
    DefinitionMisplaced,
    /// A generation is skipped, or its events come before its start.
    #[error("its generation has not begun")]
    NotBegun,
    /// Two starts have one identity, or two that count have one nonce.
    #[error("its start is not a new one")]
    StartRepeated,
    /// The event hangs on something that is no event or start of its generation.
    #[error("it hangs on what is not of its generation, or on a start that did not count")]
    ParentForeign,
    /// The event is not numbered after the one that it hangs on.
    #[error("it should have seq {expected}")]
    SeqWrong {
        /// The number after its forerunner's.
        expected: Seq,
    },
    /// A script would have given another unit.
    #[error("it should have unit {expected}")]
    UnitWrong {
        /// The next fresh one of its history.
        expected: Unit,
    },
    /// There is no such unit.
    #[error("its unit is not one of the stock")]
    UnitUnknown,
    /// The user has as many as they may in its history.
    #[error("its user had as many units as they may")]
    UserAtLimit,
    /// Time went back.
    #[error("its time is before that of the event it hangs on")]
    TimeBack,
    /// It hangs on a close.
    #[error("the sale was closed before it")]
    AfterClose,
    /// More events were in flight than the script lets.
    #[error("more than the window was in flight")]
    BeyondWindow,
    /// Two events are the next one, and Redis forgot nothing.
    #[error("another event has its place, and redis did not forget anything")]
    Fork,
    /// What it hangs on never came, and Redis forgot nothing.
    #[error("what it hangs on is not in the log, and redis did not forget anything")]
    Orphan,
    /// It came when it counted no more, and Redis forgot nothing.
    #[error("it came too late to count, and redis did not forget anything")]
    Late,
    /// A win was told that the log does not hold.
    #[error("the log has no such win of this user")]
    NotWon,
    /// A claim is said to be void, and the log holds it.
    #[error("the log holds the claim that is said to be void")]
    NotVoid,
    /// A claim is said to be void, and may yet apply.
    #[error("the claim that is said to be void is not decided")]
    VoidTooEarly,
    /// The claim is of a generation that never was.
    #[error("the claim is of a generation that never was")]
    ClaimUnknown,
    /// The claim is another user's.
    #[error("the claim is another user's")]
    ClaimOfAnother,
    /// Units are left.
    #[error("{left} units are not sold")]
    NotSoldOut {
        /// How many.
        left: u64,
    },
    /// The log has no close, and the sale no end.
    #[error("the sale was not closed")]
    NotClosed,
    /// The sale has no opening time.
    #[error("the sale has no time at which it opens")]
    NotEarly,
    /// The user has fewer units than they may.
    #[error("the user has {has} units and may have {limit}")]
    BelowLimit {
        /// How many they have.
        has: usize,
        /// How many they may have.
        limit: u32,
    },
}

/// Whether the model could have made this run.
///
/// # Errors
/// The first step that it could not make: of the log's records, then of what was told.
pub fn replay(run: &Run<'_>) -> Result<Accepted, Rejected> {
    let counts = counts::read(run)?;
    let mut accepted = tree::check(run, &counts)?;
    told::check(run, &counts)?;
    accepted.told = run.told.len() as u64;
    Ok(accepted)
}

fn at(offset: Offset, why: Why) -> Rejected {
    Rejected {
        at: At::Record(offset),
        why,
    }
}
