//! What can be done to a running installation. Pure: names and numbers, nobody is hurt here.

use std::fmt;

/// What a fault keeps busy: two faults on the same room are not injected at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Room {
    /// A gateway, counted from 0, and its connections.
    Gateway(u8),
    /// The order-writer and its connections.
    OrderWriter,
    /// The watch and its connections.
    Watch,
    /// Master and replica.
    Redis,
    /// A sentinel, counted from 0.
    Sentinel(u8),
    /// The broker.
    Kafka,
    /// The database.
    Postgres,
}

/// When a fault comes in a sale.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Wave {
    /// It stops the sale, or takes something from it: one at a time.
    Heavy,
    /// It goes beside others.
    Light,
}

macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident = $name:literal, $wave:ident $copies:literal, $which:literal, $low:literal..$high:literal;)*) => {
        /// A kind of fault.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Kind { $($(#[$doc])* $kind,)* }

        impl Kind {
            /// All of them, in the order of the table.
            pub const ALL: &'static [Self] = &[$(Self::$kind,)*];

            /// What it is called in schedules, timelines and counts.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $(Self::$kind => $name,)* }
            }

            /// When it comes.
            #[must_use]
            pub fn wave(self) -> Wave {
                match self { $(Self::$kind => Wave::$wave,)* }
            }

            /// How many cards of it are in a deck: what the promises hang on comes more often.
            #[must_use]
            pub fn copies(self) -> usize {
                match self { $(Self::$kind => $copies,)* }
            }

            /// How many of its kind there are to choose from.
            #[must_use]
            pub fn candidates(self) -> u64 {
                match self { $(Self::$kind => $which,)* }
            }

            /// How long it lasts, in milliseconds.
            #[must_use]
            pub fn lasts_ms(self) -> (u64, u64) {
                match self { $(Self::$kind => ($low, $high),)* }
            }
        }
    };
}

kinds! {
    /// The master of Redis is killed; after this time it is started again, as what it then is. Of
    /// three such, the second has lost its disk, and the third comes back with an old one.
    KillMaster = "kill -9 redis master", Heavy 1, 3, 100..4000;
    /// The master stands still, shorter or longer than the sentinels wait.
    PauseMaster = "pause redis master", Heavy 1, 1, 300..4000;
    /// The master ends in order and is started again at once: its scripts are gone.
    RestartMaster = "restart redis master", Heavy 1, 1, 0..0;
    /// The replica lags for so long, the master is killed, the replica promoted: the last writes
    /// are lost. The old master comes back later.
    LaggingKill = "lagging replica promoted, master killed", Heavy 2, 1, 150..700;
    /// The same, but the master only stands still, with calls in its buffers: it goes on when
    /// another has taken its place.
    LaggingPause = "lagging replica promoted, master paused", Heavy 2, 1, 150..700;
    /// The sentinels are told to promote the replica, with nothing wrong.
    Failover = "sentinel failover", Heavy 1, 1, 0..0;
    /// Redis forgets all data and keeps its scripts.
    FlushAll = "FLUSHALL", Heavy 1, 1, 0..0;
    /// Redis forgets its scripts and keeps all data.
    ScriptFlush = "SCRIPT FLUSH", Heavy 1, 1, 0..0;
    /// The replica lags, is promoted, and the old master promoted again after it took over the
    /// replica's data: A to B to A. It has its scripts still, and writes are lost: no fence.
    ThereAndBack = "there and back: A to B to A", Heavy 1, 1, 100..500;
    /// One gateway cannot see the log and alone goes on selling after Redis went back in time
    /// with its scripts kept; then its publications come through, late.
    BlindHealed = "blind gateway outruns the log, publishes late", Heavy 2, 1, 150..500;
    /// The same, but it is killed before it could publish: others find its events in the outbox.
    BlindKilled = "blind gateway outruns the log, is killed", Heavy 2, 1, 150..500;
    /// All connections of clients to the master are closed, again and again.
    CutRedis = "cut connections to redis", Heavy 1, 1, 300..2000;
    /// Redis answers nobody for so long, and then everybody.
    StallRedis = "stall redis", Heavy 1, 1, 300..1800;
    /// The broker is killed and started again.
    KillKafka = "kill -9 kafka", Heavy 1, 1, 0..500;
    /// The broker stands still.
    PauseKafka = "pause kafka", Heavy 1, 1, 300..3000;

    /// A gateway is killed and started again after this time.
    KillGateway = "kill -9 gateway", Light 1, 2, 200..1500;
    /// A gateway stands still.
    PauseGateway = "pause gateway", Light 1, 2, 500..4000;
    /// A gateway ends in order and is started again.
    RestartGateway = "restart gateway", Light 1, 2, 0..0;
    /// One gateway finds no connection to the log.
    CutKafka = "cut gateway from kafka", Light 1, 2, 500..3000;
    /// One gateway's connections to the log carry nothing.
    BlackholeKafka = "blackhole gateway from kafka", Light 1, 2, 500..3000;
    /// One gateway's connections to the log are slow.
    DelayKafka = "delay gateway to kafka", Light 1, 2, 1000..4000;
    /// The order-writer is killed and started again.
    KillWriter = "kill -9 order-writer", Light 1, 1, 200..2000;
    /// The order-writer stands still.
    PauseWriter = "pause order-writer", Light 1, 1, 500..4000;
    /// The order-writer ends in order and is started again.
    RestartWriter = "restart order-writer", Light 1, 1, 0..0;
    /// The order-writer's connections to the database are cut.
    CutDatabase = "cut order-writer from postgres", Light 1, 1, 500..3000;
    /// The order-writer's connections to the database are slow.
    DelayDatabase = "delay order-writer to postgres", Light 1, 1, 1000..4000;
    /// The watch is killed and started again.
    KillWatch = "kill -9 watch", Light 1, 1, 200..2000;
    /// The watch stands still.
    PauseWatch = "pause watch", Light 1, 1, 500..4000;
    /// The watch ends in order and is started again.
    RestartWatch = "restart watch", Light 1, 1, 0..0;
    /// The replica is killed and started again.
    KillReplica = "kill -9 redis replica", Light 1, 1, 200..2000;
    /// The replica stands still: it lags.
    PauseReplica = "pause redis replica", Light 1, 1, 300..3000;
    /// A sentinel is killed and started again.
    KillSentinel = "kill -9 sentinel", Light 1, 3, 200..3000;
    /// A sentinel stands still.
    PauseSentinel = "pause sentinel", Light 1, 3, 500..4000;
    /// The database is killed and started again.
    KillPostgres = "kill -9 postgres", Light 1, 1, 200..2000;
    /// The database stands still.
    PausePostgres = "pause postgres", Light 1, 1, 500..4000;
    /// A gateway's clock jumps by five minutes.
    ShiftGateway = "shift clock of gateway", Light 1, 2, 1000..4000;
    /// The watch's clock jumps by five minutes.
    ShiftWatch = "shift clock of watch", Light 1, 1, 1000..4000;
}

