//! What happens in a world at all: where nothing does, nothing is shown.

use crate::history::Verdict;
use crate::sale::Sale;
use crate::state::State;
use dropgate_domain::Rule;
use std::sync::atomic::Ordering;

/// Something that a world should come to, if its bounds allow it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Seen {
    /// A user is told that they won.
    ToldWon,
    /// A user is told that their claim is void.
    ToldVoid,
    /// Every unit is sold.
    SoldOut,
    /// A breach of the rule ends a generation.
    Ended,
    /// A unit is won in a later generation.
    WonAgain,
    /// Of two recoveries of one generation the second leaves.
    Overtaken,
    /// A generation is the third or later.
    Third,
    /// The sale is closed.
    Closed,
    /// A recovery works on a former master.
    Late,
    /// Both order-writers have written.
    Written,
}

impl Seen {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::ToldWon,
        Self::ToldVoid,
        Self::SoldOut,
        Self::Ended,
        Self::WonAgain,
        Self::Overtaken,
        Self::Third,
        Self::Closed,
        Self::Late,
        Self::Written,
    ];
}

impl<R: Rule> Sale<R> {
    /// Notes what the state shows.
    pub(crate) fn look(&self, state: &State) {
        let seen = Seen::ALL
            .into_iter()
            .filter(|what| self.shows(state, *what))
            .fold(0, |bits, what| bits | 1 << what as u32);
        if self.seen.load(Ordering::Relaxed) | seen != self.seen.load(Ordering::Relaxed) {
            self.seen.fetch_or(seen, Ordering::Relaxed);
        }
    }

    /// What has been seen so far.
    pub(crate) fn seen(&self) -> Vec<Seen> {
        let seen = self.seen.load(Ordering::Relaxed);
        let mut all = Seen::ALL.to_vec();
        all.retain(|what| seen >> *what as u32 & 1 == 1);
        all
    }

    fn shows(&self, state: &State, what: Seen) -> bool {
        let log = self.folded(state.log);
        match what {
            Seen::ToldWon => self.told(state).applied > 0,
            Seen::ToldVoid => {
                let told = self.told(state);
                let given = state.given.iter().zip(1..);
                given
                    .take(usize::from(told.generation))
                    .any(|(given, generation)| {
                        *given > 0 && told.verdict(generation, *given) == Verdict::Void
                    })
            }
            Seen::SoldOut => log.claimable == 0,
            Seen::Ended => log.ended,
            Seen::WonAgain => {
                let last = state.given[usize::from(log.generation - 1)];
                let verdict = log.verdict(log.generation, last);
                log.generation > 1 && last > 0 && matches!(verdict, Verdict::Applied(_))
            }
            Seen::Overtaken => {
                let [a, b, ..] = &state.recoveries;
                let left =
                    |recovery: &crate::state::Recovery| recovery.step == crate::state::Step::Left;
                left(a) && left(b) && a.generation == b.generation
            }
            Seen::Third => log.generation > 2,
            Seen::Closed => log.closed,
            Seen::Late => state.spent.late > 0,
            Seen::Written => state.database.writers.iter().all(|w| w.expects.1 > 0),
        }
    }

    fn told(&self, state: &State) -> &crate::history::Folded {
        self.folded(self.history.prefix(state.log, state.told_to))
    }
}
