//! How a sale stands, for who may have to recover it and for who asks why it does not sell.

use crate::handle::SaleHandle;
use dropgate_domain::{Cause, Generation, Halted, Phase, TimeMs};
use std::time::Duration;

/// A sale as this process sees it now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standing {
    /// The current generation; 0 before the opening.
    pub generation: Generation,
    /// How it is.
    pub condition: Condition,
    /// Wins that are applied.
    pub wins: u64,
    /// When each generation was begun, by the clock of who began it.
    pub starts: Vec<Option<TimeMs>>,
}

/// How a generation of a sale is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Condition {
    /// Nothing can be said: the log does not answer here.
    Unknown,
    /// The sale was never opened.
    NotOpened,
    /// Claims are taken.
    Live,
    /// It has begun, and was not seen whole in Redis yet: it is being built, its builder died, or
    /// this Redis has lost it before this process looked.
    Starting {
        /// For how long this process has known of it.
        since: Duration,
    },
    /// It was whole. Redis does not answer now, or events cannot be published; nothing is known
    /// to be lost.
    Unreachable,
    /// New claims are stopped.
    Halted(Halted),
    /// The log shows that Redis lost writes.
    Ended(Cause),
    /// The sale is closed.
    Closed,
    /// Its log cannot be followed; no recovery helps.
    Unfollowable(String),
}

impl Condition {
    /// What the log alone settles; `None` when the sale is open by it, and Redis has its say.
    pub(crate) fn by_log(phase: Phase) -> Option<Self> {
        match phase {
            Phase::NotOpened => Some(Self::NotOpened),
            Phase::Closed => Some(Self::Closed),
            Phase::Stopped(stop) => Some(Self::Unfollowable(stop.to_string())),
            Phase::Ended(cause) => Some(Self::Ended(cause)),
            Phase::Halted(halted) => Some(Self::Halted(halted)),
            Phase::Open => None,
        }
    }

    /// In one word.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::NotOpened => "not_opened",
            Self::Live => "live",
            Self::Starting { .. } => "starting",
            Self::Unreachable => "unreachable",
            Self::Halted(_) => "halted",
            Self::Ended(_) => "ended",
            Self::Closed => "closed",
            Self::Unfollowable(_) => "unfollowable",
        }
    }

    /// Why it does not sell, for people; `None` when there is nothing to say.
    #[must_use]
    pub fn why(&self) -> Option<String> {
        match self {
            Self::NotOpened | Self::Live | Self::Closed => None,
            Self::Unknown => Some("the log does not answer".to_owned()),
            Self::Starting { .. } => {
                Some("its generation was begun and is not whole in redis".to_owned())
            }
            Self::Unreachable => {
                Some("redis does not answer, or events cannot be published".to_owned())
            }
            Self::Halted(halted) => Some(halted.reason.clone()),
            Self::Ended(cause) => Some(format!("redis lost writes: {cause}")),
            Self::Unfollowable(why) => Some(why.clone()),
        }
    }
}

impl SaleHandle {
    /// How the sale stands. Does no I/O.
    #[must_use]
    pub fn standing(&self) -> Standing {
        let session = self.served.session(&self.shared);
        let ledger = self.sale().ledger();
        let (generation, phase) = (ledger.generation(), ledger.phase());
        let (wins, starts) = (ledger.wins().len() as u64, ledger.starts().to_vec());
        drop(ledger);
        let unfollowable = self.sale().unfollowable();
        let condition = if let Some(why) = unfollowable {
            Condition::Unfollowable(why.to_string())
        } else if self.fresh().is_err() {
            Condition::Unknown
        } else {
            Condition::by_log(phase).unwrap_or_else(|| {
                match session.filter(|s| s.generation() == generation) {
                    Some(session) => self.of_session(&session),
                    None => Condition::Unknown,
                }
            })
        };
        Standing {
            generation,
            condition,
            wins,
            starts,
        }
    }

    /// Of a sale that is open by its log.
    fn of_session(&self, session: &crate::session::Session) -> Condition {
        if let Some(reason) = session.halted() {
            // On its way into the log.
            return Condition::Halted(Halted {
                reason: reason.to_owned(),
                by: self.shared.instance.clone(),
                at: None,
            });
        }
        match self.live() {
            Ok(_) => Condition::Live,
            Err(_) if session.ever_agreed() => Condition::Unreachable,
            // Only on Redis' own word: one that does not answer may well have it.
            Err(_) => match session.absent_for() {
                Some(since) => Condition::Starting { since },
                None => Condition::Unreachable,
            },
        }
    }
}
