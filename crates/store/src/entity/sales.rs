//! What has been written of each sale.

use sea_orm::entity::prelude::*;

#[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel)]
#[sea_orm(table_name = "sales")]
pub struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub sale_id: String,
    pub log_id: Vec<u8>,
    pub part: i64,
    pub from_offset: i64,
    pub generation: i64,
    pub seq: i64,
    pub chain: Vec<u8>,
    pub state: String,
    pub stock: i64,
    pub sold: i64,
    pub held: i64,
    pub opened_ms: Option<i64>,
    pub closed_ms: Option<i64>,
}

#[derive(Copy, Clone, Debug, EnumIter, DeriveRelation)]
pub enum Relation {}

impl ActiveModelBehavior for ActiveModel {}
