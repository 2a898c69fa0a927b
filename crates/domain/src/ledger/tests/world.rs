//! A world in which Redis loses writes, and the log that it leaves behind.

use super::super::*;
use crate::event::{Event, Won};
use crate::ids::{AttemptId, IdempotencyKey, Identity, Nonce, Unit};
use proptest::prelude::*;
use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::num::NonZeroU32;

pub const WINDOW: u32 = 4;

pub fn sale() -> SaleId {
    SaleId::new("drop").unwrap()
}

pub fn user(n: u8) -> UserId {
    UserId::new(&format!("u{n}")).unwrap()
}

/// A stand-in for SHA-1: the domain knows digests, not how they are made.
fn digest(event: &Event) -> Digest {
    let mut hasher = DefaultHasher::new();
    format!("{event:?}").hash(&mut hasher);
    let mut bytes = [0u8; 20];
    bytes[..8].copy_from_slice(&hasher.finish().to_le_bytes());
    Digest(bytes)
}

pub fn record(generation: u32, body: Body) -> Record {
    let event = Event {
        sale: sale(),
        generation: Generation(generation),
        body,
    };
    Record {
        digest: digest(&event),
        event,
    }
}

pub fn started(generation: u32, identity: u8, definition: Option<Definition>) -> Record {
    record(
        generation,
        Body::Started(Box::new(Started {
            identity: Identity([identity; 16]),
            nonce: Nonce([identity; 16]),
            scripts: Vec::new(),
            rule: RULE_VERSION,
            calls: CALLS_VERSION,
            window: NonZeroU32::new(WINDOW).unwrap(),
            definition,
            by: "test".into(),
            reason: "test".into(),
            at: None,
        })),
    )
}

pub fn won(generation: u32, seq: u64, prev: Digest, who: u8, unit: u64, attempt: u8) -> Record {
    record(
        generation,
        Body::Won(Won {
            link: Link {
                seq: Seq(seq),
                time: TimeMs(seq),
                prev,
            },
            user: user(who),
            attempt: AttemptId([attempt; 16]),
            key: IdempotencyKey::none(),
            unit: Unit(unit),
        }),
    )
}

/// The part of Redis that matters to the log: what a script would do, and what a crash forgets.
#[derive(Clone)]
pub struct Redis {
    generation: u32,
    seq: u64,
    head: Digest,
    next: u64,
    owners: HashSet<u8>,
    applied: u64,
    closed: bool,
}

#[derive(Debug, Clone)]
pub enum Op {
    /// A claim by a user, whose event reaches the log `late` records later than it could.
    Claim {
        who: u8,
        late: u8,
    },
    /// The event before is published again.
    Again {
        which: u8,
    },
    Close,
    Halt,
    /// Redis forgets its last writes.
    Forget {
        writes: u8,
    },
    /// Somebody recovers the sale from the log as it stands.
    Recover,
    /// A second recovery of the same generation, which lost the race.
    RecoverLate,
}

pub fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        12 => (0u8..8, 0u8..3).prop_map(|(who, late)| Op::Claim { who, late }),
        3 => any::<u8>().prop_map(|which| Op::Again { which }),
        1 => Just(Op::Close),
        1 => Just(Op::Halt),
        2 => (1u8..4).prop_map(|writes| Op::Forget { writes }),
        1 => Just(Op::Recover),
        1 => Just(Op::RecoverLate),
    ]
}

/// Runs the operations and returns the log that they leave behind.
pub fn history(stock: u64, ops: &[Op]) -> Vec<Record> {
    let mut world = World::open(stock);
    for op in ops {
        world.land();
        world.step(op);
    }
    let World {
        mut log, flying, ..
    } = world;
    log.extend(flying.into_iter().map(|(_, record)| record));
    log
}

struct World {
    stock: u64,
    redis: Redis,
    log: Vec<Record>,
    undo: Vec<Redis>,
    /// Published and not yet in the log: the length of the log at which it may land, and what.
    flying: Vec<(usize, Record)>,
    attempts: u8,
}

