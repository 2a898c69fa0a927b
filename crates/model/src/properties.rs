//! What must hold in every state, and what must be possible in some.

use crate::history::Verdict;
use crate::records::{RecordId, Said};
use crate::sale::Sale;
use crate::state::State;
use dropgate_domain::Rule;
use dropgate_domain::promise::Promise;
use stateright::Property;

/// A property that must always hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Must {
    /// Promise 1: no unit has, or was told to, two owners, and no more are sold than there are.
    NeverOversell,
    /// Promise 2: no user has more than one.
    PerUserLimit,
    /// Promise 3: what was told as won stays won.
    ToldWinKept,
    /// Promise 5: the books balance.
    BooksBalance,
    /// Promise 5, between log and database: it holds what was applied through its position, each
    /// row once.
    DatabaseAgrees,
    /// A generation that goes live is as the ledger has it.
    LiveAsTheLedger,
    /// `current` never goes back.
    CurrentNeverBack,
    /// Nothing that Redis gave is void unless Redis lost something.
    NoVoidWithoutLoss,
    /// What was told as void never applies.
    VoidIsTrue,
    /// When "sold out" was told, no unit turns out to be free.
    SoldOutIsTrue,
    /// No event is refused by the guard alone: that the state allows it is a theorem.
    GuardNeverNeeded,
    /// The ledger never refuses to read on.
    NeverStopped,
    /// Every seq that was given can be decided.
    Resolvable,
    /// A sale that is not over can be made live.
    Reopens,
}

impl Must {
    /// All of them.
    pub const ALL: [Self; 14] = [
        Self::NeverOversell,
        Self::PerUserLimit,
        Self::ToldWinKept,
        Self::BooksBalance,
        Self::DatabaseAgrees,
        Self::LiveAsTheLedger,
        Self::CurrentNeverBack,
        Self::NoVoidWithoutLoss,
        Self::VoidIsTrue,
        Self::SoldOutIsTrue,
        Self::GuardNeverNeeded,
        Self::NeverStopped,
        Self::Resolvable,
        Self::Reopens,
    ];

    /// In a few words.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::NeverOversell => "1: never oversell",
            Self::PerUserLimit => "2: one unit a user",
            Self::ToldWinKept => "3: a told win is kept",
            Self::BooksBalance => "5: the books balance",
            Self::DatabaseAgrees => "5: the database agrees with the log",
            Self::LiveAsTheLedger => "a generation goes live as the ledger has it",
            Self::CurrentNeverBack => "current never goes back",
            Self::NoVoidWithoutLoss => "no void without a loss",
            Self::VoidIsTrue => "void is true when said",
            Self::SoldOutIsTrue => "sold out is true when said",
            Self::GuardNeverNeeded => "the guard is never needed",
            Self::NeverStopped => "the log can be read on",
            Self::Resolvable => "every pending claim is resolvable",
            Self::Reopens => "a halted sale can be reopened",
        }
    }

    pub(crate) fn property<R: Rule + 'static>(self) -> Property<Sale<R>> {
        let holds: fn(&Sale<R>, &State) -> bool = match self {
            Self::NeverOversell => |sale, state| {
                sale.unbroken(state, Promise::NeverOversell) && sale.units_told_once(state)
            },
            Self::PerUserLimit => |sale, state| sale.unbroken(state, Promise::PerUserLimit),
            Self::ToldWinKept => Sale::told_wins_kept,
            Self::BooksBalance => |sale, state| sale.unbroken(state, Promise::BooksBalance),
            Self::DatabaseAgrees => Sale::database_agrees,
            Self::LiveAsTheLedger => |_, state| !state.wrong.live,
            Self::CurrentNeverBack => |_, state| !state.wrong.current,
            Self::NoVoidWithoutLoss => Sale::nothing_void_without_loss,
            Self::VoidIsTrue => Sale::void_is_true,
            Self::SoldOutIsTrue => Sale::sold_out_is_true,
            Self::GuardNeverNeeded => |sale, state| !sale.folded(state.log).guarded,
            Self::NeverStopped => |sale, state| !sale.folded(state.log).stopped,
            Self::Resolvable => |sale, state| !sale.bounds.mending || sale.resolvable(state),
            Self::Reopens => |sale, state| !sale.bounds.mending || sale.reopens(state),
        };
        Property::always(self.name(), holds)
    }
}

impl<R: Rule> Sale<R> {
    fn unbroken(&self, state: &State, promise: Promise) -> bool {
        self.folded(state.log).broken != Some(promise)
    }

    fn units_told_once(&self, state: &State) -> bool {
        let mut units = 0_u32;
        let told = state.told.won.iter();
        told.filter_map(|id| self.unit_of(*id)).all(|unit| {
            let new = units >> unit & 1 == 0;
            units |= 1 << unit;
            new
        })
    }

    fn unit_of(&self, id: RecordId) -> Option<u8> {
        if id == RecordId::NONE {
            return None;
        }
        match self.records.said(id) {
            Said::Won { unit, .. } => Some(unit),
            _ => None,
        }
    }

    /// What the ledger says of an event that was told, if it says anything.
    fn verdict_of(&self, state: &State, id: RecordId) -> Verdict {
        if id == RecordId::NONE {
            return Verdict::Open;
        }
        self.folded(state.log).verdict_of(id, self.records.said(id))
    }

    fn told_wins_kept(&self, state: &State) -> bool {
        let mut told = state.told.won.iter();
        self.history.keeps_wins(state.log, state.told_to)
            && told.all(|id| self.verdict_of(state, *id) != Verdict::Void)
    }

    fn void_is_true(&self, state: &State) -> bool {
        let mut told = state.told.void.iter();
        self.history.keeps_voids(state.log, state.told_to)
            && told.all(|id| !matches!(self.verdict_of(state, *id), Verdict::Applied(_)))
    }

    fn sold_out_is_true(&self, state: &State) -> bool {
        let folded = self.folded(state.log);
        let decided = folded.generation > state.told.sold_out || folded.ended;
        let false_alarm = state.told.sold_out > 0 && decided && folded.claimable > 0;
        self.history.keeps_sold_out(state.log, state.told_to) && !false_alarm
    }

    /// Of every generation that lost nothing, all that was given is applied or can still be.
    fn nothing_void_without_loss(&self, state: &State) -> bool {
        let folded = self.folded(state.log);
        if folded.ended && state.lossy >> folded.generation & 1 == 0 {
            return false;
        }
        (1..=folded.generation).all(|generation| {
            let given = state.given[usize::from(generation - 1)];
            let lossy = state.lossy >> generation & 1 == 1;
            let base = self.base_of(state, generation);
            lossy || (base + 1..=given).all(|seq| folded.verdict(generation, seq) != Verdict::Void)
        })
    }

    /// The seq before the generation's first event.
    fn base_of(&self, state: &State, generation: u8) -> u8 {
        let start = self
            .history
            .prefixes(state.log)
            .filter(|log| self.folded(*log).generation == generation);
        start.last().map_or(0, |log| self.folded(log).applied)
    }
}
