//! What each source says of the sale as a whole.

use super::{Differences, Kind};
use dropgate_admission::{Scope, StoredState};
use dropgate_domain::promise::{self, Promise};
use dropgate_domain::{Generation, Phase, Position, SaleCreated, Seq, Win};
use dropgate_engine::Ledger;
use dropgate_store::{SaleRow, SaleState};

/// What Redis says of a sale.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RedisSale {
    /// The generation that is current, by its name.
    pub current: Option<String>,
    /// The state of the log's current generation.
    pub state: Option<StoredState>,
}

/// What the database says of a sale, before and after its orders were read.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SaleRows {
    /// Before.
    pub before: Option<SaleRow>,
    /// After.
    pub after: Option<SaleRow>,
    /// How many orders were read between; `None` when not all were.
    pub orders: Option<u64>,
}

/// The log, held against itself. `missing` is an event that did not come, though later ones had.
pub fn compare_log(ledger: &Ledger, missing: Option<Seq>, found: &mut Differences) {
    if let Some(definition) = ledger.definition() {
        let wins = ledger.wins();
        let units = wins.iter().map(|win| win.unit);
        let checks = [
            promise::never_oversell(definition.stock, units),
            promise::per_user_limit(definition.per_user_limit, wins.iter().map(|w| &w.user)),
            promise::books_balance(&ledger.counts()),
        ];
        for broken in checks.into_iter().filter_map(Result::err) {
            let kind = match broken.promise {
                Promise::NeverOversell => Kind::LogOversold,
                Promise::PerUserLimit => Kind::LogOverLimit,
                _ => Kind::LogUnbalanced,
            };
            found.add(kind, || broken.detail);
        }
    }
    if let Phase::Ended(cause) = ledger.phase() {
        let generation = ledger.generation();
        found.add(Kind::GenerationEnded, || {
            format!("generation {generation}: {cause}")
        });
    }
    if let Some(seq) = missing {
        found.add(Kind::EventMissing, || {
            format!("seq {seq}: {} records wait", ledger.buffered())
        });
    }
}

fn place(position: Position) -> (Generation, Seq) {
    (position.generation, position.seq)
}

/// The database's row of the sale. `required` is how far it must be.
pub fn compare_row(
    ledger: &Ledger,
    pin: &SaleCreated,
    required: Option<Position>,
    rows: &SaleRows,
    found: &mut Differences,
) {
    let (required, end, row) = match (required, ledger.position(), &rows.after) {
        (Some(required), Some(end), Some(row)) => (required, end, row),
        (Some(_), _, None) => return found.add(Kind::SaleRowMissing, String::new),
        (None, None, Some(row)) => {
            return found.add(Kind::SaleRowExtra, || {
                format!("at seq {}", row.position.seq)
            });
        }
        _ => return,
    };
    let its_pin = (row.pin.log_id, row.pin.partition, row.pin.from_offset);
    if its_pin != (pin.log_id, pin.partition, pin.from_offset) {
        found.add(Kind::WrongLog, || {
            format!(
                "log {}, partition {}, offset {}",
                its_pin.0, its_pin.1, its_pin.2
            )
        });
    }
    let at = row.position;
    let where_it_is = || {
        format!(
            "at generation {}, seq {}; the log is at generation {}, seq {}",
            at.generation, at.seq, end.generation, end.seq
        )
    };
    if place(at) < place(required) {
        found.add(Kind::PositionBehind, where_it_is);
    } else if place(at) > place(end) {
        found.add(Kind::PositionAhead, where_it_is);
    } else if ledger.chain_at(at.seq) != Some(at.chain) {
        found.add(Kind::ChainDiffers, where_it_is);
    }
    row_counts(ledger, rows, row, found);
}

