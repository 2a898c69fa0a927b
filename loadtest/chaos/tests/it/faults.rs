//! The suite itself, and faults of one kind with their figures.
//!
//! By hand: `KILLS=50` for so many kills right after acknowledged wins, `FAILOVERS=5` for so many
//! switches to a new master under load.

mod cut_off;
mod forgetful;
mod seeds;

use std::path::Path;

use anyhow::Result;
use dropgate_chaos::cell::Cell;
use dropgate_chaos::fault::{Fault, Kind};
use dropgate_chaos::run::{Outcome, run};
use dropgate_chaos::schedule::{Load, Mark, Schedule, Step};
use dropgate_chaos::told::{self, Answer};
use tempfile::TempDir;

/// A step at so many wins.
fn at(wins: u64, kind: Kind, which: u8, lasts_ms: u64) -> Step {
    Step {
        at: Mark { wins, then_ms: 0 },
        fault: Fault {
            kind,
            which,
            lasts_ms,
        },
    }
}

/// A sale to so many users under these steps.
fn schedule(users: u64, steps: Vec<Step>) -> Schedule {
    let load = Load {
        users,
        rate: 200,
        late_users: 160,
        stock: users + 100,
    };
    Schedule {
        seed: 0,
        load,
        steps,
    }
}

/// A sale on a new installation, of which every promise must hold; what came of it, and what was
/// told.
fn sell(schedule: &Schedule) -> Result<(Outcome, Vec<Answer>)> {
    let folder = folder()?;
    let cell = Cell::start(&folder.path().join("installation"), None)?;
    let result = sell_on(&cell, schedule, folder.path());
    if result.is_err() {
        // What is known of the failure is worth more than a tidy machine.
        println!("kept: {}", folder.keep().display());
    }
    result
}

fn sell_on(cell: &Cell, schedule: &Schedule, folder: &Path) -> Result<(Outcome, Vec<Answer>)> {
    let outcome = run(cell, schedule, &folder.join("run"))?;
    let timeline = std::fs::read_to_string(outcome.folder.join("timeline.txt"))?;
    let why = [outcome.broken.as_slice(), &outcome.unsettled].concat();
    anyhow::ensure!(why.is_empty(), "{why:#?}\n{timeline}");
    let answers = told::read(&outcome.folder.join("told.jsonl"))?;
    Ok((outcome, answers))
}

fn folder() -> Result<TempDir> {
    Ok(tempfile::Builder::new()
        .prefix("dropgate-chaos-")
        .tempdir()?)
}

/// A whole number from the environment.
fn from_env(name: &str, default: u64) -> Result<u64> {
    match std::env::var(name) {
        Ok(text) => Ok(text.parse()?),
        Err(_) => Ok(default),
    }
}
