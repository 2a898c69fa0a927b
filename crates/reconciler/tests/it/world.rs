//! A sale by the real engine on a real Redis and a real log, written to a real database.

use anyhow::{Context, Result, bail};
use dropgate_admission::{Admission, RedisConfig, Scope};
use dropgate_domain::{AttemptId, Definition, IdempotencyKey, SaleId, UserId, Win};
use dropgate_engine::{Answer, Engine, EngineConfig, Fold, SaleHandle};
use dropgate_store::{Order, Pin, SaleState, SaleWrite, Store, StoreConfig};
use dropgate_stream::{EmbeddedConfig, Lane, Log, LogConfig};
use dropgate_testkit::{Redis, RedisOptions};
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use std::io::Write;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;
use tokio::time::Instant;

/// Liveness bound of everything that is waited for.
pub const PATIENCE: Duration = Duration::from_secs(60);

pub struct World {
    pub redis: Redis,
    pub log: Log,
    pub engine: Engine,
    pub sale: SaleId,
    pub folder: TempDir,
}

/// How the program ended and what it said.
#[derive(Debug)]
pub struct Ran {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
    pub report: Value,
}

impl Ran {
    /// The kinds of differences, with their counts.
    pub fn kinds(&self) -> Vec<(&str, u64)> {
        let found = self.report["differences"].as_array().unwrap();
        let of = |d: &'_ Value| d["count"].as_u64().unwrap();
        found
            .iter()
            .map(|d| (d["kind"].as_str().unwrap(), of(d)))
            .collect()
    }

    /// The promises that do not hold.
    pub fn broken(&self) -> Vec<&str> {
        let promises = self.report["promises"].as_array().unwrap();
        let broken = promises.iter().filter(|p| p["holds"] == false);
        broken.map(|p| p["name"].as_str().unwrap()).collect()
    }
}

