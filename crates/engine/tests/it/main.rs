//! The engine on a real Redis and a real log.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod breaker;
mod faults;
mod reading;
mod records;
mod recovery;
mod selling;
mod truths;
mod world;
