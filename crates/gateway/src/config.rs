//! The gateway's configuration: one struct a section.

use crate::auth::TokenKey;
use dropgate_admission::RedisConfig;
use dropgate_engine::EngineConfig;
use dropgate_runtime::config::{Problem, Validate};
use dropgate_runtime::telemetry::TelemetryConfig;
use dropgate_store::StoreConfig;
use dropgate_stream::LogConfig;
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

/// The shortest secret that signs tokens, in bytes: HS256 wants as many as its hash has
/// (RFC 7518, 3.2).
const TOKEN_SECRET_BYTES_MIN: usize = 32;

/// The shortest admin key, in bytes.
const ADMIN_KEY_BYTES_MIN: usize = 32;

/// Everything that a gateway is told.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Ports and connections.
    pub http: HttpConfig,
    /// Whose tokens are good.
    pub auth: AuthConfig,
    /// Who may create, open and close sales.
    pub admin: AdminConfig,
    /// Redis, as the restricted user of a gateway.
    pub redis: RedisConfig,
    /// Redis, as a user that may load scripts. Without it this gateway opens no sale.
    pub redis_operator: Option<RedisConfig>,
    /// The log.
    pub log: LogConfig,
    /// The engine's knobs.
    pub engine: EngineConfig,
    /// The database, only to tell whether a claim has been written there. Without it
    /// `persisted` is null.
    pub store: Option<StoreConfig>,
    /// Logs.
    pub telemetry: TelemetryConfig,
}

/// `[http]`: ports and connections.
#[derive(Debug, Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HttpConfig {
    /// Where clients come in.
    pub bind: SocketAddr,
    /// Where operators and probes come in; not for the public.
    pub admin_bind: SocketAddr,
    /// Threads that serve clients; 0 for one a core.
    pub workers: usize,
    /// Connections that the kernel keeps until they are accepted. It cuts this to its own
    /// `somaxconn`.
    pub backlog: u32,
    /// Connections that are served at once; more are answered 503 and closed.
    pub connections_max: usize,
    /// How long a connection may be idle.
    #[serde(with = "humantime_serde")]
    pub keep_alive: Duration,
    /// How long the head of a request may take to arrive.
    #[serde(with = "humantime_serde")]
    pub request_timeout: Duration,
    /// Origins whose pages may call: `https://shop.example`.
    pub cors_origins: Vec<String>,
    /// How long a browser may remember the answer to a preflight.
    #[serde(with = "humantime_serde")]
    pub cors_max_age: Duration,
    /// How long to go on serving at shutdown after `/readyz` has turned to 503, so that load
    /// balancers notice.
    #[serde(with = "humantime_serde")]
    pub drain: Duration,
    /// How long requests in flight have at shutdown.
    #[serde(with = "humantime_serde")]
    pub shutdown_timeout: Duration,
}

impl Default for HttpConfig {
    fn default() -> Self {
        Self {
            bind: SocketAddr::from(([127, 0, 0, 1], 8080)),
            admin_bind: SocketAddr::from(([127, 0, 0, 1], 8081)),
            workers: 0,
            backlog: 4096,
            connections_max: 16_000,
            keep_alive: Duration::from_secs(30),
            request_timeout: Duration::from_secs(5),
            cors_origins: Vec::new(),
            cors_max_age: Duration::from_secs(3600),
            drain: Duration::from_secs(1),
            shutdown_timeout: Duration::from_secs(10),
        }
    }
}

/// `[auth]`: whose tokens are good.
#[derive(Debug, Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AuthConfig {
    /// The `aud` that a token must have.
    pub audience: String,
    /// The difference of clocks that is forgiven.
    #[serde(with = "humantime_serde")]
    pub leeway: Duration,
    /// The secrets that sign tokens; several, so that they can be changed with an overlap.
    pub keys: Vec<TokenKey>,
}

impl Default for AuthConfig {
    fn default() -> Self {
        Self {
            audience: "dropgate".into(),
            leeway: Duration::from_secs(5),
            keys: Vec::new(),
        }
    }
}

/// `[admin]`: who may create, open and close sales.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AdminConfig {
    /// Keys that are good, each by itself; none at all: the admin API is closed.
    pub keys: Vec<SecretString>,
}

