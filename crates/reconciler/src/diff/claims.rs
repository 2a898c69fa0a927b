//! The claims in Redis against the wins.

use super::owners::{Marks, Odd, oversold};
use super::{Diff, Kind, named, of_seq};
use dropgate_admission::Entry;
use dropgate_domain::{Seq, UserId, Win};
use std::collections::{BTreeMap, HashSet};

/// What is known of the claims.
#[derive(Debug, Default)]
pub(super) struct Claims {
    pub marks: Marks,
    pub count: u64,
    /// Entries that are not the win of their seq, or of no win that was known when they came.
    /// A scan may bring a user twice: here it is the same place.
    unmatched: BTreeMap<(UserId, Seq), Entry>,
    /// Users with too many entries.
    over: HashSet<UserId>,
    odd: Vec<Odd>,
}

impl Diff {
    /// Holds one user's entries against the wins that are known. The same again is nothing new.
    pub fn claim(&mut self, wins: &[Win], user: &UserId, entries: &[Entry]) {
        if entries.len() > self.limit as usize && self.claims.over.insert(user.clone()) {
            let (count, limit) = (entries.len(), self.limit);
            self.found.add(Kind::RedisOverLimit, || {
                format!("a user has {count} entries, the limit is {limit}")
            });
        }
        for entry in entries {
            let at = of_seq(wins, entry.seq);
            match at.and_then(|at| Some((at, wins.get(at)?))) {
                Some((at, win)) if win.user == *user => self.own_claim(at, win, entry),
                _ => {
                    let place = (user.clone(), entry.seq);
                    if self.claims.unmatched.insert(place, entry.clone()).is_none() {
                        self.claims.count += 1;
                    }
                }
            }
        }
    }

    /// An entry of the user whose win it is.
    fn own_claim(&mut self, at: usize, win: &Win, entry: &Entry) {
        if self.claims.marks.there(at) {
            return;
        }
        self.claims.count += 1;
        let unit_right = entry.unit == win.unit;
        self.claims.marks.mark(at, unit_right, true);
        if !unit_right {
            self.claims.odd.push(Odd {
                unit: entry.unit,
                user: win.user.clone(),
                seq: entry.seq,
                unit_right,
                user_right: true,
            });
        }
        self.entry_fields(win, entry);
    }

    fn entry_fields(&mut self, win: &Win, entry: &Entry) {
        let mut is = Vec::new();
        if entry.unit != win.unit {
            is.push(format!("unit {}", entry.unit));
        }
        if entry.attempt != win.attempt {
            is.push(format!("attempt {}", entry.attempt));
        }
        if entry.key != win.key {
            is.push("another key".to_owned());
        }
        if !is.is_empty() {
            self.found.add(Kind::RedisClaimChanged, || {
                format!("{}: the entry has {}", named(win), is.join(", "))
            });
        }
    }

    pub(super) fn finish_claims(&mut self, wins: &[Win]) {
        for ((user, seq), entry) in std::mem::take(&mut self.claims.unmatched) {
            let at = of_seq(wins, seq);
            let win = at.and_then(|at| Some((at, wins.get(at)?)));
            match win {
                // Read since, or the entry came under its user's name after all.
                Some((at, win)) if win.user == user => {
                    self.claims.count -= 1;
                    self.own_claim(at, win, &entry);
                    continue;
                }
                // The win has no entry of its own: this is it, under another name.
                Some((at, win)) if !self.claims.marks.there(at) => {
                    self.claims.marks.mark(at, entry.unit == win.unit, false);
                    self.found.add(Kind::RedisClaimChanged, || {
                        format!("{}: the entry is another user's", named(win))
                    });
                    self.entry_fields(win, &entry);
                    if entry.unit == win.unit {
                        continue;
                    }
                }
                _ => self.found.add(Kind::RedisClaimExtra, || {
                    format!("unit {}, seq {seq}, attempt {}", entry.unit, entry.attempt)
                }),
            }
            self.claims.odd.push(Odd {
                unit: entry.unit,
                user,
                seq,
                unit_right: false,
                user_right: false,
            });
        }
        let Claims { marks, odd, .. } = &self.claims;
        for odd in oversold(odd, marks, &self.index, self.stock) {
            self.found.add(Kind::RedisOversold, || {
                format!("unit {}, seq {}", odd.unit, odd.seq)
            });
        }
    }

    pub(super) fn missing_claims(&mut self, wins: &[Win]) {
        for (at, win) in wins.iter().enumerate().take(self.required) {
            if !self.claims.marks.there(at) {
                self.found.add(Kind::RedisClaimMissing, || named(win));
            }
        }
    }
}
