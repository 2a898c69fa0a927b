//! Creating, opening and closing a sale. Opening is the first case of beginning a generation:
//! append its record, read the log to it, load the scripts, build the state from the ledger,
//! and make it current.

use crate::engine::{Engine, Shared};
use crate::handle::{SaleHandle, Served};
use dropgate_admission::{
    CallError, Closed as ClosedReply, Entry, NotCertified, Operator, Scope, Scripts, State,
    Switched, hashes_for,
};
use dropgate_domain::{
    AttemptId, Body, CALLS_VERSION, Definition, Event, Generation, Identity, InvalidDefinition,
    Nonce, PartitionId, Phase, RULE_VERSION, SaleCreated, SaleId, Seq, Started, TimeMs, UserId,
};
use dropgate_events::{encode_event, encode_sale_created};
use dropgate_stream::{AppendError, Lane, LogError};
use rand::RngExt;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// How long an opening takes at the least before another one takes it for cut off; up to twice
/// that, so that of two who wait one comes first.
const OPENING_TAKES: Duration = Duration::from_secs(2);

/// What creating a sale came to.
#[derive(Debug)]
pub enum Created {
    /// It is new.
    Created(SaleHandle),
    /// It was there, with the same definition.
    Already(SaleHandle),
}

/// What opening a sale came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Opened {
    /// It opened now.
    Opened,
    /// It was open.
    Already,
}

/// What closing a sale came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Closed {
    /// It closed now.
    Closed,
    /// It was closed.
    Already,
}

/// Why an operator's command did not do what it should.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AdminError {
    /// The definition cannot be: every field that is wrong.
    #[error("the sale's definition is not valid")]
    Invalid(Vec<InvalidDefinition>),
    /// There is another sale of that id.
    #[error("there is another sale of this id")]
    Exists,
    /// There is no such sale.
    #[error("there is no such sale")]
    Unknown,
    /// The sale is closed.
    #[error("the sale is closed")]
    Closed,
    /// The sale has not been opened.
    #[error("the sale is not open")]
    NotOpen,
    /// The sale is halted: it must be recovered first.
    #[error("the sale is halted: {0}")]
    Halted(String),
    /// This process has no credentials that may load scripts.
    #[error("this gateway has no operator credentials for redis")]
    OperatorCredentialsMissing,
    /// Redis cannot be used for a sale as it is.
    #[error("redis is not fit for a sale: {0}")]
    NotCertified(String),
    /// Something did not answer. How far it came is unknown; the command may be given again.
    #[error("{0}")]
    Unavailable(String),
}

impl From<CallError> for AdminError {
    fn from(error: CallError) -> Self {
        Self::Unavailable(format!("redis: {error}"))
    }
}

impl From<LogError> for AdminError {
    fn from(error: LogError) -> Self {
        Self::Unavailable(format!("log: {error}"))
    }
}

impl From<NotCertified> for AdminError {
    fn from(error: NotCertified) -> Self {
        match error {
            NotCertified::Call(error) => error.into(),
            other => Self::NotCertified(other.to_string()),
        }
    }
}

impl Engine {
    /// Creates a sale: pins it to the log, a partition and an offset, in the index.
    ///
    /// # Errors
    /// [`AdminError`]. After `Unavailable` the sale may have been created.
    pub async fn create(
        &self,
        sale: SaleId,
        definition: Definition,
    ) -> Result<Created, AdminError> {
        let problems = definition.problems();
        if !problems.is_empty() {
            return Err(AdminError::Invalid(problems));
        }
        if let Some(handle) = self.sale(&sale) {
            return existing(handle, &definition);
        }
        let shared = self.shared();
        let deadline = Instant::now() + shared.config.admin_deadline;
        let partition = partition_of(&sale, shared.log.partitions());
        let probe = shared.log.probe(Lane::Claims(partition)).await?;
        if probe.log_id != shared.followed.log_id {
            return Err(AdminError::Unavailable("log: it was made anew".to_owned()));
        }
        let attempt = AttemptId(shared.random()?);
        let created = SaleCreated {
            sale: sale.clone(),
            log_id: probe.log_id,
            partition,
            from_offset: probe.end,
            definition: definition.clone(),
            created_at: now_ms(),
            attempt,
        };
        append(shared, Lane::Index, encode_sale_created(&created)).await?;
        until(shared, deadline, || self.sale(&sale))
            .await
            .and_then(|handle| {
                // Of two at once the first in the index counts.
                if handle.sale().pin().attempt == attempt {
                    Ok(Created::Created(handle))
                } else {
                    existing(handle, &definition)
                }
            })
    }

