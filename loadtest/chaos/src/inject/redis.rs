//! What is done to Redis. The faults that lose writes are the heart of the suite.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use dropgate_testkit::Proxy;

use super::{Injector, Promoted, TICK};
use crate::cell::lock;
use crate::fault::{Fault, Kind, LOSES_DISK, OLD_DISK};
use crate::timeline::now_ms;

/// How long the sentinels may take to promote; what comes later is not waited for.
const PROMOTED_MAX: Duration = Duration::from_secs(8);
/// How long a recovery is waited for while a paused master or a blind gateway stands by.
const RECOVERED_MAX: Duration = Duration::from_secs(6);
/// How old a restored disk is at most.
const OLD_MAX: Duration = Duration::from_secs(1);
/// How long a gateway may sell that cannot see the log: it is content with what it heard six
/// seconds ago.
const BLIND_MAX: Duration = Duration::from_millis(4500);
/// So many events more than were sold before, and it has outrun the log.
const OUTRUN: u64 = 20;
/// How long the blind gateway has to publish what it sold before the other goes on, which would
/// publish from the outbox what comes after all that it knows, and so come first.
const PUBLISHED: Duration = Duration::from_millis(300);
/// How long gateways have to apply what was clicked.
const APPLIED: Duration = Duration::from_millis(300);
/// How long the other gateway has to find in the outbox what the killed one sold.
const RELAYED: Duration = Duration::from_millis(1500);
/// The gateway that is made blind: the patient one.
const BLIND_GATEWAY: usize = 1;
const OTHER_GATEWAY: usize = 0;

