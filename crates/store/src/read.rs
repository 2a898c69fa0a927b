//! Questions. Every answer is bounded in size and in time.

use crate::convert::number;
use crate::entity::{orders, sales};
use crate::error::StoreError;
use crate::model::{Order, OrderCounts, SaleRow};
use crate::pool::Store;
use dropgate_domain::{SaleId, Unit};
use sea_orm::sea_query::Expr;
use sea_orm::{ColumnTrait, EntityTrait, QueryFilter, QueryOrder, QuerySelect};

/// The most rows of one page; a larger limit is cut to it.
pub const PAGE_MAX: u32 = 10_000;

impl Store {
    /// What has been written of a sale; `None` when nothing has.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn sale(&self, sale: &SaleId) -> Result<Option<SaleRow>, StoreError> {
        let find = sales::Entity::find_by_id(sale.as_str().to_owned());
        let row = self.bounded(find.one(&self.db)).await?;
        row.map(SaleRow::try_from).transpose()
    }

    /// A page of sales in the order of their ids, beginning behind `after`.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn sales(
        &self,
        after: Option<&SaleId>,
        limit: u32,
    ) -> Result<Vec<SaleRow>, StoreError> {
        let mut find = sales::Entity::find().order_by_asc(sales::Column::SaleId);
        if let Some(after) = after {
            find = find.filter(sales::Column::SaleId.gt(after.as_str()));
        }
        let find = find.limit(u64::from(limit.min(PAGE_MAX)));
        let rows = self.bounded(find.all(&self.db)).await?;
        rows.into_iter().map(SaleRow::try_from).collect()
    }

    /// A page of a sale's orders in the order of their units, beginning behind `after`.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn orders_page(
        &self,
        sale: &SaleId,
        after: Unit,
        limit: u32,
    ) -> Result<Vec<Order>, StoreError> {
        let after = i64::try_from(after.0).unwrap_or(i64::MAX);
        let find = orders::Entity::find()
            .filter(orders::Column::SaleId.eq(sale.as_str()))
            .filter(orders::Column::Unit.gt(after))
            .order_by_asc(orders::Column::Unit)
            .limit(u64::from(limit.min(PAGE_MAX)));
        let rows = self.bounded(find.all(&self.db)).await?;
        rows.into_iter().map(Order::try_from).collect()
    }

    /// All of a sale's orders in the order of their units, page by page: memory is bounded by
    /// one page. What is written meanwhile may or may not be seen.
    #[must_use]
    pub fn orders(&self, sale: &SaleId, page_rows: u32) -> OrderPages {
        OrderPages {
            store: self.clone(),
            sale: sale.clone(),
            after: Some(Unit(0)),
            page_rows: page_rows.clamp(1, PAGE_MAX),
        }
    }

    /// Figures over a sale's orders, all from one moment.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn counts(&self, sale: &SaleId) -> Result<OrderCounts, StoreError> {
        use sea_orm::sea_query::ExprTrait;
        let unit = || Expr::col(orders::Column::Unit);
        let find = orders::Entity::find()
            .select_only()
            .expr(unit().count())
            .expr(Expr::col(orders::Column::UserId).count_distinct())
            .expr(unit().min())
            .expr(unit().max())
            .filter(orders::Column::SaleId.eq(sale.as_str()))
            .into_tuple::<(i64, i64, Option<i64>, Option<i64>)>();
        let row = self.bounded(find.one(&self.db)).await?;
        let Some((rows, users, min, max)) = row else {
            return Ok(OrderCounts::default());
        };
        let unit = |value: Option<i64>| {
            let unit = value.map(|unit| number("orders.unit", unit)).transpose()?;
            Ok::<_, StoreError>(unit.map(Unit))
        };
        Ok(OrderCounts {
            rows: number("count", rows)?,
            users: number("count", users)?,
            unit_min: unit(min)?,
            unit_max: unit(max)?,
        })
    }
}

/// See [`Store::orders`].
#[derive(Debug)]
pub struct OrderPages {
    store: Store,
    sale: SaleId,
    /// The last unit read; `None` at the end.
    after: Option<Unit>,
    page_rows: u32,
}

impl OrderPages {
    /// The next page; `None` when there are no more rows. Cancel safe. After an error the same
    /// page is read again.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn next(&mut self) -> Result<Option<Vec<Order>>, StoreError> {
        let Some(after) = self.after else {
            return Ok(None);
        };
        let page = self
            .store
            .orders_page(&self.sale, after, self.page_rows)
            .await?;
        self.after = page.last().map(|order| order.unit);
        Ok(if page.is_empty() { None } else { Some(page) })
    }
}
