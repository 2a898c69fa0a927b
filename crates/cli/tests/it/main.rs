//! The command as people use it: real processes, a real Redis.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod commands;
mod faults;
mod selling;
mod shop;
mod status;
