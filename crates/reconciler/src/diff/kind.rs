//! The kinds of differences, in one table.
//!
//! `docs/reconcile.md` holds this table; a test fails when it is out of date
//! (`UPDATE_DOCS=1 cargo test -p dropgate-reconciler` writes it).

use std::collections::BTreeMap;

/// Who says what the log does not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// The log, about itself.
    Log,
    /// The database.
    Database,
    /// Redis.
    Redis,
    /// What clients were told.
    Told,
}

impl Source {
    /// As it stands in reports.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Log => "log",
            Self::Database => "database",
            Self::Redis => "redis",
            Self::Told => "told",
        }
    }
}

macro_rules! kinds {
    ($($name:ident $text:literal $source:ident; $meaning:literal)*) => {
        /// What is different.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Kind {
            $(#[doc = $meaning] $name,)*
        }

        impl Kind {
            /// Every kind, in the order of the table.
            pub const ALL: &[Kind] = &[$(Kind::$name),*];

            /// As it stands in reports.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self { $(Kind::$name => $text,)* }
            }

            /// Who differs.
            #[must_use]
            pub fn source(self) -> Source {
                match self { $(Kind::$name => Source::$source,)* }
            }

            /// What it means.
            #[must_use]
            pub fn meaning(self) -> &'static str {
                match self { $(Kind::$name => $meaning,)* }
            }
        }
    };
}

kinds! {
    LogOversold "log_oversold" Log;
        "A unit of the log's wins is not one of the stock, or has two owners."
    LogOverLimit "log_over_limit" Log;
        "A user has more wins in the log than the sale allows."
    LogUnbalanced "log_unbalanced" Log;
        "stock is not sold + held + free by the log."
    GenerationEnded "generation_ended" Log;
        "The current generation ended and no other has begun: Redis lost writes, and the sale has to be recovered."
    EventMissing "event_missing" Log;
        "Records wait in the log for one before them, which did not come within the wait."

    MissingRow "missing_row" Database;
        "A win of the log, at or before the database's position, has no row."
    UnwrittenRow "unwritten_row" Database;
        "A win of the log has no row because the database is not that far yet."
    ExtraRow "extra_row" Database;
        "A row belongs to no win of the log."
    RowTwice "row_twice" Database;
        "A win has a second row."
    ChangedUser "changed_user" Database;
        "A row names another user than the log."
    ChangedUnit "changed_unit" Database;
        "A row names another unit than the log."
    ChangedClaim "changed_claim" Database;
        "A row has another claim id than the log."
    ChangedAttempt "changed_attempt" Database;
        "A row has another attempt than the log."
    ChangedKey "changed_key" Database;
        "A row has another idempotency key than the log."
    ChangedSeq "changed_seq" Database;
        "A row has another generation or seq than the log."
    ChangedWonAt "changed_won_at" Database;
        "A row has another time than the log."
    RowOversold "row_oversold" Database;
        "A row's unit is not one of the stock, or another row has it too."
    RowOverLimit "row_over_limit" Database;
        "A user has more rows than the sale allows."
    UnreadableRow "unreadable_row" Database;
        "The database holds a value that no release wrote. The rows after it were not compared."
    SaleRowMissing "sale_row_missing" Database;
        "The sale is open by the log and has no row in `sales`."
    SaleRowExtra "sale_row_extra" Database;
        "The sale has a row in `sales` and was never opened by the log."
    WrongLog "wrong_log" Database;
        "The sale's row belongs to another log, partition or offset."
    PositionBehind "position_behind" Database;
        "The database did not reach the log's end within the wait."
    PositionAhead "position_ahead" Database;
        "The database's position is beyond the log's end."
    ChainDiffers "chain_differs" Database;
        "The database's position names an event that the log does not hold there."
    StateDiffers "state_differs" Database;
        "The sale's row is open and the log closed, or the other way round, or the time differs."
    StockDiffers "stock_differs" Database;
        "The sale's row has another stock than the log."
    CountsDiffer "counts_differ" Database;
        "The sale's row counts other numbers of sold or held units than the log up to its position, or than there are rows."

    RedisClaimMissing "redis_claim_missing" Redis;
        "A win of the log has no entry among the claims in Redis."
    RedisClaimExtra "redis_claim_extra" Redis;
        "An entry among the claims in Redis belongs to no win of the log."
    RedisClaimChanged "redis_claim_changed" Redis;
        "An entry has another user, unit, attempt or key than the log."
    RedisOversold "redis_oversold" Redis;
        "An entry's unit is not one of the stock, or another entry has it too."
    RedisOverLimit "redis_over_limit" Redis;
        "A user has more entries than the sale allows."
    RedisUnreadable "redis_unreadable" Redis;
        "Redis holds a value that no release wrote. The entries after it were not compared."
    RedisSaleMissing "redis_sale_missing" Redis;
        "The sale is open by the log, and Redis has no current generation of it."
    RedisSaleExtra "redis_sale_extra" Redis;
        "Redis has a current generation of a sale that was never opened by the log."
    RedisGenerationDiffers "redis_generation_differs" Redis;
        "Another generation, or another log's, is current in Redis."
    RedisStateMissing "redis_state_missing" Redis;
        "The state of the current generation is not in Redis, or not whole."
    RedisBehind "redis_behind" Redis;
        "Redis knows fewer events than the log: it lost writes."
    RedisAhead "redis_ahead" Redis;
        "Redis gave out events that did not reach the log within the wait."
    RedisChainDiffers "redis_chain_differs" Redis;
        "The last event in Redis is not the log's event at that seq."
    RedisStateDiffers "redis_state_differs" Redis;
        "A setting or counter of the state in Redis is not the log's."
    RedisUnitLost "redis_unit_lost" Redis;
        "Redis has given away units that nobody owns by the log."

    ToldWinnerAbsent "told_winner_absent" Told;
        "A client was told of a win that the log does not hold."
    ToldUserDiffers "told_user_differs" Told;
        "A client was told of a win that is another user's by the log."
    ToldUnitDiffers "told_unit_differs" Told;
        "A client was told another unit than the log's."
    ToldVoidButWon "told_void_but_won" Told;
        "A client was told that a claim is void, and the log holds it as a win."
}

