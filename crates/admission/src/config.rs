//! How to reach Redis.

use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use std::time::Duration;

/// How to reach Redis, and how long to wait for it.
///
/// One struct for both clients: a gateway's section names the restricted user, an operator's the
/// one that may load scripts.
#[derive(Debug, Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RedisConfig {
    /// `redis://[user:password@]host[:port]`, or `rediss://` for TLS. A secret, as it may hold a
    /// password.
    pub url: SecretString,
    /// The user, when it is not in the URL. It wins over the URL's.
    pub username: Option<String>,
    /// The password, when it is not in the URL. It wins over the URL's.
    pub password: Option<SecretString>,
    /// How long a connection may take to come up, with TLS and authentication.
    #[serde(with = "humantime_serde")]
    pub connect_timeout: Duration,
    /// How long to wait for a reply. What timed out may have run, or may still run until its
    /// deadline.
    #[serde(with = "humantime_serde")]
    pub command_timeout: Duration,
    /// How long after it was sent a call that changes something may still run, by Redis' clock.
    #[serde(with = "humantime_serde")]
    pub call_deadline: Duration,
    /// How many calls may wait for their reply; more are refused at once.
    pub calls_in_flight_max: usize,
    /// The shortest pause before a new connection is tried; it doubles from there, with jitter.
    #[serde(with = "humantime_serde")]
    pub reconnect_delay_min: Duration,
    /// The longest pause before a new connection is tried.
    #[serde(with = "humantime_serde")]
    pub reconnect_delay_max: Duration,
    /// So many time-outs in a row, and the connection is given up for a new one.
    pub timeouts_in_row_max: u32,
}

impl Default for RedisConfig {
    fn default() -> Self {
        Self {
            url: SecretString::from("redis://127.0.0.1:6379"),
            username: None,
            password: None,
            connect_timeout: Duration::from_secs(2),
            command_timeout: Duration::from_secs(1),
            call_deadline: Duration::from_secs(1),
            calls_in_flight_max: 4096,
            reconnect_delay_min: Duration::from_millis(50),
            reconnect_delay_max: Duration::from_secs(2),
            timeouts_in_row_max: 3,
        }
    }
}

/// A field of a [`RedisConfig`] that cannot be. Never holds the value: it may be a secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {expected}")]
pub struct InvalidField {
    /// The field's name.
    pub field: &'static str,
    /// What it must be.
    pub expected: &'static str,
}

impl RedisConfig {
    /// A configuration of this URL, with the defaults for all else.
    #[must_use]
    pub fn at(url: &str) -> Self {
        Self {
            url: SecretString::from(url),
            ..Self::default()
        }
    }

    /// Every field that is out of its bounds, so that all are reported at once.
    #[must_use]
    pub fn problems(&self) -> Vec<InvalidField> {
        let mut problems = Vec::new();
        let mut check = |ok: bool, field, expected| {
            if !ok {
                problems.push(InvalidField { field, expected });
            }
        };
        let within = |value: Duration, min_ms: u64, max_ms: u64| {
            (Duration::from_millis(min_ms)..=Duration::from_millis(max_ms)).contains(&value)
        };
        let url = self.url.expose_secret();
        // The driver takes any scheme for redis:// and would fail later, without saying why.
        let scheme = ["redis://", "rediss://"]
            .iter()
            .any(|scheme| url.starts_with(scheme));
        check(
            scheme && fred::types::config::Config::from_url(url).is_ok(),
            "url",
            "redis://[user:password@]host[:port] or rediss://..",
        );
        let minute = 60_000;
        check(
            within(self.connect_timeout, 10, minute),
            "connect_timeout",
            "10ms to 1m",
        );
        check(
            within(self.command_timeout, 10, minute),
            "command_timeout",
            "10ms to 1m",
        );
        check(
            within(self.call_deadline, 10, minute),
            "call_deadline",
            "10ms to 1m",
        );
        check(
            (1..=100_000).contains(&self.calls_in_flight_max),
            "calls_in_flight_max",
            "1 to 100000",
        );
        check(
            within(self.reconnect_delay_min, 1, minute),
            "reconnect_delay_min",
            "1ms to 1m",
        );
        check(
            within(self.reconnect_delay_max, 1, minute)
                && self.reconnect_delay_max >= self.reconnect_delay_min,
            "reconnect_delay_max",
            "1ms to 1m, and not below reconnect_delay_min",
        );
        check(
            (1..=1000).contains(&self.timeouts_in_row_max),
            "timeouts_in_row_max",
            "1 to 1000",
        );
        problems
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_valid() {
        assert_eq!(RedisConfig::default().problems(), []);
    }

    #[test]
    fn only_the_two_schemes_are_urls_of_a_redis() {
        let fine = |url: &str| RedisConfig::at(url).problems().is_empty();
        assert!(fine("redis://u:p@h:1") && fine("rediss://h"));
        for bad in ["http://h:1", "h:1", "", "redis+sentinel://h", "unix:///s"] {
            assert!(!fine(bad), "{bad}");
        }
    }

    #[test]
    fn every_problem_is_reported_at_once_and_no_secret_with_it() {
        let config = RedisConfig {
            url: SecretString::from("nonsense hunter2"),
            command_timeout: Duration::ZERO,
            calls_in_flight_max: 0,
            reconnect_delay_max: Duration::from_millis(2),
            ..RedisConfig::default()
        };
        let problems = config.problems();
        let fields: Vec<_> = problems.iter().map(|p| p.field).collect();
        assert_eq!(
            fields,
            [
                "url",
                "command_timeout",
                "calls_in_flight_max",
                "reconnect_delay_max"
            ]
        );
        let shown = format!("{problems:?} {config:?}");
        assert!(!shown.contains("hunter2"), "{shown}");
    }
}
