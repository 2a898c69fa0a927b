//! The modelled Redis: what its scripts and the operator's commands do, each at once.
//!
//! `claim` is lua/claim_unit.lua, `close` lua/close_sale.lua, `tip` lua/read_tip.lua and `switch`
//! lua/switch_generation.lua, with the checks in the same order. What a script refuses changes
//! nothing, so that only the reasons which matter here are told apart.

use crate::bounds::Off;
use crate::history::GENERATIONS;
use crate::records::{RecordId, Records, Said};
use std::hash::{Hash, Hasher};

/// The keys of one generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Keys {
    /// The last event, or the start: the outbox hangs on it.
    pub head: RecordId,
    pub seq: u8,
    pub next: u8,
    /// Through this seq Redis was told that the log's readers have applied, and keeps no event.
    pub done: u8,
    /// Users with a claim, a bit each: a key of its own, written before the state.
    pub claims: u8,
    /// The state is there.
    pub state: bool,
    /// And its marker.
    pub marker: bool,
    /// A recovery ended it: it must not become current any more.
    pub barred: bool,
    pub closed: bool,
}

impl Hash for Keys {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let bit = |set: bool, at: u32| u64::from(set) << at;
        let numbers = [self.seq, self.next, self.done, self.claims];
        let packed = numbers.iter().fold(u64::from(self.head.0), |packed, n| {
            packed << 8 | u64::from(*n)
        });
        state.write_u64(packed | bit(self.state, 61) | bit(self.marker, 62) | bit(self.closed, 63));
    }
}

impl Keys {
    /// Whether the other holds the same events and is as usable. How much of the outbox is
    /// trimmed does not matter: what is trimmed is in the log.
    pub fn same_events(&self, other: &Self) -> bool {
        Self { done: 0, ..*self } == Self { done: 0, ..*other }
    }
}

/// A Redis: its data, and the scripts it has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(crate) struct Server {
    pub data: Data,
    /// Nonces whose scripts it has, by their author, a bit each.
    pub scripts: u8,
}

/// What a Redis holds of the sale.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(crate) struct Data {
    /// 0: none.
    pub current: u8,
    keys: [Keys; GENERATIONS],
}

impl Data {
    pub fn keys(&self, generation: u8) -> &Keys {
        &self.keys[usize::from(generation - 1)]
    }

    pub fn keys_mut(&mut self, generation: u8) -> &mut Keys {
        &mut self.keys[usize::from(generation - 1)]
    }

    /// The generations of which the other holds other events, a bit each.
    pub fn differ(&self, other: &Self) -> u8 {
        let pairs = self.keys.iter().zip(&other.keys);
        let differ = pairs.enumerate().filter(|(_, (a, b))| !a.same_events(b));
        differ.fold(0, |bits, (index, _)| bits | 1 << (index + 1))
    }
}

/// Who calls: what its ledger says.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Caller {
    pub generation: u8,
    /// Of the nonce.
    pub author: u8,
    pub applied: u8,
}

/// What a script said to a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reply<T> {
    Done(T),
    /// The user has a claim already.
    Again,
    Closed,
    Busy,
    SoldOut,
    /// Another generation is current.
    Stale,
    /// NOSCRIPT, missing, or behind: this Redis lost something.
    Lost,
}

impl Server {
    /// The checks that all scripts make first.
    fn admits(&self, caller: Caller, off: Option<Off>) -> Result<Keys, bool> {
        if self.scripts >> caller.author & 1 == 0 && off != Some(Off::Fence) {
            return Err(false);
        }
        if self.data.current != 0 && self.data.current != caller.generation {
            return Err(true);
        }
        let keys = *self.data.keys(caller.generation);
        let marked = keys.marker || off == Some(Off::BuildMarker);
        let whole = keys.state && marked;
        if self.data.current == 0 || !whole || caller.applied > keys.seq {
            return Err(false);
        }
        Ok(keys)
    }

    /// Gives a unit to the user; the event.
    pub fn claim(
        &mut self,
        caller: Caller,
        user: u8,
        call: u8,
        world: World<'_>,
    ) -> Reply<RecordId> {
        let keys = match self.admits(caller, world.off) {
            Ok(keys) => keys,
            Err(stale) => return if stale { Reply::Stale } else { Reply::Lost },
        };
        if keys.claims >> user & 1 == 1 {
            return Reply::Again;
        }
        if let Some(refused) = refused(&keys, caller, world) {
            return refused;
        }
        if keys.next > world.stock {
            return Reply::SoldOut;
        }
        let event = world.records.intern(Said::Won {
            generation: caller.generation,
            seq: keys.seq + 1,
            unit: keys.next,
            user,
            call,
            prev: keys.head,
        });
        *self.data.keys_mut(caller.generation) = Keys {
            head: event,
            seq: keys.seq + 1,
            next: keys.next + 1,
            done: keys.done.max(caller.applied),
            claims: keys.claims | 1 << user,
            ..keys
        };
        Reply::Done(event)
    }

