//! `stack`: the whole of Dropgate on this machine, without containers: for development (`make up`,
//! `make down`), for the demonstration (`make demo`), and the shared servers of the tests.

mod demo;
mod development;
mod output;
mod verdict;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

/// Starts, uses and stops real servers on this machine.
#[derive(Parser)]
#[command(name = "stack", version)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Sells a stock to a crowd and checks every promise.
    Demo(demo::DemoArgs),
    /// Starts the full stack for development and returns when it is up.
    Up(development::Place),
    /// Stops what `up` started.
    Down(development::Place),
    /// Runs the full stack until SIGTERM: what `up` starts.
    #[command(hide = true)]
    Hold(development::Place),
    /// Stops the servers that tests share.
    StopShared,
}

fn main() -> Result<ExitCode> {
    match Args::parse().command {
        Command::Demo(args) => return demo::run(&args),
        Command::Up(place) => development::up(&place)?,
        Command::Down(place) => development::down(&place)?,
        Command::Hold(place) => development::hold(&place)?,
        Command::StopShared => {
            for name in dropgate_testkit::shared::stop_all()? {
                output::say(&format!("stopped the tests' shared {name}"));
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}
