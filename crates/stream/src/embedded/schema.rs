//! What is in the file, and how it is opened.

use std::path::{Path, PathBuf};
use std::time::Duration;

use dropgate_domain::{LogId, Offset, PartitionId};
use rusqlite::{Connection, OpenFlags, Transaction, TransactionBehavior, params};

use super::place::{Place, WriterLock};
use crate::Lane;
use crate::config::EmbeddedConfig;
use crate::error::OpenError;

/// `DRPL`: tells `file(1)` and us that this is a log of ours.
const APPLICATION_ID: i32 = 0x4452_504C;
/// The version of the tables below.
const FORMAT: i32 = 1;
/// The WAL is cut back to this after a checkpoint, so that a burst does not keep its disk space.
const WAL_BYTES_KEPT: u32 = 64 * 1024 * 1024;

const TABLES: &str = "
CREATE TABLE topics (
  name TEXT PRIMARY KEY,
  log_id BLOB NOT NULL CHECK (length(log_id) = 16),
  partitions INTEGER NOT NULL CHECK (partitions > 0)
) STRICT, WITHOUT ROWID;
CREATE TABLE sales (
  part INTEGER NOT NULL, off INTEGER NOT NULL, value BLOB NOT NULL,
  PRIMARY KEY (part, off)
) STRICT, WITHOUT ROWID;
CREATE TABLE claims (
  part INTEGER NOT NULL, off INTEGER NOT NULL, value BLOB NOT NULL,
  PRIMARY KEY (part, off)
) STRICT, WITHOUT ROWID;
";
const TOPIC_INDEX: &str = "dropgate-sales";
const TOPIC_CLAIMS: &str = "dropgate-claims";

/// The statements of one topic's table.
pub(super) struct Statements {
    topic: &'static str,
    pub(super) insert: &'static str,
    pub(super) select: &'static str,
    bounds: &'static str,
}

const INDEX: Statements = Statements {
    topic: TOPIC_INDEX,
    insert: "INSERT INTO sales (part, off, value) VALUES (?1, ?2, ?3)",
    select: "SELECT off, value FROM sales WHERE part = ?1 AND off >= ?2 ORDER BY off LIMIT ?3",
    bounds: "SELECT (SELECT min(off) FROM sales WHERE part = ?1), \
             (SELECT max(off) FROM sales WHERE part = ?1)",
};
const CLAIMS: Statements = Statements {
    topic: TOPIC_CLAIMS,
    insert: "INSERT INTO claims (part, off, value) VALUES (?1, ?2, ?3)",
    select: "SELECT off, value FROM claims WHERE part = ?1 AND off >= ?2 ORDER BY off LIMIT ?3",
    bounds: "SELECT (SELECT min(off) FROM claims WHERE part = ?1), \
             (SELECT max(off) FROM claims WHERE part = ?1)",
};

/// The statements of the lane's topic.
pub(super) fn statements(lane: Lane) -> &'static Statements {
    match lane {
        Lane::Index => &INDEX,
        Lane::Claims(_) => &CLAIMS,
    }
}

/// The identities of the topics, drawn at random when the file was created.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ids {
    pub(super) index: LogId,
    pub(super) claims: LogId,
}

impl Ids {
    pub(super) fn of(&self, lane: Lane) -> LogId {
        match lane {
            Lane::Index => self.index,
            Lane::Claims(_) => self.claims,
        }
    }
}

/// A file that is a log of ours.
pub(super) struct Opened {
    pub(super) place: Place,
    pub(super) ids: Ids,
    pub(super) partitions: u32,
}

/// A file that this process alone may write.
pub(super) struct OpenedForWriting {
    pub(super) opened: Opened,
    pub(super) lock: WriterLock,
    pub(super) connection: Connection,
    /// The next offset of every lane, the index first.
    pub(super) next: Vec<u64>,
}

