//! Recovering a sale: closed, rebuilt, reopened.
//!
//! For one generation, fixed when its cause was seen: only on a Redis that is certified, first
//! take what it still has of that generation out of use, put what waits in its outbox into the
//! log, and then begin the next generation from what the log has applied. A Redis with all, some,
//! none or stale data gives the same end: only the log decides, and what is published twice or
//! off its chain changes nothing that was told.

use crate::admin::AdminError;
use crate::engine::Engine;
use crate::generation::{Beginning, LOG_TAKES_MAX, Progress, begin_generation, of_another_log};
use crate::handle::Served;
use crate::shared::Shared;
use bytes::Bytes;
use dropgate_admission::{CallError, Operator, Scope};
use dropgate_domain::{Body, Digest, Generation, Link, Phase, SaleId, Seq};
use dropgate_events::decode_event;
use dropgate_stream::AppendError;
use futures::{StreamExt, TryStreamExt, stream};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// Events that are read from the outbox, and published, at a time.
const OUTBOX_AT_ONCE: usize = 500;
/// How long the first tip of a new generation may take.
const AGREES_IN: Duration = Duration::from_secs(3);
/// Publications that are on their way at once.
const PUBLISH_AT_ONCE: usize = 64;
/// The pause before a publication whose outcome is not known is tried again.
const PUBLISH_PAUSE: Duration = Duration::from_millis(200);

/// A recovery to be made.
#[derive(Debug, Clone)]
pub struct Recovery {
    /// The sale.
    pub sale: SaleId,
    /// The generation that is to end: the current one when the cause was seen. Were another one
    /// current by now, nothing is done.
    pub from: Generation,
    /// Who recovers, for people.
    pub by: String,
    /// Why, for people.
    pub reason: String,
}

/// What a recovery came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recovered {
    /// This generation was begun and is current in Redis.
    Begun(Generation),
    /// Somebody else began this one, or is at it.
    Overtaken(Generation),
}

impl Engine {
    /// Recovers a sale. `on_progress` is told each step.
    ///
    /// Crash safe and cancel safe at every step: what is left half done is looked at by nobody,
    /// and whoever recovers next begins another generation. Bounded by `recover_deadline`.
    ///
    /// # Errors
    /// [`AdminError`]. After `Unavailable` and `NotCertified` it may be tried again; the sale
    /// stays closed meanwhile.
    pub async fn recover(
        &self,
        recovery: &Recovery,
        on_progress: &(dyn Fn(Progress) + Send + Sync),
    ) -> Result<Recovered, AdminError> {
        let deadline = Instant::now() + self.shared().config.recover_deadline;
        // Some steps have no deadline of their own but that of each call.
        let recovered = timeout_at(deadline, self.recover_by(recovery, deadline, on_progress))
            .await
            .unwrap_or_else(|_| {
                let what = "the recovery took too long; it may be tried again";
                Err(AdminError::Unavailable(what.to_owned()))
            });
        self.shared().metrics.recovered(recovered.as_ref().ok());
        recovered
    }

    async fn recover_by(
        &self,
        recovery: &Recovery,
        deadline: Instant,
        on_progress: &(dyn Fn(Progress) + Send + Sync),
    ) -> Result<Recovered, AdminError> {
        let handle = self.sale(&recovery.sale).ok_or(AdminError::Unknown)?;
        let (shared, served) = (self.shared(), &handle.served);
        let patience = deadline.min(Instant::now() + shared.config.admin_deadline);
        shared.until(patience, || handle.fresh().ok()).await?;
        match served.sale.phase() {
            Phase::NotOpened => return Err(AdminError::NotOpen),
            Phase::Closed => return Err(AdminError::Closed),
            Phase::Stopped(stop) => return Err(AdminError::Halted(stop.to_string())),
            Phase::Open | Phase::Halted(_) | Phase::Ended(_) => {}
        }
        let now = || served.sale.ledger().generation();
        if now() != recovery.from {
            return Ok(Recovered::Overtaken(now()));
        }
        let operator = shared.operator()?;
        operator.certify(&served.sale.pin().sale).await?;
        on_progress(Progress::Certified);
        let pin = served.sale.pin();
        let scope = Scope::new(pin.sale.clone(), pin.log_id, recovery.from);
        // Before anything is begun: another log's key would refuse the switch at the end.
        not_of_another_log(operator, &scope).await?;
        let found = readable(operator.halt(&scope).await)?.unwrap_or(false);
        on_progress(Progress::Halted { found });
        // Also when the marker was gone: another recovery may have died after taking it.
        read_to_now(shared, served, deadline).await?;
        let publishing = publish_outbox(shared, served, operator, &scope);
        let late = || AdminError::Unavailable("log: the outbox was not taken in time".into());
        let events = tokio::time::timeout(LOG_TAKES_MAX, publishing)
            .await
            .map_err(|_| late())??;
        on_progress(Progress::Published { events });
        let beginning = Beginning {
            from: recovery.from,
            by: &recovery.by,
            reason: &recovery.reason,
            deadline,
            on_progress,
        };
        if !begin_generation(shared, served, &beginning).await? {
            return Ok(Recovered::Overtaken(now()));
        }
        agreed(shared, served, recovery.from.next()).await;
        forget(operator, &scope).await;
        Ok(Recovered::Begun(recovery.from.next()))
    }
}

