//! `dropgate-reconciler`: states every promise of a sale.

use anyhow::Context;
use clap::{Parser, Subcommand};
use dropgate_reconciler::{Config, cli};
use dropgate_runtime::{config, telemetry};
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

/// Compares what the log, Redis and the database say of a sale, and states every promise.
///
/// Every key of the configuration can also be given in the environment, as
/// DROPGATE_SECTION__KEY. Sections: redis, log, store, reconciler, engine, watch, ops,
/// telemetry.
#[derive(Parser)]
#[command(
    name = "dropgate-reconciler",
    version,
    after_help = cli::AFTER_HELP,
    args_conflicts_with_subcommands = false,
    subcommand_negates_reqs = true
)]
struct Cli {
    /// The configuration, TOML
    #[arg(long, global = true, env = "DROPGATE_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    reconcile: Option<cli::Args>,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    /// Runs until it is told to stop: recovers halted sales by itself
    #[command(long_about = cli::WATCH)]
    Watch,
}

#[tokio::main]
async fn main() -> ExitCode {
    run().await.unwrap_or_else(|error| {
        // With standard error closed there is nobody left to tell.
        let _ = writeln!(std::io::stderr(), "dropgate-reconciler: {error:#}");
        ExitCode::from(2)
    })
}

async fn run() -> anyhow::Result<ExitCode> {
    let args = Cli::parse();
    let config: Config = config::load(args.config.as_deref())?;
    telemetry::init(&config.telemetry).context("telemetry")?;
    match (args.command, args.reconcile) {
        (Some(Command::Watch), _) => cli::watch(config).await,
        (None, Some(reconcile)) => cli::run(config, &reconcile).await,
        (None, None) => anyhow::bail!("--sale ID is missing"),
    }
}
