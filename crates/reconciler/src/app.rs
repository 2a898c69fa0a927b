//! The reconciliation, from the first question to the report.

use crate::config::Config;
use crate::diff::{
    Complete, Diff, Kind, RedisSale, SaleRows, compare_log, compare_redis, compare_row,
};
use crate::report::{Report, Sides};
use crate::snapshot::{self, LogReader, Read, Sources};
use crate::transcript::Transcript;
use dropgate_admission::{CallError, Scope};
use dropgate_domain::{Phase, Position, SaleId, Seq};
use serde::Serialize;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long connections may take to be closed.
const CLOSE_DEADLINE: Duration = Duration::from_secs(2);

/// What is to be reconciled.
#[derive(Debug, Clone)]
pub struct Request {
    /// The sale.
    pub sale: SaleId,
    /// What clients were told, as JSON lines.
    pub told: Option<PathBuf>,
}

/// Where something kept the sale from being checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Where {
    /// There is no such sale.
    Sale,
    /// The log.
    Log,
    /// Redis.
    Redis,
    /// The database.
    Database,
    /// The file of what clients were told.
    Told,
}

impl fmt::Display for Where {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sale => "sale",
            Self::Log => "log",
            Self::Redis => "redis",
            Self::Database => "database",
            Self::Told => "told",
        })
    }
}

/// One reason why the sale could not be checked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Obstacle {
    /// Where.
    pub source: Where,
    /// Why; names no password.
    pub reason: String,
}

impl Obstacle {
    /// An obstacle by an error's text.
    #[must_use]
    pub fn new(source: Where, reason: &impl fmt::Display) -> Self {
        Self {
            source,
            reason: reason.to_string(),
        }
    }
}

/// The sale could not be checked: all reasons that are known.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct CannotCheck(pub Vec<Obstacle>);

impl CannotCheck {
    /// For one reason.
    #[must_use]
    pub fn at(source: Where, reason: &impl fmt::Display) -> Self {
        Self(vec![Obstacle::new(source, reason)])
    }
}

impl fmt::Display for CannotCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the sale could not be checked")?;
        self.0
            .iter()
            .try_for_each(|obstacle| write!(f, "\n  {}: {}", obstacle.source, obstacle.reason))
    }
}

/// Compares Redis, log and database of a sale. Reads only.
///
/// # Errors
/// What kept it from being checked.
pub async fn reconcile(config: &Config, request: &Request) -> Result<Report, CannotCheck> {
    let sources = Sources::open(config).await?;
    let result = Reconciliation::run(config, request, &sources).await;
    sources.close(CLOSE_DEADLINE).await;
    result
}

/// A reconciliation on its way.
struct Reconciliation<'a> {
    config: &'a Config,
    sources: &'a Sources,
    id: &'a SaleId,
    log: LogReader,
    diff: Diff,
    complete: Complete,
    /// An event that did not come, though later ones had.
    missing: Option<Seq>,
}

impl<'a> Reconciliation<'a> {
    async fn run(
        config: &'a Config,
        request: &'a Request,
        sources: &'a Sources,
    ) -> Result<Report, CannotCheck> {
        let knobs = &config.reconciler;
        let log = LogReader::open(&sources.log, &request.sale, knobs.read_timeout).await?;
        let definition = &log.sale().pin().definition;
        let diff = Diff::new(
            definition.stock,
            definition.per_user_limit,
            knobs.examples_max,
        );
        let mut this = Self {
            config,
            sources,
            id: &request.sale,
            log,
            diff,
            complete: Complete {
                rows: true,
                claims: true,
            },
            missing: None,
        };
        if let Some(redis) = this.look_at_redis().await? {
            this.follow(&redis).await?;
        }
        let required = this.require();
        let rows = this.read_database(required).await?;
        this.read_claims(required).await?;
        let redis = this.last_look(required).await?;
        if let Some(path) = &request.told {
            this.read_told(path).await?;
        }
        Ok(this.report(required, rows, redis))
    }

    /// What the log's generation is in Redis; `None` when that cannot be read.
    async fn look_at_redis(&mut self) -> Result<Option<RedisSale>, CannotCheck> {
        let log_id = self.log.sale().pin().log_id;
        let generation = self.log.sale().ledger().generation();
        match snapshot::redis_sale(&self.sources.redis, self.id, log_id, generation).await? {
            Read::Whole(redis) => Ok(Some(redis)),
            Read::Unreadable(what) => {
                self.redis_unreadable(what);
                Ok(None)
            }
        }
    }

    fn redis_unreadable(&mut self, what: String) {
        if std::mem::take(&mut self.complete.claims) {
            self.diff.found().add(Kind::RedisUnreadable, || what);
        }
    }

    /// Reads the log on to what Redis has given out: it may have been on its way.
    async fn follow(&mut self, redis: &RedisSale) -> Result<(), CannotCheck> {
        let (generation, applied, phase) = {
            let ledger = self.log.sale().ledger();
            (ledger.generation(), ledger.applied(), ledger.phase())
        };
        let given = redis.state.as_ref().map_or(Seq(0), |state| state.seq);
        // Of an ended generation nothing more will apply.
        if given <= applied || !matches!(phase, Phase::Open | Phase::Closed | Phase::Halted(_)) {
            return Ok(());
        }
        let wait = self.config.reconciler.wait;
        self.log.catch_up((generation, given), wait).await
    }

    /// What is in the log by now must be everywhere.
    fn require(&mut self) -> Option<Position> {
        let ledger = self.log.sale().ledger();
        self.diff.require(ledger.wins());
        ledger.position()
    }

