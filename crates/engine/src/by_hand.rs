//! Recovering a sale by hand: what an operator's command comes to, whoever carries it out.

use crate::admin::AdminError;
use crate::engine::Engine;
use crate::generation::{Progress, now_ms};
use crate::handle::SaleHandle;
use crate::recover::{Recovered, Recovery};
use crate::standing::{Condition, Standing};
use crate::survey::Survey;
use dropgate_domain::{Generation, SaleId};
use std::time::Duration;
use tokio::time::Instant;

/// How long a generation that is not whole yet, or a Redis that does not answer, is waited for: a
/// recovery by somebody else may be about to end.
const PATIENCE: Duration = Duration::from_secs(3);
/// So many wins are written in a second on a slow day.
const WINS_A_SECOND: u64 = 20_000;

/// An operator's order to recover a sale.
#[derive(Debug, Clone)]
pub struct ByHand {
    /// The sale.
    pub sale: SaleId,
    /// Who orders it, for people.
    pub by: String,
    /// Also a sale that is live, which takes this release's scripts by it; and nobody who may be
    /// at it is waited for.
    pub force: bool,
}

/// What the order came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mended {
    /// Nothing was done: the sale is live in this generation.
    Live(Generation),
    /// This generation was begun, and claims are taken in it.
    Recovered(Generation),
    /// Somebody else began this one.
    Overtaken(Generation),
}

/// What an order would come to, or why it is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The sale is recovered.
    Recover {
        /// Why, as it is put into the log.
        reason: String,
    },
    /// Nothing is done: it is live.
    Live,
    /// It is refused.
    Refused(AdminError),
}

impl Verdict {
    /// Of a sale that stands so.
    #[must_use]
    pub fn of(condition: &Condition, force: bool) -> Self {
        match condition {
            Condition::NotOpened => Self::Refused(AdminError::NotOpen),
            Condition::Closed => Self::Refused(AdminError::Closed),
            Condition::Unfollowable(why) => Self::Refused(AdminError::Unfollowable(why.clone())),
            Condition::Live if !force => Self::Live,
            Condition::Live => Self::Recover {
                reason: "by hand, while it was live".to_owned(),
            },
            other => Self::Recover {
                reason: format!("by hand: {}", other.why().unwrap_or_default()),
            },
        }
    }
}

/// What an order would come to, found without changing anything.
#[derive(Debug, Clone)]
pub struct Preview {
    /// How the sale stands.
    pub standing: Standing,
    /// What Redis has of it, or why it does not say.
    pub redis: Result<Survey, String>,
    /// What would be done.
    pub verdict: Verdict,
}

impl Engine {
    /// Recovers a sale by hand: finds out how it stands, recovers the generation that it saw, and
    /// waits until the new one is live. `on_progress` is told each step of the recovery.
    ///
    /// Cancel safe and crash safe at every step, like [`Engine::recover`]. Bounded by
    /// `admin_deadline`, `recover_deadline`, and `admin_deadline` again.
    ///
    /// # Errors
    /// [`AdminError`]: `Unknown`, `NotOpen`, `Closed` and `Unfollowable` when there is nothing to
    /// recover. After `Unavailable` and `NotCertified` the same order may be given again; the
    /// sale stays closed meanwhile.
    pub async fn recover_by_hand(
        &self,
        order: &ByHand,
        on_progress: &(dyn Fn(Progress) + Send + Sync),
    ) -> Result<Mended, AdminError> {
        let handle = self.sale(&order.sale).ok_or(AdminError::Unknown)?;
        let standing = self.standing_known(&handle, order.force).await?;
        let reason = match Verdict::of(&standing.condition, order.force) {
            Verdict::Recover { reason } => reason,
            Verdict::Live => return Ok(Mended::Live(standing.generation)),
            Verdict::Refused(error) => return Err(error),
        };
        let recovery = Recovery {
            sale: order.sale.clone(),
            from: standing.generation,
            by: order.by.clone(),
            reason,
        };
        match self.recover(&recovery, on_progress).await? {
            Recovered::Overtaken(generation) => Ok(Mended::Overtaken(generation)),
            Recovered::Begun(generation) => self.live_in(&handle, generation).await,
        }
    }

