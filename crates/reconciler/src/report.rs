//! The report: as JSON, and as a table for people.

use crate::diff::{Compared, RedisSale};
use crate::promises::{Stated, state};
use crate::snapshot::Tally;
use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{Cell, ContentArrangement, Table};
use dropgate_domain::{Offset, Phase, SaleCreated};
use dropgate_engine::Ledger;
use dropgate_store::SaleRow;
use jiff::Timestamp;
use serde::Serialize;
use std::fmt;

/// What the report is made from.
pub struct Sides<'a> {
    /// Where the sale is.
    pub pin: &'a SaleCreated,
    /// What the log says.
    pub ledger: &'a Ledger,
    /// What became of its records.
    pub tally: Tally,
    /// The end of the log that was read.
    pub end: Offset,
    /// The comparison.
    pub compared: &'a Compared,
    /// What Redis says of the sale.
    pub redis: Option<&'a RedisSale>,
    /// What the database says of the sale.
    pub row: Option<&'a SaleRow>,
}

/// The outcome of a reconciliation.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// The sale.
    pub sale: String,
    /// When it was made.
    pub time: String,
    /// All promises that were checked hold.
    pub holds: bool,
    /// Orders in the database.
    pub orders: u64,
    /// `not_opened`, `open`, `sold_out`, `closed`, `halted`, `ended` or `stopped`, by the log.
    pub phase: &'static str,
    /// Every promise.
    pub promises: Vec<Stated>,
    /// Every kind of difference that was found.
    pub differences: Vec<Difference>,
    /// What each source says.
    pub sources: SourceNumbers,
    /// What a reader should know besides.
    pub notes: Vec<String>,
}

/// All differences of one kind.
#[derive(Debug, Clone, Serialize)]
pub struct Difference {
    /// The kind.
    pub kind: &'static str,
    /// Who differs from the log.
    pub source: &'static str,
    /// What it means.
    pub meaning: &'static str,
    /// How many, exactly.
    pub count: u64,
    /// The first of them.
    pub examples: Vec<String>,
}

/// The three sources' own numbers.
#[derive(Debug, Clone, Serialize)]
pub struct SourceNumbers {
    /// The log's.
    pub log: LogNumbers,
    /// Redis'.
    pub redis: RedisNumbers,
    /// The database's.
    pub database: DatabaseNumbers,
}

/// What the log says.
#[derive(Debug, Clone, Serialize)]
#[expect(missing_docs, reason = "the names say it")]
pub struct LogNumbers {
    pub log_id: String,
    pub partition: u32,
    pub from_offset: u64,
    pub end_offset: u64,
    pub records: u64,
    pub generation: u32,
    pub seq: u64,
    pub chain: Option<String>,
    pub wins: u64,
    pub users: u64,
    pub stock: u64,
    pub sold: u64,
    pub held: u64,
    pub free: u64,
    pub duplicates: u64,
    pub void: u64,
    pub ended_generations: u64,
    pub halts: u64,
    pub foreign: u64,
    pub buffered: u64,
}

/// What Redis says; null where it says nothing.
#[derive(Debug, Clone, Default, Serialize)]
#[expect(missing_docs, reason = "the names say it")]
pub struct RedisNumbers {
    pub current: Option<String>,
    pub open: Option<bool>,
    pub seq: Option<u64>,
    pub head: Option<String>,
    pub applied: Option<u64>,
    pub next_unit: Option<u64>,
    pub claims: u64,
}

/// What the database says; null where it says nothing.
#[derive(Debug, Clone, Default, Serialize)]
#[expect(missing_docs, reason = "the names say it")]
pub struct DatabaseNumbers {
    pub generation: Option<u32>,
    pub seq: Option<u64>,
    pub chain: Option<String>,
    pub state: Option<&'static str>,
    pub stock: Option<u64>,
    pub sold: Option<u64>,
    pub held: Option<u64>,
    pub orders: u64,
}

impl Report {
    /// The report of a comparison.
    #[must_use]
    pub fn new(sides: &Sides<'_>) -> Self {
        let limit = sides.pin.definition.per_user_limit;
        let promises = state(sides.ledger, limit, sides.compared, sides.tally);
        let differences = sides.compared.found.iter().map(|(kind, found)| Difference {
            kind: kind.as_str(),
            source: kind.source().as_str(),
            meaning: kind.meaning(),
            count: found.count,
            examples: found.examples.clone(),
        });
        Self {
            sale: sides.pin.sale.to_string(),
            time: Timestamp::now().to_string(),
            holds: promises
                .iter()
                .all(|stated| stated.holds || !stated.checked),
            orders: sides.compared.rows,
            phase: phase(sides.ledger),
            promises,
            differences: differences.collect(),
            sources: SourceNumbers {
                log: LogNumbers::of(sides),
                redis: RedisNumbers::of(sides),
                database: DatabaseNumbers::of(sides),
            },
            notes: notes(sides),
        }
    }
}

fn phase(ledger: &Ledger) -> &'static str {
    match ledger.phase() {
        Phase::NotOpened => "not_opened",
        Phase::Open if ledger.claimable() == 0 => "sold_out",
        Phase::Open => "open",
        Phase::Closed => "closed",
        Phase::Halted(_) => "halted",
        Phase::Ended(_) => "ended",
        Phase::Stopped(_) => "stopped",
    }
}

