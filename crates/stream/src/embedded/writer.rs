//! The one writer: a thread that commits what is waiting, in groups.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use dropgate_domain::Offset;
use parking_lot::Mutex;
use rusqlite::{Connection, ErrorCode, params};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot, watch};
use tokio::time::{Instant, timeout, timeout_at};

use super::place::WriterLock;
use super::{Shared, schema, slot};
use crate::Lane;
use crate::config::EmbeddedConfig;
use crate::error::{AppendError, OpenError, Refused};

/// How many records may wait for the writer.
const QUEUE_RECORDS_MAX: usize = 8192;
/// How many KiB of records may wait for the writer or be in its hands.
const QUEUE_KIB_MAX: usize = 64 * 1024;
/// The most records of one commit.
const COMMIT_RECORDS_MAX: usize = 4096;
/// The most bytes of one commit, as long as it has more than one record.
const COMMIT_BYTES_MAX: usize = 8 * 1024 * 1024;

type Answer = Result<Offset, AppendError>;

/// A record on its way to the writer.
struct Job {
    lane: Lane,
    value: Bytes,
    answer: oneshot::Sender<Answer>,
    /// Its share of the memory that waiting records may take.
    _room: OwnedSemaphorePermit,
}

/// The side of the writer that the handles hold.
pub(super) struct Appender {
    /// None once closed: the writer's thread ends when the last sender is gone.
    queue: Mutex<Option<mpsc::Sender<Job>>>,
    room: Arc<Semaphore>,
    append_timeout: Duration,
    /// Ends when the writer's thread does.
    running: watch::Receiver<()>,
}

impl Appender {
    /// Starts the writer's thread, which owns the lock and the connection until it ends.
    pub(super) fn start(
        config: &EmbeddedConfig,
        lock: WriterLock,
        connection: Connection,
        shared: &Arc<Shared>,
    ) -> Result<Self, OpenError> {
        let (queue, jobs) = mpsc::channel(QUEUE_RECORDS_MAX);
        let (alive, running) = watch::channel(());
        let writer = Writer {
            connection,
            shared: Arc::clone(shared),
            broken: None,
        };
        let tails = Arc::clone(shared);
        let work = move || {
            writer.run(jobs);
            if let Some(ends) = &tails.ends {
                ends.stop();
            }
            // In this order: whoever sees the thread ended can open the file at once.
            drop(lock);
            drop(alive);
        };
        std::thread::Builder::new()
            .name("dropgate-log".to_owned())
            .spawn(work)
            .map_err(|e| OpenError::Unusable {
                what: "the embedded log's writer".to_owned(),
                reason: e.to_string(),
            })?;
        Ok(Self {
            queue: Mutex::new(Some(queue)),
            room: Arc::new(Semaphore::new(QUEUE_KIB_MAX)),
            append_timeout: config.append_timeout,
            running,
        })
    }

    /// Hands a record to the writer and waits for its commit.
    pub(super) async fn append(&self, lane: Lane, value: Bytes) -> Answer {
        let deadline = Instant::now() + self.append_timeout;
        let queue = self.queue.lock().clone().ok_or(Refused::Closed)?;
        let (answer, committed) = oneshot::channel();
        let accepted = async {
            // At most 1 MiB: fits a u32.
            let kib = u32::try_from(value.len() / 1024 + 1).unwrap_or(u32::MAX);
            let room = Arc::clone(&self.room).acquire_many_owned(kib).await;
            let place = queue.reserve().await.map_err(|_| Refused::Closed)?;
            place.send(Job {
                lane,
                value,
                answer,
                _room: room.map_err(|_| Refused::Closed)?,
            });
            Ok(())
        };
        match timeout_at(deadline, accepted).await {
            Ok(accepted) => accepted.map_err(AppendError::Refused)?,
            Err(_) => return Err(Refused::Busy.into()),
        }
        // The writer drains the queue before it ends: this handle need not keep it alive.
        drop(queue);
        match timeout_at(deadline, committed).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Err(AppendError::Unknown("the writer ended".to_owned())),
            Err(_) => Err(AppendError::Unknown(format!(
                "not committed within {:?}",
                self.append_timeout
            ))),
        }
    }

    /// Accepts no more and waits until what was accepted is committed and the file released.
    pub(super) async fn close(&self, deadline: Duration) {
        self.queue.lock().take();
        let mut running = self.running.clone();
        // Nothing is ever sent: this ends when the thread drops its side.
        if timeout(deadline, running.changed()).await.is_err() {
            tracing::warn!(?deadline, "embedded log not closed in time");
        }
    }
}