    /// Opens a sale: begins its first generation.
    ///
    /// # Errors
    /// [`AdminError`]. After `Unavailable` the command may be given again.
    pub async fn open(&self, sale: &SaleId, by: &str) -> Result<Opened, AdminError> {
        let handle = self.sale(sale).ok_or(AdminError::Unknown)?;
        let shared = self.shared();
        let deadline = Instant::now() + shared.config.admin_deadline;
        until(shared, deadline, || handle.fresh().ok()).await?;
        let (phase, generation, claimed) = {
            let ledger = handle.sale().ledger();
            (
                ledger.phase(),
                ledger.generation(),
                ledger.applied() > Seq(0),
            )
        };
        let stopped = match phase {
            Phase::NotOpened => None,
            Phase::Closed => return Err(AdminError::Closed),
            Phase::Stopped(stop) => return Err(AdminError::Halted(stop.to_string())),
            Phase::Open if handle.live().is_ok() => return Ok(Opened::Already),
            Phase::Open => Some("it is open and not live".to_owned()),
            Phase::Halted(halted) => Some(halted.reason),
            Phase::Ended(cause) => Some(cause.to_string()),
        };
        if let Some(why) = stopped {
            // Somebody else may be in the middle of opening it.
            let patience = OPENING_TAKES.mul_f64(rand::rng().random_range(1.0..2.0));
            if live(&handle, deadline.min(Instant::now() + patience))
                .await
                .is_ok()
            {
                return Ok(Opened::Already);
            }
            // An opening that was cut off after its record has no state in Redis, and nobody can
            // have claimed: it is begun again as the next generation. Anything else is a loss,
            // and a matter for a recovery.
            let current = shared.operator()?.current(sale).await?;
            if current.is_some() || claimed {
                return Err(AdminError::Halted(why));
            }
        }
        let ours = begin_generation(shared, &handle.served, generation, by, deadline).await?;
        live(&handle, deadline).await?;
        Ok(if ours {
            Opened::Opened
        } else {
            Opened::Already
        })
    }

    /// Closes a sale: it takes no more claims, for good.
    ///
    /// # Errors
    /// [`AdminError`]. After `Unavailable` the command may be given again.
    pub async fn close(&self, sale: &SaleId) -> Result<Closed, AdminError> {
        let handle = self.sale(sale).ok_or(AdminError::Unknown)?;
        let shared = self.shared();
        let deadline = Instant::now() + shared.config.admin_deadline;
        until(shared, deadline, || handle.fresh().ok()).await?;
        match handle.sale().phase() {
            Phase::Closed => return Ok(Closed::Already),
            Phase::NotOpened => return Err(AdminError::NotOpen),
            _ => {}
        }
        let session = handle
            .live()
            .map_err(|why| AdminError::Unavailable(why.to_string()))?;
        let applied = handle.sale().ledger().applied();
        let reply = shared
            .admission
            .close(&session.scope, &session.scripts, applied)
            .await?;
        let outcome = match reply.value {
            ClosedReply::Now { seq, event } => {
                session.see(seq);
                shared
                    .publisher
                    .publish(&session, handle.served.lane(), seq, event);
                Closed::Closed
            }
            ClosedReply::Already => Closed::Already,
            ClosedReply::Busy => {
                return Err(AdminError::Unavailable(
                    "too many claims are in flight".to_owned(),
                ));
            }
        };
        let closed = || (handle.sale().phase() == Phase::Closed).then_some(());
        until(shared, deadline, closed).await?;
        Ok(outcome)
    }
}

fn existing(handle: SaleHandle, definition: &Definition) -> Result<Created, AdminError> {
    if handle.sale().pin().definition == *definition {
        Ok(Created::Already(handle))
    } else {
        Err(AdminError::Exists)
    }
}

/// Begins the generation after `from`, and makes it current in Redis. The same for an opening
/// (`from` is 0) and for a recovery. False when somebody else began it.
///
/// Crash or pause anywhere is harmless: the record alone changes nothing that is told, and a
/// state that is not current is looked at by nobody.
async fn begin_generation(
    shared: &Shared,
    served: &Arc<Served>,
    from: Generation,
    by: &str,
    deadline: Instant,
) -> Result<bool, AdminError> {
    let operator = shared.operator()?;
    operator.certify().await?;
    let (nonce, loaded) = nonce_for(shared, operator, from).await?;
    let generation = from.next();
    let identity = Identity(shared.random()?);
    let pin = served.sale.pin();
    let opening = from == Generation(0);
    let started = Event {
        sale: pin.sale.clone(),
        generation,
        body: Body::Started(Box::new(Started {
            identity,
            nonce,
            scripts: hashes_for(nonce),
            rule: RULE_VERSION,
            calls: CALLS_VERSION,
            window: shared.config.window,
            definition: opening.then(|| pin.definition.clone()),
            by: by.to_owned(),
            reason: if opening { "opened" } else { "began again" }.to_owned(),
            at: Some(now_ms()),
        })),
    };
    append(shared, served.lane(), encode_event(&started)).await?;
    let read = || {
        let ledger = served.sale.ledger();
        let current = ledger.current()?;
        (current.generation() >= generation).then(|| current.identity())
    };
    if until(shared, deadline, read).await? != identity {
        return Ok(false);
    }
    if !loaded {
        operator.load_scripts(nonce).await?;
    }
    let scripts = Scripts::from_started(&hashes_for(nonce))
        .map_err(|error| AdminError::Unavailable(error.to_string()))?;
    let scope = Scope::new(pin.sale.clone(), pin.log_id, generation);
    let (state, claims) = snapshot(served, generation)?;
    operator.build(&scope, &state, claims).await?;
    let old = (!opening).then(|| Scope::new(pin.sale.clone(), pin.log_id, from));
    let switched = operator
        .switch(&scripts, old.as_ref(), &scope, state.seq, state.head)
        .await?;
    match switched.value {
        Switched::Switched | Switched::Already => Ok(true),
        Switched::NotBuilt => Err(AdminError::Unavailable(
            "redis lost the new generation while it was built".to_owned(),
        )),
        Switched::Backwards => match operator.current(&pin.sale).await? {
            Some(tag) if !scope.is_of_same_log(&tag) => Err(AdminError::Halted(format!(
                "redis holds a sale of this id from another log ({tag}); delete its key \
                 dropgate:{{{}}}:current if that log is no longer used",
                pin.sale
            ))),
            // A later generation is current: that recovery did this one's work.
            _ => Ok(false),
        },
    }
}

