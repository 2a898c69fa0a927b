//! The one transaction that changes orders and positions.

use crate::convert::{order_row, sale_row, stored};
use crate::entity::{orders, sales};
use crate::error::{Class, Transient, WriteError, classify};
use crate::model::SaleWrite;
use crate::pool::Store;
use dropgate_domain::{Position, SaleId};
use sea_orm::{
    ActiveValue, ColumnTrait, DatabaseTransaction, DbErr, EntityTrait, QueryFilter,
    SqliteTransactionMode, TransactionOptions, TransactionTrait,
};

/// The most rows of one insert; times 10 columns it stays far below the binds that one statement
/// may have (65,535 in Postgres, 32,766 in SQLite).
const INSERT_ROWS_MAX: usize = 1024;

/// A sale's part of the transaction, as rows.
struct Rows {
    sale: SaleId,
    from: Option<Position>,
    row: sales::ActiveModel,
    orders: Vec<orders::ActiveModel>,
}

impl Store {
    /// Writes all of `writes` in one transaction, or nothing.
    ///
    /// Of each sale first the position is moved from `from` to `to`, if `from` is what is stored,
    /// and then its orders are inserted. The swap comes first because it locks the sale's row:
    /// a second writer of the same orders waits there and is told of a conflict, not of a key
    /// that is taken, and a zombie's write ends before it has done any work. The sales are
    /// written in the order of their ids, so that two writers cannot deadlock.
    ///
    /// Not cancel safe in one point: a call that is dropped, or ends in
    /// [`WriteError::Transient`], may have committed. Repeating it is safe, because of the swap.
    ///
    /// # Errors
    /// [`WriteError`]; nothing was written then, up to what is said above.
    pub async fn write(&self, writes: &[SaleWrite]) -> Result<(), WriteError> {
        let mut sales = writes.iter().map(Rows::of).collect::<Result<Vec<_>, _>>()?;
        sales.sort_by(|a, b| a.sale.cmp(&b.sale));
        if let Some([twice, _]) = sales.array_windows().find(|[a, b]| a.sale == b.sale) {
            return Err(WriteError::Refused {
                sale: twice.sale.clone(),
                reason: "it is twice in one transaction".to_owned(),
            });
        }
        if sales.is_empty() {
            return Ok(());
        }
        tokio::time::timeout(self.call_timeout, self.transact(sales))
            .await
            .map_err(|_| Transient::timeout("the transaction's time ran out"))?
    }

    async fn transact(&self, sales: Vec<Rows>) -> Result<(), WriteError> {
        let options = TransactionOptions {
            // The write lock is waited for here: SQLite does not wait for it in the middle.
            sqlite_transaction_mode: Some(SqliteTransactionMode::Immediate),
            ..TransactionOptions::default()
        };
        let txn = self.db.begin_with_options(options).await.map_err(at_edge)?;
        for rows in sales {
            if let Err(error) = rows.write(&txn).await {
                // What cannot be rolled back is a broken connection, and that rolls back.
                let _ = txn.rollback().await;
                return Err(error);
            }
        }
        txn.commit().await.map_err(at_edge)
    }
}

/// An error of a statement that touches no rows: begin and commit. No constraint is deferred, so
/// the commit cannot refuse a row.
fn at_edge(error: DbErr) -> WriteError {
    WriteError::Transient(match classify(&error) {
        Class::Transient(transient) => transient,
        Class::Taken(detail) | Class::Refused(detail) => Transient {
            kind: crate::TransientKind::Other,
            detail,
        },
    })
}

impl Rows {
    fn of(write: &SaleWrite) -> Result<Self, WriteError> {
        let refused = |reason| WriteError::Refused {
            sale: write.sale.clone(),
            reason,
        };
        if let Some(from) = write.from {
            stored("seq", from.seq.0).map_err(refused)?;
        }
        let orders = write
            .orders
            .iter()
            .map(|order| order_row(&write.sale, order));
        Ok(Self {
            sale: write.sale.clone(),
            from: write.from,
            row: sale_row(write).map_err(refused)?,
            orders: orders.collect::<Result<_, _>>().map_err(refused)?,
        })
    }

