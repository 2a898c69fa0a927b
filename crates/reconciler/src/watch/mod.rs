//! The watch: recovers halted sales by itself.
//!
//! It follows the log and Redis with an engine like a gateway's, so it also halts and relays. A
//! sale that is halted, that has ended, or whose generation was begun and does not go live, is
//! recovered: bounded in rate, one attempt at a time, with its reason in the log. Any number of
//! watches may run; the log lets one of them begin a generation.

mod app;
mod config;
mod metrics;
mod plan;
mod running;

pub use app::{App, AppError};
pub use config::{OpsConfig, WatchConfig};
pub use metrics::Metrics;
pub use plan::{Memory, Next, Now, recoveries_lately};
pub use running::{Running, instance};

use dropgate_domain::{Generation, SaleId, TimeMs};
use dropgate_engine::{AdminError, Engine, Recovered, Recovery, SaleHandle};
use parking_lot::Mutex;
use serde::Serialize;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Sales are looked at when something was read, and at least so often.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);
/// And no more often than this.
const LOOK_PAUSE: Duration = Duration::from_millis(50);

/// What the watch thinks of a sale, for those who ask.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Thought {
    /// The sale.
    pub sale: String,
    /// Its generation.
    pub generation: u32,
    /// In one word: wait, recover, recovering, held, `stays_closed`, hopeless.
    pub next: &'static str,
    /// For people.
    pub says: String,
}

/// What the watch thinks, of each sale that is in trouble. Clones are the same board.
#[derive(Debug, Clone, Default)]
pub struct Board(Arc<Mutex<BTreeMap<SaleId, Thought>>>);

impl Board {
    /// All of it, by sale.
    #[must_use]
    pub fn thoughts(&self) -> Vec<Thought> {
        self.0.lock().values().cloned().collect()
    }
}

/// Recovers halted sales until it is told to stop.
#[derive(Debug)]
pub struct Watch {
    engine: Engine,
    config: WatchConfig,
    /// Who this is, in the records that it writes: for people.
    instance: String,
    metrics: Metrics,
    board: Board,
    memories: HashMap<SaleId, Memory>,
    /// Sales that are being recovered.
    recovering: HashMap<SaleId, Generation>,
    tasks: JoinSet<(SaleId, Result<Recovered, AdminError>)>,
}

impl Watch {
    /// A watch on this engine, which must have the operator's credentials.
    #[must_use]
    pub fn new(engine: Engine, config: WatchConfig, instance: String, metrics: Metrics) -> Self {
        Self {
            engine,
            config,
            instance,
            metrics,
            board: Board::default(),
            memories: HashMap::new(),
            recovering: HashMap::new(),
            tasks: JoinSet::new(),
        }
    }

    /// What it thinks.
    #[must_use]
    pub fn board(&self) -> Board {
        self.board.clone()
    }

    /// Watches until cancelled. A recovery that is on its way is given up then, which is harmless
    /// at any step.
    pub async fn run(mut self, stop: CancellationToken) {
        let mut changes = self.engine.changes();
        loop {
            self.look();
            tokio::select! {
                Some(ended) = self.tasks.join_next() => match ended {
                    Ok((sale, outcome)) => self.ended(&sale, outcome),
                    Err(error) => {
                        tracing::error!(%error, "a recovery panicked");
                        // Which one is not known; those that still run are found again.
                        self.recovering.clear();
                    }
                },
                // The engine ends only with this process, and the clock goes on.
                _ = tokio::time::timeout(LOOK_INTERVAL, changes.changed()) => {}
                () = stop.cancelled() => return,
            }
            tokio::select! {
                () = tokio::time::sleep(LOOK_PAUSE) => {}
                () = stop.cancelled() => return,
            }
        }
    }

    fn look(&mut self) {
        let held = self.config.held();
        let now = now(held.as_deref());
        for handle in self.engine.sales() {
            self.think(&handle, now);
        }
        self.metrics.count(&self.board);
    }

    fn think(&mut self, handle: &SaleHandle, now: Now<'_>) {
        let id = handle.sale().id();
        if self.recovering.contains_key(id) {
            return;
        }
        let standing = handle.standing();
        let memory = self.memories.entry(id.clone()).or_default();
        let next = memory.next(&standing, &self.config, now);
        let full = self.recovering.len() >= self.config.recoveries_at_once;
        if let (Next::Recover { reason }, false) = (&next, full) {
            let recovery = Recovery {
                sale: id.clone(),
                from: standing.generation,
                by: self.instance.clone(),
                reason: reason.clone(),
            };
            tracing::warn!(sale = %id, generation = %standing.generation, reason, "recovering");
            self.recovering.insert(id.clone(), standing.generation);
            let engine = self.engine.clone();
            self.tasks.spawn(async move {
                let outcome = engine.recover(&recovery, &|_| {}).await;
                (recovery.sale, outcome)
            });
        }
        self.note(id, standing.generation, &next);
    }

    /// Puts a thought on the board, and on record when it is news.
    fn note(&self, id: &SaleId, generation: Generation, next: &Next) {
        let mut board = self.board.0.lock();
        if *next == Next::Nothing {
            board.remove(id);
            return;
        }
        let thought = Thought {
            sale: id.to_string(),
            generation: generation.0,
            next: match next {
                Next::Recover { .. } if self.recovering.contains_key(id) => "recovering",
                other => other.word(),
            },
            says: next.to_string(),
        };
        let before = board.insert(id.clone(), thought.clone());
        if before.is_some_and(|b| b.next == thought.next && b.generation == thought.generation) {
            return;
        }
        let (sale, says) = (thought.sale, thought.says);
        match next {
            Next::StaysClosed { .. } | Next::Hopeless { .. } => {
                tracing::error!(sale, %generation, says, "a sale needs a person");
            }
            Next::Held { .. } => tracing::warn!(sale, %generation, says, "recovery held"),
            Next::Nothing | Next::Wait { .. } | Next::Recover { .. } => {}
        }
    }

    fn ended(&mut self, sale: &SaleId, outcome: Result<Recovered, AdminError>) {
        self.recovering.remove(sale);
        match outcome {
            Ok(Recovered::Begun(generation)) => {
                tracing::warn!(%sale, %generation, "sale recovered");
            }
            Ok(Recovered::Overtaken(generation)) => {
                tracing::info!(%sale, %generation, "recovered by somebody else");
            }
            Err(error) => {
                tracing::error!(%sale, %error, "recovery failed; it is tried again");
                let memory = self.memories.entry(sale.clone()).or_default();
                memory.failed(now(None));
            }
        }
    }
}

fn now(held: Option<&str>) -> Now<'_> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let wall_ms = since.map_or(0, |d| u64::try_from(d.as_millis()).unwrap_or(u64::MAX));
    Now {
        instant: Instant::now(),
        wall: TimeMs(wall_ms),
        held,
        jitter: rand::random_range(1.0..2.0),
    }
}
