//! Who clicks when: pure, the same for the same arguments.
//!
//! The model is open: the time of a click depends on the schedule alone, never
//! on how the servers answered the clicks before it. Every click, a repeat
//! too, takes one slot of the rate, so the number of arrivals in any stretch of
//! time is the rate times its length.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

/// One click of one user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Click {
    /// The user's number in the whole run.
    pub user: u64,
    /// 0 for the user's first click, 1 for the repeat of it.
    pub nth: u8,
    /// When the click is made, counted from the run's start.
    pub at: Duration,
}

/// Which part of a run one thread drives: the users whose number is `index`
/// modulo `count`. All clicks of a user are in one part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    /// This part's number, below `count`.
    pub index: u64,
    /// The number of parts, at least 1.
    pub count: u64,
}

impl Part {
    /// How many of `users` are in this part.
    #[must_use]
    pub fn users(self, users: u64) -> u64 {
        users / self.count + u64::from(self.index < users % self.count)
    }
}

/// How many users click again, and when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Repeats {
    /// Of a million users, how many click twice: exactly that share, evenly
    /// spread, not a coin tossed for each.
    pub per_million: u32,
    /// Every other repeat comes right after the first click (both are in
    /// flight at once); the rest come at random within this time.
    pub within: Duration,
    /// Fixes the random times.
    pub seed: u64,
}

impl Repeats {
    /// Whether the `nth` user of a part clicks twice.
    fn clicks_twice(self, nth: u64) -> bool {
        self.count(nth + 1) > self.count(nth)
    }

    /// How many of the first `users` of a part click twice.
    #[must_use]
    pub fn count(self, users: u64) -> u64 {
        let share = u128::from(users) * u128::from(self.per_million) / 1_000_000;
        u64::try_from(share).unwrap_or(users)
    }

    /// How long after the first click the repeat of this user comes.
    fn delay(self, user: u64) -> Duration {
        let draw = mix(self.seed ^ mix(user));
        if draw & 1 == 0 {
            Duration::ZERO
        } else {
            self.within.mul_f64(unit_interval(draw))
        }
    }
}

/// The clicks of one part at a fixed rate, in the order of time.
#[derive(Debug)]
pub struct Paced {
    part: Part,
    users: u64,
    repeats: Repeats,
    rate: f64,
    slot: u64,
    next_user: u64,
    due: BinaryHeap<Reverse<(u64, u64)>>,
}

impl Paced {
    /// A part's schedule of `users` users (of the whole run) at `rate` clicks
    /// a second (of the whole run).
    #[must_use]
    pub fn new(part: Part, users: u64, repeats: Repeats, rate: f64) -> Self {
        Self {
            part,
            users: part.users(users),
            repeats,
            rate,
            slot: 0,
            next_user: 0,
            due: BinaryHeap::new(),
        }
    }

    /// The number of clicks of this part.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.users + self.repeats.count(self.users)
    }

    /// Whether there is no click at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.users == 0
    }

    /// When the part's click number `slot` is made.
    #[must_use]
    pub fn time_of(&self, slot: u64) -> Duration {
        let global = slot * self.part.count + self.part.index;
        #[expect(
            clippy::cast_precision_loss,
            reason = "exact below 2^53 clicks, which would take years to send"
        )]
        let seconds = global as f64 / self.rate;
        Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
    }

    /// The user of this slot: a repeat that has come due, else a new user, else
    /// a repeat before its time, so that no slot stays empty.
    fn take(&mut self) -> Option<(u64, u8)> {
        let repeat_due = self
            .due
            .peek()
            .is_some_and(|Reverse((slot, _))| *slot <= self.slot);
        if repeat_due || self.next_user == self.users {
            return self.due.pop().map(|Reverse((_, user))| (user, 1));
        }
        let nth = self.next_user;
        self.next_user += 1;
        let user = nth * self.part.count + self.part.index;
        if self.repeats.clicks_twice(nth) {
            #[expect(
                clippy::cast_precision_loss,
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "a whole, positive number of slots; a float that is too large saturates"
            )]
            let slots = (self.repeats.delay(user).as_secs_f64() * self.rate
                / self.part.count as f64) as u64;
            self.due.push(Reverse((self.slot + 1 + slots, user)));
        }
        Some((user, 0))
    }
}

impl Iterator for Paced {
    type Item = Click;

    fn next(&mut self) -> Option<Click> {
        let (user, nth) = self.take()?;
        let at = self.time_of(self.slot);
        self.slot += 1;
        Some(Click { user, nth, at })
    }
}

