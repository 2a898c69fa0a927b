//! Building a generation's keys.

use super::{Operator, State, state_fields};
use crate::entry::{self, Entry};
use crate::error::CallError;
use crate::keys::{Keys, Scope};
use crate::link::{Item, Link};
use bytes::Bytes;
use dropgate_domain::{Digest, Seq, UserId};
use fred::types::Value;
use futures::{StreamExt, TryStreamExt, stream};

/// Users whose claims are written by one command. From 250 to 2,000 users in a command, and from 1
/// to 8 commands at once, the rate was the same on two cores (some 220,000 users a second); few
/// users a command hold up the other sales of a Redis for less than a millisecond.
const USERS_A_COMMAND: usize = 250;
/// Commands that are on their way at once while a generation is built: enough for a network's way
/// to and fro.
const COMMANDS_AT_ONCE: usize = 8;

impl Operator {
    /// Writes a generation's keys, which nobody sees until [`switch`](Self::switch): first the
    /// claims, then the state with its marker in one command. Built again it does nothing, so it
    /// may be repeated after an error, by whoever started the generation and by nobody else.
    /// Each user must come once. They are asked for as they are written, so that a million users
    /// need never be in memory at once; the iterator runs on the async worker, between commands.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn build<I>(&self, scope: &Scope, state: &State, claims: I) -> Result<(), CallError>
    where
        I: IntoIterator<Item = (UserId, Vec<Entry>)>,
    {
        let keys = scope.keys();
        match self
            .command(keys.slot, "HGET", &[&keys.state, "marker"])
            .await?
        {
            Item::Nil => {}
            Item::Bytes(found) if found.starts_with(&began(state.seq, state.head)) => {
                return Ok(());
            }
            _ => {
                let text = "the generation was built with another state";
                return Err(CallError::Protocol(text.to_owned()));
            }
        }
        let link = self.link().await?;
        let users = write_claims(link, keys, claims).await?;
        // A Redis that forgot the first part while the second was written holds too few.
        match self.command(keys.slot, "HLEN", &[&keys.claims]).await? {
            Item::Int(found) if u64::try_from(found) == Ok(users) => {}
            _ => {
                let text = "redis does not hold all claims that were written";
                return Err(CallError::Protocol(text.to_owned()));
            }
        }
        let mut args = vec![Value::from(keys.state.as_str())];
        args.extend(state_fields(state, marker(state.seq, state.head, users)));
        link.call("HSET", keys.slot, args).await?;
        Ok(())
    }
}

/// Writes claims in commands of many users, some at once; tells how many users they were.
async fn write_claims<I>(link: &Link, keys: &Keys, claims: I) -> Result<u64, CallError>
where
    I: IntoIterator<Item = (UserId, Vec<Entry>)>,
{
    let claims = stream::iter(claims).chunks(USERS_A_COMMAND);
    let written = claims.map(|chunk| {
        let users = chunk.len() as u64;
        let mut args = Vec::with_capacity(1 + 2 * chunk.len());
        args.push(Value::from(keys.claims.as_str()));
        for (user, entries) in chunk {
            args.push(Value::from(user.as_str()));
            args.push(Value::Bytes(Bytes::from(entry::encode(&entries))));
        }
        async move {
            link.call("HSET", keys.slot, args).await?;
            Ok::<u64, CallError>(users)
        }
    });
    written
        .buffer_unordered(COMMANDS_AT_ONCE)
        .try_fold(0, |sum, users| async move { Ok(sum + users) })
        .await
}

/// `seq:head:`, with which the generation begins.
fn began(seq: Seq, head: Digest) -> Vec<u8> {
    let mut began = format!("{seq}:").into_bytes();
    began.extend_from_slice(&head.0);
    began.push(b':');
    began
}

/// `seq:head:users`, which the switch compares, and for which it counts the users once more.
fn marker(seq: Seq, head: Digest, users: u64) -> Vec<u8> {
    let mut marker = began(seq, head);
    marker.extend_from_slice(users.to_string().as_bytes());
    marker
}
