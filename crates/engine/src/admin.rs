//! Creating, opening and closing a sale.

use crate::engine::Engine;
use crate::generation::{Beginning, begin_generation, now_ms};
use crate::handle::SaleHandle;
use dropgate_admission::{CallError, Closed as ClosedReply, NotCertified};
use dropgate_domain::{
    AttemptId, Definition, InvalidDefinition, PartitionId, Phase, SaleCreated, SaleId, Seq,
};
use dropgate_events::encode_sale_created;
use dropgate_stream::{Lane, LogError};
use rand::RngExt;
use std::time::Duration;
use tokio::time::Instant;

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
    /// The sale's log cannot be followed: no recovery helps.
    #[error("the sale's log cannot be followed: {0}")]
    Unfollowable(String),
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
        shared
            .append(Lane::Index, encode_sale_created(&created))
            .await?;
        shared
            .until(deadline, || self.sale(&sale))
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
        shared.until(deadline, || handle.fresh().ok()).await?;
        let (phase, generation, claimed) = {
            let ledger = handle.sale().ledger();
            (
                ledger.phase(),
                ledger.generation(),
                ledger.applied() > Seq(0),
            )
        };
        let why = match phase {
            Phase::NotOpened => None,
            Phase::Closed => return Err(AdminError::Closed),
            Phase::Stopped(stop) => return Err(AdminError::Halted(stop.to_string())),
            Phase::Open if handle.live().is_ok() => return Ok(Opened::Already),
            Phase::Open => Some("it is open and not live".to_owned()),
            Phase::Halted(halted) => Some(halted.reason),
            Phase::Ended(cause) => Some(cause.to_string()),
        };
        let stopped = why.is_some();
        if let Some(why) = why {
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
        shared.operator()?.certify(sale).await?;
        let opening = Beginning {
            from: generation,
            by,
            reason: if stopped { "begun again" } else { "opened" },
            deadline,
            on_progress: &|_| {},
        };
        let ours = begin_generation(shared, &handle.served, &opening).await?;
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
        shared.until(deadline, || handle.fresh().ok()).await?;
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
        shared.until(deadline, closed).await?;
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

async fn live(handle: &SaleHandle, deadline: Instant) -> Result<(), AdminError> {
    handle.served.ask_tip.notify_one();
    handle
        .shared
        .until(deadline, || handle.live().ok().map(|_| ()))
        .await
}

/// Any partition would do, since the index says which it was; this spreads the sales.
fn partition_of(sale: &SaleId, partitions: u32) -> PartitionId {
    let fnv = sale.as_str().bytes().fold(0x811c_9dc5_u32, |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    });
    PartitionId(fnv % partitions.max(1))
}
