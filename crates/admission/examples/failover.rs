//! How long a gateway is without a master when one dies or falls silent.
//!
//! `cargo run -p dropgate-admission --example failover [rounds]` starts a master with a replica and
//! three sentinels, and a cluster. It prints figures and asserts nothing about them.
#![expect(clippy::print_stdout, reason = "the figures are what it is for")]

use anyhow::{Context, Result};
use dropgate_admission::{Admission, CallError, RedisConfig, Scope, Scripts, hashes_for};
use dropgate_admission::{Claim, SentinelConfig};
use dropgate_domain::{AttemptId, Generation, IdempotencyKey, LogId, Nonce, SaleId, Seq, UserId};
use dropgate_testkit::redis::{DISCOVERY_PASSWORD, DISCOVERY_USER, GATEWAY_PASSWORD};
use dropgate_testkit::{ClusterOptions, Redis, RedisCluster, RedisTrio, TrioOptions};
use std::time::{Duration, Instant};

/// What befalls a master.
#[derive(Clone, Copy, Debug)]
enum Fate {
    Killed,
    Paused,
}

/// Servers of which one is the sale's master.
trait Servers: Send {
    fn config(&self) -> RedisConfig;
    fn master(&self) -> Result<usize>;
    fn server(&mut self, index: usize) -> &mut Redis;
    /// Waits until the others have agreed on another one.
    fn agreed(&self, old: usize) -> Result<usize>;
    fn healthy(&self) -> Result<()>;
}

const SALE: &str = "drop-1";
const KEY: &str = "dropgate:{drop-1}:current";

impl Servers for RedisTrio {
    fn config(&self) -> RedisConfig {
        RedisConfig {
            sentinel: SentinelConfig {
                service: Self::SERVICE.to_owned(),
                username: Some(DISCOVERY_USER.to_owned()),
                password: Some(DISCOVERY_PASSWORD.into()),
            },
            ..RedisConfig::behind_sentinels(self.sentinel_addresses(), Self::SERVICE)
        }
    }
    fn master(&self) -> Result<usize> {
        self.master()
    }
    fn server(&mut self, index: usize) -> &mut Redis {
        self.server_mut(index)
    }
    fn agreed(&self, old: usize) -> Result<usize> {
        self.wait_for_new_master(old)
    }
    fn healthy(&self) -> Result<()> {
        self.wait_healthy().map(drop)
    }
}

impl Servers for RedisCluster {
    fn config(&self) -> RedisConfig {
        RedisConfig::in_cluster(self.addresses())
    }
    fn master(&self) -> Result<usize> {
        self.master_of(KEY)
    }
    fn server(&mut self, index: usize) -> &mut Redis {
        self.node_mut(index)
    }
    fn agreed(&self, old: usize) -> Result<usize> {
        self.wait_for_new_master(KEY, old)
    }
    fn healthy(&self) -> Result<()> {
        self.wait_healthy()
    }
}

/// One round: from the fate to the agreement, and to the first answer of the new master.
struct Round {
    agreed: Instant,
    answered: Instant,
    began: Instant,
}

fn main() -> Result<()> {
    let rounds = std::env::args().nth(1).map_or(Ok(7), |n| n.parse())?;
    let runtime = tokio::runtime::Runtime::new()?;
    let mut trio = RedisTrio::start(&TrioOptions::default())?;
    measure(&runtime, "sentinel", &mut trio, rounds)?;
    drop(trio);
    let mut cluster = RedisCluster::start(&ClusterOptions::default())?;
    measure(&runtime, "cluster", &mut cluster, rounds)
}

fn measure(
    runtime: &tokio::runtime::Runtime,
    name: &str,
    servers: &mut dyn Servers,
    rounds: usize,
) -> Result<()> {
    let mut config = servers.config();
    config.username = Some("gateway".to_owned());
    config.password = Some(GATEWAY_PASSWORD.into());
    let gateway = runtime.block_on(Admission::connect(&config))?;
    for fate in [Fate::Killed, Fate::Paused] {
        let mut after_agreement = Vec::new();
        let mut in_all = Vec::new();
        for _ in 0..rounds {
            let round = once(runtime, &gateway, servers, fate)?;
            // Before the kit has seen it counts as at once.
            after_agreement.push(round.answered.saturating_duration_since(round.agreed));
            in_all.push(round.answered - round.began);
        }
        println!(
            "{name}, master {fate:?}: first answer {:?} after the agreement (worst {:?}), {:?} \
             after the fault; medians of {rounds}",
            median(&mut after_agreement)?,
            after_agreement.last().copied().unwrap_or_default(),
            median(&mut in_all)?,
        );
    }
    Ok(())
}

fn once(
    runtime: &tokio::runtime::Runtime,
    gateway: &Admission,
    servers: &mut dyn Servers,
    fate: Fate,
) -> Result<Round> {
    servers.healthy()?;
    let old = servers.master()?;
    runtime.block_on(answer(gateway))?;
    let began = Instant::now();
    match fate {
        Fate::Killed => servers.server(old).kill9()?,
        Fate::Paused => servers.server(old).pause()?,
    }
    let asking = {
        let gateway = gateway.clone();
        runtime.spawn(async move {
            // The old one may still have answered this one.
            while answered(&gateway).await? {}
            answer(&gateway).await?;
            anyhow::Ok(Instant::now())
        })
    };
    servers.agreed(old)?;
    let agreed = Instant::now();
    let answered = runtime.block_on(asking)??;
    match fate {
        Fate::Killed => servers.server(old).restart()?,
        Fate::Paused => servers.server(old).resume()?,
    }
    Ok(Round {
        agreed,
        answered,
        began,
    })
}

/// Asks until a master answers.
async fn answer(gateway: &Admission) -> Result<()> {
    let begun = Instant::now();
    while !answered(gateway).await? {
        anyhow::ensure!(begun.elapsed() < Duration::from_secs(60), "no answer");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Ok(())
}

/// One call. That the scripts are not there is an answer.
async fn answered(gateway: &Admission) -> Result<bool> {
    let scope = Scope::new(SaleId::new(SALE)?, LogId([1; 16]), Generation(1));
    let scripts = Scripts::from_started(&hashes_for(Nonce([1; 16])))?;
    let claim = Claim {
        user: UserId::new("u")?,
        key: IdempotencyKey::none(),
        attempt: AttemptId([1; 16]),
    };
    let reply = gateway.claim(&scope, &scripts, Seq(0), &claim).await;
    Ok(!matches!(
        reply,
        Err(CallError::Unavailable(_) | CallError::NotWritable(_))
    ))
}

fn median(all: &mut [Duration]) -> Result<Duration> {
    all.sort();
    all.get(all.len() / 2).copied().context("no round")
}
