//! A gateway within the test's process, on a Redis of its own.

use crate::wire::{self, BOUND, Reply};
use dropgate_domain::{SaleId, UserId};
use dropgate_gateway::auth::{TokenKey, issue};
use dropgate_gateway::{App, BuildError, Config, RunError};
use dropgate_runtime::config::load_from;
use dropgate_runtime::shutdown::{Report, Shutdown};
use dropgate_testkit::{Redis, RedisOptions};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::time::Duration;
use tempfile::TempDir;
use tokio::task::JoinHandle;

pub const SECRET: &str = "0123456789abcdef0123456789abcdef";
pub const ADMIN_KEY: &str = "fedcba9876543210fedcba9876543210";
pub const AUDIENCE: &str = "dropgate";

/// What a test wants to be different.
#[derive(Default)]
pub struct Wanted {
    pub redis: RedisOptions,
    /// Without the credentials that open sales.
    pub no_operator: bool,
    /// Further sections and keys, `section.key = value`.
    pub config: Vec<String>,
}

pub struct Stack {
    pub addr: SocketAddr,
    pub admin: SocketAddr,
    pub redis: Redis,
    pub shutdown: Shutdown,
    running: JoinHandle<Result<Report, RunError>>,
    /// Holds the log.
    _folder: TempDir,
}

/// The configuration of a gateway on `redis`, as its file.
pub fn config_text(redis: &Redis, folder: &TempDir, wanted: &Wanted) -> String {
    let log = folder.path().join("log.db");
    let mut lines = vec![
        "http.bind = '127.0.0.1:0'".to_owned(),
        "http.admin_bind = '127.0.0.1:0'".to_owned(),
        "http.workers = 2".to_owned(),
        "http.drain = '0s'".to_owned(),
        format!("auth.keys = [{{ kid = 'k1', secret = '{SECRET}' }}]"),
        format!("admin.keys = ['{ADMIN_KEY}']"),
        format!("redis.url = '{}'", redis.gateway_url()),
        format!("log.embedded.path = '{}'", log.display()),
    ];
    if !wanted.no_operator {
        lines.push(format!("redis_operator.url = '{}'", redis.operator_url()));
    }
    let overridden = |line: &String| {
        let key = |l: &str| l.split('=').next().unwrap_or("").trim().to_owned();
        wanted.config.iter().any(|other| key(other) == key(line))
    };
    lines.retain(|line| !overridden(line));
    lines.extend(wanted.config.iter().cloned());
    lines.join("\n")
}

pub async fn build(redis: &Redis, folder: &TempDir, wanted: &Wanted) -> Result<App, BuildError> {
    let config: Config = load_from(&config_text(redis, folder, wanted), []).expect("config");
    App::build(config).await
}

impl Stack {
    pub async fn start() -> Self {
        Self::with(Wanted::default()).await
    }

    /// A gateway that is ready.
    pub async fn with(wanted: Wanted) -> Self {
        let stack = Self::unready(wanted).await;
        stack.until_ready(true).await;
        stack
    }

    /// A gateway that has been started.
    pub async fn unready(wanted: Wanted) -> Self {
        let redis = Redis::start(&wanted.redis).expect("redis");
        let folder = tempfile::tempdir().expect("folder");
        let app = build(&redis, &folder, &wanted).await.expect("gateway");
        let (addr, admin) = (app.addr(), app.admin_addr());
        let shutdown = Shutdown::manual();
        let running = tokio::spawn(app.run(shutdown.clone()));
        Self {
            addr,
            admin,
            redis,
            shutdown,
            running,
            _folder: folder,
        }
    }

