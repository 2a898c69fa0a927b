//! The client that may load scripts and write keys: it builds generations and reads them back.

use crate::client::Call;
use crate::config::RedisConfig;
use crate::error::{CallError, ConnectError};
use crate::facts::ServerFacts;
use crate::keys::{Scope, current_key};
use crate::link::{Item, Link};
use crate::reply::{Reply, Switched};
use crate::scripts::{Script, Scripts, hashes_for, scripts_for};
use bytes::Bytes;
use dropgate_domain::{Definition, Digest, Nonce, SaleId, ScriptHash, Seq, TimeMs, Unit};
use fred::types::{ClusterHash, Value};
use std::num::NonZeroU32;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::sync::OnceCell;

mod build;
mod end;
mod read;

pub use read::{ClaimsPage, StoredState};

/// The state with which a generation begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct State {
    /// What is sold.
    pub definition: Definition,
    /// The next fresh unit; one above the stock when none is left.
    pub next: Unit,
    /// The last event's number; events go on from there.
    pub seq: Seq,
    /// What the generation's first event will hold: the digest of its `Started` record.
    pub head: Digest,
    /// The time of the last event, or of the start; later events are not before it.
    pub time: TimeMs,
    /// How many events may be in flight.
    pub window: NonZeroU32,
    /// Whether the sale was closed.
    pub closed: bool,
}

/// Why no generation must begin on this Redis.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotCertified {
    /// It gives no answer, or refuses a write.
    #[error(transparent)]
    Call(#[from] CallError),
    /// It is not what a sale needs; each problem says what to do.
    #[error("{}", .0.join("; "))]
    Unfit(Vec<String>),
    /// Its clock and this machine's are too far apart.
    #[error("the clocks of redis and of this machine are {0:?} apart; synchronise them")]
    Skew(Duration),
}

/// The skew from which on a Redis is not certified.
const SKEW_MAX: Duration = Duration::from_secs(1);

/// An operator's client of Redis. It connects at the first call.
#[derive(Debug)]
pub struct Operator {
    config: RedisConfig,
    link: OnceCell<Link>,
}

impl Operator {
    /// A client that connects at its first call.
    #[must_use]
    pub fn new(config: RedisConfig) -> Self {
        Self {
            config,
            link: OnceCell::new(),
        }
    }

    /// A client that is connected, or on its way; as [`Admission::connect`](crate::Admission).
    ///
    /// # Errors
    /// When the configuration cannot be, or Redis answers and refuses the user.
    pub async fn connect(config: &RedisConfig) -> Result<Self, ConnectError> {
        let operator = Self::new(config.clone());
        operator.open().await?;
        Ok(operator)
    }

    async fn open(&self) -> Result<&Link, ConnectError> {
        self.link.get_or_try_init(|| Link::open(&self.config)).await
    }

    async fn link(&self) -> Result<&Link, CallError> {
        self.open().await.map_err(|error| match error {
            ConnectError::Denied(reason) => CallError::Denied(reason),
            ConnectError::Invalid(reason) => CallError::Protocol(reason),
        })
    }

