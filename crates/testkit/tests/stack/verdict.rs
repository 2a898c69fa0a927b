//! What came of a sale, by the reconciler and by the oracle.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use dropgate_testkit::stack::verdict::{self, Oracle, Verdict};
use dropgate_testkit::wait::{self, Seen};

use crate::stack::Stack;

impl Stack {
    /// Closes the sale and fails unless its books balance: exactly `wins` units went to as many
    /// users, each told winner has the one row, and reconciler and oracle find every promise kept.
    /// `told` must hold every client of the sale.
    pub fn books(&self, sale: &str, wins: u64, told: &Path) -> Result<()> {
        self.close(sale)?;
        let reconciled = self.reconcile(sale, told)?;
        ensure!(reconciled.holds, "the reconciler: {}", reconciled.text);
        let judged = self.ask_the_oracle(sale, told, Asked::AllClients)?;
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
        verdict::reconcile(&self.file("reconciler.toml"), sale, told)
    }

    /// The oracle's comparison of a dump of the log, taken now, with all other witnesses that are
    /// not left out.
    pub fn ask_the_oracle(&self, sale: &str, told: &Path, asked: Asked) -> Result<Verdict> {
        let log = self.file(&format!("{sale}-log.jsonl"));
        verdict::dump_log(&self.file("dropgate.toml"), &log)?;
        Oracle {
            sale,
            log: &log,
            told: Some(told),
            redis: (asked != Asked::NotRedis).then(|| self.redis.url()),
            sql: Some(self.database.url()),
            complete: asked == Asked::AllClients,
        }
        .ask()
    }
}

/// Whom the oracle may believe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// Everybody, and the transcript holds every client, who all were done.
    AllClients,
    /// Everybody but Redis.
    NotRedis,
}
