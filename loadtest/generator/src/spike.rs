//! A spike: everybody at once, each click on a connection of its own.

use std::rc::Rc;

use anyhow::Context as _;
use tokio::task::JoinSet;

use crate::driver::{Driver, Next, Walk};
use crate::schedule::{Click, Part, all_at_once};

/// Drives all clicks of one thread to their end. Must run inside of a
/// `LocalSet`.
///
/// # Errors
/// When a task crashes.
pub async fn run(driver: &Rc<Driver>, part: Part) -> anyhow::Result<()> {
    let plan = driver.plan();
    let mut tasks = JoinSet::new();
    let clicks = all_at_once(part, plan.users, plan.repeats);
    for (nth, click) in clicks.enumerate() {
        tasks.spawn_local(one(Rc::clone(driver), nth, click));
    }
    while let Some(ended) = tasks.join_next().await {
        ended.context("a click of the load generator crashed")?;
    }
    Ok(())
}

/// One click: its connection is opened when it is made, kept while it polls or
/// tries again, and led to the next target when it cannot be made.
async fn one(driver: Rc<Driver>, nth: usize, click: Click) {
    tokio::time::sleep_until((driver.start.at + click.at).into()).await;
    let mut target = nth;
    let mut link = driver.link(nth);
    let mut walk = Walk::new(click);
    while let Next::After(wait) = driver.advance(&mut link, &mut walk).await {
        if link.take_unreachable() {
            target += 1;
            link.turn_to(driver.target(target));
        }
        tokio::time::sleep(wait).await;
    }
}
