//! What came of a sale, by the reconciler and by the oracle.

use std::path::Path;
use std::time::Duration;

use anyhow::{Result, ensure};

use crate::{ProcessOptions, tools};

/// How long a program that compares may take.
const BOUND: Duration = Duration::from_secs(300);

/// What a program that compares says.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// Whether all that it checked holds.
    pub holds: bool,
    /// What it printed.
    pub text: String,
}

/// The reconciler's comparison of Redis, log, database and what clients were told, with its
/// configuration. It waits until the database has reached the log's end.
///
/// # Errors
/// When it could not compare.
pub fn reconcile(config: &Path, sale: &str, told: &Path) -> Result<Verdict> {
    let options = ProcessOptions::of_ours("dropgate-reconciler")?
        .args(["--sale", sale, "--config", &config.to_string_lossy()])
        .args(["--told", &told.to_string_lossy()]);
    compare(options)
}

/// Writes every record of the log to a file, with the configuration of `dropgate`.
///
/// # Errors
/// When it cannot be read.
pub fn dump_log(config: &Path, out: &Path) -> Result<()> {
    let mut dump = ProcessOptions::of_ours("dropgate")?
        .args(["log", "dump", "--config", &config.to_string_lossy()])
        .args(["--out", &out.to_string_lossy()])
        .start()?;
    let code = dump.wait(BOUND)?;
    ensure!(code == Some(0), "the dump of the log: {}", dump.output()?);
    Ok(())
}

/// What the oracle is asked about a sale, and whom it may ask.
#[derive(Clone, Debug)]
pub struct Oracle<'a> {
    /// The sale.
    pub sale: &'a str,
    /// The dump of the log.
    pub log: &'a Path,
    /// What clients were told, if it is to be asked.
    pub told: Option<&'a Path>,
    /// The URL of Redis, if it is to be asked.
    pub redis: Option<String>,
    /// The URL of the database, if it is to be asked.
    pub sql: Option<String>,
    /// Whether the transcript holds every client of the sale, and all were done.
    pub complete: bool,
}

impl Oracle<'_> {
    /// Its comparison of a dump of the log with the other witnesses.
    ///
    /// # Errors
    /// When it could not compare.
    pub fn ask(&self) -> Result<Verdict> {
        let oracle = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../loadtest/oracle/oracle.py");
        let mut args = vec![
            oracle.to_string_lossy().into_owned(),
            "--sale".to_owned(),
            self.sale.to_owned(),
            "--log".to_owned(),
            self.log.to_string_lossy().into_owned(),
        ];
        let told = self.told.map(|told| told.to_string_lossy().into_owned());
        for (name, witness) in [("told", &told), ("redis", &self.redis), ("sql", &self.sql)] {
            match witness {
                Some(witness) => args.extend([format!("--{name}"), witness.clone()]),
                None => args.extend(["--without".to_owned(), name.to_owned()]),
            }
        }
        if self.complete {
            args.push("--complete".to_owned());
        }
        compare(ProcessOptions::program(&tools::find("python3", &[])?).args(args))
    }
}

/// Runs a program that compares: 0 is yes, 1 is no, the rest is that it could not.
fn compare(options: ProcessOptions) -> Result<Verdict> {
    let mut process = options.start()?;
    let code = process.wait(BOUND)?;
    let text = process.output()?;
    ensure!(
        matches!(code, Some(0 | 1)),
        "it ended with {code:?}: {text}"
    );
    Ok(Verdict {
        holds: code == Some(0),
        text,
    })
}