    /// Waits until `/readyz` says so, and gives what it said.
    pub async fn until_ready(&self, ready: bool) -> Value {
        let mut last = Value::Null;
        let wait = async {
            loop {
                last = wire::call(self.admin, "GET", "/readyz", &[], b"")
                    .await
                    .body;
                if last["ready"] == ready {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let in_time = tokio::time::timeout(BOUND, wait).await;
        assert!(in_time.is_ok(), "readiness is not {ready}: {last}");
        last
    }

    /// Stops it in order.
    pub async fn stop(self) -> Report {
        self.shutdown.begin();
        let report = tokio::time::timeout(BOUND, self.running)
            .await
            .expect("it hangs");
        report.expect("it panicked").expect("it failed")
    }

    pub async fn get(&self, path: &str, headers: &[(&str, &str)]) -> Reply {
        wire::call(self.addr, "GET", path, headers, b"").await
    }

    pub async fn admin(&self, method: &str, path: &str, body: &Value) -> Reply {
        let key = format!("Bearer {ADMIN_KEY}");
        let body = if body.is_null() {
            String::new()
        } else {
            body.to_string()
        };
        let headers = [("authorization", key.as_str())];
        wire::call(self.admin, method, path, &headers, body.as_bytes()).await
    }

    /// Creates a sale of one unit a user.
    pub async fn create(&self, sale: &str, stock: u64) {
        self.create_as(&json!({"id": sale, "stock": stock})).await;
    }

    pub async fn create_as(&self, definition: &Value) {
        let reply = self.admin("POST", "/admin/v1/sales", definition).await;
        assert_eq!(reply.status, 201, "{reply:?}");
    }

    pub async fn open(&self, sale: &str) {
        let reply = self.command(sale, "open").await;
        assert_eq!(
            (reply.status, &reply.body),
            (200, &json!({"outcome": "opened"}))
        );
    }

    pub async fn command(&self, sale: &str, command: &str) -> Reply {
        self.admin(
            "POST",
            &format!("/admin/v1/sales/{sale}/{command}"),
            &Value::Null,
        )
        .await
    }

    /// Creates and opens a sale.
    pub async fn sell(&self, sale: &str, stock: u64) {
        self.create(sale, stock).await;
        self.open(sale).await;
    }

    /// Claims for a user, with a key if it is not empty.
    pub async fn claim(&self, sale: &str, user: &str, key: &str) -> Reply {
        self.claim_with(sale, &bearer(user), key, b"{}").await
    }

    pub async fn claim_with(&self, sale: &str, bearer: &str, key: &str, body: &[u8]) -> Reply {
        let mut headers = vec![("authorization", bearer)];
        if !key.is_empty() {
            headers.push(("idempotency-key", key));
        }
        let path = format!("/v1/sales/{sale}/claims");
        wire::call(self.addr, "POST", &path, &headers, body).await
    }

    /// Claims until the answer is not "not now": a busy machine may be slow to hear of the log.
    pub async fn claim_finally(&self, sale: &str, user: &str, key: &str) -> Reply {
        finally(async || self.claim(sale, user, key).await).await
    }

    /// Asks for a claim until the answer is not "not now".
    pub async fn look_up(&self, location: &str, user: &str) -> Reply {
        let bearer = bearer(user);
        finally(async || self.get(location, &[("authorization", &bearer)]).await).await
    }
}

async fn finally(ask: impl AsyncFn() -> Reply) -> Reply {
    let mut last = None;
    let asking = async {
        loop {
            let reply = ask().await;
            if ![202, 503].contains(&reply.status) {
                return reply;
            }
            last = Some(reply);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    match tokio::time::timeout(BOUND, asking).await {
        Ok(reply) => reply,
        Err(_) => panic!("never final: {last:?}"),
    }
}

/// The `Authorization` of a user with a good token.
pub fn bearer(user: &str) -> String {
    bearer_of(SECRET, user, AUDIENCE, None)
}

pub fn bearer_of(secret: &str, user: &str, audience: &str, sale: Option<&str>) -> String {
    let key = TokenKey {
        kid: "k1".into(),
        secret: secret.to_owned().into(),
    };
    let user = UserId::new(user).expect("user");
    let sale = sale.map(|sale| SaleId::new(sale).expect("sale"));
    let hour = Duration::from_secs(3600);
    let token = issue(&key, &user, audience, sale.as_ref(), hour).expect("token");
    format!("Bearer {token}")
}
