//! How much of everything there is in a checked world, and what is left out of the protocol.

/// The most users a world can have.
pub const USERS_MAX: usize = 3;
/// The most recoveries a world can have.
pub const RECOVERIES_MAX: usize = 3;

/// The bounds of a world: every behaviour within them is looked at. What is 0 does not happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Users, at most [`USERS_MAX`]. Each clicks as often as the calls allow, at any gateway.
    pub users: u8,
    /// Units for sale.
    pub stock: u8,
    /// Events that may be in flight.
    pub window: u8,
    /// Gateways, 1 or 2.
    pub gateways: u8,
    /// Calls that give a unit, in all.
    pub calls: u8,
    /// Recoveries, at most [`RECOVERIES_MAX`], each begun at any time and for no reason, all at
    /// once if they like.
    pub recoveries: u8,
    /// Times that a single Redis comes back with less than it had: with the data of its disk,
    /// which were written there at any earlier time, or with none; with its scripts or without.
    pub losses: u8,
    /// Times that the replica, with what it had at any earlier time, is made the master.
    pub promotions: u8,
    /// Calls and commands that a former master still carries out.
    pub late: u8,
    /// Publications that come to the log once more than they were made.
    pub copies: u8,
    /// Times that the sale is closed.
    pub closes: u8,
    /// Times that a gateway ends and another begins in its place, at the opening.
    pub restarts: u8,
    /// Whether two order-writers write to the database; either may be a zombie.
    pub database: bool,
    /// Whether each state is also asked if the sale can be mended from there.
    pub mending: bool,
}

impl Bounds {
    /// Two gateways, two users and two units, and nothing that goes wrong.
    #[must_use]
    pub const fn of_calls(calls: u8) -> Self {
        Self {
            users: 2,
            stock: 2,
            window: 2,
            gateways: 2,
            calls,
            recoveries: 0,
            losses: 0,
            promotions: 0,
            late: 0,
            copies: 0,
            closes: 0,
            restarts: 0,
            database: false,
            mending: false,
        }
    }
}

/// A part of the protocol that can be left out, besides those of the ledger's rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Off {
    /// Nobody compares Redis with the log, and nobody publishes again what is left behind.
    Tip,
    /// A generation is made current without a look whether it was built.
    BuildMarker,
    /// A generation is made current whatever is current.
    SwitchCompare,
    /// An order-writer's transaction does not compare the position that it moves.
    DatabaseCompare,
    /// "Won" is told when Redis has answered.
    TellAtReply,
    /// "Won" is told when the broker has acknowledged the event.
    TellAtAck,
    /// "Sold out" is told when Redis says so.
    ExactSoldOut,
    /// "Void" is told when Redis has no such event any more.
    TrueVoid,
    /// A recovery publishes the outbox without halting the generation first.
    HaltFirst,
    /// A recovery takes no care of a generation that is being built still.
    HaltUnbuilt,
    /// A recovery publishes the outbox only if it is the one that halted the generation.
    TakeOver,
    /// A recovery takes what it had read before it halted the generation for what the log has.
    ReadAfterHalt,
    /// A recovery counts the claims that it wrote before it writes the state; the switch does
    /// not.
    SwitchCounts,
    /// A gateway whose script is not known to Redis loads it.
    Fence,
    /// The script does not count what is in flight.
    Window,
}