    /// Waits for the database and reads its orders; `None` when its row cannot be read.
    async fn read_database(
        &mut self,
        required: Option<Position>,
    ) -> Result<Option<SaleRows>, CannotCheck> {
        let store = &self.sources.store;
        let wait = self.config.reconciler.wait;
        let before = match snapshot::sale_row_at(store, self.id, required, wait).await? {
            Read::Whole(row) => row,
            Read::Unreadable(what) => return Ok(self.row_unreadable(what)),
        };
        let mut pages = store.orders(self.id, self.config.reconciler.page_rows);
        let mut orders = 0;
        loop {
            let page = match snapshot::whole(pages.next().await)? {
                Read::Whole(Some(page)) => page,
                Read::Whole(None) => break,
                Read::Unreadable(what) => {
                    let _ = self.row_unreadable(what);
                    break;
                }
            };
            orders += page.len() as u64;
            let ledger = self.log.sale().ledger();
            for order in &page {
                self.diff.row(ledger.wins(), order);
            }
        }
        let after = match snapshot::sale_row(store, self.id).await? {
            Read::Whole(row) => row,
            Read::Unreadable(what) => return Ok(self.row_unreadable(what)),
        };
        Ok(Some(SaleRows {
            before,
            after,
            orders: self.complete.rows.then_some(orders),
        }))
    }

    fn row_unreadable(&mut self, what: String) -> Option<SaleRows> {
        if std::mem::take(&mut self.complete.rows) {
            self.diff.found().add(Kind::UnreadableRow, || what);
        }
        None
    }

    /// Reads the claims of the log's generation.
    async fn read_claims(&mut self, required: Option<Position>) -> Result<(), CannotCheck> {
        let Some(required) = required else {
            return Ok(());
        };
        let log_id = self.log.sale().pin().log_id;
        let scope = Scope::new(self.id.clone(), log_id, required.generation);
        let mut from = None;
        loop {
            let redis = &self.sources.redis;
            let page = match redis.scan_claims(&scope, from.as_deref()).await {
                Ok(page) => page,
                Err(CallError::Protocol(what)) => {
                    self.redis_unreadable(what);
                    return Ok(());
                }
                Err(error) => return Err(CannotCheck::at(Where::Redis, &error)),
            };
            let ledger = self.log.sale().ledger();
            for (user, entries) in &page.claims {
                self.diff.claim(ledger.wins(), user, entries);
            }
            from = page.next;
            if from.is_none() {
                return Ok(());
            }
        }
    }

    /// Reads the log on to what the others may have seen of it, then looks at Redis, and reads on
    /// to what that has given out by now. `None` when it cannot be read; else with how far the
    /// log was before.
    async fn last_look(
        &mut self,
        required: Option<Position>,
    ) -> Result<Option<(Option<Position>, RedisSale)>, CannotCheck> {
        let read_timeout = self.config.reconciler.read_timeout;
        self.log.read_to_end(read_timeout).await?;
        let before = self.log.sale().ledger().position();
        let redis = self.look_at_redis().await?;
        if let Some(redis) = &redis {
            self.follow(redis).await?;
            // A generation that began since is in the log before it is in Redis.
            self.log.read_to_end(read_timeout).await?;
        }
        self.fill_gap().await?;
        let now = self.log.sale().ledger().position();
        if required.map(|position| position.generation) != now.map(|position| position.generation) {
            let reason = "another generation began while it was compared: try again";
            return Err(CannotCheck::at(Where::Sale, &reason));
        }
        Ok(redis.map(|redis| (before, redis)))
    }

    /// Records are published at once and come in any order: a gap may be about to be filled.
    async fn fill_gap(&mut self) -> Result<(), CannotCheck> {
        let gap = |log: &LogReader| {
            let ledger = log.sale().ledger();
            (ledger.buffered() > 0).then(|| (ledger.generation(), ledger.applied().next()))
        };
        let Some(before) = gap(&self.log) else {
            return Ok(());
        };
        let wait = self.config.reconciler.wait;
        self.log.catch_up(before, wait).await?;
        if gap(&self.log) == Some(before) {
            self.missing = Some(before.1);
        }
        Ok(())
    }

    async fn read_told(&mut self, path: &Path) -> Result<(), CannotCheck> {
        self.diff.ask_clients();
        let mut transcript = Transcript::open(path).await?;
        while let Some(told) = transcript.next(self.id).await? {
            let ledger = self.log.sale().ledger();
            self.diff.told(ledger.wins(), &told);
        }
        Ok(())
    }

    fn report(
        mut self,
        required: Option<Position>,
        rows: Option<SaleRows>,
        redis: Option<(Option<Position>, RedisSale)>,
    ) -> Report {
        let sale = self.log.sale();
        let ledger = sale.ledger();
        let found = self.diff.found();
        compare_log(&ledger, self.missing, found);
        if let Some(rows) = &rows {
            compare_row(&ledger, sale.pin(), required, rows, found);
        }
        if let Some((before, redis)) = &redis {
            compare_redis(&ledger, sale.pin(), *before, redis, found);
        }
        let row = rows.and_then(|rows| rows.after);
        let written = row.as_ref().map(|row| row.position);
        let compared = self.diff.finish(ledger.wins(), written, self.complete);
        Report::new(&Sides {
            pin: sale.pin(),
            ledger: &ledger,
            tally: self.log.tally(),
            end: self.log.end(),
            compared: &compared,
            redis: redis.as_ref().map(|(_, redis)| redis),
            row: row.as_ref(),
        })
    }
}
