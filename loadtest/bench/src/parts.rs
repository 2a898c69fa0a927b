//! What a win must cost: a round trip to Redis, and a publication read back from the tail.

use crate::PATIENCE;
use anyhow::{Context, Result, bail, ensure};
use dropgate_admission::{
    Admission, Claim, Claimed, Entry, Operator, RedisConfig, Scope, Scripts, State, hashes_for,
};
use dropgate_domain::{
    AttemptId, Definition, Digest, Generation, IdempotencyKey, LogId, Nonce, SaleId, Seq, TimeMs,
    Unit, UserId,
};
use dropgate_engine::Fold;
use dropgate_stream::{Backend, KafkaConfig, Lane, Log, LogConfig, Tail};
use std::num::NonZeroU32;
use std::time::{Duration, Instant};

/// A sale, claimed by hand: the script, then the log, nothing between.
pub struct Parts {
    admission: Admission,
    log: Log,
    tail: Tail,
    lane: Lane,
    scope: Scope,
    scripts: Scripts,
    applied: Seq,
    users: u64,
}

/// A sale that only Redis knows: what the minimal handler is told of it.
pub struct Unlogged {
    /// The script's hash.
    pub claim_unit: String,
    /// The value of the `current` key.
    pub tag: String,
}

impl Parts {
    /// Finds the sale, which has been opened, in the log.
    pub async fn open(redis_url: &str, brokers: &str, sale: &str) -> Result<Self> {
        let config = LogConfig {
            backend: Backend::Kafka,
            kafka: KafkaConfig {
                brokers: brokers.to_owned(),
                replication_factor: 1,
                ..KafkaConfig::default()
            },
            ..LogConfig::default()
        };
        let log = Log::open(&config).await?;
        let id = SaleId::new(sale)?;
        let mut fold = Fold::open(&log).await?;
        let deadline = Instant::now() + PATIENCE;
        let (scope, scripts, lane) = loop {
            fold.step(Duration::from_millis(100)).await?;
            if let Some(sale) = fold.sale(&id) {
                let ledger = sale.ledger();
                if let Some(current) = ledger.current() {
                    let pin = sale.pin();
                    let scope = Scope::new(id.clone(), pin.log_id, current.generation());
                    let scripts = Scripts::from_started(current.scripts())?;
                    break (scope, scripts, Lane::Claims(pin.partition));
                }
            }
            ensure!(Instant::now() < deadline, "the sale is not in the log");
        };
        let end = log.probe(lane).await?.end;
        Ok(Self {
            admission: Admission::connect(&RedisConfig::at(redis_url)).await?,
            tail: log.tail(&[(lane, end)]).await?,
            log,
            lane,
            scope,
            scripts,
            applied: Seq(0),
            users: 0,
        })
    }

    /// So many wins, one after the other: the times of the script, and of the publication until
    /// it was read back.
    pub async fn wins(&mut self, count: usize) -> Result<(Vec<Duration>, Vec<Duration>)> {
        let (mut redis, mut log) = (Vec::new(), Vec::new());
        for _ in 0..count {
            self.users += 1;
            let claim = Claim {
                user: UserId::new(&format!("parts-{}", self.users))?,
                key: IdempotencyKey::none(),
                attempt: AttemptId(random()?),
            };
            let begun = Instant::now();
            let reply = self
                .admission
                .claim(&self.scope, &self.scripts, self.applied, &claim);
            let reply = reply.await?;
            redis.push(begun.elapsed());
            let Claimed::Won { seq, event } = reply.value else {
                bail!("no win: {:?}", reply.value)
            };
            let begun = Instant::now();
            let append = self.log.append(self.lane, event);
            // The tail is what a gateway waits for; the acknowledgement comes in passing.
            let (offset, read) = tokio::join!(append, async {
                loop {
                    let items = self.tail.next(1, PATIENCE).await?;
                    if !items.is_empty() {
                        break anyhow::Ok(begun.elapsed());
                    }
                }
            });
            offset?;
            log.push(read?);
            self.applied = seq;
        }
        Ok((redis, log))
    }

    /// Builds a sale that is in no log, whose window holds all of `wins`.
    pub async fn unlogged_sale(&self, url: &str, stock: u64, wins: usize) -> Result<Unlogged> {
        let operator = Operator::connect(&RedisConfig::at(url)).await?;
        let nonce = Nonce(random()?);
        let scope = Scope::new(SaleId::new("minimal")?, LogId(random()?), Generation(1));
        operator.load_scripts(scope.sale(), nonce).await?;
        let scripts = Scripts::from_started(&hashes_for(nonce))?;
        let window = u32::try_from(wins + 1).ok().and_then(NonZeroU32::new);
        let state = State {
            definition: Definition::of(stock),
            next: Unit(1),
            seq: Seq(0),
            head: Digest([0; 20]),
            time: TimeMs(0),
            window: window.context("a window")?,
            closed: false,
        };
        let nobody: [(UserId, Vec<Entry>); 0] = [];
        operator.build(&scope, &state, nobody).await?;
        operator
            .switch(&scripts, None, &scope, state.seq, state.head)
            .await?;
        operator.shutdown().await;
        Ok(Unlogged {
            claim_unit: scripts.claim_unit.to_string(),
            tag: scope.tag().to_owned(),
        })
    }
}

fn random() -> Result<[u8; 16]> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).context("randomness")?;
    Ok(bytes)
}
