//! `dropgate-chaos`: runs seeds of the fault suite.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;
use dropgate_chaos::schedule::Schedule;
use dropgate_chaos::suite::{Report, Suite};
use dropgate_chaos::weakness::Weakness;

/// Runs the full stack under seeded faults and checks every promise.
///
/// Exit code 0: no promise was broken, and enough was injected. 1: it is not so. With --weakened:
/// 0 when the suite found what every one of these builds breaks.
#[derive(Parser)]
#[command(name = "dropgate-chaos", version)]
struct Args {
    /// Run the seeds 1 to this
    #[arg(long, default_value_t = 10, value_name = "N")]
    seeds: u64,

    /// Run this seed alone
    #[arg(long, value_name = "K", conflicts_with = "seeds")]
    seed: Option<u64>,

    /// Print the schedules, and run nothing
    #[arg(long)]
    schedule: bool,

    /// Where the folders of failed runs go
    #[arg(long, default_value = "target/chaos", value_name = "FOLDER")]
    out: PathBuf,

    /// Keep the folders of all runs
    #[arg(long)]
    keep: bool,

    /// Switch this off in services that were built with the engine's feature `weakened`, and run
    /// seeds until a promise is found broken; several by commas
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    weakened: Vec<Weakness>,
}

fn main() -> Result<ExitCode> {
    let args = Args::parse();
    let seeds: Vec<u64> = match args.seed {
        Some(seed) => vec![seed],
        None => (1..=args.seeds).collect(),
    };
    if args.schedule {
        for seed in seeds {
            say(Schedule::of(seed).to_string().trim_end());
        }
        return Ok(ExitCode::SUCCESS);
    }
    let suite = Suite {
        seeds,
        out: args.out,
        keep: args.keep,
        weakness: None,
    };
    let good = match args.weakened.is_empty() {
        true => {
            let report = suite.run(&mut say)?;
            tell(&report);
            report.holds()
        }
        false => finds_all(&suite, &args.weakened)?,
    };
    Ok(match good {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

/// Runs the suite on each weakened build; whether it found a broken promise in every one.
fn finds_all(suite: &Suite, weakened: &[Weakness]) -> Result<bool> {
    let mut found = Vec::new();
    for &weakness in weakened {
        let name = weakness.name();
        say(&format!("without a mechanism: {name}"));
        let suite = Suite {
            out: suite.out.join(name),
            weakness: Some(weakness),
            ..suite.clone()
        };
        let report = suite.run(&mut say)?;
        found.push((name, report.broken_promise().cloned()));
    }
    for (name, failure) in &found {
        match failure {
            None => say(&format!(
                "{name:<20} NOT FOUND in {} seeds",
                suite.seeds.len()
            )),
            Some(failure) => {
                let first = failure.broken.first().map_or("", String::as_str);
                say(&format!(
                    "{name:<20} found by seed {}: {first}",
                    failure.seed
                ));
            }
        }
    }
    Ok(found.iter().all(|(_, failure)| failure.is_some()))
}

fn tell(report: &Report) {
    say(report.coverage.to_string().trim_end());
    for problem in report.coverage.problems() {
        say(&format!("NOT COVERED {problem}"));
    }
    let mut took = report.took.clone();
    took.sort();
    if let (Some(median), Some(longest)) = (took.get(took.len() / 2), took.last()) {
        say(&format!(
            "a seed took {:.1} s in the median, {:.1} s at most",
            median.as_secs_f64(),
            longest.as_secs_f64()
        ));
    }
    let mut resumed = report.resumed_ms.clone();
    resumed.sort_unstable();
    if let (Some(median), Some(longest)) = (resumed.get(resumed.len() / 2), resumed.last()) {
        say(&format!(
            "from a new master to the first new win, {} times: {median} ms in the median, \
             {longest} ms at most",
            resumed.len()
        ));
    }
    let failed: Vec<_> = report
        .failed
        .iter()
        .map(|failure| failure.seed.to_string())
        .collect();
    match failed.is_empty() {
        true => say("no promise was broken"),
        false => say(&format!("FAILED seeds: {}", failed.join(" "))),
    }
}

/// Prints a line. When nobody reads any more there is nobody left to tell.
fn say(line: &str) {
    let mut stdout = std::io::stdout().lock();
    let _ = writeln!(stdout, "{line}");
    let _ = stdout.flush();
}
