//! One seed: a sale, its faults, and what came of it.

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use dropgate_testkit::http;
use dropgate_testkit::stack::{Admin, Clicking, Crowd, Readiness, Venue as _};
use dropgate_testkit::wait::{self, Seen};
use serde_json::Value;

use crate::cell::{Cell, lock};
use crate::coverage::Winners;
use crate::inject::{Injected, Injector};
use crate::judge::Case;
use crate::schedule::Schedule;
use crate::timeline::{Timeline, now_ms};
use crate::told;
use crate::watcher::Sight;

/// How long all may take to be ready when it is healed: ten times what is expected.
const HEALED_MAX: Duration = Duration::from_secs(30);

/// How long a click that got no final answer is tried again, in seconds: longer than any outage.
const PATIENCE: u64 = 90;

/// What came of a seed.
#[derive(Debug)]
pub struct Outcome {
    /// The sale.
    pub sale: String,
    /// What broke, in words; empty when all promises hold.
    pub broken: Vec<String>,
    /// What did not become well again when it was healed, in words.
    pub unsettled: Vec<String>,
    /// What was injected.
    pub injected: Injected,
    /// Told winners before, during and after the faults.
    pub winners: Winners,
    /// From each new master to the first win of the generation that it made possible, in
    /// milliseconds.
    pub resumed_ms: Vec<u64>,
    /// The gateways, by their URLs.
    pub gateways: Vec<String>,
    /// When the first crowd's balancer took gateways out and in again.
    pub readiness: Vec<Readiness>,
    /// How many generations it took.
    pub generations: u64,
    /// How long it took, all in all.
    pub took: Duration,
    /// Where its timeline and files are.
    pub folder: PathBuf,
}

/// Sells once under the faults of a schedule, on an installation that is well, and leaves it well.
///
/// # Errors
/// When the run itself failed: a process that cannot be started, a crowd that is never done.
/// The timeline is written all the same.
pub fn run(cell: &Cell, schedule: &Schedule, folder: &Path) -> Result<Outcome> {
    std::fs::create_dir_all(folder)?;
    std::fs::write(folder.join("schedule.txt"), schedule.to_string())?;
    let begun = Instant::now();
    let run = Run {
        cell,
        schedule,
        folder,
        sale: format!("chaos-{}-{}", schedule.seed, now_ms()),
        timeline: Timeline::begin(),
        told: folder.join("told.jsonl"),
    };
    let result = run.sell();
    if let Err(error) = &result {
        run.timeline.found(format!("the run failed: {error:#}"));
    }
    run.write_timeline()?;
    let mut outcome = result?;
    outcome.took = begun.elapsed();
    Ok(outcome)
}

/// How a sale went, before it is judged.
struct Course {
    injected: Injected,
    healed_ms: u64,
    unsettled: Vec<String>,
    readiness: Vec<Readiness>,
}

struct Run<'a> {
    cell: &'a Cell,
    schedule: &'a Schedule,
    folder: &'a Path,
    sale: String,
    timeline: Timeline,
    told: PathBuf,
}

