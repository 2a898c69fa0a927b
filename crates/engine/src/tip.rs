//! The tip: once a second, and when somebody waits for a claim, each sale is compared between
//! Redis and the log in one call. It finds a Redis that lost writes, and it relays: an event
//! that a gateway left behind between Redis and the log is published again from the outbox.

use crate::handle::Served;
use crate::session::Session;
use crate::shared::Shared;
use bytes::Bytes;
use dropgate_admission::{CallError, Closed, Reply, Tip};
use dropgate_domain::{Body, Phase, Seq, TimeMs};
use dropgate_events::decode_event;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// How many events one tip relays at most.
const RELAY_MAX: usize = 500;
/// When somebody asks for a tip before its time, the next one comes no sooner than this.
const ASKED_PAUSE: Duration = Duration::from_millis(100);
/// While a generation is being built, its tip is read at this pace, ...
const BUILDING_PAUSE: Duration = Duration::from_millis(150);
/// ... for so long at most.
const BUILDING_TAKES: Duration = Duration::from_secs(60);
/// When Redis names another generation for so long, it has gone back to an older one.
const ODD_FOR: Duration = Duration::from_secs(3);
/// When Redis was told for so long of more than the log holds, the log has lost its end.
const LACKING_FOR: Duration = Duration::from_secs(5);

/// Reads one sale's tip at the configured pace, until the sale is closed and all of it is in the
/// log, or until cancelled.
pub(crate) async fn watch_tip(shared: Arc<Shared>, served: Arc<Served>, stop: CancellationToken) {
    // However this ends, the sale can be watched again.
    let _watched = Watched(Arc::clone(&served));
    let mut next = Instant::now();
    loop {
        tokio::select! {
            () = tokio::time::sleep_until(next) => {}
            () = served.ask_tip.notified() => {}
            () = stop.cancelled() => return,
        }
        let mut pause = shared.config.tip_interval;
        if let Some(session) = served.session(&shared) {
            read_tip(&shared, &served, &session).await;
            if session.settled.load(Ordering::Acquire) {
                return;
            }
            // Claims of a generation that is being built wait for the first tip that agrees.
            if !session.ever_agreed() && session.since().elapsed() < BUILDING_TAKES {
                pause = pause.min(BUILDING_PAUSE);
            }
        }
        next = Instant::now() + pause;
        tokio::select! {
            () = tokio::time::sleep(ASKED_PAUSE) => {}
            () = stop.cancelled() => return,
        }
    }
}

struct Watched(Arc<Served>);

impl Drop for Watched {
    fn drop(&mut self) {
        self.0.watched.store(false, Ordering::Release);
    }
}

async fn read_tip(shared: &Arc<Shared>, served: &Served, session: &Arc<Session>) {
    // It may not be in the log yet.
    shared.send_halt(served, session);
    let applied = {
        let ledger = served.sale.ledger();
        let current = ledger.generation() == session.generation();
        if !current || matches!(ledger.phase(), Phase::Ended(_) | Phase::Stopped(_)) {
            return;
        }
        ledger.applied()
    };
    let seen = session.seen().max(applied);
    let asked = Instant::now();
    let reply = shared
        .admission
        .tip(&session.scope, &session.scripts, applied, RELAY_MAX)
        .await;
    match reply {
        Ok(Reply { value, redis_time }) => {
            let loss = lost_writes(served, session, seen, &value)
                .or_else(|| lost_records(shared, served, session, &value));
            if let Some(loss) = loss {
                shared.metrics.disagreements.inc();
                shared.halt(served, session, &loss);
                return;
            }
            session.agree(asked);
            session.see(value.seq);
            session.backlog.store(value.backlog, Ordering::Release);
            let closed = served.sale.phase() == Phase::Closed;
            if closed && value.seq == served.sale.ledger().applied() {
                session.settled.store(true, Ordering::Release);
            }
            relay(shared, served, session, redis_time, value.outbox);
            close_when_due(shared, served, session, redis_time).await;
        }
        Err(error) => tip_failed(shared, served, session, &error).await,
    }
}

/// What the tip says of writes that Redis no longer has; `None` when it agrees with the log.
fn lost_writes(served: &Served, session: &Session, seen: Seq, tip: &Tip) -> Option<String> {
    if tip.seq < seen {
        return Some(format!(
            "redis is at seq {}, {seen} was seen before",
            tip.seq
        ));
    }
    let ledger = served.sale.ledger();
    if ledger.generation() != session.generation() || tip.seq > ledger.applied() {
        return None;
    }
    match ledger.chain_at(tip.seq) {
        Some(chain) if chain == tip.head => None,
        _ => Some(format!(
            "the chain of redis differs from the log's at seq {}",
            tip.seq
        )),
    }
}

