//! What was injected, counted: a suite that injects nothing finds nothing.

use std::collections::BTreeMap;
use std::fmt;

use crate::fault::Kind;

/// So many seeds must have every kind
const SEEDS_MIN: u64 = 100;
/// so many times.
const TIMES_MIN: u64 = 10;

/// Counts over the runs of a suite.
#[derive(Clone, Debug, Default)]
pub struct Coverage {
    injected: BTreeMap<Kind, u64>,
    runs: u64,
    /// Seeds of the runs that had no told winner before or after the faults.
    idle: Vec<u64>,
}

/// The told winners of one run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Winners {
    /// Told before the first fault.
    pub before: u64,
    /// Told from the first fault on until all was healed.
    pub during: u64,
    /// Told when all was healed.
    pub after: u64,
}

impl Coverage {
    /// Counts a run: the kinds that were injected, and its told winners.
    pub fn count(&mut self, seed: u64, injected: &[Kind], winners: Winners) {
        self.runs += 1;
        for &kind in injected {
            *self.injected.entry(kind).or_insert(0) += 1;
        }
        if winners.before == 0 || winners.after == 0 {
            self.idle.push(seed);
        }
    }

    /// What was not covered, in words.
    #[must_use]
    pub fn problems(&self) -> Vec<String> {
        let mut problems: Vec<_> = self
            .idle
            .iter()
            .map(|seed| format!("seed {seed}: no told winner before, or none after the faults"))
            .collect();
        if self.runs >= SEEDS_MIN {
            for &kind in Kind::ALL {
                let times = self.times(kind);
                if times < TIMES_MIN {
                    let name = kind.name();
                    problems.push(format!("{name}: injected {times} times, not {TIMES_MIN}"));
                }
            }
        }
        problems
    }

    fn times(&self, kind: Kind) -> u64 {
        self.injected.get(&kind).copied().unwrap_or(0)
    }
}

impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "faults injected in {} runs", self.runs)?;
        for &kind in Kind::ALL {
            writeln!(f, "  {:>4}  {}", self.times(kind), kind.name())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUSY: Winners = Winners {
        before: 1,
        during: 0,
        after: 1,
    };

    #[test]
    fn a_kind_that_is_missing_fails_a_hundred_runs_and_not_fewer() {
        let all_but_one: Vec<_> = Kind::ALL.iter().copied().skip(1).collect();
        let mut coverage = Coverage::default();
        for seed in 1..100 {
            coverage.count(seed, &all_but_one, BUSY);
        }
        assert!(coverage.problems().is_empty());
        coverage.count(100, &all_but_one, BUSY);
        let problems = coverage.problems();
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert!(problems[0].starts_with(Kind::ALL[0].name()));
    }

    #[test]
    fn a_run_without_winners_on_both_sides_fails_any_suite() {
        let mut coverage = Coverage::default();
        coverage.count(4, &[], Winners { after: 0, ..BUSY });
        coverage.count(5, &[], Winners { before: 0, ..BUSY });
        coverage.count(6, &[], BUSY);
        assert_eq!(coverage.problems().len(), 2);
    }
}