/// The nonce of the generation to begin, and whether its scripts are loaded.
///
/// An opening uses those of the newest generation that this process has read of, if Redis still
/// has them, since a loaded script is never freed. They are not loaded again, were they gone a
/// moment later: a nonce's scripts are loaded once in history, or a Redis that forgot would be
/// taught to answer. A recovery always draws a new nonce: that is the fence.
async fn nonce_for(
    shared: &Shared,
    operator: &Operator,
    from: Generation,
) -> Result<(Nonce, bool), AdminError> {
    let newest = *shared.followed.newest_nonce.read();
    if let Some(nonce) = newest.filter(|_| from == Generation(0)) {
        // The hashes of this release's scripts: another release's are not found loaded.
        if operator.scripts_loaded(&hashes_for(nonce)).await? {
            return Ok((nonce, true));
        }
    }
    Ok((Nonce(shared.random()?), false))
}

/// The claims of every user.
type Claims = Vec<(UserId, Vec<Entry>)>;

/// What a new generation begins with: the ledger as it stands at its `Started` record.
fn snapshot(served: &Served, generation: Generation) -> Result<(State, Claims), AdminError> {
    let ledger = served.sale.ledger();
    let overtaken = || AdminError::Unavailable("another generation has begun".to_owned());
    let position = ledger.position().ok_or_else(overtaken)?;
    if position.generation != generation {
        return Err(overtaken());
    }
    let state = State {
        definition: served.sale.pin().definition.clone(),
        next: ledger.next_fresh(),
        seq: position.seq,
        head: position.chain,
        time: ledger.last_time(),
        window: ledger.current().ok_or_else(overtaken)?.window(),
        closed: ledger.closed_at().is_some(),
    };
    let entries = |user: &UserId| {
        let entry = |win: &dropgate_domain::Win| Entry {
            seq: win.seq,
            unit: win.unit,
            attempt: win.attempt,
            key: win.key.clone(),
        };
        ledger.wins_of(user).map(entry).collect()
    };
    let claims = ledger
        .users()
        .map(|user| (user.clone(), entries(user)))
        .collect();
    Ok((state, claims))
}

async fn append(shared: &Shared, lane: Lane, bytes: bytes::Bytes) -> Result<(), AdminError> {
    match shared.log.append(lane, bytes).await {
        // Unknown: reading the log will tell.
        Ok(_) | Err(AppendError::Unknown(_)) => Ok(()),
        Err(error @ AppendError::Refused(_)) => {
            Err(AdminError::Unavailable(format!("log: {error}")))
        }
    }
}

/// Waits until the log that was read shows what is asked for.
async fn until<T>(
    shared: &Shared,
    deadline: Instant,
    look: impl Fn() -> Option<T>,
) -> Result<T, AdminError> {
    let mut changes = shared.followed.changes.subscribe();
    loop {
        if let Some(found) = look() {
            return Ok(found);
        }
        // Freshness changes without a record, so a look is due now and then all the same.
        let wake = deadline.min(Instant::now() + shared.config.freshness_interval);
        if timeout_at(wake, changes.changed()).await.is_err() && wake == deadline {
            let what = "the log did not show it in time; ask again".to_owned();
            return Err(AdminError::Unavailable(what));
        }
    }
}

async fn live(handle: &SaleHandle, deadline: Instant) -> Result<(), AdminError> {
    handle.served.ask_tip.notify_one();
    until(&handle.shared, deadline, || handle.live().ok().map(|_| ())).await
}

/// Any partition would do, since the index says which it was; this spreads the sales.
fn partition_of(sale: &SaleId, partitions: u32) -> PartitionId {
    let fnv = sale.as_str().bytes().fold(0x811c_9dc5_u32, |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    });
    PartitionId(fnv % partitions.max(1))
}

pub(crate) fn now_ms() -> TimeMs {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    TimeMs(since.map_or(0, |d| u64::try_from(d.as_millis()).unwrap_or(u64::MAX)))
}
