//! Bytes to domain, refusing what is not known.

use crate::strict;
use crate::wire;
use crate::{EVENT_VERSION, INDEX_VERSION, RECORD_BYTES_MAX, encode};
use dropgate_domain::{
    AttemptId, Body, Definition, Digest, Event, Generation, Halted, IdempotencyKey, Identity,
    InvalidDefinition, InvalidId, Link, LogId, Nonce, Offset, PartitionId, Record, SaleCreated,
    SaleId, ScriptHash, Seq, Started, TimeMs, Unit, UserId, Won,
};
use prost::Message;
use std::num::NonZeroU32;

/// Why a record cannot be read by this release. The reader of its sale stops: it never skips.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unknown {
    /// Longer than any record may be.
    #[error("a record of {bytes} bytes is longer than any may be")]
    TooLong {
        /// Its length.
        bytes: usize,
    },
    /// Not protobuf, or not of this message.
    #[error("the bytes are not of this message")]
    Malformed,
    /// Written by a release that is too new, or by something else.
    #[error("version {version} is not known to this release")]
    Version {
        /// The version.
        version: u32,
    },
    /// A kind of event that this release does not know.
    #[error("kind {kind} is not known to this release")]
    Kind {
        /// The kind.
        kind: i32,
    },
    /// A field that the version has not.
    #[error("field {tag} is not known in this version")]
    Field {
        /// The field's number.
        tag: u32,
    },
    /// A field that is there twice.
    #[error("field {tag} is there more than once")]
    Repeated {
        /// The field's number.
        tag: u32,
    },
    /// A field that the kind needs is not there.
    #[error("field `{field}` is missing")]
    Missing {
        /// The field.
        field: &'static str,
    },
    /// A field that the kind must not have is there.
    #[error("field `{field}` does not belong to this kind")]
    Misplaced {
        /// The field.
        field: &'static str,
    },
    /// A field holds what cannot be.
    #[error("{0}")]
    Id(#[from] InvalidId),
    /// A definition of a sale that cannot be.
    #[error("definition: {0}")]
    Definition(#[from] InvalidDefinition),
}

/// Reads a record of the claims topic.
///
/// # Errors
/// [`Unknown`], for anything that this release would not have written itself.
pub fn decode_event(bytes: &[u8]) -> Result<Record, Unknown> {
    let event: wire::Event = decode(bytes, strict::EVENT, EVENT_VERSION, |e: &wire::Event| {
        e.version
    })?;
    let kind = wire::Kind::try_from(event.kind).unwrap_or_default();
    let body = match kind {
        wire::Kind::Unspecified => return Err(Unknown::Kind { kind: event.kind }),
        wire::Kind::Started => started(&event)?,
        wire::Kind::Halted => halted(&event)?,
        wire::Kind::Won => won(&event)?,
        wire::Kind::Closed => closed(&event)?,
    };
    need(event.generation != 0, "generation")?;
    Ok(Record {
        digest: encode::digest(bytes),
        event: Event {
            sale: SaleId::new(&event.sale)?,
            generation: Generation(event.generation),
            body,
        },
    })
}

/// Reads a record of the index of sales.
///
/// # Errors
/// [`Unknown`], for anything that this release would not have written itself.
pub fn decode_sale_created(bytes: &[u8]) -> Result<SaleCreated, Unknown> {
    let created: wire::SaleCreated = decode(
        bytes,
        strict::SALE_CREATED,
        INDEX_VERSION,
        |c: &wire::SaleCreated| c.version,
    )?;
    let def = created.def.ok_or(Unknown::Missing { field: "def" })?;
    Ok(SaleCreated {
        sale: SaleId::new(&created.sale)?,
        log_id: LogId::try_from(&created.log_id[..])?,
        partition: PartitionId(created.partition),
        from_offset: Offset(created.from_offset),
        definition: definition(&def)?,
        created_at: TimeMs(created.created_ms),
        attempt: AttemptId::try_from(&created.attempt[..])?,
    })
}

/// The sale that a record names, if its bytes are protobuf at all: enough to stop the one sale
/// whose record cannot be read, and not its neighbours. That field 3 is the sale's id holds for
/// every version.
#[must_use]
pub fn peek_sale(bytes: &[u8]) -> Option<SaleId> {
    strict::text_field(bytes, SALE_FIELD).and_then(|sale| SaleId::new(sale).ok())
}

/// The number of the field that names the sale, in every version.
const SALE_FIELD: u32 = 3;

fn decode<M: Message + Default>(
    bytes: &[u8],
    fields: &[strict::Field],
    known: u32,
    version: impl Fn(&M) -> u32,
) -> Result<M, Unknown> {
    if bytes.len() > RECORD_BYTES_MAX {
        return Err(Unknown::TooLong { bytes: bytes.len() });
    }
    let message = M::decode(bytes).map_err(|_| Unknown::Malformed)?;
    // The version first: a later one may well have more fields, and is to be told by its name.
    let version = version(&message);
    if version != known {
        return Err(Unknown::Version { version });
    }
    strict::check(bytes, fields).map(|()| message)
}

fn need(there: bool, field: &'static str) -> Result<(), Unknown> {
    if there {
        Ok(())
    } else {
        Err(Unknown::Missing { field })
    }
}

/// The fields that only some kinds have: absent from all others.
fn only(event: &wire::Event, allowed: &[&str]) -> Result<(), Unknown> {
    let present = [
        ("user", !event.user.is_empty()),
        ("attempt", !event.attempt.is_empty()),
        ("key", !event.key.is_empty()),
        ("seq", event.seq != 0),
        ("unit", event.unit != 0),
        ("time_ms", event.time_ms != 0),
        ("prev", !event.prev.is_empty()),
        ("trace", !event.trace.is_empty()),
        ("started", event.started.is_some()),
        ("halted", event.halted.is_some()),
        ("hold_until_ms", event.hold_until_ms != 0),
    ];
    match present
        .iter()
        .find(|(name, there)| *there && !allowed.contains(name))
    {
        Some((field, _)) => Err(Unknown::Misplaced { field }),
        None => Ok(()),
    }
}

fn link(event: &wire::Event) -> Result<Link, Unknown> {
    need(event.seq != 0, "seq")?;
    need(event.time_ms != 0, "time_ms")?;
    need(!event.prev.is_empty(), "prev")?;
    Ok(Link {
        seq: Seq(event.seq),
        time: TimeMs(event.time_ms),
        prev: Digest::try_from(&event.prev[..])?,
    })
}

fn won(event: &wire::Event) -> Result<Body, Unknown> {
    only(
        event,
        &[
            "user", "attempt", "key", "seq", "unit", "time_ms", "prev", "trace",
        ],
    )?;
    need(!event.user.is_empty(), "user")?;
    need(!event.attempt.is_empty(), "attempt")?;
    need(event.unit != 0, "unit")?;
    Ok(Body::Won(Won {
        link: link(event)?,
        user: UserId::new(&event.user)?,
        attempt: AttemptId::try_from(&event.attempt[..])?,
        key: IdempotencyKey::new(&event.key)?,
        unit: Unit(event.unit),
    }))
}

fn closed(event: &wire::Event) -> Result<Body, Unknown> {
    only(event, &["seq", "time_ms", "prev", "trace"])?;
    Ok(Body::Closed(link(event)?))
}

fn halted(event: &wire::Event) -> Result<Body, Unknown> {
    only(event, &["halted"])?;
    let halted = event.halted.as_ref();
    let halted = halted.ok_or(Unknown::Missing { field: "halted" })?;
    Ok(Body::Halted(Halted {
        reason: halted.reason.clone(),
        by: halted.by.clone(),
        at: time(halted.at_ms),
    }))
}

fn started(event: &wire::Event) -> Result<Body, Unknown> {
    only(event, &["started"])?;
    let started = event.started.as_ref();
    let started = started.ok_or(Unknown::Missing { field: "started" })?;
    let script = |script: &wire::Script| {
        need(!script.name.is_empty(), "started.scripts.name")?;
        Ok(ScriptHash {
            name: script.name.clone(),
            sha1: Digest::try_from(&script.sha1[..])?,
        })
    };
    need(!started.scripts.is_empty(), "started.scripts")?;
    Ok(Body::Started(Box::new(Started {
        identity: Identity::try_from(&started.identity[..])?,
        nonce: Nonce::try_from(&started.nonce[..])?,
        scripts: started
            .scripts
            .iter()
            .map(script)
            .collect::<Result<_, Unknown>>()?,
        rule: started.rule,
        calls: started.calls,
        window: NonZeroU32::new(started.window).ok_or(Unknown::Missing {
            field: "started.window",
        })?,
        definition: started.def.as_ref().map(definition).transpose()?,
        by: started.by.clone(),
        reason: started.reason.clone(),
        at: time(started.at_ms),
    })))
}

fn definition(def: &wire::Definition) -> Result<Definition, Unknown> {
    let definition = Definition {
        stock: def.stock,
        per_user_limit: def.per_user_limit,
        opens_at: time(def.opens_ms),
        closes_at: time(def.closes_ms),
        hold_seconds: def.hold_seconds,
    };
    match definition.problems().into_iter().next() {
        Some(problem) => Err(problem.into()),
        None => Ok(definition),
    }
}

/// An instant that may be left out.
fn time(ms: u64) -> Option<TimeMs> {
    Some(ms).filter(|ms| *ms != 0).map(TimeMs)
}
