//! Replies of the scripts, as types. A reply that is not in this table is an error.

use crate::entry::{self, Entry};
use crate::error::CallError;
use crate::link::Item;
use crate::scripts::Script;
use bytes::Bytes;
use dropgate_domain::{AttemptId, Digest, Seq, TimeMs, Unit};

/// An answer, with the time that Redis gave to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply<T> {
    /// The answer.
    pub value: T,
    /// The sale's time: that of Redis' clock or of the sale's last event, whichever is later.
    pub redis_time: TimeMs,
}

/// What became of a claim in Redis. Redis proposes: a win counts once the log says so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Claimed {
    /// A unit was taken.
    Won {
        /// The event's number.
        seq: Seq,
        /// The event's bytes, to be published as they are.
        event: Bytes,
    },
    /// The user has this claim already; nothing was taken.
    Again {
        /// The seq of the event that won.
        seq: Seq,
        /// What it got.
        unit: Unit,
        /// The attempt that won.
        attempt: AttemptId,
    },
    /// The user has as many claims as they may.
    Limit {
        /// All of them, in the order of seq.
        claims: Vec<Entry>,
    },
    /// No unit is left.
    SoldOut {
        /// The seq up to which this is so.
        seq: Seq,
    },
    /// The sale takes claims later.
    Early {
        /// From when on.
        opens_at: TimeMs,
    },
    /// The sale takes no more claims.
    Closed,
    /// As many events as the window allows are not applied yet; try again.
    Busy,
}

/// What became of a call to close a sale.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Closed {
    /// It is closed now.
    Now {
        /// The event's number.
        seq: Seq,
        /// The event's bytes, to be published as they are.
        event: Bytes,
    },
    /// It was closed before.
    Already,
    /// As many events as the window allows are not applied yet; try again.
    Busy,
}

/// How far a sale has come in Redis.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tip {
    /// The last event's number.
    pub seq: Seq,
    /// The digest of that event, which the next one will hold.
    pub head: Digest,
    /// What the log's readers have applied, as far as Redis was told.
    pub applied: Seq,
    /// How many events the outbox holds: those above `applied`.
    pub backlog: u64,
    /// The oldest of them, in the order of seq.
    pub outbox: Vec<(Seq, Bytes)>,
}

/// What became of a call to make a generation current.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Switched {
    /// It is current now.
    Switched,
    /// It was current before.
    Already,
    /// Its state is not there, or not the one that the caller means.
    NotBuilt,
    /// A later generation is current, or one of a log that the caller does not know of.
    Backwards,
}

/// A reply with its status and its time read.
#[derive(Debug)]
pub(crate) struct Raw {
    script: Script,
    status: Bytes,
    /// The time in the reply.
    pub at: TimeMs,
    fields: Fields,
}

impl Raw {
    pub(crate) fn read(script: Script, item: Item) -> Result<Self, CallError> {
        let Item::List(items) = item else {
            return Err(unreadable(script));
        };
        let mut fields = Fields {
            script,
            items: items.into_iter(),
        };
        Ok(Self {
            script,
            status: fields.bytes()?,
            at: TimeMs(fields.number()?),
            fields,
        })
    }

    pub(crate) fn claimed(self) -> Result<Reply<Claimed>, CallError> {
        self.answer(|status, fields| {
            Ok(Some(match status {
                b"won" => Claimed::Won {
                    seq: Seq(fields.number()?),
                    event: fields.bytes()?,
                },
                b"again" => Claimed::Again {
                    seq: Seq(fields.number()?),
                    unit: Unit(fields.number()?),
                    attempt: AttemptId(fields.array()?),
                },
                b"limit" => Claimed::Limit {
                    claims: entry::decode(&fields.bytes()?)
                        .map_err(|bad| CallError::Protocol(bad.to_string()))?,
                },
                b"sold_out" => Claimed::SoldOut {
                    seq: Seq(fields.number()?),
                },
                b"early" => Claimed::Early {
                    opens_at: TimeMs(fields.number()?),
                },
                b"closed" => Claimed::Closed,
                b"busy" => Claimed::Busy,
                _ => return Ok(None),
            }))
        })
    }

    pub(crate) fn closed(self) -> Result<Reply<Closed>, CallError> {
        self.answer(|status, fields| {
            Ok(Some(match status {
                b"closed_now" => Closed::Now {
                    seq: Seq(fields.number()?),
                    event: fields.bytes()?,
                },
                b"closed" => Closed::Already,
                b"busy" => Closed::Busy,
                _ => return Ok(None),
            }))
        })
    }

    pub(crate) fn tip(self) -> Result<Reply<Tip>, CallError> {
        self.answer(|status, fields| {
            if status != b"tip" {
                return Ok(None);
            }
            let seq = Seq(fields.number()?);
            let head = Digest(fields.array()?);
            let applied = Seq(fields.number()?);
            Ok(Some(Tip {
                seq,
                head,
                applied,
                backlog: seq.0.saturating_sub(applied.0),
                outbox: fields.events()?,
            }))
        })
    }

