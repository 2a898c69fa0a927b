//! Looks at the protocol's worlds, and prints what it came to.

use anyhow::{Result, bail};
use clap::Parser;
use dropgate_model::{Checked, Limits, Size, VARIANTS, WORLDS};
use std::num::NonZeroUsize;
use std::time::Duration;

/// Looks at every state of the protocol within stated bounds.
#[derive(Debug, Parser)]
#[command(version)]
struct Args {
    /// Also look at the worlds that take minutes each.
    #[arg(long)]
    deep: bool,
    /// Look only at what has this in its name.
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Leave each mechanism out in turn and print what goes wrong then, step by step.
    #[arg(long)]
    counterexamples: bool,
    /// Threads that look.
    #[arg(long, default_value = "2")]
    threads: NonZeroUsize,
    /// Seconds for each world; one that is not through by then is a failure.
    #[arg(long, default_value = "3600", value_name = "SECONDS")]
    time_max: u64,
}

#[expect(clippy::print_stdout, reason = "printing is what this command is for")]
fn main() -> Result<()> {
    let args = Args::parse();
    let limits = Limits {
        threads: args.threads,
        time_max: Duration::from_secs(args.time_max),
    };
    let wanted = |name: &str| args.only.as_deref().is_none_or(|only| name.contains(only));
    let mut failures = Vec::new();
    if args.counterexamples {
        for variant in VARIANTS.iter().filter(|variant| wanted(variant.name)) {
            println!(
                "without {}: \"{}\" breaks",
                variant.name,
                variant.breaks.name()
            );
            let checked = variant.find(limits);
            print!("{}", steps(&checked));
            println!("  {}\n", figures(&checked));
            if checked.broken.is_none() {
                failures.push(variant.name);
            }
        }
    } else {
        let sized = |size: Size| args.deep || size < Size::Deep;
        for world in WORLDS.iter().filter(|w| sized(w.size) && wanted(w.name)) {
            println!("{}: {}", world.name, world.covers);
            let checked = world.check(limits);
            println!("  {}", figures(&checked));
            print!("{}", steps(&checked));
            let missing = world.shows.iter().any(|what| !checked.seen.contains(what));
            if !checked.whole || missing {
                failures.push(world.name);
            }
        }
    }
    if !failures.is_empty() {
        bail!("not as it must be: {}", failures.join(", "));
    }
    Ok(())
}

fn figures(checked: &Checked) -> String {
    format!(
        "{} states, {} of them different, {} logs, {} steps deep, {:.1} s{}",
        checked.states,
        checked.unique,
        checked.logs,
        checked.depth,
        checked.took.as_secs_f64(),
        if checked.whole {
            ": all of it, and all holds"
        } else {
            ""
        },
    )
}

fn steps(checked: &Checked) -> String {
    let Some((must, path)) = &checked.broken else {
        return String::new();
    };
    let steps = path.iter().enumerate();
    let mut told: String = steps
        .map(|(n, step)| format!("  {}. {step}\n", n + 1))
        .collect();
    told.push_str(&format!("  breaks \"{}\"\n", must.name()));
    told
}
