//! The modelled log. Each log that occurs is judged once, by the real ledger.

use crate::arena::Arena;
use crate::bounds::{RECOVERIES_MAX, USERS_MAX};
use crate::records::{RecordId, Records, Said, sale, user};
use dropgate_domain::promise::Promise;
use dropgate_domain::{Cause, Found, Generation, Ledger, Offset, Phase, Rule, Seq};
use std::marker::PhantomData;

/// Generations that a world can have: the first, those of its recoveries, and one to mend it.
pub(crate) const GENERATIONS: usize = RECOVERIES_MAX + 2;
/// Events that a generation can number.
pub(crate) const SEQS: usize = 6;

/// A log, by its number; 0 is the empty one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(crate) struct LogId(pub u32);

/// What the ledger says of an event by generation and seq.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    Open,
    Void,
    /// This record has it. A close has no record's number here.
    Applied(RecordId),
}

/// What the ledger makes of a log.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Folded {
    pub generation: u8,
    /// Who started that generation.
    pub author: u8,
    /// It ended by a breach of the rule.
    pub ended: bool,
    /// It takes claims: not ended, not closed.
    pub open: bool,
    pub closed: bool,
    /// The ledger refuses to read on.
    pub stopped: bool,
    /// An event was refused by the guard alone.
    pub guarded: bool,
    /// The first of promises 1, 2 and 5 that the ledger itself finds broken.
    pub broken: Option<Promise>,
    pub applied: u8,
    /// The last applied event, or the start.
    pub chain: RecordId,
    pub claimable: u8,
    pub next: u8,
    /// The users who own a unit, one bit each.
    pub owners: u8,
    verdicts: [[Verdict; SEQS]; GENERATIONS],
}

impl Folded {
    const EMPTY: Self = Self {
        generation: 0,
        author: 0,
        ended: false,
        open: false,
        closed: false,
        stopped: false,
        guarded: false,
        broken: None,
        applied: 0,
        chain: RecordId::NONE,
        claimable: 0,
        next: 1,
        owners: 0,
        verdicts: [[Verdict::Open; SEQS]; GENERATIONS],
    };

    pub fn verdict(&self, generation: u8, seq: u8) -> Verdict {
        let of = generation.checked_sub(1).map(usize::from);
        let at = seq.checked_sub(1).map(usize::from);
        match (of, at) {
            (Some(of), Some(at)) if of < GENERATIONS && at < SEQS => self.verdicts[of][at],
            _ => Verdict::Void,
        }
    }

    /// What is said of this very event.
    pub fn verdict_of(&self, id: RecordId, said: Said) -> Verdict {
        match self.verdict(said.generation(), said.seq()) {
            Verdict::Applied(other) if other != id => Verdict::Void,
            verdict => verdict,
        }
    }

    /// Whether everything that was decided then is decided the same way now.
    fn keeps(&self, then: &Self) -> Kept {
        let mut kept = Kept {
            wins: true,
            voids: true,
            sold_out: true,
        };
        let pairs = then.verdicts.iter().zip(&self.verdicts);
        for (then, now) in pairs.flat_map(|(then, now)| then.iter().zip(now)) {
            match then {
                Verdict::Open => {}
                Verdict::Void => kept.voids &= now == then,
                Verdict::Applied(_) => {
                    kept.wins &= now == then;
                    kept.voids &= now == then;
                }
            }
        }
        let sold_out = |folded: &Self| folded.generation > 0 && folded.claimable == 0;
        kept.sold_out = !sold_out(then) || sold_out(self);
        kept
    }
}

/// What is still true of what a shorter log said.
#[derive(Debug, Clone, Copy)]
struct Kept {
    wins: bool,
    voids: bool,
    sold_out: bool,
}

struct Known {
    parent: LogId,
    record: RecordId,
    length: u8,
    folded: Folded,
    /// By length: the shorter logs whose wins, voids and "sold out" all hold here, a bit each.
    wins_kept: u32,
    voids_kept: u32,
    sold_out_kept: u32,
}

/// All logs that any state has.
pub(crate) struct History<R> {
    arena: Arena<(LogId, RecordId), Known>,
    rule: PhantomData<fn() -> R>,
}

impl<R: Rule> History<R> {
    pub fn new() -> Self {
        Self {
            arena: Arena::new(),
            rule: PhantomData,
        }
    }

    pub fn append(&self, records: &Records, log: LogId, record: RecordId) -> LogId {
        let index = self.arena.intern((log, record), |_| {
            let length = self.length(log) + 1;
            let mut known = Known {
                parent: log,
                record,
                length,
                folded: self.fold(records, log, record),
                wins_kept: 0,
                voids_kept: 0,
                sold_out_kept: 0,
            };
            for shorter in self.prefixes(log) {
                let bit = 1 << self.length(shorter);
                let kept = known.folded.keeps(self.folded(shorter));
                known.wins_kept |= if kept.wins { bit } else { 0 };
                known.voids_kept |= if kept.voids { bit } else { 0 };
                known.sold_out_kept |= if kept.sold_out { bit } else { 0 };
            }
            known
        });
        LogId(index + 1)
    }

