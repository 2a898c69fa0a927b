//! `dropgate-gateway`: serves claims.

use anyhow::Context;
use clap::Parser;
use dropgate_gateway::{App, Config};
use dropgate_runtime::{config, shutdown::Shutdown, telemetry};
use std::path::PathBuf;

/// Serves the claims of sales, and the admin API to create, open and close them.
///
/// Every key of the configuration can also be given in the environment, as
/// DROPGATE_SECTION__KEY: DROPGATE_HTTP__BIND=0.0.0.0:8080. The only key without a default is
/// auth.keys, the secrets that sign user tokens:
/// DROPGATE_AUTH__KEYS='[{kid = "2026-01", secret = "..."}]'.
#[derive(Parser)]
#[command(name = "dropgate-gateway", version)]
struct Args {
    /// The configuration, TOML.
    #[arg(long, env = "DROPGATE_CONFIG")]
    config: Option<PathBuf>,
    /// Check the configuration and exit.
    #[arg(long)]
    check: bool,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let config: Config = config::load(args.config.as_deref())?;
    if args.check {
        return Ok(());
    }
    telemetry::init(&config.telemetry)?;
    let (shutdown, _signals) = Shutdown::on_signals().context("signals")?;
    let app = App::build(config)
        .await
        .context("the gateway cannot start")?;
    app.run(shutdown).await?;
    Ok(())
}
