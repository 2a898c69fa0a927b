//! How to reach and open the log.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use secrecy::SecretString;
use serde::Deserialize;

/// Which log, and how it is opened. The settings of both back ends stand side by side, so that
/// one key switches between them.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LogConfig {
    /// Which of the two is used. Default: `embedded`.
    pub backend: Backend,
    /// The file, for `embedded`.
    pub embedded: EmbeddedConfig,
    /// The cluster, for `kafka`.
    pub kafka: KafkaConfig,
}

/// The two kinds of log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Backend {
    /// A file on this machine.
    #[default]
    Embedded,
    /// A Kafka cluster.
    Kafka,
}

/// The embedded log.
#[derive(Debug, Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EmbeddedConfig {
    /// The file. Beside it stand its `-wal`, `-shm` and `.lock`. Default: `dropgate-log.db`.
    pub path: PathBuf,
    /// Whether a missing file is created. Default: true.
    pub create: bool,
    /// The claims partitions of a file that is created. Default: 8.
    pub partitions: u32,
    /// The bound of one append. Default: 5 s.
    #[serde(with = "humantime_serde")]
    pub append_timeout: Duration,
    /// The bound of one probe, and of the wait for a file that another process has locked for
    /// a moment. Default: 1 s.
    #[serde(with = "humantime_serde")]
    pub probe_timeout: Duration,
    /// How often a reader of a file that another process writes looks for news. Default: 20 ms.
    #[serde(with = "humantime_serde")]
    pub poll_interval: Duration,
}

impl Default for EmbeddedConfig {
    fn default() -> Self {
        Self {
            path: PathBuf::from("dropgate-log.db"),
            create: true,
            partitions: 8,
            append_timeout: Duration::from_secs(5),
            probe_timeout: Duration::from_secs(1),
            poll_interval: Duration::from_millis(20),
        }
    }
}

/// The log in Kafka.
#[derive(Debug, Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct KafkaConfig {
    /// `host:port` of some brokers, with commas between. Default: `localhost:9092`.
    pub brokers: String,
    /// The topic of the index of sales. Default: `dropgate-sales`.
    pub topic_index: String,
    /// The topic of the claims. Default: `dropgate-claims`.
    pub topic_claims: String,
    /// Whether missing topics are created, with the settings below. Default: false.
    pub create: bool,
    /// The partitions of a claims topic that is created. Default: 8.
    pub partitions: u32,
    /// The replicas of a topic that is created. Default: 3.
    pub replication_factor: u16,
    /// For how long a claims topic that is created keeps its records. Default: 30 days.
    #[serde(with = "humantime_serde")]
    pub retention: Duration,
    /// Whether topic settings that lose acknowledged records when a machine fails keep the log
    /// from opening. Default: false, they are logged.
    pub production: bool,
    /// How long a record waits for company before it is sent. Default: 1 ms.
    #[serde(with = "humantime_serde")]
    pub linger: Duration,
    /// The bound of one append: what is not acknowledged by then fails. Default: 5 s.
    #[serde(with = "humantime_serde")]
    pub append_timeout: Duration,
    /// The bound of one probe. Default: 1 s.
    #[serde(with = "humantime_serde")]
    pub probe_timeout: Duration,
    /// The bound of opening, of creating topics and of reading their settings. Default: 10 s.
    #[serde(with = "humantime_serde")]
    pub open_timeout: Duration,
    /// What one tail may hold for a reader that is slow, in KiB. Default: 8192 (8 MiB).
    pub queued_kib_max: u32,
    /// A user and a password, where the brokers ask for them. Default: none.
    pub sasl: Option<Sasl>,
}

impl Default for KafkaConfig {
    fn default() -> Self {
        Self {
            brokers: "localhost:9092".to_owned(),
            topic_index: "dropgate-sales".to_owned(),
            topic_claims: "dropgate-claims".to_owned(),
            create: false,
            partitions: 8,
            replication_factor: 3,
            retention: Duration::from_secs(30 * 24 * 3600),
            production: false,
            linger: Duration::from_millis(1),
            append_timeout: Duration::from_secs(5),
            probe_timeout: Duration::from_secs(1),
            open_timeout: Duration::from_secs(10),
            queued_kib_max: 8 * 1024,
            sasl: None,
        }
    }
}

/// `SASL/PLAIN` without TLS: what this build of the Kafka client can do.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sasl {
    /// The user.
    pub username: String,
    /// The password; never printed.
    pub password: SecretString,
}

/// A key of the configuration and what its value must be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigProblem {
    /// The key, relative to the log's section.
    pub key: &'static str,
    /// What was expected.
    pub expected: &'static str,
}

impl fmt::Display for ConfigProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: must be {}", self.key, self.expected)
    }
}

/// The most partitions that a configuration may ask for.
const PARTITIONS_MAX: u32 = 1024;
const TIMEOUT: std::ops::RangeInclusive<Duration> =
    Duration::from_millis(10)..=Duration::from_secs(300);
const TIMEOUT_TEXT: &str = "10ms to 300s";

