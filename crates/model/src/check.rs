//! The model as the checker takes it, and running the checker.

use crate::properties::Must;
use crate::sale::Sale;
use crate::seen::Seen;
use crate::state::{Action, State};
use dropgate_domain::Rule;
use stateright::{Checker, HasDiscoveries, Model, Property};
use std::collections::BTreeSet;
use std::num::NonZeroUsize;
use std::time::{Duration, Instant};

impl<R: Rule + 'static> Model for Sale<R> {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![self.opened()]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        self.look(state);
        self.possible(state, actions);
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        self.step(state, action)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        Must::ALL.into_iter().map(Must::property).collect()
    }
}

/// How far the checker may go.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Threads that look.
    pub threads: NonZeroUsize,
    /// After this long it stops, and has not looked at everything.
    pub time_max: Duration,
}

/// What the checker came to.
#[derive(Debug, Clone)]
pub struct Checked {
    /// States that were reached, counted as often as they were.
    pub states: usize,
    /// States, each counted once.
    pub unique: usize,
    /// The longest path that was looked at.
    pub depth: usize,
    /// Logs that occurred.
    pub logs: usize,
    /// What happened on the way: a world in which nothing does proves nothing.
    pub seen: Vec<Seen>,
    /// How long it took.
    pub took: Duration,
    /// Whether everything within the bounds was looked at.
    pub whole: bool,
    /// What does not hold, with a path to it.
    pub broken: Option<(Must, Vec<String>)>,
}

/// Looks at every state, and stops at the first that breaks a property.
#[must_use]
pub fn check<R: Rule + 'static>(sale: Sale<R>, limits: Limits) -> Checked {
    let begun = Instant::now();
    let checker = sale
        .checker()
        .threads(limits.threads.get())
        .finish_when(HasDiscoveries::AnyFailures)
        .timeout(limits.time_max)
        .spawn_dfs()
        .join();
    checked(&checker, &Must::ALL, begun, limits)
}

/// Looks for a shortest path to a state that breaks one property, whatever else breaks.
///
/// The checker reports the last such state of the batch in which it finds one, so it is asked
/// again for a shorter path until there is none.
#[must_use]
pub fn find<R: Rule + 'static>(sale: impl Fn() -> Sale<R>, must: Must, limits: Limits) -> Checked {
    let begun = Instant::now();
    let mut found = search(sale(), must, None, limits);
    while let Some((_, path)) = &found.broken {
        let shorter = search(sale(), must, Some(path.len()), limits);
        if shorter.broken.is_none() {
            break;
        }
        found = shorter;
    }
    found.took = begun.elapsed();
    found
}

/// Looks at paths of fewer than `steps_below` steps.
fn search<R: Rule + 'static>(
    sale: Sale<R>,
    must: Must,
    steps_below: Option<usize>,
    limits: Limits,
) -> Checked {
    let begun = Instant::now();
    let checker = sale
        .checker()
        .finish_when(HasDiscoveries::AllOf(BTreeSet::from([must.name()])))
        .timeout(limits.time_max);
    // The first state counts as one, and what is at the bound is not looked at.
    let checker = match steps_below {
        Some(steps) => checker.target_max_depth(steps + 1),
        None => checker,
    };
    let checker = checker.spawn_bfs().join();
    checked(&checker, &[must], begun, limits)
}

fn checked<R: Rule + 'static>(
    checker: &impl Checker<Sale<R>>,
    musts: &[Must],
    begun: Instant,
    limits: Limits,
) -> Checked {
    let took = begun.elapsed();
    let discoveries = checker.discoveries();
    let broken = musts.iter().find_map(|must| {
        let path = discoveries.get(must.name())?.clone().into_vec();
        Some((*must, checker.model().story(&path)))
    });
    Checked {
        states: checker.state_count(),
        unique: checker.unique_state_count(),
        depth: checker.max_depth(),
        logs: checker.model().logs(),
        seen: checker.model().seen(),
        took,
        whole: broken.is_none() && checker.is_done() && took < limits.time_max,
        broken,
    }
}
