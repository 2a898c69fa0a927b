//! What the log says of a sale, read from a dump: for the timeline, and for the fence.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use anyhow::{Context, Result};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use dropgate_domain::{Body, Event, Offset, Record};
use dropgate_events::{decode_event, peek_sale};
use serde::Deserialize;

use crate::inject::Forgot;

#[derive(Deserialize)]
struct Line<'a> {
    topic: &'a str,
    offset: u64,
    value: &'a str,
}

/// The records of a sale in the order of the log, as they are.
///
/// # Errors
/// When the dump cannot be read, or a record not be understood.
pub fn of_sale(dump: &Path, sale: &str) -> Result<Vec<(Offset, Record)>> {
    let file = File::open(dump).with_context(|| format!("opening {}", dump.display()))?;
    let mut records = Vec::new();
    for line in BufReader::new(file).lines() {
        let line = line?;
        let line: Line<'_> = serde_json::from_str(&line)?;
        if line.topic != "dropgate-claims" {
            continue;
        }
        let bytes = STANDARD.decode(line.value)?;
        if peek_sale(&bytes).is_some_and(|named| named.as_str() == sale) {
            records.push((Offset(line.offset), decode_event(&bytes)?));
        }
    }
    Ok(records)
}

/// When the scripts made an event, in their time, which is Redis': `None` for a record that no
/// script makes.
fn made_ms(event: &Event) -> Option<u64> {
    match &event.body {
        Body::Won(won) => Some(won.link.time.0),
        Body::Closed(link) => Some(link.time.0),
        Body::Started(_) | Body::Halted(_) => None,
    }
}

/// What breaks the fence, in words: a Redis that forgot its scripts made events of a generation
/// that had been sold before.
#[must_use]
pub fn fence_broken(records: &[(Offset, Record)], forgot: &[Forgot]) -> Vec<String> {
    let events = || records.iter().map(|(_, record)| &record.event);
    let mut broken = Vec::new();
    for &Forgot { at_ms } in forgot {
        let sold_before = events().filter(|event| made_ms(event).is_some_and(|ms| ms < at_ms));
        let Some(last) = sold_before.map(|event| event.generation).max() else {
            continue;
        };
        // A millisecond for the rounding of two clocks.
        let late = |event: &&Event| made_ms(event).is_some_and(|ms| ms > at_ms + 1);
        let after = events()
            .filter(|event| event.generation <= last)
            .filter(late);
        let count = after.count();
        if count > 0 {
            broken.push(format!(
                "fence: Redis forgot its scripts at {at_ms}, and {count} events of generation \
                 {last} or before were made later"
            ));
        }
    }
    broken
}

#[cfg(test)]
mod tests {
    use super::*;
    use dropgate_domain::{
        AttemptId, Digest, Generation, IdempotencyKey, Link, SaleId, Seq, TimeMs, Unit, UserId, Won,
    };

    fn won(generation: u32, seq: u64, time_ms: u64) -> (Offset, Record) {
        let digest = Digest([0; 20]);
        let won = Won {
            link: Link {
                seq: Seq(seq),
                time: TimeMs(time_ms),
                prev: digest,
            },
            user: UserId::new("u").unwrap(),
            attempt: AttemptId([0; 16]),
            key: IdempotencyKey::new("").unwrap(),
            unit: Unit(seq),
        };
        let event = Event {
            sale: SaleId::new("s").unwrap(),
            generation: Generation(generation),
            body: Body::Won(won),
        };
        (Offset(seq), Record { event, digest })
    }

    #[test]
    fn an_event_of_an_old_generation_that_was_made_after_its_scripts_were_forgotten_is_found() {
        let forgot = [Forgot { at_ms: 100 }];
        let kept = [won(1, 1, 99), won(1, 2, 101), won(2, 3, 150)];
        assert_eq!(fence_broken(&kept, &forgot), Vec::<String>::new());
        let broken = [won(1, 1, 99), won(1, 2, 102), won(2, 3, 150)];
        assert_eq!(fence_broken(&broken, &forgot).len(), 1);
        // Nothing was sold before: whatever comes is of a later generation.
        assert_eq!(
            fence_broken(&[won(1, 1, 102)], &forgot),
            Vec::<String>::new()
        );
    }
}
