//! The configuration of all services in one process: one struct a section.

use crate::http;
use crate::output;
use dropgate_admission::RedisConfig;
use dropgate_engine::EngineConfig;
use dropgate_gateway::config::{AdminConfig, AuthConfig, HttpConfig};
use dropgate_order_writer::WriterConfig;
use dropgate_order_writer::config::OpsConfig;
use dropgate_reconciler::config::ReconcilerConfig;
use dropgate_reconciler::watch::{OpsConfig as WatchOpsConfig, WatchConfig};
use dropgate_runtime::config::{Problem, Problems, Validate};
use dropgate_runtime::telemetry::TelemetryConfig;
use dropgate_store::StoreConfig;
use dropgate_stream::{Backend, LogConfig};
use secrecy::ExposeSecret;
use serde::Deserialize;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// Everything that the services in one process are told.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Where this process keeps its files.
    pub data: DataConfig,
    /// Ports and connections.
    pub http: HttpConfig,
    /// Whose tokens are good. Without keys, one is drawn and kept in the data folder.
    pub auth: AuthConfig,
    /// Who may create, open and close sales. Without keys, one is drawn and kept likewise.
    pub admin: AdminConfig,
    /// Redis, as the restricted user of a gateway.
    pub redis: RedisConfig,
    /// Redis, as a user that may load scripts and read whole keys. `[redis]` if not given.
    pub redis_operator: Option<RedisConfig>,
    /// The log. A relative path of the embedded one is within the data folder.
    pub log: LogConfig,
    /// The engine's knobs.
    pub engine: EngineConfig,
    /// The database. Without a url: a SQLite file in the data folder.
    pub store: StoreConfig,
    /// The order-writer's knobs.
    pub writer: WriterConfig,
    /// The order-writer's port for operators.
    pub ops: OpsConfig,
    /// The reconciler's knobs.
    pub reconciler: ReconcilerConfig,
    /// When a halted sale is recovered by itself.
    pub watch: WatchConfig,
    /// The watch's port for operators.
    pub watch_ops: WatchOpsConfig,
    /// Whom `dropgate status` asks.
    pub status: StatusConfig,
    /// Logs.
    pub telemetry: TelemetryConfig,
}

/// `[data]`: where this process keeps its files.
#[derive(Debug, Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DataConfig {
    /// The folder; made when it is not there.
    pub dir: PathBuf,
}

impl Default for DataConfig {
    fn default() -> Self {
        Self {
            dir: PathBuf::from("dropgate-data"),
        }
    }
}

/// `[status]`: whom `dropgate status` asks, besides log, Redis and database.
#[derive(Debug, Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StatusConfig {
    /// The watch's port for operators.
    pub watch: Option<String>,
    /// The gateways' ports for operators.
    pub gateways: Vec<String>,
    /// How long each of them may take to answer.
    #[serde(with = "humantime_serde")]
    pub timeout: Duration,
}

impl Default for StatusConfig {
    fn default() -> Self {
        Self {
            watch: None,
            gateways: Vec::new(),
            timeout: Duration::from_secs(5),
        }
    }
}

impl Validate for StatusConfig {
    fn problems(&self) -> Vec<Problem> {
        let bad = |url: &String| http::url(url).is_err();
        let mut problems = Vec::new();
        if self.watch.as_ref().is_some_and(bad) {
            problems.push(Problem::new("watch", http::URL_EXPECTED));
        }
        for (n, _) in self.gateways.iter().enumerate().filter(|(_, url)| bad(url)) {
            problems.push(Problem::new(format!("gateways[{n}]"), http::URL_EXPECTED));
        }
        let within = Duration::from_millis(100)..=Duration::from_secs(600);
        if !within.contains(&self.timeout) {
            problems.push(Problem::new("timeout", "100ms to 10m"));
        }
        problems
    }
}

/// Reads the file (if one is given) and the environment of this process.
pub fn load(file: Option<&Path>) -> Result<Config, Problems> {
    dropgate_runtime::config::load(file)
}

/// `dropgate config check`, of a configuration that has been found to be valid: where things are.
pub fn check(config: &Config) -> anyhow::Result<ExitCode> {
    let log = config.log();
    let log = match log.backend {
        Backend::Embedded => log.embedded.path.display().to_string(),
        Backend::Kafka => format!("kafka at {}", log.kafka.brokers),
    };
    // The URL holds a password.
    let store = config.store();
    let store = match store.url.expose_secret().strip_prefix("sqlite:") {
        Some(path) => path.to_owned(),
        None => "postgres".to_owned(),
    };
    output::line(&format!(
        "the configuration is valid\n  clients   http://{}\n  admin     http://{}\n  \
         writer    http://{}\n  watch     http://{}\n  log       {log}\n  database  {store}",
        config.http.bind, config.http.admin_bind, config.ops.bind, config.watch_ops.bind
    ))?;
    Ok(ExitCode::SUCCESS)
}

impl Config {
    /// The log, with its file in the data folder.
    pub fn log(&self) -> LogConfig {
        let mut log = self.log.clone();
        log.embedded.path = self.data.dir.join(&log.embedded.path);
        log
    }

    /// The database, or its file in the data folder.
    pub fn store(&self) -> StoreConfig {
        let mut store = self.store.clone();
        if store.url.expose_secret().is_empty() {
            let path = self.data.dir.join("dropgate-orders.db");
            // The driver reads the path out of a URL.
            let path = path
                .to_string_lossy()
                .replace('%', "%25")
                .replace('?', "%3F");
            store.url = format!("sqlite:{path}").into();
        }
        store
    }

