//! What is injected when: by the seed alone.
//!
//! Kinds are dealt like cards, not tossed like dice: every seed takes the next ones of a shuffled
//! deck, so that a hundred seeds have each kind often enough, whatever their luck. What is dealt is
//! the same whether a seed runs alone or among others.
//!
//! A sale has two waves. Each has one heavy fault, at a number of wins, and light ones before,
//! during and after it. A heavy fault mostly stops the sale, so the light ones are counted in time
//! from the wave's mark: they fall into the outage and into the recovery.

use std::fmt;

use crate::fault::{Fault, Kind, Wave};
use crate::random::Random;

/// How large a sale is, and how it is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// Users of the crowd that comes while faults are injected.
    pub users: u64,
    /// Clicks a second, repeats included.
    pub rate: u64,
    /// Users who come when all is healed. They find less than they ask for.
    pub late_users: u64,
    /// Units for sale: more than the first crowd can buy, so that there are wins after the last
    /// fault, and less than both ask for, so that the sale ends sold out to the last unit.
    pub stock: u64,
}

/// When a fault begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mark {
    /// When so many units are sold,
    pub wins: u64,
    /// and so many milliseconds later.
    pub then_ms: u64,
}

/// One line of a schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// When.
    pub at: Mark,
    /// What.
    pub fault: Fault,
}

/// What a seed does to a sale.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// The seed.
    pub seed: u64,
    /// The sale.
    pub load: Load,
    /// In the order of their marks.
    pub steps: Vec<Step>,
}

/// Waves of a sale.
const WAVES: u64 = 2;

impl Schedule {
    /// The schedule of a seed, counted from 1.
    #[must_use]
    pub fn of(seed: u64) -> Self {
        let mut random = Random::new(seed, "schedule");
        let users = random.within(1100, 1300);
        let late_users = random.within(160, 240);
        let load = Load {
            users,
            rate: 200,
            late_users,
            stock: users + late_users * 3 / 5,
        };
        let nth = seed.saturating_sub(1);
        let marks = [
            users * random.within(12, 24) / 100,
            users * random.within(48, 60) / 100,
        ];
        let mut waves: Vec<Vec<Step>> = (0..WAVES)
            .zip(marks)
            .map(|(wave, wins)| {
                let kind = dealt(Wave::Heavy, nth * WAVES + wave);
                let at = Mark { wins, then_ms: 0 };
                vec![Step {
                    at,
                    fault: fault(kind, &mut random),
                }]
            })
            .collect();
        // Five light ones for every two seeds.
        for card in nth * 5 / 2..(nth + 1) * 5 / 2 {
            let fault = fault(dealt(Wave::Light, card), &mut random);
            let first = random.within(0, WAVES - 1);
            place(&mut waves, fault, first, &mut random);
        }
        let mut steps: Vec<_> = waves.into_iter().flatten().collect();
        steps.sort_by_key(|step| step.at);
        Self { seed, load, steps }
    }

    /// How long the crowd needs to click, at least.
    #[must_use]
    pub fn arrivals_ms(&self) -> u64 {
        self.load.users * 1000 / self.load.rate
    }
}

/// Puts a light fault into the first wave, from `first` on, where it disturbs no other; if there
/// is none it waits its turn.
fn place(waves: &mut [Vec<Step>], fault: Fault, first: u64, random: &mut Random) {
    let count = waves.len();
    let first = usize::try_from(first).unwrap_or(0);
    let free = |wave: &Vec<Step>| wave.iter().all(|step| step.fault.goes_beside(&fault));
    let order = (0..count).map(|nth| (first + nth) % count);
    let chosen = order.clone().find(|&nth| waves.get(nth).is_some_and(free));
    let Some(wave) = waves.get_mut(chosen.unwrap_or(first)) else {
        return;
    };
    let Some(heavy) = wave.first().map(|step| step.at) else {
        return;
    };
    // A third before the heavy fault, the others during it and during what comes of it.
    let at = match random.within(0, 2) {
        0 => Mark {
            wins: heavy.wins.saturating_sub(random.within(20, 120)),
            then_ms: 0,
        },
        _ => Mark {
            wins: heavy.wins,
            then_ms: random.within(0, 2500),
        },
    };
    wave.push(Step { at, fault });
}

