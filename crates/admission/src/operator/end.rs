//! Ending a generation: out of use, and later out of memory.

use super::{Operator, unreadable};
use crate::error::CallError;
use crate::keys::Scope;
use crate::link::Item;

impl Operator {
    /// Takes the marker from a generation's state, so that every script answers that it is
    /// missing: no claim of it gets a unit any more. One command; given again it does nothing.
    /// False when Redis has no such state.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn halt(&self, scope: &Scope) -> Result<bool, CallError> {
        match self.command("HDEL", &[&scope.keys().state, "marker"]).await? {
            Item::Int(removed) => Ok(removed > 0),
            _ => Err(unreadable("HDEL")),
        }
    }

    /// Deletes a generation's keys, unless it is the current one; tells whether it did. That it is
    /// not current is asked first. It cannot become current in between: `current` only ever goes
    /// forward, so the caller names a generation that is older than one that was current.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn delete(&self, scope: &Scope) -> Result<bool, CallError> {
        if self.current(scope.sale()).await?.as_deref() == Some(scope.tag()) {
            return Ok(false);
        }
        let keys = scope.keys();
        let old = [&keys.state, &keys.claims, &keys.outbox];
        self.command("UNLINK", &old).await.map(|_| true)
    }
}