impl Injector<'_> {
    pub(super) fn hurt_redis(&self, fault: &Fault) -> Result<()> {
        use Kind as K;
        let blind = matches!(fault.kind, K::BlindHealed | K::BlindKilled);
        // In the order in which everybody takes them.
        let _gateways = blind.then(|| [lock(&self.gateways[0]), lock(&self.gateways[1])]);
        let _watch = blind.then(|| lock(&self.watch));
        let _alone = lock(&self.redis);
        let (master, replica) = self.cell.redis().roles()?;
        // A master that another one is about to replace may go on for a while: then what one of
        // them forgets says nothing of the other.
        let only = !self.cell.redis().says_master(replica);
        let lasts = Duration::from_millis(fault.lasts_ms);
        self.begin(fault);
        match fault.kind {
            K::KillMaster => self.kill(master, lasts, fault.which, only)?,
            K::KillReplica => self.kill_replica(replica, lasts)?,
            K::PauseMaster => self.pause(master, lasts)?,
            K::PauseReplica => self.pause(replica, lasts)?,
            K::RestartMaster => {
                self.cell.redis_mut().shut_down(master)?;
                self.forgot(only);
                self.cell.redis_mut().start_again(master)?;
            }
            K::LaggingKill => self.lagging_kill(master, replica, lasts, only)?,
            K::LaggingPause => self.lagging_pause(master, replica, lasts)?,
            K::Failover => {
                let lost_ms = now_ms();
                self.cell.redis().failover()?;
                self.promoted(replica);
                self.agreed(replica, lost_ms);
            }
            K::FlushAll => self.cell.redis().ask(master, &["FLUSHALL"]).map(drop)?,
            K::ScriptFlush => {
                self.cell.redis().ask(master, &["SCRIPT", "FLUSH"])?;
                self.forgot(only);
            }
            K::ThereAndBack => {
                self.cell.redis().lag(replica)?;
                std::thread::sleep(lasts);
                self.cell.redis().there_and_back(master, replica)?;
            }
            K::BlindHealed | K::BlindKilled => {
                self.blind(master, replica, lasts, fault.kind == K::BlindKilled)?;
            }
            K::CutRedis => {
                self.way_to(master, Proxy::cut)?;
                std::thread::sleep(lasts);
                self.way_to(master, Proxy::heal)?;
            }
            _ => {
                let seconds = format!("{:.3}", lasts.as_secs_f64());
                // It answers when it is over.
                let _ = self.cell.redis().ask(master, &["DEBUG", "SLEEP", &seconds]);
            }
        }
        self.over(fault);
        Ok(())
    }

    /// Does something to the way by which clients reach a server.
    fn way_to(&self, server: usize, what: fn(&Proxy) -> Result<()>) -> Result<()> {
        let redis = self.cell.redis();
        what(redis.server(server).proxy().context("a proxy")?)
    }

    fn kill(&self, master: usize, lasts: Duration, which: u8, only: bool) -> Result<()> {
        if which == OLD_DISK {
            self.cell.redis().keep_disk(master)?;
            std::thread::sleep(lasts.min(OLD_MAX));
        }
        self.cell.redis_mut().kill9(master)?;
        self.forgot(only);
        match which {
            LOSES_DISK => self.cell.redis().lose_disk(master)?,
            OLD_DISK => self.cell.redis().restore_disk(master)?,
            _ => {}
        }
        std::thread::sleep(lasts);
        self.cell.redis_mut().start_again(master)
    }

    fn kill_replica(&self, replica: usize, lasts: Duration) -> Result<()> {
        self.cell.redis_mut().kill9(replica)?;
        std::thread::sleep(lasts);
        self.cell.redis_mut().start_again(replica)
    }

    fn pause(&self, server: usize, lasts: Duration) -> Result<()> {
        self.cell.redis_mut().pause(server)?;
        std::thread::sleep(lasts);
        self.cell.redis_mut().resume(server)
    }

    /// The replica stops following, sells on at the master, and is promoted when that dies.
    fn lagging_kill(&self, master: usize, replica: usize, lag: Duration, only: bool) -> Result<()> {
        self.cell.redis().lag(replica)?;
        std::thread::sleep(lag);
        let lost_ms = now_ms();
        self.cell.redis_mut().kill9(master)?;
        self.forgot(only);
        self.cell.redis().follow(replica)?;
        self.timeline.done("the master is dead");
        self.promoted(replica);
        self.agreed(replica, lost_ms);
        self.cell.redis_mut().start_again(master)
    }

    /// The same, but the old master stands still and goes on when another has its place.
    fn lagging_pause(&self, master: usize, replica: usize, lag: Duration) -> Result<()> {
        self.cell.redis().lag(replica)?;
        std::thread::sleep(lag);
        let before = self.sight.generation();
        let lost_ms = now_ms();
        self.cell.redis_mut().pause(master)?;
        self.cell.redis().follow(replica)?;
        self.timeline.done("the master stands still");
        self.promoted(replica);
        // With little patience, calls in its buffers have not run out of time yet.
        let patient = lag.as_millis().is_multiple_of(2);
        if patient {
            self.agreed(replica, lost_ms);
            self.recovered(before);
        }
        self.timeline.done("the old master goes on");
        self.cell.redis_mut().resume(master)?;
        if !patient {
            self.agreed(replica, lost_ms);
        }
        Ok(())
    }

    /// Redis goes back in time with its scripts kept, and the only gateway that then sells cannot
    /// see what was sold. It sells the same numbers again, past what the log has; what it has to
    /// publish comes late, or never.
    fn blind(&self, master: usize, replica: usize, lag: Duration, kill: bool) -> Result<()> {
        let blind = self.cell.gateways.get(BLIND_GATEWAY).context("a gateway")?;
        let other = self.cell.gateways.get(OTHER_GATEWAY).context("a gateway")?;
        // It would see at its next look that Redis is behind.
        lock(&self.cell.watch).pause()?;
        // What is on its way would be published from the outbox later, in its order or not. The
        // play needs that each gateway knows all that it sold.
        self.quiet(|| {
            lock(blind).pause()?;
            lock(&self.cell.kafka).proxy(BLIND_GATEWAY)?.blackhole()?;
            self.cell.redis().lag(replica)
        })?;
        std::thread::sleep(lag / 3);
        let mut sold = 0;
        self.quiet(|| {
            lock(other).pause()?;
            sold = self.cell.redis().last_seq(master, self.sale)?;
            self.timeline
                .done("gateway 2 is blind; what gateway 1 just sold is taken from Redis");
            self.cell.redis().there_and_back(master, replica)?;
            lock(blind).resume()
        })?;
        self.outrun(master, sold)?;
        if kill {
            lock(blind).kill9()?;
            self.timeline.done("gateway 2 is killed, gateway 1 goes on");
            // What it sent is in the kernel's buffers: it must not arrive after all.
            lock(&self.cell.kafka).proxy(BLIND_GATEWAY)?.cut()?;
            lock(&self.cell.kafka).proxy(BLIND_GATEWAY)?.heal()?;
            lock(other).resume()?;
            std::thread::sleep(lag + RELAYED);
            lock(blind).start_again()?;
        } else {
            self.timeline
                .done("gateway 2 sees again, gateway 1 goes on soon");
            lock(&self.cell.kafka).proxy(BLIND_GATEWAY)?.heal()?;
            std::thread::sleep(PUBLISHED);
            lock(other).resume()?;
        }
        lock(&self.cell.watch).resume()
    }

    /// Does something while nobody clicks, and everything that was clicked is applied.
    fn quiet(&self, what: impl FnOnce() -> Result<()>) -> Result<()> {
        // When all are done already, it is quiet.
        let held = lock(self.crowd).hold().is_ok();
        std::thread::sleep(APPLIED);
        let result = what();
        if held {
            lock(self.crowd).go_on()?;
        }
        result
    }

    /// Waits until more was sold than before Redis went back in time, or for as long as a blind
    /// gateway sells.
    fn outrun(&self, master: usize, sold: u64) -> Result<()> {
        let begun = Instant::now();
        let mut seq = 0;
        while seq < sold + OUTRUN && begun.elapsed() < BLIND_MAX {
            seq = self.cell.redis().last_seq(master, self.sale)?;
            std::thread::sleep(TICK);
        }
        self.timeline.done(format!(
            "gateway 2 sold to {seq}, past {sold} that it never saw"
        ));
        Ok(())
    }

    /// Waits until this server is the master, or for as long as that may take.
    fn promoted(&self, new: usize) {
        let begun = Instant::now();
        while begun.elapsed() < PROMOTED_MAX {
            if self.cell.redis().says_master(new) {
                self.timeline
                    .seen(format!("redis {} is the master", new + 1));
                return;
            }
            std::thread::sleep(TICK);
        }
        self.timeline.seen("no other master yet");
    }

    /// Waits until the sentinels say so, too: then whoever asks them can know.
    fn agreed(&self, new: usize, lost_ms: u64) {
        let begun = Instant::now();
        while begun.elapsed() < PROMOTED_MAX {
            if self.cell.redis().is_named(new) {
                let at_ms = now_ms();
                lock(&self.injected)
                    .promoted
                    .push(Promoted { lost_ms, at_ms });
                self.timeline.seen("the sentinels name it");
                return;
            }
            std::thread::sleep(TICK);
        }
        self.timeline.seen("the sentinels do not name it yet");
    }

    /// Waits until a later generation is sold, or for as long as that may take.
    fn recovered(&self, before: u64) {
        let begun = Instant::now();
        while self.sight.generation() <= before && begun.elapsed() < RECOVERED_MAX {
            std::thread::sleep(TICK);
        }
    }
}
