//! Who owns what by one source: promises 1 and 2, asked of the source and not of the log.

use super::{Index, of_seq};
use dropgate_domain::{Seq, Unit, UserId, Win};
use std::collections::{HashMap, HashSet};

/// Of each win: whether the source has it, with its unit, and with its user.
#[derive(Debug, Default)]
pub(super) struct Marks(Vec<u8>);

const THERE: u8 = 1;
const UNIT: u8 = 2;
const USER: u8 = 4;

impl Marks {
    pub fn extend(&mut self, wins: usize) {
        if self.0.len() < wins {
            self.0.resize(wins, 0);
        }
    }

    fn has(&self, at: usize, mark: u8) -> bool {
        self.0.get(at).is_some_and(|marks| marks & mark != 0)
    }

    pub fn there(&self, at: usize) -> bool {
        self.has(at, THERE)
    }

    pub fn mark(&mut self, at: usize, unit: bool, user: bool) {
        if let Some(marks) = self.0.get_mut(at) {
            *marks |= THERE | (UNIT * u8::from(unit)) | (USER * u8::from(user));
        }
    }

    /// Wins that are there with their unit and their user.
    pub fn whole(&self) -> u64 {
        self.0
            .iter()
            .filter(|marks| **marks == THERE | UNIT | USER)
            .count() as u64
    }
}

/// What a source says of a unit that is not what the log says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Odd {
    pub unit: Unit,
    pub user: UserId,
    pub seq: Seq,
    /// The unit is the one of the win that it is.
    pub unit_right: bool,
    /// The user is the one of the win that it is.
    pub user_right: bool,
}

/// The units of what is odd that are not of the stock, or that somebody else owns as well.
pub(super) fn oversold<'a>(
    odd: &'a [Odd],
    marks: &Marks,
    index: &Index,
    stock: u64,
) -> impl Iterator<Item = &'a Odd> {
    let mut taken = HashSet::new();
    let twice: Vec<bool> = odd
        .iter()
        .map(|odd| {
            if odd.unit_right {
                return false;
            }
            let outside = odd.unit.0 == 0 || odd.unit.0 > stock;
            let owned = index
                .of_unit(odd.unit)
                .is_some_and(|at| marks.has(at, UNIT));
            // All are put into the set: no short circuit.
            let again = !taken.insert(odd.unit);
            outside || owned || again
        })
        .collect();
    odd.iter()
        .zip(twice)
        .filter_map(|(odd, twice)| twice.then_some(odd))
}

/// How many users have more than they may, counting what is odd as theirs.
pub(super) fn over_limit(odd: &[Odd], marks: &Marks, wins: &[Win], limit: u32) -> Vec<u64> {
    let mut theirs: HashMap<&UserId, u64> = HashMap::new();
    for odd in odd.iter().filter(|odd| !odd.user_right) {
        *theirs.entry(&odd.user).or_default() += 1;
    }
    if theirs.is_empty() {
        return Vec::new();
    }
    for (at, win) in wins.iter().enumerate() {
        if marks.has(at, USER)
            && let Some(count) = theirs.get_mut(&win.user)
        {
            *count += 1;
        }
    }
    let over = theirs
        .into_values()
        .filter(|count| *count > u64::from(limit));
    let mut over: Vec<u64> = over.collect();
    over.sort_unstable();
    over
}

/// The win of a claim: by its seq, and only if all of the claim is the same.
pub(super) fn of_claim(wins: &[Win], claim: &dropgate_domain::ClaimId) -> Option<usize> {
    of_seq(wins, claim.seq).filter(|at| wins.get(*at).is_some_and(|win| win.claim() == *claim))
}