fn notes(sides: &Sides<'_>) -> Vec<String> {
    let generation = sides.ledger.generation();
    let mut notes = Vec::new();
    match sides.ledger.phase() {
        Phase::NotOpened => notes.push("the sale has not been opened".to_owned()),
        Phase::Open if sides.ledger.claimable() > 0 => {
            notes.push("the sale is open: this is how it stands, not how it ends".to_owned());
        }
        Phase::Halted(halted) => notes.push(format!(
            "generation {generation} is halted by {}: {}; it takes no claims until it is recovered",
            halted.by, halted.reason
        )),
        Phase::Ended(cause) => notes.push(format!(
            "generation {generation} ended: {cause}; it takes no claims until it is recovered"
        )),
        Phase::Open | Phase::Closed | Phase::Stopped(_) => {}
    }
    if sides.tally.foreign > 0 {
        notes.push(format!(
            "{} records name the sale where it is not pinned; they were not applied",
            sides.tally.foreign
        ));
    }
    notes
}

impl LogNumbers {
    fn of(sides: &Sides<'_>) -> Self {
        let (ledger, tally, pin) = (sides.ledger, sides.tally, sides.pin);
        let counts = ledger.counts();
        Self {
            log_id: pin.log_id.to_string(),
            partition: pin.partition.0,
            from_offset: pin.from_offset.0,
            end_offset: sides.end.0,
            records: tally.records,
            generation: ledger.generation().0,
            seq: ledger.applied().0,
            chain: ledger.position().map(|position| position.chain.to_string()),
            wins: ledger.wins().len() as u64,
            users: ledger.users().count() as u64,
            stock: counts.stock,
            sold: counts.sold,
            held: counts.held,
            free: counts.free,
            duplicates: tally.duplicates,
            void: tally.void,
            ended_generations: tally.ended,
            halts: tally.halts,
            foreign: tally.foreign,
            buffered: ledger.buffered() as u64,
        }
    }
}

impl RedisNumbers {
    fn of(sides: &Sides<'_>) -> Self {
        let state = sides.redis.and_then(|redis| redis.state.as_ref());
        Self {
            current: sides.redis.and_then(|redis| redis.current.clone()),
            open: state.map(|state| state.open),
            seq: state.map(|state| state.seq.0),
            head: state.map(|state| state.head.to_string()),
            applied: state.map(|state| state.applied.0),
            next_unit: state.map(|state| state.next.0),
            claims: sides.compared.claims,
        }
    }
}

impl DatabaseNumbers {
    fn of(sides: &Sides<'_>) -> Self {
        let orders = sides.compared.rows;
        let Some(row) = sides.row else {
            return Self {
                orders,
                ..Self::default()
            };
        };
        Self {
            generation: Some(row.position.generation.0),
            seq: Some(row.position.seq.0),
            chain: Some(row.position.chain.to_string()),
            state: Some(row.state.as_str()),
            stock: Some(row.stock),
            sold: Some(row.sold),
            held: Some(row.held),
            orders,
        }
    }
}

/// How many characters wide the tables are, wherever they are printed.
const WIDTH: u16 = 120;

fn table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table
        .load_style(UTF8_FULL_CONDENSED)
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_width(WIDTH)
        .set_header(header.iter().map(Cell::new));
    table
}

fn word(stated: &Stated) -> &'static str {
    match (stated.checked, stated.holds) {
        (_, false) => "BROKEN",
        (true, true) => "holds",
        (false, true) => "not checked",
    }
}

fn numbers(stated: &Stated) -> String {
    let numbers: Vec<String> = stated
        .numbers
        .iter()
        .map(|(name, value)| format!("{name} {value}"))
        .collect();
    numbers.join(", ")
}

fn shown<T: fmt::Display>(value: Option<T>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "Sale {}, {}, at {}", self.sale, self.phase, self.time)?;
        for note in &self.notes {
            writeln!(f, "  {note}")?;
        }
        let mut promises = table(&["promise", "", "numbers", "how"]);
        for stated in &self.promises {
            let how = stated.note.clone();
            let row = [
                stated.name.to_owned(),
                word(stated).to_owned(),
                numbers(stated),
                how,
            ];
            promises.add_row(row);
        }
        writeln!(f, "{promises}")?;
        let (log, redis, database) = (
            &self.sources.log,
            &self.sources.redis,
            &self.sources.database,
        );
        let mut sources = table(&["source", "generation", "seq", "wins", "chain"]);
        let mut source = |name: &str, generation, seq, wins: u64, chain: &Option<String>| {
            let row = [
                name.to_owned(),
                generation,
                seq,
                wins.to_string(),
                shown(chain.as_ref()),
            ];
            sources.add_row(row);
        };
        source(
            "log",
            log.generation.to_string(),
            log.seq.to_string(),
            log.wins,
            &log.chain,
        );
        source(
            "redis",
            shown(redis.current.as_ref()),
            shown(redis.seq),
            redis.claims,
            &redis.head,
        );
        let generation = shown(database.generation);
        source(
            "database",
            generation,
            shown(database.seq),
            database.orders,
            &database.chain,
        );
        writeln!(f, "{sources}")?;
        if !self.differences.is_empty() {
            let mut differences = table(&["difference", "count", "examples"]);
            for found in &self.differences {
                let examples = found.examples.join("\n");
                let row = [found.kind.to_owned(), found.count.to_string(), examples];
                differences.add_row(row);
            }
            writeln!(f, "{differences}")?;
        }
        f.write_str(if self.holds {
            "Every promise that was checked holds."
        } else {
            "NOT ALL PROMISES HOLD."
        })
    }
}
