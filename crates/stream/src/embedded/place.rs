//! The file under its path: still the one that was opened, and written by one process alone.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::error::OpenError;

/// A path and the file that was found there.
///
/// The file is only ever looked at with `stat`: opening and closing it here would drop the
/// POSIX locks that `SQLite` holds on it in this process.
#[derive(Debug)]
pub(super) struct Place {
    path: PathBuf,
    device: u64,
    inode: u64,
}

impl Place {
    /// The file that is there now.
    pub(super) fn of(path: &Path) -> io::Result<Self> {
        let found = fs::metadata(path)?;
        // An absolute path stays right when the working directory changes.
        Ok(Self {
            path: fs::canonicalize(path)?,
            device: found.dev(),
            inode: found.ino(),
        })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The same file is there: it was not deleted, nor another put in its place.
    pub(super) fn check(&self) -> Result<(), String> {
        let path = self.path.display();
        match fs::metadata(&self.path) {
            Ok(found) if found.dev() == self.device && found.ino() == self.inode => Ok(()),
            Ok(_) => Err(format!("{path} was replaced by another file")),
            Err(e) => Err(format!("{path} is gone: {e}")),
        }
    }
}

/// The right to write the file, for as long as it lives. The kernel gives it back when the
/// process ends, however it ends.
#[derive(Debug)]
pub(super) struct WriterLock {
    _file: File,
}

impl WriterLock {
    /// Takes `<path>.lock` without waiting.
    pub(super) fn take(path: &Path) -> Result<Self, OpenError> {
        let mut name = path.as_os_str().to_owned();
        name.push(".lock");
        let unusable = |e: io::Error| OpenError::Unusable {
            what: name.to_string_lossy().into_owned(),
            reason: e.to_string(),
        };
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&name)
            .map_err(unusable)?;
        match file.try_lock() {
            Ok(()) => Ok(Self { _file: file }),
            Err(TryLockError::WouldBlock) => Err(OpenError::InUse {
                path: path.to_owned(),
            }),
            Err(TryLockError::Error(e)) => Err(unusable(e)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_was_deleted_or_replaced_is_not_the_same() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        fs::write(&path, "a").unwrap();
        let place = Place::of(&path).unwrap();
        fs::write(&path, "changed").unwrap();
        assert_eq!(place.check(), Ok(()));
        let other = dir.path().join("g");
        fs::write(&other, "b").unwrap();
        fs::rename(&other, &path).unwrap();
        assert!(place.check().unwrap_err().contains("replaced"));
        fs::remove_file(&path).unwrap();
        assert!(place.check().unwrap_err().contains("gone"));
    }

    #[test]
    fn one_writer_at_a_time() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let first = WriterLock::take(&path).unwrap();
        assert!(matches!(
            WriterLock::take(&path),
            Err(OpenError::InUse { .. })
        ));
        drop(first);
        assert!(WriterLock::take(&path).is_ok());
    }
}
