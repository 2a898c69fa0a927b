//! The protocol, looked at as a whole; and the judge of real runs.
#![cfg(test)]

mod counterexamples;
mod replay;
mod worlds;

use dropgate_model::{Checked, Limits};
use std::num::NonZeroUsize;
use std::time::Duration;

/// Two threads, and ten times as long as any of these worlds takes.
pub fn limits() -> Limits {
    Limits {
        threads: NonZeroUsize::new(2).unwrap(),
        time_max: Duration::from_secs(300),
    }
}

/// A path, as it is printed for a person.
pub fn path(checked: &Checked) -> String {
    let Some((must, steps)) = &checked.broken else {
        return format!("nothing breaks in {} states", checked.unique);
    };
    format!("breaks {:?}:\n  {}", must.name(), steps.join("\n  "))
}
