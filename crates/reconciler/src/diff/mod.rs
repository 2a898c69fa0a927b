//! The comparison: pure. The ledger's wins are the measure; rows, claims and what clients were
//! told are held against them one by one, in any order, and none of them needs to be in memory
//! at once.
//!
//! Beside the wins themselves this keeps some bytes a win, and what belongs to no win.

mod claims;
mod kind;
mod owners;
mod rows;
mod sale;
#[cfg(test)]
mod tests;
mod told;

pub use kind::{Differences, Found, Kind, Source, markdown};
pub use sale::{RedisSale, SaleRows, compare_log, compare_redis, compare_row};
pub use told::{Numbers as ToldNumbers, Told, ToldStatus};

use claims::Claims;
use dropgate_domain::{Position, Seq, Unit, Win};
use rows::Rows;

/// What the comparison came to.
#[derive(Debug)]
pub struct Compared {
    /// Every difference.
    pub found: Differences,
    /// Rows that were read.
    pub rows: u64,
    /// Entries of Redis that were read, each counted once.
    pub claims: u64,
    /// Wins that have a row with their user and unit.
    pub wins_with_row: u64,
    /// Wins that have an entry in Redis with their user and unit.
    pub wins_with_claim: u64,
    /// What clients were told; `None` when nobody asked them.
    pub told: Option<ToldNumbers>,
}

/// The comparison of a sale's wins with everything else.
#[derive(Debug)]
pub struct Diff {
    stock: u64,
    limit: u32,
    found: Differences,
    index: Index,
    /// Wins that must be everywhere; those after them came while the others were read.
    required: usize,
    rows: Rows,
    claims: Claims,
    told: Option<told::Answers>,
}

/// Finds wins by seq and by unit.
#[derive(Debug, Default)]
struct Index {
    /// Of unit n at n − 1: the place of its win, counted from 1; 0 when it has none.
    by_unit: Vec<u32>,
    wins: usize,
}

impl Index {
    fn extend(&mut self, wins: &[Win]) {
        for (at, win) in wins.iter().enumerate().skip(self.wins) {
            let Some(place) = place(win.unit) else {
                continue;
            };
            if self.by_unit.len() <= place {
                self.by_unit.resize(place + 1, 0);
            }
            if let Some(slot) = self.by_unit.get_mut(place) {
                *slot = u32::try_from(at + 1).unwrap_or(0);
            }
        }
        self.wins = self.wins.max(wins.len());
    }

    fn of_unit(&self, unit: Unit) -> Option<usize> {
        let at = *self.by_unit.get(place(unit)?)?;
        (at as usize).checked_sub(1)
    }
}

fn place(unit: Unit) -> Option<usize> {
    usize::try_from(unit.0.checked_sub(1)?).ok()
}

fn of_seq(wins: &[Win], seq: Seq) -> Option<usize> {
    wins.binary_search_by_key(&seq, |win| win.seq).ok()
}

/// A win, for people who may not know users.
fn named(win: &Win) -> String {
    format!("unit {}, seq {}, claim {}", win.unit, win.seq, win.claim())
}

impl Diff {
    /// A comparison of a sale of so many units.
    #[must_use]
    pub fn new(stock: u64, limit: u32, examples_max: usize) -> Self {
        Self {
            stock,
            limit,
            found: Differences::new(examples_max),
            index: Index::default(),
            required: 0,
            rows: Rows::default(),
            claims: Claims::default(),
            told: None,
        }
    }

    /// These wins must be in the database and in Redis. To be called before anything is compared.
    pub fn require(&mut self, wins: &[Win]) {
        self.index.extend(wins);
        self.required = wins.len();
        self.rows.marks.extend(wins.len());
        self.claims.marks.extend(wins.len());
    }

    /// Differences that are found elsewhere.
    pub fn found(&mut self) -> &mut Differences {
        &mut self.found
    }

    /// Ends it. `wins` are all that are known by now, those that were required first;
    /// `written` is the database's position, and `complete` says that all rows and all claims
    /// were read.
    #[must_use]
    pub fn finish(
        mut self,
        wins: &[Win],
        written: Option<Position>,
        complete: Complete,
    ) -> Compared {
        self.index.extend(wins);
        self.rows.marks.extend(wins.len());
        self.claims.marks.extend(wins.len());
        self.finish_rows(wins);
        self.finish_claims(wins);
        if complete.rows {
            self.missing_rows(wins, written);
        }
        if complete.claims {
            self.missing_claims(wins);
        }
        Compared {
            rows: self.rows.count,
            claims: self.claims.count,
            wins_with_row: self.rows.marks.whole(),
            wins_with_claim: self.claims.marks.whole(),
            told: self.told.map(told::Answers::numbers),
            found: self.found,
        }
    }
}

/// What was read to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Complete {
    /// All rows of the database.
    pub rows: bool,
    /// All claims in Redis.
    pub claims: bool,
}
