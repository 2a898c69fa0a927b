//! The names of things: validated once at the edge, trusted inside.
//!
//! All comparisons are byte for byte: no case folding, no normalisation. A limit
//! per user cannot be beaten by another spelling, because another spelling is
//! another user to every part of the system alike.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// Why a text is not an id. The message names what was expected, never echoes the input.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}: {expected}")]
pub struct InvalidId {
    /// Which id was being read.
    pub what: &'static str,
    /// What it must look like.
    pub expected: &'static str,
}

/// The id of a sale: `[a-z0-9][a-z0-9-]{0,62}`.
///
/// The alphabet is that of a DNS label, so that an id can stand in a URL, a Redis
/// hash tag, a file name and a Kubernetes name without escaping.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SaleId(Arc<str>);

impl SaleId {
    /// The longest sale id, in bytes.
    pub const BYTES_MAX: usize = 63;

    /// Reads a sale id.
    pub fn new(text: &str) -> Result<Self, InvalidId> {
        let tail_ok = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
        let ok = text.len() <= Self::BYTES_MAX
            && text.bytes().next().is_some_and(|b| tail_ok(b) && b != b'-')
            && text.bytes().all(tail_ok);
        if ok {
            Ok(Self(text.into()))
        } else {
            Err(InvalidId {
                what: "sale id",
                expected: "1 to 63 of a-z, 0-9 and '-', not beginning with '-'",
            })
        }
    }

    /// The id as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// An authenticated subject: the `sub` of a verified token, byte for byte.
///
/// 1 to 255 bytes without control characters or outer white space. NUL is a control
/// character, so every database that the store supports can hold it.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct UserId(Arc<str>);

impl UserId {
    /// The longest user id, in bytes.
    pub const BYTES_MAX: usize = 255;

    /// Reads a user id.
    pub fn new(text: &str) -> Result<Self, InvalidId> {
        let ok = !text.is_empty()
            && text.len() <= Self::BYTES_MAX
            && !text.chars().any(char::is_control)
            && text.trim().len() == text.len();
        if ok {
            Ok(Self(text.into()))
        } else {
            Err(InvalidId {
                what: "user id",
                expected: "1 to 255 bytes without control characters or outer white space",
            })
        }
    }

    /// The id as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The idempotency key of a claim: at most 64 printable ASCII characters; empty means none.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct IdempotencyKey(Option<Arc<str>>);

impl IdempotencyKey {
    /// The longest key, in bytes.
    pub const BYTES_MAX: usize = 64;

    /// A claim without a key: the user's first.
    #[must_use]
    pub fn none() -> Self {
        Self(None)
    }

    /// Reads a key.
    pub fn new(text: &str) -> Result<Self, InvalidId> {
        if text.is_empty() {
            return Ok(Self(None));
        }
        if text.len() <= Self::BYTES_MAX && text.bytes().all(|b| (0x20..0x7f).contains(&b)) {
            Ok(Self(Some(text.into())))
        } else {
            Err(InvalidId {
                what: "idempotency key",
                expected: "at most 64 printable ASCII characters",
            })
        }
    }

    /// The key as text, empty when there is none.
    #[must_use]
    pub fn as_str(&self) -> &str {
        self.0.as_deref().unwrap_or("")
    }
}

macro_rules! text_id {
    ($name:ident) => {
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self.as_str())
            }
        }
        impl FromStr for $name {
            type Err = InvalidId;
            fn from_str(text: &str) -> Result<Self, InvalidId> {
                Self::new(text)
            }
        }
    };
}
text_id!(SaleId);
text_id!(UserId);
text_id!(IdempotencyKey);

macro_rules! number {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }
    };
}

number! {
    /// The number of the incarnation of a sale's state in Redis: 0 before the opening, 1 from
    /// it, one more with every recovery.
    Generation(u32)
}
number! {
    /// The number of an event within its sale, from 1, without gaps across generations.
    Seq(u64)
}
number! {
    /// One of the sale's units, numbered 1 to the stock.
    Unit(u64)
}
number! {
    /// Milliseconds since the Unix epoch, by the clock of Redis unless said otherwise.
    TimeMs(u64)
}
number! {
    /// A partition of the log.
    PartitionId(u32)
}
number! {
    /// The place of a record in its partition.
    Offset(u64)
}

