//! What the scripts do, written down once more in Rust: the same questions, the same answers, the
//! same keys afterwards. Time is given by the reply under test.

use crate::fixture::key_of;
use dropgate_admission::{Claim, Entry, Scope, State};
use dropgate_domain::{Body, Digest, Event, Link, Seq, TimeMs, Unit, UserId, Won};
use dropgate_testkit::Value;
use std::collections::{BTreeMap, HashMap};

/// One sale's keys.
#[derive(Debug, Clone, Default)]
pub struct Model {
    pub current: Option<String>,
    /// By `L:g`.
    pub generations: BTreeMap<String, Built>,
}

/// One generation's keys.
#[derive(Debug, Clone)]
pub struct Built {
    pub state: State,
    pub marker: (Seq, Digest),
    pub applied: Seq,
    /// How many users had claims when it was built.
    pub users: usize,
    pub claims: HashMap<UserId, Vec<Entry>>,
    /// What is above `applied`; Redis may still hold some of what is below.
    pub outbox: BTreeMap<Seq, Vec<u8>>,
    /// All events ever.
    pub events: BTreeMap<Seq, Vec<u8>>,
}

/// A reply without its time: the status, then the fields.
pub type Said = Vec<Value>;

fn said(status: &str, fields: impl IntoIterator<Item = Value>) -> Said {
    let mut all = vec![Value::Bulk(status.as_bytes().to_vec())];
    all.extend(fields);
    all
}

fn int(number: u64) -> Value {
    Value::Int(i64::try_from(number).unwrap())
}

impl Model {
    /// The keys of a generation as the builder writes them.
    pub fn build(&mut self, scope: &Scope, state: &State, claims: &HashMap<UserId, Vec<Entry>>) {
        let built = Built {
            state: state.clone(),
            marker: (state.seq, state.head),
            applied: state.seq,
            users: claims.len(),
            claims: claims.clone(),
            outbox: BTreeMap::new(),
            events: BTreeMap::new(),
        };
        self.generations
            .entry(scope.tag().to_owned())
            .or_insert(built);
    }

    pub fn switch(&mut self, from: &str, to: &Scope, seq: Seq, head: Digest) -> Said {
        let number = |tag: &str| tag.split(':').nth(1).unwrap().parse::<u32>().unwrap();
        if let Some(current) = &self.current {
            if current == to.tag() {
                return said("already", []);
            }
            let same_log = current.split(':').next() == to.tag().split(':').next();
            let back = same_log && number(current) > to.generation().0;
            if back || (!same_log && current != from) {
                return said("backwards", []);
            }
        }
        match self.generations.get(to.tag()) {
            Some(built) if built.marker == (seq, head) && built.users == built.claims.len() => {}
            _ => return said("not_built", []),
        }
        self.current = Some(to.tag().to_owned());
        said("switched", [])
    }

    /// What all scripts but the switch check first.
    fn enter(&mut self, scope: &Scope, applied: Seq, now: TimeMs) -> Result<&mut Built, Said> {
        match &self.current {
            None => return Err(said("missing", [])),
            Some(current) if current != scope.tag() => return Err(said("stale", [])),
            Some(_) => {}
        }
        match self.generations.get_mut(scope.tag()) {
            None => Err(said("missing", [])),
            Some(built) if now < built.state.time => panic!("time went back to {now}"),
            Some(built) if applied > built.state.seq => Err(said("behind", [])),
            Some(built) => Ok(built),
        }
    }

    pub fn claim(
        &mut self,
        scope: &Scope,
        applied: Seq,
        deadline: TimeMs,
        claim: &Claim,
        now: TimeMs,
    ) -> Said {
        let built = match self.enter(scope, applied, now) {
            Ok(built) => built,
            Err(refused) => return refused,
        };
        if now >= deadline {
            return said("late", []);
        }
        let held = built.claims.get(&claim.user).cloned().unwrap_or_default();
        let definition = &built.state.definition;
        let limit = definition.per_user_limit as usize;
        let first_counts = limit == 1 || claim.key.as_str().is_empty();
        let earlier = |entry: &&Entry| first_counts || entry.key == claim.key;
        if let Some(entry) = held.iter().find(earlier) {
            let attempt = Value::Bulk(entry.attempt.0.to_vec());
            return said("again", [int(entry.seq.0), int(entry.unit.0), attempt]);
        }
        let over = definition.closes_at.is_some_and(|closes| now >= closes);
        if built.state.closed || over {
            return said("closed", []);
        }
        if let Some(opens) = definition.opens_at.filter(|opens| now < *opens) {
            return said("early", [int(opens.0)]);
        }
        if held.len() >= limit {
            return said("limit", [Value::Bulk(bytes_of(&held))]);
        }
        if built.is_full(applied) {
            return said("busy", []);
        }
        if built.state.next.0 > definition.stock {
            return said("sold_out", [int(built.state.seq.0)]);
        }
        let unit = built.state.next;
        built.state.next = Unit(unit.0 + 1);
        let event = built.append(scope, applied, now, |link| {
            Body::Won(Won {
                link,
                user: claim.user.clone(),
                attempt: claim.attempt,
                key: claim.key.clone(),
                unit,
            })
        });
        let seq = built.state.seq;
        let entry = Entry {
            seq,
            unit,
            attempt: claim.attempt,
            key: claim.key.clone(),
        };
        let entries = built.claims.entry(claim.user.clone()).or_default();
        entries.push(entry);
        said("won", [int(seq.0), Value::Bulk(event)])
    }