/// Where a group failed.
enum Failure {
    /// Before the commit: rolled back, nothing is written.
    Before(rusqlite::Error),
    /// In the commit or after it: the records may be in the file.
    At(String),
}

struct Writer {
    connection: Connection,
    shared: Arc<Shared>,
    /// Why nothing may be written any more.
    broken: Option<String>,
}

impl Writer {
    fn run(mut self, mut jobs: mpsc::Receiver<Job>) {
        let mut group = Vec::new();
        while let Some(first) = jobs.blocking_recv() {
            let mut bytes = first.value.len();
            group.push(first);
            while group.len() < COMMIT_RECORDS_MAX && bytes < COMMIT_BYTES_MAX {
                let Ok(next) = jobs.try_recv() else { break };
                bytes += next.value.len();
                group.push(next);
            }
            let answers = self.commit(&group);
            for (job, answer) in group.drain(..).zip(answers) {
                // Nobody waits for the answer of an append that was given up.
                let _ = job.answer.send(answer);
            }
        }
    }

    /// Commits a group; one answer for each of its records.
    fn commit(&mut self, group: &[Job]) -> Vec<Answer> {
        if let Some(reason) = &self.broken {
            return refused(group, &Refused::Broken(reason.clone()));
        }
        match self.write(group) {
            Ok(offsets) => offsets.into_iter().map(Ok).collect(),
            Err(Failure::Before(error)) => {
                tracing::error!(%error, "embedded log refused a group of records");
                if is_final(&error) {
                    self.broken = Some(error.to_string());
                    return refused(group, &Refused::Broken(error.to_string()));
                }
                refused(group, &Refused::Backend(error.to_string()))
            }
            Err(Failure::At(reason)) => {
                tracing::error!(reason, "embedded log may not have kept a group of records");
                group
                    .iter()
                    .map(|_| Err(AppendError::Unknown(reason.clone())))
                    .collect()
            }
        }
    }

    fn write(&mut self, group: &[Job]) -> Result<Vec<Offset>, Failure> {
        let Some(ends) = &self.shared.ends else {
            return Err(Failure::At("the writer does not know the ends".to_owned()));
        };
        let mut next: Vec<u64> = ends
            .by_lane
            .iter()
            .map(|end| end.load(Ordering::Acquire))
            .collect();
        let offsets = insert(&self.connection, group, &mut next).map_err(Failure::Before);
        let offsets = match offsets {
            Ok(offsets) => offsets,
            Err(failure) => {
                self.roll_back();
                return Err(failure);
            }
        };
        if let Err(error) = self.connection.execute_batch("COMMIT") {
            self.resync(&error);
            return Err(Failure::At(error.to_string()));
        }
        // An acknowledgement says that after the commit the log was still under its path.
        if let Err(error) = self.shared.check_place() {
            self.broken = Some(error.to_string());
            return Err(Failure::At(error.to_string()));
        }
        ends.publish(&next);
        Ok(offsets)
    }

    fn roll_back(&mut self) {
        // SQLite has rolled back by itself after some errors, a full disk among them.
        if !self.connection.is_autocommit()
            && let Err(error) = self.connection.execute_batch("ROLLBACK")
        {
            self.broken = Some(format!("cannot roll back: {error}"));
        }
    }

    /// After a failed commit: with a full disk the log stays usable, from what the file says
    /// that it holds. After any other error nobody knows what the disk holds: no more writes.
    fn resync(&mut self, error: &rusqlite::Error) {
        self.roll_back();
        if error.sqlite_error_code() != Some(ErrorCode::DiskFull) {
            self.broken = Some(format!("a commit failed: {error}"));
            return;
        }
        match (
            schema::ends(&mut self.connection, self.shared.partitions),
            &self.shared.ends,
        ) {
            (Ok(next), Some(ends)) => ends.publish(&next),
            (Err(error), _) => self.broken = Some(format!("cannot read the ends: {error}")),
            (_, None) => {}
        }
    }
}

fn refused(group: &[Job], why: &Refused) -> Vec<Answer> {
    group.iter().map(|_| Err(why.clone().into())).collect()
}

/// Begins a transaction and inserts the group, counting the next offsets on.
fn insert(
    connection: &Connection,
    group: &[Job],
    next: &mut [u64],
) -> rusqlite::Result<Vec<Offset>> {
    connection.execute_batch("BEGIN IMMEDIATE")?;
    let mut offsets = Vec::with_capacity(group.len());
    for job in group {
        // The lane was checked when the record was accepted.
        let Some(next) = next.get_mut(slot(job.lane)) else {
            return Err(rusqlite::Error::InvalidQuery);
        };
        let mut statement = connection.prepare_cached(schema::statements(job.lane).insert)?;
        statement.execute(params![job.lane.partition().0, *next, &job.value[..]])?;
        offsets.push(Offset(*next));
        *next += 1;
    }
    Ok(offsets)
}