impl World {
    /// A sale that is created and not opened.
    pub async fn created(definition: Definition) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let redis = Redis::start(&RedisOptions::default())?;
        let log = Log::open(&log_config(&folder)).await?;
        let engine = Engine::start(
            EngineConfig::default(),
            "test".to_owned(),
            log.clone(),
            Admission::connect(&RedisConfig::at(&redis.gateway_url())).await?,
            Some(RedisConfig::at(&redis.operator_url())),
            &mut Registry::default(),
        )
        .await?;
        let sale = SaleId::new("drop-1")?;
        engine.create(sale.clone(), definition).await?;
        let world = Self {
            redis,
            log,
            engine,
            sale,
            folder,
        };
        world.store().await?.migrate().await?;
        Ok(world)
    }

    /// A sale of `stock` units, of which the users 1 to `wins` have one each; closed, and written
    /// to the database.
    pub async fn sold(stock: u64, wins: u64) -> Result<Self> {
        let world = Self::created(Definition::of(stock)).await?;
        world.open().await?;
        world.claim_all(1..=wins).await?;
        world.engine.close(&world.sale).await?;
        world.write(usize::MAX).await?;
        Ok(world)
    }

    pub async fn open(&self) -> Result<()> {
        self.engine.open(&self.sale, "test").await?;
        Ok(())
    }

    pub async fn claim_all(&self, users: impl IntoIterator<Item = u64>) -> Result<()> {
        let handle = self.engine.sale(&self.sale).context("the sale")?;
        let claims = users.into_iter().map(|n| {
            let handle = handle.clone();
            tokio::spawn(async move { claim(&handle, n).await })
        });
        for claim in claims.collect::<Vec<_>>() {
            claim.await??;
        }
        Ok(())
    }

    pub fn wins(&self) -> Vec<Win> {
        let handle = self.engine.sale(&self.sale).unwrap();
        handle.sale().ledger().wins().to_vec()
    }

    pub fn database(&self) -> PathBuf {
        self.folder.path().join("orders.db")
    }

    async fn store(&self) -> Result<Store> {
        let url = format!("sqlite:{}", self.database().display());
        Ok(Store::connect(&StoreConfig::with_url(url)).await?)
    }

    /// Writes the sale's first `events_max` events to the database, as an order-writer does.
    pub async fn write(&self, events_max: usize) -> Result<()> {
        let mut fold = Fold::open(&self.log).await?;
        let sale = fold.sale(&self.sale).context("the sale")?.clone();
        let partition = sale.pin().partition;
        let end = self.log.probe(Lane::Claims(partition)).await?.end;
        let mut events = Vec::new();
        let deadline = Instant::now() + PATIENCE;
        while fold.positions()[&partition] < end {
            if Instant::now() > deadline {
                bail!("read to {:?} of {end} in {PATIENCE:?}", fold.positions());
            }
            let step = fold.step(Duration::from_millis(100)).await?;
            events.extend(step.applied.into_iter().flat_map(|(_, applied)| applied));
        }
        events.truncate(events_max);
        let to = events.last().context("an event")?.position;
        let orders: Vec<_> = events
            .iter()
            .filter_map(|event| match &event.what {
                dropgate_domain::What::Won(win) => Some(Order::from(win)),
                _ => None,
            })
            .collect();
        let closed_at = events.iter().find_map(|event| match event.what {
            dropgate_domain::What::Closed(at) => Some(at),
            _ => None,
        });
        let pin = sale.pin();
        let write = SaleWrite {
            sale: self.sale.clone(),
            from: None,
            to,
            pin: Pin {
                log_id: pin.log_id,
                partition: pin.partition,
                from_offset: pin.from_offset,
            },
            state: closed_at.map_or(SaleState::Open, |_| SaleState::Closed),
            stock: pin.definition.stock,
            sold: orders.len() as u64,
            held: 0,
            opened_at: None,
            closed_at,
            orders,
        };
        let store = self.store().await?;
        store.write(&[write]).await?;
        store.close(PATIENCE).await;
        Ok(())
    }

    /// Changes the database behind everybody's back.
    pub fn sql(&self, statement: &str) -> usize {
        let db = rusqlite::Connection::open(self.database()).unwrap();
        db.execute(statement, []).unwrap()
    }

    /// A key of the sale's first generation in Redis.
    pub fn key(&self, name: &str) -> String {
        let pin = self.engine.sale(&self.sale).unwrap().sale().pin().clone();
        let scope = Scope::new(pin.sale, pin.log_id, dropgate_domain::Generation(1));
        format!("dropgate:{{{}}}:{}:{name}", self.sale, scope.tag())
    }

    /// What clients were told of these wins, as a file.
    pub fn told<'a>(&self, wins: impl IntoIterator<Item = &'a Win>) -> PathBuf {
        let path = self.folder.path().join("told.jsonl");
        let mut file = std::fs::File::create(&path).unwrap();
        for win in wins {
            let line = json!({
                "sale": self.sale.as_str(), "user": win.user.as_str(), "key": null, "status": "won",
                "http": 201, "claim": win.claim().to_string(), "unit": win.unit.0,
            });
            writeln!(file, "{line}").unwrap();
        }
        path
    }

    /// The configuration of the program, as variables.
    pub fn variables(&self) -> Vec<(String, String)> {
        let embedded = log_config(&self.folder).embedded;
        let pair = |key: &str, value: String| (format!("DROPGATE_{key}"), value);
        vec![
            pair("REDIS__URL", self.redis.operator_url()),
            pair("LOG__EMBEDDED__PATH", embedded.path.display().to_string()),
            pair(
                "STORE__URL",
                format!("sqlite:{}", self.database().display()),
            ),
            pair("RECONCILER__WAIT", "5s".to_owned()),
            pair("RECONCILER__PAGE_ROWS", "7".to_owned()),
            pair("RECONCILER__EXAMPLES_MAX", "3".to_owned()),
        ]
    }

    pub fn reconcile(&self, args: &[&str]) -> Ran {
        self.reconcile_with(&self.variables(), args)
    }

    /// Runs the program and reads its report.
    pub fn reconcile_with(&self, variables: &[(String, String)], args: &[&str]) -> Ran {
        let report = self.folder.path().join("reconcile.json");
        let _ = std::fs::remove_file(&report);
        let mut command = Command::new(env!("CARGO_BIN_EXE_dropgate-reconciler"));
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("DROPGATE_")) {
            command.env_remove(name);
        }
        let output = command
            .envs(variables.iter().cloned())
            .args(["--sale", self.sale.as_str(), "--json"])
            .arg(&report)
            .args(args)
            .output()
            .unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        let (stdout, stderr) = (text(output.stdout), text(output.stderr));
        let report = std::fs::read(&report).unwrap_or_default();
        Ran {
            code: output.status.code().unwrap(),
            report: serde_json::from_slice(&report).unwrap_or_default(),
            stdout,
            stderr,
        }
    }
}

fn log_config(folder: &TempDir) -> LogConfig {
    LogConfig {
        embedded: EmbeddedConfig {
            path: folder.path().join("log.db"),
            ..EmbeddedConfig::default()
        },
        ..LogConfig::default()
    }
}

/// A claim as a client makes it: tried again while the answer is "not now".
async fn claim(sale: &SaleHandle, n: u64) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let user = UserId::new(&format!("user-{n}"))?;
        let attempt = AttemptId((u128::from(n) << 64 | 1).to_be_bytes());
        match sale.claim(user, IdempotencyKey::none(), attempt).await {
            Answer::Won(_) | Answer::Again(_) | Answer::SoldOut => return Ok(()),
            Answer::Pending(_) | Answer::Unavailable(_) if Instant::now() < deadline => {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            other => bail!("user {n}: {other:?}"),
        }
    }
}
