//! The histories that Redis made: every event is one that a script could have made there.

use super::counts::{Begun, Counts, by_digest, link_of};
use super::{Accepted, Rejected, Run, Why, at};
use dropgate_domain::{Body, Digest, Link, Record, Seq, TimeMs, Unit, UserId};
use std::collections::{HashMap, HashSet};

/// An event in its history.
#[derive(Clone, Copy)]
struct Node {
    seq: Seq,
    /// The history that it is on; one goes on with its first event that came, another one begins
    /// a new history.
    history: usize,
    /// The next fresh unit after it; `None`: the sale is closed.
    next: Option<Unit>,
    time: TimeMs,
}

/// A history that branched off another.
struct Branch {
    from: usize,
    /// The last event that both have.
    at: Seq,
}

struct Histories<'a> {
    run: &'a Run<'a>,
    counts: &'a Counts<'a>,
    nodes: HashMap<Digest, Node>,
    branches: Vec<Branch>,
    /// What has an event after it.
    followed: HashSet<Digest>,
    /// Wins by user: generation, history and seq.
    wins: HashMap<UserId, Vec<(u32, usize, Seq)>>,
    accepted: Accepted,
}

pub(super) fn check(run: &Run<'_>, counts: &Counts<'_>) -> Result<Accepted, Rejected> {
    let events = by_digest(run);
    let known: HashMap<Digest, u32> = events
        .iter()
        .map(|(digest, (_, record))| (*digest, record.event.generation.0))
        .collect();
    // What an event hangs on comes before it in this order, whatever the order of the log.
    let mut order: Vec<(usize, &Record)> = events.into_values().collect();
    order.sort_by_key(|(index, record)| {
        let seq = link_of(record).map(|link| link.seq);
        (record.event.generation, seq, *index)
    });
    let mut histories = Histories {
        run,
        counts,
        nodes: HashMap::new(),
        branches: Vec::new(),
        followed: HashSet::new(),
        wins: HashMap::new(),
        accepted: Accepted {
            generations: counts.generations.len() as u32,
            applied: counts.applied.len() as u64,
            ..Accepted::default()
        },
    };
    // Of several steps that cannot be, the first in the log is the one to tell.
    let mut rejected: Option<(usize, Rejected)> = None;
    for (index, record) in order {
        if let Err(why) = histories.event(index, record, &known) {
            let (offset, _) = run.records[index];
            if rejected.as_ref().is_none_or(|(first, _)| index < *first) {
                rejected = Some((index, at(offset, why)));
            }
        }
    }
    if let Some((_, rejected)) = rejected {
        return Err(rejected);
    }
    let all = run
        .records
        .iter()
        .filter(|(_, r)| r.event.sale == *run.sale);
    let all = all.filter(|(_, record)| link_of(record).is_some()).count() as u64;
    let mut accepted = histories.accepted;
    accepted.duplicates = all - known.len() as u64;
    accepted.void = known.len() as u64 - accepted.applied;
    Ok(accepted)
}

