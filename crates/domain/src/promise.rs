//! The promises as pure functions: the ledger's self-check, the reconciler's report and the
//! tests all ask these, so that a promise has one meaning.

use crate::ids::{Unit, UserId};
use crate::ledger::Counts;
use std::collections::HashMap;
use std::fmt;

/// What Dropgate promises about a sale.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Promise {
    /// At no seq do more live wins exist than units, and no unit has two live owners.
    NeverOversell,
    /// No user has more live wins than the sale's limit.
    PerUserLimit,
    /// What was told to a user as won stays theirs.
    ToldWinKept,
    /// After the sale every unit is sold, or free with nobody waiting for it.
    NeverUndersell,
    /// stock = sold + held + free, and Redis, log and database agree.
    BooksBalance,
    /// When any of this cannot be guaranteed the answer is "not now", never a guess.
    FailClosed,
    /// Places in line are served in order, and the draw can be verified.
    Fair,
}

impl Promise {
    /// The promise's name in reports and metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NeverOversell => "never_oversell",
            Self::PerUserLimit => "per_user_limit",
            Self::ToldWinKept => "told_win_kept",
            Self::NeverUndersell => "never_undersell",
            Self::BooksBalance => "books_balance",
            Self::FailClosed => "fail_closed",
            Self::Fair => "fair",
        }
    }
}

impl fmt::Display for Promise {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A promise that does not hold, and by what.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{promise}: {detail}")]
pub struct Broken {
    /// Which.
    pub promise: Promise,
    /// What was found, with numbers.
    pub detail: String,
}

fn broken(promise: Promise, detail: String) -> Broken {
    Broken { promise, detail }
}

/// Promise 1 over the live wins: each unit is one of the stock, and has one owner.
pub fn never_oversell(stock: u64, units: impl IntoIterator<Item = Unit>) -> Result<(), Broken> {
    let mut seen = std::collections::HashSet::new();
    for unit in units {
        if unit.0 == 0 || unit.0 > stock {
            let detail = format!("unit {unit} is not one of {stock}");
            return Err(broken(Promise::NeverOversell, detail));
        }
        if !seen.insert(unit) {
            let detail = format!("unit {unit} has two live owners");
            return Err(broken(Promise::NeverOversell, detail));
        }
    }
    Ok(())
}

/// Promise 2 over the owners of the live wins.
pub fn per_user_limit<'a>(
    limit: u32,
    owners: impl IntoIterator<Item = &'a UserId>,
) -> Result<(), Broken> {
    let mut held: HashMap<&UserId, u32> = HashMap::new();
    for user in owners {
        let wins = held.entry(user).or_default();
        *wins += 1;
        if *wins > limit {
            // The user is not named: a report is read by more people than may know them.
            let detail = format!("a user has {wins} live wins, the limit is {limit}");
            return Err(broken(Promise::PerUserLimit, detail));
        }
    }
    Ok(())
}

/// Promise 5 within one source: stock = sold + held + free.
pub fn books_balance(counts: &Counts) -> Result<(), Broken> {
    let sum = counts
        .sold
        .checked_add(counts.held)
        .and_then(|sum| sum.checked_add(counts.free));
    if sum == Some(counts.stock) {
        Ok(())
    } else {
        let detail = format!(
            "stock {} is not sold {} + held {} + free {}",
            counts.stock, counts.sold, counts.held, counts.free
        );
        Err(broken(Promise::BooksBalance, detail))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn units(list: &[u64]) -> Vec<Unit> {
        list.iter().copied().map(Unit).collect()
    }

    #[test]
    fn oversell_is_a_unit_out_of_stock_or_owned_twice() {
        assert!(never_oversell(3, units(&[3, 1, 2])).is_ok());
        assert!(never_oversell(0, units(&[])).is_ok());
        assert!(never_oversell(3, units(&[4])).is_err());
        assert!(never_oversell(3, units(&[0])).is_err());
        assert!(never_oversell(3, units(&[1, 2, 1])).is_err());
    }

    #[test]
    fn the_limit_counts_each_user_apart() {
        let (a, b) = (UserId::new("a").unwrap(), UserId::new("A").unwrap());
        assert!(per_user_limit(1, [&a, &b]).is_ok());
        assert!(per_user_limit(1, [&a, &b, &a]).is_err());
        assert!(per_user_limit(2, [&a, &b, &a]).is_ok());
    }

    #[test]
    fn books_that_overflow_do_not_balance() {
        let counts = Counts {
            stock: 1,
            sold: u64::MAX,
            held: 2,
            free: 0,
        };
        assert!(books_balance(&counts).is_err());
    }
}
