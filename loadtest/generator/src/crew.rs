//! The threads of a run. They share nothing but counters for the eye: each has
//! its own users, connections, timers and record.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::Context as _;
use tokio::task::LocalSet;

use crate::driver::{Driver, Start};
use crate::plan::{Mode, Plan};
use crate::progress::Progress;
use crate::record::Record;
use crate::schedule::{Paced, Part};
use crate::transcript::{Pen, Writer};
use crate::user::Users;
use crate::{open, probe, spike};

/// How often the caller is called while threads run.
const TICK: Duration = Duration::from_millis(200);
/// The time that threads get to be ready before the start, and what each click
/// of a spike adds to it (its task is made before).
const LEAD: Duration = Duration::from_millis(50);
const LEAD_PER_CLICK: Duration = Duration::from_micros(20);

/// What the threads of a run show and write to.
#[derive(Debug)]
pub struct Shared<'a> {
    /// Where counts go.
    pub progress: Arc<Progress>,
    /// Where the transcript goes.
    pub writer: Option<&'a Writer>,
}

/// Drives a plan to its end on its threads, and calls `tick` now and then.
///
/// # Errors
/// When a thread fails; the others are then left to end by themselves.
pub fn drive(
    plan: &Arc<Plan>,
    users: &Arc<Users>,
    shared: Option<&Shared<'_>>,
    mut tick: impl FnMut(),
) -> anyhow::Result<Record> {
    let start = start_of(plan)?;
    let progress = shared.map_or_else(Arc::default, |shared| Arc::clone(&shared.progress));
    let threads = usize::try_from(plan.threads).unwrap_or(usize::MAX);
    let (results, finished) = sync_channel(threads);
    let mut joins = Vec::new();
    for part in plan.parts() {
        let crew = Member {
            plan: Arc::clone(plan),
            users: Arc::clone(users),
            progress: Arc::clone(&progress),
            pen: shared.and_then(|shared| shared.writer).map(Writer::pen),
            start,
            part,
        };
        joins.push(crew.spawn(results.clone())?);
    }
    drop(results);
    let mut record = Record::new()?;
    let mut running = joins.len();
    while running > 0 {
        match finished.recv_timeout(TICK) {
            Ok(part) => {
                record.merge(part?);
                running -= 1;
            }
            Err(RecvTimeoutError::Timeout) => tick(),
            Err(RecvTimeoutError::Disconnected) => {
                anyhow::bail!("a thread of the load generator crashed")
            }
        }
    }
    for join in joins {
        // Each has given its result, so this does not wait.
        let _ = join.join();
    }
    Ok(record)
}

fn start_of(plan: &Plan) -> anyhow::Result<Start> {
    let clicks = match plan.mode {
        Mode::Spike => u32::try_from(plan.clicks()).unwrap_or(u32::MAX),
        Mode::Open { .. } | Mode::Probe { .. } => 0,
    };
    let lead = LEAD + LEAD_PER_CLICK * clicks;
    let unix = SystemTime::now().duration_since(UNIX_EPOCH)? + lead;
    Ok(Start {
        at: Instant::now() + lead,
        unix_ms: u64::try_from(unix.as_millis())?,
    })
}

struct Member {
    plan: Arc<Plan>,
    users: Arc<Users>,
    progress: Arc<Progress>,
    pen: Option<Pen>,
    start: Start,
    part: Part,
}

impl Member {
    fn spawn(
        self,
        results: SyncSender<anyhow::Result<Record>>,
    ) -> anyhow::Result<std::thread::JoinHandle<()>> {
        std::thread::Builder::new()
            .name(format!("clicks-{}", self.part.index))
            .spawn(move || {
                // The receiver is only gone when another thread has failed.
                let _ = results.send(self.run());
            })
            .context("no thread")
    }

    fn run(self) -> anyhow::Result<Record> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let Self {
            plan,
            users,
            progress,
            pen,
            start,
            part,
        } = self;
        let mode = plan.mode;
        let connections = plan.connections_of(part);
        let clicks = |rate| Paced::new(part, plan.users, plan.repeats, rate);
        let paced = match mode {
            Mode::Open { rate } => Some(clicks(rate)),
            Mode::Spike | Mode::Probe { .. } => None,
        };
        let driver = Rc::new(Driver::new(plan, users, progress, pen, start)?);
        let set = LocalSet::new();
        runtime.block_on(set.run_until(async {
            match (mode, paced) {
                (Mode::Open { .. }, Some(clicks)) => open::run(&driver, clicks, connections).await,
                (Mode::Probe { time }, _) => probe::run(&driver, part, time).await,
                (Mode::Spike | Mode::Open { .. }, _) => spike::run(&driver, part).await,
            }
        }))?;
        // Tasks that were cut off still hold the driver until the set is gone.
        drop(set);
        let driver = Rc::into_inner(driver).context("a task outlived the run")?;
        Ok(runtime.block_on(driver.finish()))
    }
}
