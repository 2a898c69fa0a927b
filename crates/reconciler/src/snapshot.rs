//! The reads: everything that is asked of the log, Redis and the database.

use crate::app::{CannotCheck, Obstacle, Where};
use crate::config::Config;
use crate::diff::RedisSale;
use dropgate_admission::{CallError, Operator, Scope};
use dropgate_domain::{Fed, Generation, LogId, Offset, Position, SaleId, Seq};
use dropgate_engine::{Fold, Judged, Sale};
use dropgate_store::{SaleRow, Store, StoreConfig, StoreError};
use dropgate_stream::{Lane, Log};
use secrecy::ExposeSecret;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// How long one step waits for a record.
const STEP_WAIT: Duration = Duration::from_millis(200);
/// The pause between two looks at something that is waited for.
const PAUSE: Duration = Duration::from_millis(100);

/// The three sources, open for reading.
pub struct Sources {
    /// The log.
    pub log: Log,
    /// Redis.
    pub redis: Operator,
    /// The database.
    pub store: Store,
}

impl Sources {
    /// Reaches for all three.
    ///
    /// # Errors
    /// All that do not answer, at once.
    pub async fn open(config: &Config) -> Result<Self, CannotCheck> {
        let (log, redis, store) = tokio::join!(
            Log::open_read_only(&config.log),
            open_redis(config),
            open_store(&config.store),
        );
        let mut obstacles = Vec::new();
        let log = log.map_err(|error| obstacles.push(Obstacle::new(Where::Log, &error)));
        let redis = redis.map_err(|obstacle| obstacles.push(obstacle));
        let store = store.map_err(|obstacle| obstacles.push(obstacle));
        match (log, redis, store) {
            (Ok(log), Ok(redis), Ok(store)) => Ok(Self { log, redis, store }),
            _ => Err(CannotCheck(obstacles)),
        }
    }

    /// Closes the connections.
    pub async fn close(&self, deadline: Duration) {
        self.redis.shutdown().await;
        self.store.close(deadline).await;
        self.log.close(deadline).await;
    }
}

async fn open_redis(config: &Config) -> Result<Operator, Obstacle> {
    let connected = Operator::connect(&config.redis).await;
    let redis = connected.map_err(|error| Obstacle::new(Where::Redis, &error))?;
    // A client connects in the background: only a question tells.
    let answers = redis.ping().await;
    answers.map_err(|error| Obstacle::new(Where::Redis, &error))?;
    Ok(redis)
}

/// The database, which answers; a file that is not there is not made.
///
/// # Errors
/// Why it cannot be read.
pub async fn open_store(config: &StoreConfig) -> Result<Store, Obstacle> {
    // A SQLite file that is not there would be made; to look for it changes nothing.
    let url = config.url.expose_secret();
    if let Some(path) = url.strip_prefix("sqlite:") {
        let path = path
            .trim_start_matches("//")
            .split('?')
            .next()
            .unwrap_or_default();
        let path = path.replace("%3F", "?").replace("%25", "%");
        if tokio::fs::metadata(&path).await.is_err() {
            let reason = format!("there is no file {path}");
            return Err(Obstacle::new(Where::Database, &reason));
        }
    }
    let store = Store::connect(config).await;
    store.map_err(|error| Obstacle::new(Where::Database, &error))
}

/// What became of the records of one sale.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tally {
    /// Records that name the sale.
    pub records: u64,
    /// The same bytes again.
    pub duplicates: u64,
    /// Records of a generation that was over.
    pub void: u64,
    /// Generations that ended by a record that breaks the rule.
    pub ended: u64,
    /// Halts.
    pub halts: u64,
    /// Records that name the sale where it is not pinned: counted, never applied.
    pub foreign: u64,
}

impl Tally {
    fn judged(&mut self, judged: &Judged) {
        self.records += 1;
        match judged {
            Judged::Fed(Fed::Duplicate) => self.duplicates += 1,
            Judged::Fed(Fed::Void) => self.void += 1,
            Judged::Fed(Fed::Ended(_)) => self.ended += 1,
            Judged::Fed(Fed::Halted) => self.halts += 1,
            Judged::Foreign => self.foreign += 1,
            Judged::Fed(Fed::Applied(_) | Fed::Buffered | Fed::Started(_)) | Judged::GaveUp(_) => {}
        }
    }
}

/// The sale's log, folded as far as it has been read.
pub struct LogReader {
    log: Log,
    fold: Fold,
    sale: Arc<Sale>,
    tally: Tally,
    /// The end that was asked for last.
    end: Offset,
}

impl LogReader {
    /// Finds the sale in the index and reads its log to the end that it has now.
    ///
    /// # Errors
    /// No such sale, or a log that cannot be read.
    pub async fn open(log: &Log, id: &SaleId, timeout: Duration) -> Result<Self, CannotCheck> {
        let fold = Fold::open(log).await.map_err(|error| in_log(&error))?;
        let Some(sale) = fold.sale(id).cloned() else {
            let reason = format!("there is no sale {id} in the log's index");
            return Err(CannotCheck::at(Where::Sale, &reason));
        };
        let mut reader = Self {
            log: log.clone(),
            fold,
            sale,
            tally: Tally::default(),
            end: Offset(0),
        };
        reader.read_to_end(timeout).await?;
        Ok(reader)
    }

