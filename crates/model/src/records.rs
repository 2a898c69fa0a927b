//! The records of the modelled log, each made once: what a state holds is a number.

use crate::arena::Arena;
use crate::bounds::Bounds;
use dropgate_domain::{
    AttemptId, Body, CALLS_VERSION, Definition, Digest, Event, Generation, IdempotencyKey,
    Identity, Link, Nonce, RULE_VERSION, Record, SaleId, Seq, Started, TimeMs, Unit, UserId, Won,
};
use std::num::NonZeroU32;

/// A record, by its number; 0 is none. Its digest, and a win's attempt, hold this number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub(crate) struct RecordId(pub u16);

impl RecordId {
    pub const NONE: Self = Self(0);

    fn bytes<const N: usize>(self) -> [u8; N] {
        let mut bytes = [0; N];
        bytes[..2].copy_from_slice(&self.0.to_le_bytes());
        bytes
    }

    pub fn of_digest(digest: Digest) -> Self {
        Self(u16::from_le_bytes([digest.0[0], digest.0[1]]))
    }

    pub fn of_attempt(attempt: AttemptId) -> Self {
        Self(u16::from_le_bytes([attempt.0[0], attempt.0[1]]))
    }
}

/// What a record says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Said {
    /// A generation begins. Author 0 opened the sale; author n + 1 is recovery n.
    Started { generation: u8, author: u8 },
    /// A unit was won, by the sale's `call`th call that ran.
    Won {
        generation: u8,
        seq: u8,
        unit: u8,
        user: u8,
        call: u8,
        prev: RecordId,
    },
    /// The sale was closed.
    Closed {
        generation: u8,
        seq: u8,
        prev: RecordId,
    },
}

impl Said {
    pub fn generation(self) -> u8 {
        match self {
            Self::Started { generation, .. }
            | Self::Won { generation, .. }
            | Self::Closed { generation, .. } => generation,
        }
    }

    /// The event's number; 0 of what has none.
    pub fn seq(self) -> u8 {
        match self {
            Self::Started { .. } => 0,
            Self::Won { seq, .. } | Self::Closed { seq, .. } => seq,
        }
    }

    /// The event before it; none of a start.
    pub fn prev(self) -> RecordId {
        match self {
            Self::Started { .. } => RecordId::NONE,
            Self::Won { prev, .. } | Self::Closed { prev, .. } => prev,
        }
    }
}

struct Known {
    said: Said,
    record: Record,
}

/// All records that any state has.
pub(crate) struct Records {
    arena: Arena<Said, Known>,
    window: NonZeroU32,
    stock: u64,
}

impl Records {
    pub fn new(bounds: &Bounds) -> Self {
        Self {
            arena: Arena::new(),
            window: NonZeroU32::new(bounds.window.into()).unwrap_or(NonZeroU32::MIN),
            stock: bounds.stock.into(),
        }
    }

    pub fn intern(&self, said: Said) -> RecordId {
        let number = |index: u32| match u16::try_from(index + 1) {
            Ok(number) => RecordId(number),
            Err(_) => unreachable!("the model's bounds are too wide"),
        };
        let index = self.arena.intern(said, |index| Known {
            said,
            record: self.record(number(index), said),
        });
        number(index)
    }

    pub fn said(&self, id: RecordId) -> Said {
        self.known(id).said
    }

    pub fn get(&self, id: RecordId) -> &Record {
        &self.known(id).record
    }

    fn known(&self, id: RecordId) -> &Known {
        self.arena.get(u32::from(id.0) - 1)
    }

    fn record(&self, id: RecordId, said: Said) -> Record {
        let digest = |id: RecordId| Digest(id.bytes());
        let link = |seq: u8, prev| Link {
            seq: Seq(seq.into()),
            time: TimeMs(seq.into()),
            prev: digest(prev),
        };
        let body = match said {
            Said::Started { generation, author } => Body::Started(Box::new(Started {
                identity: Identity([author; 16]),
                nonce: Nonce([author; 16]),
                scripts: Vec::new(),
                rule: RULE_VERSION,
                calls: CALLS_VERSION,
                window: self.window,
                definition: (generation == 1).then(|| Definition::of(self.stock)),
                by: String::new(),
                reason: String::new(),
                at: None,
            })),
            Said::Won {
                seq,
                unit,
                user: who,
                prev,
                ..
            } => Body::Won(Won {
                link: link(seq, prev),
                user: user(who),
                attempt: AttemptId(id.bytes()),
                key: IdempotencyKey::none(),
                unit: Unit(unit.into()),
            }),
            Said::Closed { seq, prev, .. } => Body::Closed(link(seq, prev)),
        };
        Record {
            event: Event {
                sale: sale(),
                generation: Generation(said.generation().into()),
                body,
            },
            digest: digest(id),
        }
    }
}

pub(crate) fn sale() -> SaleId {
    valid(SaleId::new("sale"))
}

pub(crate) fn user(number: u8) -> UserId {
    valid(UserId::new(&format!("user-{number}")))
}

fn valid<T, E>(id: Result<T, E>) -> T {
    match id {
        Ok(id) => id,
        Err(_) => unreachable!("the model's ids are valid"),
    }
}
