//! What a configuration must be, beyond its types.

use super::{RedisConfig, Topology};
use secrecy::ExposeSecret;
use std::collections::BTreeSet;
use std::time::Duration;

/// A field of a [`RedisConfig`] that cannot be. Never holds the value: it may be a secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {expected}")]
pub struct InvalidField {
    /// The field's name, with its section's before it: `sentinel.service`.
    pub field: &'static str,
    /// What it must be.
    pub expected: &'static str,
}

/// The most nodes that may be named.
const NODES_MAX: usize = 64;

/// The parts of a `redis://` or `rediss://` URL.
pub(crate) struct Url {
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) tls: bool,
    pub(crate) username: Option<String>,
    pub(crate) password: Option<String>,
    pub(crate) database: Option<u8>,
}

impl Url {
    /// `None` for a URL that is not one of a Redis. The driver would take any scheme for
    /// `redis://` and fail later, without saying why.
    pub(crate) fn read(url: &str) -> Option<Self> {
        let (tls, rest) = match url.strip_prefix("rediss://") {
            Some(rest) => (true, rest),
            None => (false, url.strip_prefix("redis://")?),
        };
        // Read without TLS: the driver would load the system's certificates to say what is here.
        let config = fred::types::config::Config::from_url(&format!("redis://{rest}")).ok()?;
        let server = config.server.hosts().into_iter().next()?;
        Some(Self {
            host: server.host.to_string(),
            port: server.port,
            tls,
            username: config.username,
            password: config.password,
            database: config.database,
        })
    }
}

/// The parts of `host:port`; the host of an IPv6 address is in brackets, or not.
pub(crate) fn read_address(text: &str) -> Option<(String, u16)> {
    let (host, port) = text.rsplit_once(':')?;
    let host = host.strip_prefix('[').map_or(host, |host| {
        host.strip_suffix(']').unwrap_or("") // an open bracket is no host
    });
    let clean = |c: char| c.is_ascii_graphic() && !"/@[]".contains(c);
    let port: u16 = port.parse().ok()?;
    (!host.is_empty() && host.chars().all(clean) && port > 0).then(|| (host.to_owned(), port))
}

struct Problems(Vec<InvalidField>);

impl Problems {
    fn check(&mut self, ok: bool, field: &'static str, expected: &'static str) {
        if !ok {
            self.0.push(InvalidField { field, expected });
        }
    }
}

impl RedisConfig {
    /// Every field that is out of its bounds, so that all are reported at once.
    #[must_use]
    pub fn problems(&self) -> Vec<InvalidField> {
        let mut problems = Problems(Vec::new());
        self.check_where(&mut problems);
        self.check_tls(&mut problems);
        self.check_numbers(&mut problems);
        problems.0
    }

    fn check_where(&self, problems: &mut Problems) {
        if self.topology == Topology::Single {
            problems.check(
                Url::read(self.url.expose_secret()).is_some(),
                "url",
                "redis://[user:password@]host[:port] or rediss://..",
            );
            problems.check(
                self.nodes.is_empty(),
                "nodes",
                "none for a single server; set topology to sentinel or cluster",
            );
        } else {
            problems.check(
                self.url_is_default(),
                "url",
                "none with sentinels or a cluster: nodes says where they are",
            );
            // Twice the same sentinel would be half a majority.
            let different: BTreeSet<_> = self.nodes.iter().map(|n| read_address(n)).collect();
            problems.check(
                (1..=NODES_MAX).contains(&self.nodes.len())
                    && different.len() == self.nodes.len()
                    && !different.contains(&None),
                "nodes",
                "1 to 64 of host:port, each once",
            );
        }
        let sentinel = &self.sentinel;
        if self.topology == Topology::Sentinel {
            let printable = |c: char| c.is_ascii_graphic();
            problems.check(
                !sentinel.service.is_empty() && sentinel.service.chars().all(printable),
                "sentinel.service",
                "the name by which the sentinels know the master",
            );
            problems.check(
                sentinel.username.is_none() || sentinel.password.is_some(),
                "sentinel.password",
                "set with sentinel.username",
            );
        } else {
            let unset = sentinel.service.is_empty()
                && sentinel.username.is_none()
                && sentinel.password.is_none();
            problems.check(unset, "sentinel", "nothing, or topology set to sentinel");
        }
    }