impl Validate for Config {
    fn problems(&self) -> Vec<Problem> {
        let mut problems = dropgate_runtime::config::sections([
            ("http", &self.http as &dyn Validate),
            ("auth", &self.auth),
            ("admin", &self.admin),
            ("telemetry", &self.telemetry),
        ]);
        let mut section = |name: &str, found: Vec<(&str, String)>| {
            problems.extend(
                found
                    .into_iter()
                    .map(|(key, text)| Problem::new(key, text).under(name)),
            );
        };
        section("redis", redis_problems(&self.redis));
        if let Some(operator) = &self.redis_operator {
            section("redis_operator", redis_problems(operator));
        }
        let log = self.log.problems().into_iter();
        section("log", log.map(|p| (p.key, p.expected.to_owned())).collect());
        let engine = self.engine.problems().into_iter();
        section(
            "engine",
            engine.map(|(key, text)| (key, text.to_owned())).collect(),
        );
        if let Some(store) = &self.store {
            section("store", store.problems());
        }
        problems
    }
}

fn redis_problems(config: &RedisConfig) -> Vec<(&'static str, String)> {
    config
        .problems()
        .into_iter()
        .map(|p| (p.field, p.expected.to_owned()))
        .collect()
}

impl Validate for HttpConfig {
    fn problems(&self) -> Vec<Problem> {
        let mut problems = Vec::new();
        let mut check = |ok: bool, path: &str, expected: &str| {
            if !ok {
                problems.push(Problem::new(path, expected));
            }
        };
        let same = self.bind == self.admin_bind && self.bind.port() != 0;
        check(!same, "admin_bind", "another address than bind");
        check(self.workers <= 1024, "workers", "0 (one a core) to 1024");
        check(
            (1..=65_535).contains(&self.backlog),
            "backlog",
            "1 to 65535",
        );
        check(
            (1..=1_000_000).contains(&self.connections_max),
            "connections_max",
            "1 to 1000000",
        );
        let within = |value: Duration, min: u64, max: u64| {
            (Duration::from_secs(min)..=Duration::from_secs(max)).contains(&value)
        };
        check(within(self.keep_alive, 1, 600), "keep_alive", "1s to 10m");
        check(
            within(self.request_timeout, 1, 60),
            "request_timeout",
            "1s to 1m",
        );
        check(
            within(self.cors_max_age, 0, 86_400),
            "cors_max_age",
            "0s to 1day",
        );
        check(within(self.drain, 0, 300), "drain", "0s to 5m");
        check(
            within(self.shutdown_timeout, 1, 300),
            "shutdown_timeout",
            "1s to 5m",
        );
        for (n, origin) in self.cors_origins.iter().enumerate() {
            let path = format!("cors_origins[{n}]");
            check(
                is_origin(origin),
                &path,
                "an origin: https://host, with a port if it has one",
            );
        }
        problems
    }
}

/// Whether a browser would send this text in `Origin`: a scheme and an authority, nothing else.
fn is_origin(text: &str) -> bool {
    let authority = ["https://", "http://"]
        .iter()
        .find_map(|scheme| text.strip_prefix(scheme));
    authority.is_some_and(|host| {
        let legal = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-.:[]".contains(&b);
        !host.is_empty() && host.bytes().all(legal)
    })
}

impl Validate for AuthConfig {
    fn problems(&self) -> Vec<Problem> {
        let mut problems = Vec::new();
        let mut check = |ok: bool, path: &str, expected: &str| {
            if !ok {
                problems.push(Problem::new(path, expected));
            }
        };
        check(
            !self.audience.is_empty(),
            "audience",
            "the aud of the tokens",
        );
        check(
            self.leeway <= Duration::from_secs(300),
            "leeway",
            "0s to 5m",
        );
        check(!self.keys.is_empty(), "keys", "at least one {kid, secret}");
        let mut kids = BTreeSet::new();
        for (n, key) in self.keys.iter().enumerate() {
            let new = kids.insert(key.kid.as_str()) && !key.kid.is_empty();
            check(
                new,
                &format!("keys[{n}].kid"),
                "a name that no other key has",
            );
            let long = key.secret.expose_secret().len() >= TOKEN_SECRET_BYTES_MIN;
            check(long, &format!("keys[{n}].secret"), "at least 32 bytes");
        }
        problems
    }
}