impl LogConfig {
    /// Every problem of the back end that is used, beyond the types of its values.
    #[must_use]
    pub fn problems(&self) -> Vec<ConfigProblem> {
        match self.backend {
            Backend::Embedded => self.embedded.problems(),
            Backend::Kafka => self.kafka.problems(),
        }
    }
}

fn failed(checks: &[(bool, &'static str, &'static str)]) -> Vec<ConfigProblem> {
    let bad = checks.iter().filter(|(ok, ..)| !ok);
    bad.map(|&(_, key, expected)| ConfigProblem { key, expected })
        .collect()
}

impl EmbeddedConfig {
    /// Every problem of these settings.
    #[must_use]
    pub fn problems(&self) -> Vec<ConfigProblem> {
        let poll = Duration::from_millis(1)..=Duration::from_secs(5);
        failed(&[
            (
                self.path.file_name().is_some(),
                "embedded.path",
                "the path of a file",
            ),
            (
                (1..=PARTITIONS_MAX).contains(&self.partitions),
                "embedded.partitions",
                "1 to 1024",
            ),
            (
                TIMEOUT.contains(&self.append_timeout),
                "embedded.append_timeout",
                TIMEOUT_TEXT,
            ),
            (
                TIMEOUT.contains(&self.probe_timeout),
                "embedded.probe_timeout",
                TIMEOUT_TEXT,
            ),
            (
                poll.contains(&self.poll_interval),
                "embedded.poll_interval",
                "1ms to 5s",
            ),
        ])
    }
}

/// What Kafka allows as the name of a topic.
fn is_topic(name: &str) -> bool {
    let legal = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
    (1..=249).contains(&name.len()) && name.bytes().all(legal) && name != "." && name != ".."
}

impl KafkaConfig {
    /// Every problem of these settings.
    #[must_use]
    pub fn problems(&self) -> Vec<ConfigProblem> {
        let topic = "1 to 249 of a-z, A-Z, 0-9, '.', '_' and '-', different for each topic";
        let different = self.topic_index != self.topic_claims;
        failed(&[
            (
                self.brokers.split(',').all(|b| b.trim().contains(':')),
                "kafka.brokers",
                "host:port, with commas between several",
            ),
            (
                is_topic(&self.topic_index) && different,
                "kafka.topic_index",
                topic,
            ),
            (is_topic(&self.topic_claims), "kafka.topic_claims", topic),
            (
                (1..=PARTITIONS_MAX).contains(&self.partitions),
                "kafka.partitions",
                "1 to 1024",
            ),
            (
                (1..=64).contains(&self.replication_factor),
                "kafka.replication_factor",
                "1 to 64",
            ),
            (
                self.retention >= Duration::from_secs(3600),
                "kafka.retention",
                "at least 1h",
            ),
            (
                self.linger < self.append_timeout && self.linger <= Duration::from_secs(1),
                "kafka.linger",
                "at most 1s and less than the append_timeout",
            ),
            (
                TIMEOUT.contains(&self.append_timeout),
                "kafka.append_timeout",
                TIMEOUT_TEXT,
            ),
            (
                TIMEOUT.contains(&self.probe_timeout),
                "kafka.probe_timeout",
                TIMEOUT_TEXT,
            ),
            (
                TIMEOUT.contains(&self.open_timeout),
                "kafka.open_timeout",
                TIMEOUT_TEXT,
            ),
            (
                (1024..=1024 * 1024).contains(&self.queued_kib_max),
                "kafka.queued_kib_max",
                "1024 to 1048576",
            ),
        ])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_in_order() {
        let mut config = LogConfig::default();
        assert_eq!(config.problems(), []);
        config.backend = Backend::Kafka;
        assert_eq!(config.problems(), []);
    }

    #[test]
    fn every_problem_is_reported_at_once_with_its_key() {
        let config: LogConfig = serde_json::from_value(serde_json::json!({
            "backend": "kafka",
            "kafka": {"brokers": "nowhere", "topic_index": "a b", "topic_claims": "",
                "partitions": 0, "append_timeout": "1ms"},
        }))
        .unwrap();
        let keys: Vec<_> = config.problems().iter().map(|p| p.key).collect();
        assert_eq!(
            keys,
            [
                "kafka.brokers",
                "kafka.topic_index",
                "kafka.topic_claims",
                "kafka.partitions",
                "kafka.linger",
                "kafka.append_timeout"
            ]
        );
    }

    #[test]
    fn unknown_keys_are_refused() {
        for text in [
            r#"{"backed": "kafka"}"#,
            r#"{"kafka": {"broker": "a:1"}}"#,
            r#"{"embedded": {"paths": "x"}}"#,
            r#"{"backend": "nats"}"#,
        ] {
            assert!(serde_json::from_str::<LogConfig>(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_password_is_never_printed() {
        let config: LogConfig = serde_json::from_str(
            r#"{"kafka": {"sasl": {"username": "u", "password": "hunter2"}}}"#,
        )
        .unwrap();
        assert!(!format!("{config:?}").contains("hunter2"));
    }
}
