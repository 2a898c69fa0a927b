//! An open run: clicks come by the schedule, whatever the servers do.
//!
//! A fixed number of workers, each with one kept connection, take what is due:
//! clicks that wait to ask again first (they are older), then the next click of
//! the schedule. When all workers are busy, due clicks wait; they are a number,
//! not a queue, so a server that stalls costs no memory, and their latency runs
//! all the same, from when they were meant to be made.

use std::cell::{Cell, RefCell};
use std::cmp::Ordering;
use std::collections::{BinaryHeap, VecDeque};
use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinSet;

use crate::alarm::Alarm;
use crate::driver::{Driver, Next, Walk};
use crate::schedule::Paced;

/// Clicks that are due within this time of each other are let go together: a
/// bound on the generator's own wake-ups, and on the lag that it adds.
const TICK: Duration = Duration::from_micros(100);
/// How long a worker whose target cannot be reached rests, at first and at
/// most, so that it does not take clicks from those that work.
const REST_FIRST: Duration = Duration::from_millis(20);
const REST_LONGEST: Duration = Duration::from_secs(1);

/// A click that asks again later; the earliest is the greatest.
struct Later {
    due: Instant,
    walk: Walk,
}

impl PartialEq for Later {
    fn eq(&self, other: &Self) -> bool {
        self.due == other.due
    }
}
impl Eq for Later {}
impl PartialOrd for Later {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Later {
    fn cmp(&self, other: &Self) -> Ordering {
        other.due.cmp(&self.due)
    }
}

/// What the workers of one thread share.
struct Floor {
    clicks: RefCell<Paced>,
    again: RefCell<VecDeque<Walk>>,
    later: RefCell<BinaryHeap<Later>>,
    /// One permit for each click that is due.
    due: Semaphore,
    sooner: Notify,
    open: Cell<u64>,
    all_done: Notify,
}

impl Floor {
    fn take(&self) -> Option<Walk> {
        let again = self.again.borrow_mut().pop_front();
        again.or_else(|| self.clicks.borrow_mut().next().map(Walk::new))
    }

    fn put_off(&self, walk: Walk, after: Duration) {
        let due = Instant::now() + after;
        let mut later = self.later.borrow_mut();
        let sooner = later.peek().is_none_or(|first| due < first.due);
        later.push(Later { due, walk });
        if sooner {
            self.sooner.notify_one();
        }
    }

    fn done(&self) {
        self.open.set(self.open.get() - 1);
        if self.open.get() == 0 {
            self.all_done.notify_one();
        }
    }
}

/// Drives all clicks of one thread to their end, by `connections` workers.
/// Must run inside of a `LocalSet`.
///
/// # Errors
/// When a timer or a worker fails.
pub async fn run(driver: &Rc<Driver>, clicks: Paced, connections: usize) -> anyhow::Result<()> {
    let total = clicks.len();
    if total == 0 {
        return Ok(());
    }
    let floor = Rc::new(Floor {
        clicks: RefCell::new(clicks),
        again: RefCell::default(),
        later: RefCell::default(),
        due: Semaphore::new(0),
        sooner: Notify::new(),
        open: Cell::new(total),
        all_done: Notify::new(),
    });
    let mut workers = JoinSet::new();
    for nth in 0..connections {
        workers.spawn_local(work(Rc::clone(driver), Rc::clone(&floor), nth));
    }
    workers.spawn_local(bring_back(Rc::clone(&floor)));
    tokio::select! {
        paced = pace(driver, &floor, total) => paced?,
        ended = workers.join_next() => return crashed(ended),
    }
    tokio::select! {
        () = floor.all_done.notified() => Ok(()),
        ended = workers.join_next() => crashed(ended),
    }
    // Dropping the set ends the workers, which are idle or at rest.
}

/// A worker only ends by a panic: say so rather than wait for its click.
fn crashed(ended: Option<Result<(), tokio::task::JoinError>>) -> anyhow::Result<()> {
    match ended {
        Some(Err(error)) => Err(error).context("a worker of the load generator crashed"),
        _ => anyhow::bail!("a worker of the load generator ended early"),
    }
}

/// Lets clicks go when their time has come.
async fn pace(driver: &Driver, floor: &Floor, total: u64) -> anyhow::Result<()> {
    let mut alarm = Alarm::new().context("no timer")?;
    let wait = driver.start.at.saturating_duration_since(Instant::now());
    alarm.sleep(wait).await?;
    let mut slot = 0;
    while slot < total {
        let now = driver.start.elapsed();
        let mut due = 0;
        let mut next = Duration::ZERO;
        {
            let clicks = floor.clicks.borrow();
            while slot < total {
                next = clicks.time_of(slot);
                if next > now {
                    break;
                }
                slot += 1;
                due += 1;
            }
        }
        floor.due.add_permits(due);
        if slot < total {
            alarm.sleep(next.saturating_sub(now).max(TICK)).await?;
        }
    }
    Ok(())
}

/// Makes clicks due again whose wait is over. Ends with its task.
async fn bring_back(floor: Rc<Floor>) {
    loop {
        let now = Instant::now();
        let mut due = 0;
        let next = {
            let mut later = floor.later.borrow_mut();
            while later.peek().is_some_and(|first| first.due <= now) {
                if let Some(first) = later.pop() {
                    floor.again.borrow_mut().push_back(first.walk);
                    due += 1;
                }
            }
            later.peek().map(|first| first.due)
        };
        floor.due.add_permits(due);
        match next {
            None => floor.sooner.notified().await,
            Some(next) => tokio::select! {
                () = floor.sooner.notified() => {}
                () = tokio::time::sleep_until(next.into()) => {}
            },
        }
    }
}

/// One worker with one connection. Ends with its task.
async fn work(driver: Rc<Driver>, floor: Rc<Floor>, nth: usize) {
    let mut link = driver.link(nth);
    let mut rest = REST_FIRST;
    loop {
        // The semaphore is never closed.
        let Ok(permit) = floor.due.acquire().await else {
            return;
        };
        permit.forget();
        let Some(mut walk) = floor.take() else {
            continue;
        };
        driver.steer(&mut link, nth);
        match driver.advance(&mut link, &mut walk).await {
            Next::Done(_) => floor.done(),
            Next::After(after) => floor.put_off(walk, after),
        }
        if link.take_unreachable() {
            tokio::time::sleep(rest).await;
            rest = (rest * 2).min(REST_LONGEST);
        } else if link.is_open() {
            rest = REST_FIRST;
        }
    }
}