/// Opens the file as its one writer, creating it if that is allowed. Blocks.
pub(super) fn open_for_writing(config: &EmbeddedConfig) -> Result<OpenedForWriting, OpenError> {
    let path = resolve(&config.path)?;
    if !config.create && !path.exists() {
        return Err(missing(&path));
    }
    let lock = WriterLock::take(&path)?;
    let bad = |e: rusqlite::Error| unusable(&path, &e);
    let mut connection = connect(&path, config.create, config.probe_timeout).map_err(bad)?;
    let place = placed(&path)?;
    connection
        .execute_batch("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;")
        .map_err(bad)?;
    connection
        .pragma_update(None, "journal_size_limit", WAL_BYTES_KEPT)
        .map_err(bad)?;
    if is_blank(&connection).map_err(bad)? {
        if !config.create {
            return Err(missing(&path));
        }
        create(&mut connection, config.partitions).map_err(bad)?;
    }
    let opened = identify(&connection, place)?;
    let next = ends(&mut connection, opened.partitions).map_err(bad)?;
    opened.place.check().map_err(|reason| OpenError::Unusable {
        what: "the embedded log".to_owned(),
        reason,
    })?;
    Ok(OpenedForWriting {
        opened,
        lock,
        connection,
        next,
    })
}

/// Opens the file for reading. Blocks.
pub(super) fn open_for_reading(config: &EmbeddedConfig) -> Result<Opened, OpenError> {
    let path = resolve(&config.path)?;
    if !path.exists() {
        return Err(missing(&path));
    }
    let place = placed(&path)?;
    let connection =
        connect_reader(&place, config.probe_timeout).map_err(|e| unusable(&path, &e))?;
    if is_blank(&connection).map_err(|e| unusable(&path, &e))? {
        return Err(missing(&path));
    }
    identify(&connection, place)
}

/// A connection that can only read. It opens the file for writing all the same, because a
/// reader takes part in the locking of the WAL.
pub(super) fn connect_reader(place: &Place, busy: Duration) -> rusqlite::Result<Connection> {
    let connection = connect(place.path(), false, busy)?;
    connection.pragma_update(None, "query_only", true)?;
    Ok(connection)
}

fn connect(path: &Path, create: bool, busy: Duration) -> rusqlite::Result<Connection> {
    let mut flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    flags.set(OpenFlags::SQLITE_OPEN_CREATE, create);
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(busy)?;
    Ok(connection)
}

/// One spelling for one file, so that two writers of it meet at one lock.
fn resolve(path: &Path) -> Result<PathBuf, OpenError> {
    let bad = |e: std::io::Error| OpenError::Unusable {
        what: path.display().to_string(),
        reason: e.to_string(),
    };
    if path.exists() {
        return path.canonicalize().map_err(bad);
    }
    let parent = path.parent().filter(|p| !p.as_os_str().is_empty());
    let parent = parent.unwrap_or(Path::new("."));
    let parent = parent.canonicalize().map_err(|e| OpenError::Unusable {
        what: format!("the folder {}", parent.display()),
        reason: e.to_string(),
    })?;
    let name = path.file_name().ok_or_else(|| OpenError::Unusable {
        what: path.display().to_string(),
        reason: "is not the path of a file".to_owned(),
    })?;
    Ok(parent.join(name))
}

fn placed(path: &Path) -> Result<Place, OpenError> {
    Place::of(path).map_err(|e| OpenError::Unusable {
        what: path.display().to_string(),
        reason: e.to_string(),
    })
}

fn missing(path: &Path) -> OpenError {
    OpenError::Missing {
        what: format!("the embedded log {}", path.display()),
        key: "embedded.create",
    }
}

fn unusable(path: &Path, error: &rusqlite::Error) -> OpenError {
    OpenError::Unusable {
        what: path.display().to_string(),
        reason: error.to_string(),
    }
}

/// Nothing was ever written: it is new, or its creation was cut off.
fn is_blank(connection: &Connection) -> rusqlite::Result<bool> {
    connection.query_row("SELECT count(*) = 0 FROM sqlite_schema", [], |row| {
        row.get(0)
    })
}

