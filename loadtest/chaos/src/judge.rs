//! What came of a sale: by the oracle, by the reconciler, by the fence.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use dropgate_domain::{Body, Offset, Record, SaleId};
use dropgate_model::replay::{At, Rejected, Run, replay};
use dropgate_testkit::stack::verdict::{dump_log, reconcile};
use dropgate_testkit::stack::{Oracle, Venue as _};

use crate::cell::Cell;
use crate::inject::Forgot;
use crate::records;
use crate::timeline::Timeline;
use crate::told;

/// What is judged.
pub struct Case<'a> {
    /// The installation.
    pub cell: &'a Cell,
    /// The sale, closed.
    pub sale: &'a str,
    /// What every client was told.
    pub told: &'a Path,
    /// When Redis forgot its scripts.
    pub forgot: &'a [Forgot],
    /// Whether anything was injected that makes a Redis forget writes, or two be master.
    pub redis_forgot: bool,
    /// Where what it finds is written to.
    pub folder: &'a Path,
}

/// What was found.
#[derive(Debug, Default)]
pub struct Judgement {
    /// Every broken promise, in words.
    pub broken: Vec<String>,
    /// The dump of the log.
    pub dump: PathBuf,
}

impl Case<'_> {
    /// Asks everybody.
    ///
    /// # Errors
    /// When somebody could not be asked.
    pub fn judge(&self, timeline: &Timeline) -> Result<Judgement> {
        let settings = self.cell.settings();
        let dump = self.folder.join("log.jsonl");
        let (reconciled, judged) = std::thread::scope(|scope| {
            let config = settings.folder().join("reconciler.toml");
            let reconciled = scope.spawn(move || reconcile(&config, self.sale, self.told));
            let judged = self.ask_the_oracle(&dump);
            let reconciled = reconciled.join().ok().context("the reconciler's thread")?;
            Ok::<_, anyhow::Error>((reconciled, judged))
        })?;
        let mut broken = Vec::new();
        for (who, verdict) in [("oracle", judged), ("reconciler", reconciled)] {
            match verdict {
                Ok(verdict) => {
                    std::fs::write(self.folder.join(format!("{who}.txt")), &verdict.text)?;
                    if !verdict.holds {
                        broken.extend(complaints(who, &verdict.text));
                    }
                }
                Err(error) => broken.push(format!("{who}: it could not compare: {error:#}")),
            }
        }
        match records::of_sale(&dump, self.sale) {
            Ok(records) => {
                note_generations(&records, timeline);
                broken.extend(records::fence_broken(&records, self.forgot));
                broken.extend(self.ask_the_model(&records)?);
            }
            Err(error) => broken.push(format!("the log cannot be read: {error:#}")),
        }
        for line in &broken {
            timeline.found(line.clone());
        }
        Ok(Judgement { broken, dump })
    }

    /// Whether the model could have made this run; if not, why not.
    fn ask_the_model(&self, records: &[(Offset, Record)]) -> Result<Option<String>> {
        let told = told::for_the_model(&told::read(self.told)?)?;
        let run = Run {
            sale: &SaleId::new(self.sale)?,
            records,
            told: &told,
            redis_forgot: self.redis_forgot,
        };
        Ok(match replay(&run) {
            Ok(_) => None,
            Err(Rejected {
                at: At::Told(nth),
                why,
            }) => {
                let who = told.get(nth);
                Some(format!("the model: answer {nth}, {who:?}: {why}"))
            }
            Err(rejected) => Some(format!("the model: {rejected}")),
        })
    }

    fn ask_the_oracle(&self, dump: &Path) -> Result<dropgate_testkit::stack::Verdict> {
        dump_log(&self.cell.settings().folder().join("dropgate.toml"), dump)?;
        Oracle {
            sale: self.sale,
            log: dump,
            told: Some(self.told),
            redis: Some(self.cell.redis().master_url()?),
            sql: Some(self.cell.database.url()),
            complete: true,
        }
        .ask()
    }
}

/// The lines of a report that name what is broken.
fn complaints(who: &str, text: &str) -> Vec<String> {
    const SHOWN_MAX: usize = 12;
    let is_bad = |line: &&str| {
        line.contains("BROKEN") || line.contains("NOT ALL") || line.starts_with("    ")
    };
    let bad = text.lines().filter(is_bad).take(SHOWN_MAX);
    let lines: Vec<_> = bad
        .map(|line| format!("{who}: {}", line.trim_end()))
        .collect();
    match lines.is_empty() {
        true => vec![format!("{who}: {text}")],
        false => lines,
    }
}

/// Who halted and who started, with their own words and clocks.
fn note_generations(records: &[(Offset, Record)], timeline: &Timeline) {
    for (before, (_, Record { event, .. })) in records.iter().enumerate() {
        let generation = event.generation;
        match &event.body {
            Body::Started(started) => timeline.at(
                started.at.map(|at| at.0),
                format!(
                    "log: generation {generation} started by {} ({}), after {before} \
                     records",
                    started.by, started.reason
                ),
            ),
            Body::Halted(halted) => timeline.at(
                halted.at.map(|at| at.0),
                format!(
                    "log: generation {generation} halted by {} ({})",
                    halted.by, halted.reason
                ),
            ),
            Body::Won(_) | Body::Closed(_) => {}
        }
    }
}
