//! The whole of Dropgate on this machine: the servers behind it and its own processes, configured
//! for each other. For tests of the whole path, for `make demo`, `make up` and `make bench`.

mod admin;
mod backing;
mod crowd;
pub mod limits;
mod services;
mod settings;
pub mod verdict;

pub use admin::Admin;
pub use backing::{Backing, Durable, Shape};
pub use crowd::{Clicking, Crowd, Heard, Latency, Readiness, Report, Venue};
pub use services::Services;
pub use settings::{GatewayPorts, Settings, TOKEN_KID};
pub use verdict::{Oracle, Verdict};