    fn check_tls(&self, problems: &mut Problems) {
        let tls = &self.tls;
        let on = tls.enabled
            || Url::read(self.url.expose_secret())
                .is_some_and(|url| self.topology == Topology::Single && url.tls);
        let files = tls.ca_file.is_some() || tls.cert_file.is_some() || tls.key_file.is_some();
        problems.check(
            on || !files,
            "tls.enabled",
            "true where a file is named, or a rediss:// URL",
        );
        problems.check(
            tls.cert_file.is_some() == tls.key_file.is_some(),
            "tls.key_file",
            "set with tls.cert_file, and only with it",
        );
    }

    fn check_numbers(&self, problems: &mut Problems) {
        let within = |value: Duration, min_ms: u64, max_ms: u64| {
            (Duration::from_millis(min_ms)..=Duration::from_millis(max_ms)).contains(&value)
        };
        let minute = 60_000;
        for (value, field) in [
            (self.connect_timeout, "connect_timeout"),
            (self.command_timeout, "command_timeout"),
            (self.call_deadline, "call_deadline"),
            (self.discovery_interval, "discovery_interval"),
        ] {
            problems.check(within(value, 10, minute), field, "10ms to 1m");
        }
        problems.check(
            (1..=100_000).contains(&self.calls_in_flight_max),
            "calls_in_flight_max",
            "1 to 100000",
        );
        problems.check(
            within(self.reconnect_delay_min, 1, minute),
            "reconnect_delay_min",
            "1ms to 1m",
        );
        problems.check(
            within(self.reconnect_delay_max, 1, minute)
                && self.reconnect_delay_max >= self.reconnect_delay_min,
            "reconnect_delay_max",
            "1ms to 1m, and not below reconnect_delay_min",
        );
        problems.check(
            (1..=1000).contains(&self.timeouts_in_row_max),
            "timeouts_in_row_max",
            "1 to 1000",
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::SentinelConfig;
    use secrecy::SecretString;

    fn fields(config: &RedisConfig) -> Vec<&'static str> {
        config.problems().iter().map(|p| p.field).collect()
    }

    fn nodes(nodes: &[&str]) -> Vec<String> {
        nodes.iter().map(|&node| node.to_owned()).collect()
    }

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
    fn sentinels_and_clusters_need_nodes_and_no_url() {
        let all = nodes(&["a:1", "[::1]:2", "10.0.0.1:3"]);
        let mut config = RedisConfig::behind_sentinels(all.clone(), "s");
        assert_eq!(config.problems(), []);
        assert_eq!(RedisConfig::in_cluster(all).problems(), []);
        config.url = SecretString::from("redis://h:1");
        config.nodes = nodes(&["a:1", "b"]);
        config.sentinel.service = String::new();
        config.sentinel.username = Some("u".into());
        let expected = ["url", "nodes", "sentinel.service", "sentinel.password"];
        assert_eq!(fields(&config), expected);
        for bad in [
            "",
            ":1",
            "h:",
            "h:0",
            "h:x",
            "redis://h:1",
            "[::1:1",
            "u@h:1",
        ] {
            assert_eq!(fields(&RedisConfig::in_cluster(nodes(&[bad]))), ["nodes"]);
        }
        for bad in [nodes(&[]), nodes(&["a:1", "b:1", "a:01"])] {
            assert_eq!(fields(&RedisConfig::in_cluster(bad)), ["nodes"]);
        }
    }

    #[test]
    fn what_belongs_to_another_topology_is_a_problem() {
        let config = RedisConfig {
            nodes: nodes(&["a:1"]),
            sentinel: SentinelConfig {
                service: "s".into(),
                ..SentinelConfig::default()
            },
            ..RedisConfig::default()
        };
        assert_eq!(fields(&config), ["nodes", "sentinel"]);
    }

    #[test]
    fn files_of_tls_without_tls_are_a_problem() {
        let mut config = RedisConfig::at("redis://h");
        config.tls.ca_file = Some("ca.pem".into());
        assert_eq!(fields(&config), ["tls.enabled"]);
        config.tls.enabled = true;
        assert_eq!(config.problems(), []);
        config.tls.enabled = false;
        config.url = SecretString::from("rediss://h");
        assert_eq!(config.problems(), []);
        config.tls.cert_file = Some("c.pem".into());
        assert_eq!(fields(&config), ["tls.key_file"]);
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
        let expected = [
            "url",
            "command_timeout",
            "calls_in_flight_max",
            "reconnect_delay_max",
        ];
        assert_eq!(fields(&config), expected);
        let shown = format!("{:?} {config:?}", config.problems());
        assert!(!shown.contains("hunter2"), "{shown}");
    }
}
