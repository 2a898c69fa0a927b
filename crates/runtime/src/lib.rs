//! What every service does alike: typed config, telemetry, health, the port for operators and
//! an ordered shutdown.
//!
//! Nothing here is global and nothing here knows what a sale is: a service makes the parts that
//! it needs and hands them on.

pub mod config;
pub mod health;
pub mod ops;
pub mod shutdown;
pub mod telemetry;