impl Histories<'_> {
    fn event(
        &mut self,
        index: usize,
        record: &Record,
        known: &HashMap<Digest, u32>,
    ) -> Result<(), Why> {
        let generation = record.event.generation;
        let (Some(link), Some(begun)) = (link_of(record), self.counts.begun(generation)) else {
            return Err(Why::NotBegun);
        };
        let (applied_then, on) = self.counts.when[index];
        let applies = self.applies(record, link);
        if !on && !applies {
            self.forgot(Why::Late)?;
        }
        if on && link.seq.0 > applied_then.0 + begun.window {
            return Err(Why::BeyondWindow);
        }
        let Some(parent) = self.parent(link, begun) else {
            let foreign = known.get(&link.prev).is_some_and(|of| *of != generation.0);
            return if foreign || self.is_a_start(link.prev) {
                Err(Why::ParentForeign)
            } else {
                // Nothing can be said of a history whose middle is missing, but that none of it
                // counts.
                self.forgot(Why::Orphan)
            };
        };
        if link.seq != parent.seq.next() {
            return Err(Why::SeqWrong {
                expected: parent.seq.next(),
            });
        }
        if link.time < parent.time {
            return Err(Why::TimeBack);
        }
        let Some(next) = parent.next else {
            return Err(Why::AfterClose);
        };
        let history = self.history(link.prev, parent.history, parent.seq)?;
        let next = self.body(record, history, next)?;
        let node = Node {
            seq: link.seq,
            history,
            next,
            time: link.time,
        };
        self.nodes.insert(record.digest, node);
        Ok(())
    }

    fn applies(&self, record: &Record, link: Link) -> bool {
        let event = self.counts.event(link.seq);
        event.is_some_and(|event| {
            let same = event.generation == record.event.generation && event.link == link;
            let attempt = match &record.event.body {
                Body::Won(won) => Some(won.attempt),
                _ => None,
            };
            same && event.won.map(|won| won.attempt) == attempt
        })
    }

    /// A sign that Redis forgot something, which is only possible if it did.
    fn forgot(&mut self, why: Why) -> Result<(), Why> {
        self.accepted.forgotten += 1;
        if self.run.redis_forgot {
            Ok(())
        } else {
            Err(why)
        }
    }

    /// What an event hangs on.
    fn parent(&self, link: Link, begun: &Begun) -> Option<Node> {
        if link.prev == begun.root {
            let root = Node {
                seq: begun.base,
                history: usize::MAX,
                next: Some(begun.next),
                time: begun.time,
            };
            return Some(root);
        }
        self.nodes.get(&link.prev).copied()
    }

    fn is_a_start(&self, digest: Digest) -> bool {
        let mut starts = self.run.records.iter();
        starts.any(|(_, record)| {
            record.digest == digest && matches!(record.event.body, Body::Started(_))
        })
    }

    /// The history of an event after this one.
    fn history(&mut self, after: Digest, of: usize, seq: Seq) -> Result<usize, Why> {
        let first = self.followed.insert(after);
        if !first {
            self.forgot(Why::Fork)?;
        }
        if first && of != usize::MAX {
            return Ok(of);
        }
        self.branches.push(Branch { from: of, at: seq });
        Ok(self.branches.len() - 1)
    }

    /// The next fresh unit after the event, if what it says is what a script would have said.
    fn body(&mut self, record: &Record, history: usize, next: Unit) -> Result<Option<Unit>, Why> {
        let Body::Won(won) = &record.event.body else {
            return Ok(None);
        };
        if won.unit.0 == 0 || won.unit.0 > self.counts.definition.stock {
            return Err(Why::UnitUnknown);
        }
        if won.unit != next {
            return Err(Why::UnitWrong { expected: next });
        }
        let generation = record.event.generation.0;
        let mine = self.wins.entry(won.user.clone()).or_default();
        let before = mine.iter().filter(|(of, on, seq)| {
            let counted = |event: &super::counts::Applied<'_>| {
                event.generation.0 == *of && event.won.is_some_and(|it| it.user == won.user)
            };
            if *of < generation {
                self.counts.event(*seq).is_some_and(counted)
            } else {
                has(&self.branches, history, *on, *seq)
            }
        });
        if before.count() >= self.counts.definition.per_user_limit as usize {
            return Err(Why::UserAtLimit);
        }
        mine.push((generation, history, won.link.seq));
        Ok(Some(Unit(won.unit.0 + 1)))
    }
}

/// Whether a history holds the event with this seq of another.
fn has(branches: &[Branch], mut history: usize, of: usize, seq: Seq) -> bool {
    let mut through = Seq(u64::MAX);
    loop {
        if history == of {
            return seq <= through;
        }
        match branches.get(history) {
            Some(branch) => (history, through) = (branch.from, through.min(branch.at)),
            None => return false,
        }
    }
}
