//! A generation of a sale as this process serves it: all that ends when the generation does.

use crate::answer::Unavailable;
use dropgate_admission::{Scope, Scripts};
use dropgate_domain::{Generation, Incarnation, LogId, SaleId, Seq};
use parking_lot::Mutex;
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tokio::time::Instant;

/// The first pause before an event is relayed again; it doubles.
const RELAY_PAUSE: Duration = Duration::from_millis(500);
/// The longest such pause.
const RELAY_PAUSE_MAX: Duration = Duration::from_secs(30);

/// A generation of a sale, as this process serves it.
#[derive(Debug)]
pub(crate) struct Session {
    pub scope: Scope,
    pub scripts: Scripts,
    /// When this process read of the generation.
    read_at: Instant,
    /// When the last tip was asked that agreed with the log.
    agreed: Mutex<Option<Instant>>,
    /// Whether a tip ever agreed: from then on a missing state is a loss.
    ever_agreed: AtomicBool,
    /// The highest seq that Redis has told of, in a reply or a tip.
    seen: AtomicU64,
    /// This process has seen a loss and stops by itself, before the halt is in the log.
    pub halted: AtomicBool,
    /// The halt is in the log, or on its way there.
    pub halt_sent: AtomicBool,
    /// The sale is closed, and Redis and the log agree on all of it: there is nothing to watch.
    pub settled: AtomicBool,
    /// Until when "sold out" is answered from memory.
    latched: Mutex<Option<Instant>>,
    /// Whether "sold out" was ever exact here: then one call at a time asks again.
    pub was_sold_out: AtomicBool,
    /// Held by the one call that renews the latch.
    pub renewing: tokio::sync::Mutex<()>,
    /// Events that this process is publishing right now.
    in_flight: Mutex<HashSet<Seq>>,
    /// Of relayed events: when next, and the pause after that.
    relayed: Mutex<HashMap<Seq, (Instant, Duration)>>,
    /// Events in the outbox at the last tip.
    pub backlog: AtomicU64,
}

impl Session {
    /// The session of a generation whose record was just read.
    pub fn new(
        sale: SaleId,
        log: LogId,
        current: &Incarnation,
    ) -> Result<Self, dropgate_admission::ScriptsError> {
        Ok(Self {
            scope: Scope::new(sale, log, current.generation()),
            scripts: Scripts::from_started(current.scripts())?,
            read_at: Instant::now(),
            agreed: Mutex::new(None),
            ever_agreed: AtomicBool::new(false),
            seen: AtomicU64::new(current.base().0),
            halted: AtomicBool::new(false),
            halt_sent: AtomicBool::new(false),
            settled: AtomicBool::new(false),
            latched: Mutex::new(None),
            was_sold_out: AtomicBool::new(false),
            renewing: tokio::sync::Mutex::new(()),
            in_flight: Mutex::default(),
            relayed: Mutex::default(),
            backlog: AtomicU64::new(0),
        })
    }

    pub fn generation(&self) -> Generation {
        self.scope.generation()
    }

    /// Redis' state agrees with the log, as of `asked`.
    pub fn agree(&self, asked: Instant) {
        *self.agreed.lock() = Some(asked);
        self.ever_agreed.store(true, Ordering::Release);
    }

    /// Redis has another generation, or none: until a tip agrees again nothing is served.
    pub fn disown(&self) {
        *self.agreed.lock() = None;
    }

    /// Whether a state that is missing now was there, or should long be.
    pub fn missing_is_a_loss(&self, build_grace: Duration) -> bool {
        self.ever_agreed.load(Ordering::Acquire) || self.read_at.elapsed() > build_grace
    }

    /// Whether Redis is known to hold this generation, as the log has it.
    pub fn standing(&self, tip_valid: Duration) -> Result<(), Unavailable> {
        if self.halted.load(Ordering::Acquire) {
            return Err(Unavailable::Halted);
        }
        let agreed = *self.agreed.lock();
        match agreed {
            Some(asked) if asked.elapsed() <= tip_valid => Ok(()),
            Some(_) => Err(Unavailable::Admission),
            None => Err(Unavailable::Starting),
        }
    }

    pub fn see(&self, seq: Seq) {
        self.seen.fetch_max(seq.0, Ordering::AcqRel);
    }

    pub fn seen(&self) -> Seq {
        Seq(self.seen.load(Ordering::Acquire))
    }

    pub fn latch(&self, until: Instant) {
        let mut latched = self.latched.lock();
        *latched = Some(latched.map_or(until, |before| before.max(until)));
        self.was_sold_out.store(true, Ordering::Release);
    }

    pub fn is_latched(&self) -> bool {
        self.latched
            .lock()
            .is_some_and(|until| Instant::now() < until)
    }

    /// Notes that the event is being published; false when it is already.
    pub fn begin_publish(&self, seq: Seq) -> bool {
        self.in_flight.lock().insert(seq)
    }

    pub fn end_publish(&self, seq: Seq) {
        self.in_flight.lock().remove(&seq);
    }

    /// Whether the relay may publish this event now; if so, the next time is put off.
    pub fn may_relay(&self, seq: Seq) -> bool {
        if self.in_flight.lock().contains(&seq) {
            return false;
        }
        let now = Instant::now();
        let mut relayed = self.relayed.lock();
        let (next, pause) = relayed.entry(seq).or_insert((now, RELAY_PAUSE));
        if now < *next {
            return false;
        }
        *next = now + *pause;
        *pause = (*pause * 2).min(RELAY_PAUSE_MAX);
        true
    }

    /// What is applied needs no relay any more.
    pub fn forget_relays(&self, applied: Seq) {
        self.relayed.lock().retain(|seq, _| *seq > applied);
    }
}
