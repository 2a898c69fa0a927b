//! Whole sales through real processes: two gateways, an order-writer, a reconciler, a crowd, and an
//! oracle that shares no code with them, on real Redis, Kafka and Postgres.
//!
//! `ATTEMPTS=10000` sells to that many and to ten times as many (`make test` is content with 1,500);
//! `SEEDS=5` kills at that many different moments.
#![cfg(test)]

mod client;
mod crowd;
mod faults;
mod sales;
mod stack;
mod starts;
mod topics;
mod verdict;

/// A whole number from the environment, for runs by hand that are larger than those of `make test`.
fn from_env(name: &str, default: u64) -> anyhow::Result<u64> {
    match std::env::var(name) {
        Ok(text) => Ok(text.parse()?),
        Err(_) => Ok(default),
    }
}
