//! Many seeds on one installation.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::cell::Cell;
use crate::coverage::Coverage;
use crate::run::{Outcome, run};
use crate::schedule::Schedule;
use crate::weakness::Weakness;

/// After so many sales the installation is started anew: every reader folds every sale of its log.
const SALES_MAX: usize = 25;

/// The longest that a seed should take. Told, and no promise.
const SEED_MAX: Duration = Duration::from_secs(45);

/// Which seeds, and where.
#[derive(Clone, Debug)]
pub struct Suite {
    /// Seeds, in this order.
    pub seeds: Vec<u64>,
    /// Where the folders of runs go.
    pub out: PathBuf,
    /// Whether the folders of runs without a failure are kept, too.
    pub keep: bool,
    /// What is switched off in the services; then the first broken promise ends the suite.
    pub weakness: Option<Weakness>,
}

/// A seed that failed.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The seed.
    pub seed: u64,
    /// Broken promises, in words; empty when the run itself failed.
    pub broken: Vec<String>,
}

/// What came of it.
#[derive(Debug, Default)]
pub struct Report {
    /// Seeds that failed.
    pub failed: Vec<Failure>,
    /// What was injected.
    pub coverage: Coverage,
    /// How long each seed took.
    pub took: Vec<Duration>,
    /// From each new master to the first new win, in milliseconds.
    pub resumed_ms: Vec<u64>,
}

impl Report {
    /// Whether all promises held, and enough was injected.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.failed.is_empty() && self.coverage.problems().is_empty()
    }

    /// The first failure that is a broken promise.
    #[must_use]
    pub fn broken_promise(&self) -> Option<&Failure> {
        self.failed
            .iter()
            .find(|failure| !failure.broken.is_empty())
    }
}

impl Suite {
    /// Runs the seeds, and says what happens.
    ///
    /// # Errors
    /// When an installation does not come up, or a file cannot be written.
    pub fn run(&self, say: &mut dyn FnMut(&str)) -> Result<Report> {
        let mut report = Report::default();
        let mut cell = None;
        let mut sales = 0;
        for &seed in &self.seeds {
            if sales == SALES_MAX {
                cell = None;
            }
            let used = match cell.take() {
                Some(cell) => cell,
                None => {
                    sales = 0;
                    self.start(seed, say)?
                }
            };
            sales += 1;
            if self.seed(&used, seed, &mut report, say) {
                cell = Some(used);
            } else if self.weakness.is_some() && report.broken_promise().is_some() {
                break;
            }
            // What failed may have left anything behind: then the next seed has a new one.
        }
        Ok(report)
    }

    fn start(&self, seed: u64, say: &mut dyn FnMut(&str)) -> Result<Cell> {
        let folder = self.out.join(format!("installation-of-{seed}"));
        if folder.exists() {
            std::fs::remove_dir_all(&folder)?;
        }
        let begun = Instant::now();
        let cell = Cell::start(&folder, self.weakness)?;
        say(&format!(
            "started everything in {:.1} s",
            begun.elapsed().as_secs_f64()
        ));
        Ok(cell)
    }

    /// Runs one seed; whether it went well.
    fn seed(&self, cell: &Cell, seed: u64, report: &mut Report, say: &mut dyn FnMut(&str)) -> bool {
        let schedule = Schedule::of(seed);
        let folder = self.out.join(format!("seed-{seed}"));
        let (broken, why) = match run(cell, &schedule, &folder) {
            Ok(outcome) => {
                say(&line(seed, &outcome));
                let faults = outcome.injected.faults.iter();
                let kinds: Vec<_> = faults.map(|(kind, _)| *kind).collect();
                report.coverage.count(seed, &kinds, outcome.winners);
                report.took.push(outcome.took);
                report.resumed_ms.extend(&outcome.resumed_ms);
                let why = [outcome.broken.as_slice(), &outcome.unsettled].concat();
                if why.is_empty() {
                    match self.keep {
                        true => keep_logs(cell.folder(), &folder),
                        false => drop(std::fs::remove_dir_all(&folder)),
                    }
                    return true;
                }
                (outcome.broken, why)
            }
            Err(error) => (Vec::new(), vec![format!("the run failed: {error:#}")]),
        };
        keep_logs(cell.folder(), &folder);
        say(format!("FAILED {schedule}").trim_end());
        for line in &why {
            say(&format!("  {line}"));
        }
        say(&format!(
            "  again: make chaos SEED={seed}; timeline, transcript, log and all processes' logs: {}",
            folder.display()
        ));
        report.failed.push(Failure { seed, broken });
        false
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