impl Validate for AdminConfig {
    fn problems(&self) -> Vec<Problem> {
        let short = |key: &SecretString| key.expose_secret().len() < ADMIN_KEY_BYTES_MIN;
        let bad = self.keys.iter().enumerate().filter(|(_, key)| short(key));
        bad.map(|(n, _)| Problem::new(format!("keys[{n}]"), "at least 32 bytes"))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dropgate_runtime::config::{Problems, load_from};

    const GOOD: &str = r#"
        [auth]
        keys = [{ kid = "a", secret = "0123456789abcdef0123456789abcdef" }]
        [admin]
        keys = ["fedcba9876543210fedcba9876543210"]
        [redis_operator]
        url = "redis://operator:hunter2@localhost:6379"
        [store]
        url = "postgres://u:hunter3@localhost/db"
    "#;

    fn paths(file: &str) -> Vec<String> {
        match load_from::<Config>(file, []) {
            Ok(_) => Vec::new(),
            Err(Problems(all)) => all.into_iter().map(|p| p.path).collect(),
        }
    }

    #[test]
    fn a_complete_configuration_is_accepted_and_shows_no_secret() {
        let config: Config = load_from(GOOD, []).unwrap();
        let text = format!("{config:?}");
        for secret in ["0123456789abcdef", "fedcba98", "hunter2", "hunter3"] {
            assert!(!text.contains(secret), "{secret}");
        }
    }

    #[test]
    fn the_example_shows_the_defaults() {
        let example = include_str!("../gateway.example.toml");
        assert_eq!(
            paths(example),
            ["auth.keys"],
            "but for the one key without a default"
        );
        let key = "keys = [{ kid = \"a\", secret = \"0123456789abcdef0123456789abcdef\" }]";
        let example = example.replacen("\nkeys = []", &format!("\n{key}"), 1);
        let shown: Config = load_from(&example, []).unwrap();
        let default: Config = load_from(&format!("[auth]\n{key}"), []).unwrap();
        assert_eq!(format!("{shown:#?}"), format!("{default:#?}"));
    }

    #[test]
    fn the_one_thing_without_a_default_is_the_key_that_signs_tokens() {
        assert_eq!(paths(""), ["auth.keys"]);
    }

    #[test]
    fn every_wrong_key_is_reported_at_once_without_its_value() {
        let file = r#"
            [http]
            bind = "nowhere"
            backlog = 0
            connections_max = 0
            cors_origins = ["*", "https://shop.example", "https://shop.example/path"]
            [auth]
            audience = ""
            keys = [{ kid = "a", secret = "hunter2" }, { kid = "a", secret = 12345678 }]
            [admin]
            keys = ["hunter3"]
            [redis]
            url = "hunter4"
            [redis_operator]
            command_timeout = "0s"
            [log]
            backend = "paper"
            [engine]
            window = 0
            [store]
            url = "mysql://u:hunter5@h/d"
            [telemetry]
            filter = "loud=loud=loud"
            format = "html"
            [typo]
            x = 1
        "#;
        let Err(Problems(all)) = load_from::<Config>(file, []) else {
            panic!("accepted")
        };
        let paths: Vec<_> = all.iter().map(|p| p.path.as_str()).collect();
        let expected = [
            "admin.keys[0]",
            "auth.audience",
            "auth.keys[0].secret",
            "auth.keys[1].secret",
            "engine.window",
            "http.backlog",
            "http.bind",
            "http.connections_max",
            "http.cors_origins[0]",
            "http.cors_origins[2]",
            "log.backend",
            "redis.url",
            "redis_operator.command_timeout",
            "store.url",
            "telemetry.filter",
            "telemetry.format",
            "typo",
        ];
        assert_eq!(paths, expected, "{all:#?}");
        let text = Problems(all).to_string();
        assert!(
            !text.contains("hunter") && !text.contains("12345678"),
            "{text}"
        );
    }

    #[test]
    fn origins_are_what_browsers_send() {
        for good in [
            "https://a.example",
            "http://localhost:3000",
            "http://[::1]:80",
        ] {
            assert!(is_origin(good), "{good}");
        }
        for bad in [
            "*",
            "a.example",
            "https://",
            "https://A.example",
            "https://a/",
            "null",
        ] {
            assert!(!is_origin(bad), "{bad}");
        }
    }
}
