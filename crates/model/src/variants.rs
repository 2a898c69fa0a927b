//! What each mechanism is for: the world without it, and the property that breaks there.

use crate::bounds::{Bounds, Off};
use crate::check::{Checked, Limits, check, find};
use crate::properties::Must;
use crate::sale::Sale;
use dropgate_domain::{FullRule, Rule};

/// A mechanism.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Mechanism {
    /// The first record with a seq is its event.
    FirstWins,
    /// An event applies on the digest of the one before it.
    Chain,
    /// The chain, where the guard is left out as well.
    ChainAndGuard,
    /// What comes early waits.
    StrictOrder,
    /// A generation's events count until the next one begins.
    GenerationCut,
    /// A part besides the ledger's rule.
    Part(Off),
}

/// A mechanism, the property that it carries, and the bounds within which leaving it out shows.
#[derive(Debug, Clone, Copy)]
pub struct Variant {
    /// What is left out.
    pub without: Mechanism,
    /// In a few words.
    pub name: &'static str,
    /// What breaks.
    pub breaks: Must,
    /// Where it shows.
    pub bounds: Bounds,
}

const CALM: Bounds = Bounds::of_calls(2);
const LOSS: Bounds = Bounds { losses: 1, ..CALM };
const RECOVERY: Bounds = Bounds {
    recoveries: 1,
    ..CALM
};
const LOSS_AND_RECOVERY: Bounds = Bounds {
    losses: 1,
    ..RECOVERY
};
const TWO_RECOVERIES: Bounds = Bounds {
    recoveries: 2,
    ..CALM
};

/// Every mechanism with its counterexample.
pub const VARIANTS: [Variant; 20] = [
    variant(
        Mechanism::FirstWins,
        "first record wins",
        Must::ToldWinKept,
        LOSS,
    ),
    variant(
        Mechanism::Chain,
        "chain",
        Must::GuardNeverNeeded,
        Bounds { calls: 3, ..LOSS },
    ),
    variant(
        Mechanism::ChainAndGuard,
        "chain and guard",
        Must::PerUserLimit,
        Bounds { calls: 3, ..LOSS },
    ),
    variant(
        Mechanism::StrictOrder,
        "strict order",
        Must::NoVoidWithoutLoss,
        CALM,
    ),
    variant(
        Mechanism::GenerationCut,
        "generation cut",
        Must::NoVoidWithoutLoss,
        RECOVERY,
    ),
    part(
        Off::Tip,
        "tip",
        Must::Resolvable,
        Bounds {
            mending: true,
            ..CALM
        },
    ),
    part(
        Off::BuildMarker,
        "build marker",
        Must::LiveAsTheLedger,
        LOSS_AND_RECOVERY,
    ),
    part(
        Off::SwitchCompare,
        "compare-and-set of the switch",
        Must::CurrentNeverBack,
        Bounds {
            losses: 1,
            gateways: 1,
            ..TWO_RECOVERIES
        },
    ),
    part(
        Off::DatabaseCompare,
        "compare-and-set of the database",
        Must::DatabaseAgrees,
        Bounds {
            database: true,
            gateways: 1,
            ..CALM
        },
    ),
    part(
        Off::TellAtReply,
        "tell after apply, at the reply (promise 1)",
        Must::NeverOversell,
        LOSS,
    ),
    part(
        Off::TellAtReply,
        "tell after apply, at the reply (promise 3)",
        Must::ToldWinKept,
        LOSS,
    ),
    part(
        Off::TellAtAck,
        "tell after apply, at the acknowledgement",
        Must::ToldWinKept,
        LOSS,
    ),
    part(
        Off::ExactSoldOut,
        "exact sold out",
        Must::SoldOutIsTrue,
        Bounds {
            stock: 1,
            ..LOSS_AND_RECOVERY
        },
    ),
    part(Off::TrueVoid, "true void", Must::VoidIsTrue, LOSS),
    part(
        Off::Window,
        "window",
        Must::NoVoidWithoutLoss,
        Bounds { window: 1, ..CALM },
    ),
    part(
        Off::HaltFirst,
        "halt before the outbox is read",
        Must::NoVoidWithoutLoss,
        RECOVERY,
    ),
    part(
        Off::TakeOver,
        "take over what another recovery left",
        Must::NoVoidWithoutLoss,
        TWO_RECOVERIES,
    ),
    part(
        Off::ReadAfterHalt,
        "read the log after the halt",
        Must::NoVoidWithoutLoss,
        RECOVERY,
    ),
    part(
        Off::HaltUnbuilt,
        "bar what is not built yet",
        Must::NoVoidWithoutLoss,
        TWO_RECOVERIES,
    ),
    part(
        Off::SwitchCounts,
        "the switch counts the claims",
        Must::LiveAsTheLedger,
        LOSS_AND_RECOVERY,
    ),
];

const fn variant(without: Mechanism, name: &'static str, breaks: Must, bounds: Bounds) -> Variant {
    Variant {
        without,
        name,
        breaks,
        bounds,
    }
}

const fn part(off: Off, name: &'static str, breaks: Must, bounds: Bounds) -> Variant {
    variant(Mechanism::Part(off), name, breaks, bounds)
}

macro_rules! without {
    ($($name:ident: $($part:ident),+;)+) => {$(
        struct $name;
        impl Rule for $name {
            $(fn $part() -> bool { false })+
        }
    )+};
}

without! {
    LastWins: first_wins;
    Unchained: chain;
    UnchainedUnguarded: chain, guard;
    Hasty: strict_order;
    Uncut: generation_cut;
    Unguarded: guard;
}

impl Variant {
    /// Looks for a shortest way to break the property without the mechanism.
    #[must_use]
    pub fn find(&self, limits: Limits) -> Checked {
        fn by<R: Rule + 'static>(it: &Variant, off: Option<Off>, limits: Limits) -> Checked {
            find(|| Sale::<R>::new(it.bounds, off), it.breaks, limits)
        }
        match self.without {
            Mechanism::FirstWins => by::<LastWins>(self, None, limits),
            Mechanism::Chain => by::<Unchained>(self, None, limits),
            Mechanism::ChainAndGuard => by::<UnchainedUnguarded>(self, None, limits),
            Mechanism::StrictOrder => by::<Hasty>(self, None, limits),
            Mechanism::GenerationCut => by::<Uncut>(self, None, limits),
            Mechanism::Part(off) => by::<FullRule>(self, Some(off), limits),
        }
    }
}

/// Looks at the bounds without the ledger's guard: that no win is ever refused by it alone is a
/// theorem of the other parts.
#[must_use]
pub fn check_unguarded(bounds: Bounds, limits: Limits) -> Checked {
    check(Sale::<Unguarded>::new(bounds, None), limits)
}
