//! A sale as its ledger, and what a correct database and a correct Redis say of it.

use dropgate_admission::{Entry, Scope, StoredState};
use dropgate_domain::{
    AttemptId, Body, CALLS_VERSION, Definition, Digest, Event, Generation, IdempotencyKey,
    Identity, Ledger, Link, LogId, Nonce, Offset, PartitionId, RULE_VERSION, Record, SaleCreated,
    SaleId, Seq, Started, TimeMs, Unit, UserId, Win, Won,
};
use dropgate_store::{Order, Pin, SaleRow, SaleState};
use std::collections::BTreeMap;
use std::num::NonZeroU32;

use super::super::{RedisSale, SaleRows};

pub const LOG: LogId = LogId([9; 16]);

pub struct World {
    pub ledger: Ledger,
    pub pin: SaleCreated,
}

pub fn user(n: u64) -> UserId {
    UserId::new(&format!("user-{n}")).unwrap()
}

pub fn attempt(n: u64) -> AttemptId {
    AttemptId((u128::from(n) + 1).to_be_bytes())
}

fn digest(n: u64) -> Digest {
    let mut bytes = [0; 20];
    bytes[..8].copy_from_slice(&(n + 1).to_be_bytes());
    Digest(bytes)
}

fn record(digest: Digest, body: Body) -> Record {
    let event = Event {
        sale: sale(),
        generation: Generation(1),
        body,
    };
    Record { event, digest }
}

fn sale() -> SaleId {
    SaleId::new("s").unwrap()
}

impl World {
    /// A sale of `stock` units of which `wins` were won, `limit` to a user, in this order of
    /// units, and closed or not.
    pub fn new(stock: u64, limit: u32, units: &[u64], closed: bool) -> Self {
        let definition = Definition {
            per_user_limit: limit,
            ..Definition::of(stock)
        };
        let pin = SaleCreated {
            sale: sale(),
            log_id: LOG,
            partition: PartitionId(3),
            from_offset: Offset(7),
            definition: definition.clone(),
            created_at: TimeMs(1),
            attempt: attempt(1 << 40),
        };
        let mut ledger = Ledger::new(sale());
        let started = Body::Started(Box::new(Started {
            identity: Identity([1; 16]),
            nonce: Nonce([2; 16]),
            scripts: Vec::new(),
            rule: RULE_VERSION,
            calls: CALLS_VERSION,
            window: NonZeroU32::new(100).unwrap(),
            definition: Some(definition),
            by: "test".into(),
            reason: "test".into(),
            at: None,
        }));
        let mut feed = |at: u64, body| {
            let fed = ledger.feed(Offset(7 + at), record(digest(at), body), &mut Vec::new());
            fed.unwrap();
        };
        feed(0, started);
        let link = |seq: u64| Link {
            seq: Seq(seq),
            time: TimeMs(1000 + seq),
            prev: digest(seq - 1),
        };
        for (n, unit) in (0..).zip(units) {
            let seq = n + 1;
            feed(
                seq,
                Body::Won(Won {
                    link: link(seq),
                    user: user(n / u64::from(limit)),
                    attempt: attempt(n),
                    key: IdempotencyKey::new(&format!("key-{n}")).unwrap(),
                    unit: Unit(*unit),
                }),
            );
        }
        if closed {
            let seq = units.len() as u64 + 1;
            feed(seq, Body::Closed(link(seq)));
        }
        assert_eq!(ledger.wins().len(), units.len());
        Self { ledger, pin }
    }

    pub fn wins(&self) -> &[Win] {
        self.ledger.wins()
    }

    pub fn orders(&self) -> Vec<Order> {
        self.wins().iter().map(Order::from).collect()
    }

    pub fn claims(&self) -> BTreeMap<UserId, Vec<Entry>> {
        let mut claims: BTreeMap<UserId, Vec<Entry>> = BTreeMap::new();
        for win in self.wins() {
            claims.entry(win.user.clone()).or_default().push(entry(win));
        }
        claims
    }

    pub fn row(&self) -> SaleRow {
        let (counts, closed_at) = (self.ledger.counts(), self.ledger.closed_at());
        SaleRow {
            sale: self.pin.sale.clone(),
            pin: Pin {
                log_id: self.pin.log_id,
                partition: self.pin.partition,
                from_offset: self.pin.from_offset,
            },
            position: self.ledger.position().unwrap(),
            state: closed_at.map_or(SaleState::Open, |_| SaleState::Closed),
            stock: counts.stock,
            sold: counts.sold,
            held: 0,
            opened_at: None,
            closed_at,
        }
    }

    pub fn rows(&self) -> SaleRows {
        SaleRows {
            before: Some(self.row()),
            after: Some(self.row()),
            orders: Some(self.wins().len() as u64),
        }
    }

    pub fn redis(&self) -> RedisSale {
        let definition = self.ledger.definition().unwrap();
        let end = self.ledger.position().unwrap();
        let scope = Scope::new(self.pin.sale.clone(), LOG, end.generation);
        RedisSale {
            current: Some(scope.tag().to_owned()),
            state: Some(StoredState {
                open: self.ledger.closed_at().is_none(),
                stock: definition.stock,
                per_user_limit: u64::from(definition.per_user_limit),
                next: self.ledger.next_fresh(),
                seq: end.seq,
                head: end.chain,
                time: self.ledger.last_time(),
                applied: end.seq,
                window: 100,
                opens_at: None,
                closes_at: None,
            }),
        }
    }
}

pub fn entry(win: &Win) -> Entry {
    Entry {
        seq: win.seq,
        unit: win.unit,
        attempt: win.attempt,
        key: win.key.clone(),
    }
}
