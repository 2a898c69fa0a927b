//! `dropgate-chaos`: runs seeds of the fault suite.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;
use dropgate_chaos::schedule::Schedule;
use dropgate_chaos::suite::{Report, Suite};

/// Runs the full stack under seeded faults and checks every promise.
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
        stop_at_failure: false,
    };
    let report = suite.run(&mut say)?;
    tell(&report);
    Ok(match report.holds() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
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
    let failed: Vec<_> = report
        .failed
        .iter()
        .map(|(seed, _)| seed.to_string())
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