    fn known(&self, log: LogId) -> Option<&Known> {
        Some(self.arena.get(log.0.checked_sub(1)?))
    }

    pub fn length(&self, log: LogId) -> u8 {
        self.known(log).map_or(0, |known| known.length)
    }

    pub fn folded(&self, log: LogId) -> &Folded {
        self.known(log)
            .map_or(&Folded::EMPTY, |known| &known.folded)
    }

    /// The log and all its beginnings, the longest first, without the empty one.
    pub fn prefixes(&self, log: LogId) -> impl Iterator<Item = LogId> + '_ {
        let first = Some(log).filter(|log| log.0 > 0);
        std::iter::successors(first, |log| {
            let parent = self.known(*log)?.parent;
            Some(parent).filter(|parent| parent.0 > 0)
        })
    }

    /// The first `length` records of the log.
    pub fn prefix(&self, log: LogId, length: u8) -> LogId {
        self.prefixes(log)
            .find(|prefix| self.length(*prefix) <= length)
            .unwrap_or_default()
    }

    /// The last record of the log.
    pub fn last(&self, log: LogId) -> RecordId {
        self.known(log).map_or(RecordId::NONE, |known| known.record)
    }

    pub fn contains(&self, log: LogId, record: RecordId) -> bool {
        self.prefixes(log).any(|prefix| self.last(prefix) == record)
    }

    /// Whether the wins that the log's first `length` records show are wins in all of it.
    pub fn keeps_wins(&self, log: LogId, length: u8) -> bool {
        self.keeps(log, length, |known| known.wins_kept)
    }

    /// The same of what they show as void.
    pub fn keeps_voids(&self, log: LogId, length: u8) -> bool {
        self.keeps(log, length, |known| known.voids_kept)
    }

    /// The same of nothing being left.
    pub fn keeps_sold_out(&self, log: LogId, length: u8) -> bool {
        self.keeps(log, length, |known| known.sold_out_kept)
    }

    fn keeps(&self, log: LogId, length: u8, of: fn(&Known) -> u32) -> bool {
        self.known(log).is_none_or(|known| {
            length >= known.length || length == 0 || of(known) >> length & 1 == 1
        })
    }

    /// How many logs there are.
    pub fn len(&self) -> usize {
        self.arena.len()
    }

    fn fold(&self, records: &Records, log: LogId, last: RecordId) -> Folded {
        let mut ids: Vec<RecordId> = self.prefixes(log).map(|log| self.last(log)).collect();
        ids.reverse();
        ids.push(last);
        let mut ledger: Ledger<R> = Ledger::judged_by(sale());
        let mut out = Vec::new();
        let mut guarded = false;
        for (at, id) in ids.iter().enumerate() {
            let record = records.get(*id).clone();
            let fed = ledger.feed(Offset(at as u64), record, &mut out);
            let cause = match fed {
                Ok(dropgate_domain::Fed::Ended(cause)) => Some(cause),
                _ => None,
            };
            guarded |= matches!(cause, Some(Cause::Impossible { .. }));
        }
        summary(&ledger, guarded)
    }
}

fn summary<R: Rule>(ledger: &Ledger<R>, guarded: bool) -> Folded {
    let small = |n: u64| u8::try_from(n).unwrap_or(u8::MAX);
    let mut verdicts = Folded::EMPTY.verdicts;
    for (of, row) in verdicts.iter_mut().enumerate() {
        for (at, verdict) in row.iter_mut().enumerate() {
            let (generation, seq) = (Generation(of as u32 + 1), Seq(at as u64 + 1));
            *verdict = match ledger.event_at(generation, seq) {
                Found::Applied(win) => Verdict::Applied(RecordId::of_attempt(win.attempt)),
                Found::AppliedOther => Verdict::Applied(RecordId::NONE),
                Found::Open => Verdict::Open,
                Found::Void => Verdict::Void,
            };
        }
    }
    let owners = (0..USERS_MAX as u8)
        .filter(|number| ledger.win_of(&user(*number)).is_some())
        .fold(0, |owners, number| owners | 1 << number);
    let phase = ledger.phase();
    let current = ledger.current();
    Folded {
        generation: small(u64::from(ledger.generation().0)),
        author: current.map_or(0, |current| current.identity().0[0]),
        ended: matches!(phase, Phase::Ended(_)),
        open: matches!(phase, Phase::Open),
        closed: ledger.closed_at().is_some(),
        stopped: matches!(phase, Phase::Stopped(_)),
        guarded,
        broken: ledger.check().err().map(|broken| broken.promise),
        applied: small(ledger.applied().0),
        chain: ledger
            .position()
            .map_or(RecordId::NONE, |at| RecordId::of_digest(at.chain)),
        claimable: small(ledger.claimable()),
        next: small(ledger.next_fresh().0),
        owners,
        verdicts,
    }
}
