//! What the watch does next with a sale: pure, so that every case can be tested.

use super::WatchConfig;
use dropgate_domain::{Generation, TimeMs};
use dropgate_engine::{Condition, Standing};
use std::fmt;
use std::time::Duration;
use tokio::time::Instant;

/// The pause before a recovery that failed is tried again, doubled from the first to the second.
const RETRY_PAUSE: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(5));
/// So many wins are written in a second on a slow day: a large state is given time to be built
/// before its builder is taken for dead.
const WINS_A_SECOND: u64 = 20_000;
/// How often the patience with a generation that does not go live is doubled at most.
const DOUBLED_MAX: u32 = 6;

/// What is to be done with a sale.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    /// Nothing: it sells, or it is over, or nothing is known to be lost.
    Nothing,
    /// It is to be recovered, and not yet.
    Wait {
        /// When.
        until: Instant,
        /// What for.
        why: String,
    },
    /// It is to be recovered now.
    Recover {
        /// Why, for people.
        reason: String,
    },
    /// It would be recovered, were the watch not held.
    Held {
        /// Why it should be.
        reason: String,
        /// What holds it.
        by: String,
    },
    /// It was recovered too often: it stays closed until a person recovers it.
    StaysClosed {
        /// How often in how long, and why it should be again.
        reason: String,
    },
    /// No recovery helps.
    Hopeless {
        /// Why.
        reason: String,
    },
}

/// What the watch remembers of a sale.
#[derive(Debug, Default)]
pub struct Memory {
    generation: Generation,
    /// It stays closed in this generation, once that was decided.
    stays_closed: Option<String>,
    /// Recoveries that failed in this generation, in a row.
    failures: u32,
    not_before: Option<Instant>,
    /// Generations in a row that were begun and never went live.
    never_live: u32,
    /// Drawn for each generation: several watches do not act at the same instant.
    spread: f64,
}

/// The world as it is when something is decided.
#[derive(Debug, Clone, Copy)]
pub struct Now<'a> {
    /// For pauses.
    pub instant: Instant,
    /// By this machine's clock, to compare with the clocks of those who began generations.
    pub wall: TimeMs,
    /// What holds the watch, if something does.
    pub held: Option<&'a str>,
    /// 1 to 2: spreads those who would otherwise act at the same instant.
    pub jitter: f64,
}

impl Memory {
    /// What is to be done now.
    pub fn next(&mut self, standing: &Standing, config: &WatchConfig, now: Now<'_>) -> Next {
        if standing.generation != self.generation {
            *self = Self {
                generation: standing.generation,
                never_live: self.never_live + 1,
                spread: now.jitter,
                ..Self::default()
            };
        }
        let reason = match &standing.condition {
            Condition::Live => {
                // What comes now is another matter.
                *self = Self {
                    generation: self.generation,
                    spread: self.spread,
                    ..Self::default()
                };
                return Next::Nothing;
            }
            Condition::Unknown
            | Condition::NotOpened
            | Condition::Unreachable
            | Condition::Closed => return Next::Nothing,
            Condition::Unfollowable(why) => {
                return Next::Hopeless {
                    reason: why.clone(),
                };
            }
            Condition::Halted(halted) => halted.reason.clone(),
            Condition::Ended(cause) => format!("redis lost writes: {cause}"),
            Condition::Starting { since } => {
                let patience = self.patience(standing, config);
                let left = patience.mul_f64(self.spread).saturating_sub(*since);
                let why = "its generation was begun and is not live".to_owned();
                if !left.is_zero() {
                    let until = now.instant + left;
                    return Next::Wait { until, why };
                }
                why
            }
        };
        self.bounded(reason, standing, config, now)
    }

    /// A recovery is due, if nothing forbids it.
    fn bounded(
        &mut self,
        reason: String,
        standing: &Standing,
        config: &WatchConfig,
        now: Now<'_>,
    ) -> Next {
        if let Some(by) = now.held {
            let by = by.to_owned();
            return Next::Held { reason, by };
        }
        let lately = recoveries_lately(&standing.starts, config.recoveries_within, now.wall);
        if lately >= config.recoveries_max as usize && self.stays_closed.is_none() {
            let within = humantime::format_duration(config.recoveries_within);
            self.stays_closed = Some(format!(
                "{lately} recoveries within {within}, and: {reason}"
            ));
        }
        if let Some(reason) = &self.stays_closed {
            let reason = reason.clone();
            return Next::StaysClosed { reason };
        }
        match self.not_before {
            Some(until) if now.instant < until => Next::Wait { until, why: reason },
            _ => Next::Recover { reason },
        }
    }

    /// How long a generation may take to go live.
    fn patience(&self, standing: &Standing, config: &WatchConfig) -> Duration {
        let building = Duration::from_secs(standing.wins / WINS_A_SECOND);
        // The first generation that this process sees is no sign of trouble.
        let doubled = self.never_live.saturating_sub(1).min(DOUBLED_MAX);
        (config.starting_patience + building) * (1 << doubled)
    }

    /// A recovery of this generation failed.
    pub fn failed(&mut self, now: Now<'_>) {
        let pause = RETRY_PAUSE.0 * (1 << self.failures.min(16));
        self.failures += 1;
        self.not_before = Some(now.instant + pause.min(RETRY_PAUSE.1).mul_f64(now.jitter));
    }
}

/// Recoveries that were begun lately, by the clocks of those who did: generations but the first.
#[must_use]
pub fn recoveries_lately(starts: &[Option<TimeMs>], within: Duration, wall: TimeMs) -> usize {
    let within_ms = u64::try_from(within.as_millis()).unwrap_or(u64::MAX);
    let lately = |at: &TimeMs| wall.0.abs_diff(at.0) < within_ms;
    starts
        .iter()
        .skip(1)
        .flatten()
        .filter(|at| lately(at))
        .count()
}

impl Next {
    /// In one word, for people and for metrics.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::Wait { .. } => "wait",
            Self::Recover { .. } => "recover",
            Self::Held { .. } => "held",
            Self::StaysClosed { .. } => "stays_closed",
            Self::Hopeless { .. } => "hopeless",
        }
    }
}

impl fmt::Display for Next {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => f.write_str("nothing"),
            Self::Wait { until, why } => {
                let left = until.saturating_duration_since(Instant::now());
                write!(f, "recovered in {:.1} s: {why}", left.as_secs_f64())
            }
            Self::Recover { reason } => write!(f, "recovered now: {reason}"),
            Self::Held { reason, by } => write!(f, "held by {by}; it would be recovered: {reason}"),
            Self::StaysClosed { reason } => {
                write!(
                    f,
                    "stays closed until somebody recovers it by hand: {reason}"
                )
            }
            Self::Hopeless { reason } => write!(f, "no recovery helps: {reason}"),
        }
    }
}

#[cfg(test)]
mod tests;
