//! Compares Redis, log and database after a sale, and states every promise; and watches over
//! sales, to recover by itself those that were halted.
//!
//! [`app::reconcile`] is the whole of it: [`snapshot`] reads the sources, [`diff`] compares (pure),
//! [`promises`] states (pure), [`report`] shows. Nothing is ever changed. [`watch`] is the long-running mode.

pub mod app;
pub mod cli;
pub mod config;
pub mod diff;
pub mod promises;
pub mod report;
pub mod snapshot;
mod transcript;
pub mod watch;

pub use app::{CannotCheck, Request, reconcile};
pub use config::Config;
pub use report::Report;