fn row_counts(ledger: &Ledger, rows: &SaleRows, row: &SaleRow, found: &mut Differences) {
    let (wins, at) = (ledger.wins(), row.position);
    let sold = sold_through(wins, at);
    if (row.sold, row.held) != (sold, 0) {
        found.add(Kind::CountsDiffer, || {
            format!(
                "sold {}, held {}; by the log {sold} and 0",
                row.sold, row.held
            )
        });
    }
    if let Some(orders) = rows.orders {
        let before = rows.before.as_ref().map_or(0, |row| row.sold);
        if !(before.min(row.sold)..=row.sold).contains(&orders) {
            found.add(Kind::CountsDiffer, || {
                format!("sold {}, and {orders} orders", row.sold)
            });
        }
    }
    let stock = ledger.counts().stock;
    if row.stock != stock {
        found.add(Kind::StockDiffers, || {
            format!("{}, by the log {stock}", row.stock)
        });
    }
    // The close is the last event, so only who has written the last one has it.
    let through = ledger.position().is_some_and(|end| place(at) >= place(end));
    let closed_at = ledger.closed_at().filter(|_| through);
    let state = closed_at.map_or(SaleState::Open, |_| SaleState::Closed);
    if (row.state, row.closed_at) != (state, closed_at) {
        found.add(Kind::StateDiffers, || {
            format!("{}, by the log {}", row.state.as_str(), state.as_str())
        });
    }
}

/// How many of the wins are at or before the position.
fn sold_through(wins: &[Win], at: Position) -> u64 {
    wins.partition_point(|win| (win.generation, win.seq) <= place(at)) as u64
}

/// The sale in Redis. `required` is how far the log was before Redis was looked at: an event is
/// in Redis before it is in the log.
pub fn compare_redis(
    ledger: &Ledger,
    pin: &SaleCreated,
    required: Option<Position>,
    redis: &RedisSale,
    found: &mut Differences,
) {
    let (Some(required), Some(end)) = (required, ledger.position()) else {
        if let Some(current) = &redis.current {
            found.add(Kind::RedisSaleExtra, || current.clone());
        }
        return;
    };
    let scope = Scope::new(pin.sale.clone(), pin.log_id, end.generation);
    match &redis.current {
        None => found.add(Kind::RedisSaleMissing, || {
            format!("{} should be", scope.tag())
        }),
        Some(current) if current != scope.tag() => {
            found.add(Kind::RedisGenerationDiffers, || {
                format!("{current}, by the log {}", scope.tag())
            });
        }
        Some(_) => {}
    }
    let Some(state) = &redis.state else {
        return found.add(Kind::RedisStateMissing, || scope.tag().to_owned());
    };
    let seqs = || format!("seq {}, by the log {}", state.seq, end.seq);
    if state.seq < required.seq {
        found.add(Kind::RedisBehind, seqs);
    } else if state.seq > end.seq {
        found.add(Kind::RedisAhead, seqs);
    } else if ledger.chain_at(state.seq) != Some(state.head) {
        found.add(Kind::RedisChainDiffers, seqs);
    }
    redis_state(ledger, state, found);
}

fn redis_state(ledger: &Ledger, state: &StoredState, found: &mut Differences) {
    let (Some(definition), Some(current)) = (ledger.definition(), ledger.current()) else {
        return;
    };
    let mut check = |same: bool, field: &str| {
        if !same {
            found.add(Kind::RedisStateDiffers, || {
                format!("its {field} is not the log's")
            });
        }
    };
    check(state.stock == definition.stock, "stock");
    check(
        state.per_user_limit == u64::from(definition.per_user_limit),
        "per_user_limit",
    );
    check(state.opens_at == definition.opens_at, "opens_at");
    check(state.closes_at == definition.closes_at, "closes_at");
    check(state.window == u64::from(current.window().get()), "window");
    // Only of the same event can the rest be said to differ.
    if state.seq != ledger.applied() {
        return;
    }
    check(state.open == ledger.closed_at().is_none(), "open");
    check(state.time >= ledger.last_time(), "time");
    let next = ledger.next_fresh();
    check(state.next >= next, "next unit");
    if state.next > next {
        found.add(Kind::RedisUnitLost, || {
            format!("the next unit is {}, by the log {next}", state.next)
        });
    }
}