    /// Closes the sale; the event.
    pub fn close(&mut self, caller: Caller, world: World<'_>) -> Reply<RecordId> {
        let keys = match self.admits(caller, world.off) {
            Ok(keys) => keys,
            Err(stale) => return if stale { Reply::Stale } else { Reply::Lost },
        };
        if let Some(refused) = refused(&keys, caller, world) {
            return refused;
        }
        let event = world.records.intern(Said::Closed {
            generation: caller.generation,
            seq: keys.seq + 1,
            prev: keys.head,
        });
        *self.data.keys_mut(caller.generation) = Keys {
            head: event,
            seq: keys.seq + 1,
            done: keys.done.max(caller.applied),
            closed: true,
            ..keys
        };
        Reply::Done(event)
    }

    /// The keys as of now, if the tip would show them.
    pub fn tip(&mut self, caller: Caller, off: Option<Off>) -> Reply<Keys> {
        match self.admits(caller, off) {
            Ok(keys) => {
                let kept = self.data.keys_mut(caller.generation);
                kept.done = kept.done.max(caller.applied);
                Reply::Done(keys)
            }
            Err(true) => Reply::Stale,
            Err(false) => Reply::Lost,
        }
    }

    /// Makes a generation current that was built on this start and seq, if it was and none after
    /// it is. None when the scripts are not there.
    pub fn switch(&mut self, built: Built, off: Option<Off>) -> Option<Switched> {
        if self.scripts >> built.author & 1 == 0 && off != Some(Off::Fence) {
            return None;
        }
        if self.data.current == built.generation {
            return Some(Switched::Already);
        }
        if self.data.current > built.generation && off != Some(Off::SwitchCompare) {
            return Some(Switched::Backwards);
        }
        let keys = self.data.keys(built.generation);
        let marker = keys.marker && !keys.barred;
        let counted = keys.claims.count_ones() == built.claims || off == Some(Off::SwitchCounts);
        let marked = marker && keys.head == built.head && keys.seq == built.seq && counted;
        if !marked && off != Some(Off::BuildMarker) {
            return Some(Switched::NotBuilt);
        }
        let from = std::mem::replace(&mut self.data.current, built.generation);
        Some(Switched::From(from))
    }

    /// The outbox above a seq, the last first.
    pub fn outbox<'a>(
        &self,
        generation: u8,
        above: u8,
        records: &'a Records,
    ) -> impl Iterator<Item = RecordId> + use<'a> {
        let keys = self.data.keys(generation);
        let above = above.max(keys.done);
        let head = Some(keys.head).filter(|head| *head != RecordId::NONE);
        std::iter::successors(head, |id| Some(records.said(*id).prev()))
            .take_while(move |id| *id != RecordId::NONE && records.said(*id).seq() > above)
    }

    /// The event with this seq on the way to the head; the start for the seq before the first.
    pub fn chain_at(&self, generation: u8, seq: u8, records: &Records) -> RecordId {
        let mut id = self.data.keys(generation).head;
        while id != RecordId::NONE && records.said(id).seq() > seq {
            id = records.said(id).prev();
        }
        id
    }
}

/// What a generation is built on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Built {
    pub generation: u8,
    pub author: u8,
    pub head: RecordId,
    pub seq: u8,
    /// How many users have claims.
    pub claims: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Switched {
    From(u8),
    Already,
    Backwards,
    NotBuilt,
}

/// What a script needs of the world besides its server.
#[derive(Clone, Copy)]
pub(crate) struct World<'a> {
    pub records: &'a Records,
    pub stock: u8,
    pub window: u8,
    pub off: Option<Off>,
}

fn refused(keys: &Keys, caller: Caller, world: World<'_>) -> Option<Reply<RecordId>> {
    let in_flight = keys.seq - caller.applied.max(keys.done);
    if keys.closed {
        Some(Reply::Closed)
    } else if in_flight >= world.window && world.off != Some(Off::Window) {
        Some(Reply::Busy)
    } else {
        None
    }
}
