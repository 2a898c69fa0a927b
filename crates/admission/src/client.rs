//! A gateway's client: calls of scripts by hash, and nothing else.

use crate::clock::Clock;
use crate::config::RedisConfig;
use crate::error::{CallError, ConnectError};
use crate::keys::Scope;
use crate::link::{Item, Link, Slot};
use crate::reply::{Claimed, Closed, Raw, Reply, Tip};
use crate::scripts::{Script, Scripts};
use bytes::Bytes;
use dropgate_domain::{AttemptId, Digest, IdempotencyKey, Seq, TimeMs, UserId};
use fred::types::Value;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// One user's attempt at a unit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// Who.
    pub user: UserId,
    /// The claim's key; none: the user's first claim.
    pub key: IdempotencyKey,
    /// This attempt.
    pub attempt: AttemptId,
}

/// The most events that one tip returns.
const TIP_EVENTS_MAX: usize = 500;

/// A gateway's client of Redis.
///
/// It calls the scripts of a generation by hash only and holds none of their text. Every call is
/// sent at most once, is bounded by the command time-out, and carries a deadline by Redis' clock
/// after which it does nothing, so what timed out is over soon after.
///
/// Cheap to clone. The connection and its watchdog end with the last clone, or at
/// [`shutdown`](Self::shutdown).
#[derive(Debug, Clone)]
pub struct Admission {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    link: Link,
    clock: Clock,
    call_deadline: Duration,
}

impl Admission {
    /// Connects, waiting up to `connect_timeout`. A Redis that cannot be reached by then is no
    /// error: the client goes on trying in the background, and calls are
    /// [`Unavailable`](CallError::Unavailable) meanwhile.
    ///
    /// # Errors
    /// When the configuration cannot be, or Redis answers and refuses the user.
    pub async fn connect(config: &RedisConfig) -> Result<Self, ConnectError> {
        let inner = Inner {
            link: Link::open(config).await?,
            clock: Clock::new(),
            call_deadline: config.call_deadline,
        };
        Ok(Self {
            inner: Arc::new(inner),
        })
    }

    /// Asks for a unit. `applied` is the last seq of the scope's generation that the caller's
    /// ledger has applied.
    ///
    /// Not cancel safe: a call that is dropped may have taken a unit, which the same claim asked
    /// again gets.
    ///
    /// # Errors
    /// See [`CallError`]; after one that [may have run](CallError::may_have_run), ask again with
    /// the same claim.
    pub async fn claim(
        &self,
        scope: &Scope,
        scripts: &Scripts,
        applied: Seq,
        claim: &Claim,
    ) -> Result<Reply<Claimed>, CallError> {
        let prefix = dropgate_events::won_prefix(
            scope.sale(),
            scope.generation(),
            &claim.user,
            claim.attempt,
            &claim.key,
        );
        let keys = scope.keys();
        let call = Call::new(
            Script::ClaimUnit,
            scripts,
            keys.slot,
            &[&keys.current, &keys.state, &keys.claims, &keys.outbox],
        )
        .text(&keys.tag)
        .number(applied.0)
        .number(self.deadline(keys.slot).await?.0)
        .text(claim.user.as_str())
        .text(claim.key.as_str())
        .bytes(claim.attempt.0.to_vec())
        .bytes(prefix);
        self.run(call).await?.claimed()
    }

