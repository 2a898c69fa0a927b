//! The reconciler's program against real servers, on sales that were really sold.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod corruptions;
mod obstacles;
mod sales;
mod watch;
mod world;
