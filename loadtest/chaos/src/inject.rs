//! Does what a schedule says, one step at a time, and undoes it.

mod redis;

use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use dropgate_testkit::stack::Clicking;
use dropgate_testkit::{Proxy, http};

use crate::cell::{Cell, Hurt, Service, Shift, lock};
use crate::fault::{Fault, Kind};
use crate::schedule::Step;
use crate::timeline::{Timeline, now_ms};
use crate::watcher::Sight;

/// How long a sale may stand still before a mark is taken for reached: that is what comes of faults
/// too.
const MARK_MAX: Duration = Duration::from_secs(15);
/// How long a service may take to be ready before its clock is shifted.
const STARTED_MAX: Duration = Duration::from_secs(5);
/// How often a condition is looked at.
const TICK: Duration = Duration::from_millis(10);

/// A moment from which on no event of the generations that were may be made any more: whoever
/// kept their state has forgotten their scripts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forgot {
    /// In Unix milliseconds.
    pub at_ms: u64,
}

/// Another server took the master's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Promoted {
    /// When the master was taken away, in Unix milliseconds.
    pub lost_ms: u64,
    /// When a majority of the sentinels named the other one.
    pub at_ms: u64,
}

/// What was injected in a run.
#[derive(Debug, Default)]
pub struct Injected {
    /// Kinds, with the Unix milliseconds at which they began.
    pub faults: Vec<(Kind, u64)>,
    /// When scripts were forgotten.
    pub forgot: Vec<Forgot>,
    /// When another server was the master.
    pub promoted: Vec<Promoted>,
}

/// Injects the steps of one run.
pub struct Injector<'a> {
    cell: &'a Cell,
    sale: &'a str,
    crowd: &'a Mutex<Clicking>,
    sight: &'a Sight,
    timeline: &'a Timeline,
    injected: Mutex<Injected>,
    /// Whoever hurts Redis holds this: one at a time.
    redis: Mutex<()>,
    /// The same for the gateways.
    gateways: [Mutex<()>; 2],
    /// The same for the watch.
    watch: Mutex<()>,
}

impl<'a> Injector<'a> {
    /// For one run.
    #[must_use]
    pub fn new(
        cell: &'a Cell,
        sale: &'a str,
        crowd: &'a Mutex<Clicking>,
        sight: &'a Sight,
        timeline: &'a Timeline,
    ) -> Self {
        Self {
            cell,
            sale,
            crowd,
            sight,
            timeline,
            injected: Mutex::default(),
            redis: Mutex::default(),
            gateways: Default::default(),
            watch: Mutex::default(),
        }
    }

