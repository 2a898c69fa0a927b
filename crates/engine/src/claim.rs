//! A claim, from the call to the answer.
//!
//! *Redis proposes, the log decides.* "Won" is told when the own ledger has applied the event;
//! "sold out" when the ledger, in the reply's generation, has applied through the reply's seq
//! and itself shows no claimable unit; "void" when the ledger has ended that generation or
//! holds another event at that seq. Everything else is "not now", or "pending".

use crate::answer::{Answer, Unavailable};
use crate::handle::{SaleHandle, Verdict};
use crate::session::Session;
use dropgate_admission::{CallError, Claim, Claimed, Reply};
use dropgate_domain::{AttemptId, ClaimId, IdempotencyKey, Phase, Seq, UserId, Win};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio::time::Instant;

impl SaleHandle {
    /// Claims a unit for the user. Bounded: by the deadline of the call to Redis, and by
    /// `confirm_max` from the reply on.
    ///
    /// Cancel safe in the protocol's sense: a claim whose caller went away may have won, is
    /// published all the same, and is found again by the same user and key.
    pub async fn claim(&self, user: UserId, key: IdempotencyKey, attempt: AttemptId) -> Answer {
        if let Err(why) = self.fresh() {
            return Answer::Unavailable(why);
        }
        if let Some(answer) = self.answer_from_memory(&user, &key) {
            return answer;
        }
        let session = match self.live() {
            Ok(session) => session,
            Err(why) => return Answer::Unavailable(why),
        };
        if session.is_latched() {
            return Answer::SoldOut;
        }
        if !session.was_sold_out.load(Ordering::Acquire) {
            return self.call(&session, Claim { user, key, attempt }).await;
        }
        // The latch ran out: one call asks again for all, the others wait for what it learns.
        let deadline = Instant::now() + self.shared.config.confirm_max;
        let Ok(renewing) = session.renewing.try_lock() else {
            let renewed = tokio::time::timeout_at(deadline, session.renewing.lock()).await;
            drop(renewed);
            // The wait was long enough for the sale to have been halted.
            return match self.live() {
                Ok(session) if session.is_latched() => Answer::SoldOut,
                Ok(session) => self.call(&session, Claim { user, key, attempt }).await,
                Err(why) => Answer::Unavailable(why),
            };
        };
        let answer = self.call(&session, Claim { user, key, attempt }).await;
        drop(renewing);
        answer
    }

    /// What the ledger alone can answer: a user's own wins, and that the sale is closed.
    fn answer_from_memory(&self, user: &UserId, key: &IdempotencyKey) -> Option<Answer> {
        // One look: a win and the close after it may be applied between two.
        let ledger = self.sale().ledger();
        let limit = ledger.definition().map_or(1, |d| d.per_user_limit);
        let mut wins: Vec<Win> = ledger.wins_of(user).cloned().collect();
        let closed = matches!(ledger.phase(), Phase::Closed);
        drop(ledger);
        if let Some(mine) = again(&wins, key, limit) {
            return Some(Answer::Again(wins.swap_remove(mine)));
        }
        if closed {
            return Some(Answer::Closed);
        }
        (wins.len() >= limit as usize).then_some(Answer::LimitReached(wins))
    }

    async fn call(&self, session: &Arc<Session>, claim: Claim) -> Answer {
        let applied = {
            let ledger = self.sale().ledger();
            if ledger.generation() != session.generation() {
                return Answer::Unavailable(Unavailable::Starting);
            }
            ledger.applied()
        };
        let sent = Instant::now();
        let admission = &self.shared.admission;
        let reply = admission
            .claim(&session.scope, &session.scripts, applied, &claim)
            .await;
        let value = match reply {
            Ok(Reply { value, .. }) => value,
            Err(error) => return Answer::Unavailable(self.refused(session, &error).await),
        };
        let deadline = Instant::now() + self.shared.config.confirm_max;
        match value {
            Claimed::Won { seq, event } => {
                session.see(seq);
                #[cfg(feature = "weakened")]
                if let Some(told) = self.told_too_early(session, seq, &event).await {
                    return told;
                }
                self.shared
                    .publisher
                    .publish(session, self.served.lane(), seq, event);
                self.decided(session, seq, &claim, claim.attempt, deadline)
                    .await
            }
            Claimed::Again { seq, attempt, .. } => {
                session.see(seq);
                match self.decided(session, seq, &claim, attempt, deadline).await {
                    Answer::Won(win) => Answer::Again(win),
                    other => other,
                }
            }
            Claimed::Limit { claims } => {
                let last = claims
                    .iter()
                    .map(|entry| entry.seq)
                    .max()
                    .unwrap_or_default();
                self.wait(session.generation(), last, deadline).await;
                let (wins, limit) = self.known_wins(&claim.user);
                if wins.len() >= limit as usize {
                    Answer::LimitReached(wins)
                } else {
                    Answer::Unavailable(Unavailable::Busy)
                }
            }
            Claimed::SoldOut { seq } => self.sold_out(session, seq, sent, deadline).await,
            Claimed::Early { opens_at } => Answer::Early { opens_at },
            Claimed::Closed => Answer::Closed,
            Claimed::Busy => Answer::Unavailable(Unavailable::Busy),
        }
    }

