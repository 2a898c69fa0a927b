//! The generator as it is used: the binary, against servers on loopback.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests fail the test"
)]

mod generator;
mod honesty;
mod outcomes;
mod server;
mod spread;
mod usage;
