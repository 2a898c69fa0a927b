//! The orders.

use sea_orm::entity::prelude::*;

#[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel)]
#[sea_orm(table_name = "orders")]
pub struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub sale_id: String,
    #[sea_orm(primary_key, auto_increment = false)]
    pub unit: i64,
    pub claim_id: String,
    pub user_id: String,
    pub attempt: Vec<u8>,
    pub idem_key: String,
    pub generation: i64,
    pub seq: i64,
    pub status: String,
    pub won_ms: i64,
}

#[derive(Copy, Clone, Debug, EnumIter, DeriveRelation)]
pub enum Relation {}

impl ActiveModelBehavior for ActiveModel {}