impl Generation {
    /// The generation after this one.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl Seq {
    /// The seq after this one.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl Offset {
    /// The offset after this one.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

macro_rules! bytes_id {
    ($(#[$doc:meta])* $name:ident[$len:literal]) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(pub [u8; $len]);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.iter().try_for_each(|b| write!(f, "{b:02x}"))
            }
        }
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self)
            }
        }
        impl TryFrom<&[u8]> for $name {
            type Error = InvalidId;
            fn try_from(bytes: &[u8]) -> Result<Self, InvalidId> {
                bytes.try_into().map(Self).map_err(|_| InvalidId {
                    what: stringify!($name),
                    expected: concat!("exactly ", $len, " bytes"),
                })
            }
        }
        impl FromStr for $name {
            type Err = InvalidId;
            fn from_str(text: &str) -> Result<Self, InvalidId> {
                let bad = InvalidId {
                    what: stringify!($name),
                    expected: concat!($len, " bytes in lowercase hexadecimal"),
                };
                let bytes = text.as_bytes();
                if bytes.len() != 2 * $len {
                    return Err(bad);
                }
                let digit = |b: u8| match b {
                    b'0'..=b'9' => Some(b - b'0'),
                    b'a'..=b'f' => Some(b - b'a' + 10),
                    _ => None,
                };
                let mut out = [0u8; $len];
                for (byte, pair) in out.iter_mut().zip(bytes.chunks_exact(2)) {
                    match (digit(pair[0]), digit(pair[1])) {
                        (Some(high), Some(low)) => *byte = high << 4 | low,
                        _ => return Err(bad),
                    }
                }
                Ok(Self(out))
            }
        }
    };
}

bytes_id! {
    /// The SHA-1 of a record's bytes: a link of the chain.
    Digest[20]
}
bytes_id! {
    /// One try of one client at one claim, drawn at random by the gateway that made it.
    AttemptId[16]
}
bytes_id! {
    /// The identity of the log, changed whenever the log was made anew: the topic id in Kafka,
    /// drawn at creation by the embedded log.
    LogId[16]
}
bytes_id! {
    /// The random part of the scripts' text, which no other generation of scripts holds.
    Nonce[16]
}
bytes_id! {
    /// The random identity of a `GenerationStarted` record: tells its author that it is theirs.
    Identity[16]
}

/// What a claim is called in URLs: `g-seq-attempt`, enough to ask any gateway what became of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ClaimId {
    /// The generation that gave the seq.
    pub generation: Generation,
    /// The seq that the script gave to the claim's event.
    pub seq: Seq,
    /// The attempt whose event it is.
    pub attempt: AttemptId,
}

impl fmt::Display for ClaimId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}-{}", self.generation, self.seq, self.attempt)
    }
}

impl FromStr for ClaimId {
    type Err = InvalidId;
    fn from_str(text: &str) -> Result<Self, InvalidId> {
        let bad = InvalidId {
            what: "claim id",
            expected: "generation-seq-attempt as given by the claim",
        };
        let mut parts = text.splitn(3, '-');
        let mut part = || parts.next().ok_or(bad.clone());
        let (generation, seq, attempt) = (part()?, part()?, part()?);
        let id = Self {
            generation: Generation(generation.parse().map_err(|_| bad.clone())?),
            seq: Seq(seq.parse().map_err(|_| bad.clone())?),
            attempt: attempt.parse().map_err(|_| bad.clone())?,
        };
        // One claim, one spelling: "+1" and "01" parse as numbers and are refused here.
        if id.to_string() == text {
            Ok(id)
        } else {
            Err(bad)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sale_ids_are_dns_labels() {
        for good in ["a", "0", "drop-1", &"x".repeat(63)] {
            assert!(SaleId::new(good).is_ok(), "{good}");
        }
        for bad in [
            "",
            "-a",
            "A",
            "a_b",
            "a b",
            "a/b",
            "ä",
            "a\0",
            &"x".repeat(64),
        ] {
            assert!(SaleId::new(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn user_ids_are_kept_byte_for_byte_and_bounded() {
        for good in [
            "u",
            "Alice",
            "alice@example.com",
            "사용자",
            &"x".repeat(255),
        ] {
            assert_eq!(UserId::new(good).unwrap().as_str(), good);
        }
        for bad in [
            "",
            " a",
            "a ",
            "a\nb",
            "a\0",
            "a\u{7f}",
            &"x".repeat(256),
            &"é".repeat(128),
        ] {
            assert!(UserId::new(bad).is_err(), "{bad:?}");
        }
        assert_ne!(UserId::new("alice").unwrap(), UserId::new("Alice").unwrap());
    }

    #[test]
    fn keys_are_printable_ascii() {
        assert!(IdempotencyKey::new("").unwrap() == IdempotencyKey::none());
        assert!(IdempotencyKey::new(&"k".repeat(64)).is_ok());
        for bad in [&"k".repeat(65) as &str, "a\tb", "é"] {
            assert!(IdempotencyKey::new(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_claim_id_has_one_spelling() {
        let id = ClaimId {
            generation: Generation(1),
            seq: Seq(42),
            attempt: AttemptId([0xab; 16]),
        };
        assert_eq!(id.to_string().parse::<ClaimId>().unwrap(), id);
        let hex = "ab".repeat(16);
        for bad in [
            "",
            "1-42",
            &format!("01-42-{hex}"),
            &format!("+1-42-{hex}"),
            &format!("1-42-{}", hex.to_uppercase()),
            &format!("1-42-{hex}-"),
        ] {
            assert!(bad.parse::<ClaimId>().is_err(), "{bad}");
        }
    }
}
