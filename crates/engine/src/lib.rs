//! A live sale as every service needs it: follow, publish, tip, open.
//!
//! - [`Fold`] reads the index and the log into ledgers: gateway, order-writer and reconciler
//!   all judge with it.
//! - [`Engine`] is what a gateway runs besides: it follows the tail, publishes, compares Redis
//!   with the log, and creates, opens and closes sales.
//! - [`SaleHandle`] is one sale of it: claims, and questions about them.

mod admin;
mod answer;
mod by_hand;
mod claim;
mod config;
mod engine;
mod fold;
mod follow;
mod fresh;
mod generation;
mod handle;
mod metrics;
mod publish;
mod recover;
mod sale;
mod session;
mod shared;
mod standing;
mod survey;
mod tip;
#[cfg(feature = "weakened")]
mod weakened;

/// The ledger, as every service judges by it.
#[cfg(not(feature = "weakened"))]
pub type Ledger = dropgate_domain::Ledger;
/// The ledger, by the rule less the part that this run leaves out.
#[cfg(feature = "weakened")]
pub type Ledger = dropgate_domain::Ledger<weakened::Rule>;

pub use admin::{AdminError, Closed, Created, Opened};
pub use answer::{Answer, LookUp, State, Unavailable, View};
pub use by_hand::{ByHand, Mended, Preview, Verdict};
pub use config::EngineConfig;
pub use engine::{Engine, StartError};
pub use fold::{Fold, FoldError, Judged, Step};
pub use generation::Progress;
pub use handle::SaleHandle;
pub use metrics::{
    Metrics, PublishLabel, PublishOutcome, RecordLabel, RecordOutcome, RecoveryLabel,
    RecoveryOutcome,
};
pub use recover::{Recovered, Recovery};
pub use sale::{Sale, Unfollowable};
pub use standing::{Condition, Standing};
pub use survey::{Stored, Survey, Unlogged};