    /// Redis, as the user that may do more.
    pub fn operator(&self) -> &RedisConfig {
        self.redis_operator.as_ref().unwrap_or(&self.redis)
    }

    /// What the gateway is told.
    pub fn gateway(&self) -> dropgate_gateway::Config {
        dropgate_gateway::Config {
            http: self.http.clone(),
            auth: self.auth.clone(),
            admin: self.admin.clone(),
            redis: self.redis.clone(),
            redis_operator: Some(self.operator().clone()),
            log: self.log(),
            engine: self.engine.clone(),
            store: Some(self.store()),
            telemetry: self.telemetry.clone(),
        }
    }

    /// What the order-writer is told.
    pub fn order_writer(&self) -> dropgate_order_writer::Config {
        dropgate_order_writer::Config {
            log: self.log(),
            store: self.store(),
            writer: self.writer.clone(),
            ops: self.ops.clone(),
            telemetry: self.telemetry.clone(),
        }
    }

    /// What the reconciler, and its watch, are told.
    pub fn reconciler(&self) -> dropgate_reconciler::Config {
        dropgate_reconciler::Config {
            redis: self.operator().clone(),
            log: self.log(),
            store: self.store(),
            reconciler: self.reconciler.clone(),
            engine: self.engine.clone(),
            watch: self.watch.clone(),
            ops: self.watch_ops.clone(),
            telemetry: self.telemetry.clone(),
        }
    }
}

impl Validate for Config {
    fn problems(&self) -> Vec<Problem> {
        let gateway = self.gateway().problems().into_iter();
        // Without keys one is drawn; and the operator's section is the first one, if not given.
        let drawn = |p: &Problem| p.path == "auth.keys" && self.auth.keys.is_empty();
        let not_given =
            |p: &Problem| self.redis_operator.is_none() && p.path.starts_with("redis_operator.");
        let mut problems: Vec<_> = gateway.filter(|p| !drawn(p) && !not_given(p)).collect();
        problems.extend(self.order_writer().problems());
        problems.extend(dropgate_runtime::config::sections([
            ("reconciler", &self.reconciler as &dyn Validate),
            ("watch", &self.watch),
            ("status", &self.status),
        ]));
        if self.data.dir.as_os_str().is_empty() {
            problems.push(Problem::new("data.dir", "the path of a folder"));
        }
        let mut told = BTreeSet::new();
        problems.retain(|p| told.insert(p.path.clone()));
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
            Err(Problems(all)) => all.into_iter().map(|p| p.path).collect(),
        }
    }

    #[test]
    fn nothing_needs_to_be_configured_and_all_files_are_in_the_data_folder() {
        let config: Config = load_from("", []).unwrap();
        let gateway = config.gateway();
        assert_eq!(
            gateway.log.embedded.path,
            Path::new("dropgate-data/dropgate-log.db")
        );
        let store = gateway.store.unwrap();
        assert_eq!(
            store.url.expose_secret(),
            "sqlite:dropgate-data/dropgate-orders.db"
        );
        assert!(gateway.redis_operator.is_some());
        let writer = config.order_writer();
        assert_eq!(writer.log.embedded.path, gateway.log.embedded.path);
        assert_eq!(writer.store.url.expose_secret(), store.url.expose_secret());
    }

    #[test]
    fn what_is_given_is_kept() {
        let config: Config = load_from(
            "[data]\ndir = '/var/lib/dropgate'\n[log.embedded]\npath = '/mnt/log.db'\n\
             [store]\nurl = 'postgres://h/d'\n[redis_operator]\nusername = 'op'",
            [],
        )
        .unwrap();
        assert_eq!(config.log().embedded.path, Path::new("/mnt/log.db"));
        assert_eq!(config.store().url.expose_secret(), "postgres://h/d");
        assert_eq!(config.operator().username.as_deref(), Some("op"));
        assert_eq!(config.reconciler().redis.username.as_deref(), Some("op"));
    }

    #[test]
    fn every_problem_of_every_service_is_told_once() {
        let file = "[data]\ndir = ''\n[http]\nbacklog = 0\n[auth]\nkeys = [{kid = 'a', secret = 'short'}]\n\
                    [redis]\nurl = 'hunter2'\n[store]\nurl = 'mysql://u:hunter3@h/d'\n\
                    [writer]\nbatch_events_max = 0\n[reconciler]\npage_rows = 0\n[log]\nbackend = 'kafka'\n\
                    [log.kafka]\nbrokers = 'nowhere'\n[serve]\nx = 1\n\
                    [watch]\nrecoveries_max = 0\n[watch_ops]\nbind = 'nowhere'\n\
                    [status]\nwatch = 'https://h'\ngateways = ['http://h:1', 'h']\ntimeout = '0s'";
        let Err(problems) = load_from::<Config>(file, []) else {
            panic!("accepted")
        };
        let found: Vec<_> = problems.0.iter().map(|p| p.path.as_str()).collect();
        let expected = [
            "auth.keys[0].secret",
            "data.dir",
            "http.backlog",
            "log.kafka.brokers",
            "reconciler.page_rows",
            "redis.url",
            "serve",
            "status.gateways[1]",
            "status.timeout",
            "status.watch",
            "store.url",
            "watch.recoveries_max",
            "watch_ops.bind",
            "writer.batch_events_max",
        ];
        assert_eq!(found, expected, "{problems}");
        assert!(!problems.to_string().contains("hunter"), "{problems}");
        assert!(paths("").is_empty());
    }
}
