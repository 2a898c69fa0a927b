//! Ratios of the path of a claim, side by side in one run.
//!
//! *Latency*: what a win costs at a gateway, one after the other, against what it must cost: one
//! round trip to Redis and one publication read back from the log's tail, on the same servers, in
//! turns. *CPU*: what a win costs the gateway at 64 in flight, against a minimal handler that
//! calls the same script and does nothing else.
//!
//! Machines are shared and noisy: only ratios are judged, and the spread stands beside them.

#![expect(clippy::print_stdout, reason = "a command's output")]

mod client;
mod parts;
mod report;

use anyhow::{Context, Result};
use clap::Parser;
use client::{Client, Tokens};
use dropgate_testkit::ports::Port;
use dropgate_testkit::stack::{Admin, Backing, Services, Settings, Shape, limits};
use dropgate_testkit::{Process, ProcessOptions, Ready};
use parts::Parts;
use report::{Rounds, machine, table};
use std::process::ExitCode;
use std::time::Duration;

/// A win may cost at most so many times the sum of its parts.
const LATENCY_RATIO_MAX: f64 = 2.5;
/// Units of the sales: more than any run takes.
const STOCK: u64 = 1_000_000;
/// Requests in flight when CPU is measured.
const IN_FLIGHT: usize = 64;

/// Measures the path of a claim; exits 1 when the latency ratio is too high.
#[derive(Debug, Parser)]
#[command(name = "dropgate-bench", version)]
struct Args {
    /// Rounds, each of which measures everything in turn
    #[arg(long, default_value_t = 9)]
    rounds: usize,
    /// Wins of a round, one after the other
    #[arg(long, default_value_t = 200)]
    wins: usize,
    /// Wins of a round at 64 in flight
    #[arg(long, default_value_t = 4000)]
    wins_in_flight: usize,
}

fn main() -> Result<ExitCode> {
    let args = Args::parse();
    limits::raise_open_files()?;
    let folder = tempfile::tempdir()?;
    println!("starting Redis, Kafka, Postgres and a gateway");
    let backing = Backing::start(Shape::Full)?;
    let settings = Settings::new(folder.path(), &backing)?;
    let services = Services::full(&settings, folder.path(), 1)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(measure(&args, &backing, &settings, &services))
}

async fn measure(
    args: &Args,
    backing: &Backing,
    settings: &Settings,
    services: &Services,
) -> Result<ExitCode> {
    let ports = services.gateways.first().context("a gateway")?;
    let admin = Admin {
        port: ports.admin,
        key: &settings.admin_key,
    };
    admin.open_new("parts", STOCK)?;
    admin.open_new("whole", STOCK)?;
    let brokers = backing
        .durable
        .as_ref()
        .context("the full stack")?
        .kafka
        .brokers();
    let mut parts = Parts::open(&backing.redis.gateway_url(), &brokers, "parts").await?;
    let tokens = Tokens::new(&std::fs::read(&settings.token_secret_file)?)?;
    let gateway = Client::new(ports.public, "/v1/sales/whole/claims", tokens);

    let minimal = minimal_handler(args, backing, &mut parts).await?;
    let minimal_client = Client::new(minimal.port.number(), "/", gateway.tokens());
    let gateway_process = services
        .processes
        .iter()
        .find(|(name, _)| name == "gateway-1")
        .map(|(_, process)| process)
        .context("the gateway's process")?;

    let mut rounds = Rounds::default();
    // The first round warms everything up and is not counted.
    for round in 0..=args.rounds {
        let (redis, log) = parts.wins(args.wins).await?;
        let whole = gateway.one_after_the_other(args.wins).await?;
        let cpu = cpu_per_win(gateway_process, &gateway, args.wins_in_flight).await?;
        let minimal = cpu_per_win(&minimal.process, &minimal_client, args.wins_in_flight).await?;
        if round > 0 {
            rounds.push(redis, log, whole, cpu, minimal);
        }
    }
    println!("{}\n{}", machine(), table(&rounds));
    let ratio = rounds.latency_ratio();
    if ratio <= LATENCY_RATIO_MAX {
        println!("a win costs {ratio:.2} times its parts: within {LATENCY_RATIO_MAX}");
        Ok(ExitCode::SUCCESS)
    } else {
        println!("a win costs {ratio:.2} times its parts: more than {LATENCY_RATIO_MAX}");
        Ok(ExitCode::FAILURE)
    }
}

/// The CPU time of a process, in microseconds a win, at [`IN_FLIGHT`] requests at once.
async fn cpu_per_win(process: &Process, client: &Client, wins: usize) -> Result<f64> {
    let spent = || {
        process
            .cpu_time()
            .context("the CPU time of a process that runs")
    };
    let before = spent()?;
    client.in_flight(wins, IN_FLIGHT).await?;
    let spent = spent()?.saturating_sub(before);
    Ok(spent.as_secs_f64() * 1e6 / wins as f64)
}

struct Minimal {
    process: Process,
    port: Port,
}

/// The minimal handler, on a sale that no gateway knows of.
async fn minimal_handler(args: &Args, backing: &Backing, parts: &mut Parts) -> Result<Minimal> {
    let total = (args.rounds + 1) * args.wins_in_flight;
    let sale = parts
        .unlogged_sale(&backing.redis.operator_url(), STOCK, total)
        .await?;
    let port = Port::reserve()?;
    let number = port.number();
    let process = ProcessOptions::of_ours("minimal-handler")?
        .args([number.to_string(), sale.claim_unit, sale.tag])
        .env("REDIS_URL", backing.redis.gateway_url())
        .ready(Ready::Http(number, "/livez".to_owned()))
        .start()?;
    Ok(Minimal { process, port })
}

/// The bound of everything that is waited for.
const PATIENCE: Duration = Duration::from_secs(60);