impl Kind {
    /// Whether it may make a Redis forget writes, or two take themselves for the master.
    #[must_use]
    pub fn forgets_writes(self) -> bool {
        matches!(
            self,
            Self::KillMaster
                | Self::PauseMaster
                | Self::RestartMaster
                | Self::LaggingKill
                | Self::LaggingPause
                | Self::Failover
                | Self::FlushAll
                | Self::ThereAndBack
                | Self::BlindHealed
                | Self::BlindKilled
                | Self::StallRedis
        )
    }
}

/// Of the ways in which the master is killed, the one that takes its disk.
pub const LOSES_DISK: u8 = 1;
/// The one that gives it the disk that it had when the fault began.
pub const OLD_DISK: u8 = 2;

/// One fault: a kind, on one of those that there are, for so long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// What is done.
    pub kind: Kind,
    /// To which of them, counted from 0.
    pub which: u8,
    /// For how long, in milliseconds.
    pub lasts_ms: u64,
}

impl Fault {
    /// What it keeps busy.
    #[must_use]
    pub fn rooms(&self) -> Vec<Room> {
        use Kind as K;
        match self.kind {
            K::KillMaster
            | K::PauseMaster
            | K::RestartMaster
            | K::LaggingKill
            | K::LaggingPause
            | K::Failover
            | K::FlushAll
            | K::ScriptFlush
            | K::ThereAndBack
            | K::CutRedis
            | K::StallRedis
            | K::KillReplica
            | K::PauseReplica => vec![Room::Redis],
            K::BlindHealed | K::BlindKilled => {
                vec![
                    Room::Gateway(0),
                    Room::Gateway(1),
                    Room::Watch,
                    Room::Redis,
                    Room::Kafka,
                ]
            }
            K::KillKafka | K::PauseKafka => vec![Room::Kafka],
            K::KillGateway | K::PauseGateway | K::RestartGateway | K::ShiftGateway => {
                vec![Room::Gateway(self.which)]
            }
            K::CutKafka | K::BlackholeKafka | K::DelayKafka => vec![Room::Gateway(self.which)],
            K::KillWriter
            | K::PauseWriter
            | K::RestartWriter
            | K::CutDatabase
            | K::DelayDatabase => vec![Room::OrderWriter],
            K::KillWatch | K::PauseWatch | K::RestartWatch | K::ShiftWatch => vec![Room::Watch],
            K::KillSentinel | K::PauseSentinel => vec![Room::Sentinel(self.which)],
            K::KillPostgres | K::PausePostgres => vec![Room::Postgres],
        }
    }

    /// Of clocks: whether it is ahead of the others, rather than behind.
    #[must_use]
    pub fn is_ahead(&self) -> bool {
        self.lasts_ms.is_multiple_of(2)
    }

    /// Whether both may be going on at once.
    #[must_use]
    pub fn goes_beside(&self, other: &Self) -> bool {
        let theirs = other.rooms();
        !self.rooms().iter().any(|room| theirs.contains(room))
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind.name())?;
        match self.kind {
            Kind::KillMaster if self.which == LOSES_DISK => f.write_str(" and lose its disk")?,
            Kind::KillMaster if self.which == OLD_DISK => {
                f.write_str(" and restore an old disk")?
            }
            Kind::KillMaster => {}
            Kind::ShiftGateway | Kind::ShiftWatch => {
                if self.kind == Kind::ShiftGateway {
                    write!(f, " {}", self.which + 1)?;
                }
                f.write_str(if self.is_ahead() { " ahead" } else { " behind" })?;
            }
            kind if kind.candidates() > 1 => write!(f, " {}", self.which + 1)?,
            _ => {}
        }
        if self.lasts_ms > 0 {
            write!(f, ", {} ms", self.lasts_ms)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_different() {
        let mut names: Vec<_> = Kind::ALL.iter().map(|kind| kind.name()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Kind::ALL.len());
    }

    #[test]
    fn a_fault_reads_as_a_sentence() {
        let fault = |kind, which, lasts_ms| Fault {
            kind,
            which,
            lasts_ms,
        };
        let text = fault(Kind::PauseGateway, 1, 700).to_string();
        assert_eq!(text, "pause gateway 2, 700 ms");
        assert_eq!(fault(Kind::FlushAll, 0, 0).to_string(), "FLUSHALL");
    }
}
