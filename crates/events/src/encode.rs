//! Domain to bytes.

use crate::wire;
use crate::{EVENT_VERSION, INDEX_VERSION};
use bytes::Bytes;
use dropgate_domain::{
    AttemptId, Body, Definition, Digest, Event, Generation, IdempotencyKey, Link, SaleCreated,
    SaleId, TimeMs, UserId,
};
use prost::Message;
use sha1::{Digest as _, Sha1};

/// The SHA-1 of a record's bytes: its link in the chain.
#[must_use]
pub fn digest(bytes: &[u8]) -> Digest {
    Digest(Sha1::digest(bytes).into())
}

/// The caller's half of a win: all fields but those that the script appends.
#[must_use]
pub fn won_prefix(
    sale: &SaleId,
    generation: Generation,
    user: &UserId,
    attempt: AttemptId,
    key: &IdempotencyKey,
) -> Vec<u8> {
    wire::Event {
        user: user.as_str().to_owned(),
        attempt: attempt.0.to_vec(),
        key: key.as_str().to_owned(),
        ..event(sale, generation, wire::Kind::Won)
    }
    .encode_to_vec()
}

/// The caller's half of a close.
#[must_use]
pub fn closed_prefix(sale: &SaleId, generation: Generation) -> Vec<u8> {
    event(sale, generation, wire::Kind::Closed).encode_to_vec()
}

/// A whole event. Those with a seq come out as the script makes them: prefix first.
#[must_use]
pub fn encode_event(value: &Event) -> Bytes {
    let (sale, generation) = (&value.sale, value.generation);
    let bytes = match &value.body {
        Body::Won(won) => {
            let prefix = won_prefix(sale, generation, &won.user, won.attempt, &won.key);
            linked(prefix, Some(won.unit.0), won.link)
        }
        Body::Closed(link) => linked(closed_prefix(sale, generation), None, *link),
        Body::Halted(halted) => wire::Event {
            halted: Some(wire::Halted {
                reason: halted.reason.clone(),
                by: halted.by.clone(),
                at_ms: halted.at.unwrap_or_default().0,
            }),
            ..event(sale, generation, wire::Kind::Halted)
        }
        .encode_to_vec(),
        Body::Started(started) => wire::Event {
            started: Some(wire::Started {
                identity: started.identity.0.to_vec(),
                nonce: started.nonce.0.to_vec(),
                scripts: started
                    .scripts
                    .iter()
                    .map(|script| wire::Script {
                        name: script.name.clone(),
                        sha1: script.sha1.0.to_vec(),
                    })
                    .collect(),
                rule: started.rule,
                calls: started.calls,
                def: started.definition.as_ref().map(definition),
                by: started.by.clone(),
                reason: started.reason.clone(),
                at_ms: started.at.unwrap_or_default().0,
                window: started.window.get(),
            }),
            ..event(sale, generation, wire::Kind::Started)
        }
        .encode_to_vec(),
    };
    bytes.into()
}

/// A record of the index of sales.
#[must_use]
pub fn encode_sale_created(created: &SaleCreated) -> Bytes {
    wire::SaleCreated {
        version: INDEX_VERSION,
        sale: created.sale.as_str().to_owned(),
        log_id: created.log_id.0.to_vec(),
        partition: created.partition.0,
        from_offset: created.from_offset.0,
        def: Some(definition(&created.definition)),
        created_ms: created.created_at.0,
        attempt: created.attempt.0.to_vec(),
    }
    .encode_to_vec()
    .into()
}

fn event(sale: &SaleId, generation: Generation, kind: wire::Kind) -> wire::Event {
    wire::Event {
        version: EVENT_VERSION,
        kind: kind as i32,
        sale: sale.as_str().to_owned(),
        generation: generation.0,
        ..wire::Event::default()
    }
}

fn linked(mut bytes: Vec<u8>, unit: Option<u64>, link: Link) -> Vec<u8> {
    let tail = wire::Event {
        seq: link.seq.0,
        unit: unit.unwrap_or_default(),
        time_ms: link.time.0,
        prev: link.prev.0.to_vec(),
        ..wire::Event::default()
    };
    bytes.extend(tail.encode_to_vec());
    bytes
}

fn definition(definition: &Definition) -> wire::Definition {
    let ms = |time: Option<TimeMs>| time.map_or(0, |time| time.0);
    wire::Definition {
        stock: definition.stock,
        per_user_limit: definition.per_user_limit,
        opens_ms: ms(definition.opens_at),
        closes_ms: ms(definition.closes_at),
        hold_seconds: definition.hold_seconds,
    }
}