    /// What was injected.
    #[must_use]
    pub fn injected(self) -> Injected {
        self.injected
            .into_inner()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Waits for the step's mark, injects its fault, and undoes it when its time is over.
    ///
    /// # Errors
    /// When the fault could not be injected or undone.
    pub fn play(&self, step: &Step) -> Result<()> {
        // Measured from the last win: the marks of a long sale are far apart.
        let (mut sold, mut since) = (self.sight.sold(), Instant::now());
        while sold < step.at.wins && since.elapsed() < MARK_MAX {
            std::thread::sleep(TICK);
            let now = self.sight.sold();
            if now > sold {
                (sold, since) = (now, Instant::now());
            }
        }
        std::thread::sleep(Duration::from_millis(step.at.then_ms));
        let fault = &step.fault;
        self.inject(fault)
            .map_err(|error| error.context(format!("injecting {fault}")))
    }

    fn begin(&self, fault: &Fault) {
        self.timeline.fault(fault.to_string());
        lock(&self.injected).faults.push((fault.kind, now_ms()));
    }

    /// The only master forgot its scripts, by now.
    fn forgot(&self, only_master: bool) {
        if only_master {
            lock(&self.injected).forgot.push(Forgot { at_ms: now_ms() });
        }
    }

    fn over(&self, fault: &Fault) {
        self.timeline.done(format!("over: {}", fault.kind.name()));
    }

    fn inject(&self, fault: &Fault) -> Result<()> {
        use Kind as K;
        let lasts = Duration::from_millis(fault.lasts_ms);
        let of_gateway = || self.cell.gateways.get(usize::from(fault.which));
        match fault.kind {
            K::KillMaster
            | K::PauseMaster
            | K::RestartMaster
            | K::LaggingKill
            | K::LaggingPause
            | K::Failover
            | K::FlushAll
            | K::ScriptFlush
            | K::ThereAndBack
            | K::BlindHealed
            | K::BlindKilled
            | K::CutRedis
            | K::StallRedis
            | K::KillReplica
            | K::PauseReplica => self.hurt_redis(fault),
            K::KillKafka | K::PauseKafka => self.hurt_kafka(fault),
            K::KillPostgres | K::PausePostgres => self.hurt_postgres(fault),
            K::KillSentinel | K::PauseSentinel => self.hurt_sentinel(fault),
            K::CutKafka | K::BlackholeKafka | K::DelayKafka => {
                let _alone = self.gateways.get(usize::from(fault.which)).map(lock);
                self.hurt_way_to_kafka(fault)
            }
            K::CutDatabase | K::DelayDatabase => {
                self.begin(fault);
                hurt_way(&self.cell.database_way, fault)?;
                std::thread::sleep(lasts);
                self.cell.database_way.heal()?;
                self.over(fault);
                Ok(())
            }
            K::KillGateway | K::PauseGateway | K::RestartGateway | K::ShiftGateway => {
                let _alone = self.gateways.get(usize::from(fault.which)).map(lock);
                match of_gateway() {
                    Some(gateway) => self.hurt_service(gateway, fault),
                    None => bail!("there is no such gateway"),
                }
            }
            K::KillWriter | K::PauseWriter | K::RestartWriter => {
                self.hurt_service(&self.cell.writer, fault)
            }
            K::KillWatch | K::PauseWatch | K::RestartWatch | K::ShiftWatch => {
                let _alone = lock(&self.watch);
                self.hurt_service(&self.cell.watch, fault)
            }
        }
    }

    fn hurt_service(&self, service: &Mutex<Service>, fault: &Fault) -> Result<()> {
        use Kind as K;
        let lasts = Duration::from_millis(fault.lasts_ms);
        if matches!(fault.kind, K::ShiftGateway | K::ShiftWatch) {
            wait_started(service);
        }
        self.begin(fault);
        match fault.kind {
            K::KillGateway | K::KillWriter | K::KillWatch => {
                lock(service).kill9()?;
                std::thread::sleep(lasts);
                lock(service).start_again()?;
            }
            K::PauseGateway | K::PauseWriter | K::PauseWatch => {
                lock(service).pause()?;
                std::thread::sleep(lasts);
                lock(service).resume()?;
            }
            K::ShiftGateway | K::ShiftWatch => {
                let ahead = fault.is_ahead();
                lock(service).shift(if ahead { Shift::Ahead } else { Shift::Behind })?;
                std::thread::sleep(lasts);
                let mut service = lock(service);
                service.shift(Shift::None)?;
                if ahead {
                    // librdkafka waits by the wall clock: one that goes back by five minutes makes
                    // it wait for as long. So whoever sets it right starts the service again.
                    service.kill9()?;
                    service.start_again()?;
                }
            }
            _ => {
                let mut service = lock(service);
                service.terminate()?;
                service.start_again()?;
            }
        }
        self.over(fault);
        Ok(())
    }

    fn hurt_way_to_kafka(&self, fault: &Fault) -> Result<()> {
        let way = usize::from(fault.which);
        self.begin(fault);
        hurt_way(lock(&self.cell.kafka).proxy(way)?, fault)?;
        std::thread::sleep(Duration::from_millis(fault.lasts_ms));
        lock(&self.cell.kafka).proxy(way)?.heal()?;
        self.over(fault);
        Ok(())
    }

    fn hurt_kafka(&self, fault: &Fault) -> Result<()> {
        let lasts = Duration::from_millis(fault.lasts_ms);
        self.begin(fault);
        if fault.kind == Kind::PauseKafka {
            lock(&self.cell.kafka).pause()?;
            std::thread::sleep(lasts);
            lock(&self.cell.kafka).resume()?;
        } else {
            lock(&self.cell.kafka).kill9()?;
            std::thread::sleep(lasts);
            lock(&self.cell.kafka).restart()?;
        }
        self.over(fault);
        Ok(())
    }

    fn hurt_postgres(&self, fault: &Fault) -> Result<()> {
        let lasts = Duration::from_millis(fault.lasts_ms);
        self.begin(fault);
        if fault.kind == Kind::PausePostgres {
            lock(&self.cell.postgres).pause()?;
            std::thread::sleep(lasts);
            lock(&self.cell.postgres).resume()?;
        } else {
            lock(&self.cell.postgres).kill9()?;
            std::thread::sleep(lasts);
            lock(&self.cell.postgres).restart()?;
        }
        self.over(fault);
        Ok(())
    }

    fn hurt_sentinel(&self, fault: &Fault) -> Result<()> {
        let at = usize::from(fault.which);
        let (hurt, undo) = match fault.kind {
            Kind::KillSentinel => (Hurt::Kill, Hurt::StartAgain),
            _ => (Hurt::Pause, Hurt::Resume),
        };
        self.begin(fault);
        self.cell.redis_mut().sentinel(at, hurt)?;
        std::thread::sleep(Duration::from_millis(fault.lasts_ms));
        self.cell.redis_mut().sentinel(at, undo)?;
        self.over(fault);
        Ok(())
    }
}

/// Waits until a service is ready, or for as long as it may take to start: librdkafka's start does
/// not survive a clock that jumps (it answers after a minute), and that is not what is looked for.
fn wait_started(service: &Mutex<Service>) {
    let port = lock(service).ops_port();
    let begun = Instant::now();
    let ready = || http::get(port, "/readyz").is_ok_and(|answer| answer.status == 200);
    while !ready() && begun.elapsed() < STARTED_MAX {
        std::thread::sleep(TICK);
    }
}

/// Cuts, fills or slows a way.
fn hurt_way(way: &Proxy, fault: &Fault) -> Result<()> {
    match fault.kind {
        Kind::CutKafka | Kind::CutDatabase => way.cut(),
        Kind::BlackholeKafka => way.blackhole(),
        // 20 to 119 ms in each direction.
        _ => way.delay(Duration::from_millis(20 + fault.lasts_ms % 100)),
    }
}
