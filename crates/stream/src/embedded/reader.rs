//! The reader: short reads off the async workers, one at a time.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use dropgate_domain::Offset;
use rusqlite::{Connection, params};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};

use super::{Shared, blocking, schema};
use crate::error::LogError;
use crate::{Item, Lane, LogTail, READ_BYTES_MAX};

/// The most records of one read, whatever `max` says: bounds how long a read takes.
const READ_RECORDS_MAX: usize = 4096;

/// A read under way: it hands the connection back with what it found.
type Read = JoinHandle<(Option<Connection>, Result<Vec<Item>, LogError>)>;

/// A reader of some lanes of an embedded log.
///
/// It holds nothing in memory but one read that a cancelled `next` has left behind, so a tail
/// that nobody reads costs nothing, whatever is appended.
pub struct EmbeddedTail {
    shared: Arc<Shared>,
    /// The lanes and the offset that each has to give next.
    lanes: Vec<(Lane, Offset)>,
    /// The lane that is read first next time, so that a busy lane does not starve the others.
    first: usize,
    connection: Option<Connection>,
    /// A read that began in this or in a cancelled call. Positions move only when its items
    /// are returned, so it can be picked up by any later call.
    reading: Option<Read>,
    commits: Option<watch::Receiver<u64>>,
    failed: Option<LogError>,
}

impl fmt::Debug for EmbeddedTail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EmbeddedTail")
            .field("lanes", &self.lanes)
            .field("failed", &self.failed)
            .finish_non_exhaustive()
    }
}

impl EmbeddedTail {
    pub(super) async fn start(
        shared: Arc<Shared>,
        from: &[(Lane, Offset)],
    ) -> Result<Self, LogError> {
        let mut tail = Self {
            commits: shared.ends.as_ref().map(|ends| ends.commits.subscribe()),
            shared,
            lanes: Vec::with_capacity(from.len()),
            first: 0,
            connection: None,
            reading: None,
            failed: None,
        };
        for &(lane, offset) in from {
            tail.add(lane, offset).await?;
        }
        Ok(tail)
    }

    /// The lanes that may have something new, beginning with another one each time.
    fn due(&mut self) -> Vec<(Lane, Offset)> {
        let lanes = self.lanes.len();
        self.first = (self.first + 1) % lanes.max(1);
        let ends = self.shared.own_ends();
        let news = |&(lane, next): &(Lane, Offset)| {
            ends.is_none_or(|ends| ends.end(lane).is_none_or(|end| next < end))
        };
        let from_first = self.lanes.iter().cycle().skip(self.first).take(lanes);
        from_first.copied().filter(news).collect()
    }

    /// Reads once. Cancel safe: what was read is kept for the next call.
    async fn read(&mut self, max: usize) -> Result<Vec<Item>, LogError> {
        let reading = match &mut self.reading {
            Some(reading) => reading,
            None => {
                let due = self.due();
                if due.is_empty() {
                    return Ok(Vec::new());
                }
                let (shared, connection) = (Arc::clone(&self.shared), self.connection.take());
                let max = max.min(READ_RECORDS_MAX);
                self.reading.insert(tokio::task::spawn_blocking(move || {
                    read(&shared, connection, &due, max)
                }))
            }
        };
        let done = reading.await;
        self.reading = None;
        let (connection, items) = done.map_err(|e| LogError::Unavailable(e.to_string()))?;
        self.connection = connection;
        items
    }

    /// Takes at most `max` of the items and moves the positions behind them. A read that was
    /// begun with a larger `max` than this call's gives the rest again.
    fn take(&mut self, mut items: Vec<Item>, max: usize) -> Vec<Item> {
        items.truncate(max);
        for item in &items {
            if let Some((_, next)) = self.lanes.iter_mut().find(|(lane, _)| *lane == item.lane) {
                *next = item.offset.next();
            }
        }
        items
    }

    /// Waits until there may be news, at most until the deadline. False at the deadline.
    async fn news(&mut self, deadline: Instant) -> bool {
        // Another process may write: its commits ring no bell here.
        let poll = match self.shared.own_ends() {
            Some(_) => deadline,
            None => deadline.min(Instant::now() + self.shared.poll_interval),
        };
        let rang = match &mut self.commits {
            // The bell lives in `shared`, which this tail holds: it is never closed.
            Some(commits) => timeout_at(poll, commits.changed()).await.is_ok(),
            None => {
                tokio::time::sleep_until(poll).await;
                false
            }
        };
        rang || poll < deadline
    }
}

