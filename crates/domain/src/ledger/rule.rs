//! The parts of the rule, each of which can be left out by a type.
//!
//! What is shipped judges by [`FullRule`] alone, for which every question below is a constant.
//! The model leaves out one part at a time and shows what goes wrong without it; there is no
//! switch for it at run time.

use super::{Applied, Cause, Fed, Ledger, Position, What};
use crate::event::{Body, Record};
use crate::ids::{Offset, Seq};

/// By which parts of the rule a ledger judges. Left out, a part is replaced by the mistake that
/// one could make in its place.
pub trait Rule {
    /// The first record with a seq is its event, and another one ends the generation. Without
    /// it, the last one counts: it takes the place of the one before.
    #[must_use]
    fn first_wins() -> bool {
        true
    }

    /// An event applies only on the digest of the event before it. Without it, `prev` is not
    /// compared.
    #[must_use]
    fn chain() -> bool {
        true
    }

    /// What comes early waits for what is before it. Without it, it is judged at once, and what
    /// was before it comes too late.
    #[must_use]
    fn strict_order() -> bool {
        true
    }

    /// A generation's events count until the next one begins. Without it, one that comes later
    /// is judged as if it were of the new generation.
    #[must_use]
    fn generation_cut() -> bool {
        true
    }

    /// A win that the state does not allow ends the generation. That there is none is a theorem
    /// as long as the other parts hold, and this its guard. Without it, the win counts.
    #[must_use]
    fn guard() -> bool {
        true
    }
}

/// The whole rule: what every service judges by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FullRule;

impl Rule for FullRule {}

impl<R: Rule> Ledger<R> {
    /// Puts a second record with a seq in the place of the first: what a ledger does that does
    /// not let the first one win.
    pub(super) fn second(
        &mut self,
        at: Offset,
        seq: Seq,
        record: Record,
        out: &mut Vec<Applied>,
    ) -> Fed {
        let (Some(current), Some(sold)) = (self.current.as_mut(), self.sold.as_mut()) else {
            return Fed::Void;
        };
        if seq > current.applied() {
            self.early.insert(seq, record);
            return Fed::Buffered;
        }
        let replaced = match record.event.body {
            Body::Won(won) => sold.replace(current.generation, won, R::guard()),
            _ => Err(Cause::OtherBytes { seq }),
        };
        let win = match replaced {
            Ok(win) => win,
            Err(cause) => return Self::end(current, &mut self.early, cause),
        };
        if let Some(digest) = current
            .digests
            .get_mut((seq.0 - current.base.0 - 1) as usize)
        {
            *digest = record.digest;
        }
        let position = Position {
            generation: current.generation,
            seq,
            chain: record.digest,
        };
        out.push(Applied {
            at,
            position,
            what: What::Won(win),
        });
        Fed::Applied(1)
    }
}