    pub fn close(&mut self, scope: &Scope, applied: Seq, deadline: TimeMs, now: TimeMs) -> Said {
        let built = match self.enter(scope, applied, now) {
            Ok(built) => built,
            Err(refused) => return refused,
        };
        if now >= deadline {
            return said("late", []);
        }
        if built.state.closed {
            return said("closed", []);
        }
        if built.is_full(applied) {
            return said("busy", []);
        }
        built.state.closed = true;
        let event = built.append(scope, applied, now, Body::Closed);
        said("closed_now", [int(built.state.seq.0), Value::Bulk(event)])
    }

    pub fn tip(&mut self, scope: &Scope, applied: Seq, max: usize, now: TimeMs) -> Said {
        let built = match self.enter(scope, applied, now) {
            Ok(built) => built,
            Err(refused) => return refused,
        };
        built.trim(applied);
        let events = built.outbox.iter().take(max);
        let events = events
            .flat_map(|(seq, event)| [int(seq.0), Value::Bulk(event.clone())])
            .collect();
        said(
            "tip",
            [
                int(built.state.seq.0),
                Value::Bulk(built.state.head.0.to_vec()),
                int(built.applied.0),
                Value::Array(events),
            ],
        )
    }
}

impl Built {
    fn is_full(&self, applied: Seq) -> bool {
        let in_flight = self.state.seq.0 - self.applied.max(applied).0;
        in_flight >= u64::from(self.state.window.get())
    }

    fn trim(&mut self, applied: Seq) {
        self.applied = self.applied.max(applied);
        let applied = self.applied;
        self.outbox.retain(|seq, _| *seq > applied);
    }

    fn append(
        &mut self,
        scope: &Scope,
        applied: Seq,
        now: TimeMs,
        body: impl FnOnce(Link) -> Body,
    ) -> Vec<u8> {
        let seq = self.state.seq.next();
        let link = Link {
            seq,
            time: now,
            prev: self.state.head,
        };
        let event = dropgate_events::encode_event(&Event {
            sale: scope.sale().clone(),
            generation: scope.generation(),
            body: body(link),
        });
        self.state.seq = seq;
        self.state.time = now;
        self.state.head = dropgate_events::digest(&event);
        self.outbox.insert(seq, event.to_vec());
        self.events.insert(seq, event.to_vec());
        self.trim(applied);
        event.to_vec()
    }

    /// The state hash, field by field.
    pub fn fields(&self) -> BTreeMap<Vec<u8>, Vec<u8>> {
        let definition = &self.state.definition;
        let number = |number: u64| number.to_string().into_bytes();
        let time = |time: Option<TimeMs>| number(time.map_or(0, |time| time.0));
        let mut marker = format!("{}:", self.marker.0).into_bytes();
        marker.extend_from_slice(&self.marker.1.0);
        marker.extend_from_slice(format!(":{}", self.users).as_bytes());
        let st = if self.state.closed { "closed" } else { "open" };
        [
            ("st", st.as_bytes().to_vec()),
            ("stock", number(definition.stock)),
            ("limit", number(definition.per_user_limit.into())),
            ("next", number(self.state.next.0)),
            ("seq", number(self.state.seq.0)),
            ("head", self.state.head.0.to_vec()),
            ("time", number(self.state.time.0)),
            ("applied", number(self.applied.0)),
            ("window", number(self.state.window.get().into())),
            ("opens", time(definition.opens_at)),
            ("closes", time(definition.closes_at)),
            ("marker", marker),
        ]
        .into_iter()
        .map(|(name, value)| (name.as_bytes().to_vec(), value))
        .collect()
    }

    /// The claims hash, user by user.
    pub fn claims(&self) -> BTreeMap<Vec<u8>, Vec<u8>> {
        let pair = |(user, entries): (&UserId, &Vec<Entry>)| {
            (user.as_str().as_bytes().to_vec(), bytes_of(entries))
        };
        self.claims.iter().map(pair).collect()
    }
}

/// Entries as the README of `lua/` lays them out.
pub fn bytes_of(entries: &[Entry]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for entry in entries {
        bytes.extend(entry.seq.0.to_le_bytes());
        bytes.extend(entry.unit.0.to_le_bytes());
        bytes.extend(entry.attempt.0);
        bytes.push(u8::try_from(entry.key.as_str().len()).unwrap());
        bytes.extend(entry.key.as_str().bytes());
    }
    bytes
}

/// The keys that the model knows of and that Redis must hold, and no others.
pub fn expected_keys(model: &Model, scopes: &[Scope]) -> Vec<String> {
    let mut keys = Vec::new();
    if model.current.is_some() {
        keys.push(key_of(&scopes[0], "current"));
    }
    for scope in scopes {
        if let Some(built) = model.generations.get(scope.tag()) {
            keys.push(key_of(scope, "state"));
            if !built.claims.is_empty() {
                keys.push(key_of(scope, "claims"));
            }
            // A stream that was trimmed empty stays.
            if built.state.seq > built.marker.0 {
                keys.push(key_of(scope, "outbox"));
            }
        }
    }
    keys.sort();
    keys
}
