//! A generation of a sale as this process serves it: all that ends when the generation does.

use crate::answer::Unavailable;
use dropgate_admission::{Scope, Scripts};
use dropgate_domain::{Generation, Incarnation, LogId, SaleId, Seq};
use parking_lot::Mutex;
use std::collections::{HashMap, HashSet};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tokio::time::Instant;

/// The first pause before an event is relayed again; it doubles.
const RELAY_PAUSE: Duration = Duration::from_millis(500);
/// The longest such pause.
const RELAY_PAUSE_MAX: Duration = Duration::from_secs(8);

/// Redis' word that it has not a generation is good for so long.
const ABSENT_AGAIN: Duration = Duration::from_secs(3);

/// An event that waits in the outbox.
#[derive(Debug)]
struct Relay {
    /// When a tip first told of it.
    seen: Instant,
    /// When it may be published next.
    next: Instant,
    /// The pause after that.
    pause: Duration,
}

/// A generation of a sale, as this process serves it.
#[derive(Debug)]
pub(crate) struct Session {
    pub scope: Scope,
    pub scripts: Scripts,
    /// When the last tip was asked that agreed with the log.
    agreed: Mutex<Option<Instant>>,
    /// Whether a tip ever agreed: from then on a missing state is a loss.
    ever_agreed: AtomicBool,
    /// The highest seq that Redis has told of, in a reply or a tip.
    seen: AtomicU64,
    /// Why this process stops by itself, before the halt is in the log.
    halted: OnceLock<String>,
    /// The first and the last time in a row that Redis said it has not this generation.
    absent: Mutex<Option<(Instant, Instant)>>,
    /// When this process began to serve the generation.
    since: Instant,
    /// Held by the one call that asks what Redis is that has forgotten.
    pub suspecting: tokio::sync::Mutex<()>,
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
    /// The events that the outbox held at the last tips.
    relays: Mutex<HashMap<Seq, Relay>>,
    /// What Redis was told is applied and is not here, and since when.
    lacking: Mutex<Option<(Seq, Instant)>>,
    /// Since when Redis has answered the tip with what is not this generation.
    odd_since: Mutex<Option<Instant>>,
    /// Events in the outbox at the last tip.
    pub backlog: AtomicU64,
    /// The age of the oldest of them, in ms.
    pub backlog_age_ms: AtomicU64,
    /// How often publishing had begun to work again when the relays were last looked at.
    reopened: AtomicU64,
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
            agreed: Mutex::new(None),
            ever_agreed: AtomicBool::new(false),
            seen: AtomicU64::new(current.base().0),
            halted: OnceLock::new(),
            absent: Mutex::new(None),
            since: Instant::now(),
            suspecting: tokio::sync::Mutex::new(()),
            halt_sent: AtomicBool::new(false),
            settled: AtomicBool::new(false),
            latched: Mutex::new(None),
            was_sold_out: AtomicBool::new(false),
            renewing: tokio::sync::Mutex::new(()),
            in_flight: Mutex::default(),
            relays: Mutex::default(),
            lacking: Mutex::new(None),
            odd_since: Mutex::new(None),
            backlog: AtomicU64::new(0),
            backlog_age_ms: AtomicU64::new(0),
            reopened: AtomicU64::new(0),
        })
    }

    pub fn generation(&self) -> Generation {
        self.scope.generation()
    }

    /// Redis' state agrees with the log, as of `asked`.
    pub fn agree(&self, asked: Instant) {
        *self.agreed.lock() = Some(asked);
        self.ever_agreed.store(true, Ordering::Release);
        *self.odd_since.lock() = None;
        *self.absent.lock() = None;
    }

    /// Redis has another generation, or none: until a tip agrees again nothing is served.
    pub fn disown(&self) {
        *self.agreed.lock() = None;
    }

    /// Notes that Redis says it has not this generation: it is not built yet, or was lost.
    pub fn note_absent(&self) {
        let (mut absent, now) = (self.absent.lock(), Instant::now());
        *absent = match *absent {
            Some((first, last)) if last.elapsed() <= ABSENT_AGAIN => Some((first, now)),
            _ => Some((now, now)),
        };
    }

    /// For how long Redis has said, until a moment ago, that it has not this generation. `None`
    /// when it has it, or has not answered.
    pub fn absent_for(&self) -> Option<Duration> {
        let (first, last) = (*self.absent.lock())?;
        (last.elapsed() <= ABSENT_AGAIN).then(|| first.elapsed())
    }

    /// Notes that Redis has answered the tip with what is not this generation. True when it has
    /// for `long`: then it is not on its way to a newer one, but has gone back.
    pub fn odd_for(&self, long: Duration) -> bool {
        let mut since = self.odd_since.lock();
        since.get_or_insert_with(Instant::now).elapsed() >= long
    }

    /// Whether this process has seen the generation whole in its Redis. Until then a state that
    /// is missing may be one that is being built, or this may be the wrong Redis: that serves
    /// nobody, and is no reason to stop the others.
    pub fn ever_agreed(&self) -> bool {
        self.ever_agreed.load(Ordering::Acquire)
    }

    /// Stops the generation in this process, for good. False when it was stopped before.
    pub fn halt(&self, reason: &str) -> bool {
        self.halted.set(reason.to_owned()).is_ok()
    }

    /// Why this process has stopped the generation, if it has.
    pub fn halted(&self) -> Option<&str> {
        self.halted.get().map(String::as_str)
    }

    /// When this process began to serve the generation.
    pub fn since(&self) -> Instant {
        self.since
    }

    /// Whether Redis is known to hold this generation, as the log has it.
    pub fn standing(&self, tip_valid: Duration) -> Result<(), Unavailable> {
        if self.halted().is_some() {
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

    /// Whether an event of the outbox is to be published now: it is older than `after` by the
    /// sale's time, or was seen here that long ago (the sale's time stands still while Redis'
    /// clock is set back), and its last publication was long enough ago.
    pub fn relay_is_due(&self, seq: Seq, age: Duration, after: Duration) -> bool {
        let now = Instant::now();
        let mut relays = self.relays.lock();
        let relay = relays.entry(seq).or_insert(Relay {
            seen: now,
            next: now,
            pause: RELAY_PAUSE,
        });
        now >= relay.next && age.max(now - relay.seen) >= after
    }

    /// The event is being published again: the next time is put off.
    pub fn relayed(&self, seq: Seq) {
        if let Some(relay) = self.relays.lock().get_mut(&seq) {
            relay.next = Instant::now() + relay.pause;
            relay.pause = (relay.pause * 2).min(RELAY_PAUSE_MAX);
        }
    }

    /// Publishing has begun to work again so many times: if one of them is news, nobody has to
    /// wait for a pause to end.
    pub fn reopened(&self, times: u64) {
        if self.reopened.swap(times, Ordering::AcqRel) == times {
            return;
        }
        for relay in self.relays.lock().values_mut() {
            (relay.next, relay.pause) = (Instant::now(), RELAY_PAUSE);
        }
    }

    /// What is applied needs no relay any more.
    pub fn forget_relays(&self, applied: Seq) {
        self.relays.lock().retain(|seq, _| *seq > applied);
    }

    /// Notes that Redis was told of more than this process' ledger has applied. True when that
    /// has been so for `long`: then the log lacks what its readers had.
    pub fn log_lacks(&self, told: Seq, applied: Seq, long: Duration) -> bool {
        let mut lacking = self.lacking.lock();
        if told <= applied {
            *lacking = None;
            return false;
        }
        let (first, since) = *lacking.get_or_insert((told, Instant::now()));
        if first <= applied {
            *lacking = Some((told, Instant::now()));
            return false;
        }
        since.elapsed() >= long
    }
}