    /// Waits for the log's word on the event that an attempt was given.
    async fn decided(
        &self,
        session: &Session,
        seq: Seq,
        claim: &Claim,
        attempt: AttemptId,
        deadline: Instant,
    ) -> Answer {
        // A repeat's event may be of an earlier generation; then it is applied already.
        if let Some(win) = self.win_at(&claim.user, seq, attempt) {
            return Answer::Won(win);
        }
        match self.wait(session.generation(), seq, deadline).await {
            Verdict::Applied(win) if win.attempt == attempt && win.user == claim.user => {
                Answer::Won(win)
            }
            Verdict::Applied(_) | Verdict::AppliedOther | Verdict::Void => {
                Answer::Unavailable(Unavailable::Void)
            }
            Verdict::TimedOut | Verdict::TooMany => {
                self.served.ask_tip.notify_one();
                Answer::Pending(ClaimId {
                    generation: session.generation(),
                    seq,
                    attempt,
                })
            }
        }
    }

    /// Redis says that nothing is left as of `seq`. It is so only if the ledger says it too.
    async fn sold_out(
        &self,
        session: &Session,
        seq: Seq,
        sent: Instant,
        deadline: Instant,
    ) -> Answer {
        session.see(seq);
        if self.sale().ledger().applied() < seq {
            self.wait(session.generation(), seq, deadline).await;
        }
        let exact = {
            let ledger = self.sale().ledger();
            ledger.generation() == session.generation()
                && ledger.applied() >= seq
                && ledger.claimable() == 0
                && matches!(ledger.phase(), Phase::Open)
        };
        if exact {
            // Counted from before the call: a unit freed after it becomes claimable no sooner.
            session.latch(sent + self.shared.config.latch);
            Answer::SoldOut
        } else {
            self.served.ask_tip.notify_one();
            Answer::Unavailable(Unavailable::Busy)
        }
    }

    /// What a call that did not run, or may have, means for the sale and for the user.
    async fn refused(&self, session: &Arc<Session>, error: &CallError) -> Unavailable {
        #[cfg(feature = "weakened")]
        if *error == CallError::NoScript && self.shared.reloads(&self.served) {
            return Unavailable::Busy;
        }
        match error {
            CallError::NoScript | CallError::Missing => {
                self.shared.suspect(&self.served, session, error).await;
                Unavailable::Halted
            }
            CallError::Behind => {
                self.shared.halt(&self.served, session, &error.to_string());
                Unavailable::Halted
            }
            CallError::Stale => {
                session.disown();
                self.served.ask_tip.notify_one();
                Unavailable::Starting
            }
            CallError::Late => Unavailable::Busy,
            CallError::NotWritable(_) | CallError::Unavailable(_) => Unavailable::Admission,
            CallError::Denied(what) | CallError::Protocol(what) => {
                self.shared.warn_once(self.sale().id(), what);
                Unavailable::Admission
            }
        }
    }
}

/// Which of the user's wins a claim with this key is: without a key their first, with a limit
/// of 1 the one they have.
fn again(wins: &[Win], key: &IdempotencyKey, limit: u32) -> Option<usize> {
    if wins.is_empty() {
        None
    } else if limit == 1 || *key == IdempotencyKey::none() {
        Some(0)
    } else {
        wins.iter().position(|win| win.key == *key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dropgate_domain::{Generation, TimeMs, Unit};

    fn win(seq: u64, key: &str) -> Win {
        Win {
            generation: Generation(1),
            seq: Seq(seq),
            unit: Unit(seq),
            user: UserId::new("u").unwrap(),
            attempt: AttemptId([1; 16]),
            key: IdempotencyKey::new(key).unwrap(),
            won_at: TimeMs(1),
        }
    }

    #[test]
    fn a_repeat_finds_its_claim_as_the_script_does() {
        let key = |text| IdempotencyKey::new(text).unwrap();
        let wins = [win(1, "a"), win(2, "b")];
        assert_eq!(again(&[], &key("a"), 1), None);
        assert_eq!(
            again(&wins[..1], &key("zzz"), 1),
            Some(0),
            "limit 1: whatever its key"
        );
        assert_eq!(again(&wins, &key(""), 5), Some(0), "no key: the first");
        assert_eq!(again(&wins, &key("b"), 5), Some(1));
        assert_eq!(again(&wins, &key("c"), 5), None);
    }
}
