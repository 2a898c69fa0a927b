//! How to reach Redis.

use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use std::path::PathBuf;
use std::time::Duration;

mod check;

pub use check::InvalidField;
pub(crate) use check::{Url, read_address};

/// What stands behind the configuration.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Topology {
    /// One server, at `url`.
    #[default]
    Single,
    /// A master with replicas; `nodes` are the sentinels that say which one it is.
    Sentinel,
    /// A Redis Cluster; `nodes` are some of its servers, from which the others are learnt.
    Cluster,
}

/// How to reach Redis, and how long to wait for it.
///
/// One struct for both clients: a gateway's section names the restricted user, an operator's the
/// one that may load scripts.
///
/// ```toml
/// [redis]                       # one server
/// url = "redis://redis:6379"
/// username = "gateway"
/// password = "..."
///
/// [redis]                       # a master, replicas, and all of the sentinels
/// topology = "sentinel"
/// nodes = ["sentinel-0:26379", "sentinel-1:26379", "sentinel-2:26379"]
/// username = "gateway"
/// password = "..."
/// [redis.sentinel]
/// service = "dropgate"
/// username = "dropgate"
/// password = "..."
///
/// [redis]                       # a cluster, with TLS
/// topology = "cluster"
/// nodes = ["redis-0:6379", "redis-1:6379", "redis-2:6379"]
/// [redis.tls]
/// enabled = true
/// ca_file = "/etc/dropgate/redis-ca.pem"
/// ```
#[derive(Debug, Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RedisConfig {
    /// What stands behind it: one server, sentinels, a cluster.
    pub topology: Topology,
    /// `redis://[user:password@]host[:port]`, or `rediss://` for TLS. A secret, as it may hold a
    /// password. For a single server only.
    pub url: SecretString,
    /// `host:port` of each sentinel (all of them: a majority of these must agree before a
    /// generation begins), or of some nodes of the cluster.
    pub nodes: Vec<String>,
    /// The user, when it is not in the URL. It wins over the URL's.
    pub username: Option<String>,
    /// The password, when it is not in the URL. It wins over the URL's.
    pub password: Option<SecretString>,
    /// How to ask the sentinels.
    pub sentinel: SentinelConfig,
    /// TLS, to Redis and to the sentinels alike.
    pub tls: TlsConfig,
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
    /// How often each sentinel, or each node of a cluster, is asked who is master.
    #[serde(with = "humantime_serde")]
    pub discovery_interval: Duration,
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

/// How to ask sentinels for the master.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SentinelConfig {
    /// The name by which the sentinels know the master.
    pub service: String,
    /// The user on the sentinels, which is not the one on the servers.
    pub username: Option<String>,
    /// Its password.
    pub password: Option<SecretString>,
}

/// TLS. There is no switch that accepts any certificate.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TlsConfig {
    /// Whether connections use TLS. A `rediss://` URL says so too.
    pub enabled: bool,
    /// The certificates of the authorities that are trusted (PEM); none: the system's.
    pub ca_file: Option<PathBuf>,
    /// The certificate that is shown to the server (PEM), if it asks for one.
    pub cert_file: Option<PathBuf>,
    /// The key of that certificate (PEM).
    pub key_file: Option<PathBuf>,
}

const URL: &str = "redis://127.0.0.1:6379";

impl Default for RedisConfig {
    fn default() -> Self {
        Self {
            topology: Topology::Single,
            url: SecretString::from(URL),
            nodes: Vec::new(),
            username: None,
            password: None,
            sentinel: SentinelConfig::default(),
            tls: TlsConfig::default(),
            connect_timeout: Duration::from_secs(2),
            command_timeout: Duration::from_secs(1),
            call_deadline: Duration::from_secs(1),
            discovery_interval: Duration::from_millis(250),
            calls_in_flight_max: 4096,
            reconnect_delay_min: Duration::from_millis(50),
            reconnect_delay_max: Duration::from_secs(2),
            timeouts_in_row_max: 3,
        }
    }
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

    /// A configuration of the master that these sentinels name for this service.
    #[must_use]
    pub fn behind_sentinels(nodes: Vec<String>, service: &str) -> Self {
        Self {
            topology: Topology::Sentinel,
            nodes,
            sentinel: SentinelConfig {
                service: service.to_owned(),
                ..SentinelConfig::default()
            },
            ..Self::default()
        }
    }

    /// A configuration of the cluster that these nodes are of.
    #[must_use]
    pub fn in_cluster(nodes: Vec<String>) -> Self {
        Self {
            topology: Topology::Cluster,
            nodes,
            ..Self::default()
        }
    }

    /// Whether the URL is the one that nobody wrote.
    pub(crate) fn url_is_default(&self) -> bool {
        self.url.expose_secret() == URL
    }
}