impl World {
    fn open(stock: u64) -> Self {
        let opening = started(1, 1, Some(Definition::of(stock)));
        let redis = Redis {
            generation: 1,
            seq: 0,
            head: opening.digest,
            next: 1,
            owners: HashSet::new(),
            applied: 0,
            closed: false,
        };
        Self {
            stock,
            redis,
            log: vec![opening],
            undo: Vec::new(),
            flying: Vec::new(),
            attempts: 0,
        }
    }

    fn step(&mut self, op: &Op) {
        match *op {
            Op::Claim { who, late } => self.claim(who, late),
            Op::Again { which } => {
                let copy = self.log[usize::from(which) % self.log.len()].clone();
                self.log.push(copy);
            }
            Op::Close => self.close(),
            Op::Halt => {
                let halted = Halted {
                    reason: "test".into(),
                    by: "test".into(),
                    at: None,
                };
                self.log
                    .push(record(self.redis.generation, Body::Halted(halted)));
            }
            Op::Forget { writes } => {
                for _ in 0..writes {
                    if let Some(before) = self.undo.pop() {
                        self.redis = before;
                    }
                }
            }
            Op::Recover => {
                self.redis = recover(&mut self.log, self.redis.generation + 1);
                self.undo.clear();
            }
            Op::RecoverLate => self.log.push(started(self.redis.generation, 99, None)),
        }
    }

    fn claim(&mut self, who: u8, late: u8) {
        let folded = fold(&self.log);
        let redis = &mut self.redis;
        if folded.generation() == Generation(redis.generation) {
            redis.applied = redis.applied.max(folded.applied().0);
        }
        let refused = redis.closed
            || redis.owners.contains(&who)
            || redis.next > self.stock
            || redis.seq.saturating_sub(redis.applied) >= u64::from(WINDOW);
        if refused {
            return;
        }
        self.undo.push(redis.clone());
        self.attempts = self.attempts.wrapping_add(1);
        redis.seq += 1;
        let event = won(
            redis.generation,
            redis.seq,
            redis.head,
            who,
            redis.next,
            self.attempts,
        );
        redis.head = event.digest;
        redis.next += 1;
        redis.owners.insert(who);
        self.flying
            .push((self.log.len() + usize::from(late), event));
    }

    fn close(&mut self) {
        if self.redis.closed {
            return;
        }
        self.undo.push(self.redis.clone());
        self.redis.seq += 1;
        let link = Link {
            seq: Seq(self.redis.seq),
            time: TimeMs(self.redis.seq),
            prev: self.redis.head,
        };
        let event = record(self.redis.generation, Body::Closed(link));
        self.redis.head = event.digest;
        self.redis.closed = true;
        self.flying.push((self.log.len(), event));
    }

    /// What may land, lands; the last first, so that records overtake each other.
    fn land(&mut self) {
        let mut rest = Vec::new();
        for (from, record) in self.flying.drain(..).rev() {
            if from <= self.log.len() {
                self.log.push(record);
            } else {
                rest.push((from, record));
            }
        }
        rest.reverse();
        self.flying = rest;
    }
}

pub fn recover(log: &mut Vec<Record>, generation: u32) -> Redis {
    log.push(started(generation, generation as u8, None));
    let folded = fold(log);
    let position = folded.position().unwrap();
    assert_eq!(position.generation, Generation(generation));
    Redis {
        generation,
        seq: position.seq.0,
        head: position.chain,
        next: folded.next_fresh().0,
        owners: (0..8)
            .filter(|n| folded.win_of(&user(*n)).is_some())
            .collect(),
        applied: position.seq.0,
        closed: folded.closed_at().is_some(),
    }
}

pub fn fold(log: &[Record]) -> Ledger {
    let mut ledger = Ledger::new(sale());
    let mut out = Vec::new();
    for (at, record) in log.iter().enumerate() {
        ledger
            .feed(Offset(at as u64), record.clone(), &mut out)
            .unwrap();
    }
    ledger
}