/// Differences by kind: exact counts, and the first few of each as examples.
#[derive(Debug, Clone)]
pub struct Differences {
    found: BTreeMap<Kind, Found>,
    examples_max: usize,
}

/// What was found of one kind.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Found {
    /// How many.
    pub count: u64,
    /// The first of them; they name units, claims and seqs, and no users.
    pub examples: Vec<String>,
}

impl Differences {
    /// None yet.
    #[must_use]
    pub fn new(examples_max: usize) -> Self {
        Self {
            found: BTreeMap::new(),
            examples_max,
        }
    }

    /// Notes one more. The text is only made when it is kept.
    pub fn add(&mut self, kind: Kind, example: impl FnOnce() -> String) {
        let found = self.found.entry(kind).or_default();
        found.count += 1;
        if found.examples.len() < self.examples_max {
            found.examples.push(example());
        }
    }

    /// How many of this kind.
    #[must_use]
    pub fn count(&self, kind: Kind) -> u64 {
        self.found.get(&kind).map_or(0, |found| found.count)
    }

    /// How many of these kinds together.
    #[must_use]
    pub fn count_of(&self, kinds: &[Kind]) -> u64 {
        kinds.iter().map(|kind| self.count(*kind)).sum()
    }

    /// How many of this source.
    #[must_use]
    pub fn count_in(&self, source: Source) -> u64 {
        let of_source = self
            .found
            .iter()
            .filter(|(kind, _)| kind.source() == source);
        of_source.map(|(_, found)| found.count).sum()
    }

    /// The kinds that were found, in the order of the table.
    pub fn iter(&self) -> impl Iterator<Item = (Kind, &Found)> {
        self.found.iter().map(|(kind, found)| (*kind, found))
    }
}

/// The table as Markdown, for the documentation.
#[must_use]
pub fn markdown() -> String {
    let mut text = String::from("| kind | in | what it means |\n|---|---|---|\n");
    for kind in Kind::ALL {
        let (name, source, meaning) = (kind.as_str(), kind.source().as_str(), kind.meaning());
        text.push_str(&format!("| `{name}` | {source} | {meaning} |\n"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEGIN: &str = "<!-- kinds: made from crates/reconciler/src/diff/kind.rs -->\n";
    const END: &str = "<!-- end of kinds -->\n";

    #[test]
    fn the_documentation_holds_the_table() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reconcile.md");
        let text = std::fs::read_to_string(path).unwrap();
        let (before, rest) = text.split_once(BEGIN).unwrap();
        let (_, after) = rest.split_once(END).unwrap();
        let whole = format!("{before}{BEGIN}{}{END}{after}", markdown());
        if std::env::var_os("UPDATE_DOCS").is_some() {
            std::fs::write(path, &whole).unwrap();
        } else {
            let hint = "UPDATE_DOCS=1 cargo test -p dropgate-reconciler";
            assert!(
                text == whole,
                "docs/reconcile.md is not what the table says: {hint}"
            );
        }
    }

    #[test]
    fn counts_are_exact_and_examples_bounded() {
        let mut found = Differences::new(2);
        for n in 0..5 {
            found.add(Kind::ExtraRow, || n.to_string());
        }
        found.add(Kind::RedisAhead, String::new);
        assert_eq!(found.count(Kind::ExtraRow), 5);
        assert_eq!(found.count_in(Source::Database), 5);
        assert_eq!(found.count_of(&[Kind::ExtraRow, Kind::RedisAhead]), 6);
        assert_eq!(found.iter().next().unwrap().1.examples, ["0", "1"]);
    }

    #[test]
    fn names_are_distinct() {
        let names: std::collections::BTreeSet<_> = Kind::ALL.iter().map(|k| k.as_str()).collect();
        assert_eq!(names.len(), Kind::ALL.len());
    }
}