    /// What [`Engine::recover_by_hand`] would do. Changes nothing.
    ///
    /// # Errors
    /// [`AdminError::Unknown`], [`AdminError::OperatorCredentialsMissing`], or a log that does not
    /// answer. A Redis that does not is part of the preview.
    pub async fn preview_by_hand(&self, sale: &SaleId, force: bool) -> Result<Preview, AdminError> {
        let handle = self.sale(sale).ok_or(AdminError::Unknown)?;
        let operator = self.shared().operator()?;
        let standing = self.standing_known(&handle, true).await?;
        let redis = Survey::of(operator, handle.sale()).await;
        Ok(Preview {
            verdict: Verdict::of(&standing.condition, force),
            standing,
            redis: redis.map_err(|error| error.to_string()),
        })
    }

    /// How the sale stands, once that is known. Unless `at_once`, a generation that may be about
    /// to go live is given time for it.
    async fn standing_known(
        &self,
        handle: &SaleHandle,
        at_once: bool,
    ) -> Result<Standing, AdminError> {
        let shared = self.shared();
        let begun = Instant::now();
        let building = Duration::from_secs(handle.standing().wins / WINS_A_SECOND);
        let patience = if at_once {
            Duration::ZERO
        } else {
            PATIENCE + building
        };
        let deadline = begun + shared.config.admin_deadline.max(patience * 2);
        let known = || {
            let standing = handle.standing();
            let settled = match standing.condition {
                Condition::Unknown => false,
                Condition::Starting { .. } | Condition::Unreachable => begun.elapsed() >= patience,
                _ => true,
            };
            settled.then_some(standing)
        };
        shared.until(deadline, known).await
    }

    /// Waits until claims are taken in the generation that was begun.
    async fn live_in(
        &self,
        handle: &SaleHandle,
        generation: Generation,
    ) -> Result<Mended, AdminError> {
        let shared = self.shared();
        handle.served.ask_tip.notify_one();
        let live = || {
            let standing = handle.standing();
            if standing.generation > generation {
                return Some(Mended::Overtaken(standing.generation));
            }
            let live = standing.condition == Condition::Live;
            live.then_some(Mended::Recovered(generation))
        };
        let deadline = Instant::now() + shared.config.admin_deadline;
        shared.until(deadline, live).await.map_err(|_| {
            let condition = handle.standing().condition;
            AdminError::Unavailable(format!(
                "generation {generation} was begun and built, and is not seen live from here: it \
                 is {}",
                condition.word()
            ))
        })
    }
}

impl Preview {
    /// The same by a log that was read to its end just now, and by a survey of its Redis: for who
    /// runs no engine, which would halt and relay.
    #[must_use]
    pub fn by_survey(sale: &crate::sale::Sale, redis: Result<Survey, String>, force: bool) -> Self {
        let standing = Survey::standing(sale, redis.as_ref().ok(), now_ms());
        Self {
            verdict: Verdict::of(&standing.condition, force),
            standing,
            redis,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dropgate_domain::Halted;

    #[test]
    fn a_live_sale_is_left_alone_unless_forced_and_what_is_over_is_refused() {
        assert_eq!(Verdict::of(&Condition::Live, false), Verdict::Live);
        assert!(matches!(
            Verdict::of(&Condition::Live, true),
            Verdict::Recover { .. }
        ));
        for force in [false, true] {
            assert_eq!(
                Verdict::of(&Condition::Closed, force),
                Verdict::Refused(AdminError::Closed)
            );
            assert_eq!(
                Verdict::of(&Condition::NotOpened, force),
                Verdict::Refused(AdminError::NotOpen)
            );
            let unread = Condition::Unfollowable("cut".to_owned());
            assert_eq!(
                Verdict::of(&unread, force),
                Verdict::Refused(AdminError::Unfollowable("cut".to_owned()))
            );
        }
    }

    #[test]
    fn the_log_is_told_why() {
        let halted = Condition::Halted(Halted {
            reason: "redis forgot".to_owned(),
            by: "gateway a".to_owned(),
            at: None,
        });
        let reason = "by hand: redis forgot".to_owned();
        assert_eq!(Verdict::of(&halted, false), Verdict::Recover { reason });
    }
}
