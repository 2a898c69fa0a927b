//! The order-writer's configuration: one struct a section.

use dropgate_runtime::config::{Problem, Validate};
use dropgate_runtime::telemetry::TelemetryConfig;
use dropgate_store::StoreConfig;
use dropgate_stream::LogConfig;
use serde::Deserialize;
use std::net::SocketAddr;
use std::time::Duration;

/// Everything that an order-writer is told.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The log, which is only read.
    pub log: LogConfig,
    /// The database.
    pub store: StoreConfig,
    /// The writer's knobs.
    pub writer: WriterConfig,
    /// The port for operators.
    pub ops: OpsConfig,
    /// Logs.
    pub telemetry: TelemetryConfig,
}

/// `[ops]`: the port for operators.
#[derive(Debug, Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct OpsConfig {
    /// Where `/livez`, `/readyz` and `/metrics` are.
    pub bind: SocketAddr,
}

impl Default for OpsConfig {
    fn default() -> Self {
        Self {
            bind: SocketAddr::from(([127, 0, 0, 1], 8082)),
        }
    }
}

/// `[writer]`: how much at once, and how patient.
#[derive(Debug, Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WriterConfig {
    /// The most events of one transaction.
    pub batch_events_max: usize,
    /// The most events that are read and not written; above it reading stops. One read may go
    /// 2,000 beyond it.
    pub pending_events_max: usize,
    /// The longest pause between two tries of something that failed.
    #[serde(with = "humantime_serde")]
    pub backoff_max: Duration,
    /// How long the position of a sale with unwritten events must stand still before a writer
    /// that stands by takes over, give or take a half.
    #[serde(with = "humantime_serde")]
    pub standby: Duration,
    /// Whether the schema is brought up to date at the start.
    pub migrate: bool,
    /// How long what has been read may take to be written at shutdown.
    #[serde(with = "humantime_serde")]
    pub shutdown_timeout: Duration,
}

impl Default for WriterConfig {
    fn default() -> Self {
        Self {
            batch_events_max: 2000,
            pending_events_max: 20_000,
            backoff_max: Duration::from_secs(5),
            standby: Duration::from_secs(1),
            migrate: true,
            shutdown_timeout: Duration::from_secs(10),
        }
    }
}

impl Validate for WriterConfig {
    fn problems(&self) -> Vec<Problem> {
        let ms = Duration::from_millis;
        let within = |value, min, max| (ms(min)..=ms(max)).contains(&value);
        let checks = [
            (
                (1..=10_000).contains(&self.batch_events_max),
                "batch_events_max",
                "1 to 10000",
            ),
            (
                (self.batch_events_max..=10_000_000).contains(&self.pending_events_max),
                "pending_events_max",
                "batch_events_max to 10000000",
            ),
            (
                within(self.backoff_max, 100, 60_000),
                "backoff_max",
                "100ms to 1m",
            ),
            (within(self.standby, 100, 60_000), "standby", "100ms to 1m"),
            (
                within(self.shutdown_timeout, 100, 600_000),
                "shutdown_timeout",
                "100ms to 10m",
            ),
        ];
        let bad = checks.into_iter().filter(|(ok, ..)| !ok);
        bad.map(|(_, path, expected)| Problem::new(path, expected))
            .collect()
    }
}

impl Validate for Config {
    fn problems(&self) -> Vec<Problem> {
        let mut problems = Vec::new();
        let log = self.log.problems().into_iter();
        problems.extend(log.map(|p| Problem::new(p.key, p.expected).under("log")));
        let store = self.store.problems().into_iter();
        problems.extend(store.map(|(key, expected)| Problem::new(key, expected).under("store")));
        for (section, part) in [
            ("writer", &self.writer as &dyn Validate),
            ("telemetry", &self.telemetry),
        ] {
            problems.extend(part.problems().into_iter().map(|p| p.under(section)));
        }
        problems
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dropgate_runtime::config::load_from;

    fn load(file: &str) -> Result<Config, Vec<String>> {
        load_from(file, []).map_err(|problems| problems.0.into_iter().map(|p| p.path).collect())
    }

    #[test]
    fn the_defaults_need_only_a_database() {
        assert_eq!(load("").unwrap_err(), ["store.url"]);
        load("[store]\nurl = 'sqlite:orders.db'").unwrap();
    }

    #[test]
    fn every_problem_is_reported_at_once_with_its_path() {
        let text = "[store]\nurl = 'mysql://u:p@h/d'\npool_max = 0\n\
                    [writer]\nstandby = '1ms'\nbatch = 3\n[log]\nbackend = 'kafka'\n\
                    [log.kafka]\nbrokers = 'nowhere'\n[telemetry]\nfilter = 'loud=loud'";
        assert_eq!(
            load(text).unwrap_err(),
            [
                "log.kafka.brokers",
                "store.pool_max",
                "store.url",
                "telemetry.filter",
                "writer.batch",
                "writer.standby",
            ]
        );
    }
}
