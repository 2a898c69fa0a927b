//! A sale as a gateway serves it.

use crate::admin::AdminError;
use crate::answer::{LookUp, State, Unavailable, View};
use crate::sale::Sale;
use crate::session::Session;
use crate::shared::Shared;
use dropgate_domain::{AttemptId, ClaimId, Found, Generation, Phase, Seq, TimeMs, UserId, Win};
use dropgate_stream::Lane;
use parking_lot::RwLock;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// What a gateway keeps of a sale besides its ledger.
#[derive(Debug)]
pub(crate) struct Served {
    pub sale: Arc<Sale>,
    session: RwLock<Option<Arc<Session>>>,
    /// Asks for a tip before its time.
    pub ask_tip: Notify,
    /// Whether a task reads its tip.
    pub watched: AtomicBool,
}

impl Served {
    pub fn new(sale: Arc<Sale>) -> Self {
        Self {
            sale,
            session: RwLock::new(None),
            ask_tip: Notify::new(),
            watched: AtomicBool::new(false),
        }
    }

    /// The session of the ledger's current generation; `None` before the opening.
    pub fn session(&self, shared: &Shared) -> Option<Arc<Session>> {
        let ledger = self.sale.ledger();
        let current = ledger.current()?;
        let known = self.session.read().clone();
        if let Some(session) = known.filter(|s| s.generation() == current.generation()) {
            return Some(session);
        }
        let mut slot = self.session.write();
        match slot.as_ref() {
            Some(session) if session.generation() == current.generation() => {}
            _ => {
                let log = self.sale.pin().log_id;
                match Session::new(self.sale.id().clone(), log, current) {
                    Ok(session) => *slot = Some(Arc::new(session)),
                    Err(error) => {
                        shared.warn_once(self.sale.id(), &error.to_string());
                        return None;
                    }
                }
            }
        }
        slot.clone()
    }

    /// Whether its log can be followed: if not, nothing will ever be read of it.
    pub fn followable(&self) -> Result<(), AdminError> {
        if let Some(why) = self.sale.unfollowable() {
            return Err(AdminError::Unfollowable(why.to_string()));
        }
        match self.sale.phase() {
            Phase::Stopped(stop) => Err(AdminError::Unfollowable(stop.to_string())),
            _ => Ok(()),
        }
    }

    pub fn lane(&self) -> Lane {
        Lane::Claims(self.sale.pin().partition)
    }
}

/// A seq that is further ahead of what is applied here was never given: gateways are never that
/// far apart.
const AHEAD_MAX: u64 = 1_000_000;

/// How an awaited event ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    Applied(Win),
    AppliedOther,
    Void,
    TimedOut,
    TooMany,
}

/// A sale as a gateway serves it. Clones are the same sale.
#[derive(Debug, Clone)]
pub struct SaleHandle {
    pub(crate) shared: Arc<Shared>,
    pub(crate) served: Arc<Served>,
}

impl SaleHandle {
    /// The sale, its pin and its ledger.
    #[must_use]
    pub fn sale(&self) -> &Arc<Sale> {
        &self.served.sale
    }

    /// How old what this process knows of the sale may be, at most.
    pub(crate) fn staleness_max(&self) -> Option<Duration> {
        self.shared.followed.fresh.age(self.served.lane())
    }

    /// Whether what is in memory may be told: the log answers, and this is the sale's log.
    pub(crate) fn fresh(&self) -> Result<(), Unavailable> {
        if self.shared.followed.ended.read().is_some() {
            return Err(Unavailable::Log);
        }
        if self.sale().unfollowable().is_some() {
            return Err(Unavailable::Halted);
        }
        match self.staleness_max() {
            Some(age) if age <= self.shared.config.fresh_for => Ok(()),
            _ => Err(Unavailable::Log),
        }
    }

    /// The session to claim in: the log answers, the generation stands, and Redis agrees.
    pub(crate) fn live(&self) -> Result<Arc<Session>, Unavailable> {
        self.fresh()?;
        match self.sale().phase() {
            Phase::Open | Phase::Closed => {}
            Phase::NotOpened => return Err(Unavailable::Starting),
            Phase::Halted(_) | Phase::Ended(_) | Phase::Stopped(_) => {
                return Err(Unavailable::Halted);
            }
        }
        let session = self.served.session(&self.shared);
        let session = session.ok_or(Unavailable::Halted)?;
        if self.shared.publisher.trouble(self.served.lane()).is_some() {
            return Err(Unavailable::Log);
        }
        session.standing(self.shared.config.tip_valid)?;
        Ok(session)
    }

    /// Whether "sold out" can be told from memory right now.
    #[must_use]
    pub fn latched_sold_out(&self) -> bool {
        self.live().is_ok_and(|session| session.is_latched())
    }

    /// The user's first win, if it can be told from memory right now.
    #[must_use]
    pub fn win_of(&self, user: &UserId) -> Option<Win> {
        self.fresh().ok()?;
        self.sale().ledger().win_of(user).cloned()
    }

