//! The log against real Kafka brokers and real files.

mod contract;
mod embedded;
mod kafka;
mod support;