impl Run<'_> {
    fn sell(&self) -> Result<Outcome> {
        let load = self.schedule.load;
        self.admin()?.open_new(&self.sale, load.stock)?;
        let sight = Sight::default();
        let course = std::thread::scope(|scope| {
            for gateway in 0..self.cell.gateways.len() {
                let (sight, sale, timeline) = (&sight, self.sale.as_str(), &self.timeline);
                scope.spawn(move || sight.look_at(self.cell, gateway, sale, timeline));
            }
            scope.spawn(|| sight.supervise(self.cell, &self.timeline));
            let result = self.under_faults(&sight);
            sight.finish();
            result
        })?;
        self.settle_and_judge(course, &sight)
    }

    /// Sends the crowd, injects the faults, heals, and sends those who come late.
    fn under_faults(&self, sight: &Sight) -> Result<Course> {
        let load = self.schedule.load;
        let crowd = |users| Crowd {
            users,
            rate: load.rate,
            patience: PATIENCE,
        };
        self.open_everywhere(wait::START)?;
        let clicking = Mutex::new(crowd(load.users).come(self.cell, &self.sale)?);
        let injected = self.inject(&clicking, sight)?;
        self.timeline.done("everything is healed");
        self.cell.heal()?;
        let mut unsettled = Vec::new();
        let ready = self.cell.wait_ready(HEALED_MAX);
        for settled in [ready, self.open_everywhere(HEALED_MAX)] {
            if let Err(error) = settled {
                self.timeline.found(format!("{error:#}"));
                unsettled.push(format!("not settled: {error:#}"));
            }
        }
        let healed_ms = now_ms();
        if unsettled.is_empty() {
            self.timeline
                .seen("healed: all is ready, the sale is open everywhere");
        }
        let late = crowd(load.late_users).come_as(self.cell, &self.sale, "late-")?;
        let first = clicking
            .into_inner()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        let readiness = self.hear(first, late)?;
        self.timeline.seen("everybody is done");
        Ok(Course {
            injected,
            healed_ms,
            unsettled,
            readiness,
        })
    }

    fn inject(&self, crowd: &Mutex<Clicking>, sight: &Sight) -> Result<Injected> {
        let injector = Injector::new(self.cell, &self.sale, crowd, sight, &self.timeline);
        let failures = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for step in &self.schedule.steps {
                let (injector, failures) = (&injector, &failures);
                scope.spawn(move || {
                    if let Err(error) = injector.play(step) {
                        lock(failures).push(error);
                    }
                });
            }
        });
        let failures = failures.into_inner().unwrap_or_default();
        match failures.into_iter().next() {
            Some(error) => Err(error),
            None => Ok(injector.injected()),
        }
    }

    fn hear(&self, first: Clicking, late: Clicking) -> Result<Vec<Readiness>> {
        let (first, late) = (first.done()?, late.done()?);
        told::join(&[&first.told, &late.told], &self.told)?;
        Ok(first.report.readiness.unwrap_or_default())
    }

    fn settle_and_judge(&self, course: Course, sight: &Sight) -> Result<Outcome> {
        let Course {
            injected,
            healed_ms,
            mut unsettled,
            readiness,
        } = course;
        match self.admin()?.close(&self.sale) {
            Ok(()) => self.timeline.done("the sale is closed"),
            Err(error) => {
                self.timeline.found(format!("{error:#}"));
                unsettled.push(format!("not closed: {error:#}"));
            }
        }
        let case = Case {
            cell: self.cell,
            sale: &self.sale,
            told: &self.told,
            forgot: &injected.forgot,
            redis_forgot: injected
                .faults
                .iter()
                .any(|(kind, _)| kind.forgets_writes()),
            folder: self.folder,
        };
        let judgement = case.judge(&self.timeline)?;
        let answers = told::read(&self.told)?;
        let first = injected.faults.iter().map(|(_, at_ms)| *at_ms).min();
        Ok(Outcome {
            sale: self.sale.clone(),
            broken: judgement.broken,
            unsettled,
            winners: told::winners(&answers, first.unwrap_or(healed_ms), healed_ms),
            resumed_ms: injected
                .promoted
                .iter()
                .filter_map(|promoted| told::first_new_win_ms(&answers, promoted))
                .collect(),
            injected,
            gateways: self.cell.urls(),
            readiness,
            generations: sight.generation(),
            took: Duration::ZERO,
            folder: self.folder.to_owned(),
        })
    }

    /// Waits until every gateway sells, in the same generation, or has sold all.
    fn open_everywhere(&self, bound: Duration) -> Result<()> {
        wait::until("the sale to be open everywhere", bound, || {
            let mut versions = Vec::new();
            for gateway in 0..self.cell.gateways.len() {
                let ports = self.cell.ports(gateway).context("a gateway")?;
                let path = format!("/v1/sales/{}", self.sale);
                let shown = match http::get(ports.public, &path) {
                    Ok(shown) => shown,
                    Err(error) => return Ok(Seen::NotYet(format!("{error:#}"))),
                };
                let body: Value = serde_json::from_str(&shown.body).unwrap_or_default();
                let open = matches!(body["state"].as_str(), Some("open" | "sold_out"));
                let generation = body["version"].as_str().and_then(|v| v.split('.').next());
                match generation {
                    Some(generation) if open => versions.push(generation.to_owned()),
                    _ => return Ok(Seen::NotYet(format!("gateway {}: {body}", gateway + 1))),
                }
            }
            versions.dedup();
            Ok(match versions.len() {
                1 => Seen::Done(()),
                _ => Seen::NotYet(format!("generations {versions:?}")),
            })
        })
    }

    fn admin(&self) -> Result<Admin<'_>> {
        Ok(Admin {
            port: self.cell.ports(0).context("a gateway")?.admin,
            key: &self.cell.settings().admin_key,
        })
    }

    fn write_timeline(&self) -> Result<()> {
        let told = told::read(&self.told).unwrap_or_default();
        let told: Vec<_> = told
            .into_iter()
            .map(|answer| (answer.done_ms, answer.status))
            .collect();
        let text = format!("{}\n{}", self.schedule, self.timeline.text(&told));
        std::fs::write(self.folder.join("timeline.txt"), text).context("writing the timeline")
    }
}