    async fn write(self, txn: &DatabaseTransaction) -> Result<(), WriteError> {
        let Self {
            sale,
            from,
            row,
            orders,
        } = self;
        let refused = |reason| WriteError::Refused {
            sale: sale.clone(),
            reason,
        };
        let conflict = || WriteError::Conflict { sale: sale.clone() };
        match from {
            None => insert_sale(txn, row)
                .await
                .map_err(|error| match classify(&error) {
                    Class::Transient(transient) => WriteError::Transient(transient),
                    Class::Taken(_) => conflict(),
                    Class::Refused(reason) => refused(reason),
                })?,
            Some(from) => {
                let moved = swap(txn, from, row)
                    .await
                    .map_err(|e| in_rows(&e, refused))?;
                if moved != 1 {
                    return Err(conflict());
                }
            }
        }
        insert_orders(txn, orders)
            .await
            .map_err(|e| in_rows(&e, refused))
    }
}

fn in_rows(error: &DbErr, refused: impl FnOnce(String) -> WriteError) -> WriteError {
    match classify(error) {
        Class::Transient(transient) => WriteError::Transient(transient),
        Class::Taken(reason) | Class::Refused(reason) => refused(reason),
    }
}

async fn insert_sale(txn: &DatabaseTransaction, row: sales::ActiveModel) -> Result<(), DbErr> {
    sales::Entity::insert(row)
        .exec_without_returning(txn)
        .await?;
    Ok(())
}

/// Moves the position if it is `from`; returns how many rows that was true of.
async fn swap(
    txn: &DatabaseTransaction,
    from: Position,
    mut row: sales::ActiveModel,
) -> Result<u64, DbErr> {
    use sales::Column;
    // What was fixed when the row was inserted stays as it is.
    let sale = row.sale_id.take().unwrap_or_default();
    for fixed in [&mut row.part, &mut row.from_offset, &mut row.stock] {
        *fixed = ActiveValue::NotSet;
    }
    row.log_id = ActiveValue::NotSet;
    row.opened_ms = ActiveValue::NotSet;
    let seq = i64::try_from(from.seq.0).unwrap_or(i64::MAX);
    let done = sales::Entity::update_many()
        .set(row)
        .filter(Column::SaleId.eq(sale))
        .filter(Column::Generation.eq(i64::from(from.generation.0)))
        .filter(Column::Seq.eq(seq))
        .filter(Column::Chain.eq(from.chain.0.to_vec()))
        .exec(txn)
        .await?;
    Ok(done.rows_affected)
}

/// Plain inserts: "on conflict" would hide a unit that has another owner.
///
/// The rows go in chunks whose sizes are powers of two, so that there are only eleven different
/// statements, which stay prepared.
async fn insert_orders(
    txn: &DatabaseTransaction,
    orders: Vec<orders::ActiveModel>,
) -> Result<(), DbErr> {
    let mut left = orders.len();
    let mut orders = orders.into_iter();
    while left > 0 {
        let rows = chunk_rows(left);
        let chunk: Vec<_> = orders.by_ref().take(rows).collect();
        orders::Entity::insert_many(chunk)
            .exec_without_returning(txn)
            .await?;
        left -= rows;
    }
    Ok(())
}

/// The largest power of two that is neither above `left` nor above [`INSERT_ROWS_MAX`].
fn chunk_rows(left: usize) -> usize {
    left.checked_ilog2()
        .map_or(0, |log| 1 << log)
        .min(INSERT_ROWS_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_bounded_powers_of_two_that_add_up() {
        for total in [0, 1, 2, 3, 1000, 1023, 1024, 1025, 2000, 70_000] {
            let (mut left, mut sum) = (total, 0);
            while left > 0 {
                let rows = chunk_rows(left);
                assert!(rows.is_power_of_two() && rows <= INSERT_ROWS_MAX && rows <= left);
                (left, sum) = (left - rows, sum + rows);
            }
            assert_eq!(sum, total);
        }
    }
}
