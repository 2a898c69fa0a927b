//! What a claim costs Redis: CPU by Redis' own count, and memory.
//!
//! `cargo run -p dropgate-admission --example cost` starts a Redis of its own; with `-- cluster` it
//! is one that runs as a cluster of one. It prints figures and asserts nothing about them.
#![expect(clippy::print_stdout, reason = "the figures are what it is for")]

use anyhow::{Context, Result, bail};
use dropgate_admission::{Entry, Operator, RedisConfig, Scope, Scripts, State};
use dropgate_domain::{
    AttemptId, Definition, Digest, Generation, IdempotencyKey, LogId, Nonce, SaleId, Seq, TimeMs,
    Unit, UserId,
};
use dropgate_testkit::redis::OPERATOR_PASSWORD;
use dropgate_testkit::wait::{self, Seen};
use dropgate_testkit::{Redis, RedisOptions, RespConnection, Value};
use std::num::NonZeroU32;

/// Winners of the sale that is measured.
const WINNERS: u64 = 100_000;
/// Calls that are on their way at once.
const PIPELINED: u64 = 64;
/// By how many events the log's readers are behind.
const LAG: u64 = 32;

fn main() -> Result<()> {
    let cluster = std::env::args().nth(1).as_deref() == Some("cluster");
    let redis = start(cluster)?;
    let runtime = tokio::runtime::Runtime::new()?;
    let operator = if cluster {
        let config = RedisConfig::in_cluster(vec![format!("127.0.0.1:{}", redis.port())]);
        Operator::new(RedisConfig {
            username: Some("operator".to_owned()),
            password: Some(OPERATOR_PASSWORD.into()),
            ..config
        })
    } else {
        Operator::new(RedisConfig::at(&redis.operator_url()))
    };
    let scope = Scope::new(SaleId::new("bench")?, LogId([1; 16]), Generation(1));
    let hashes = runtime.block_on(operator.load_scripts(scope.sale(), Nonce([1; 16])))?;
    let bench = Bench {
        connection: redis.connect()?,
        scope,
        scripts: Scripts::from_started(&hashes)?,
    };
    let state = State {
        definition: Definition::of(WINNERS),
        next: Unit(1),
        seq: Seq(0),
        head: Digest([3; 20]),
        time: TimeMs(1),
        window: NonZeroU32::MAX,
        closed: false,
    };
    let none: [(UserId, Vec<Entry>); 0] = [];
    runtime.block_on(operator.build(&bench.scope, &state, none))?;
    let (scope, head) = (&bench.scope, state.head);
    runtime.block_on(operator.switch(&bench.scripts, None, scope, Seq(0), head))?;
    println!("redis {}", version(&redis)?);
    bench.run()
}

struct Bench {
    connection: RespConnection,
    scope: Scope,
    scripts: Scripts,
}

impl Bench {
    fn run(mut self) -> Result<()> {
        let half = WINNERS / 2;
        self.measure("won, nothing applied", half, |bench, n| bench.claim(n, 0))?;
        self.measure("tip, trimming all at once", 1, |bench, _| bench.tip(half))?;
        self.measure("won, trimming as it goes", half, |bench, n| {
            bench.claim(half + n, half + n.saturating_sub(LAG))
        })?;
        self.measure("again", 20_000, |bench, n| bench.claim(n, WINNERS))?;
        self.measure("sold out", 20_000, |bench, n| {
            bench.claim(WINNERS + n, WINNERS)
        })?;
        self.measure("tip, nothing new", 20_000, |bench, _| bench.tip(WINNERS))?;
        let claims = self.key("claims");
        for (key, name) in [
            (&claims, "claims"),
            (&self.key("outbox"), "outbox, trimmed"),
        ] {
            let usage = ["MEMORY", "USAGE", key, "SAMPLES", "0"];
            let bytes = self.connection.command(&usage)?.int().context("a number")?;
            println!(
                "{name:<28} {bytes:>10} bytes for {WINNERS} winners, {:.1} each",
                precise(bytes) / precise(i64::try_from(WINNERS)?)
            );
        }
        Ok(())
    }

