//! What clients were told against the wins.

use super::owners::of_claim;
use super::{Diff, Kind, named};
use dropgate_domain::{ClaimId, Unit, UserId, Win};
use std::collections::HashSet;

/// What a client was told of a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ToldStatus {
    /// That it got this unit.
    Won(Unit),
    /// That it will never get one.
    Void,
}

/// One answer that a client was given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Told {
    /// Who.
    pub user: UserId,
    /// Which claim.
    pub claim: ClaimId,
    /// What.
    pub status: ToldStatus,
}

/// Figures over what was told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Numbers {
    /// Answers that told of a win.
    pub wins: u64,
    /// Different wins of the log that were told.
    pub winners: u64,
}

#[derive(Debug, Default)]
pub(super) struct Answers {
    wins: u64,
    /// Places of the wins that were told.
    told: Vec<bool>,
    winners: u64,
    /// Claims that were told and are not there: the same one told again is nothing new.
    absent: HashSet<ClaimId>,
}

impl Answers {
    pub fn numbers(self) -> Numbers {
        Numbers {
            wins: self.wins,
            winners: self.winners,
        }
    }

    fn mark(&mut self, at: usize) {
        if self.told.len() <= at {
            self.told.resize(at + 1, false);
        }
        if let Some(told) = self.told.get_mut(at)
            && !*told
        {
            *told = true;
            self.winners += 1;
        }
    }
}

impl Diff {
    /// Clients were asked, whatever they say.
    pub fn ask_clients(&mut self) {
        self.told.get_or_insert_default();
    }

    /// Holds one answer against the wins: all that are known by now.
    pub fn told(&mut self, wins: &[Win], told: &Told) {
        let answers = self.told.get_or_insert_default();
        let at = of_claim(wins, &told.claim);
        let win = at.and_then(|at| Some((at, wins.get(at)?)));
        match (told.status, win) {
            (ToldStatus::Void, None) => {}
            (ToldStatus::Void, Some((_, win))) => {
                self.found.add(Kind::ToldVoidButWon, || named(win));
            }
            (ToldStatus::Won(unit), None) => {
                answers.wins += 1;
                if answers.absent.insert(told.claim) {
                    let claim = told.claim;
                    self.found.add(Kind::ToldWinnerAbsent, || {
                        format!("unit {unit}, seq {}, claim {claim}", claim.seq)
                    });
                }
            }
            (ToldStatus::Won(unit), Some((at, win))) => {
                answers.wins += 1;
                answers.mark(at);
                if told.user != win.user {
                    self.found.add(Kind::ToldUserDiffers, || named(win));
                }
                if unit != win.unit {
                    self.found.add(Kind::ToldUnitDiffers, || {
                        format!("{}: unit {unit} was told", named(win))
                    });
                }
            }
        }
    }
}