    /// The sale.
    #[must_use]
    pub fn sale(&self) -> &Arc<Sale> {
        &self.sale
    }

    /// What became of its records.
    #[must_use]
    pub fn tally(&self) -> Tally {
        self.tally
    }

    /// The end of its partition to which it has been read.
    #[must_use]
    pub fn end(&self) -> Offset {
        self.end
    }

    /// Reads to the end that the log has now.
    ///
    /// # Errors
    /// A log that cannot be read, or not in time.
    pub async fn read_to_end(&mut self, timeout: Duration) -> Result<(), CannotCheck> {
        let deadline = Instant::now() + timeout;
        let partition = self.sale.pin().partition;
        let probe = self.log.probe(Lane::Claims(partition)).await;
        self.end = probe.map_err(|error| in_log(&error))?.end;
        loop {
            let next = self.fold.positions().get(&partition).copied();
            if next.unwrap_or_default() >= self.end {
                return self.followable();
            }
            if Instant::now() > deadline {
                let next = next.unwrap_or_default();
                let reason = format!(
                    "read to offset {next} of {} of partition {partition} within {timeout:?}",
                    self.end
                );
                return Err(CannotCheck::at(Where::Log, &reason));
            }
            self.step().await?;
        }
    }

    /// Reads on until the ledger has applied this event, if that comes in time.
    ///
    /// # Errors
    /// A log that cannot be read.
    pub async fn catch_up(
        &mut self,
        (generation, seq): (Generation, Seq),
        wait: Duration,
    ) -> Result<(), CannotCheck> {
        let deadline = Instant::now() + wait;
        while Instant::now() < deadline {
            let at = {
                let ledger = self.sale.ledger();
                (ledger.generation(), ledger.applied())
            };
            if at >= (generation, seq) {
                break;
            }
            self.step().await?;
        }
        self.followable()
    }

    async fn step(&mut self) -> Result<(), CannotCheck> {
        match self.fold.step(STEP_WAIT).await {
            Ok(step) => {
                let ours = |named: &Option<SaleId>| named.as_ref() == Some(self.sale.id());
                for (_, judged) in step.judged.iter().filter(|(named, _)| ours(named)) {
                    self.tally.judged(judged);
                }
                Ok(())
            }
            Err(error) if error.is_transient() => {
                tracing::warn!(%error, "log not read, trying again");
                sleep(PAUSE).await;
                Ok(())
            }
            Err(error) => Err(in_log(&error)),
        }
    }

    fn followable(&self) -> Result<(), CannotCheck> {
        match self.sale.unfollowable() {
            None => Ok(()),
            Some(why) => Err(in_log(&why)),
        }
    }
}

fn in_log(error: &impl std::fmt::Display) -> CannotCheck {
    CannotCheck::at(Where::Log, error)
}

/// An answer, or that what is there can be of no release.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Read<T> {
    /// The answer.
    Whole(T),
    /// Why it cannot be read.
    Unreadable(String),
}

/// What Redis says of a sale and of its generation in the log.
///
/// # Errors
/// It does not answer, or refuses the user.
pub async fn redis_sale(
    redis: &Operator,
    sale: &SaleId,
    log: LogId,
    generation: Generation,
) -> Result<Read<RedisSale>, CannotCheck> {
    let current = redis.current(sale).await;
    let state = match generation {
        Generation(0) => Ok(None),
        _ => {
            redis
                .state(&Scope::new(sale.clone(), log, generation))
                .await
        }
    };
    match (current, state) {
        (Ok(current), Ok(state)) => Ok(Read::Whole(RedisSale { current, state })),
        (Err(CallError::Protocol(what)), _) | (_, Err(CallError::Protocol(what))) => {
            Ok(Read::Unreadable(what))
        }
        (Err(error), _) | (_, Err(error)) => Err(CannotCheck::at(Where::Redis, &error)),
    }
}

/// The database's row of a sale.
///
/// # Errors
/// The database does not answer.
pub async fn sale_row(store: &Store, sale: &SaleId) -> Result<Read<Option<SaleRow>>, CannotCheck> {
    whole(store.sale(sale).await)
}

/// The same as soon as its position is `required`, or when the wait is over.
///
/// # Errors
/// The database does not answer.
pub async fn sale_row_at(
    store: &Store,
    sale: &SaleId,
    required: Option<Position>,
    wait: Duration,
) -> Result<Read<Option<SaleRow>>, CannotCheck> {
    let deadline = Instant::now() + wait;
    loop {
        let row = sale_row(store, sale).await?;
        let reached = match (required, &row) {
            (None, _) | (_, Read::Unreadable(_)) => true,
            (Some(_), Read::Whole(None)) => false,
            (Some(required), Read::Whole(Some(row))) => {
                let at = row.position;
                (at.generation, at.seq) >= (required.generation, required.seq)
            }
        };
        if reached || Instant::now() + PAUSE > deadline {
            return Ok(row);
        }
        sleep(PAUSE).await;
    }
}

/// An answer of the database.
///
/// # Errors
/// It does not answer.
pub fn whole<T>(answer: Result<T, StoreError>) -> Result<Read<T>, CannotCheck> {
    match answer {
        Ok(answer) => Ok(Read::Whole(answer)),
        Err(StoreError::Corrupt(what)) => Ok(Read::Unreadable(what)),
        Err(error) => Err(CannotCheck::at(Where::Database, &error)),
    }
}
