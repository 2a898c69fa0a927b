//! A generation of a sale's state, as the log knows it.

use super::outcome::Cause;
use crate::event::{Halted, ScriptHash, Started};
use crate::ids::{Digest, Generation, Identity, Nonce, Seq};
use std::num::NonZeroU32;

/// A generation, as named by its `Started` record.
#[derive(Debug, Clone)]
pub struct Incarnation {
    pub(super) generation: Generation,
    pub(super) started: Started,
    pub(super) base: Seq,
    /// The digests of this generation's applied events, from `base + 1` on: what tells a
    /// duplicate from a second opinion.
    pub(super) digests: Vec<Digest>,
    /// Of its `Started` record: where its chain begins.
    pub(super) root: Digest,
    pub(super) halted: Option<Halted>,
    pub(super) ended: Option<Cause>,
}

impl Incarnation {
    /// Its number.
    #[must_use]
    pub fn generation(&self) -> Generation {
        self.generation
    }

    /// Who wrote its `Started` record knows it by this.
    #[must_use]
    pub fn identity(&self) -> Identity {
        self.started.identity
    }

    /// The nonce of its scripts.
    #[must_use]
    pub fn nonce(&self) -> Nonce {
        self.started.nonce
    }

    /// Its scripts.
    #[must_use]
    pub fn scripts(&self) -> &[ScriptHash] {
        &self.started.scripts
    }

    /// How many of its events may be in flight.
    #[must_use]
    pub fn window(&self) -> NonZeroU32 {
        self.started.window
    }

    /// The seq before its first event.
    #[must_use]
    pub fn base(&self) -> Seq {
        self.base
    }

    pub(super) fn applied(&self) -> Seq {
        Seq(self.base.0 + self.digests.len() as u64)
    }

    /// The digest that the next event must name.
    pub(super) fn chain(&self) -> Digest {
        self.digests.last().copied().unwrap_or(self.root)
    }
}