/// Reads the log to an end that is asked for from now on: Redis was told of what other readers
/// have applied, and has forgotten their events.
async fn read_to_now(
    shared: &Shared,
    served: &Served,
    deadline: Instant,
) -> Result<(), AdminError> {
    let now = Instant::now();
    let deadline = deadline.min(now + LOG_TAKES_MAX);
    let fresh = &shared.followed.fresh;
    let read = || {
        let age = fresh.age(served.lane())?;
        (age < now.elapsed()).then_some(())
    };
    shared.until(deadline, read).await
}

/// Waits a moment for this process' own tip to find the new generation whole, so that whoever
/// looks at the sale next does not take it for one that does not go live.
async fn agreed(shared: &Shared, served: &Served, generation: Generation) {
    served.ask_tip.notify_one();
    let whole = || {
        let session = served.session(shared)?;
        (session.generation() != generation || session.ever_agreed()).then_some(())
    };
    // If not: it is begun, and that is what was asked for.
    let _ = shared.until(Instant::now() + AGREES_IN, whole).await;
}

async fn not_of_another_log(operator: &Operator, ours: &Scope) -> Result<(), AdminError> {
    match readable(operator.current(ours.sale()).await)?.flatten() {
        Some(tag) if !ours.is_of_same_log(&tag) => Err(of_another_log(ours.sale(), &tag)),
        _ => Ok(()),
    }
}

/// Puts into the log what waits in the outbox, so that no win is void that need not be, and
/// awaits the acknowledgements. Only what hangs on the log's chain: a Redis that lost writes has
/// events that never happened, and those would only end the generation for a second time.
async fn publish_outbox(
    shared: &Shared,
    served: &Arc<Served>,
    operator: &Operator,
    scope: &Scope,
) -> Result<u64, AdminError> {
    let (mut seq, mut head) = {
        let ledger = served.sale.ledger();
        match (ledger.generation(), ledger.position()) {
            (generation, Some(position))
                if generation == scope.generation()
                    && !matches!(ledger.phase(), Phase::Ended(_)) =>
            {
                (position.seq, position.chain)
            }
            // Nothing of it can apply any more.
            _ => return Ok(0),
        }
    };
    let mut published = 0;
    loop {
        let events = operator.outbox(scope, seq.next(), OUTBOX_AT_ONCE).await;
        let events = readable(events)?.unwrap_or_default();
        let last = events.len() < OUTBOX_AT_ONCE;
        let events = on_chain(events, &mut seq, &mut head);
        let count = events.len();
        stream::iter(events)
            .map(|event| publish(shared, served, event))
            .buffer_unordered(PUBLISH_AT_ONCE)
            .try_collect::<()>()
            .await?;
        published += count as u64;
        if last || count == 0 {
            return Ok(published);
        }
    }
}

/// What cannot be read is of no use, and no reason not to begin anew.
fn readable<T>(reply: Result<T, CallError>) -> Result<Option<T>, CallError> {
    match reply {
        Ok(value) => Ok(Some(value)),
        Err(CallError::Protocol(what)) => {
            tracing::warn!(what, "redis holds what cannot be read");
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// The events that go on from `seq`, each hanging on the one before; moves `seq` and `head` on.
fn on_chain(events: Vec<(Seq, Bytes)>, seq: &mut Seq, head: &mut Digest) -> Vec<Bytes> {
    let mut chained = Vec::with_capacity(events.len());
    for (_, event) in events {
        let Ok(record) = decode_event(&event) else {
            break;
        };
        let link: Link = match record.event.body {
            Body::Won(won) => won.link,
            Body::Closed(link) => link,
            Body::Started(_) | Body::Halted(_) => break,
        };
        if link.seq != seq.next() || link.prev != *head {
            break;
        }
        (*seq, *head) = (link.seq, record.digest);
        chained.push(event);
    }
    chained
}

/// Appends until it is acknowledged; the caller's deadline ends it. Twice is harmless.
async fn publish(shared: &Shared, served: &Served, event: Bytes) -> Result<(), AdminError> {
    loop {
        match shared.log.append(served.lane(), event.clone()).await {
            Ok(_) => return Ok(()),
            Err(AppendError::Unknown(_)) => tokio::time::sleep(PUBLISH_PAUSE).await,
            Err(error @ AppendError::Refused(_)) => {
                return Err(AdminError::Unavailable(format!("log: {error}")));
            }
        }
    }
}

/// Deletes the keys of generations that are older than the one before the current: those are
/// looked at by nobody. What fails is deleted by the next recovery.
async fn forget(operator: &Operator, before: &Scope) {
    /// Older ones were deleted by earlier recoveries.
    const GENERATIONS_MAX: u32 = 8;
    let newest = before.generation().0;
    for generation in newest.saturating_sub(GENERATIONS_MAX).max(1)..newest {
        let old = Scope::new(before.sale().clone(), before.log(), Generation(generation));
        if let Err(error) = operator.delete(&old).await {
            tracing::warn!(sale = %old.sale(), generation, %error, "old keys were not deleted");
        }
    }
}