    /// Ends the sale. `applied` as for [`claim`](Self::claim).
    ///
    /// Not cancel safe: a call that is dropped may have closed the sale.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn close(
        &self,
        scope: &Scope,
        scripts: &Scripts,
        applied: Seq,
    ) -> Result<Reply<Closed>, CallError> {
        let keys = scope.keys();
        let prefix = dropgate_events::closed_prefix(scope.sale(), scope.generation());
        let call = Call::new(
            Script::CloseSale,
            scripts,
            keys.slot,
            &[&keys.current, &keys.state, &keys.outbox],
        )
        .text(&keys.tag)
        .number(applied.0)
        .number(self.deadline(keys.slot).await?.0)
        .bytes(prefix);
        self.run(call).await?.closed()
    }

    /// How far the sale has come, with up to `max` events (at most 500) that are not applied yet.
    /// Tells Redis what the caller has applied: the outbox is trimmed through it.
    ///
    /// Cancel safe: it may be dropped and called again.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn tip(
        &self,
        scope: &Scope,
        scripts: &Scripts,
        applied: Seq,
        max: usize,
    ) -> Result<Reply<Tip>, CallError> {
        let keys = scope.keys();
        let max = u64::try_from(max.min(TIP_EVENTS_MAX)).unwrap_or(0);
        let call = Call::new(
            Script::ReadTip,
            scripts,
            keys.slot,
            &[&keys.current, &keys.state, &keys.outbox],
        )
        .text(&keys.tag)
        .number(applied.0)
        .number(max);
        self.run(call).await?.tip()
    }

    /// Whether the server that answers for a sale now calls itself a master. What another one has
    /// forgotten is no loss: it never held scripts, or is on its way out.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn is_master(&self, scope: &Scope) -> Result<bool, CallError> {
        let link = &self.inner.link;
        let server = link.server(scope.keys().slot)?;
        Ok(link.facts(&server).await?.role == "master")
    }

    /// Why no sale must run on this Redis, each with what to do about it. Empty: nothing.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn problems(&self) -> Result<Vec<String>, CallError> {
        self.inner.link.problems().await
    }

    /// Refuses new calls, waits for those in flight up to the command time-out, and disconnects.
    /// For all clones. Called again it does nothing.
    pub async fn shutdown(&self) {
        self.inner.link.close().await;
    }

    async fn run(&self, call: Call) -> Result<Raw, CallError> {
        let raw = call.send(&self.inner.link).await?;
        self.inner.clock.observe(raw.at, Instant::now());
        Ok(raw)
    }

    /// The deadline of a call that is sent now, in Redis' time.
    async fn deadline(&self, slot: Slot) -> Result<TimeMs, CallError> {
        let clock = &self.inner.clock;
        let now = match clock.at(Instant::now()) {
            Some(now) => now,
            None => {
                let now = self.inner.link.time(slot).await?;
                clock.observe(now, Instant::now());
                now
            }
        };
        let allowed_ms = u64::try_from(self.inner.call_deadline.as_millis()).unwrap_or(u64::MAX);
        Ok(TimeMs(now.0.saturating_add(allowed_ms)))
    }
}

/// One call of a script by its hash, in the making.
pub(crate) struct Call {
    script: Script,
    slot: Slot,
    args: Vec<Value>,
}

impl Call {
    pub(crate) fn new(script: Script, scripts: &Scripts, slot: Slot, keys: &[&str]) -> Self {
        let mut args = Vec::with_capacity(2 + keys.len() + 7);
        args.push(hex_text(scripts.hash(script)));
        args.push(Value::Integer(i64::try_from(keys.len()).unwrap_or(0)));
        args.extend(keys.iter().map(|key| Value::from(*key)));
        Self { script, slot, args }
    }

    pub(crate) fn text(mut self, text: &str) -> Self {
        self.args.push(Value::from(text));
        self
    }

    pub(crate) fn number(mut self, number: u64) -> Self {
        self.args.push(Value::from(number.to_string()));
        self
    }

    pub(crate) fn bytes(mut self, bytes: Vec<u8>) -> Self {
        self.args.push(Value::Bytes(Bytes::from(bytes)));
        self
    }

    pub(crate) async fn send(self, link: &Link) -> Result<Raw, CallError> {
        let reply: Item = link.call("EVALSHA", self.slot, self.args).await?;
        Raw::read(self.script, reply)
    }
}

fn hex_text(digest: Digest) -> Value {
    Value::from(hex::encode(digest.0))
}
