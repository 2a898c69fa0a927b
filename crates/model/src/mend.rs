//! From a state, can the sale be mended with nothing more going wrong?
//!
//! "It always ends well" is a statement about all that may come, and would need fairness to be
//! checked as such. What is checked in every state is the stronger "there is a way to end well,
//! and it is the one that the code takes": every publication that is on its way arrives, the
//! gateways read to the end, compare Redis with the log and publish again what was left behind,
//! users ask again, a sale that cannot go on is recovered once, by a recovery of its own, and in
//! the end the sale is closed.

use crate::bounds::Off;
use crate::history::{Folded, Verdict};
use crate::records::RecordId;
use crate::redis::{Caller, Reply};
use crate::sale::Sale;
use crate::state::{MENDER, State, Step};
use dropgate_domain::Rule;

impl<R: Rule> Sale<R> {
    /// Whether one recovery that nothing disturbs makes the sale live, as its ledger has it.
    pub(crate) fn reopens(&self, state: &State) -> bool {
        let folded = self.folded(state.log);
        if folded.closed || folded.stopped {
            return folded.closed;
        }
        let mended = self.recovered(state);
        self.is_live(&mended)
    }

    /// The state when nothing is on its way any more and the sale is over, or live once more.
    pub(crate) fn settled(&self, state: &State) -> State {
        let mut state = state.clone();
        self.settle(&mut state);
        match self.carry_on(&mut state) {
            true => state,
            false => self.recovered(&state),
        }
    }

    /// Whether every seq that was given is applied or void in the end.
    pub(crate) fn resolvable(&self, state: &State) -> bool {
        let mended = self.settled(state);
        let folded = self.folded(mended.log);
        (1..=folded.generation).all(|generation| {
            let given = mended.given[usize::from(generation - 1)];
            (1..=given).all(|seq| folded.verdict(generation, seq) != Verdict::Open)
        })
    }

    /// Every publication arrives.
    fn settle(&self, state: &mut State) {
        for event in std::mem::take(&mut state.flying) {
            if event != RecordId::NONE {
                self.append(state, event);
            }
        }
    }

    /// What the gateways do by themselves when they have read all; false when they see that the
    /// sale must be recovered.
    fn carry_on(&self, state: &mut State) -> bool {
        let folded = self.folded(state.log);
        if folded.closed || folded.stopped {
            return true;
        }
        if folded.ended || !self.tip_agrees(state, folded) {
            return false;
        }
        let caller = caller_of(folded);
        let redis = state.servers[usize::from(state.master)];
        if !self.off(Off::Tip) {
            let mut behind: Vec<RecordId> = redis
                .outbox(folded.generation, folded.applied, &self.records)
                .collect();
            behind.reverse();
            for event in behind {
                self.append(state, event);
            }
        }
        for user in 0..self.bounds.users {
            let redis = &mut state.servers[usize::from(state.master)];
            let call = self.bounds.calls + 1 + user;
            match redis.claim(caller, user, call, self.world()) {
                Reply::Done(event) => self.append(state, event),
                Reply::Lost | Reply::Stale => return false,
                _ => {}
            }
            if self.folded(state.log).ended {
                return false;
            }
        }
        // What is still open now was given by a Redis that nobody remembers.
        let folded = self.folded(state.log);
        let redis = &mut state.servers[usize::from(state.master)];
        if let Reply::Done(event) = redis.close(caller_of(folded), self.world()) {
            self.append(state, event);
        }
        true
    }

    fn tip_agrees(&self, state: &State, folded: &Folded) -> bool {
        if self.off(Off::Tip) {
            return true;
        }
        let mut redis = state.servers[usize::from(state.master)];
        let Reply::Done(_) = redis.tip(caller_of(folded), self.off) else {
            return false;
        };
        redis.chain_at(folded.generation, folded.applied, &self.records) == folded.chain
    }

    /// The state after one more recovery.
    fn recovered(&self, state: &State) -> State {
        let mut state = state.clone();
        loop {
            let master = state.master;
            let went_on = self.recover(&mut state, MENDER, master).is_some();
            if !went_on || state.recoveries[usize::from(MENDER)].step == Step::Left {
                return state;
            }
        }
    }

    /// Whether Redis serves the ledger's generation, as the ledger has it.
    fn is_live(&self, state: &State) -> bool {
        let folded = self.folded(state.log);
        let redis = &state.servers[usize::from(state.master)];
        let expected = self.expected(folded, folded.chain);
        redis.data.current == folded.generation
            && redis.scripts >> folded.author & 1 == 1
            && redis.data.keys(folded.generation).same_events(&expected)
    }
}

fn caller_of(folded: &Folded) -> Caller {
    Caller {
        generation: folded.generation,
        author: folded.author,
        applied: folded.applied,
    }
}
