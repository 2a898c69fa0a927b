//! Reading a generation back, for who compares it with the log.

use super::{Operator, unreadable};
use crate::entry::{self, Entry};
use crate::error::CallError;
use crate::keys::Scope;
use crate::link::Item;
use bytes::Bytes;
use dropgate_domain::{Digest, Seq, TimeMs, Unit, UserId};

/// A generation's state as it stands in Redis.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredState {
    /// Whether it takes claims.
    pub open: bool,
    /// Units for sale.
    pub stock: u64,
    /// Wins that a user may have.
    pub per_user_limit: u64,
    /// The next fresh unit.
    pub next: Unit,
    /// The last event's number.
    pub seq: Seq,
    /// The last event's digest.
    pub head: Digest,
    /// The last event's time.
    pub time: TimeMs,
    /// What the log's readers have applied, as far as Redis was told.
    pub applied: Seq,
    /// How many events may be in flight.
    pub window: u64,
    /// From when on it takes claims; `None`: from its opening.
    pub opens_at: Option<TimeMs>,
    /// From when on it takes none; `None`: when it is closed.
    pub closes_at: Option<TimeMs>,
}

/// A part of a generation's claims.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimsPage {
    /// Users with their claims. A user may come again in a later page.
    pub claims: Vec<(UserId, Vec<Entry>)>,
    /// Where the next page begins; `None` after the last.
    pub next: Option<String>,
}

const FIELDS: [&str; 11] = [
    "st", "stock", "limit", "next", "seq", "head", "time", "applied", "window", "opens", "closes",
];

impl Operator {
    /// A generation's state; `None` when it is not there or not whole.
    ///
    /// # Errors
    /// See [`CallError`]; [`Protocol`](CallError::Protocol) when a field cannot be read.
    pub async fn state(&self, scope: &Scope) -> Result<Option<StoredState>, CallError> {
        let mut args = vec![scope.keys().state.as_str(), "marker"];
        args.extend(FIELDS);
        let Item::List(items) = self.command(scope.keys().slot, "HMGET", &args).await? else {
            return Err(unreadable("HMGET"));
        };
        let mut fields = Vec::with_capacity(items.len());
        for item in items {
            match item {
                Item::Bytes(bytes) => fields.push(bytes),
                Item::Nil => return Ok(None),
                _ => return Err(unreadable("HMGET")),
            }
        }
        let Ok(
            [
                _,
                st,
                stock,
                limit,
                next,
                seq,
                head,
                time,
                applied,
                window,
                opens,
                closes,
            ],
        ) = <[Bytes; 12]>::try_from(fields)
        else {
            return Err(unreadable("HMGET"));
        };
        let instant = |ms: u64| (ms > 0).then_some(TimeMs(ms));
        Ok(Some(StoredState {
            open: st == "open",
            stock: number(&stock)?,
            per_user_limit: number(&limit)?,
            next: Unit(number(&next)?),
            seq: Seq(number(&seq)?),
            head: Digest::try_from(head.as_ref()).map_err(|_| unreadable("HMGET"))?,
            time: TimeMs(number(&time)?),
            applied: Seq(number(&applied)?),
            window: number(&window)?,
            opens_at: instant(number(&opens)?),
            closes_at: instant(number(&closes)?),
        }))
    }

    /// One page of a generation's claims, from the beginning (`None`) or where the last page
    /// ended. Who reads while the sale runs may miss users that come meanwhile.
    ///
    /// # Errors
    /// See [`CallError`]; [`Protocol`](CallError::Protocol) when a value cannot be read.
    pub async fn scan_claims(
        &self,
        scope: &Scope,
        from: Option<&str>,
    ) -> Result<ClaimsPage, CallError> {
        let args = [
            scope.keys().claims.as_str(),
            from.unwrap_or("0"),
            "COUNT",
            "500",
        ];
        let reply = self.command(scope.keys().slot, "HSCAN", &args).await?;
        let (cursor, items) = match reply {
            Item::List(parts) => match <[Item; 2]>::try_from(parts) {
                Ok([Item::Bytes(cursor), Item::List(items)]) => (cursor, items),
                _ => return Err(unreadable("HSCAN")),
            },
            _ => return Err(unreadable("HSCAN")),
        };
        let mut claims = Vec::with_capacity(items.len() / 2);
        for pair in items.chunks(2) {
            let [Item::Bytes(user), Item::Bytes(value)] = pair else {
                return Err(unreadable("HSCAN"));
            };
            let user = std::str::from_utf8(user)
                .ok()
                .and_then(|user| UserId::new(user).ok())
                .ok_or_else(|| {
                    CallError::Protocol("the claims hash holds a user that cannot be".to_owned())
                })?;
            let entries =
                entry::decode(value).map_err(|error| CallError::Protocol(error.to_string()))?;
            claims.push((user, entries));
        }
        let cursor = String::from_utf8_lossy(&cursor).into_owned();
        Ok(ClaimsPage {
            claims,
            next: (cursor != "0").then_some(cursor),
        })
    }

    /// How many users have claims in a generation.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn claims_count(&self, scope: &Scope) -> Result<u64, CallError> {
        match self
            .command(scope.keys().slot, "HLEN", &[&scope.keys().claims])
            .await?
        {
            Item::Int(count) => u64::try_from(count).map_err(|_| unreadable("HLEN")),
            _ => Err(unreadable("HLEN")),
        }
    }

    /// How many events a generation's outbox holds: at least those that are not applied yet.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn outbox_len(&self, scope: &Scope) -> Result<u64, CallError> {
        match self
            .command(scope.keys().slot, "XLEN", &[&scope.keys().outbox])
            .await?
        {
            Item::Int(count) => u64::try_from(count).map_err(|_| unreadable("XLEN")),
            _ => Err(unreadable("XLEN")),
        }
    }

    /// Up to `max` events of the outbox, from `from` on, in the order of seq.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn outbox(
        &self,
        scope: &Scope,
        from: Seq,
        max: usize,
    ) -> Result<Vec<(Seq, Bytes)>, CallError> {
        let (from, max) = (format!("{from}-0"), max.to_string());
        let args = [scope.keys().outbox.as_str(), &from, "+", "COUNT", &max];
        let Item::List(items) = self.command(scope.keys().slot, "XRANGE", &args).await? else {
            return Err(unreadable("XRANGE"));
        };
        items.into_iter().map(event).collect()
    }
}

/// An entry of the outbox: its id `seq-0`, and the one field `e`.
fn event(item: Item) -> Result<(Seq, Bytes), CallError> {
    let bad = || unreadable("XRANGE");
    let Item::List(parts) = item else {
        return Err(bad());
    };
    let Ok([Item::Bytes(id), Item::List(fields)]) = <[Item; 2]>::try_from(parts) else {
        return Err(bad());
    };
    let Ok([_, Item::Bytes(event)]) = <[Item; 2]>::try_from(fields) else {
        return Err(bad());
    };
    let seq = id.split(|byte| *byte == b'-').next().unwrap_or_default();
    Ok((Seq(number(seq)?), event))
}

fn number(text: &[u8]) -> Result<u64, CallError> {
    std::str::from_utf8(text)
        .ok()
        .and_then(|text| text.parse().ok())
        .ok_or_else(|| CallError::Protocol("a number that cannot be read".to_owned()))
}
