//! Compares Redis, log and database after a sale, and states every promise.

pub mod config;

pub use config::Config;
