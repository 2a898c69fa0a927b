//! Writes what the ledgers applied into the database: in batches, once, in the order of the log.
//!
//! The writer folds every sale from its opening. The stored position of a sale says what has
//! been written, never what may go unjudged: what is at or below it is folded and not written
//! again. A position moves by compare-and-swap in the transaction of its orders, so any number
//! of writers may run; those that lose a swap stand by and take over when the position lags.
//!
//! The database is on nobody's path: while it is away the writer keeps a bounded number of
//! events and stops reading; the log keeps the rest.

pub mod app;
mod backoff;
mod batch;
pub mod config;
mod consumer;
mod lag;
mod metrics;
mod status;
mod writer;

pub use config::{Config, WriterConfig};
pub use consumer::{OrderWriter, RunError};
pub use metrics::Metrics;
pub use status::Status;
