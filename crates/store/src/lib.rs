//! The database: what has been written of each sale, and its orders.
//!
//! One writer's transaction moves the position of each sale in it by compare-and-swap, so a
//! second writer, or one that was paused and came back, changes nothing. Postgres and SQLite
//! pass one contract suite. No type of the driver is in this crate's interface, and no error of
//! it holds the url's password.

mod config;
mod convert;
mod entity;
mod error;
mod model;
mod pool;
mod read;
mod write;

pub use config::StoreConfig;
pub use error::{OpenError, StoreError, Transient, TransientKind, WriteError};
pub use model::{Order, OrderCounts, OrderStatus, Pin, SaleRow, SaleState, SaleWrite};
pub use pool::Store;
pub use read::{OrderPages, PAGE_MAX};
