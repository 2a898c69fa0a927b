//! `dropgate`: the operators' command.

mod args;
mod config;
mod folded;
mod http;
mod keys;
mod log_dump;
mod output;
mod recover;
mod sale;
mod serve;
mod status;
mod token;
mod watch;

use args::{Cli, Command, ConfigCommand, LogCommand};
use clap::Parser;
use dropgate_runtime::telemetry::{self, Format, TelemetryConfig};
use std::process::ExitCode;

/// What is neither done nor refused: see the exit codes in [`args`].
const COULD_NOT: u8 = 2;

/// Of the log of a command that is over in a moment only this is worth a line, and what is worse.
const WARN: &str = "warn";

fn main() -> ExitCode {
    run(&Cli::parse()).unwrap_or_else(|error| {
        // With standard error closed there is nobody left to tell.
        let _ = output::complain(&format!("{error:#}"));
        ExitCode::from(COULD_NOT)
    })
}

fn run(cli: &Cli) -> anyhow::Result<ExitCode> {
    let file = cli.config.as_deref();
    match &cli.command {
        Command::Serve => serve::run(config::load(file)?),
        Command::Sale(command) => block_on(WARN, sale::run(command, file)),
        // What is wrong is on its screen, and belongs nowhere else.
        Command::Status(args) => block_on("error", status::run(args, file)),
        Command::Recover(args) => block_on(WARN, recover::run(args, file)),
        Command::Watch => watch::run(&config::load(file)?),
        Command::Token(token) => token::run(&config::load(file)?, token),
        Command::Reconcile(args) => {
            let config = config::load(file)?;
            block_on(
                WARN,
                dropgate_reconciler::cli::run(config.reconciler(), args),
            )
        }
        Command::Log(LogCommand::Dump { out }) => {
            let config = config::load(file)?;
            block_on(WARN, log_dump::run(&config, out))
        }
        Command::Config(ConfigCommand::Check) => config::check(&config::load(file)?),
    }
}

/// Runs a command that is over in a moment; of its log it shows what the filter lets through.
fn block_on<T>(
    filter: &str,
    command: impl Future<Output = anyhow::Result<T>>,
) -> anyhow::Result<T> {
    telemetry::init(&TelemetryConfig {
        format: Format::Text,
        filter: filter.to_owned(),
    })?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    let done = runtime.block_on(command);
    // What blocks in the background, of no use any more, must not hold up the exit.
    runtime.shutdown_background();
    done
}
