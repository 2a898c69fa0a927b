//! A shop: Redis, `dropgate serve` beside it, and the other commands.

use anyhow::{Context, Result, bail};
use dropgate_domain::{SaleId, UserId};
use dropgate_gateway::auth::{TokenKey, issue};
use dropgate_testkit::ports::Port;
use dropgate_testkit::{
    Database, Kafka, Postgres, Process, ProcessOptions, Ready, Redis, RedisOptions, http,
};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Liveness bound of everything that is waited for.
pub const PATIENCE: Duration = Duration::from_secs(60);

pub struct Shop {
    pub redis: Redis,
    pub folder: TempDir,
    clients: Port,
    admin: Port,
    ops: Port,
    watch: Port,
    servers: Option<Servers>,
}

/// Where log and orders are, when they are not files.
struct Servers {
    brokers: String,
    topics: String,
    database: Database,
}

/// How a command ended and what it said.
#[derive(Debug)]
pub struct Ran {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

/// What a client was told at last.
#[derive(Debug, Clone)]
pub struct Answer {
    pub status: &'static str,
    pub http: u16,
    pub claim: Option<String>,
    pub unit: Option<u64>,
}

impl Shop {
    pub fn new() -> Result<Self> {
        Ok(Self {
            redis: Redis::start(&RedisOptions::default())?,
            folder: tempfile::tempdir()?,
            clients: Port::reserve()?,
            admin: Port::reserve()?,
            ops: Port::reserve()?,
            watch: Port::reserve()?,
            servers: None,
        })
    }

    /// The same with the log in Kafka and the orders in Postgres.
    pub fn on_servers() -> Result<Self> {
        let shop = Self::new()?;
        let name = shop.folder.path().file_name().context("a name")?;
        let name = name.to_string_lossy();
        let servers = Servers {
            brokers: Kafka::shared_brokers()?,
            topics: format!(
                "shop-{}",
                name.trim_matches(|c: char| !c.is_ascii_alphanumeric())
            ),
            database: Postgres::shared_database()?,
        };
        Ok(Self {
            servers: Some(servers),
            ..shop
        })
    }

    /// Where the orders are, as the oracle is told it.
    pub fn sql(&self) -> String {
        match &self.servers {
            Some(servers) => servers.database.url(),
            None => format!("sqlite:{}", self.path("data/dropgate-orders.db").display()),
        }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The configuration: Redis with its two users, everything else by default.
    pub fn variables(&self) -> Vec<(String, String)> {
        let local = |port: &Port| format!("127.0.0.1:{}", port.number());
        let data = self.path("data").display().to_string();
        let mut variables = vec![
            ("DATA__DIR", data),
            ("REDIS__URL", self.redis.gateway_url()),
            ("REDIS_OPERATOR__URL", self.redis.operator_url()),
            ("HTTP__BIND", local(&self.clients)),
            ("HTTP__ADMIN_BIND", local(&self.admin)),
            ("HTTP__DRAIN", "0s".to_owned()),
            ("OPS__BIND", local(&self.ops)),
            ("WATCH_OPS__BIND", local(&self.watch)),
        ];
        if let Some(servers) = &self.servers {
            variables.extend([
                ("LOG__BACKEND", "kafka".to_owned()),
                ("LOG__KAFKA__BROKERS", servers.brokers.clone()),
                (
                    "LOG__KAFKA__TOPIC_INDEX",
                    format!("{}-sales", servers.topics),
                ),
                (
                    "LOG__KAFKA__TOPIC_CLAIMS",
                    format!("{}-claims", servers.topics),
                ),
                ("LOG__KAFKA__CREATE", "true".to_owned()),
                ("LOG__KAFKA__PARTITIONS", "2".to_owned()),
                ("LOG__KAFKA__REPLICATION_FACTOR", "1".to_owned()),
                ("STORE__URL", servers.database.url()),
            ]);
        }
        let named = |(key, value)| (format!("DROPGATE_{key}"), value);
        variables.into_iter().map(named).collect()
    }

    fn program() -> &'static Path {
        Path::new(env!("CARGO_BIN_EXE_dropgate"))
    }

    /// `dropgate serve`, ready for claims.
    pub fn serve(&self) -> Result<Process> {
        self.serve_with(&[])
    }

    /// The same with more variables.
    pub fn serve_with(&self, more: &[(&str, &str)]) -> Result<Process> {
        let mut serve = ProcessOptions::program(Self::program())
            .args(["serve"])
            .log(&self.path("serve.log"))
            .ready(Ready::Http(self.admin.number(), "/readyz".to_owned()));
        let more = more
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        for (name, value) in self.variables().into_iter().chain(more) {
            serve = serve.env(&name, value);
        }
        serve.start()
    }

