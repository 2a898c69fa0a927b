//! What can go wrong, by what the caller does next.

use std::path::PathBuf;
use std::time::Duration;

use dropgate_domain::{LogId, Offset};

use crate::Lane;

/// Why a log could not be opened. The text is for the operator.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The configuration cannot be used: every problem, each beginning with its key.
    #[error("log configuration: {}", .0.join("; "))]
    Config(Vec<String>),
    /// It is not there, and the configuration does not say that it may be created.
    #[error("{what} does not exist, and `{key}` is off")]
    Missing {
        /// The file or the topic.
        what: String,
        /// The key that would allow creating it.
        key: &'static str,
    },
    /// Another process writes this file.
    #[error("{} is being written by another process: only one may", .path.display())]
    InUse {
        /// The log's file.
        path: PathBuf,
    },
    /// No broker answered. Try again, or check what the text names.
    #[error(
        "no answer from Kafka at {brokers} within {waited:?} ({reason}): is it running, is the \
         address right, and can the addresses that it advertises be reached from here?"
    )]
    Unreachable {
        /// The brokers that were asked.
        brokers: String,
        /// For how long.
        waited: Duration,
        /// What librdkafka said last.
        reason: String,
    },
    /// The log's settings would lose acknowledged records, and this is production (or they
    /// would in any profile): every problem.
    #[error("the log's settings are not safe: {}", .0.join("; "))]
    Unsafe(Vec<String>),
    /// It is there and cannot be used.
    #[error("{what}: {reason}")]
    Unusable {
        /// The file, the topic or the cluster.
        what: String,
        /// Why.
        reason: String,
    },
}

/// Why an append has no offset to return.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AppendError {
    /// The record is surely not in the log and will not be.
    #[error("not appended: {0}")]
    Refused(#[from] Refused),
    /// The record may be in the log, or may still come.
    #[error("may or may not have been appended: {0}")]
    Unknown(String),
}

/// Why a record was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// It will never fit.
    #[error("the record has {bytes} bytes, more than {bytes_max}")]
    TooLarge {
        /// The record's.
        bytes: usize,
        /// The bound.
        bytes_max: usize,
    },
    /// Too much is waiting to be written. Try again later.
    #[error("too much is waiting to be written")]
    Busy,
    /// There is no such lane.
    #[error("there is no {lane}: the log has {partitions} claims partitions")]
    UnknownLane {
        /// The lane asked for.
        lane: Lane,
        /// What there is.
        partitions: u32,
    },
    /// The log was opened for reading alone.
    #[error("the log was opened for reading alone")]
    ReadOnly,
    /// The log was closed here.
    #[error("the log is closed")]
    Closed,
    /// The back end said no, and may say yes later.
    #[error("{0}")]
    Backend(String),
    /// This handle is of no use any more: open the log again, after looking at what happened.
    #[error("the log is broken: {0}")]
    Broken(String),
}

/// Why the log could not be asked or read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LogError {
    /// No answer in time, or a passing error. Nothing is known to be wrong with the log: ask
    /// again later.
    #[error("the log does not answer: {0}")]
    Unavailable(String),
    /// The topic is gone.
    #[error("the topic {topic} does not exist")]
    Missing {
        /// Its name.
        topic: String,
    },
    /// There is no such lane.
    #[error("there is no {lane}: the log has {partitions} claims partitions")]
    UnknownLane {
        /// The lane asked for.
        lane: Lane,
        /// What there is.
        partitions: u32,
    },
    /// The tail reads this lane already.
    #[error("{lane} is being read already")]
    LaneTaken {
        /// The lane asked for.
        lane: Lane,
    },
    /// What is there is not what was opened: it was deleted and made anew, or replaced.
    #[error(
        "{what} is not the log that was opened: its id was {expected} and is now {}",
        .found.map_or_else(|| "gone".to_owned(), |id| id.to_string())
    )]
    WrongLog {
        /// The topic or the file.
        what: String,
        /// The id that was opened.
        expected: LogId,
        /// The id that was found, if there is one.
        found: Option<LogId>,
    },
    /// The offset is not there: deleted by retention, or never written.
    #[error("{lane} has no offset {offset}: it holds {low} to {end}")]
    OutOfRange {
        /// The lane.
        lane: Lane,
        /// The offset asked for.
        offset: Offset,
        /// The first offset that is there.
        low: Offset,
        /// The offset that the next record will get.
        end: Offset,
    },
    /// A record is missing between others.
    #[error("{lane} has a gap: offset {expected} is missing, {found} came")]
    Gap {
        /// The lane.
        lane: Lane,
        /// The offset that had to come.
        expected: Offset,
        /// The offset that came.
        found: Offset,
    },
    /// The log cannot be read on: an operator has to look.
    #[error("the log is broken: {0}")]
    Broken(String),
}

impl LogError {
    /// Whether the log and its tails can still be used: the answer may come later, or it was
    /// the question that was wrong. All others are final for a tail.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        matches!(
            self,
            Self::Unavailable(_) | Self::UnknownLane { .. } | Self::LaneTaken { .. }
        )
    }
}

impl From<LogError> for Refused {
    fn from(error: LogError) -> Self {
        match error {
            LogError::UnknownLane { lane, partitions } => Self::UnknownLane { lane, partitions },
            LogError::Unavailable(reason) => Self::Backend(reason),
            other => Self::Broken(other.to_string()),
        }
    }
}