    /// Whether Redis answers; of a cluster, any node.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn ping(&self) -> Result<(), CallError> {
        self.link().await?.info().await.map(drop)
    }

    /// Whether a generation of this sale may begin on this Redis: a master that takes writes,
    /// never evicts, and whose clock is less than a second from ours.
    ///
    /// # Errors
    /// Why not.
    pub async fn certify(&self, sale: &SaleId) -> Result<(), NotCertified> {
        let problems = self.policy(sale).await?.problems();
        if !problems.is_empty() {
            return Err(NotCertified::Unfit(problems));
        }
        let before = now();
        let redis = self.link().await?.time().await?;
        let after = now();
        // The question was answered at some time between the two.
        let redis = Duration::from_millis(redis.0);
        let skew = if redis < before {
            before - redis
        } else {
            redis.saturating_sub(after)
        };
        if skew >= SKEW_MAX {
            return Err(NotCertified::Skew(skew));
        }
        // INFO does not tell everything that stops writes; a write does.
        let at_ms = redis.as_millis().to_string();
        self.command("SET", &["dropgate:certified", &at_ms]).await?;
        Ok(())
    }

    /// What the Redis of this sale is.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn policy(&self, _sale: &SaleId) -> Result<ServerFacts, CallError> {
        self.link().await?.info().await
    }

    /// Whether the Redis of this sale holds all of these scripts.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn scripts_loaded(
        &self,
        _sale: &SaleId,
        hashes: &[ScriptHash],
    ) -> Result<bool, CallError> {
        let mut args = vec!["EXISTS".to_owned()];
        args.extend(hashes.iter().map(|hash| hash.sha1.to_string()));
        match self.command("SCRIPT", &args).await? {
            Item::List(found) if found.len() == hashes.len() => {
                Ok(found.iter().all(|one| *one == Item::Int(1)))
            }
            _ => Err(unreadable("SCRIPT EXISTS")),
        }
    }

    /// Loads the scripts of a nonce where this sale lives. The nonce must never have been loaded before: a Redis that holds
    /// them must be one that did not forget since.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn load_scripts(
        &self,
        _sale: &SaleId,
        nonce: Nonce,
    ) -> Result<Vec<ScriptHash>, CallError> {
        let hashes = hashes_for(nonce);
        for ((_, text), hash) in scripts_for(nonce).iter().zip(&hashes) {
            let reply = self.command("SCRIPT", &["LOAD", text]).await?;
            if reply != Item::Bytes(hash.sha1.to_string().into()) {
                return Err(unreadable("SCRIPT LOAD"));
            }
        }
        Ok(hashes)
    }

    /// Makes a generation that was built current: one script, which checks the marker and never
    /// goes back. `from` is what the caller takes for current; `seq` and `head` are those of the
    /// state that was built.
    ///
    /// # Errors
    /// See [`CallError`]; after one that may have run, ask again.
    pub async fn switch(
        &self,
        scripts: &Scripts,
        from: Option<&Scope>,
        to: &Scope,
        seq: Seq,
        head: Digest,
    ) -> Result<Reply<Switched>, CallError> {
        let keys = to.keys();
        let call = Call::new(
            Script::SwitchGeneration,
            scripts,
            &[&keys.current, &keys.state],
        )
        .text(from.map_or("", Scope::tag))
        .text(&keys.tag)
        .number(seq.0)
        .bytes(head.0.to_vec());
        call.send(self.link().await?).await?.switched()
    }

    /// The `L:g` that is current for a sale; `None` when no generation is.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn current(&self, sale: &SaleId) -> Result<Option<String>, CallError> {
        match self.command("GET", &[current_key(sale)]).await? {
            Item::Nil => Ok(None),
            Item::Bytes(tag) => Ok(Some(String::from_utf8_lossy(&tag).into_owned())),
            _ => Err(unreadable("GET")),
        }
    }

    /// Refuses new calls, waits for those in flight up to the command time-out, and disconnects.
    pub async fn shutdown(&self) {
        if let Some(link) = self.link.get() {
            link.close().await;
        }
    }

    /// One command on keys; the first argument after a subcommand is the key.
    async fn command<S: AsRef<str>>(
        &self,
        command: &'static str,
        args: &[S],
    ) -> Result<Item, CallError> {
        let args = args.iter().map(|arg| Value::from(arg.as_ref())).collect();
        self.link()
            .await?
            .call(command, ClusterHash::FirstKey, args)
            .await
    }
}

/// The state as the scripts read it.
fn state_fields(state: &State, marker: Vec<u8>) -> Vec<Value> {
    let definition = &state.definition;
    let number = |number: u64| Value::from(number.to_string());
    let time = |time: Option<TimeMs>| number(time.map_or(0, |time| time.0));
    let fields = [
        (
            "st",
            Value::from(if state.closed { "closed" } else { "open" }),
        ),
        ("stock", number(definition.stock)),
        ("limit", number(definition.per_user_limit.into())),
        ("next", number(state.next.0)),
        ("seq", number(state.seq.0)),
        ("head", Value::Bytes(Bytes::copy_from_slice(&state.head.0))),
        ("time", number(state.time.0)),
        ("applied", number(state.seq.0)),
        ("window", number(state.window.get().into())),
        ("opens", time(definition.opens_at)),
        ("closes", time(definition.closes_at)),
        ("marker", Value::Bytes(Bytes::from(marker))),
    ];
    let pair = |(name, value): (&str, Value)| [Value::from(name), value];
    fields.into_iter().flat_map(pair).collect()
}

fn now() -> Duration {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
}

fn unreadable(command: &str) -> CallError {
    CallError::Protocol(format!("{command} gave a reply of another type"))
}
