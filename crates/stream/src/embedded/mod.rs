//! The log in one `SQLite` file, for one machine.
//!
//! One process writes (an advisory lock on `<path>.lock`), with one thread that commits what is
//! waiting as one transaction; `journal_mode=WAL` with `synchronous=FULL` fsyncs before the
//! commit is visible to any reader, so a tail sees only what is durable. Readers of this and
//! of other processes use connections of their own, never on an async worker.

mod place;
mod reader;
mod schema;
mod writer;

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use dropgate_domain::{LogId, Offset};
use parking_lot::Mutex;
use rusqlite::Connection;
use tokio::sync::{Semaphore, watch};
use tokio::time::timeout;

use crate::config::EmbeddedConfig;
use crate::error::{AppendError, LogError, OpenError, Refused};
use crate::{Lane, LogStore, Probe, Settings};
use place::Place;
pub use reader::EmbeddedTail;
use schema::Ids;
use writer::Appender;

/// How many connections the probes of one log may use at a time.
const PROBES_MAX: usize = 4;

/// An open embedded log. Clones share it.
#[derive(Clone)]
pub struct EmbeddedLog {
    shared: Arc<Shared>,
    /// None when it was opened for reading alone.
    appender: Option<Arc<Appender>>,
}

impl fmt::Debug for EmbeddedLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EmbeddedLog")
            .field("path", &self.shared.place.path())
            .field("read_only", &self.appender.is_none())
            .finish_non_exhaustive()
    }
}

/// What the handles, the writer's thread and the tails of one open log share.
struct Shared {
    place: Place,
    ids: Ids,
    partitions: u32,
    probe_timeout: Duration,
    poll_interval: Duration,
    /// What this process has committed; none where another process may write.
    ends: Option<Ends>,
    /// Set once another file was found in the place of this log's.
    wrong: OnceLock<LogError>,
    /// Idle connections of the probes.
    idle: Mutex<Vec<Connection>>,
    probes: Arc<Semaphore>,
}

/// The end of every lane, as committed by this process, and a bell that rings when one moved.
struct Ends {
    by_lane: Box<[AtomicU64]>,
    commits: watch::Sender<u64>,
    /// False once this process has given up the right to write: another may.
    writing: AtomicBool,
}

impl Ends {
    fn new(next: &[u64]) -> Self {
        Self {
            by_lane: next.iter().map(|&n| AtomicU64::new(n)).collect(),
            commits: watch::Sender::new(0),
            writing: AtomicBool::new(true),
        }
    }

    /// Where every lane ends now; wakes whoever waits for it.
    fn publish(&self, next: &[u64]) {
        for (end, next) in self.by_lane.iter().zip(next) {
            end.store(*next, Ordering::Release);
        }
        self.commits.send_modify(|commits| *commits += 1);
    }

    fn stop(&self) {
        self.writing.store(false, Ordering::Release);
        self.commits.send_modify(|commits| *commits += 1);
    }

    fn end(&self, lane: Lane) -> Option<Offset> {
        let end = self.by_lane.get(slot(lane))?;
        Some(Offset(end.load(Ordering::Acquire)))
    }
}

/// The place of a lane in a table of all lanes: the index first.
fn slot(lane: Lane) -> usize {
    match lane {
        Lane::Index => 0,
        Lane::Claims(partition) => partition.0 as usize + 1,
    }
}

impl Shared {
    /// The ends, as long as nobody but this process can move them.
    fn own_ends(&self) -> Option<&Ends> {
        let ends = self.ends.as_ref()?;
        ends.writing.load(Ordering::Acquire).then_some(ends)
    }

    fn id_of(&self, lane: Lane) -> LogId {
        self.ids.of(lane)
    }

    /// An error once another file was found in the place of this log's.
    fn check_right(&self) -> Result<(), LogError> {
        self.wrong.get().map_or(Ok(()), |wrong| Err(wrong.clone()))
    }

    fn is_wrong(&self, expected: LogId, found: Option<LogId>) -> LogError {
        let wrong = || LogError::WrongLog {
            what: self.place.path().display().to_string(),
            expected,
            found,
        };
        self.wrong.get_or_init(wrong).clone()
    }

    /// The file is still the one that was opened. Blocks.
    fn check_place(&self) -> Result<(), LogError> {
        self.check_right()?;
        self.place.check().map_err(|reason| {
            tracing::error!(reason, "embedded log lost its file");
            self.is_wrong(self.ids.claims, None)
        })
    }

    /// A connection of the pool, or a new one. Blocks.
    fn connection(&self) -> Result<Connection, LogError> {
        if let Some(connection) = self.idle.lock().pop() {
            return Ok(connection);
        }
        schema::connect_reader(&self.place, self.probe_timeout).map_err(|e| reader::failed(&e))
    }

