//! `dropgate-order-writer`: the orders' way from the log to the database.

use anyhow::Context;
use clap::Parser;
use dropgate_order_writer::app::App;
use dropgate_order_writer::config::Config;
use dropgate_runtime::shutdown::Shutdown;
use dropgate_runtime::{config, telemetry};
use std::path::PathBuf;

/// Reads the log of claims and writes every win into the database, once.
///
/// Any number of them may run: one writes, the others stand by. Every setting of the file can
/// also be given by the environment, as `DROPGATE_SECTION__KEY`.
#[derive(Parser)]
#[command(name = "dropgate-order-writer", version)]
struct Args {
    /// The configuration file (TOML)
    #[arg(long, env = "DROPGATE_CONFIG")]
    config: Option<PathBuf>,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let config: Config = config::load(args.config.as_deref())?;
    telemetry::init(&config.telemetry)?;
    let (shutdown, _listener) = Shutdown::on_signals()?;
    let app = App::build(config).context("dropgate-order-writer cannot start")?;
    tracing::info!(ops = %app.ops_addr(), "order-writer started");
    let report = app.run(shutdown).await?;
    tracing::info!(%report, "order-writer ended");
    Ok(())
}
