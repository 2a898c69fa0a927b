//! An open-model load generator for claims.
//!
//! It speaks HTTP only and knows nothing of the services it loads, so that it
//! can tell when they are wrong. See `loadtest/README.md` for what it measures
//! and how it proves itself.
//!
//! Rooms: [`args`] and [`plan`] say what to run, [`limits`] whether the machine
//! can; [`schedule`] (pure) says who clicks when, [`outcome`] (pure) what an
//! answer leads to; [`user`] makes tokens, [`target`] keeps the traffic on this
//! machine, [`balancer`] leaves out the unready, [`client`] is one connection, [`driver`] drives one click over it;
//! [`open`], [`spike`] and [`probe`] are the three ways to run, on the threads
//! of [`crew`]; [`record`], [`transcript`], [`report`], [`progress`] and
//! [`watch`] tell what was seen; [`headroom`] and [`static_target`] prove that
//! the generator is not what was measured.

pub mod alarm;
pub mod args;
pub mod balancer;
pub mod client;
pub mod crew;
pub mod driver;
pub mod headroom;
pub mod limits;
pub mod open;
pub mod outcome;
pub mod plan;
pub mod probe;
pub mod progress;
pub mod record;
pub mod report;
pub mod schedule;
pub mod spike;
pub mod static_target;
pub mod target;
pub mod transcript;
pub mod user;
pub mod watch;

use std::fs;
use std::io::Write as _;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;

use crate::args::Args;
use crate::balancer::Asking;
use crate::crew::Shared;
use crate::headroom::Headroom;
use crate::limits::Have;
use crate::plan::{Mode, Plan};
use crate::probe::Found;
use crate::progress::{Display, Progress};
use crate::report::Report;
use crate::transcript::Writer;
use crate::user::Users;
use crate::watch::Watch;

/// How a run that ran ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// Every click's last answer was final, and nothing seen was broken.
    AllFinal,
    /// Clicks ended pending or in errors, or a promise was seen broken.
    NotAll,
}

impl From<Ending> for ExitCode {
    fn from(ending: Ending) -> Self {
        match ending {
            Ending::AllFinal => Self::SUCCESS,
            Ending::NotAll => Self::from(1),
        }
    }
}

/// Does what the arguments ask for.
///
/// # Errors
/// When it cannot run (bad use, a limit that is too small, a generator that is
/// too slow) or cannot write what it found.
pub fn run(args: Args) -> anyhow::Result<Ending> {
    let asked = args.readiness.len();
    anyhow::ensure!(
        asked == 0 || asked == args.target.len(),
        "--readiness: {asked} URLs for {} targets",
        args.target.len()
    );
    let plan = Arc::new(Plan::of(&args));
    let problems = limits::too_small(plan.need(), Have::raised()?);
    if !problems.is_empty() {
        anyhow::bail!(
            "this machine's limits are too small:\n  {}",
            problems.join("\n  ")
        );
    }
    let users = Arc::new(plan::users(&args, &plan)?);
    match plan.mode {
        Mode::Probe { time } => find_rate(&args, &plan, &users, time),
        Mode::Open { .. } | Mode::Spike => load(&args, &plan, &users),
    }
}

fn find_rate(
    args: &Args,
    plan: &Arc<Plan>,
    users: &Arc<Users>,
    time: Duration,
) -> anyhow::Result<Ending> {
    let record = crew::drive(plan, users, None, || {})?;
    let found = Found::of(plan, &record, time);
    let json = serde_json::to_string(&found)?;
    write_report(args, &json)?;
    writeln!(std::io::stdout().lock(), "{json}").context("cannot write to stdout")?;
    Ok(if found.is_clean() {
        Ending::AllFinal
    } else {
        Ending::NotAll
    })
}

fn load(args: &Args, plan: &Arc<Plan>, users: &Arc<Users>) -> anyhow::Result<Ending> {
    let mut watch = Watch::new(&args.watch_pid)?;
    let headroom = match (plan.mode, args.headroom_seconds) {
        (Mode::Open { rate }, Some(seconds)) => {
            let time = Duration::from_secs_f64(seconds);
            Some(Headroom::measure(plan, users, rate, time)?)
        }
        _ => None,
    };
    let writer = args.transcript.as_deref().map(Writer::create).transpose()?;
    let shared = Shared {
        progress: Arc::new(Progress::default()),
        writer: writer.as_ref(),
    };
    let mut display = Display::new(plan.clicks(), args.quiet);
    let asking = match &plan.balancer {
        Some(balancer) => {
            let every = Duration::from_secs_f64(args.readiness_interval);
            let urls = &args.readiness;
            Some(Asking::start(balancer, &plan.targets, urls, every)?)
        }
        None => None,
    };
    let record = crew::drive(plan, users, Some(&shared), || {
        watch.sample();
        display.show(&shared.progress);
    })?;
    drop(asking);
    display.clear();
    watch.sample();
    let report = Report::of(plan, &record, watch.peaks(), headroom);
    // The report first: it stands even when the transcript does not.
    write_report(args, &serde_json::to_string_pretty(&report)?)?;
    writeln!(std::io::stdout().lock(), "{}", report.table()).context("cannot write to stdout")?;
    if let Some(writer) = writer {
        writer.finish()?;
    }
    Ok(if report.all_final() && report.broken_promises() == 0 {
        Ending::AllFinal
    } else {
        Ending::NotAll
    })
}

fn write_report(args: &Args, json: &str) -> anyhow::Result<()> {
    match &args.report {
        Some(path) => fs::write(path, format!("{json}\n"))
            .with_context(|| format!("cannot write {}", path.display())),
        None => Ok(()),
    }
}
