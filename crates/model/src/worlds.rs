//! The worlds that are looked at, each as a whole.
//!
//! One world with every fault at once would be too big to look at; each of these has some of
//! them together, and all of what can happen between them.

use crate::bounds::Bounds;
use crate::check::{Checked, Limits, check};
use crate::sale::Sale;
use crate::seen::Seen;

/// How long a world takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Size {
    /// Seconds: part of the tests.
    Quick,
    /// All of them within five minutes on two cores.
    Usual,
    /// Minutes each.
    Deep,
}

/// A world with a name.
#[derive(Debug, Clone, Copy)]
pub struct Named {
    /// Short, for the command line.
    pub name: &'static str,
    /// What it covers.
    pub covers: &'static str,
    /// How long it takes.
    pub size: Size,
    /// Its bounds.
    pub bounds: Bounds,
    /// What must happen there, or it would show nothing.
    pub shows: &'static [Seen],
}

const CALM: Bounds = Bounds::of_calls(2);

/// All of them.
pub const WORLDS: [Named; 14] = [
    Named {
        name: "messages",
        covers: "crashes of gateways; publications lost, delayed, reordered and repeated; the close",
        size: Size::Quick,
        bounds: Bounds {
            users: 3,
            stock: 3,
            closes: 1,
            copies: 1,
            restarts: 1,
            mending: true,
            ..Bounds::of_calls(3)
        },
        shows: &[Seen::ToldWon, Seen::SoldOut, Seen::Closed],
    },
    Named {
        name: "recovery",
        covers: "one recovery, paused or ended at any step, without a loss; repeated publications",
        size: Size::Quick,
        bounds: Bounds {
            recoveries: 1,
            copies: 1,
            mending: true,
            ..CALM
        },
        shows: &[Seen::ToldWon, Seen::WonAgain],
    },
    Named {
        name: "forgetful",
        covers: "a Redis that comes back with all, some or none of its data, with and without its \
                 scripts; one recovery",
        size: Size::Quick,
        bounds: Bounds {
            recoveries: 1,
            losses: 1,
            mending: true,
            ..CALM
        },
        shows: &[Seen::ToldWon, Seen::ToldVoid, Seen::Ended, Seen::WonAgain],
    },
    Named {
        name: "database",
        covers: "two order-writers, each a zombie; one loss and one recovery",
        size: Size::Quick,
        bounds: Bounds {
            users: 1,
            gateways: 1,
            recoveries: 1,
            losses: 1,
            database: true,
            ..CALM
        },
        shows: &[Seen::Written, Seen::WonAgain],
    },
    Named {
        name: "failover",
        covers: "a replica that lagged is made the master; the former one carries out calls, and \
                 commands of a recovery, late",
        size: Size::Quick,
        bounds: Bounds {
            recoveries: 1,
            promotions: 1,
            late: 2,
            mending: true,
            ..CALM
        },
        shows: &[Seen::ToldVoid, Seen::WonAgain, Seen::Late],
    },
    Named {
        name: "forgetful-close",
        covers: "as forgetful, and the sale is closed meanwhile",
        size: Size::Usual,
        bounds: Bounds {
            recoveries: 1,
            losses: 1,
            closes: 1,
            mending: true,
            ..CALM
        },
        shows: &[Seen::Closed, Seen::ToldVoid],
    },
    Named {
        name: "forgetful-thrice",
        covers: "as forgetful, with a third call and a third user",
        size: Size::Usual,
        bounds: Bounds {
            users: 3,
            stock: 3,
            recoveries: 1,
            losses: 1,
            ..Bounds::of_calls(3)
        },
        shows: &[Seen::ToldVoid, Seen::Ended, Seen::WonAgain],
    },
    Named {
        name: "forgets-twice",
        covers: "two losses, before, during and after a recovery",
        size: Size::Usual,
        bounds: Bounds {
            recoveries: 1,
            losses: 2,
            ..CALM
        },
        shows: &[Seen::ToldVoid, Seen::Ended, Seen::WonAgain],
    },
    Named {
        name: "two-recoveries",
        covers: "two recoveries at once or one after the other, each paused at any step and \
                 continued, or ended; one loss",
        size: Size::Usual,
        bounds: Bounds {
            gateways: 1,
            recoveries: 2,
            losses: 1,
            mending: true,
            ..CALM
        },
        shows: &[Seen::ToldVoid, Seen::Ended, Seen::Overtaken, Seen::Third],
    },
    Named {
        name: "there-and-back",
        covers: "a replica is made the master and the former one again (A, B, A), each with what it \
                 had at any earlier time; late calls; one recovery",
        size: Size::Usual,
        bounds: Bounds {
            recoveries: 1,
            promotions: 2,
            late: 2,
            mending: true,
            ..CALM
        },
        shows: &[Seen::ToldVoid, Seen::Ended, Seen::WonAgain, Seen::Late],
    },
    Named {
        name: "two-recoveries-failover",
        covers: "two recoveries, a failover, and a late call or command",
        size: Size::Usual,
        bounds: Bounds {
            gateways: 1,
            recoveries: 2,
            promotions: 1,
            late: 1,
            ..CALM
        },
        shows: &[Seen::Overtaken, Seen::Third, Seen::Late],
    },
    Named {
        name: "deep-two-recoveries",
        covers: "as two-recoveries, with two gateways",
        size: Size::Deep,
        bounds: Bounds {
            recoveries: 2,
            losses: 1,
            ..CALM
        },
        shows: &[Seen::Overtaken, Seen::Third],
    },
    Named {
        name: "deep-everything-once",
        covers: "one loss, one recovery, one repetition, one close",
        size: Size::Deep,
        bounds: Bounds {
            recoveries: 1,
            losses: 1,
            copies: 1,
            closes: 1,
            ..CALM
        },
        shows: &[Seen::ToldVoid, Seen::Closed],
    },
    Named {
        name: "deep-there-and-back",
        covers: "as there-and-back, with two recoveries",
        size: Size::Deep,
        bounds: Bounds {
            recoveries: 2,
            promotions: 2,
            late: 2,
            ..CALM
        },
        shows: &[Seen::Overtaken, Seen::Third, Seen::Late],
    },
];

impl Named {
    /// Looks at all of it.
    #[must_use]
    pub fn check(&self, limits: Limits) -> Checked {
        check(
            Sale::<dropgate_domain::FullRule>::new(self.bounds, None),
            limits,
        )
    }
}
