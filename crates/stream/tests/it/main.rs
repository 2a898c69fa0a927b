//! The log against real Kafka brokers and real files.
#![expect(
    clippy::unwrap_used,
    reason = "in a test these fail the test, helpers included"
)]

mod contract;
mod embedded;
mod kafka;
mod support;
