//! Limits of the machine that a crowd of connections runs into.

use anyhow::{Context, Result};
use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// Lets this process, and all that it starts, have as many open files as it may ask for.
///
/// # Errors
/// When the kernel refuses.
pub fn raise_open_files() -> Result<()> {
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(Resource::RLIMIT_NOFILE, most, most).context("raising the limit of open files")
}
