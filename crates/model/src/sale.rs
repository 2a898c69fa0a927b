//! The world as a state machine: a sale, its gateways, Redis, log, database and recoveries.

use crate::bounds::{Bounds, Off};
use crate::history::{Folded, History, LogId};
use crate::records::{RecordId, Records, Said};
use crate::redis::{Caller, Keys, Reply, Server, World};
use crate::state::{Action, FLYING, MENDER, State, Step};
use dropgate_domain::{FullRule, Rule};
use std::sync::atomic::AtomicU32;

/// A sale within bounds, judged by the rule `R`.
pub struct Sale<R: Rule = FullRule> {
    pub(crate) bounds: Bounds,
    pub(crate) off: Option<Off>,
    pub(crate) records: Records,
    pub(crate) history: History<R>,
    pub(crate) seen: AtomicU32,
}

impl<R: Rule> Sale<R> {
    /// The sale of these bounds, with everything in force but what is named.
    #[must_use]
    pub fn new(bounds: Bounds, off: Option<Off>) -> Self {
        Self {
            bounds,
            off,
            records: Records::new(&bounds),
            history: History::new(),
            seen: AtomicU32::new(0),
        }
    }

    /// How many different logs have occurred.
    pub(crate) fn logs(&self) -> usize {
        self.history.len()
    }

    pub(crate) fn off(&self, part: Off) -> bool {
        self.off == Some(part)
    }

