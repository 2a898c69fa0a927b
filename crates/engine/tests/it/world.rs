//! A real Redis, a real log, and engines on them.

use anyhow::{Context, Result, bail};
use dropgate_admission::{Admission, RedisConfig};
use dropgate_domain::{AttemptId, Definition, IdempotencyKey, SaleId, UserId, Win};
use dropgate_engine::{Answer, Created, Engine, EngineConfig, SaleHandle, Unavailable};
use dropgate_stream::{EmbeddedConfig, Log, LogConfig};
use dropgate_testkit::{Redis, RedisOptions};
use prometheus_client::registry::Registry;
use std::time::Duration;
use tempfile::TempDir;
use tokio::time::Instant;

/// Liveness bound of everything that is waited for.
pub const PATIENCE: Duration = Duration::from_secs(30);

pub struct World {
    pub redis: Redis,
    pub log: Log,
    _folder: TempDir,
}

impl World {
    pub async fn start() -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let config = LogConfig {
            embedded: EmbeddedConfig {
                path: folder.path().join("log.db"),
                ..EmbeddedConfig::default()
            },
            ..LogConfig::default()
        };
        Ok(Self {
            redis: Redis::start(&RedisOptions::default())?,
            log: Log::open(&config).await?,
            _folder: folder,
        })
    }

    /// An engine as a gateway runs it: the restricted user, and the operator's beside.
    pub async fn engine(&self) -> Result<Engine> {
        self.engine_with(EngineConfig::default(), true).await
    }

    pub async fn engine_with(&self, config: EngineConfig, operator: bool) -> Result<Engine> {
        let admission = Admission::connect(&RedisConfig::at(&self.redis.gateway_url())).await?;
        let operator = operator.then(|| RedisConfig::at(&self.redis.operator_url()));
        let name = "test".to_owned();
        let log = self.log.clone();
        let registry = &mut Registry::default();
        Ok(Engine::start(config, name, log, admission, operator, registry).await?)
    }
}

pub fn sale_id(name: &str) -> SaleId {
    SaleId::new(name).unwrap()
}

pub fn user(n: usize) -> UserId {
    UserId::new(&format!("user-{n}")).unwrap()
}

pub fn attempt() -> AttemptId {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).unwrap();
    AttemptId(bytes)
}

/// Creates and opens a sale.
pub async fn opened(engine: &Engine, name: &str, definition: Definition) -> Result<SaleHandle> {
    let id = sale_id(name);
    match engine.create(id.clone(), definition).await? {
        Created::Created(_) => {}
        Created::Already(_) => bail!("{name} was there"),
    }
    engine.open(&id, "test").await?;
    engine.sale(&id).context("created and not there")
}

/// One claim without a key.
pub async fn claim(sale: &SaleHandle, n: usize) -> Answer {
    sale.claim(user(n), IdempotencyKey::none(), attempt()).await
}

/// A claim as a client makes it: tried again while the answer is "not now".
pub async fn claim_through(sale: &SaleHandle, n: usize) -> Result<Answer> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let answer = claim(sale, n).await;
        let again = matches!(
            answer,
            Answer::Pending(_)
                | Answer::Unavailable(
                    Unavailable::Busy
                        | Unavailable::Starting
                        | Unavailable::Log
                        | Unavailable::Admission
                )
        );
        if !again {
            return Ok(answer);
        }
        if Instant::now() > deadline {
            bail!("no final answer in {PATIENCE:?}, the last was {answer:?}");
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

pub fn win(answer: &Answer) -> Result<&Win> {
    match answer {
        Answer::Won(win) | Answer::Again(win) => Ok(win),
        other => bail!("no win: {other:?}"),
    }
}

/// Waits until `look` finds something.
pub async fn until<T>(what: &str, look: impl Fn() -> Option<T>) -> Result<T> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return Ok(found);
        }
        if Instant::now() > deadline {
            bail!("not within {PATIENCE:?}: {what}");
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
