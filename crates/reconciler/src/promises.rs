//! The promises, stated over what was compared. Pure.

use crate::diff::{Compared, Kind, Source};
use crate::snapshot::Tally;
use dropgate_domain::Phase;
use dropgate_domain::promise::Promise;
use dropgate_engine::Ledger;
use serde::Serialize;
use std::collections::BTreeMap;

/// One promise, with its numbers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Stated {
    /// Its name.
    pub name: &'static str,
    /// Whether there was anything to check it by.
    pub checked: bool,
    /// Whether nothing was found against it.
    pub holds: bool,
    /// By what it was checked, or why it was not.
    pub note: String,
    /// Its numbers.
    pub numbers: BTreeMap<&'static str, u64>,
}

/// What breaks promise 3: what the log holds is not where it should be, or not as it was told.
const WINS_LOST: &[Kind] = &[
    Kind::MissingRow,
    Kind::UnwrittenRow,
    Kind::ChangedUser,
    Kind::ChangedUnit,
    Kind::ChangedClaim,
    Kind::UnreadableRow,
    Kind::RedisClaimMissing,
    Kind::RedisClaimChanged,
    Kind::RedisUnreadable,
    Kind::ToldWinnerAbsent,
    Kind::ToldUserDiffers,
    Kind::ToldUnitDiffers,
    Kind::ToldVoidButWon,
];

/// States every promise.
#[must_use]
pub fn state(ledger: &Ledger, limit: u32, compared: &Compared, tally: Tally) -> Vec<Stated> {
    vec![
        never_oversell(ledger, compared),
        per_user_limit(ledger, limit, compared),
        told_win_kept(ledger, compared),
        never_undersell(ledger, compared),
        books_balance(ledger, compared),
        fail_closed(compared, tally),
        fair(),
    ]
}

fn stated<const N: usize>(
    promise: Promise,
    holds: bool,
    note: impl Into<String>,
    numbers: [(&'static str, u64); N],
) -> Stated {
    Stated {
        name: promise.as_str(),
        checked: true,
        holds,
        note: note.into(),
        numbers: BTreeMap::from(numbers),
    }
}

fn never_oversell(ledger: &Ledger, compared: &Compared) -> Stated {
    let kinds = [Kind::LogOversold, Kind::RowOversold, Kind::RedisOversold];
    let broken = compared.found.count_of(&kinds);
    stated(
        Promise::NeverOversell,
        broken == 0,
        "in log, database and Redis, each unit is one of the stock and has one owner",
        [
            ("stock", ledger.counts().stock),
            ("log_wins", ledger.wins().len() as u64),
            ("database_orders", compared.rows),
            ("redis_claims", compared.claims),
            ("violations", broken),
        ],
    )
}

fn per_user_limit(ledger: &Ledger, limit: u32, compared: &Compared) -> Stated {
    let kinds = [Kind::LogOverLimit, Kind::RowOverLimit, Kind::RedisOverLimit];
    let broken = compared.found.count_of(&kinds);
    stated(
        Promise::PerUserLimit,
        broken == 0,
        "in log, database and Redis, each user has at most the limit",
        [
            ("limit", u64::from(limit)),
            ("users", ledger.users().count() as u64),
            ("violations", broken),
        ],
    )
}

fn told_win_kept(ledger: &Ledger, compared: &Compared) -> Stated {
    let broken = compared.found.count_of(WINS_LOST);
    let mut stated = stated(
        Promise::ToldWinKept,
        broken == 0,
        match compared.told {
            Some(_) => {
                "every win of the log has its order and its claim in Redis, and every told one is among them"
            }
            None => {
                "every win of the log has its order and its claim in Redis; clients were not asked (--told)"
            }
        },
        [
            ("wins", ledger.wins().len() as u64),
            ("with_order", compared.wins_with_row),
            ("with_redis_claim", compared.wins_with_claim),
            ("violations", broken),
        ],
    );
    if let Some(told) = compared.told {
        let numbers = [("told_answers", told.wins), ("told_winners", told.winners)];
        stated.numbers.extend(numbers);
    }
    stated
}

fn never_undersell(ledger: &Ledger, compared: &Compared) -> Stated {
    let kinds = [Kind::RedisUnitLost, Kind::RedisAhead];
    let broken = compared.found.count_of(&kinds);
    let counts = ledger.counts();
    let (settled, note) = match ledger.phase() {
        Phase::Halted(halted) => (false, format!("not settled: halted ({})", halted.reason)),
        Phase::Ended(cause) => (
            false,
            format!("not settled: its generation ended ({cause})"),
        ),
        Phase::Stopped(stop) => (false, format!("not settled: {stop}")),
        Phase::NotOpened => (false, "the sale has not been opened".to_owned()),
        _ if ledger.claimable() == 0 => (true, "every unit is sold".to_owned()),
        Phase::Closed => {
            let note = format!(
                "closed with {} free units, and nobody waits for one",
                counts.free
            );
            (true, note)
        }
        Phase::Open => {
            let note = format!(
                "open: {} units can be claimed, and nobody waits for one",
                counts.free
            );
            (true, note)
        }
    };
    let numbers = [
        ("stock", counts.stock),
        ("sold", counts.sold),
        ("free", counts.free),
        ("lost", broken),
    ];
    Stated {
        checked: settled,
        ..stated(Promise::NeverUndersell, broken == 0, note, numbers)
    }
}

fn books_balance(ledger: &Ledger, compared: &Compared) -> Stated {
    let found = &compared.found;
    let (log, database, redis) = (
        found.count_in(Source::Log),
        found.count_in(Source::Database),
        found.count_in(Source::Redis),
    );
    let counts = ledger.counts();
    stated(
        Promise::BooksBalance,
        log + database + redis == 0,
        "stock = sold + held + free, and log, database and Redis agree",
        [
            ("stock", counts.stock),
            ("sold", counts.sold),
            ("held", counts.held),
            ("free", counts.free),
            ("log_differences", log),
            ("database_differences", database),
            ("redis_differences", redis),
        ],
    )
}

fn fail_closed(compared: &Compared, tally: Tally) -> Stated {
    let told_falsely = [
        Kind::ToldWinnerAbsent,
        Kind::ToldUserDiffers,
        Kind::ToldUnitDiffers,
        Kind::ToldVoidButWon,
    ];
    let broken = compared.found.count_of(&told_falsely);
    let asked = compared.told.is_some();
    let note = if asked {
        "nobody was told what the log does not hold"
    } else {
        "only clients know what they were told: give --told"
    };
    let numbers = [
        ("void_records", tally.void),
        ("ended_generations", tally.ended),
        ("halts", tally.halts),
        ("foreign_records", tally.foreign),
        ("violations", broken),
    ];
    Stated {
        checked: asked,
        ..stated(Promise::FailClosed, broken == 0, note, numbers)
    }
}

fn fair() -> Stated {
    Stated {
        checked: false,
        ..stated(
            Promise::Fair,
            true,
            "not applicable: there are no places in a line yet",
            [],
        )
    }
}
