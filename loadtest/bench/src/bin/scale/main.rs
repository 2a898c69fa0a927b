//! Recovers a sale with very many wins, side by side with a bare load of the same keys.
//!
//! The wins are written to the log as the script would have made them, and Redis has forgotten
//! everything. Then, in turns: `redis-cli --pipe` loads one hash with the same users and values,
//! one HSET each; and `dropgate recover`, a process of its own, reads the log and builds the
//! sale's next generation. Judged are the ratio of the two, and the peak of the process' memory.

#![expect(clippy::print_stdout, reason = "a command's output")]

mod bare;
mod wins;

use anyhow::{Context, Result, ensure};
use clap::Parser;
use dropgate_testkit::stack::{Admin, Backing, Services, Settings, Shape, limits};
use dropgate_testkit::{Process, ProcessOptions};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// A recovery reaches at least this part of the bare load's rate.
const RATIO_MIN: f64 = 1.0 / 3.0;
/// And takes less memory than this.
const PEAK_BYTES_MAX: u64 = 1_000_000_000;
/// Liveness bound of a recovery.
const PATIENCE: Duration = Duration::from_secs(900);

/// Measures the recovery of a large sale; exits 1 when it is too slow or takes too much memory.
#[derive(Debug, Parser)]
#[command(name = "dropgate-scale", version)]
struct Args {
    /// Wins of the sale
    #[arg(long, default_value_t = 1_000_000)]
    wins: u64,
    /// Rounds, in each of which both are measured in turn
    #[arg(long, default_value_t = 3)]
    rounds: usize,
}

/// One round.
struct Round {
    bare: Duration,
    recovery: Duration,
    peak_bytes: u64,
}

fn main() -> Result<ExitCode> {
    let args = Args::parse();
    limits::raise_open_files()?;
    let folder = tempfile::tempdir()?;
    println!("starting Redis, Kafka, Postgres and a gateway");
    let backing = Backing::start(Shape::Full)?;
    let settings = Settings::new(folder.path(), &backing)?;
    let services = Services::full(&settings, folder.path(), 1)?;
    let ports = services.gateways.first().context("a gateway")?;
    let admin = Admin {
        port: ports.admin,
        key: &settings.admin_key,
    };
    admin.open_new("large", args.wins)?;
    let durable = backing.durable.as_ref().context("the full stack")?;
    println!("writing {} wins to the log", args.wins);
    let runtime = tokio::runtime::Runtime::new()?;
    let written = runtime.block_on(wins::write(&durable.kafka.brokers(), "large", args.wins))?;
    println!("written in {:.1} s", written.as_secs_f64());
    let dropgate = services.dropgate.display().to_string();
    // Only what is measured runs now.
    drop(services);
    backing.redis.cli(&["FLUSHALL"])?;
    backing.redis.cli(&["SCRIPT", "FLUSH"])?;

    let mut rounds = Vec::new();
    for round in 1..=args.rounds {
        let bare = bare::load(&backing.redis, args.wins)?;
        let (recovery, peak_bytes) = recover(&dropgate, folder.path())?;
        let rate = |time: Duration| args.wins as f64 / time.as_secs_f64();
        println!(
            "round {round}: bare {:.0}/s, recovery {:.0}/s, {:.2} of it, peak {} MB",
            rate(bare),
            rate(recovery),
            bare.as_secs_f64() / recovery.as_secs_f64(),
            peak_bytes / 1_000_000
        );
        rounds.push(Round {
            bare,
            recovery,
            peak_bytes,
        });
    }
    Ok(verdict(&rounds))
}

/// Runs the command as an operator would, and tells how long it took in all and its peak memory.
fn recover(config: &str, folder: &std::path::Path) -> Result<(Duration, u64)> {
    let begun = Instant::now();
    let mut process: Process = ProcessOptions::of_ours("dropgate")?
        .args(["--config", config, "recover", "--sale", "large", "--force"])
        .log(&folder.join("recover.log"))
        .start()?;
    let mut peak_bytes = 0;
    while process.alive() {
        peak_bytes = process.peak_rss_bytes().unwrap_or(0).max(peak_bytes);
        ensure!(begun.elapsed() < PATIENCE, "no end in {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
    let code = process.wait(Duration::from_secs(1))?;
    let took = begun.elapsed();
    ensure!(code == Some(0), "exit code {code:?}: {}", process.output()?);
    println!("{}", process.output()?.trim());
    Ok((took, peak_bytes))
}

fn verdict(rounds: &[Round]) -> ExitCode {
    let mut ratios: Vec<f64> = rounds
        .iter()
        .map(|round| round.bare.as_secs_f64() / round.recovery.as_secs_f64())
        .collect();
    ratios.sort_by(f64::total_cmp);
    let ratio = ratios.get(ratios.len() / 2).copied().unwrap_or(0.0);
    let peak_bytes = rounds
        .iter()
        .map(|r| r.peak_bytes)
        .max()
        .unwrap_or(u64::MAX);
    println!(
        "median {ratio:.2} of the bare load's rate (at least {RATIO_MIN:.2}); peak {} MB (below {} MB)",
        peak_bytes / 1_000_000,
        PEAK_BYTES_MAX / 1_000_000
    );
    if ratio >= RATIO_MIN && peak_bytes < PEAK_BYTES_MAX {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