    /// `dropgate watch`, ready, with its port.
    pub fn watch(&self) -> Result<(Process, Port)> {
        let port = Port::reserve()?;
        let mut watch = ProcessOptions::program(Self::program())
            .args(["watch"])
            .log(&self.path("watch.log"))
            .ready(Ready::Http(port.number(), "/readyz".to_owned()));
        for (name, value) in self.variables() {
            watch = watch.env(&name, value);
        }
        let bind = format!("127.0.0.1:{}", port.number());
        Ok((watch.env("DROPGATE_WATCH_OPS__BIND", bind).start()?, port))
    }

    /// Redis loses all of its data, and its scripts.
    pub fn forget(&self) -> Result<()> {
        self.redis.cli(&["FLUSHALL"])?;
        self.redis.cli(&["SCRIPT", "FLUSH"])?;
        Ok(())
    }

    /// Every key of Redis with its content.
    pub fn redis_contents(&self) -> Result<Vec<(String, String)>> {
        let keys = self.redis.cli(&["KEYS", "*"])?;
        let mut contents = Vec::new();
        for key in keys.lines() {
            contents.push((key.to_owned(), self.redis.cli(&["DUMP", key])?));
        }
        contents.sort();
        Ok(contents)
    }

    /// `dropgate status --json` until it says what is looked for; also how it exited then.
    pub fn status_until(&self, sale: &str, what: &str, found: impl Fn(&Value) -> bool) -> Ran {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let ran = self.run(&["status", "--sale", sale, "--json"]);
            let said = serde_json::from_str::<Value>(&ran.stdout).unwrap_or_default();
            if found(&said) {
                return ran;
            }
            assert!(Instant::now() < deadline, "never {what}: {ran:#?}");
        }
    }

    /// The base URL of the gateway's port for operators.
    pub fn admin_url(&self) -> String {
        format!("http://127.0.0.1:{}", self.admin.number())
    }

    /// The base URL of the watch's port for operators.
    pub fn watch_url(&self) -> String {
        format!("http://127.0.0.1:{}", self.watch.number())
    }

    /// Any other command, to its end.
    pub fn run(&self, args: &[&str]) -> Ran {
        self.run_with(&[], args)
    }

    pub fn run_with(&self, more: &[(&str, &str)], args: &[&str]) -> Ran {
        let mut command = Command::new(Self::program());
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("DROPGATE_")) {
            command.env_remove(name);
        }
        let output = command
            .envs(self.variables())
            .envs(more.iter().copied())
            .args(args)
            .output()
            .unwrap();
        Ran {
            code: output.status.code().unwrap(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// The same, which must be done; returns what it printed.
    pub fn done(&self, args: &[&str]) -> String {
        let ran = self.run(args);
        assert_eq!(ran.code, 0, "{args:?}: {ran:#?}");
        ran.stdout
    }

    /// The key that `serve` has drawn.
    pub fn token_key(&self) -> Result<TokenKey> {
        let secret = std::fs::read_to_string(self.path("data/user-token.key"))?;
        Ok(TokenKey {
            kid: "local".into(),
            secret: secret.into(),
        })
    }

    pub fn token(key: &TokenKey, user: &str) -> Result<String> {
        let (user, sale) = (UserId::new(user)?, None::<&SaleId>);
        Ok(issue(
            key,
            &user,
            "dropgate",
            sale,
            Duration::from_secs(600),
        )?)
    }

    /// A claim as a client makes it, until its answer is final.
    pub fn claim(&self, sale: &str, token: &str) -> Result<Answer> {
        let path = format!("/v1/sales/{sale}/claims");
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(answer) = self.try_claim(&path, token)? {
                return Ok(answer);
            }
            if Instant::now() > deadline {
                bail!("no final answer in {PATIENCE:?}");
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    fn try_claim(&self, path: &str, token: &str) -> Result<Option<Answer>> {
        let bearer = format!("Bearer {token}");
        let headers = [("Authorization", bearer.as_str())];
        let port = self.clients.number();
        let answer = match http::request(port, "POST", path, &headers, "{}", PATIENCE) {
            Ok(answer) => answer,
            // The server was killed under the call: a client tries again with the same key.
            Err(_) => return Ok(None),
        };
        if answer.status == 0 || matches!(answer.status, 202 | 503) {
            return Ok(None);
        }
        let body: Value = serde_json::from_str(&answer.body).context("the answer's body")?;
        let status = match (answer.status, body["code"].as_str()) {
            (201, _) => "won",
            (200, _) => "again",
            (409, Some("sold_out")) => "sold_out",
            other => bail!("a claim was answered {other:?}: {body}"),
        };
        Ok(Some(Answer {
            status,
            http: answer.status,
            claim: body["claim"].as_str().map(str::to_owned),
            unit: body["unit"].as_u64(),
        }))
    }
}

/// What a client was told, as the load generator writes it down.
pub fn told(sale: &str, user: &str, answer: &Answer) -> Value {
    let code = (answer.status == "sold_out").then_some("sold_out");
    json!({
        "sale": sale, "user": user, "key": null, "status": answer.status, "http": answer.http,
        "code": code, "claim": answer.claim, "unit": answer.unit,
    })
}
