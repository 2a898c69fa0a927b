//! What a claim, or a question about one, comes to.

use dropgate_domain::{ClaimId, TimeMs, Win};
use std::time::Duration;

/// The answer to a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// The claim got a unit; its event is applied.
    Won(Win),
    /// The user has this claim already; its event is applied.
    Again(Win),
    /// The claim has a seq, and the log has not decided yet.
    Pending(ClaimId),
    /// No unit is left: exact at the time of the answer.
    SoldOut,
    /// The user has as many claims as they may: these.
    LimitReached(Vec<Win>),
    /// The sale opens later.
    Early {
        /// When, in the sale's time.
        opens_at: TimeMs,
    },
    /// The sale takes no more claims.
    Closed,
    /// Nothing can be said now. The same claim with the same key may be tried again.
    Unavailable(Unavailable),
}

/// What became of a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LookUp {
    /// It got a unit.
    Won(Win),
    /// It will never get one; another try may.
    Void,
    /// It will never get one, and no unit is left.
    SoldOut,
    /// Not decided yet.
    Pending,
    /// There is no such claim of this user.
    NotFound,
    /// Nothing can be said now.
    Unavailable(Unavailable),
}

/// Why nothing can be said now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Unavailable {
    /// The sale was halted: it goes on with its next generation.
    #[error("the sale is halted")]
    Halted,
    /// The sale's state is being built, or this process does not know it yet.
    #[error("the sale is starting")]
    Starting,
    /// Too much is in flight.
    #[error("too many claims are in flight")]
    Busy,
    /// The claim's event will never apply; nobody was told anything.
    #[error("the claim is void")]
    Void,
    /// Redis does not answer, or refuses. Whether the call ran is unknown; the same key finds out.
    #[error("admission does not answer")]
    Admission,
    /// The log does not answer, so what is in memory may be old.
    #[error("the log does not answer")]
    Log,
}

impl Unavailable {
    /// After how long to try again, before jitter.
    #[must_use]
    pub fn retry_after(self) -> Duration {
        match self {
            // A recovery takes seconds; anything else is over in a moment or it is not.
            Self::Halted => Duration::from_secs(2),
            Self::Starting | Self::Busy | Self::Void | Self::Admission | Self::Log => {
                Duration::from_secs(1)
            }
        }
    }
}

/// The public state of a sale.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Not opened, or before its opening time.
    Scheduled,
    /// Takes claims.
    Open,
    /// No unit is left.
    SoldOut,
    /// Takes no more claims.
    Closed,
    /// Goes on with its next generation.
    Halted,
}

/// A sale as it is known here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct View {
    /// Its state.
    pub state: State,
    /// What is sold.
    pub definition: dropgate_domain::Definition,
    /// How far; `None` before the opening.
    pub position: Option<dropgate_domain::Position>,
    /// Where the stock is; `None` before the opening.
    pub counts: Option<dropgate_domain::Counts>,
    /// When it was closed, if it was.
    pub closed_at: Option<TimeMs>,
    /// How old this may be, at most; `None` when unknown.
    pub staleness_max: Option<Duration>,
}
