//! What counts of a log: the rule, told once more without the ledger.

use super::{Rejected, Run, Why, at};
use dropgate_domain::{
    Body, Definition, Digest, Generation, Link, Nonce, Offset, Record, Seq, Started, TimeMs, Unit,
    Won,
};
use std::collections::{BTreeMap, HashMap, HashSet};

/// An event that applied.
pub(super) struct Applied<'a> {
    pub generation: Generation,
    pub link: Link,
    /// `None`: the close.
    pub won: Option<&'a Won>,
}

/// A generation that counted.
pub(super) struct Begun {
    /// Where its chain begins.
    pub root: Digest,
    /// The seq before its first event: so many events had applied.
    pub base: Seq,
    /// The next fresh unit then.
    pub next: Unit,
    /// The time of the last event then.
    pub time: TimeMs,
    /// Its window.
    pub window: u64,
    /// Whether a breach ended it.
    pub ended: bool,
}

/// What counts of a log.
pub(super) struct Counts<'a> {
    pub definition: &'a Definition,
    /// By number, from 1.
    pub generations: Vec<Begun>,
    /// By seq, from 1.
    pub applied: Vec<Applied<'a>>,
    pub closed: bool,
    /// By index into the records: how many events had applied when the record came, and whether
    /// its generation was still on then.
    pub when: Vec<(Seq, bool)>,
}

impl Counts<'_> {
    pub fn begun(&self, generation: Generation) -> Option<&Begun> {
        self.generations
            .get((generation.0 as usize).checked_sub(1)?)
    }

    pub fn event(&self, seq: Seq) -> Option<&Applied<'_>> {
        self.applied
            .get(usize::try_from(seq.0).ok()?.checked_sub(1)?)
    }

    /// Whether nothing more can apply at this place.
    pub fn is_decided(&self, generation: Generation, seq: Seq) -> bool {
        let Some(begun) = self.begun(generation) else {
            return false;
        };
        let last = generation.0 as usize == self.generations.len();
        !last || begun.ended || self.closed || seq.0 <= self.applied.len() as u64
    }
}

/// The place of an event; `None` of what has none.
pub(super) fn link_of(record: &Record) -> Option<Link> {
    match &record.event.body {
        Body::Won(won) => Some(won.link),
        Body::Closed(link) => Some(*link),
        Body::Started(_) | Body::Halted(_) => None,
    }
}

struct Reader<'a> {
    counts: Counts<'a>,
    head: Digest,
    /// Of the current generation: the first record of each seq.
    first: BTreeMap<Seq, &'a Record>,
    identities: HashSet<[u8; 16]>,
    nonces: HashSet<Nonce>,
}

pub(super) fn read<'a>(run: &Run<'a>) -> Result<Counts<'a>, Rejected> {
    let mut records = run
        .records
        .iter()
        .filter(|(_, r)| r.event.sale == *run.sale);
    let definition = match records.next() {
        Some((_, record)) => match &record.event.body {
            Body::Started(started) => started.definition.as_ref(),
            _ => None,
        },
        None => None,
    };
    let first = run.records.first().map_or(Offset(0), |(offset, _)| *offset);
    let definition = definition.ok_or_else(|| at(first, Why::DefinitionMisplaced))?;
    let mut reader = Reader {
        counts: Counts {
            definition,
            generations: Vec::new(),
            applied: Vec::new(),
            closed: false,
            when: Vec::with_capacity(run.records.len()),
        },
        head: Digest([0; 20]),
        first: BTreeMap::new(),
        identities: HashSet::new(),
        nonces: HashSet::new(),
    };
    for (offset, record) in run.records {
        let applied = Seq(reader.counts.applied.len() as u64);
        let on = reader.is_on(record.event.generation);
        reader.counts.when.push((applied, on));
        if record.event.sale == *run.sale {
            reader.record(record).map_err(|why| at(*offset, why))?;
        }
    }
    Ok(reader.counts)
}

impl<'a> Reader<'a> {
    fn now(&self) -> Generation {
        Generation(self.counts.generations.len() as u32)
    }

    /// Whether events of this generation can still count.
    fn is_on(&self, generation: Generation) -> bool {
        let last = self.counts.generations.last();
        generation == self.now() && last.is_some_and(|begun| !begun.ended)
    }

    fn record(&mut self, record: &'a Record) -> Result<(), Why> {
        let generation = record.event.generation;
        if let Body::Started(started) = &record.event.body {
            return self.started(generation, started, record.digest);
        }
        if generation > self.now() || generation == Generation(0) {
            return Err(Why::NotBegun);
        }
        let Some(link) = link_of(record) else {
            return Ok(());
        };
        if self.is_on(generation)
            && !self.sequenced(link, record)
            && let Some(begun) = self.counts.generations.last_mut()
        {
            begun.ended = true;
        }
        Ok(())
    }

    fn started(
        &mut self,
        generation: Generation,
        started: &Started,
        root: Digest,
    ) -> Result<(), Why> {
        if generation > self.now().next() || generation == Generation(0) {
            return Err(Why::NotBegun);
        }
        if started.definition.is_some() != (generation == Generation(1)) {
            return Err(Why::DefinitionMisplaced);
        }
        let new = self.identities.insert(started.identity.0);
        if generation <= self.now() {
            // Somebody else's came first; the same bytes may come twice.
            return Ok(());
        }
        if !new || !self.nonces.insert(started.nonce) {
            return Err(Why::StartRepeated);
        }
        let last = self.counts.applied.last();
        let units = self.counts.applied.iter().filter_map(|event| event.won);
        self.counts.generations.push(Begun {
            root,
            base: Seq(self.counts.applied.len() as u64),
            next: Unit(units.map(|won| won.unit.0).max().unwrap_or(0) + 1),
            time: last.map_or(TimeMs(0), |event| event.link.time),
            window: started.window.get().into(),
            ended: false,
        });
        self.head = root;
        self.first.clear();
        Ok(())
    }

    /// False when the record breaks the rule.
    fn sequenced(&mut self, link: Link, record: &'a Record) -> bool {
        let Some(begun) = self.counts.generations.last() else {
            return false;
        };
        let applied = self.counts.applied.len() as u64;
        if link.seq <= begun.base || link.seq.0 > applied + begun.window {
            return false;
        }
        let first = *self.first.entry(link.seq).or_insert(record);
        if first.digest != record.digest {
            return false;
        }
        while let Some(next) = self.first.get(&Seq(self.counts.applied.len() as u64 + 1)) {
            let Some(link) = link_of(next) else {
                return false;
            };
            if link.prev != self.head {
                return false;
            }
            self.head = next.digest;
            let won = match &next.event.body {
                Body::Won(won) => Some(won),
                _ => None,
            };
            self.counts.closed |= won.is_none();
            self.counts.applied.push(Applied {
                generation: next.event.generation,
                link,
                won,
            });
        }
        true
    }
}

/// The records of each digest that are events, the first of each.
pub(super) fn by_digest<'a>(run: &Run<'a>) -> HashMap<Digest, (usize, &'a Record)> {
    let mut events = HashMap::new();
    for (index, (_, record)) in run.records.iter().enumerate() {
        if record.event.sale == *run.sale && link_of(record).is_some() {
            events.entry(record.digest).or_insert((index, record));
        }
    }
    events
}
