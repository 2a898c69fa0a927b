//! The load generator, and what users were told.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use super::{Settings, TOKEN_KID};
use crate::{Process, ProcessOptions};

/// Where a crowd comes to: a running stack.
pub trait Venue {
    /// Its settings.
    fn settings(&self) -> &Settings;

    /// The URLs that users go to.
    fn urls(&self) -> Vec<String>;

    /// The URLs that say whether each of them is ready, for a balancer; none by default: then
    /// users go to all of them alike.
    fn readiness_urls(&self) -> Vec<String> {
        Vec::new()
    }

    /// How many connections users have open at most; by default as many as the load generator
    /// finds right.
    fn connections(&self) -> Option<u32> {
        None
    }
}

/// Who comes, and how.
#[derive(Clone, Copy, Debug)]
pub struct Crowd {
    /// How many.
    pub users: u64,
    /// Clicks a second.
    pub rate: u64,
    /// How long a click that got no final answer is tried again, in seconds.
    pub patience: u64,
}

/// A crowd that is clicking.
#[derive(Debug)]
pub struct Clicking {
    process: Process,
    report: PathBuf,
    told: PathBuf,
    bound: Duration,
}

/// What a crowd was told.
#[derive(Debug)]
pub struct Heard {
    /// The load generator's report.
    pub report: Report,
    /// Whether every click's last answer was final, and no promise was seen broken.
    pub all_final: bool,
    /// One line an answer.
    pub told: PathBuf,
}

/// The load generator's report, as far as it counts here.
#[derive(Debug, Deserialize)]
pub struct Report {
    /// Clicks.
    pub attempts: u64,
    /// Users told of a win.
    pub won: u64,
    /// Clicks that ended so.
    pub sold_out: u64,
    /// Clicks that ended with another refusal.
    pub other_4xx: u64,
    /// Clicks that ended without a final answer.
    pub pending: u64,
    /// Clicks that ended in an error.
    pub errors: u64,
    /// Different users told of a win.
    pub distinct_winners: u64,
    /// Winners who were told another claim: a broken promise.
    pub repeats_other_claim: u64,
    /// Winners who were told "sold out": a broken promise.
    pub repeats_no_claim: u64,
    /// Answers by status.
    pub http: BTreeMap<u16, u64>,
    /// Latencies by outcome, in milliseconds.
    pub latency_ms: BTreeMap<String, Latency>,
    /// When gateways became ready and unready, if that was asked.
    pub readiness: Option<Vec<Readiness>>,
}

/// A gateway became ready, or unready.
#[derive(Clone, Debug, Deserialize)]
pub struct Readiness {
    /// When it was noticed, in Unix milliseconds.
    pub at_ms: u64,
    /// The gateway's URL.
    pub target: String,
    /// Whether it is ready from then on.
    pub ready: bool,
}

/// Latencies of one outcome, in milliseconds.
#[derive(Debug, Deserialize)]
pub struct Latency {
    /// The median; `None` when there was none.
    pub p50: Option<f64>,
    /// The longest.
    pub max: Option<f64>,
}

impl Crowd {
    /// Sends them, to all gateways; one in ten clicks twice.
    ///
    /// # Errors
    /// When the load generator cannot be started.
    pub fn come(&self, venue: &impl Venue, sale: &str) -> Result<Clicking> {
        self.come_as(venue, sale, "user-")
    }

    /// The same, with users whose names begin with this: they are others than those who came by
    /// another name.
    ///
    /// # Errors
    /// When the load generator cannot be started.
    pub fn come_as(&self, venue: &impl Venue, sale: &str, prefix: &str) -> Result<Clicking> {
        let settings = venue.settings();
        let (folder, secret) = (settings.folder(), &settings.token_secret_file);
        let file = |kind: &str| folder.join(format!("{sale}-{prefix}{kind}"));
        let (report, told) = (file("load.json"), file("told.jsonl"));
        let (users, rate) = (self.users.to_string(), self.rate.to_string());
        let budget = self.patience.to_string();
        let mut options = ProcessOptions::of_ours("dropgate-loadtest")?
            .args(["--target", &venue.urls().join(","), "--sale", sale])
            .args(["--quiet", "--user-prefix", prefix])
            .args(["--token-kid", TOKEN_KID, "--repeat-share", "0.1"])
            .args(["--users", &users, "--rate", &rate])
            .args(["--retry-budget", &budget])
            .args(["--token-secret-file", &secret.to_string_lossy()])
            .args(["--report", &report.to_string_lossy()])
            .args(["--transcript", &told.to_string_lossy()])
            .log(&file("load.log"));
        let readiness = venue.readiness_urls();
        if !readiness.is_empty() {
            options = options.args(["--readiness", &readiness.join(",")]);
        }
        if let Some(connections) = venue.connections() {
            options = options.args(["--connections", &connections.to_string()]);
        }
        let seconds = self.users / self.rate + self.patience;
        Ok(Clicking {
            process: options.start()?,
            report,
            told,
            bound: Duration::from_secs(10 * seconds),
        })
    }
}

impl Clicking {
    /// Whether somebody is still clicking.
    pub fn is_going_on(&mut self) -> bool {
        self.process.alive()
    }

    /// Nobody clicks, and nobody reads an answer, until [`Clicking::go_on`].
    ///
    /// # Errors
    /// When everybody is done.
    pub fn hold(&mut self) -> Result<()> {
        self.process.pause()
    }

    /// Ends what [`Clicking::hold`] began: all come who would have come meanwhile.
    ///
    /// # Errors
    /// When everybody is done.
    pub fn go_on(&mut self) -> Result<()> {
        self.process.resume()
    }

    /// Where the answers are written to, some time after they were given.
    #[must_use]
    pub fn told(&self) -> &Path {
        &self.told
    }

    /// Waits until everybody is done.
    ///
    /// # Errors
    /// When that does not happen within ten times as long as it may take, or the load generator
    /// could not run.
    pub fn done(mut self) -> Result<Heard> {
        let code = self.process.wait(self.bound)?;
        let output = self.process.output()?;
        ensure!(
            matches!(code, Some(0 | 1)),
            "the load generator ended with {code:?}: {output}"
        );
        let report = std::fs::read(&self.report)
            .with_context(|| format!("reading {}", self.report.display()))?;
        Ok(Heard {
            report: serde_json::from_slice(&report)?,
            all_final: code == Some(0),
            told: self.told,
        })
    }
}

impl Heard {
    /// Fails unless everybody got a final answer, and exactly `stock` of them a unit.
    ///
    /// # Errors
    /// When it is not so.
    pub fn sold_all(&self, stock: u64) -> Result<()> {
        let report = &self.report;
        ensure!(
            self.all_final
                && (report.pending, report.errors, report.other_4xx) == (0, 0, 0)
                && (report.repeats_other_claim, report.repeats_no_claim) == (0, 0)
                && (report.won, report.distinct_winners) == (stock, stock),
            "not everybody's last answer is final, or {stock} winners: {report:?}"
        );
        Ok(())
    }
}
