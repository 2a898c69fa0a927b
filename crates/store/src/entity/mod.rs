//! The tables as SeaORM knows them; see the migrations for their constraints.

pub mod orders;
pub mod sales;
