//! The database's orders against the wins.

use super::owners::{Marks, Odd, of_claim, over_limit, oversold};
use super::{Diff, Kind, named};
use dropgate_domain::{Position, Win};
use dropgate_store::Order;

/// What is known of the rows.
#[derive(Debug, Default)]
pub(super) struct Rows {
    pub marks: Marks,
    pub count: u64,
    /// Rows of no win that was known when they came.
    unmatched: Vec<Order>,
    odd: Vec<Odd>,
}

impl Diff {
    /// Holds one row against the wins that are known.
    pub fn row(&mut self, wins: &[Win], order: &Order) {
        self.rows.count += 1;
        if !self.try_row(wins, order) {
            // It may be of a win that the ledger has not read yet.
            self.rows.unmatched.push(order.clone());
        }
    }

    /// False when the row is of no win.
    fn try_row(&mut self, wins: &[Win], order: &Order) -> bool {
        let by_claim = of_claim(wins, &order.claim);
        let Some(at) = by_claim.or_else(|| self.index.of_unit(order.unit)) else {
            return false;
        };
        let Some(win) = wins.get(at) else {
            return false;
        };
        let (unit_right, user_right) = (order.unit == win.unit, order.user == win.user);
        if self.rows.marks.there(at) {
            self.found.add(Kind::RowTwice, || named(win));
            self.rows.odd.push(Odd {
                unit: order.unit,
                user: order.user.clone(),
                seq: order.seq,
                unit_right: false,
                user_right: false,
            });
            return true;
        }
        self.rows.marks.mark(at, unit_right, user_right);
        if !unit_right || !user_right {
            self.rows.odd.push(Odd {
                unit: order.unit,
                user: order.user.clone(),
                seq: order.seq,
                unit_right,
                user_right,
            });
        }
        self.fields(win, order);
        true
    }

    fn fields(&mut self, win: &Win, order: &Order) {
        let mut check = |same: bool, kind, is: &dyn Fn() -> String| {
            if !same {
                self.found
                    .add(kind, || format!("{}: the row has {}", named(win), is()));
            }
        };
        check(order.user == win.user, Kind::ChangedUser, &|| {
            "another user".to_owned()
        });
        check(order.unit == win.unit, Kind::ChangedUnit, &|| {
            format!("unit {}", order.unit)
        });
        check(order.claim == win.claim(), Kind::ChangedClaim, &|| {
            format!("claim {}", order.claim)
        });
        check(order.attempt == win.attempt, Kind::ChangedAttempt, &|| {
            format!("attempt {}", order.attempt)
        });
        check(order.key == win.key, Kind::ChangedKey, &|| {
            "another key".to_owned()
        });
        let place = (order.generation, order.seq) == (win.generation, win.seq);
        check(place, Kind::ChangedSeq, &|| {
            format!("generation {}, seq {}", order.generation, order.seq)
        });
        check(order.won_at == win.won_at, Kind::ChangedWonAt, &|| {
            format!("{} ms", order.won_at)
        });
    }

    pub(super) fn finish_rows(&mut self, wins: &[Win]) {
        for order in std::mem::take(&mut self.rows.unmatched) {
            if self.try_row(wins, &order) {
                continue;
            }
            self.found.add(Kind::ExtraRow, || {
                format!(
                    "unit {}, seq {}, claim {}",
                    order.unit, order.seq, order.claim
                )
            });
            self.rows.odd.push(Odd {
                unit: order.unit,
                user: order.user,
                seq: order.seq,
                unit_right: false,
                user_right: false,
            });
        }
        let Rows { marks, odd, .. } = &self.rows;
        for odd in oversold(odd, marks, &self.index, self.stock) {
            self.found.add(Kind::RowOversold, || {
                format!("unit {}, seq {}", odd.unit, odd.seq)
            });
        }
        for count in over_limit(odd, marks, wins, self.limit) {
            self.found.add(Kind::RowOverLimit, || {
                format!("a user has {count} rows, the limit is {}", self.limit)
            });
        }
    }

    pub(super) fn missing_rows(&mut self, wins: &[Win], written: Option<Position>) {
        let written = written.map(|position| (position.generation, position.seq));
        for (at, win) in wins.iter().enumerate().take(self.required) {
            if self.rows.marks.there(at) {
                continue;
            }
            let kind = match written {
                Some(written) if (win.generation, win.seq) > written => Kind::UnwrittenRow,
                _ => Kind::MissingRow,
            };
            self.found.add(kind, || named(win));
        }
    }
}
