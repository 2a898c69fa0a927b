//! The reconciler's configuration: one struct a section.

use crate::watch::{OpsConfig, WatchConfig};
use dropgate_admission::RedisConfig;
use dropgate_engine::EngineConfig;
use dropgate_runtime::config::{Problem, Validate};
use dropgate_runtime::telemetry::TelemetryConfig;
use dropgate_store::StoreConfig;
use dropgate_stream::LogConfig;
use serde::Deserialize;
use std::time::Duration;

/// Everything that a reconciler is told.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Redis, as a user that may read whole keys: the restricted user of a gateway may not.
    pub redis: RedisConfig,
    /// The log, which is only read.
    pub log: LogConfig,
    /// The database, which is only read.
    pub store: StoreConfig,
    /// The reconciler's knobs.
    pub reconciler: ReconcilerConfig,
    /// The engine of the watch.
    pub engine: EngineConfig,
    /// When the watch recovers.
    pub watch: WatchConfig,
    /// The watch's port for operators.
    pub ops: OpsConfig,
    /// Logs.
    pub telemetry: TelemetryConfig,
}

/// `[reconciler]`: how patient, and how much it tells.
#[derive(Debug, Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ReconcilerConfig {
    /// How long the database may take to reach the log's end.
    #[serde(with = "humantime_serde")]
    pub wait: Duration,
    /// How long the log may take to be read to its end.
    #[serde(with = "humantime_serde")]
    pub read_timeout: Duration,
    /// How many examples of one kind of difference are told; the counts are exact all the same.
    pub examples_max: usize,
    /// How many orders are read from the database at a time.
    pub page_rows: u32,
}

impl Default for ReconcilerConfig {
    fn default() -> Self {
        Self {
            wait: Duration::from_secs(30),
            read_timeout: Duration::from_secs(600),
            examples_max: 10,
            page_rows: 5_000,
        }
    }
}

impl Validate for ReconcilerConfig {
    fn problems(&self) -> Vec<Problem> {
        let second = Duration::from_secs;
        let checks = [
            (self.wait <= second(3600), "wait", "0s to 1h"),
            (
                (second(1)..=second(86_400)).contains(&self.read_timeout),
                "read_timeout",
                "1s to 1day",
            ),
            (
                (1..=1000).contains(&self.examples_max),
                "examples_max",
                "1 to 1000",
            ),
            (
                (1..=dropgate_store::PAGE_MAX).contains(&self.page_rows),
                "page_rows",
                "1 to 10000",
            ),
        ];
        let bad = checks.into_iter().filter(|(ok, ..)| !ok);
        bad.map(|(_, path, expected)| Problem::new(path, expected))
            .collect()
    }
}

impl Validate for Config {
    fn problems(&self) -> Vec<Problem> {
        let mut problems = dropgate_runtime::config::sections([
            ("reconciler", &self.reconciler as &dyn Validate),
            ("watch", &self.watch),
            ("telemetry", &self.telemetry),
        ]);
        let redis = self.redis.problems().into_iter();
        problems.extend(redis.map(|p| Problem::new(p.field, p.expected).under("redis")));
        let engine = self.engine.problems().into_iter();
        problems.extend(engine.map(|(key, expected)| Problem::new(key, expected).under("engine")));
        let log = self.log.problems().into_iter();
        problems.extend(log.map(|p| Problem::new(p.key, p.expected).under("log")));
        let store = self.store.problems().into_iter();
        problems.extend(store.map(|(key, expected)| Problem::new(key, expected).under("store")));
        problems
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dropgate_runtime::config::load_from;

    fn paths(file: &str) -> Vec<String> {
        match load_from::<Config>(file, []) {
            Ok(_) => Vec::new(),
            Err(problems) => problems.0.into_iter().map(|p| p.path).collect(),
        }
    }

    #[test]
    fn the_defaults_need_only_a_database() {
        assert_eq!(paths(""), ["store.url"]);
        assert!(paths("[store]\nurl = 'sqlite:orders.db'").is_empty());
    }

    #[test]
    fn every_problem_is_reported_at_once_with_its_path() {
        let text = "[reconciler]\nwait = '2h'\nexamples_max = 0\npage_rows = 0\nwaits = 1\n\
                    [redis]\nurl = 'nowhere'\n[log]\nbackend = 'paper'\n";
        assert_eq!(
            paths(text),
            [
                "log.backend",
                "reconciler.examples_max",
                "reconciler.page_rows",
                "reconciler.wait",
                "reconciler.waits",
                "redis.url",
                "store.url",
            ]
        );
    }
}
