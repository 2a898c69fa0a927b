//! A probe: a closed loop at bounded concurrency, to find the rate that a
//! target sustains. Its latencies say little (a closed loop waits with the
//! server); its rate says how much an open run may ask for.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use anyhow::Context as _;
use serde::Serialize;
use tokio::task::JoinSet;

use crate::driver::{Driver, Next, Walk};
use crate::plan::Plan;
use crate::record::{Outcome, Record};
use crate::report::{Latency, latencies};
use crate::schedule::{Click, Part};

/// The first quarter is not counted: connections open, pools fill.
const WARM_UP: f64 = 0.25;

/// Drives one thread's part of a probe. Must run inside of a `LocalSet`.
///
/// # Errors
/// When a worker crashes.
pub async fn run(driver: &Rc<Driver>, part: Part, time: Duration) -> anyhow::Result<()> {
    let next = Rc::new(Cell::new(0));
    let mut workers = JoinSet::new();
    for nth in 0..driver.plan().connections_of(part) {
        workers.spawn_local(work(Rc::clone(driver), Rc::clone(&next), part, nth));
    }
    let middle = driver.start.at + time.mul_f64(WARM_UP);
    tokio::select! {
        () = tokio::time::sleep_until(middle.into()) => driver.forget()?,
        ended = workers.join_next() => return crashed(ended),
    }
    tokio::select! {
        () = tokio::time::sleep_until((driver.start.at + time).into()) => Ok(()),
        ended = workers.join_next() => crashed(ended),
    }
    // Dropping the set cuts off what is in flight.
}

fn crashed(ended: Option<Result<(), tokio::task::JoinError>>) -> anyhow::Result<()> {
    match ended {
        Some(Err(error)) => Err(error).context("a worker of the probe crashed"),
        _ => anyhow::bail!("a worker of the probe ended early"),
    }
}

/// One new user after the other. Ends with its task.
async fn work(driver: Rc<Driver>, next: Rc<Cell<u64>>, part: Part, nth: usize) {
    tokio::time::sleep_until(driver.start.at.into()).await;
    let mut link = driver.link(nth);
    loop {
        let user = next.replace(next.get() + 1) * part.count + part.index;
        let at = driver.start.elapsed();
        let mut walk = Walk::new(Click { user, nth: 0, at });
        while let Next::After(wait) = driver.advance(&mut link, &mut walk).await {
            tokio::time::sleep(wait).await;
        }
    }
}

/// What a probe found.
#[derive(Debug, Serialize)]
pub struct Found {
    /// Claims a second that got a true answer: won, again or sold out.
    pub claims_per_second: f64,
    /// How long was counted.
    pub seconds: f64,
    /// How many were in flight.
    pub connections: usize,
    /// The claims that were counted, by how they ended.
    pub outcomes: std::collections::BTreeMap<&'static str, u64>,
    /// Why those that did not end well ended so.
    pub codes: std::collections::BTreeMap<String, u64>,
    /// Latencies of the closed loop.
    pub latency_ms: std::collections::BTreeMap<&'static str, Latency>,
}

impl Found {
    /// What the record of a probe says.
    #[must_use]
    pub fn of(plan: &Plan, record: &Record, time: Duration) -> Self {
        let seconds = time.as_secs_f64() * (1.0 - WARM_UP);
        let good = record.count(Outcome::Won)
            + record.count(Outcome::Again)
            + record.count(Outcome::SoldOut);
        #[expect(
            clippy::cast_precision_loss,
            reason = "a count of seconds' worth of claims is exact"
        )]
        let claims_per_second = (good as f64 / seconds).round();
        Self {
            claims_per_second,
            seconds,
            connections: plan.connections,
            outcomes: Outcome::ALL
                .iter()
                .map(|outcome| (outcome.name(), record.count(*outcome)))
                .collect(),
            codes: record.codes.clone(),
            latency_ms: latencies(record),
        }
    }

    /// Whether there were answers, and all were true ones.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        let bad = [Outcome::Other4xx, Outcome::Pending, Outcome::Error];
        self.claims_per_second > 0.0
            && bad
                .iter()
                .all(|outcome| self.outcomes.get(outcome.name()) == Some(&0))
    }
}
