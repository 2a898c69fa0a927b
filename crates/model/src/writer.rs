//! The modelled database, and two order-writers of which either may be a zombie.

use crate::bounds::Off;
use crate::sale::Sale;
use crate::state::State;
use dropgate_domain::Rule;

impl<R: Rule> Sale<R> {
    pub(crate) fn look_up(&self, state: &mut State, writer: u8) {
        state.database.writers[usize::from(writer)].expects = state.database.at;
    }

    /// One transaction: moves the position from what the writer takes it for to what it has
    /// applied, and inserts the rows in between.
    pub(crate) fn write(&self, state: &mut State, writer: u8) -> Option<()> {
        let database = &mut state.database;
        let it = database.writers[usize::from(writer)];
        let folded = self.folded(self.history.prefix(state.log, it.read));
        let reached = (folded.generation, folded.applied);
        (reached > it.expects).then_some(())?;
        if it.expects != database.at && !self.off(Off::DatabaseCompare) {
            // Somebody else has moved it: nothing is written, and the position is looked up.
            database.writers[usize::from(writer)].expects = database.at;
            return Some(());
        }
        let rows = (it.expects.1 + 1..=reached.1).fold(0, |rows, seq| rows | 1 << seq);
        state.wrong.database |= database.rows & rows != 0 || reached < database.at;
        database.rows |= rows;
        database.at = reached;
        database.writers[usize::from(writer)].expects = reached;
        Some(())
    }

    /// Whether the database holds what the log says through its position, and nothing else.
    pub(crate) fn database_agrees(&self, state: &State) -> bool {
        let rows = (1..=state.database.at.1).fold(0, |rows, seq| rows | 1 << seq);
        !state.wrong.database && state.database.rows == rows
    }
}
