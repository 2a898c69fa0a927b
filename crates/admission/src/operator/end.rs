//! Ending a generation: out of use, and later out of memory.

use super::{Operator, unreadable};
use crate::error::CallError;
use crate::keys::Scope;
use crate::link::Item;

impl Operator {
    /// Takes the marker from a generation's state, so that every script answers that it is
    /// missing: no claim of it gets a unit any more. Before that it leaves a word that keeps the
    /// generation from becoming current, were somebody still building it. Given again it does
    /// nothing. False when Redis has no such state.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn halt(&self, scope: &Scope) -> Result<bool, CallError> {
        let halted = [scope.keys().state.as_str(), "halted", "1"];
        self.command(scope.keys().slot, "HSET", &halted).await?;
        match self
            .command(scope.keys().slot, "HDEL", &[&scope.keys().state, "marker"])
            .await?
        {
            Item::Int(removed) => Ok(removed > 0),
            _ => Err(unreadable("HDEL")),
        }
    }

    /// Deletes a generation's keys, if it is before the current one of its log; tells whether it
    /// did. Redis frees them in the background.
    ///
    /// What is current is asked first, in a call of its own. The generation cannot become current
    /// in between: within a log `current` only ever goes forward, so what was before it stays so.
    /// Where nothing is current, or a generation of another log, that does not hold, and nothing
    /// is deleted.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn delete(&self, scope: &Scope) -> Result<bool, CallError> {
        let current = self.current(scope.sale()).await?;
        if !current.is_some_and(|tag| scope.is_before(&tag)) {
            return Ok(false);
        }
        let keys = scope.keys();
        let old = [&keys.state, &keys.claims, &keys.outbox];
        self.command(keys.slot, "UNLINK", &old).await.map(|_| true)
    }
}
