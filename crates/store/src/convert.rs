//! Between rows and what they mean.
//!
//! The databases have no unsigned numbers: what does not fit into an `i64` is an error, never
//! another number.

use crate::entity::{orders, sales};
use crate::error::StoreError;
use crate::model::{Order, OrderStatus, Pin, SaleRow, SaleState, SaleWrite};
use dropgate_domain::{
    AttemptId, Digest, Generation, IdempotencyKey, LogId, Offset, PartitionId, Position, SaleId,
    Seq, TimeMs, Unit, UserId,
};
use sea_orm::ActiveValue::Set;

/// A number as it stands in the table; the error names the column.
pub fn stored(column: &'static str, value: u64) -> Result<i64, String> {
    i64::try_from(value).map_err(|_| format!("{column} {value} is above the database's maximum"))
}

fn stored_time(column: &'static str, value: Option<TimeMs>) -> Result<Option<i64>, String> {
    value.map(|time| stored(column, time.0)).transpose()
}

pub fn sale_row(write: &SaleWrite) -> Result<sales::ActiveModel, String> {
    Ok(sales::ActiveModel {
        sale_id: Set(write.sale.as_str().to_owned()),
        log_id: Set(write.pin.log_id.0.to_vec()),
        part: Set(i64::from(write.pin.partition.0)),
        from_offset: Set(stored("from_offset", write.pin.from_offset.0)?),
        generation: Set(i64::from(write.to.generation.0)),
        seq: Set(stored("seq", write.to.seq.0)?),
        chain: Set(write.to.chain.0.to_vec()),
        state: Set(write.state.as_str().to_owned()),
        stock: Set(stored("stock", write.stock)?),
        sold: Set(stored("sold", write.sold)?),
        held: Set(stored("held", write.held)?),
        opened_ms: Set(stored_time("opened_ms", write.opened_at)?),
        closed_ms: Set(stored_time("closed_ms", write.closed_at)?),
    })
}

pub fn order_row(sale: &SaleId, order: &Order) -> Result<orders::ActiveModel, String> {
    Ok(orders::ActiveModel {
        sale_id: Set(sale.as_str().to_owned()),
        unit: Set(stored("unit", order.unit.0)?),
        claim_id: Set(order.claim.to_string()),
        user_id: Set(order.user.as_str().to_owned()),
        attempt: Set(order.attempt.0.to_vec()),
        idem_key: Set(order.key.as_str().to_owned()),
        generation: Set(i64::from(order.generation.0)),
        seq: Set(stored("seq", order.seq.0)?),
        status: Set(order.status.as_str().to_owned()),
        won_ms: Set(stored("won_ms", order.won_at.0)?),
    })
}

fn corrupt(column: &'static str) -> StoreError {
    StoreError::Corrupt(column.to_owned())
}

pub fn number<T: TryFrom<i64>>(column: &'static str, value: i64) -> Result<T, StoreError> {
    T::try_from(value).map_err(|_| corrupt(column))
}

fn bytes<'a, T: TryFrom<&'a [u8]>>(column: &'static str, value: &'a [u8]) -> Result<T, StoreError> {
    T::try_from(value).map_err(|_| corrupt(column))
}

impl TryFrom<sales::Model> for SaleRow {
    type Error = StoreError;

    fn try_from(row: sales::Model) -> Result<Self, StoreError> {
        let time = |column, value: Option<i64>| {
            let time = value.map(|ms| number(column, ms)).transpose()?;
            Ok::<_, StoreError>(time.map(TimeMs))
        };
        Ok(Self {
            sale: SaleId::new(&row.sale_id).map_err(|_| corrupt("sales.sale_id"))?,
            pin: Pin {
                log_id: bytes::<LogId>("sales.log_id", &row.log_id)?,
                partition: PartitionId(number("sales.part", row.part)?),
                from_offset: Offset(number("sales.from_offset", row.from_offset)?),
            },
            position: Position {
                generation: Generation(number("sales.generation", row.generation)?),
                seq: Seq(number("sales.seq", row.seq)?),
                chain: bytes::<Digest>("sales.chain", &row.chain)?,
            },
            state: match row.state.as_str() {
                "open" => SaleState::Open,
                "closed" => SaleState::Closed,
                _ => return Err(corrupt("sales.state")),
            },
            stock: number("sales.stock", row.stock)?,
            sold: number("sales.sold", row.sold)?,
            held: number("sales.held", row.held)?,
            opened_at: time("sales.opened_ms", row.opened_ms)?,
            closed_at: time("sales.closed_ms", row.closed_ms)?,
        })
    }
}

impl TryFrom<orders::Model> for Order {
    type Error = StoreError;

    fn try_from(row: orders::Model) -> Result<Self, StoreError> {
        Ok(Self {
            unit: Unit(number("orders.unit", row.unit)?),
            claim: row
                .claim_id
                .parse()
                .map_err(|_| corrupt("orders.claim_id"))?,
            user: UserId::new(&row.user_id).map_err(|_| corrupt("orders.user_id"))?,
            attempt: bytes::<AttemptId>("orders.attempt", &row.attempt)?,
            key: IdempotencyKey::new(&row.idem_key).map_err(|_| corrupt("orders.idem_key"))?,
            generation: Generation(number("orders.generation", row.generation)?),
            seq: Seq(number("orders.seq", row.seq)?),
            status: match row.status.as_str() {
                "won" => OrderStatus::Won,
                _ => return Err(corrupt("orders.status")),
            },
            won_at: TimeMs(number("orders.won_ms", row.won_ms)?),
        })
    }
}
