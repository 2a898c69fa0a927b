//! What came of a sale, by the reconciler and by the oracle.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use dropgate_testkit::ProcessOptions;
use dropgate_testkit::tools;
use dropgate_testkit::wait::{self, Seen};

use crate::stack::Stack;

/// How long a program that compares may take.
const BOUND: Duration = Duration::from_secs(300);

/// What a program that compares says.
#[derive(Debug)]
pub struct Verdict {
    pub holds: bool,
    /// What it printed.
    pub text: String,
}

impl Stack {
    /// Closes the sale and fails unless its books balance: exactly `wins` units went to as many
    /// users, each told winner has the one row, and reconciler and oracle find every promise kept.
    /// `told` must hold every client of the sale.
    pub fn books(&self, sale: &str, wins: u64, told: &Path) -> Result<()> {
        self.close(sale)?;
        let reconciled = self.reconcile(sale, told)?;
        ensure!(reconciled.holds, "the reconciler: {}", reconciled.text);
        let judged = self.ask_the_oracle(sale, Some(told), &["--complete"])?;
        ensure!(judged.holds, "the oracle: {}", judged.text);
        let rows = self.database.sql(&format!(
            "SELECT count(*), count(DISTINCT user_id), min(unit), max(unit) FROM orders \
             WHERE sale_id = '{sale}'"
        ))?;
        let rows = rows.trim();
        ensure!(rows == format!("{wins}|{wins}|1|{wins}"), "rows: {rows}");
        Ok(())
    }

    /// Waits until the database has all that a gateway has applied. For a sale that ended without
    /// being closed, and that nobody buys from any more.
    pub fn caught_up(&self, sale: &str) -> Result<()> {
        let shown = self.admin(0).admin("GET", &format!("/{sale}"), "")?;
        let sold = shown.body["sold"].as_u64().context("how many are sold")?;
        let sql = format!("SELECT sold FROM sales WHERE sale_id = '{sale}'");
        wait::until("the database to catch up", wait::START, || {
            let rows = self.database.sql(&sql)?;
            Ok(match rows.trim() == sold.to_string() {
                true => Seen::Done(()),
                false => Seen::NotYet(format!("{rows} of {sold}")),
            })
        })
    }

    /// The reconciler's comparison of Redis, log, database and what clients were told. It waits
    /// until the database has reached the log's end.
    pub fn reconcile(&self, sale: &str, told: &Path) -> Result<Verdict> {
        let reconciler = self.file("reconciler.toml");
        let options = ProcessOptions::of_ours("dropgate-reconciler")?
            .args(["--sale", sale, "--config", &reconciler.to_string_lossy()])
            .args(["--told", &told.to_string_lossy()]);
        compare(options)
    }

    /// The oracle's comparison of a dump of the log with all other witnesses. `told` is what
    /// clients were told.
    pub fn ask_the_oracle(
        &self,
        sale: &str,
        told: Option<&Path>,
        more: &[&str],
    ) -> Result<Verdict> {
        let log = self.file(&format!("{sale}-log.jsonl"));
        let (dropgate, out) = (self.file("dropgate.toml"), log.to_string_lossy());
        let mut dump = ProcessOptions::of_ours("dropgate")?
            .args(["log", "dump", "--config", &dropgate.to_string_lossy()])
            .args(["--out", &out])
            .start()?;
        let code = dump.wait(BOUND)?;
        ensure!(code == Some(0), "the dump of the log: {}", dump.output()?);
        let oracle = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../loadtest/oracle/oracle.py");
        let mut options = ProcessOptions::program(&tools::find("python3", &[])?)
            .args([oracle.to_string_lossy(), "--sale".into(), sale.into()])
            .args(["--log", &out])
            .args(["--sql", &self.database.url()])
            .args(more.iter().copied());
        options = match told {
            Some(told) => options.args(["--told", &told.to_string_lossy()]),
            None => options.args(["--without", "told"]),
        };
        if !more.contains(&"redis") {
            options = options.args(["--redis", &self.redis.url()]);
        }
        compare(options)
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
