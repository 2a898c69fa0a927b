//! The command line that `dropgate-reconciler` and `dropgate reconcile` share.

use crate::app::{CannotCheck, Request, reconcile};
use crate::config::Config;
use crate::watch::App;
use anyhow::Context;
use dropgate_domain::SaleId;
use dropgate_runtime::shutdown::Shutdown;
use jiff::Timestamp;
use serde_json::json;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// What `--help` says at its end.
pub const AFTER_HELP: &str = "\
Reads only; may be run while the sale runs. Redis is read as a user that may read whole keys (the
operator of deploy/redis/users.acl): the restricted user of a gateway may not.

Exit codes:
  0  every promise that was checked holds
  1  one does not; the report says by what
  2  it could not be checked: no such sale, or Redis, the log or the database does not answer

docs/reconcile.md explains the report and has the table of differences.";

/// What `watch --help` says.
pub const WATCH: &str = "\
Follows the log and Redis, and recovers by itself a sale that was halted: a new generation of its
state is built in Redis from the log, and claims are taken again. Runs until SIGTERM or SIGINT. Any
number of watches may run.

Needs Redis as the operator of deploy/redis/users.acl. A sale that was recovered three times within
ten minutes (watch.recoveries_max, watch.recoveries_within) stays closed until somebody recovers it
by hand, with `dropgate recover`. watch.hold, or the file named by watch.hold_file while it is there,
keeps it from recovering anything.

/livez, /readyz, /metrics and /watch (what it thinks of each sale in trouble) are on ops.bind.";

/// The command's own arguments.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The sale
    #[arg(long, value_name = "ID")]
    pub sale: SaleId,
    /// Write the report there as JSON; - for standard output, in place of the table
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// What clients were told: JSON lines, by the load generator
    #[arg(long, value_name = "FILE")]
    pub told: Option<PathBuf>,
    /// How long the database may take to reach the log's end [default: reconciler.wait, 30s]
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    pub wait: Option<Duration>,
}

/// Reconciles, and shows the report.
///
/// # Errors
/// A report that cannot be written. What could not be checked is no error but the exit code 2.
pub async fn run(mut config: Config, args: &Args) -> anyhow::Result<ExitCode> {
    if let Some(wait) = args.wait {
        config.reconciler.wait = wait;
    }
    let request = Request {
        sale: args.sale.clone(),
        told: args.told.clone(),
    };
    let json_only = args.json.as_deref() == Some(Path::new("-"));
    let (text, code) = match reconcile(&config, &request).await {
        Ok(report) => {
            if !json_only {
                print(&report.to_string())?;
            }
            let text = serde_json::to_string_pretty(&report)?;
            (text, if report.holds { 0 } else { 1 })
        }
        Err(error) => {
            let told = writeln!(std::io::stderr().lock(), "{error}");
            told.context("standard error")?;
            (could_not(&args.sale, &error), 2)
        }
    };
    match &args.json {
        None => {}
        Some(_) if json_only => print(&text)?,
        // Also when it could not be checked: a report of before must not be taken for this one.
        Some(path) => std::fs::write(path, format!("{text}\n"))
            .with_context(|| format!("cannot write {}", path.display()))?,
    }
    Ok(ExitCode::from(code))
}

/// Watches until SIGTERM or SIGINT.
///
/// # Errors
/// What keeps it from starting.
pub async fn watch(config: Config) -> anyhow::Result<ExitCode> {
    let (shutdown, _signals) = Shutdown::on_signals().context("signals")?;
    let app = App::build(config).await.context("the watch cannot start")?;
    tracing::info!(ops = %app.ops_addr(), "watch started");
    let report = app.run(shutdown).await;
    tracing::info!(%report, "watch ended");
    Ok(if report.is_clean() {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(1)
    })
}

fn could_not(sale: &SaleId, error: &CannotCheck) -> String {
    let report = json!({
        "sale": sale.as_str(),
        "time": Timestamp::now().to_string(),
        "holds": false,
        "checked": false,
        "errors": error.0,
    });
    format!("{report:#}")
}

fn print(text: &str) -> anyhow::Result<()> {
    writeln!(std::io::stdout().lock(), "{text}").context("standard output")
}
