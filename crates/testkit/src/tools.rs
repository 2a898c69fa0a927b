//! Where the programs and folders are that the servers need.

use std::env;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

/// The first executable file of this name on `PATH`, or in one of the extra folders.
///
/// # Errors
/// When it is nowhere, with the command that installs it.
pub fn find(program: &str, extra: &[PathBuf]) -> Result<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let found = env::split_paths(&path)
        .chain(extra.iter().cloned())
        .map(|folder| folder.join(program))
        .find(|candidate| candidate.is_file());
    match found {
        Some(found) => Ok(found),
        None => bail!(
            "{program} is not installed: run `deploy/dev/install.sh test` (or `make test`, which does)"
        ),
    }
}

/// The folder of the Cargo profile that the running executable was built in, for example
/// `target/debug`. Our own binaries lie in it.
///
/// # Errors
/// When the executable's own path cannot be read or has no such folder.
pub fn profile_dir() -> Result<PathBuf> {
    let exe = env::current_exe().context("the path of the running executable")?;
    let folder = exe.parent().context("an executable has a folder")?;
    // Test executables lie in `deps`, binaries beside it.
    let folder = if folder.ends_with("deps") || folder.ends_with("examples") {
        folder.parent().context("`deps` has a parent")?
    } else {
        folder
    };
    Ok(folder.to_owned())
}

/// The folder in the target directory where this crate keeps what outlives one process: the jars
/// of Kafka, the record of shared servers.
///
/// # Errors
/// When it cannot be made.
pub fn cache_dir() -> Result<PathBuf> {
    let profile = profile_dir()?;
    let target = profile.parent().context("a profile has a target folder")?;
    let cache = target.join("testkit");
    std::fs::create_dir_all(&cache).with_context(|| format!("making {}", cache.display()))?;
    Ok(cache)
}

/// The last lines of a log file, for an error message. Never fails.
pub fn tail_of(file: &Path) -> String {
    const BYTES_MAX: usize = 4000;
    let Ok(text) = std::fs::read(file) else {
        return format!("({} cannot be read)", file.display());
    };
    let from = text.len().saturating_sub(BYTES_MAX);
    String::from_utf8_lossy(&text[from..]).into_owned()
}
