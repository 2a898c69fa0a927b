//! The mechanisms of the protocol, each switched off: for the fault suite alone, which must find
//! what goes wrong without it. Not there in any build that does not name the feature `weakened`.

use crate::answer::Answer;
use crate::handle::{SaleHandle, Served};
use crate::session::Session;
use crate::shared::Shared;
use bytes::Bytes;
use dropgate_domain::{Body, Seq, Win};
use dropgate_events::decode_event;
use std::sync::{Arc, OnceLock};

/// The environment variable that says what is switched off. Not one of `DROPGATE_..`: those are
/// keys of the configuration, and an unknown one is refused.
const VARIABLE: &str = "WEAKENED";

/// What can be switched off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Weakness {
    /// "Won" is told at the reply of Redis.
    ToldAtReply,
    /// "Won" is told when the log has acknowledged the event.
    ToldAtAck,
    /// A second record with a seq takes the place of the first.
    SecondRecord,
    /// An event need not hang on the one before it.
    NoChain,
    /// Scripts that Redis forgot are loaded again.
    ReloadOnNoScript,
}

fn weakness() -> Option<Weakness> {
    static CHOSEN: OnceLock<Option<Weakness>> = OnceLock::new();
    *CHOSEN.get_or_init(|| {
        let chosen = match std::env::var(VARIABLE).ok()?.as_str() {
            "told_at_reply" => Weakness::ToldAtReply,
            "told_at_ack" => Weakness::ToldAtAck,
            "second_record" => Weakness::SecondRecord,
            "no_chain" => Weakness::NoChain,
            "reload_on_noscript" => Weakness::ReloadOnNoScript,
            other => {
                tracing::error!(VARIABLE, other, "unknown: nothing is switched off");
                return None;
            }
        };
        tracing::error!(?chosen, "a mechanism is switched off: not for any sale");
        Some(chosen)
    })
}

/// The ledger's rule, less the part that is switched off.
#[derive(Debug, Clone, Copy, Default)]
pub struct Rule;

impl dropgate_domain::Rule for Rule {
    fn first_wins() -> bool {
        weakness() != Some(Weakness::SecondRecord)
    }

    fn chain() -> bool {
        weakness() != Some(Weakness::NoChain)
    }
}

impl SaleHandle {
    /// The answer of a gateway that does not wait until its ledger has applied the event.
    pub(crate) async fn told_too_early(
        &self,
        session: &Arc<Session>,
        seq: Seq,
        event: &Bytes,
    ) -> Option<Answer> {
        let lane = self.served.lane();
        match weakness()? {
            Weakness::ToldAtReply => {
                self.shared
                    .publisher
                    .publish(session, lane, seq, event.clone());
            }
            Weakness::ToldAtAck => {
                self.shared.log.append(lane, event.clone()).await.ok()?;
            }
            _ => return None,
        }
        let record = decode_event(event).ok()?;
        let Body::Won(won) = record.event.body else {
            return None;
        };
        Some(Answer::Won(Win {
            generation: session.generation(),
            seq,
            unit: won.unit,
            user: won.user,
            attempt: won.attempt,
            key: won.key,
            won_at: won.link.time,
        }))
    }
}

impl Shared {
    /// Teaches a Redis that forgot the scripts to answer again, if that is what is weak.
    pub(crate) fn reloads(self: &Arc<Self>, served: &Served) -> bool {
        if weakness() != Some(Weakness::ReloadOnNoScript) {
            return false;
        }
        let nonce = served.sale.ledger().current().map(|c| c.nonce());
        let shared = Arc::clone(self);
        let sale = served.sale.pin().sale.clone();
        self.tasks.spawn(async move {
            if let (Some(nonce), Ok(operator)) = (nonce, shared.operator()) {
                let loaded = operator.load_scripts(&sale, nonce).await;
                tracing::error!(?loaded, "scripts loaded again");
            }
        });
        true
    }
}
