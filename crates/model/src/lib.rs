//! The protocol as a small state machine, checked exhaustively; and a judge of real runs.

mod arena;
mod bounds;
mod check;
mod history;
mod mend;
mod properties;
mod records;
mod recovery;
mod redis;
pub mod replay;
mod sale;
mod seen;
mod state;
mod story;
mod variants;
mod worlds;
mod writer;

pub use bounds::{Bounds, Off, RECOVERIES_MAX, USERS_MAX};
pub use check::{Checked, Limits, check, find};
pub use properties::Must;
pub use sale::Sale;
pub use seen::Seen;
pub use state::{Action, State};
pub use variants::{Mechanism, VARIANTS, Variant, check_unguarded};
pub use worlds::{Named, Size, WORLDS};
