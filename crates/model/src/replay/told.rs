//! What clients were told, held against what counts of the log.

use super::counts::{Counts, link_of};
use super::{At, Outcome, Rejected, Run, Told, Why};
use dropgate_domain::{Body, ClaimId, Unit, UserId};
use std::collections::{HashMap, HashSet};

/// What the log says of claims and users.
struct Facts<'a> {
    counts: &'a Counts<'a>,
    /// Every claim that is in the log, whether it counts or not.
    claims: HashMap<ClaimId, &'a UserId>,
    /// The claims that count.
    won: HashSet<ClaimId>,
    units: HashMap<&'a UserId, usize>,
}

pub(super) fn check(run: &Run<'_>, counts: &Counts<'_>) -> Result<(), Rejected> {
    let facts = facts(run, counts);
    for (index, told) in run.told.iter().enumerate() {
        facts.told(told).map_err(|why| Rejected {
            at: At::Told(index),
            why,
        })?;
    }
    Ok(())
}

fn facts<'a>(run: &Run<'a>, counts: &'a Counts<'a>) -> Facts<'a> {
    let mut claims = HashMap::new();
    let of_sale = run
        .records
        .iter()
        .filter(|(_, r)| r.event.sale == *run.sale);
    for (_, record) in of_sale {
        if let (Some(link), Body::Won(won)) = (link_of(record), &record.event.body) {
            let claim = ClaimId {
                generation: record.event.generation,
                seq: link.seq,
                attempt: won.attempt,
            };
            claims.insert(claim, &won.user);
        }
    }
    let (mut won, mut units) = (HashSet::new(), HashMap::new());
    for event in &counts.applied {
        if let Some(win) = event.won {
            won.insert(ClaimId {
                generation: event.generation,
                seq: event.link.seq,
                attempt: win.attempt,
            });
            *units.entry(&win.user).or_default() += 1;
        }
    }
    Facts {
        counts,
        claims,
        won,
        units,
    }
}

impl Facts<'_> {
    fn told(&self, told: &Told) -> Result<(), Why> {
        let definition = self.counts.definition;
        match &told.outcome {
            Outcome::Won { claim, unit } => self.won(&told.user, claim, *unit),
            Outcome::Pending { claim } => self.claim_of(&told.user, claim),
            Outcome::Void { claim } => self.void(&told.user, claim),
            Outcome::SoldOut => {
                let sold = self.won.len() as u64;
                let left = definition.stock.saturating_sub(sold);
                (left == 0).then_some(()).ok_or(Why::NotSoldOut { left })
            }
            Outcome::Closed => {
                let over = self.counts.closed || definition.closes_at.is_some();
                over.then_some(()).ok_or(Why::NotClosed)
            }
            Outcome::Early => {
                let opens = definition.opens_at;
                opens.map(|_| ()).ok_or(Why::NotEarly)
            }
            Outcome::LimitReached => {
                let has = self.units.get(&told.user).copied().unwrap_or(0);
                let limit = definition.per_user_limit;
                (has >= limit as usize)
                    .then_some(())
                    .ok_or(Why::BelowLimit { has, limit })
            }
            Outcome::NotNow => Ok(()),
        }
    }

    fn won(&self, user: &UserId, claim: &ClaimId, unit: Unit) -> Result<(), Why> {
        let event = self.counts.event(claim.seq).and_then(|event| event.won);
        let theirs = event.is_some_and(|won| won.user == *user && won.unit == unit);
        (self.won.contains(claim) && theirs)
            .then_some(())
            .ok_or(Why::NotWon)
    }

    fn void(&self, user: &UserId, claim: &ClaimId) -> Result<(), Why> {
        self.claim_of(user, claim)?;
        if self.won.contains(claim) {
            return Err(Why::NotVoid);
        }
        let decided = self.counts.is_decided(claim.generation, claim.seq);
        decided.then_some(()).ok_or(Why::VoidTooEarly)
    }

    fn claim_of(&self, user: &UserId, claim: &ClaimId) -> Result<(), Why> {
        if self.counts.begun(claim.generation).is_none() {
            return Err(Why::ClaimUnknown);
        }
        match self.claims.get(claim) {
            Some(owner) if *owner != user => Err(Why::ClaimOfAnother),
            _ => Ok(()),
        }
    }
}
