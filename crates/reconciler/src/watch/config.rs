//! `[watch]`: when a halted sale is recovered by itself.

use dropgate_runtime::config::{Problem, Validate};
use serde::Deserialize;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// `[watch]`: when a halted sale is recovered by itself.
#[derive(Debug, Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WatchConfig {
    /// Recovers nothing, and says what it would.
    pub hold: bool,
    /// While this file is there, nothing is recovered: a switch that needs no restart.
    pub hold_file: Option<PathBuf>,
    /// After so many recoveries of a sale within `recoveries_within` it stays closed until
    /// somebody recovers it by hand.
    pub recoveries_max: u32,
    /// See `recoveries_max`.
    #[serde(with = "humantime_serde")]
    pub recoveries_within: Duration,
    /// How long a generation may take to go live, beside the time that its wins take to be
    /// written; doubled each time that one does not.
    #[serde(with = "humantime_serde")]
    pub starting_patience: Duration,
    /// How many sales are recovered at once.
    pub recoveries_at_once: usize,
}

impl Default for WatchConfig {
    fn default() -> Self {
        Self {
            hold: false,
            hold_file: None,
            recoveries_max: 3,
            recoveries_within: Duration::from_secs(600),
            starting_patience: Duration::from_secs(3),
            recoveries_at_once: 4,
        }
    }
}

impl WatchConfig {
    /// What holds the watch now, if something does.
    #[must_use]
    pub fn held(&self) -> Option<String> {
        if self.hold {
            return Some("watch.hold".to_owned());
        }
        let file = self.hold_file.as_ref()?;
        file.exists()
            .then(|| format!("the file {}", file.display()))
    }
}

impl Validate for WatchConfig {
    fn problems(&self) -> Vec<Problem> {
        let second = Duration::from_secs;
        let within = |value: Duration, min, max| (second(min)..=second(max)).contains(&value);
        let checks = [
            (
                (1..=1000).contains(&self.recoveries_max),
                "recoveries_max",
                "1 to 1000",
            ),
            (
                within(self.recoveries_within, 1, 86_400),
                "recoveries_within",
                "1s to 1day",
            ),
            (
                within(self.starting_patience, 1, 600),
                "starting_patience",
                "1s to 10m",
            ),
            (
                (1..=100).contains(&self.recoveries_at_once),
                "recoveries_at_once",
                "1 to 100",
            ),
        ];
        let bad = checks.into_iter().filter(|(ok, ..)| !ok);
        bad.map(|(_, path, expected)| Problem::new(path, expected))
            .collect()
    }
}

/// `[ops]`: the port for operators.
#[derive(Debug, Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct OpsConfig {
    /// Where `/livez`, `/readyz`, `/metrics` and `/watch` are.
    pub bind: SocketAddr,
}

impl Default for OpsConfig {
    fn default() -> Self {
        Self {
            bind: SocketAddr::from(([127, 0, 0, 1], 8083)),
        }
    }
}