impl LogTail for EmbeddedTail {
    async fn next(&mut self, max: usize, wait: Duration) -> Result<Vec<Item>, LogError> {
        let deadline = Instant::now() + wait;
        loop {
            if let Some(error) = &self.failed {
                return Err(error.clone());
            }
            self.shared.check_right()?;
            if let Some(commits) = &mut self.commits {
                commits.borrow_and_update();
            }
            match self.read(max).await {
                Ok(items) if !items.is_empty() || max == 0 => return Ok(self.take(items, max)),
                Ok(_) => {}
                Err(error) => {
                    if !error.is_transient() {
                        self.failed = Some(error.clone());
                    }
                    return Err(error);
                }
            }
            if !self.news(deadline).await {
                // Nothing new, which is true only as long as it is the same file.
                let shared = Arc::clone(&self.shared);
                blocking(&self.shared, move || shared.check_place()).await?;
                return Ok(Vec::new());
            }
        }
    }

    async fn add(&mut self, lane: Lane, from: Offset) -> Result<(), LogError> {
        lane.checked(self.shared.partitions)?;
        if self.lanes.iter().any(|(taken, _)| *taken == lane) {
            return Err(LogError::LaneTaken { lane });
        }
        let shared = Arc::clone(&self.shared);
        blocking(&self.shared, move || shared.check_offset(lane, from)).await?;
        self.lanes.push((lane, from));
        Ok(())
    }

    fn queued(&self) -> u64 {
        0
    }
}

/// Reads the lanes in turn, up to the bounds. Blocks.
fn read(
    shared: &Shared,
    connection: Option<Connection>,
    lanes: &[(Lane, Offset)],
    max: usize,
) -> (Option<Connection>, Result<Vec<Item>, LogError>) {
    if let Err(error) = shared.check_place() {
        return (None, Err(error));
    }
    let connection = match connection {
        Some(connection) => connection,
        None => match schema::connect_reader(&shared.place, shared.probe_timeout) {
            Ok(connection) => connection,
            Err(error) => return (None, Err(failed(&error))),
        },
    };
    let mut out = Output {
        items: Vec::new(),
        bytes: 0,
        max,
    };
    for &(lane, from) in lanes {
        if let Err(error) = out.read_lane(&connection, lane, from) {
            // What was in order before the error is returned first; the error comes again.
            if out.items.is_empty() {
                return (Some(connection), Err(error));
            }
            break;
        }
    }
    (Some(connection), Ok(out.items))
}

struct Output {
    items: Vec<Item>,
    bytes: usize,
    max: usize,
}

impl Output {
    fn is_full(&self) -> bool {
        self.items.len() >= self.max || self.bytes >= READ_BYTES_MAX
    }

    fn read_lane(
        &mut self,
        connection: &Connection,
        lane: Lane,
        from: Offset,
    ) -> Result<(), LogError> {
        let left = self.max.saturating_sub(self.items.len());
        let sql = schema::statements(lane).select;
        let mut statement = connection.prepare_cached(sql).map_err(|e| failed(&e))?;
        let mut rows = statement
            .query(params![lane.partition().0, from.0, left])
            .map_err(|e| failed(&e))?;
        let mut expected = from;
        while !self.is_full()
            && let Some(row) = rows.next().map_err(|e| failed(&e))?
        {
            let offset = Offset(row.get(0).map_err(|e| failed(&e))?);
            if offset != expected {
                return Err(LogError::Gap {
                    lane,
                    expected,
                    found: offset,
                });
            }
            let value = row
                .get_ref(1)
                .and_then(|value| Ok(value.as_blob()?))
                .map_err(|e| failed(&e))?;
            if !self.items.is_empty() && self.bytes + value.len() > READ_BYTES_MAX {
                self.bytes = READ_BYTES_MAX;
                break;
            }
            self.bytes += value.len();
            self.items.push(Item {
                lane,
                offset,
                value: Bytes::copy_from_slice(value),
            });
            expected = offset.next();
        }
        Ok(())
    }
}

/// What an error of the file means for a reader.
pub(super) fn failed(error: &rusqlite::Error) -> LogError {
    use rusqlite::ErrorCode;
    match error.sqlite_error_code() {
        Some(
            ErrorCode::DatabaseBusy
            | ErrorCode::DatabaseLocked
            | ErrorCode::OutOfMemory
            | ErrorCode::DiskFull
            | ErrorCode::SystemIoFailure
            | ErrorCode::CannotOpen
            | ErrorCode::OperationInterrupted,
        ) => LogError::Unavailable(error.to_string()),
        _ => LogError::Broken(error.to_string()),
    }
}