/// The clicks of one part when everybody comes at once: all first clicks at
/// the start, a repeat with its first click or some time after it.
pub fn all_at_once(part: Part, users: u64, repeats: Repeats) -> impl Iterator<Item = Click> {
    (0..part.users(users)).flat_map(move |nth| {
        let user = nth * part.count + part.index;
        let first = Click {
            user,
            nth: 0,
            at: Duration::ZERO,
        };
        let repeat = repeats.clicks_twice(nth).then(|| Click {
            user,
            nth: 1,
            at: repeats.delay(user),
        });
        std::iter::once(first).chain(repeat)
    })
}

/// The finaliser of SplitMix64 (Steele, Lea, Flood 2014): a bijection that
/// scatters its input over all bits. Enough for jitter and test traffic.
#[must_use]
pub fn mix(value: u64) -> u64 {
    let mut z = value.wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// The upper bits of `value` as a number in 0..1.
#[must_use]
pub fn unit_interval(value: u64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "53 bits are exact in a double")]
    let numerator = (value >> 11) as f64;
    numerator / 9_007_199_254_740_992.0
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    fn repeats(per_million: u32, seed: u64) -> Repeats {
        Repeats {
            per_million,
            within: Duration::from_secs(2),
            seed,
        }
    }

    #[test]
    fn one_in_ten_is_exactly_one_in_ten() {
        let part = Part { index: 0, count: 1 };
        let clicks = Paced::new(part, 100_000, repeats(100_000, 1), 1000.0);
        assert_eq!(clicks.len(), 110_000);
        assert_eq!(clicks.filter(|click| click.nth == 1).count(), 10_000);
    }

    #[test]
    fn repeats_are_simultaneous_and_later() {
        let part = Part { index: 0, count: 1 };
        let mut first = HashMap::new();
        let mut together = 0;
        let mut apart = 0;
        for click in Paced::new(part, 10_000, repeats(100_000, 1), 1000.0) {
            match click.nth {
                0 => assert!(first.insert(click.user, click.at).is_none()),
                _ if click.at - first[&click.user] <= Duration::from_millis(10) => together += 1,
                _ => apart += 1,
            }
        }
        assert!(together > 300 && apart > 300, "{together} {apart}");
    }

    proptest! {
        #[test]
        fn arrivals_are_rate_times_time_for_any_users_and_repeats(
            users in 0_u64..3000, per_million in 0_u32..=1_000_000,
            rate in 1.0_f64..50_000.0, count in 1_u64..4, seed: u64,
        ) {
            let mut all = Vec::new();
            for index in 0..count {
                let clicks = Paced::new(Part { index, count }, users, repeats(per_million, seed), rate);
                let len = clicks.len();
                let clicks: Vec<_> = clicks.collect();
                prop_assert_eq!(clicks.len() as u64, len);
                prop_assert!(clicks.is_sorted_by_key(|click| click.at));
                for (slot, click) in clicks.iter().enumerate() {
                    let exact = (slot as u64 * count + index) as f64 / rate;
                    prop_assert!((click.at.as_secs_f64() - exact).abs() < 1e-6);
                }
                all.extend(clicks);
            }
            // Every user's first click once, every repeat after its first.
            let mut first = HashMap::new();
            for click in all.iter().filter(|click| click.nth == 0) {
                prop_assert!(first.insert(click.user, click.at).is_none());
            }
            prop_assert_eq!(first.len() as u64, users);
            prop_assert!(first.keys().all(|user| *user < users));
            let mut again = HashMap::new();
            for click in all.iter().filter(|click| click.nth == 1) {
                prop_assert!(again.insert(click.user, ()).is_none());
                prop_assert!(click.at > first[&click.user]);
            }
        }

        #[test]
        fn a_spike_has_every_first_click_at_the_start(
            users in 0_u64..2000, per_million in 0_u32..=1_000_000, count in 1_u64..4, seed: u64,
        ) {
            let repeats = repeats(per_million, seed);
            let mut firsts = 0;
            for index in 0..count {
                for click in all_at_once(Part { index, count }, users, repeats) {
                    if click.nth == 0 {
                        firsts += 1;
                        prop_assert_eq!(click.at, Duration::ZERO);
                    }
                    prop_assert!(click.at <= repeats.within);
                }
            }
            prop_assert_eq!(firsts, users);
        }
    }
}
