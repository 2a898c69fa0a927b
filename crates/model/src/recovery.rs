//! A recovery, step by step, as crates/engine/src/recover.rs and generation.rs take them: between
//! any two of them it may be paused, or end, and anything else may happen.

use crate::bounds::Off;
use crate::history::Folded;
use crate::records::{RecordId, Said};
use crate::redis::{Built, Keys, Switched};
use crate::sale::Sale;
use crate::state::{State, Step};
use dropgate_domain::Rule;

impl<R: Rule> Sale<R> {
    /// The recovery's next step, on this server.
    pub(crate) fn recover(&self, state: &mut State, slot: u8, server: u8) -> Option<()> {
        let step = state.recoveries[usize::from(slot)].step;
        let on_redis = !matches!(step, Step::Begin | Step::Start | Step::Left);
        if on_redis && server != state.master {
            state.spent.late += 1;
            if matches!(step, Step::Bar | Step::Halt | Step::Publish) {
                // The generation goes on where it was not halted, or was read elsewhere.
                state.lossy |= 1 << state.recoveries[usize::from(slot)].generation;
            }
        } else if !on_redis && server != state.master {
            return None;
        }
        let next = match step {
            Step::Begin => self.begin(state, slot)?,
            Step::Bar => self.bar(state, slot, server),
            Step::Halt => self.halt(state, slot, server),
            Step::Publish => self.publish(state, slot, server),
            Step::Start => {
                let start = self.own_start(state, slot);
                self.append(state, start);
                Step::Load
            }
            Step::Load => self.load(state, slot, server),
            Step::Claims => self.write_claims(state, slot, server)?,
            Step::Count => self.count(state, slot, server)?,
            Step::State => self.write_state(state, slot, server)?,
            Step::Switch => self.switch(state, slot, server)?,
            Step::Left => return None,
        };
        state.recoveries[usize::from(slot)].step = next;
        Some(())
    }

    fn begin(&self, state: &mut State, slot: u8) -> Option<Step> {
        let folded = self.folded(state.log);
        // A sale that is over is not recovered.
        (!folded.closed && !folded.stopped).then_some(())?;
        let recovery = &mut state.recoveries[usize::from(slot)];
        recovery.generation = folded.generation;
        if self.off(Off::ReadAfterHalt) {
            recovery.read = self.history.length(state.log);
        }
        let bars = !self.off(Off::HaltUnbuilt) && !self.off(Off::HaltFirst);
        Some(if bars { Step::Bar } else { Step::Halt })
    }

    /// Leaves the word that keeps a generation from becoming current that is being built still.
    fn bar(&self, state: &mut State, slot: u8, server: u8) -> Step {
        let generation = state.recoveries[usize::from(slot)].generation;
        let keys = state.servers[usize::from(server)].data.keys_mut(generation);
        keys.barred = true;
        Step::Halt
    }

    /// Takes the marker away, so that no script answers for the generation any more.
    fn halt(&self, state: &mut State, slot: u8, server: u8) -> Step {
        let generation = state.recoveries[usize::from(slot)].generation;
        let keys = state.servers[usize::from(server)].data.keys_mut(generation);
        let halted_before = keys.state && !keys.marker;
        if !self.off(Off::HaltFirst) {
            keys.marker = false;
        }
        if !keys.state || (halted_before && self.off(Off::TakeOver)) {
            Step::Start
        } else {
            Step::Publish
        }
    }

    /// Appends the first event of the outbox that hangs on the log's chain and is not in the log.
    fn publish(&self, state: &mut State, slot: u8, server: u8) -> Step {
        let recovery = state.recoveries[usize::from(slot)];
        let log = if self.off(Off::ReadAfterHalt) {
            self.history.prefix(state.log, recovery.read)
        } else {
            state.log
        };
        let folded = self.folded(log);
        if folded.generation != recovery.generation {
            return Step::Start;
        }
        let redis = &state.servers[usize::from(server)];
        let mut events: Vec<RecordId> = redis
            .outbox(recovery.generation, folded.applied, &self.records)
            .collect();
        events.reverse();
        let mut chain = folded.chain;
        for event in events {
            if self.records.said(event).prev() != chain {
                break;
            }
            if !self.history.contains(state.log, event) {
                self.append(state, event);
                return Step::Publish;
            }
            chain = event;
        }
        Step::Start
    }

