//! The clock of one process, as libfaketime shows it to it. Its monotonic clock is left alone.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use dropgate_testkit::ProcessOptions;

/// Where distributions put the library for programs with threads.
const FOLDERS: [&str; 4] = [
    "/usr/lib/x86_64-linux-gnu/faketime",
    "/usr/lib/aarch64-linux-gnu/faketime",
    "/usr/lib/faketime",
    "/usr/lib64/faketime",
];

/// What a process's clock is off by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shift {
    /// Nothing.
    None,
    /// Five minutes ahead.
    Ahead,
    /// Five minutes behind.
    Behind,
}

/// The clock of a process that can be shifted while it runs.
#[derive(Debug)]
pub struct Clock {
    file: PathBuf,
}

impl Clock {
    /// A clock that is right, by a file of this path.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn new(file: PathBuf) -> Result<Self> {
        let clock = Self { file };
        clock.shift(Shift::None)?;
        Ok(clock)
    }

    /// Makes a process use it.
    ///
    /// # Errors
    /// When the library is not installed.
    pub fn worn_by(&self, options: ProcessOptions) -> Result<ProcessOptions> {
        let library = FOLDERS
            .iter()
            .map(|folder| Path::new(folder).join("libfaketimeMT.so.1"))
            .find(|library| library.is_file())
            .context("faketime is not installed: run `deploy/dev/install.sh test`")?;
        Ok(options
            .env("LD_PRELOAD", library.display().to_string())
            .env("FAKETIME_TIMESTAMP_FILE", self.file.display().to_string())
            .env("FAKETIME_DONT_FAKE_MONOTONIC", "1")
            // It looks into the file again after a second.
            .env("FAKETIME_CACHE_DURATION", "1"))
    }

    /// Sets it, for now on.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn shift(&self, shift: Shift) -> Result<()> {
        let text = match shift {
            Shift::None => "+0\n",
            Shift::Ahead => "+300\n",
            Shift::Behind => "-300\n",
        };
        // Whole at every moment: the process may be reading it.
        let draft = self.file.with_extension("draft");
        std::fs::write(&draft, text)?;
        std::fs::rename(&draft, &self.file).context("setting a clock")
    }
}
