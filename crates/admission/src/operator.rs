//! The client that may load scripts and write keys: it builds generations and reads them back.

use crate::client::Call;
use crate::config::RedisConfig;
use crate::error::{CallError, ConnectError};
use crate::facts::ServerFacts;
use crate::keys::{Scope, current_key};
use crate::link::{Item, Link, Slot};
use crate::reply::{Reply, Switched};
use crate::scripts::{Script, Scripts, hashes_for, scripts_for};
use bytes::Bytes;
use dropgate_domain::{Definition, Digest, Nonce, SaleId, ScriptHash, Seq, TimeMs, Unit};
use fred::types::Value;
use std::num::NonZeroU32;
use tokio::sync::OnceCell;

mod build;
mod certify;
mod end;
mod read;

pub use certify::NotCertified;
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
            error @ ConnectError::Untrusted(_) => CallError::Denied(error.to_string()),
            ConnectError::Denied(reason) => CallError::Denied(reason),
            ConnectError::Invalid(reason) => CallError::Protocol(reason),
        })
    }

    /// Whether Redis answers; of a cluster, any node.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn ping(&self) -> Result<(), CallError> {
        self.link().await?.any()?.ask("PING", &[]).await.map(drop)
    }

    /// What the Redis of this sale is.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn policy(&self, sale: &SaleId) -> Result<ServerFacts, CallError> {
        let link = self.link().await?;
        let server = link.server(Slot::of(sale))?;
        link.facts(&server).await
    }

    /// Whether the Redis of this sale holds all of these scripts.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn scripts_loaded(
        &self,
        sale: &SaleId,
        hashes: &[ScriptHash],
    ) -> Result<bool, CallError> {
        let mut args = vec!["EXISTS".to_owned()];
        args.extend(hashes.iter().map(|hash| hash.sha1.to_string()));
        match self.command(Slot::of(sale), "SCRIPT", &args).await? {
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
        sale: &SaleId,
        nonce: Nonce,
    ) -> Result<Vec<ScriptHash>, CallError> {
        let hashes = hashes_for(nonce);
        for ((_, text), hash) in scripts_for(nonce).iter().zip(&hashes) {
            let load = ["LOAD", text];
            let reply = self.command(Slot::of(sale), "SCRIPT", &load).await?;
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
            keys.slot,
            &[&keys.current, &keys.state, &keys.claims],
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
        match self
            .command(Slot::of(sale), "GET", &[current_key(sale)])
            .await?
        {
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

    /// One command on the keys of a slot, or to their master.
    async fn command<S: AsRef<str>>(
        &self,
        slot: Slot,
        command: &'static str,
        args: &[S],
    ) -> Result<Item, CallError> {
        let args = args.iter().map(|arg| Value::from(arg.as_ref())).collect();
        self.link().await?.call(command, slot, args).await
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

fn unreadable(command: &str) -> CallError {
    CallError::Protocol(format!("{command} gave a reply of another type"))
}