/// Errors after which writing on could do harm: the file is damaged, or somebody else wrote it.
fn is_final(error: &rusqlite::Error) -> bool {
    matches!(
        error.sqlite_error_code(),
        Some(
            ErrorCode::DatabaseCorrupt
                | ErrorCode::NotADatabase
                | ErrorCode::ConstraintViolation
                | ErrorCode::ReadOnly
                | ErrorCode::SchemaChanged
        )
    )
}

#[cfg(test)]
mod tests {
    use dropgate_domain::PartitionId;

    use super::super::Ends;
    use super::*;

    const P0: Lane = Lane::Claims(PartitionId(0));

    /// A writer that is called by hand.
    fn writer(folder: &tempfile::TempDir) -> (Writer, WriterLock) {
        let config = EmbeddedConfig {
            path: folder.path().join("log.db"),
            ..EmbeddedConfig::default()
        };
        let file = schema::open_for_writing(&config).unwrap();
        let ends = Ends::new(&file.next);
        let shared = Arc::new(Shared::new(&config, file.opened, Some(ends)));
        let writer = Writer {
            connection: file.connection,
            shared,
            broken: None,
        };
        (writer, file.lock)
    }

    fn commit(writer: &mut Writer, values: &[&Bytes]) -> Vec<Answer> {
        let room = Arc::new(Semaphore::new(values.len()));
        let job = |value: &&Bytes| Job {
            lane: P0,
            value: Bytes::clone(value),
            answer: oneshot::channel().0,
            _room: Arc::clone(&room).try_acquire_owned().unwrap(),
        };
        let group: Vec<_> = values.iter().map(job).collect();
        writer.commit(&group)
    }

    #[test]
    fn a_full_disk_refuses_a_whole_group_and_the_log_stays_usable() {
        let folder = tempfile::tempdir().unwrap();
        let (mut writer, _lock) = writer(&folder);
        let small = Bytes::from_static(b"small");
        assert_eq!(commit(&mut writer, &[&small]), [Ok(Offset(0))]);
        let pages: u32 = writer
            .connection
            .pragma_query_value(None, "page_count", |row| row.get(0))
            .unwrap();
        let bound = |writer: &Writer, pages: u32| {
            writer
                .connection
                .pragma_update_and_check(None, "max_page_count", pages, |row| row.get::<_, u32>(0))
                .unwrap();
        };
        bound(&writer, pages + 10);
        let large = Bytes::from(vec![0; 100_000]);
        for _ in 0..2 {
            let told = commit(&mut writer, &[&small, &large]);
            for answer in told {
                assert!(
                    matches!(answer, Err(AppendError::Refused(Refused::Backend(_)))),
                    "{answer:?}"
                );
            }
        }
        // What still fits is taken, at the offset that the refused group had in its hands.
        assert_eq!(commit(&mut writer, &[&small]), [Ok(Offset(1))]);
        bound(&writer, pages + 1000);
        assert_eq!(
            commit(&mut writer, &[&large, &small]),
            [Ok(Offset(2)), Ok(Offset(3))]
        );
    }

    #[test]
    fn after_a_failed_commit_nothing_is_written_any_more() {
        let folder = tempfile::tempdir().unwrap();
        let (mut writer, _lock) = writer(&folder);
        // A constraint that is checked at the commit.
        let fail = "PRAGMA foreign_keys = ON;
            CREATE TABLE parents (id INTEGER PRIMARY KEY);
            CREATE TABLE children (id REFERENCES parents DEFERRABLE INITIALLY DEFERRED);
            CREATE TRIGGER fail AFTER INSERT ON claims BEGIN INSERT INTO children VALUES (1); END;";
        writer.connection.execute_batch(fail).unwrap();
        let value = Bytes::from_static(b"v");
        let told = commit(&mut writer, &[&value]);
        assert!(matches!(told[0], Err(AppendError::Unknown(_))), "{told:?}");
        writer
            .connection
            .execute_batch("DROP TRIGGER fail")
            .unwrap();
        let told = commit(&mut writer, &[&value]);
        assert!(
            matches!(told[0], Err(AppendError::Refused(Refused::Broken(_)))),
            "{told:?}"
        );
    }
}
