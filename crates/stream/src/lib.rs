//! The durable log of claims: one trait, two back ends.
//!
//! - [`kafka`]: the topics of a Kafka cluster, written by an idempotent producer with
//!   `acks=all` and read by assignment.
//! - [`embedded`]: one `SQLite` file with a single writer, fsynced in groups, for one machine.
//!
//! Both keep the same promises, held by one contract suite (`tests/it/contract.rs`):
//! an acknowledged record is durable and is read back byte for byte at the offset that was
//! acknowledged; offsets of a lane are consecutive; a lane that is not the one that was opened
//! (deleted and made anew), an offset that is no longer there and a gap are errors, never a
//! reset; memory and waits are bounded.
//!
//! Nothing here reads the records: what they mean is the business of `dropgate-events` and of
//! the ledger.

pub mod config;
pub mod embedded;
mod error;
pub mod kafka;
mod lane;
mod settings;

use std::time::Duration;

use bytes::Bytes;
use dropgate_domain::{LogId, Offset};

pub use config::{Backend, EmbeddedConfig, KafkaConfig, LogConfig, Sasl};
pub use error::{AppendError, LogError, OpenError, Refused};
pub use lane::Lane;
pub use settings::{Settings, TopicSettings};

use embedded::{EmbeddedLog, EmbeddedTail};
use kafka::{KafkaLog, KafkaTail};

/// The largest record, in bytes.
///
/// Just under 1 MiB, so that with its framing it fits the `max.message.bytes` that a Kafka
/// topic has unless told otherwise (1,048,588 bytes with the batch's overhead).
pub const VALUE_BYTES_MAX: usize = 1024 * 1024 - 1024;

/// The most bytes of values that one call of `next` returns, whatever the number of records
/// asked for. One record of [`VALUE_BYTES_MAX`] always fits.
pub const READ_BYTES_MAX: usize = 4 * 1024 * 1024;

/// What a lane looked like when it was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Probe {
    /// The identity of the lane's topic, the one that was there when the log was opened.
    pub log_id: LogId,
    /// The first offset that is still there.
    pub low: Offset,
    /// The offset that the next record will get.
    pub end: Offset,
}

/// A record as it was read from the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    /// Where it was read.
    pub lane: Lane,
    /// Its place in the lane.
    pub offset: Offset,
    /// Its bytes, exactly as they were appended.
    pub value: Bytes,
}

/// A durable log with one index lane and a fixed number of claims lanes.
///
/// Handles are cheap clones of one open log.
pub trait LogStore: Clone + Send + Sync + 'static {
    /// The reader that this log makes.
    type Tail: LogTail;

    /// The number of claims lanes.
    fn partitions(&self) -> u32;

    /// Appends a record and waits until it is durable; see [`Log::append`].
    fn append(
        &self,
        lane: Lane,
        value: Bytes,
    ) -> impl Future<Output = Result<Offset, AppendError>> + Send;

    /// Asks a lane for its identity and bounds; see [`Log::probe`].
    fn probe(&self, lane: Lane) -> impl Future<Output = Result<Probe, LogError>> + Send;

    /// Reads the settings that durability rests on; see [`Log::settings`].
    fn settings(&self) -> impl Future<Output = Result<Settings, LogError>> + Send;

    /// Begins to read; see [`Log::tail`].
    fn tail(
        &self,
        from: &[(Lane, Offset)],
    ) -> impl Future<Output = Result<Self::Tail, LogError>> + Send;

    /// Flushes and stops; see [`Log::close`].
    fn close(&self, deadline: Duration) -> impl Future<Output = ()> + Send;
}

/// A reader of some lanes of a log.
pub trait LogTail: Send {
    /// The next records; see [`Tail::next`].
    fn next(
        &mut self,
        max: usize,
        wait: Duration,
    ) -> impl Future<Output = Result<Vec<Item>, LogError>> + Send;

    /// Reads one more lane; see [`Tail::add`].
    fn add(
        &mut self,
        lane: Lane,
        from: Offset,
    ) -> impl Future<Output = Result<(), LogError>> + Send;

    /// What is held in memory; see [`Tail::queued`].
    fn queued(&self) -> u64;
}

/// An open log of either kind. Clones share it.
#[derive(Clone, Debug)]
pub enum Log {
    /// The topics of a Kafka cluster.
    Kafka(KafkaLog),
    /// A file on this machine.
    Embedded(EmbeddedLog),
}

impl Log {
    /// Opens the log for reading and appending.
    ///
    /// Bounded in time. Creates what is missing only when the configuration says so. An embedded
    /// log has one writing process at a time; a second one gets [`OpenError::InUse`].
    pub async fn open(config: &LogConfig) -> Result<Self, OpenError> {
        match config.backend {
            Backend::Kafka => KafkaLog::open(&config.kafka).await.map(Self::Kafka),
            Backend::Embedded => EmbeddedLog::open(&config.embedded)
                .await
                .map(Self::Embedded),
        }
    }