    /// Whether the user has a win, as far as the log has been read. Not to be told to anybody: it
    /// may be old.
    #[must_use]
    pub fn owns(&self, user: &UserId) -> bool {
        self.sale().ledger().win_of(user).is_some()
    }

    /// What became of a claim, for its user. Touches neither Redis nor the database.
    #[must_use]
    pub fn look_up(&self, claim: &ClaimId, user: &UserId) -> LookUp {
        if let Err(why) = self.fresh() {
            return LookUp::Unavailable(why);
        }
        let ledger = self.sale().ledger();
        let found = match ledger.event_at(claim.generation, claim.seq) {
            Found::Applied(win) => Verdict::Applied(win.clone()),
            Found::AppliedOther => Verdict::AppliedOther,
            Found::Void => Verdict::Void,
            Found::Open => Verdict::TimedOut,
        };
        let window = ledger
            .current()
            .map_or(0, |current| u64::from(current.window().get()));
        let (generation, applied) = (ledger.generation(), ledger.applied());
        drop(ledger);
        match found {
            Verdict::Applied(win) if win.attempt == claim.attempt => {
                if win.user == *user {
                    LookUp::Won(win)
                } else {
                    LookUp::NotFound
                }
            }
            Verdict::Applied(_) | Verdict::AppliedOther | Verdict::Void | Verdict::TooMany => {
                if self.latched_sold_out() {
                    LookUp::SoldOut
                } else {
                    LookUp::Void
                }
            }
            Verdict::TimedOut => {
                if claim.generation == generation && claim.seq.0 <= applied.0 + window {
                    self.served.ask_tip.notify_one();
                    LookUp::Pending
                } else if claim.generation <= generation.next()
                    && claim.seq.0 <= applied.0.saturating_add(AHEAD_MAX)
                {
                    // Another gateway may have read further than this one.
                    LookUp::Unavailable(Unavailable::Log)
                } else {
                    LookUp::NotFound
                }
            }
        }
    }

    /// Waits until the event is decided, at most until the deadline. Cancel safe.
    pub(crate) async fn wait(
        &self,
        generation: Generation,
        seq: Seq,
        deadline: Instant,
    ) -> Verdict {
        let decided = || match self.sale().ledger().event_at(generation, seq) {
            Found::Applied(win) => Some(Verdict::Applied(win.clone())),
            Found::AppliedOther => Some(Verdict::AppliedOther),
            Found::Void => Some(Verdict::Void),
            Found::Open => None,
        };
        loop {
            let waiters_max = self.shared.config.waiters_max;
            let Some(told) = self.sale().wait_for((generation, seq), waiters_max) else {
                return decided().unwrap_or(Verdict::TooMany);
            };
            if let Some(verdict) = decided() {
                return verdict;
            }
            if tokio::time::timeout_at(deadline, told).await.is_err() {
                return decided().unwrap_or(Verdict::TimedOut);
            }
        }
    }

    /// The user's wins and the sale's limit.
    pub(crate) fn known_wins(&self, user: &UserId) -> (Vec<Win>, u32) {
        let ledger = self.sale().ledger();
        let limit = ledger.definition().map_or(1, |d| d.per_user_limit);
        (ledger.wins_of(user).cloned().collect(), limit)
    }

    /// The win of this attempt with this seq, whichever generation gave it.
    pub(crate) fn win_at(&self, user: &UserId, seq: Seq, attempt: AttemptId) -> Option<Win> {
        let ledger = self.sale().ledger();
        let mut wins = ledger.wins_of(user);
        wins.find(|win| win.seq == seq && win.attempt == attempt)
            .cloned()
    }

    /// The sale as it is known here, at `now`.
    #[must_use]
    pub fn view(&self, now: TimeMs) -> View {
        // Nothing of its log was read then, or not to its end: the phase is no news.
        let unread = self.sale().unfollowable().is_some();
        let session = self.served.session(&self.shared);
        let halted = session.is_some_and(|s| s.halted().is_some());
        let ledger = self.sale().ledger();
        let definition = self.sale().pin().definition.clone();
        let phase = ledger.phase();
        let early = definition.opens_at.is_some_and(|opens| now < opens);
        let over = definition.closes_at.is_some_and(|closes| now >= closes);
        let state = match phase {
            _ if unread => State::Halted,
            Phase::Halted(_) | Phase::Ended(_) | Phase::Stopped(_) => State::Halted,
            Phase::NotOpened => State::Scheduled,
            Phase::Closed => State::Closed,
            Phase::Open if halted => State::Halted,
            Phase::Open if over => State::Closed,
            Phase::Open if early => State::Scheduled,
            Phase::Open if ledger.claimable() == 0 => State::SoldOut,
            Phase::Open => State::Open,
        };
        View {
            state,
            definition,
            position: ledger.position(),
            counts: ledger.current().map(|_| ledger.counts()),
            closed_at: ledger.closed_at(),
            staleness_max: self.staleness_max(),
        }
    }
}