    pub(crate) fn world(&self) -> World<'_> {
        World {
            records: &self.records,
            stock: self.bounds.stock,
            window: self.bounds.window,
            off: self.off,
        }
    }

    pub(crate) fn folded(&self, log: LogId) -> &Folded {
        self.history.folded(log)
    }

    /// What a gateway's ledger says.
    pub(crate) fn read_by(&self, state: &State, reader: u8) -> &Folded {
        let read = state.readers[usize::from(reader)];
        self.folded(self.history.prefix(state.log, read))
    }

    /// A gateway as Redis' scripts see it, if its ledger lets it call.
    pub(crate) fn caller(&self, state: &State, reader: u8) -> Option<Caller> {
        let folded = self.read_by(state, reader);
        folded.open.then_some(Caller {
            generation: folded.generation,
            author: folded.author,
            applied: folded.applied,
        })
    }

    pub(crate) fn append(&self, state: &mut State, record: RecordId) {
        state.log = self.history.append(&self.records, state.log, record);
    }

    /// The sale, just opened: its state is in Redis, and on its disk or replica.
    pub(crate) fn opened(&self) -> State {
        let start = self.records.intern(Said::Started {
            generation: 1,
            author: 0,
        });
        let log = self.history.append(&self.records, LogId::default(), start);
        let mut server = Server {
            scripts: 1,
            ..Server::default()
        };
        server.data.current = 1;
        *server.data.keys_mut(1) = Keys {
            head: start,
            next: 1,
            state: true,
            marker: true,
            ..Keys::default()
        };
        let other = Server {
            scripts: 0,
            ..server
        };
        State {
            log,
            readers: [1, u8::from(self.bounds.gateways > 1)],
            told_to: 1,
            servers: [server, other],
            master: 0,
            stray: false,
            flying: Default::default(),
            recoveries: Default::default(),
            spent: Default::default(),
            lossy: 0,
            given: Default::default(),
            told: Default::default(),
            wrong: Default::default(),
            database: Default::default(),
        }
    }

    /// Whether there are two servers, or one and its disk.
    pub(crate) fn has_replica(&self) -> bool {
        self.bounds.promotions > 0
    }

    /// Servers that carry out a call: the master, and one that takes itself for it.
    fn servers(&self, state: &State) -> impl Iterator<Item = u8> + use<R> {
        let stray = state.stray && state.spent.late < self.bounds.late;
        let master = state.master;
        [0, 1].into_iter().filter(move |s| *s == master || stray)
    }

    /// The gateways, one of two that are alike.
    fn readers(&self, state: &State) -> impl Iterator<Item = u8> + use<R> {
        let alike = state.readers[0] == state.readers[1] || self.bounds.gateways < 2;
        0..if alike { 1 } else { 2 }
    }

    pub(crate) fn possible(&self, state: &State, actions: &mut Vec<Action>) {
        self.calls(state, actions);
        self.publications(state, actions);
        let length = self.history.length(state.log);
        for reader in self.readers(state) {
            if state.readers[usize::from(reader)] < length {
                actions.push(Action::Read { reader });
            }
            if state.spent.restarts < self.bounds.restarts {
                actions.push(Action::Restart { reader });
            }
        }
        self.recoveries(state, actions);
        self.faults(state, actions);
        if self.bounds.database {
            self.writers(state, length, actions);
        }
    }

    fn calls(&self, state: &State, actions: &mut Vec<Action>) {
        for server in self.servers(state) {
            for reader in self.readers(state) {
                if self.caller(state, reader).is_none() {
                    continue;
                }
                if state.spent.calls < self.bounds.calls {
                    // The users are alike: a new one is the next one.
                    let known = (state.spent.users + 1).min(self.bounds.users);
                    for user in 0..known {
                        for replied in [true, false] {
                            actions.push(Action::Claim {
                                server,
                                reader,
                                user,
                                replied,
                            });
                        }
                    }
                }
                if state.spent.closes < self.bounds.closes {
                    for replied in [true, false] {
                        actions.push(Action::Close {
                            server,
                            reader,
                            replied,
                        });
                    }
                }
                if !self.off(Off::Tip) {
                    for nth in 0..self.bounds.window {
                        actions.push(Action::Relay {
                            server,
                            reader,
                            nth,
                        });
                    }
                }
            }
        }
        if self.off(Off::ExactSoldOut) && state.told.sold_out == 0 {
            actions.extend(
                self.readers(state)
                    .map(|reader| Action::TellSoldOut { reader }),
            );
        }
    }

    fn publications(&self, state: &State, actions: &mut Vec<Action>) {
        for place in 0..FLYING {
            if state.flying[place] == RecordId::NONE {
                continue;
            }
            let place = place as u8;
            actions.push(Action::Land {
                place,
                copied: false,
            });
            if state.spent.copies < self.bounds.copies {
                actions.push(Action::Land {
                    place,
                    copied: true,
                });
            }
            if self.off(Off::TrueVoid) {
                actions.push(Action::TellVoid { place });
            }
        }
    }

    fn recoveries(&self, state: &State, actions: &mut Vec<Action>) {
        for slot in 0..self.bounds.recoveries {
            let recovery = state.recoveries[usize::from(slot)];
            match recovery.step {
                Step::Left => {}
                // They are alike: the next one begins. It has to do with a master.
                Step::Begin => {
                    actions.push(Action::Recover {
                        slot,
                        server: state.master,
                    });
                    return;
                }
                _ => actions.extend(
                    self.servers(state)
                        .map(|server| Action::Recover { slot, server }),
                ),
            }
        }
    }

    fn faults(&self, state: &State, actions: &mut Vec<Action>) {
        let spent = &state.spent;
        if self.has_replica() {
            if spent.promotions < self.bounds.promotions {
                actions.push(Action::Promote);
            }
        } else if spent.losses < self.bounds.losses {
            for emptied in [false, true] {
                for scripts in [false, true] {
                    actions.push(Action::Lose { emptied, scripts });
                }
            }
        }
        // Of what is written to a disk or a replica, only the last before it is read matters.
        let reads = self.bounds.losses + self.bounds.promotions;
        let left = spent.losses + spent.promotions < reads;
        if left && spent.syncs < reads {
            actions.push(Action::Sync);
        }
    }

    fn writers(&self, state: &State, length: u8, actions: &mut Vec<Action>) {
        for writer in 0..2 {
            let at = &state.database.writers[usize::from(writer)];
            if at.read < length {
                actions.push(Action::Follow { writer });
            }
            actions.push(Action::Write { writer });
            actions.push(Action::LookUp { writer });
        }
    }

    /// What the action leads to; `None` when it changes nothing.
    pub(crate) fn step(&self, before: &State, action: Action) -> Option<State> {
        let mut state = before.clone();
        match action {
            Action::Claim {
                server,
                reader,
                user,
                replied,
            } => self.claim(&mut state, server, reader, user, replied)?,
            Action::Close {
                server,
                reader,
                replied,
            } => self.close(&mut state, server, reader, replied)?,
            Action::Relay {
                server,
                reader,
                nth,
            } => self.relay(&mut state, server, reader, nth)?,
            Action::Land { place, copied } => self.land(&mut state, place, copied),
            Action::Read { reader } => {
                state.readers[usize::from(reader)] += 1;
                state.readers.sort_unstable_by(|a, b| b.cmp(a));
                state.told_to = state.told_to.max(state.readers[0]);
            }
            Action::Restart { reader } => {
                state.readers[usize::from(reader)] = 0;
                state.readers.sort_unstable_by(|a, b| b.cmp(a));
                state.spent.restarts += 1;
            }
            Action::Recover { slot, server } => self.recover(&mut state, slot, server)?,
            Action::Sync => self.sync(&mut state),
            Action::Lose { emptied, scripts } => lose(&mut state, emptied, scripts),
            Action::Promote => promote(&mut state),
            Action::LookUp { writer } => self.look_up(&mut state, writer),
            Action::Follow { writer } => {
                state.database.writers[usize::from(writer)].read += 1;
            }
            Action::Write { writer } => self.write(&mut state, writer)?,
            Action::TellVoid { place } => self.tell_void(&mut state, place)?,
            Action::TellSoldOut { reader } => self.tell_sold_out(&mut state, reader)?,
        }
        (state != *before).then_some(state)
    }

    fn claim(
        &self,
        state: &mut State,
        server: u8,
        reader: u8,
        user: u8,
        replied: bool,
    ) -> Option<()> {
        let caller = self.caller(state, reader)?;
        let call = state.spent.calls + 1;
        let redis = &mut state.servers[usize::from(server)];
        let Reply::Done(event) = redis.claim(caller, user, call, self.world()) else {
            return None;
        };
        state.spent.calls = call;
        state.spent.users = state.spent.users.max(user + 1);
        self.given(state, server, caller, event);
        if replied {
            if self.off(Off::TellAtReply) {
                insert(&mut state.told.won, event);
            }
            fly(state, event)?;
        }
        Some(())
    }

    fn close(&self, state: &mut State, server: u8, reader: u8, replied: bool) -> Option<()> {
        let caller = self.caller(state, reader)?;
        let redis = &mut state.servers[usize::from(server)];
        let Reply::Done(event) = redis.close(caller, self.world()) else {
            return None;
        };
        state.spent.closes += 1;
        if server != state.master {
            self.split(state, caller);
        }
        if replied {
            fly(state, event)?;
        }
        Some(())
    }

    /// A win was given a number.
    fn given(&self, state: &mut State, server: u8, caller: Caller, event: RecordId) {
        let given = &mut state.given[usize::from(caller.generation - 1)];
        *given = (*given).max(self.records.said(event).seq());
        if server != state.master {
            self.split(state, caller);
        }
    }

    /// A former master went on: the generation has two histories.
    fn split(&self, state: &mut State, caller: Caller) {
        state.spent.late += 1;
        state.lossy |= 1 << caller.generation;
    }

    fn relay(&self, state: &mut State, server: u8, reader: u8, nth: u8) -> Option<()> {
        let caller = self.caller(state, reader)?;
        let redis = &mut state.servers[usize::from(server)];
        let Reply::Done(_) = redis.tip(caller, self.off) else {
            return None;
        };
        let mut outbox = redis.outbox(caller.generation, caller.applied, &self.records);
        let event = outbox.nth(usize::from(nth))?;
        if self.history.contains(state.log, event) {
            // Twice is harmless, and bounded.
            (state.spent.copies < self.bounds.copies).then_some(())?;
            state.spent.copies += 1;
        }
        if server != state.master {
            state.spent.late += 1;
        }
        fly(state, event)
    }

    fn land(&self, state: &mut State, place: u8, copied: bool) {
        let event = state.flying[usize::from(place)];
        if copied {
            state.spent.copies += 1;
        } else {
            state.flying[usize::from(place)] = RecordId::NONE;
            state.flying.sort_unstable_by(|a, b| b.cmp(a));
        }
        if self.off(Off::TellAtAck) && matches!(self.records.said(event), Said::Won { .. }) {
            insert(&mut state.told.won, event);
        }
        self.append(state, event);
    }

    fn sync(&self, state: &mut State) {
        let master = state.servers[usize::from(state.master)];
        let other = &mut state.servers[usize::from(1 - state.master)];
        other.data = master.data;
        state.stray = false;
        state.spent.syncs += 1;
    }

    fn tell_void(&self, state: &mut State, place: u8) -> Option<()> {
        let event = state.flying[usize::from(place)];
        let said = self.records.said(event);
        let redis = &state.servers[usize::from(state.master)];
        let there = redis.chain_at(said.generation(), said.seq(), &self.records);
        (there != event).then_some(())?;
        insert(&mut state.told.void, event);
        Some(())
    }

    fn tell_sold_out(&self, state: &mut State, reader: u8) -> Option<()> {
        let caller = self.caller(state, reader)?;
        // Somebody who has nothing asks.
        let redis = &mut state.servers[usize::from(state.master)].clone();
        let reply = redis.claim(caller, self.bounds.users, 0, self.world());
        (reply == Reply::SoldOut).then_some(())?;
        state.told.sold_out = caller.generation;
        Some(())
    }

    /// A recovery that begins now.
    pub(crate) fn next_author(slot: u8) -> u8 {
        debug_assert!(slot <= MENDER);
        slot + 1
    }
}

/// Hands an event to a publisher, unless one has it.
pub(crate) fn fly(state: &mut State, event: RecordId) -> Option<()> {
    if state.flying.contains(&event) {
        return Some(());
    }
    let free = state.flying.iter_mut().find(|at| **at == RecordId::NONE)?;
    *free = event;
    state.flying.sort_unstable_by(|a, b| b.cmp(a));
    Some(())
}

fn insert<const N: usize>(list: &mut [RecordId; N], event: RecordId) {
    if !list.contains(&event)
        && let Some(free) = list.iter_mut().find(|at| **at == RecordId::NONE)
    {
        *free = event;
    }
}

fn lose(state: &mut State, emptied: bool, scripts: bool) {
    let disk = state.servers[1].data;
    let server = &mut state.servers[0];
    let data = if emptied { Default::default() } else { disk };
    state.lossy |= server.data.differ(&data);
    server.data = data;
    if !scripts {
        server.scripts = 0;
    }
    state.spent.losses += 1;
}

fn promote(state: &mut State) {
    let [a, b] = &state.servers;
    state.lossy |= a.data.differ(&b.data);
    state.master = 1 - state.master;
    state.stray = true;
    state.spent.promotions += 1;
}
