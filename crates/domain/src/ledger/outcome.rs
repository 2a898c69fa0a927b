//! What the ledger says of a record, of an event, and of the sale.

use super::book::Win;
use crate::event::Halted;
use crate::ids::{Digest, Generation, Offset, Seq, TimeMs};

/// How far a sale is: the last applied event and its place in the chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Position {
    /// The generation.
    pub generation: Generation,
    /// The last applied seq.
    pub seq: Seq,
    /// The digest of that event; of the generation's `Started` record when none is applied yet.
    pub chain: Digest,
}

/// An event that took effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Applied {
    /// The offset of the record that made it effective: its own, or that of the one it had
    /// waited for.
    pub at: Offset,
    /// The sale's position with it.
    pub position: Position,
    /// What happened.
    pub what: What,
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    /// A generation began; the first one: the sale opened.
    Started,
    /// A unit was won.
    Won(Win),
    /// The sale was closed.
    Closed(TimeMs),
}

/// What the ledger made of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fed {
    /// It applied, with what had waited for it: so many events.
    Applied(u32),
    /// It came early and waits.
    Buffered,
    /// The same bytes were there before.
    Duplicate,
    /// It belongs to a generation that is over.
    Void,
    /// It broke the rule: its generation ends here. Events may have applied before the break
    /// was found.
    Ended(Cause),
    /// A generation began.
    Started(Generation),
    /// New claims are to stop.
    Halted,
}

/// Why a generation ended: in each case Redis had lost writes and gave a number again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Cause {
    /// Two different records have one seq.
    #[error("two different records have seq {seq}")]
    OtherBytes {
        /// The seq.
        seq: Seq,
    },
    /// A record has a seq that an earlier generation used.
    #[error("seq {seq} belongs to an earlier generation")]
    SeqTaken {
        /// The seq.
        seq: Seq,
    },
    /// A record is further ahead than the script lets any get.
    #[error("seq {seq} is further ahead than the window allows")]
    BeyondWindow {
        /// The seq.
        seq: Seq,
    },
    /// A record does not hang on the one before it.
    #[error("seq {seq} does not follow from the event before it")]
    ChainBroken {
        /// The seq.
        seq: Seq,
    },
    /// The state does not allow the event. That it always does is a theorem; this is its guard.
    #[error("seq {seq} cannot be: {why}")]
    Impossible {
        /// The seq.
        seq: Seq,
        /// What forbids it.
        why: &'static str,
    },
}

/// Why a ledger judges nothing more: what it reads is not the log as it was written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Stop {
    /// A record of another sale was fed.
    #[error("a record of another sale")]
    OtherSale,
    /// Offsets must grow.
    #[error("offset {at} was read before")]
    OffsetWentBack {
        /// The offset.
        at: Offset,
    },
    /// The log has lost the record that began a generation.
    #[error("generation {generation} has not begun, the log is at {now}: a record is lost")]
    GenerationNotStarted {
        /// The record's generation.
        generation: Generation,
        /// The ledger's.
        now: Generation,
    },
    /// A generation follows a rule or a calling convention that this release does not know.
    #[error("rule {rule} or calling convention {calls} is not known to this release")]
    UnknownVersion {
        /// The rule's version.
        rule: u32,
        /// The convention's version.
        calls: u32,
    },
    /// The opening, and only the opening, says what is sold.
    #[error("a generation's start has a definition where none belongs, or lacks it")]
    DefinitionMisplaced,
}

/// What became of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found<'a> {
    /// The seq holds this win. Whether it is the asker's is for the asker to compare: attempt
    /// and user.
    Applied(&'a Win),
    /// The seq holds an event that is no win.
    AppliedOther,
    /// Not decided yet.
    Open,
    /// Nothing of that generation will ever apply at that seq.
    Void,
}

/// The state of a sale by its log alone; time and Redis have their say besides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Phase {
    /// Its opening has not been read.
    NotOpened,
    /// It takes claims.
    Open,
    /// It takes no more claims.
    Closed,
    /// Its generation takes no new claims until the next one begins.
    Halted(Halted),
    /// Its generation is over, and the next one has not begun.
    Ended(Cause),
    /// Its log cannot be read further.
    Stopped(Stop),
}
