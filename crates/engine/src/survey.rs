//! What Redis has of a sale: read, and nothing changed.
//!
//! For who wants to know before a recovery, and for who asks why a sale does not sell.

use crate::sale::Sale;
use crate::standing::{Condition, Standing};
use dropgate_admission::{CallError, Operator, Scope, StoredState};
use dropgate_domain::{Body, Generation, Seq, TimeMs};
use dropgate_events::decode_event;
use std::time::Duration;

/// Events that are read from the outbox at a time.
const OUTBOX_AT_ONCE: usize = 500;
/// So many of them are counted; of more it is said that there are more.
const OUTBOX_MAX: u64 = 10_000;

/// What Redis has of the generation that the log has for current.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Survey {
    /// The generation that was looked for; 0 before the opening.
    pub generation: Generation,
    /// Its tag, which the sale's `current` key holds while it is current; empty before the
    /// opening.
    pub expected: String,
    /// The tag that the key holds.
    pub current: Option<String>,
    /// The generation's state.
    pub state: Stored,
    /// Whether the generation's scripts are loaded; `None` before the opening.
    pub scripts: Option<bool>,
    /// What waits in its outbox and is not in the log.
    pub unlogged: Unlogged,
    /// Why no sale should run on this Redis, each with what to do.
    pub unfit: Vec<String>,
    /// Why this is not what the log says, if it is not.
    pub loss: Option<String>,
}

/// A generation's state as it was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stored {
    /// It is not there, or it was taken out of use.
    Missing,
    /// What is there can be of no release.
    Unreadable(String),
    /// It is there and whole.
    There(StoredState),
}

impl Stored {
    /// The state, if it is there.
    #[must_use]
    pub fn there(&self) -> Option<&StoredState> {
        match self {
            Self::There(state) => Some(state),
            Self::Missing | Self::Unreadable(_) => None,
        }
    }
}

/// Events that wait in the outbox and are not applied by who asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Unlogged {
    /// How many, up to 10,000.
    pub events: u64,
    /// Whether there are more.
    pub more: bool,
    /// When the oldest happened, in the sale's time.
    pub oldest: Option<TimeMs>,
}

impl Survey {
    /// Looks. The sale's log should have been read to its end just before.
    ///
    /// # Errors
    /// Redis does not answer, or refuses the user. Cancel safe.
    pub async fn of(operator: &Operator, sale: &Sale) -> Result<Self, CallError> {
        let unfit = operator.policy(sale.id()).await?.problems();
        let (generation, applied, scripts) = {
            let ledger = sale.ledger();
            let scripts = ledger.current().map(|current| current.scripts().to_vec());
            (ledger.generation(), ledger.applied(), scripts)
        };
        let current = operator.current(sale.id()).await?;
        let mut survey = Self {
            generation,
            expected: String::new(),
            current,
            state: Stored::Missing,
            scripts: None,
            unlogged: Unlogged::default(),
            unfit,
            loss: None,
        };
        let Some(scripts) = scripts else {
            return Ok(survey);
        };
        let scope = Scope::new(sale.id().clone(), sale.pin().log_id, generation);
        scope.tag().clone_into(&mut survey.expected);
        survey.scripts = Some(operator.scripts_loaded(sale.id(), &scripts).await?);
        survey.state = match operator.state(&scope).await {
            Ok(Some(state)) => Stored::There(state),
            Ok(None) => Stored::Missing,
            Err(CallError::Protocol(what)) => Stored::Unreadable(what),
            Err(error) => return Err(error),
        };
        survey.unlogged = unlogged(operator, &scope, applied).await?;
        survey.loss = survey.lost(sale, applied);
        Ok(survey)
    }

    /// Why this is not what the log says; `applied` was in the log before Redis was asked.
    fn lost(&self, sale: &Sale, applied: Seq) -> Option<String> {
        match &self.current {
            None => return Some("redis names no generation of the sale as current".to_owned()),
            Some(tag) if *tag != self.expected => {
                let expected = &self.expected;
                return Some(format!("redis names {tag} as current, the log {expected}"));
            }
            Some(_) => {}
        }
        if self.scripts == Some(false) {
            return Some("redis does not have the generation's scripts".to_owned());
        }
        let state = match &self.state {
            Stored::There(state) => state,
            Stored::Missing => {
                let text = "redis does not have the generation's state, or it is out of use";
                return Some(text.to_owned());
            }
            Stored::Unreadable(what) => return Some(format!("redis' state is no state: {what}")),
        };
        if state.seq < applied {
            return Some(format!(
                "redis is at seq {}, the log at {applied}",
                state.seq
            ));
        }
        let ledger = sale.ledger();
        let known = ledger.generation() == self.generation && state.seq <= ledger.applied();
        match ledger.chain_at(state.seq) {
            Some(chain) if known && chain != state.head => Some(format!(
                "the chain of redis differs from the log's at seq {}",
                state.seq
            )),
            _ => None,
        }
    }

    /// How the sale stands by its log, read to its end just now, and by a survey of its Redis;
    /// `None` when Redis does not answer.
    #[must_use]
    pub fn standing(sale: &Sale, survey: Option<&Self>, now: TimeMs) -> Standing {
        let ledger = sale.ledger();
        let (generation, phase) = (ledger.generation(), ledger.phase());
        let (wins, starts) = (ledger.wins().len() as u64, ledger.starts().to_vec());
        drop(ledger);
        let begun = starts.last().copied().flatten();
        let condition = match (sale.unfollowable(), survey) {
            (Some(why), _) => Condition::Unfollowable(why.to_string()),
            (None, survey) => Condition::by_log(phase).unwrap_or_else(|| match survey {
                None => Condition::Unreachable,
                // A generation that has begun since is not what was looked for.
                Some(survey) if survey.generation == generation && survey.loss.is_none() => {
                    Condition::Live
                }
                Some(_) => Condition::Starting {
                    since: Duration::from_millis(begun.map_or(0, |at| now.0.saturating_sub(at.0))),
                },
            }),
        };
        Standing {
            generation,
            condition,
            wins,
            starts,
        }
    }
}

/// Counts what waits in the outbox after `applied`.
async fn unlogged(operator: &Operator, scope: &Scope, applied: Seq) -> Result<Unlogged, CallError> {
    let mut found = Unlogged::default();
    let mut from = applied.next();
    loop {
        let events = match operator.outbox(scope, from, OUTBOX_AT_ONCE).await {
            // Another type of key: nothing of it can be published.
            Err(CallError::Protocol(_)) => return Ok(found),
            events => events?,
        };
        if let (None, Some((_, first))) = (found.oldest, events.first()) {
            found.oldest = match decode_event(first).map(|record| record.event.body) {
                Ok(Body::Won(won)) => Some(won.link.time),
                Ok(Body::Closed(link)) => Some(link.time),
                _ => None,
            };
        }
        found.events += events.len() as u64;
        let Some((last, _)) = events.last().filter(|_| events.len() == OUTBOX_AT_ONCE) else {
            return Ok(found);
        };
        if found.events >= OUTBOX_MAX {
            found.more = true;
            return Ok(found);
        }
        from = last.next();
    }
}
