//! What has been written of each sale, and its orders.
//!
//! Numbers are `bigint`, times are milliseconds since the Unix epoch, digests and ids drawn at
//! random are raw bytes. The states are not constrained here: they will get more values, and
//! SQLite cannot alter a constraint.

use crate::text::bytewise;
use sea_orm_migration::async_trait::async_trait;
use sea_orm_migration::sea_orm::{self, ConnectionTrait, DbErr, DeriveIden};
use sea_orm_migration::sea_query::{
    ColumnDef, Expr, ExprTrait, Index, IndexCreateStatement, IntoIden, Table, TableCreateStatement,
};
use sea_orm_migration::{MigrationName, MigrationTrait, SchemaManager};

pub struct Migration;

impl MigrationName for Migration {
    fn name(&self) -> &'static str {
        "m0001_sales_and_orders"
    }
}

#[derive(DeriveIden)]
enum Sales {
    Table,
    SaleId,
    LogId,
    Part,
    FromOffset,
    Generation,
    Seq,
    Chain,
    State,
    Stock,
    Sold,
    Held,
    OpenedMs,
    ClosedMs,
}

#[derive(DeriveIden)]
enum Orders {
    Table,
    SaleId,
    Unit,
    ClaimId,
    UserId,
    Attempt,
    IdemKey,
    Generation,
    Seq,
    Status,
    WonMs,
}

#[async_trait]
impl MigrationTrait for Migration {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        let backend = manager.get_connection().get_database_backend();
        let text = |name| bytewise(backend, name);
        manager.create_table(sales(text)).await?;
        let text = |name| bytewise(backend, name);
        manager.create_table(orders(text)).await?;
        for index in order_indexes() {
            manager.create_index(index).await?;
        }
        Ok(())
    }
}

fn sales(text: impl Fn(Sales) -> ColumnDef) -> TableCreateStatement {
    let column = |name: Sales| Expr::col(name);
    Table::create()
        .table(Sales::Table)
        .col(text(Sales::SaleId).primary_key())
        .col(bytes(Sales::LogId, 16))
        .col(number(Sales::Part))
        .col(number(Sales::FromOffset))
        .col(number(Sales::Generation))
        .col(number(Sales::Seq))
        .col(bytes(Sales::Chain, 20))
        .col(text(Sales::State))
        .col(number(Sales::Stock))
        .col(number(Sales::Sold))
        .col(number(Sales::Held))
        .col(ColumnDef::new(Sales::OpenedMs).big_integer())
        .col(ColumnDef::new(Sales::ClosedMs).big_integer())
        .check(column(Sales::Part).gte(0))
        .check(column(Sales::FromOffset).gte(0))
        .check(column(Sales::Generation).gte(1))
        .check(column(Sales::Seq).gte(0))
        .check(column(Sales::Sold).gte(0))
        .check(column(Sales::Held).gte(0))
        .check(
            column(Sales::Sold)
                .add(Expr::col(Sales::Held))
                .lte(Expr::col(Sales::Stock)),
        )
        .take()
}

fn orders(text: impl Fn(Orders) -> ColumnDef) -> TableCreateStatement {
    Table::create()
        .table(Orders::Table)
        .col(text(Orders::SaleId))
        .col(number(Orders::Unit))
        .col(text(Orders::ClaimId))
        .col(text(Orders::UserId))
        .col(bytes(Orders::Attempt, 16))
        .col(text(Orders::IdemKey))
        .col(number(Orders::Generation))
        .col(number(Orders::Seq))
        .col(text(Orders::Status))
        .col(number(Orders::WonMs))
        .primary_key(Index::create().col(Orders::SaleId).col(Orders::Unit))
        .check(Expr::col(Orders::Unit).gte(1))
        .check(Expr::col(Orders::Generation).gte(1))
        .check(Expr::col(Orders::Seq).gte(1))
        .check(Expr::col(Orders::UserId).ne(""))
        .take()
}

fn order_indexes() -> [IndexCreateStatement; 3] {
    [
        Index::create()
            .name("orders_claim_id_key")
            .table(Orders::Table)
            .col(Orders::ClaimId)
            .unique()
            .take(),
        Index::create()
            .name("orders_sale_id_seq_key")
            .table(Orders::Table)
            .col(Orders::SaleId)
            .col(Orders::Seq)
            .unique()
            .take(),
        Index::create()
            .name("orders_sale_id_user_id_idx")
            .table(Orders::Table)
            .col(Orders::SaleId)
            .col(Orders::UserId)
            .take(),
    ]
}

fn number(name: impl IntoIden) -> ColumnDef {
    ColumnDef::new(name).big_integer().not_null().take()
}

fn bytes(name: impl IntoIden, length: u32) -> ColumnDef {
    ColumnDef::new(name).var_binary(length).not_null().take()
}
