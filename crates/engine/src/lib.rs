//! A live sale as every service needs it: follow, publish, tip, open.
//!
//! - [`Fold`] reads the index and the log into ledgers: gateway, order-writer and reconciler
//!   all judge with it.
//! - [`Engine`] is what a gateway runs besides: it follows the tail, publishes, compares Redis
//!   with the log, and creates, opens and closes sales.
//! - [`SaleHandle`] is one sale of it: claims, and questions about them.

mod answer;
mod claim;
mod config;
mod engine;
mod fold;
mod follow;
mod fresh;
mod handle;
mod metrics;
mod open;
mod publish;
mod sale;
mod session;
mod tip;

pub use answer::{Answer, LookUp, State, Unavailable, View};
pub use config::EngineConfig;
pub use engine::{Engine, StartError};
pub use fold::{Fold, FoldError, Judged, Step};
pub use handle::SaleHandle;
pub use metrics::{Metrics, PublishLabel, PublishOutcome, RecordLabel, RecordOutcome};
pub use open::{AdminError, Closed, Created, Opened};
pub use sale::{Sale, Unfollowable};
