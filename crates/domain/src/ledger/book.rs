//! The books of a sale: who has which unit.

use super::outcome::Cause;
use crate::event::{Definition, Link, Won};
use crate::ids::{AttemptId, ClaimId, Generation, IdempotencyKey, Seq, TimeMs, Unit, UserId};
use crate::promise::{self, Broken};
use smallvec::SmallVec;
use std::collections::HashMap;

/// A claim that got a unit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Win {
    /// The generation of its event.
    pub generation: Generation,
    /// The seq of its event.
    pub seq: Seq,
    /// What.
    pub unit: Unit,
    /// Whose.
    pub user: UserId,
    /// The attempt that won.
    pub attempt: AttemptId,
    /// The claim's key.
    pub key: IdempotencyKey,
    /// When, in the sale's time.
    pub won_at: TimeMs,
}

impl Win {
    /// What the claim is called.
    #[must_use]
    pub fn claim(&self) -> ClaimId {
        ClaimId {
            generation: self.generation,
            seq: self.seq,
            attempt: self.attempt,
        }
    }
}

/// Where the stock is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// All units.
    pub stock: u64,
    /// Units won for good.
    pub sold: u64,
    /// Units won that wait for their confirmation.
    pub held: u64,
    /// Units that nobody has.
    pub free: u64,
}

/// The wins of a sale, by seq, by user and by unit.
#[derive(Debug, Clone)]
pub(super) struct Book {
    definition: Definition,
    /// In the order of seq.
    wins: Vec<Win>,
    /// Indexes into `wins`.
    by_user: HashMap<UserId, SmallVec<[u32; 1]>>,
    /// Whether a unit is taken, from unit 1 on; as long as the highest unit ever taken.
    taken: Vec<bool>,
    last_time: TimeMs,
    closed_at: Option<TimeMs>,
}

impl Book {
    pub fn new(definition: Definition) -> Self {
        Self {
            definition,
            wins: Vec::new(),
            by_user: HashMap::new(),
            taken: Vec::new(),
            last_time: TimeMs(0),
            closed_at: None,
        }
    }

    /// Gives the unit to the user, or says what forbids it and changes nothing. Without the
    /// guard, a unit that has an owner and a user at the limit forbid nothing.
    pub fn win(&mut self, generation: Generation, won: Won, guard: bool) -> Result<Win, Cause> {
        self.follows(won.link)?;
        self.allows(&won, None, guard)?;
        let index = self.wins.len();
        let win = self.enter(index, generation, won)?;
        self.last_time = win.won_at;
        self.wins.push(win.clone());
        Ok(win)
    }

    /// Puts a win in the place of the one with its seq, for a rule by which the last one counts.
    pub fn replace(&mut self, generation: Generation, won: Won, guard: bool) -> Result<Win, Cause> {
        let seq = won.link.seq;
        let Ok(index) = self.wins.binary_search_by_key(&seq, |win| win.seq) else {
            let why = "the event in its place is no win";
            return Err(Cause::Impossible { seq, why });
        };
        let old = self.wins[index].clone();
        self.allows(&won, Some(&old), guard)?;
        self.taken[(old.unit.0 - 1) as usize] = false;
        if let Some(indexes) = self.by_user.get_mut(&old.user) {
            indexes.retain(|at| *at as usize != index);
        }
        let win = self.enter(index, generation, won)?;
        self.wins[index] = win.clone();
        Ok(win)
    }

    /// Whether the unit is free and the user below the limit, but for a win that is to go.
    fn allows(&self, won: &Won, but: Option<&Win>, guard: bool) -> Result<(), Cause> {
        let seq = won.link.seq;
        let impossible = |why| Err(Cause::Impossible { seq, why });
        if won.unit.0 == 0 || won.unit.0 > self.definition.stock {
            return impossible("its unit is not one of the stock");
        }
        if !guard {
            return Ok(());
        }
        let taken = self.taken.get((won.unit.0 - 1) as usize) == Some(&true);
        if taken && but.is_none_or(|but| but.unit != won.unit) {
            return impossible("its unit has an owner");
        }
        let owned = self.by_user.get(&won.user).map_or(0, SmallVec::len);
        let going = usize::from(but.is_some_and(|but| but.user == won.user));
        if owned - going >= self.definition.per_user_limit as usize {
            return impossible("its user is at the limit");
        }
        Ok(())
    }

    /// Enters a win under its unit and its user.
    fn enter(&mut self, index: usize, generation: Generation, won: Won) -> Result<Win, Cause> {
        let (seq, place) = (won.link.seq, (won.unit.0 - 1) as usize);
        let Ok(index) = u32::try_from(index) else {
            let why = "there are more wins than any stock";
            return Err(Cause::Impossible { seq, why });
        };
        if self.taken.len() <= place {
            self.taken.resize(place + 1, false);
        }
        self.taken[place] = true;
        self.by_user
            .entry(won.user.clone())
            .or_default()
            .push(index);
        Ok(Win {
            generation,
            seq,
            unit: won.unit,
            user: won.user,
            attempt: won.attempt,
            key: won.key,
            won_at: won.link.time,
        })
    }

    pub fn close(&mut self, link: Link) -> Result<(), Cause> {
        self.follows(link)?;
        self.closed_at = Some(link.time);
        self.last_time = link.time;
        Ok(())
    }

    /// What every event of a sale that is not over has in common.
    fn follows(&self, link: Link) -> Result<(), Cause> {
        let impossible = |why| Cause::Impossible { seq: link.seq, why };
        if self.closed_at.is_some() {
            return Err(impossible("the sale is closed"));
        }
        if link.time < self.last_time {
            return Err(impossible("its time is before the event before it"));
        }
        Ok(())
    }

    pub fn definition(&self) -> &Definition {
        &self.definition
    }

    pub fn wins(&self) -> &[Win] {
        &self.wins
    }

    pub fn wins_of<'a>(&'a self, user: &UserId) -> impl Iterator<Item = &'a Win> + use<'a> {
        let indexes = self.by_user.get(user).map_or(&[][..], SmallVec::as_slice);
        indexes
            .iter()
            .filter_map(|&index| self.wins.get(index as usize))
    }

    pub fn users(&self) -> impl Iterator<Item = &UserId> {
        self.by_user.keys()
    }

    pub fn win_at(&self, seq: Seq) -> Option<&Win> {
        let index = self.wins.binary_search_by_key(&seq, |win| win.seq).ok()?;
        self.wins.get(index)
    }

    pub fn counts(&self) -> Counts {
        let (stock, sold) = (self.definition.stock, self.wins.len() as u64);
        Counts {
            stock,
            sold,
            held: 0,
            free: stock.saturating_sub(sold),
        }
    }

    pub fn next_fresh(&self) -> Unit {
        Unit(self.taken.len() as u64 + 1)
    }

    pub fn last_time(&self) -> TimeMs {
        self.last_time
    }

    pub fn closed_at(&self) -> Option<TimeMs> {
        self.closed_at
    }

    pub fn check(&self) -> Result<(), Broken> {
        promise::never_oversell(self.definition.stock, self.wins.iter().map(|w| w.unit))?;
        promise::per_user_limit(
            self.definition.per_user_limit,
            self.wins.iter().map(|w| &w.user),
        )?;
        promise::books_balance(&self.counts())
    }
}