    /// Runs calls in pipelines and prints Redis' own count of the time that they took: the median
    /// of many small batches, since that count goes on while Redis waits for a processor.
    fn measure(
        &mut self,
        name: &str,
        calls: u64,
        args: impl Fn(&Self, u64) -> Vec<Vec<u8>>,
    ) -> Result<()> {
        let mut batches = Vec::new();
        let mut sent = 0;
        while sent < calls {
            self.connection.command(&["CONFIG", "RESETSTAT"])?;
            let upto = (sent + PIPELINED).min(calls);
            for n in sent..upto {
                let args = args(self, n);
                self.connection.send(&args)?;
            }
            for _ in sent..upto {
                if let Value::Error(error) = self.connection.read()? {
                    bail!("{name}: {error}");
                }
            }
            sent = upto;
            batches.push(self.microseconds_per_call()?);
        }
        batches.sort_by(f64::total_cmp);
        let median = batches.get(batches.len() / 2).context("no batch")?;
        println!("{name:<28} {median:>8.1} us, the median of {calls} calls");
        Ok(())
    }

    fn microseconds_per_call(&mut self) -> Result<f64> {
        let stats = self.connection.command(&["INFO", "commandstats"])?;
        let stats = stats.text().context("a text")?;
        let line = stats.lines().find(|l| l.starts_with("cmdstat_evalsha:"));
        let value = |part: &str| part.strip_prefix("usec_per_call=")?.parse().ok();
        line.and_then(|line| line.split(',').find_map(value))
            .context("no count of evalsha")
    }

    fn claim(&self, n: u64, applied: u64) -> Vec<Vec<u8>> {
        let mut attempt = [0xee; 16];
        attempt[..8].copy_from_slice(&n.to_le_bytes());
        let attempt = AttemptId(attempt);
        // A user id of the usual length: that of a UUID.
        let name = format!("{n:08x}-0000-4000-8000-000000000000");
        let (Ok(user), key) = (UserId::new(&name), IdempotencyKey::none()) else {
            return Vec::new();
        };
        let prefix = dropgate_events::won_prefix(
            self.scope.sale(),
            self.scope.generation(),
            &user,
            attempt,
            &key,
        );
        let mut args = self.call(
            self.scripts.claim_unit,
            &["current", "state", "claims", "outbox"],
        );
        args.push(self.scope.tag().into());
        args.push(applied.to_string().into());
        args.push(b"9007199254740991".to_vec());
        args.push(name.into());
        args.push(Vec::new());
        args.push(attempt.0.to_vec());
        args.push(prefix);
        args
    }

    fn tip(&self, applied: u64) -> Vec<Vec<u8>> {
        let mut args = self.call(self.scripts.read_tip, &["current", "state", "outbox"]);
        args.push(self.scope.tag().into());
        args.push(applied.to_string().into());
        args.push(b"500".to_vec());
        args
    }

    fn call(&self, sha1: Digest, keys: &[&str]) -> Vec<Vec<u8>> {
        let mut args = vec![b"EVALSHA".to_vec(), sha1.to_string().into()];
        args.push(keys.len().to_string().into());
        args.extend(keys.iter().map(|key| self.key(key).into()));
        args
    }

    fn key(&self, name: &str) -> String {
        let (sale, tag) = (self.scope.sale(), self.scope.tag());
        match name {
            "current" => format!("dropgate:{{{sale}}}:current"),
            _ => format!("dropgate:{{{sale}}}:{tag}:{name}"),
        }
    }
}

fn start(cluster: bool) -> Result<Redis> {
    let mut options = RedisOptions::default();
    if !cluster {
        return Redis::start(&options);
    }
    options.extra.push("cluster-enabled yes".to_owned());
    let redis = Redis::start(&options)?;
    redis.cli(&["CLUSTER", "ADDSLOTSRANGE", "0", "16383"])?;
    wait::until("the cluster to be up", wait::START, || {
        let info = redis.cli(&["CLUSTER", "INFO"])?;
        Ok(if info.contains("cluster_state:ok") {
            Seen::Done(())
        } else {
            Seen::NotYet(info)
        })
    })?;
    Ok(redis)
}

fn version(redis: &Redis) -> Result<String> {
    let info = redis.cli(&["INFO", "server"])?;
    let line = info
        .lines()
        .find_map(|line| line.strip_prefix("redis_version:"));
    Ok(line.unwrap_or("unknown").trim().to_owned())
}

/// Figures for people.
#[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
fn precise(number: i64) -> f64 {
    number as f64
}
