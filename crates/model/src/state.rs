//! A state of the modelled world, and what can happen in it.

use crate::bounds::RECOVERIES_MAX;
use crate::history::{GENERATIONS, LogId};
use crate::records::RecordId;
use crate::redis::Server;

/// Recoveries of a world; the last one only mends.
pub(crate) const SLOTS: usize = RECOVERIES_MAX + 1;
/// The slot of the recovery that mends.
pub(crate) const MENDER: u8 = RECOVERIES_MAX as u8;
/// Publications on their way at once.
pub(crate) const FLYING: usize = 4;

/// A state of the world: everything that there is, and what has been told.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct State {
    pub(crate) log: LogId,
    /// How many records each gateway has read; the one that has read more comes first, for they
    /// are alike.
    pub(crate) readers: [u8; 2],
    /// The most that any gateway ever had read: what that shows has been told.
    pub(crate) told_to: u8,
    /// Two servers; with a single Redis the second one is its disk.
    pub(crate) servers: [Server; 2],
    /// Which server is the master.
    pub(crate) master: u8,
    /// The other one takes itself for the master, too.
    pub(crate) stray: bool,
    /// What publishers are about to append, in order.
    pub(crate) flying: [RecordId; FLYING],
    pub(crate) recoveries: [Recovery; SLOTS],
    pub(crate) spent: Spent,
    /// Generations of which Redis lost writes, a bit each.
    pub(crate) lossy: u8,
    /// Of each generation: the highest seq that was ever given.
    pub(crate) given: [u8; GENERATIONS],
    pub(crate) told: Told,
    pub(crate) wrong: Wrong,
    pub(crate) database: Database,
}

/// What has happened of what is bounded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(crate) struct Spent {
    pub users: u8,
    pub calls: u8,
    pub losses: u8,
    pub syncs: u8,
    pub promotions: u8,
    pub late: u8,
    pub copies: u8,
    pub closes: u8,
    pub restarts: u8,
}

/// What was told on other grounds than what a gateway's ledger shows: nothing, in the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(crate) struct Told {
    pub won: [RecordId; 3],
    pub void: [RecordId; 2],
    /// In which generation "sold out" was; 0: in none.
    pub sold_out: u8,
}

/// What went wrong in one step and cannot be seen from the state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(crate) struct Wrong {
    /// A generation went live that was not as the ledger has it.
    pub live: bool,
    /// `current` went back.
    pub current: bool,
    /// The database refused a row, or its position went back.
    pub database: bool,
}

/// How far a recovery is: its next step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(crate) enum Step {
    #[default]
    Begin,
    /// Leave a word in the generation's state that keeps it from becoming current.
    Bar,
    /// Delete the marker of the generation's state.
    Halt,
    /// Publish the next event of the outbox, until the log has all that hang on its chain.
    Publish,
    /// Append the record of the next generation.
    Start,
    /// Read the log to it; load the scripts.
    Load,
    /// Write the claims, command by command.
    Claims,
    /// Count them; only where the switch does not.
    Count,
    /// Write the state and its marker.
    State,
    /// Make it current.
    Switch,
    /// It has done its work, or left.
    Left,
}

/// A recovery.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(crate) struct Recovery {
    pub step: Step,
    /// The generation that it ends.
    pub generation: u8,
    /// How much of the log it had read when it began; only where that matters.
    pub read: u8,
}

/// The database, and who writes to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(crate) struct Database {
    /// The position: generation and seq.
    pub at: (u8, u8),
    /// Rows by their seq, a bit each.
    pub rows: u8,
    pub writers: [Writer; 2],
}

/// An order-writer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(crate) struct Writer {
    /// How many records it has read.
    pub read: u8,
    /// What it takes for the database's position.
    pub expects: (u8, u8),
}

/// Something that happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// A gateway calls a script for a user; the reply comes, or is lost.
    Claim {
        /// Which server runs it.
        server: u8,
        /// Which gateway.
        reader: u8,
        /// For whom.
        user: u8,
        /// Whether the reply comes back. The event is published then.
        replied: bool,
    },
    /// A gateway closes the sale.
    Close {
        /// Which server runs it.
        server: u8,
        /// Which gateway.
        reader: u8,
        /// Whether the reply comes back. The event is published then.
        replied: bool,
    },
    /// A gateway reads the tip and publishes again what is left behind, this event at least.
    Relay {
        /// Which server is asked.
        server: u8,
        /// Which gateway.
        reader: u8,
        /// How many events there are after it.
        nth: u8,
    },
    /// A publication reaches the log; its copy stays on the way, or not.
    Land {
        /// Which publication.
        place: u8,
        /// Whether it will come once more.
        copied: bool,
    },
    /// A gateway reads a record, and tells whoever waits what it shows.
    Read {
        /// Which gateway.
        reader: u8,
    },
    /// A gateway ends, and another begins in its place.
    Restart {
        /// Which gateway.
        reader: u8,
    },
    /// A recovery takes its next step.
    Recover {
        /// Which recovery.
        slot: u8,
        /// Which server it has to do with.
        server: u8,
    },
    /// The disk, or the replica, has all that the master has.
    Sync,
    /// The single Redis comes back.
    Lose {
        /// With what its disk has, or with nothing.
        emptied: bool,
        /// With its scripts.
        scripts: bool,
    },
    /// The replica becomes the master.
    Promote,
    /// An order-writer looks up the position that it starts from.
    LookUp {
        /// Which writer.
        writer: u8,
    },
    /// An order-writer reads a record.
    Follow {
        /// Which writer.
        writer: u8,
    },
    /// An order-writer writes what it has applied.
    Write {
        /// Which writer.
        writer: u8,
    },
    /// Only without the true void: a gateway tells "void" because Redis has no such event.
    TellVoid {
        /// Which publication.
        place: u8,
    },
    /// Only without the exact sold out: a gateway tells "sold out" because Redis says so.
    TellSoldOut {
        /// Which gateway.
        reader: u8,
    },
}
