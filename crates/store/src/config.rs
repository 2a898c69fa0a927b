//! How the database is reached.

use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use std::time::Duration;

/// How the database is reached, and how long anybody waits for it.
#[derive(Debug, Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StoreConfig {
    /// `postgres://user:password@host:port/name` or `sqlite:path`.
    pub url: SecretString,
    /// The most connections that this process opens.
    pub pool_max: u32,
    /// How long a call waits for a connection, new or from the pool.
    #[serde(with = "humantime_serde")]
    pub connect_timeout: Duration,
    /// How long one statement may run, its waits for locks included. Enforced by Postgres; in
    /// SQLite it bounds the wait for the write lock.
    #[serde(with = "humantime_serde")]
    pub statement_timeout: Duration,
    /// How long one call may take in all, from asking for a connection to the commit's answer.
    #[serde(with = "humantime_serde")]
    pub call_timeout: Duration,
}

impl Default for StoreConfig {
    fn default() -> Self {
        Self {
            url: SecretString::default(),
            pool_max: 4,
            connect_timeout: Duration::from_secs(5),
            statement_timeout: Duration::from_secs(10),
            call_timeout: Duration::from_secs(30),
        }
    }
}

/// The kinds of databases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Backend {
    Postgres,
    Sqlite,
}

/// The parameters of a Postgres url that have a meaning. The driver logs any other with its
/// value, which is part of the password when that holds a `?` that was not escaped.
const POSTGRES_PARAMETERS: [&str; 15] = [
    "sslmode",
    "ssl-mode",
    "sslrootcert",
    "ssl-root-cert",
    "ssl-ca",
    "sslcert",
    "ssl-cert",
    "sslkey",
    "ssl-key",
    "host",
    "hostaddr",
    "port",
    "dbname",
    "user",
    "application_name",
];

impl StoreConfig {
    /// The defaults with this url.
    #[must_use]
    pub fn with_url(url: impl Into<String>) -> Self {
        Self {
            url: SecretString::from(url.into()),
            ..Self::default()
        }
    }

    /// Every setting that cannot be, as (name, what it must be). Names no value: the url holds
    /// a password.
    #[must_use]
    pub fn problems(&self) -> Vec<(&'static str, String)> {
        let mut problems = Vec::new();
        if let Err(expected) = self.backend() {
            problems.push(("url", expected.to_owned()));
        }
        if !(1..=1000).contains(&self.pool_max) {
            problems.push(("pool_max", "must be 1 to 1000".to_owned()));
        }
        let bounds = Duration::from_millis(10)..=Duration::from_secs(3600);
        for (name, value) in [
            ("connect_timeout", self.connect_timeout),
            ("statement_timeout", self.statement_timeout),
            ("call_timeout", self.call_timeout),
        ] {
            if !bounds.contains(&value) {
                problems.push((name, "must be 10ms to 1h".to_owned()));
            }
        }
        problems
    }

    pub(crate) fn backend(&self) -> Result<Backend, &'static str> {
        let url = self.url.expose_secret();
        let (before_query, query) = url.split_once('?').unwrap_or((url, ""));
        if let Some(path) = before_query.strip_prefix("sqlite:") {
            let path = path.trim_start_matches("//");
            if path.is_empty() || path == ":memory:" || query.contains("mode=memory") {
                return Err("must name a file: connections do not share a database in memory");
            }
            return Ok(Backend::Sqlite);
        }
        if !url.starts_with("postgres://") && !url.starts_with("postgresql://") {
            return Err("must begin with postgres:// or sqlite:");
        }
        let known = |pair: &str| {
            let key = pair.split('=').next().unwrap_or_default();
            POSTGRES_PARAMETERS.contains(&key)
        };
        if query.split('&').filter(|pair| !pair.is_empty()).all(known) {
            Ok(Backend::Postgres)
        } else {
            Err("has a parameter that is not known (a '?' in the password is written %3F)")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(config: &StoreConfig) -> Vec<&'static str> {
        config
            .problems()
            .into_iter()
            .map(|(name, _)| name)
            .collect()
    }

    #[test]
    fn every_problem_is_reported_at_once() {
        let config = StoreConfig {
            pool_max: 0,
            call_timeout: Duration::ZERO,
            ..StoreConfig::default()
        };
        assert_eq!(names(&config), ["url", "pool_max", "call_timeout"]);
    }

    #[test]
    fn urls_are_of_a_known_kind_and_hide_no_password_in_a_parameter() {
        for good in [
            "postgres://u:p@h:5432/d",
            "postgresql://h/d?sslmode=require&application_name=x",
            "sqlite:/var/lib/x.db",
            "sqlite://x.db?mode=rwc",
        ] {
            assert!(names(&StoreConfig::with_url(good)).is_empty(), "{good}");
        }
        for bad in [
            "",
            "mysql://h/d",
            "sqlite:",
            "sqlite::memory:",
            "sqlite://x?mode=memory",
            "postgres://u:pa?ss@h/d",
        ] {
            assert_eq!(names(&StoreConfig::with_url(bad)), ["url"], "{bad}");
        }
    }

    #[test]
    fn the_url_is_in_no_debug_output() {
        let config = StoreConfig::with_url("postgres://u:hunter2@h/d");
        assert!(!format!("{config:?}").contains("hunter2"));
    }
}
