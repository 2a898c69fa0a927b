//! Whether a generation may begin on a Redis.

use super::Operator;
use crate::error::CallError;
use crate::link::{Slot, time};
use dropgate_domain::SaleId;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Why no generation must begin on this Redis.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotCertified {
    /// It gives no answer, or refuses a write.
    #[error(transparent)]
    Call(#[from] CallError),
    /// It is not what a sale needs; each problem says what to do.
    #[error("{}", .0.join("; "))]
    Unfit(Vec<String>),
    /// Its clock and this machine's are too far apart.
    #[error("the clocks of redis and of this machine are {0:?} apart; synchronise them")]
    Skew(Duration),
}

/// The skew from which on a Redis is not certified.
const SKEW_MAX: Duration = Duration::from_secs(1);

impl Operator {
    /// Whether a generation of this sale may begin on this Redis: a master that takes writes,
    /// never evicts, whose clock is less than a second from ours, and that all agree on. With
    /// sentinels, a majority of them names it and takes it for up; in a cluster, it owns the
    /// sale's slot and the cluster is up; and a new connection leads to the same server. All of
    /// this is asked of one and the same server. A master that was demoted or cut off is refused.
    ///
    /// # Errors
    /// Why not.
    pub async fn certify(&self, sale: &SaleId) -> Result<(), NotCertified> {
        let link = self.link().await?;
        let slot = Slot::of(sale);
        let server = link.server(slot)?;
        let facts = link.facts(&server).await?;
        let mut problems = facts.problems();
        if problems.is_empty() {
            problems = link.disagreements(slot, &server, &facts.run_id).await?;
        }
        if !problems.is_empty() {
            // Perhaps another one is master by now; who asks again shall find it.
            link.look_again();
            return Err(NotCertified::Unfit(problems));
        }
        let before = now();
        let redis = time(&server).await?;
        let after = now();
        // The question was answered at some time between the two.
        let redis = Duration::from_millis(redis.0);
        let skew = if redis < before {
            before - redis
        } else {
            redis.saturating_sub(after)
        };
        if skew >= SKEW_MAX {
            return Err(NotCertified::Skew(skew));
        }
        // INFO does not tell everything that stops writes; a write does. A key of the sale's slot
        // that nobody reads and that goes by itself.
        let key = format!("dropgate:{{{sale}}}:certified");
        let at_ms = redis.as_millis().to_string();
        server.ask("SET", &[&key, &at_ms, "PX", "60000"]).await?;
        Ok(())
    }
}

fn now() -> Duration {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
}
