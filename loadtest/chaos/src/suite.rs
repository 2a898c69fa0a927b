//! Many seeds on one installation.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::cell::Cell;
use crate::coverage::Coverage;
use crate::run::{Outcome, run};
use crate::schedule::Schedule;

/// After so many sales the installation is started anew: every reader folds every sale of its log.
const SALES_MAX: u64 = 25;

/// The longest that a seed should take. Told, and no promise.
const SEED_MAX: Duration = Duration::from_secs(45);

/// Which seeds, and where.
#[derive(Clone, Debug)]
pub struct Suite {
    /// Seeds, in this order.
    pub seeds: Vec<u64>,
    /// Where the folders of runs go.
    pub out: PathBuf,
    /// Whether the first failure ends it.
    pub stop_at_failure: bool,
}

/// What came of it.
#[derive(Debug, Default)]
pub struct Report {
    /// Seeds that failed, with what broke.
    pub failed: Vec<(u64, Vec<String>)>,
    /// What was injected.
    pub coverage: Coverage,
    /// How long each seed took.
    pub took: Vec<Duration>,
}

impl Report {
    /// Whether all promises held, and enough was injected.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.failed.is_empty() && self.coverage.problems().is_empty()
    }
}

impl Suite {
    /// Runs the seeds, and says what happens.
    ///
    /// # Errors
    /// When an installation does not come up, or a file cannot be written.
    pub fn run(&self, say: &mut dyn FnMut(&str)) -> Result<Report> {
        let mut report = Report::default();
        for (nth, seeds) in self.seeds.chunks(usize::try_from(SALES_MAX)?).enumerate() {
            let folder = self.out.join(format!("installation-{}", nth + 1));
            let begun = Instant::now();
            let mut cell = Some(Cell::start(&folder)?);
            say(&format!(
                "started everything in {:.1} s",
                begun.elapsed().as_secs_f64()
            ));
            for &seed in seeds {
                let well = match &cell {
                    Some(cell) => self.seed(cell, seed, &mut report, say),
                    None => false,
                };
                if !well {
                    if self.stop_at_failure {
                        return Ok(report);
                    }
                    // What failed may have left anything behind.
                    cell = None;
                    let folder = self.out.join(format!("installation-after-{seed}"));
                    cell.replace(Cell::start(&folder)?);
                }
            }
        }
        Ok(report)
    }

    /// Runs one seed; whether it went well.
    fn seed(&self, cell: &Cell, seed: u64, report: &mut Report, say: &mut dyn FnMut(&str)) -> bool {
        let schedule = Schedule::of(seed);
        let folder = self.out.join(format!("seed-{seed}"));
        match run(cell, &schedule, &folder) {
            Ok(outcome) => {
                say(&line(seed, &outcome));
                let kinds: Vec<_> = outcome
                    .injected
                    .faults
                    .iter()
                    .map(|(kind, _)| *kind)
                    .collect();
                report.coverage.count(seed, &kinds, outcome.winners);
                report.took.push(outcome.took);
                if outcome.broken.is_empty() {
                    let _ = std::fs::remove_dir_all(&folder);
                    return true;
                }
                failed(cell, &schedule, &folder, outcome.broken, report, say);
                false
            }
            Err(error) => {
                let broken = vec![format!("{error:#}")];
                failed(cell, &schedule, &folder, broken, report, say);
                false
            }
        }
    }
}

fn line(seed: u64, outcome: &Outcome) -> String {
    let winners = outcome.winners;
    let slow = if outcome.took > SEED_MAX {
        ", slow"
    } else {
        ""
    };
    format!(
        "seed {seed}: {} faults, {} generations, told winners {} before, {} during, {} after; \
         {:.1} s{slow}",
        outcome.injected.faults.len(),
        outcome.generations,
        winners.before,
        winners.during,
        winners.after,
        outcome.took.as_secs_f64()
    )
}

/// Tells a failure so that it can be looked into, and keeps what is known of it.
fn failed(
    cell: &Cell,
    schedule: &Schedule,
    folder: &Path,
    broken: Vec<String>,
    report: &mut Report,
    say: &mut dyn FnMut(&str),
) {
    say(&format!("FAILED {schedule}"));
    for line in &broken {
        say(&format!("  {line}"));
    }
    keep_logs(cell.folder(), folder);
    say(&format!(
        "  again: make chaos SEED={}; timeline, transcript, log and the logs of all processes: {}",
        schedule.seed,
        folder.display()
    ));
    report.failed.push((schedule.seed, broken));
}

/// Copies the logs of the processes, as far as they can be read.
fn keep_logs(from: &Path, to: &Path) {
    let Ok(entries) = std::fs::read_dir(from) else {
        return;
    };
    for path in entries.flatten().map(|entry| entry.path()) {
        let is_log = path.extension().is_some_and(|extension| extension == "log");
        if let (true, Some(name)) = (is_log, path.file_name()) {
            let _ = std::fs::copy(&path, to.join(name));
        }
    }
}