fn create(connection: &mut Connection, partitions: u32) -> rusqlite::Result<()> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
    transaction.pragma_update(None, "user_version", FORMAT)?;
    transaction.execute_batch(TABLES)?;
    insert_topic(&transaction, TOPIC_INDEX, 1)?;
    insert_topic(&transaction, TOPIC_CLAIMS, partitions)?;
    transaction.commit()
}

fn insert_topic(
    transaction: &Transaction<'_>,
    name: &str,
    partitions: u32,
) -> rusqlite::Result<()> {
    let mut log_id = [0u8; 16];
    getrandom::fill(&mut log_id)
        .map_err(|e| rusqlite::Error::ToSqlConversionFailure(Box::new(e)))?;
    transaction.execute(
        "INSERT INTO topics (name, log_id, partitions) VALUES (?1, ?2, ?3)",
        params![name, log_id, partitions],
    )?;
    Ok(())
}

/// Checks that the file is a log of ours and reads who it is.
fn identify(connection: &Connection, place: Place) -> Result<Opened, OpenError> {
    let bad = |e: rusqlite::Error| unusable(place.path(), &e);
    let pragma = |name: &str| connection.pragma_query_value(None, name, |r| r.get::<_, i32>(0));
    let application = pragma("application_id").map_err(bad)?;
    let format = pragma("user_version").map_err(bad)?;
    if (application, format) != (APPLICATION_ID, FORMAT) {
        let reason = if application == APPLICATION_ID {
            format!("has format {format}; this release reads format {FORMAT}")
        } else {
            "is a database, but not a log of Dropgate's".to_owned()
        };
        return Err(OpenError::Unusable {
            what: place.path().display().to_string(),
            reason,
        });
    }
    let (index, _) = topic(connection, TOPIC_INDEX).map_err(bad)?;
    let (claims, partitions) = topic(connection, TOPIC_CLAIMS).map_err(bad)?;
    Ok(Opened {
        ids: Ids { index, claims },
        partitions,
        place,
    })
}

fn topic(connection: &Connection, name: &str) -> rusqlite::Result<(LogId, u32)> {
    connection
        .prepare_cached("SELECT log_id, partitions FROM topics WHERE name = ?1")?
        .query_row([name], |row| Ok((LogId(row.get(0)?), row.get(1)?)))
}

/// The id, the first offset and the end of a lane, as of one moment. Blocks.
pub(super) fn probe(
    connection: &mut Connection,
    lane: Lane,
) -> rusqlite::Result<(LogId, Offset, Offset)> {
    let transaction = connection.transaction()?;
    let (log_id, _) = topic(&transaction, statements(lane).topic)?;
    let (low, end) = bounds(&transaction, lane)?;
    transaction.finish()?;
    Ok((log_id, Offset(low), Offset(end)))
}

fn bounds(connection: &Connection, lane: Lane) -> rusqlite::Result<(u64, u64)> {
    let mut statement = connection.prepare_cached(statements(lane).bounds)?;
    statement.query_row([lane.partition().0], |row| {
        let (low, last): (Option<u64>, Option<u64>) = (row.get(0)?, row.get(1)?);
        Ok((low.unwrap_or(0), last.map_or(0, |last| last + 1)))
    })
}

/// The next offset of every lane, the index first. Blocks.
pub(super) fn ends(connection: &mut Connection, partitions: u32) -> rusqlite::Result<Vec<u64>> {
    let transaction = connection.transaction()?;
    let claims = (0..partitions).map(|p| Lane::Claims(PartitionId(p)));
    let next = std::iter::once(Lane::Index)
        .chain(claims)
        .map(|lane| bounds(&transaction, lane).map(|(_, end)| end))
        .collect::<rusqlite::Result<_>>()?;
    transaction.finish()?;
    Ok(next)
}