    pub(crate) fn switched(self) -> Result<Reply<Switched>, CallError> {
        self.answer(|status, _| {
            Ok(match status {
                b"switched" => Some(Switched::Switched),
                b"already" => Some(Switched::Already),
                b"not_built" => Some(Switched::NotBuilt),
                b"backwards" => Some(Switched::Backwards),
                _ => None,
            })
        })
    }

    /// The script's own statuses, then those that all may answer, then nothing else.
    fn answer<T>(
        mut self,
        own: impl FnOnce(&[u8], &mut Fields) -> Result<Option<T>, CallError>,
    ) -> Result<Reply<T>, CallError> {
        let value = match own(&self.status, &mut self.fields)? {
            Some(value) => value,
            None => {
                return Err(match self.status.as_ref() {
                    b"stale" => CallError::Stale,
                    b"missing" => CallError::Missing,
                    b"behind" => CallError::Behind,
                    b"late" => CallError::Late,
                    _ => unreadable(self.script),
                });
            }
        };
        if self.fields.items.next().is_some() {
            return Err(unreadable(self.script));
        }
        Ok(Reply {
            value,
            redis_time: self.at,
        })
    }
}

/// The fields of a reply that are still to be read.
#[derive(Debug)]
struct Fields {
    script: Script,
    items: std::vec::IntoIter<Item>,
}

impl Fields {
    fn bytes(&mut self) -> Result<Bytes, CallError> {
        match self.items.next() {
            Some(Item::Bytes(bytes)) => Ok(bytes),
            _ => Err(unreadable(self.script)),
        }
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], CallError> {
        let bytes = self.bytes()?;
        bytes
            .as_ref()
            .try_into()
            .map_err(|_| unreadable(self.script))
    }

    fn number(&mut self) -> Result<u64, CallError> {
        match self.items.next() {
            Some(Item::Int(number)) => u64::try_from(number).map_err(|_| unreadable(self.script)),
            _ => Err(unreadable(self.script)),
        }
    }

    fn events(&mut self) -> Result<Vec<(Seq, Bytes)>, CallError> {
        let Some(Item::List(items)) = self.items.next() else {
            return Err(unreadable(self.script));
        };
        let mut inner = Self {
            script: self.script,
            items: items.into_iter(),
        };
        let mut events = Vec::with_capacity(inner.items.len() / 2);
        while inner.items.len() > 0 {
            events.push((Seq(inner.number()?), inner.bytes()?));
        }
        Ok(events)
    }
}

fn unreadable(script: Script) -> CallError {
    CallError::Protocol(format!(
        "{} gave a reply that is not in its table",
        script.name()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &'static str) -> Item {
        Item::Bytes(Bytes::from_static(text.as_bytes()))
    }

    fn raw(script: Script, items: Vec<Item>) -> Raw {
        Raw::read(script, Item::List(items)).unwrap()
    }

    #[test]
    fn a_status_that_is_not_in_the_table_is_an_error() {
        let reply = raw(Script::ClaimUnit, vec![text("maybe"), Item::Int(5)]);
        assert!(matches!(reply.claimed(), Err(CallError::Protocol(_))));
        // One script's status is not another's.
        let reply = raw(Script::CloseSale, vec![text("sold_out"), Item::Int(5)]);
        assert!(matches!(reply.closed(), Err(CallError::Protocol(_))));
    }

    #[test]
    fn a_field_too_few_or_too_many_is_an_error() {
        let won = |items: &[Item]| {
            let mut all = vec![text("won"), Item::Int(5)];
            all.extend_from_slice(items);
            raw(Script::ClaimUnit, all).claimed()
        };
        assert!(won(&[Item::Int(1), text("e")]).is_ok());
        for bad in [
            &[Item::Int(1)][..],
            &[Item::Int(1), text("e"), text("more")],
            &[text("1"), text("e")],
            &[Item::Int(-1), text("e")],
            &[Item::Int(1), Item::Nil],
        ] {
            assert!(matches!(won(bad), Err(CallError::Protocol(_))), "{bad:?}");
        }
    }

    #[test]
    fn refusals_that_all_scripts_share_are_errors_of_their_own() {
        for (status, error) in [
            ("stale", CallError::Stale),
            ("missing", CallError::Missing),
            ("behind", CallError::Behind),
            ("late", CallError::Late),
        ] {
            let reply = raw(Script::ReadTip, vec![text(status), Item::Int(5)]);
            assert_eq!(reply.tip(), Err(error));
        }
    }

    #[test]
    fn a_reply_without_status_or_time_is_an_error() {
        for item in [
            Item::Nil,
            Item::List(vec![]),
            Item::List(vec![text("won")]),
            Item::List(vec![Item::Int(1), Item::Int(2)]),
        ] {
            assert!(matches!(
                Raw::read(Script::ClaimUnit, item),
                Err(CallError::Protocol(_))
            ));
        }
    }
}