    fn own_start(&self, state: &State, slot: u8) -> RecordId {
        self.records.intern(Said::Started {
            generation: state.recoveries[usize::from(slot)].generation + 1,
            author: Self::next_author(slot),
        })
    }

    /// What the log has applied at the recovery's own start, if that is the one that counts.
    fn base(&self, state: &State, slot: u8) -> Option<(&Folded, RecordId)> {
        let start = self.own_start(state, slot);
        let at = self
            .history
            .prefixes(state.log)
            .find(|log| self.history.last(*log) == start)?;
        let folded = self.folded(at);
        let generation = self.records.said(start).generation();
        let counts = folded.generation == generation && folded.author == Self::next_author(slot);
        counts.then_some((folded, start))
    }

    fn load(&self, state: &mut State, slot: u8, server: u8) -> Step {
        let Some((base, _)) = self.base(state, slot) else {
            return Step::Left;
        };
        let next = if base.owners == 0 {
            Step::State
        } else {
            Step::Claims
        };
        state.servers[usize::from(server)].scripts |= 1 << Self::next_author(slot);
        state.recoveries[usize::from(slot)].read = 0;
        next
    }

    fn write_claims(&self, state: &mut State, slot: u8, server: u8) -> Option<Step> {
        let (base, start) = self.base(state, slot)?;
        let owners = base.owners;
        let generation = self.records.said(start).generation();
        let keys = state.servers[usize::from(server)].data.keys_mut(generation);
        // One command a user, in order; the last one's is the last.
        let written = state.recoveries[usize::from(slot)].read;
        let next = (written..8).find(|user| owners >> user & 1 == 1)?;
        keys.claims |= 1 << next;
        let more = owners >> (next + 1) != 0;
        state.recoveries[usize::from(slot)].read = if more { next + 1 } else { 0 };
        Some(match more {
            true => Step::Claims,
            false if self.off(Off::SwitchCounts) => Step::Count,
            false => Step::State,
        })
    }

    /// Only where the switch does not count: before the state is written.
    fn count(&self, state: &State, slot: u8, server: u8) -> Option<Step> {
        let (base, start) = self.base(state, slot)?;
        let generation = self.records.said(start).generation();
        let claims = state.servers[usize::from(server)]
            .data
            .keys(generation)
            .claims;
        Some(if claims.count_ones() == base.owners.count_ones() {
            Step::State
        } else {
            Step::Left
        })
    }

    fn write_state(&self, state: &mut State, slot: u8, server: u8) -> Option<Step> {
        let (base, start) = self.base(state, slot)?;
        let generation = self.records.said(start).generation();
        let (seq, next, closed) = (base.applied, base.next, base.closed);
        let keys = state.servers[usize::from(server)].data.keys_mut(generation);
        *keys = Keys {
            head: start,
            seq,
            next,
            done: seq,
            state: true,
            marker: true,
            closed,
            ..*keys
        };
        Some(Step::Switch)
    }

    fn switch(&self, state: &mut State, slot: u8, server: u8) -> Option<Step> {
        let (base, start) = self.base(state, slot)?;
        let built = Built {
            generation: self.records.said(start).generation(),
            author: Self::next_author(slot),
            head: start,
            seq: base.applied,
            claims: base.owners.count_ones(),
        };
        let expected = self.expected(base, start);
        let redis = &mut state.servers[usize::from(server)];
        if let Some(Switched::From(from)) = redis.switch(built, self.off) {
            state.wrong.current |= from > built.generation;
            state.wrong.live |= !redis.data.keys(built.generation).same_events(&expected);
        }
        Some(Step::Left)
    }

    /// The keys of a generation as the ledger would have them.
    pub(crate) fn expected(&self, base: &Folded, start: RecordId) -> Keys {
        Keys {
            head: start,
            seq: base.applied,
            next: base.next,
            done: base.applied,
            claims: base.owners,
            state: true,
            marker: true,
            barred: false,
            closed: base.closed,
        }
    }
}