fn fault(kind: Kind, random: &mut Random) -> Fault {
    let (low, high) = kind.lasts_ms();
    Fault {
        kind,
        which: u8::try_from(random.within(0, kind.candidates() - 1)).unwrap_or(0),
        lasts_ms: random.within(low, high),
    }
}

/// The card at this place of an endless row of shuffled decks.
fn dealt(wave: Wave, place: u64) -> Kind {
    let mut deck = deck(wave);
    let size = deck.len() as u64;
    let purpose = match wave {
        Wave::Heavy => "heavy deck",
        Wave::Light => "light deck",
    };
    Random::new(place / size, purpose).shuffle(&mut deck);
    let at = usize::try_from(place % size).unwrap_or(0);
    deck.get(at).copied().unwrap_or(Kind::FlushAll)
}

fn deck(wave: Wave) -> Vec<Kind> {
    let of_wave = Kind::ALL.iter().filter(|kind| kind.wave() == wave);
    of_wave
        .flat_map(|&kind| std::iter::repeat_n(kind, kind.copies()))
        .collect()
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Load {
            users,
            rate,
            late_users,
            stock,
        } = self.load;
        writeln!(
            f,
            "seed {}: {stock} units, {users} users at {rate} clicks/s, then {late_users} more",
            self.seed
        )?;
        for Step { at, fault } in &self.steps {
            let then = match at.then_ms {
                0 => String::new(),
                ms => format!(" + {ms} ms"),
            };
            writeln!(f, "  at {:>4} wins{then:<10} {fault}", at.wins)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_seed_has_the_same_schedule_for_ever() {
        let shown: String = [1, 2, 77]
            .map(|seed| Schedule::of(seed).to_string())
            .concat();
        assert_eq!(shown, include_str!("schedule.txt"));
    }

    #[test]
    fn a_hundred_seeds_have_every_kind_ten_times() {
        let mut counts = BTreeMap::new();
        for seed in 1..=100 {
            for step in Schedule::of(seed).steps {
                *counts.entry(step.fault.kind).or_insert(0) += 1;
            }
        }
        for kind in Kind::ALL {
            let count = counts.get(kind).copied().unwrap_or(0);
            assert!(count >= 10, "{}: {count}", kind.name());
        }
    }

    #[test]
    fn twenty_seeds_have_what_exposes_a_weakened_build() {
        let kinds: Vec<_> = (1..=20)
            .flat_map(|seed| Schedule::of(seed).steps)
            .map(|step| step.fault.kind)
            .collect();
        for kind in [
            Kind::LaggingKill,
            Kind::LaggingPause,
            Kind::BlindHealed,
            Kind::BlindKilled,
        ] {
            let count = kinds.iter().filter(|&&other| other == kind).count();
            assert!(count >= 4, "{}: {count}", kind.name());
        }
    }

    proptest! {
        #[test]
        fn there_are_wins_before_the_first_fault_and_after_the_last(seed in 1_u64..1_000_000) {
            let Schedule { load, steps, .. } = Schedule::of(seed);
            prop_assert!(steps.len() >= 4);
            prop_assert!(steps.is_sorted_by_key(|step| step.at));
            for step in &steps {
                prop_assert!(step.at.wins >= 10, "{step:?}");
                prop_assert!(step.at.wins <= load.users * 60 / 100, "{step:?}");
                let (low, high) = step.fault.kind.lasts_ms();
                prop_assert!((low..=high).contains(&step.fault.lasts_ms));
                prop_assert!(u64::from(step.fault.which) < step.fault.kind.candidates());
            }
            // The first crowd cannot buy it all, and the second cannot be served in full.
            prop_assert!(load.stock >= load.users + 50);
            prop_assert!(load.stock + 50 <= load.users + load.late_users);
        }
    }
}