    /// Asks one lane. Blocks.
    fn probe(&self, lane: Lane) -> Result<Probe, LogError> {
        self.check_place()?;
        let mut connection = self.connection()?;
        let (log_id, low, end) =
            schema::probe(&mut connection, lane).map_err(|e| reader::failed(&e))?;
        let mut idle = self.idle.lock();
        if idle.len() < PROBES_MAX {
            idle.push(connection);
        }
        drop(idle);
        let expected = self.id_of(lane);
        if log_id != expected {
            return Err(self.is_wrong(expected, Some(log_id)));
        }
        Ok(Probe { log_id, low, end })
    }

    /// The offset is there, or is the end. Blocks.
    fn check_offset(&self, lane: Lane, offset: Offset) -> Result<(), LogError> {
        let Probe { low, end, .. } = self.probe(lane)?;
        if (low..=end).contains(&offset) {
            return Ok(());
        }
        Err(LogError::OutOfRange {
            lane,
            offset,
            low,
            end,
        })
    }
}

impl EmbeddedLog {
    /// Opens the file for reading and appending, or creates it if `create` is on. One process
    /// at a time.
    pub async fn open(config: &EmbeddedConfig) -> Result<Self, OpenError> {
        let config = checked(config)?;
        blocking_open(move || {
            let file = schema::open_for_writing(&config)?;
            let ends = Ends::new(&file.next);
            let shared = Arc::new(Shared::new(&config, file.opened, Some(ends)));
            let appender = Appender::start(&config, file.lock, file.connection, &shared)?;
            Ok(Self {
                shared,
                appender: Some(Arc::new(appender)),
            })
        })
        .await
    }

    /// Opens the file for reading alone, also while another process writes it.
    pub async fn open_read_only(config: &EmbeddedConfig) -> Result<Self, OpenError> {
        let config = checked(config)?;
        blocking_open(move || {
            let opened = schema::open_for_reading(&config)?;
            Ok(Self {
                shared: Arc::new(Shared::new(&config, opened, None)),
                appender: None,
            })
        })
        .await
    }
}

impl Shared {
    fn new(config: &EmbeddedConfig, opened: schema::Opened, ends: Option<Ends>) -> Self {
        Self {
            place: opened.place,
            ids: opened.ids,
            partitions: opened.partitions,
            probe_timeout: config.probe_timeout,
            poll_interval: config.poll_interval,
            ends,
            wrong: OnceLock::new(),
            idle: Mutex::new(Vec::new()),
            probes: Arc::new(Semaphore::new(PROBES_MAX)),
        }
    }
}

fn checked(config: &EmbeddedConfig) -> Result<EmbeddedConfig, OpenError> {
    let problems = config.problems();
    if problems.is_empty() {
        return Ok(config.clone());
    }
    let texts = problems.iter().map(ToString::to_string).collect();
    Err(OpenError::Config(texts))
}

async fn blocking_open<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, OpenError> + Send + 'static,
) -> Result<T, OpenError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|e| {
        Err(OpenError::Unusable {
            what: "the embedded log".to_owned(),
            reason: e.to_string(),
        })
    })
}

impl LogStore for EmbeddedLog {
    type Tail = EmbeddedTail;

    fn partitions(&self) -> u32 {
        self.shared.partitions
    }

    async fn append(&self, lane: Lane, value: Bytes) -> Result<Offset, AppendError> {
        let Some(appender) = &self.appender else {
            return Err(Refused::ReadOnly.into());
        };
        lane.checked(self.shared.partitions)
            .map_err(Refused::from)?;
        if value.len() > crate::VALUE_BYTES_MAX {
            return Err(AppendError::Refused(Refused::TooLarge {
                bytes: value.len(),
                bytes_max: crate::VALUE_BYTES_MAX,
            }));
        }
        appender.append(lane, value).await
    }

    async fn probe(&self, lane: Lane) -> Result<Probe, LogError> {
        lane.checked(self.shared.partitions)?;
        let shared = Arc::clone(&self.shared);
        blocking(&self.shared, move || shared.probe(lane)).await
    }

    async fn settings(&self) -> Result<Settings, LogError> {
        Ok(Settings { topics: Vec::new() })
    }

    async fn tail(&self, from: &[(Lane, Offset)]) -> Result<EmbeddedTail, LogError> {
        EmbeddedTail::start(Arc::clone(&self.shared), from).await
    }

    async fn close(&self, deadline: Duration) {
        if let Some(appender) = &self.appender {
            appender.close(deadline).await;
        }
    }
}

/// Runs a short read off the async workers, within the log's deadline and a bound on how many
/// there are at a time: a read that is stuck keeps its place until it ends.
async fn blocking<T: Send + 'static>(
    shared: &Shared,
    work: impl FnOnce() -> Result<T, LogError> + Send + 'static,
) -> Result<T, LogError> {
    let places = Arc::clone(&shared.probes);
    let asked = async {
        let place = places.acquire_owned().await;
        let work = move || {
            let _place = place;
            work()
        };
        tokio::task::spawn_blocking(work).await
    };
    match timeout(shared.probe_timeout, asked).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(e)) => Err(LogError::Unavailable(e.to_string())),
        Err(_) => Err(LogError::Unavailable(format!(
            "no answer from the file within {:?}",
            shared.probe_timeout
        ))),
    }
}
