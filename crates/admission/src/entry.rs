//! What the claims hash holds of a user.

use dropgate_domain::{AttemptId, IdempotencyKey, Seq, Unit};

/// One claim of a user that got a unit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The seq of its event.
    pub seq: Seq,
    /// What it got.
    pub unit: Unit,
    /// The attempt that won.
    pub attempt: AttemptId,
    /// Its idempotency key.
    pub key: IdempotencyKey,
}

/// A value of the claims hash that cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a value of the claims hash is cut or holds a key that cannot be")]
pub(crate) struct BadEntry;

/// The bytes of an entry without its key: seq, unit, attempt and the key's length.
const FIXED_BYTES: usize = 8 + 8 + 16 + 1;

/// Writes a user's entries as the scripts write them: one after the other.
pub(crate) fn encode(entries: &[Entry]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(entries.len() * (FIXED_BYTES + 36));
    for entry in entries {
        let key = entry.key.as_str().as_bytes();
        bytes.extend_from_slice(&entry.seq.0.to_le_bytes());
        bytes.extend_from_slice(&entry.unit.0.to_le_bytes());
        bytes.extend_from_slice(&entry.attempt.0);
        // A key has at most 64 bytes.
        bytes.push(u8::try_from(key.len()).unwrap_or(u8::MAX));
        bytes.extend_from_slice(key);
    }
    bytes
}

/// Reads a user's entries.
pub(crate) fn decode(mut bytes: &[u8]) -> Result<Vec<Entry>, BadEntry> {
    let mut entries = Vec::with_capacity(1);
    while !bytes.is_empty() {
        let seq = u64::from_le_bytes(take(&mut bytes)?);
        let unit = u64::from_le_bytes(take(&mut bytes)?);
        let attempt = AttemptId(take(&mut bytes)?);
        let [key_bytes] = take(&mut bytes)?;
        let (key, rest) = bytes
            .split_at_checked(usize::from(key_bytes))
            .ok_or(BadEntry)?;
        let key = std::str::from_utf8(key).map_err(|_| BadEntry)?;
        bytes = rest;
        entries.push(Entry {
            seq: Seq(seq),
            unit: Unit(unit),
            attempt,
            key: IdempotencyKey::new(key).map_err(|_| BadEntry)?,
        });
    }
    Ok(entries)
}

fn take<const N: usize>(bytes: &mut &[u8]) -> Result<[u8; N], BadEntry> {
    let (head, rest) = bytes.split_first_chunk::<N>().ok_or(BadEntry)?;
    *bytes = rest;
    Ok(*head)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn entry() -> impl Strategy<Value = Entry> {
        (any::<u64>(), any::<u64>(), any::<[u8; 16]>(), "[ -~]{0,64}").prop_map(
            |(seq, unit, attempt, key)| Entry {
                seq: Seq(seq),
                unit: Unit(unit),
                attempt: AttemptId(attempt),
                key: IdempotencyKey::new(&key).unwrap(),
            },
        )
    }

    proptest! {
        #[test]
        fn entries_come_back_as_they_were_written(entries in prop::collection::vec(entry(), 0..5)) {
            prop_assert_eq!(decode(&encode(&entries)).unwrap(), entries);
        }

        #[test]
        fn a_value_that_was_cut_within_an_entry_is_refused(entry in entry(), cut in 1usize..33) {
            let mut bytes = encode(std::slice::from_ref(&entry));
            bytes.truncate(bytes.len() - cut);
            prop_assert_eq!(decode(&bytes), Err(BadEntry));
        }
    }
}