    /// Opens the log for reading alone, also beside a process that writes it.
    ///
    /// Never creates anything; every append is refused.
    pub async fn open_read_only(config: &LogConfig) -> Result<Self, OpenError> {
        match config.backend {
            Backend::Kafka => KafkaLog::open_read_only(&config.kafka)
                .await
                .map(Self::Kafka),
            Backend::Embedded => EmbeddedLog::open_read_only(&config.embedded)
                .await
                .map(Self::Embedded),
        }
    }

    /// The number of claims lanes, as the log itself says.
    #[must_use]
    pub fn partitions(&self) -> u32 {
        match self {
            Self::Kafka(log) => log.partitions(),
            Self::Embedded(log) => log.partitions(),
        }
    }

    /// Appends a record and waits until it is durable. Returns the offset that it got.
    ///
    /// The wait is bounded by the configured `append_timeout` (Kafka: and half a second).
    /// [`AppendError::Refused`] means that the record is surely not in the log,
    /// [`AppendError::Unknown`] that it may be, now or later.
    ///
    /// Cancel safety: a cancelled append is one whose outcome is unknown.
    pub async fn append(&self, lane: Lane, value: Bytes) -> Result<Offset, AppendError> {
        match self {
            Self::Kafka(log) => log.append(lane, value).await,
            Self::Embedded(log) => log.append(lane, value).await,
        }
    }

    /// Asks the lane for its identity and bounds, past every cache and within a deadline.
    ///
    /// [`LogError::WrongLog`] when the topic is not the one that was opened. Once a probe has
    /// seen that, every tail of this log ends with the same error and appends are refused.
    /// Cancel safe.
    pub async fn probe(&self, lane: Lane) -> Result<Probe, LogError> {
        match self {
            Self::Kafka(log) => log.probe(lane).await,
            Self::Embedded(log) => log.probe(lane).await,
        }
    }

    /// Reads the settings that durability rests on. Cancel safe.
    pub async fn settings(&self) -> Result<Settings, LogError> {
        match self {
            Self::Kafka(log) => log.settings().await,
            Self::Embedded(log) => log.settings().await,
        }
    }

    /// Begins to read the given lanes, each from its offset, after checking that the topic is
    /// the one that was opened and that the offset is there (the end is allowed).
    ///
    /// Cancel safe: a cancelled call leaves nothing behind.
    pub async fn tail(&self, from: &[(Lane, Offset)]) -> Result<Tail, LogError> {
        match self {
            Self::Kafka(log) => log.tail(from).await.map(Tail::Kafka),
            Self::Embedded(log) => log.tail(from).await.map(Tail::Embedded),
        }
    }

    /// Writes out what was accepted and stops appending, within the deadline. Later appends are
    /// refused; tails read on.
    pub async fn close(&self, deadline: Duration) {
        match self {
            Self::Kafka(log) => log.close(deadline).await,
            Self::Embedded(log) => log.close(deadline).await,
        }
    }
}

/// A reader of some lanes of a [`Log`]. Dropping it ends it.
#[derive(Debug)]
pub enum Tail {
    /// A consumer by assignment.
    Kafka(KafkaTail),
    /// A reader of the file.
    Embedded(EmbeddedTail),
}

impl Tail {
    /// The next records, at most `max` of them and at most [`READ_BYTES_MAX`]: what is there
    /// at once, else what comes first within `wait`, else none.
    ///
    /// In offset order within a lane and without gaps. An error that is not transient
    /// ([`LogError::is_transient`]) is final: every later call returns it again, after the
    /// records that were in order before it.
    ///
    /// Cancel safe: a cancelled call loses nothing and nothing comes twice.
    pub async fn next(&mut self, max: usize, wait: Duration) -> Result<Vec<Item>, LogError> {
        match self {
            Self::Kafka(tail) => tail.next(max, wait).await,
            Self::Embedded(tail) => tail.next(max, wait).await,
        }
    }

    /// Reads one more lane from an offset that is there (the end is allowed).
    ///
    /// A lane that is read already is [`LogError::LaneTaken`]. Cancel safe: a cancelled call
    /// has either no effect or its whole effect.
    pub async fn add(&mut self, lane: Lane, from: Offset) -> Result<(), LogError> {
        match self {
            Self::Kafka(tail) => tail.add(lane, from).await,
            Self::Embedded(tail) => tail.add(lane, from).await,
        }
    }

    /// The number of records that this tail holds in memory and has not returned yet: bounded,
    /// whatever comes in (Kafka: by `queued_kib_max`; embedded: nothing is fetched ahead).
    #[must_use]
    pub fn queued(&self) -> u64 {
        match self {
            Self::Kafka(tail) => tail.queued(),
            Self::Embedded(tail) => tail.queued(),
        }
    }
}
