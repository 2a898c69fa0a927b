//! The HTTP face of a sale: claims, and the admin API.
//!
//! The gateway decides nothing. It reads a request, asks the engine, and says what the engine
//! answered; [`answer`] is that translation, pure. It never waits for the database.

pub mod answer;
pub mod app;
pub mod auth;
mod body;
pub mod config;
pub mod error;
mod fields;
pub mod metrics;
pub mod middleware;
pub mod openapi;
pub mod persisted;
pub mod routes;
pub mod server;
pub mod state;
pub mod time;

pub use app::{App, BuildError, RunError};
pub use config::Config;
