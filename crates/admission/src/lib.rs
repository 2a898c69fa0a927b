//! Admission in Redis: keys, scripts as typed calls, the fence, the outbox.
//!
//! Redis proposes who gets a unit; the log decides. This crate is the whole of the Redis side:
//! the keys of a sale ([`Scope`]), the scripts of `lua/` as typed calls, and two clients with
//! different rights. [`Admission`] is a gateway's: it calls scripts by hash and holds none of
//! their text, so that a Redis which forgot them cannot answer. [`Operator`] may load scripts and
//! build generations.
//!
//! Nothing here decides and writes in separate calls: every change of a live sale is one script.

mod client;
mod clock;
mod config;
mod entry;
mod error;
mod facts;
mod keys;
mod link;
mod operator;
mod reply;
mod scripts;

pub use client::{Admission, Claim};
pub use config::{InvalidField, RedisConfig, SentinelConfig, TlsConfig, Topology};
pub use entry::Entry;
pub use error::{CallError, ConnectError, Outage};
pub use facts::ServerFacts;
pub use keys::Scope;
pub use operator::{ClaimsPage, NotCertified, Operator, State, StoredState};
pub use reply::{Claimed, Closed, Reply, Switched, Tip};
pub use scripts::{Script, Scripts, ScriptsError, hashes_for, scripts_for};
