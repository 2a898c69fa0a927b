//! The engine's knobs, with the defaults of the protocol.

use serde::Deserialize;
use std::num::NonZeroU32;
use std::time::Duration;

/// How patient, how eager and how large the engine is.
#[derive(Debug, Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EngineConfig {
    /// How long a claim waits for its event to be applied before its answer is "pending".
    #[serde(with = "humantime_serde")]
    pub confirm_max: Duration,
    /// An event in the outbox that is older than this and not applied is published again.
    #[serde(with = "humantime_serde")]
    pub relay_after: Duration,
    /// How long an exact "sold out" is repeated from memory.
    #[serde(with = "humantime_serde")]
    pub latch: Duration,
    /// How many events of a sale may be in flight. Used when a generation begins, and written
    /// into the log there: all readers follow what the log says.
    pub window: NonZeroU32,
    /// How often each sale's tip is read from Redis.
    #[serde(with = "humantime_serde")]
    pub tip_interval: Duration,
    /// A tip that agreed is good for so long.
    #[serde(with = "humantime_serde")]
    pub tip_valid: Duration,
    /// How often the log is asked for its end.
    #[serde(with = "humantime_serde")]
    pub freshness_interval: Duration,
    /// The reader is fresh while it has reached the end of a question asked within this time.
    #[serde(with = "humantime_serde")]
    pub fresh_for: Duration,
    /// How many publications may be in flight at once; more are left to the relay.
    pub publish_in_flight_max: usize,
    /// How many claims may wait for the log at once, per sale; more are answered "busy".
    pub waiters_max: usize,
    /// How long creating, opening or closing a sale may take.
    #[serde(with = "humantime_serde")]
    pub admin_deadline: Duration,
    /// How long a recovery may take, of a large sale too.
    #[serde(with = "humantime_serde")]
    pub recover_deadline: Duration,
}

impl Default for EngineConfig {
    fn default() -> Self {
        Self {
            confirm_max: Duration::from_millis(2000),
            relay_after: Duration::from_millis(250),
            latch: Duration::from_millis(200),
            window: NonZeroU32::new(10_000).unwrap_or(NonZeroU32::MIN),
            tip_interval: Duration::from_secs(1),
            tip_valid: Duration::from_secs(5),
            freshness_interval: Duration::from_millis(250),
            fresh_for: Duration::from_secs(1),
            publish_in_flight_max: 10_000,
            waiters_max: 50_000,
            admin_deadline: Duration::from_secs(10),
            recover_deadline: Duration::from_secs(600),
        }
    }
}

impl EngineConfig {
    /// Every field that is out of its bounds: its name and what is expected.
    #[must_use]
    pub fn problems(&self) -> Vec<(&'static str, &'static str)> {
        let ms = Duration::from_millis;
        let mut problems = Vec::new();
        let mut within = |value: Duration, min, max, field, expected| {
            if !(ms(min)..=ms(max)).contains(&value) {
                problems.push((field, expected));
            }
        };
        within(self.confirm_max, 100, 30_000, "confirm_max", "100ms to 30s");
        within(self.relay_after, 10, 60_000, "relay_after", "10ms to 1m");
        within(self.latch, 0, 10_000, "latch", "0s to 10s");
        within(self.tip_interval, 50, 10_000, "tip_interval", "50ms to 10s");
        within(self.tip_valid, 100, 60_000, "tip_valid", "100ms to 1m");
        let interval = "10ms to 10s";
        within(
            self.freshness_interval,
            10,
            10_000,
            "freshness_interval",
            interval,
        );
        within(self.fresh_for, 50, 60_000, "fresh_for", "50ms to 1m");
        within(
            self.admin_deadline,
            1000,
            600_000,
            "admin_deadline",
            "1s to 10m",
        );
        within(
            self.recover_deadline,
            1000,
            86_400_000,
            "recover_deadline",
            "1s to 1day",
        );
        let mut check = |ok: bool, field, expected| {
            if !ok {
                problems.push((field, expected));
            }
        };
        check(
            self.tip_valid >= self.tip_interval * 2,
            "tip_valid",
            "at least twice tip_interval",
        );
        check(
            self.fresh_for >= self.freshness_interval * 2,
            "fresh_for",
            "at least twice freshness_interval",
        );
        check(self.window.get() <= 1_000_000, "window", "1 to 1000000");
        check(
            (1..=1_000_000).contains(&self.publish_in_flight_max),
            "publish_in_flight_max",
            "1 to 1000000",
        );
        check(
            (1..=1_000_000).contains(&self.waiters_max),
            "waiters_max",
            "1 to 1000000",
        );
        problems
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_valid_and_problems_are_all_reported() {
        assert_eq!(EngineConfig::default().problems(), []);
        let bad = EngineConfig {
            confirm_max: Duration::ZERO,
            waiters_max: 0,
            ..EngineConfig::default()
        };
        let fields: Vec<_> = bad.problems().into_iter().map(|(field, _)| field).collect();
        assert_eq!(fields, ["confirm_max", "waiters_max"]);
    }
}
