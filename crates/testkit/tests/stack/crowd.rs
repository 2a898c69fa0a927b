//! The load generator, and what users were told.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use dropgate_testkit::stack::TOKEN_KID;
use dropgate_testkit::{Process, ProcessOptions};
use serde::Deserialize;
use serde_json::json;

use crate::client::{Answer, key_of, now_ms};
use crate::stack::Stack;

/// Who comes, and how.
#[derive(Clone, Copy, Debug)]
pub struct Crowd {
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
    pub report: Report,
    /// Whether every click's last answer was final, and no promise was seen broken.
    pub all_final: bool,
    /// One line an answer.
    pub told: PathBuf,
}

/// The load generator's report, as far as it counts here.
#[derive(Debug, Deserialize)]
pub struct Report {
    pub attempts: u64,
    pub won: u64,
    pub sold_out: u64,
    pub other_4xx: u64,
    pub pending: u64,
    pub errors: u64,
    pub distinct_winners: u64,
    pub repeats_other_claim: u64,
    pub repeats_no_claim: u64,
    /// Answers by status.
    pub http: BTreeMap<u16, u64>,
    pub latency_ms: BTreeMap<String, Latency>,
}

#[derive(Debug, Deserialize)]
pub struct Latency {
    pub max: Option<f64>,
}

impl Crowd {
    /// Sends them, to both gateways; one in ten clicks twice.
    pub fn come(&self, stack: &Stack, sale: &str) -> Result<Clicking> {
        let (folder, secret) = (stack.settings.folder(), &stack.settings.token_secret_file);
        let (report, told) = (
            folder.join(format!("{sale}-load.json")),
            folder.join(format!("{sale}-told.jsonl")),
        );
        let targets: Vec<_> = stack.gateways.iter().map(|gateway| gateway.url()).collect();
        let (users, rate) = (self.users.to_string(), self.rate.to_string());
        let budget = self.patience.to_string();
        let process = ProcessOptions::of_ours("dropgate-loadtest")?
            .args(["--target", &targets.join(","), "--sale", sale, "--quiet"])
            .args(["--token-kid", TOKEN_KID, "--repeat-share", "0.1"])
            .args(["--users", &users, "--rate", &rate])
            .args(["--retry-budget", &budget])
            .args(["--token-secret-file", &secret.to_string_lossy()])
            .args(["--report", &report.to_string_lossy()])
            .args(["--transcript", &told.to_string_lossy()])
            .log(&folder.join(format!("{sale}-load.log")))
            .start()?;
        let seconds = self.users / self.rate + self.patience;
        Ok(Clicking {
            process,
            report,
            told,
            bound: Duration::from_secs(10 * seconds),
        })
    }
}

impl Clicking {
    /// Waits until everybody is done.
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

/// What users of a test's own were told, in the load generator's format, so that the oracle holds
/// the answers to the same promises.
#[derive(Debug)]
pub struct Transcript {
    file: File,
    sale: String,
}

impl Transcript {
    /// Adds to this file, which need not be there yet.
    pub fn append(file: &Path, sale: &str) -> Result<Self> {
        let file = OpenOptions::new().create(true).append(true).open(file)?;
        Ok(Self {
            file,
            sale: sale.to_owned(),
        })
    }

    /// Notes a final answer of the gateway at this URL.
    pub fn note(&mut self, gateway: &str, user: &str, answer: &Answer) -> Result<()> {
        let status = match (answer.status, answer.text("status"), answer.code()) {
            (201, ..) => "won",
            (200, "won", _) => "again",
            (200, "sold_out", _) | (409, _, "sold_out") => "sold_out",
            (200, "void", _) | (503, _, "void") => "void",
            _ => "refused",
        };
        let now = now_ms()?;
        let line = json!({
            "sale": self.sale, "user": user, "key": key_of(user), "click": 0, "attempt_no": 1,
            "status": status, "http": answer.status, "code": answer.body["code"],
            "claim": answer.body["claim"], "unit": answer.body["unit"],
            "intended_ms": now, "done_ms": now, "gateway": gateway,
        });
        writeln!(self.file, "{line}")?;
        Ok(())
    }
}