/// What the tip says of records that the log no longer has: some reader told Redis that it had
/// applied them, and here they do not come although the log is read to its end.
fn lost_records(shared: &Shared, served: &Served, session: &Session, tip: &Tip) -> Option<String> {
    let ledger = served.sale.ledger();
    let applied = ledger.applied();
    drop(ledger);
    let age = shared.followed.fresh.age(served.lane())?;
    if age > shared.config.fresh_for || !session.log_lacks(tip.applied, applied, LACKING_FOR) {
        return None;
    }
    Some(format!(
        "the log ends at seq {applied}, seq {} was in it",
        tip.applied
    ))
}

async fn tip_failed(
    shared: &Arc<Shared>,
    served: &Served,
    session: &Arc<Session>,
    error: &CallError,
) {
    #[cfg(feature = "weakened")]
    if *error == CallError::NoScript && shared.reloads(served) {
        return;
    }
    match error {
        CallError::Behind => {
            shared.metrics.disagreements.inc();
            shared.halt(served, session, &error.to_string());
        }
        CallError::NoScript | CallError::Missing if served.sale.phase() == Phase::Closed => {
            // Nothing of a closed sale will be asked of Redis again.
            session.settled.store(true, Ordering::Release);
        }
        CallError::NoScript | CallError::Missing => {
            session.note_absent();
            if session.ever_agreed() {
                shared.suspect(served, session, error).await;
            }
        }
        CallError::Stale => {
            session.note_absent();
            gone_back(shared, served, session, error);
        }
        // The state's key holds something else: no proxy's or driver's trouble.
        CallError::Protocol(text) if text.starts_with("WRONGTYPE") => {
            session.note_absent();
            gone_back(shared, served, session, error);
        }
        other => {
            // The last agreement runs out by itself.
            tracing::debug!(sale = %served.sale.id(), error = %other, "the tip could not be read");
        }
    }
}

/// Redis has not this generation. A newer one is in the log before it is in Redis, and this
/// process has read the log: when it stays so, Redis has gone back.
fn gone_back(shared: &Shared, served: &Served, session: &Arc<Session>, error: &CallError) {
    session.disown();
    let fresh = shared.followed.fresh.age(served.lane());
    let read = fresh.is_some_and(|age| age <= shared.config.fresh_for);
    if read && session.ever_agreed() && session.odd_for(ODD_FOR) {
        shared.metrics.disagreements.inc();
        shared.halt(served, session, &error.to_string());
    }
}

/// Publishes again what is old enough and not applied; twice is harmless. Only while the log
/// answers: a backlog is not made longer by repeating it.
fn relay(
    shared: &Shared,
    served: &Served,
    session: &Arc<Session>,
    redis_time: TimeMs,
    outbox: Vec<(Seq, Bytes)>,
) {
    let applied = served.sale.ledger().applied();
    session.forget_relays(applied);
    session.reopened(shared.publisher.reopened());
    let fresh = shared.followed.fresh.age(served.lane());
    let answers = fresh.is_some_and(|age| age <= shared.config.fresh_for);
    let publishes = answers && shared.publisher.trouble(served.lane()).is_none();
    let mut oldest = Duration::ZERO;
    for (seq, event) in outbox {
        let time = match decode_event(&event).map(|record| record.event.body) {
            Ok(Body::Won(won)) => won.link.time,
            Ok(Body::Closed(link)) => link.time,
            _ => {
                shared.warn_once(served.sale.id(), "the outbox holds what is no event");
                continue;
            }
        };
        if seq <= applied {
            continue;
        }
        let age = Duration::from_millis(redis_time.0.saturating_sub(time.0));
        oldest = oldest.max(age);
        if publishes
            && session.relay_is_due(seq, age, shared.config.relay_after)
            && shared.publisher.publish(session, served.lane(), seq, event)
        {
            session.relayed(seq);
            shared.metrics.relays.inc();
        }
    }
    let oldest_ms = u64::try_from(oldest.as_millis()).unwrap_or(u64::MAX);
    session.backlog_age_ms.store(oldest_ms, Ordering::Release);
}

/// A sale whose time is over refuses claims by itself; that it is closed belongs in the log too.
async fn close_when_due(
    shared: &Shared,
    served: &Served,
    session: &Arc<Session>,
    redis_time: TimeMs,
) {
    let due = served
        .sale
        .pin()
        .definition
        .closes_at
        .is_some_and(|at| redis_time >= at);
    if !due || served.sale.phase() != Phase::Open {
        return;
    }
    let applied = served.sale.ledger().applied();
    let admission = &shared.admission;
    match admission
        .close(&session.scope, &session.scripts, applied)
        .await
    {
        Ok(Reply {
            value: Closed::Now { seq, event },
            ..
        }) => {
            session.see(seq);
            shared.publisher.publish(session, served.lane(), seq, event);
        }
        Ok(_) => {}
        Err(error) => {
            tracing::debug!(sale = %served.sale.id(), %error, "the sale could not be closed now");
        }
    }
}
