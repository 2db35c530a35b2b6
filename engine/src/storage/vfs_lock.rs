//! A lock on a directory, so that two processes never write the same files.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::path::Path;

/// Name of the file that carries the lock.
const LOCK_FILE: &str = ".settee.lock";

/// A directory held by this process; the system lets go of it when the process ends, however it ends.
#[derive(Debug)]
pub struct DirLock {
    _file: File,
}

impl DirLock {
    /// Takes the lock.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] when another process, or another node of this one, has it; otherwise when the lock file
    /// cannot be made.
    pub fn take(directory: &Path) -> io::Result<Self> {
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(directory.join(LOCK_FILE))?;
        match file.try_lock() {
            Ok(()) => Ok(Self { _file: file }),
            Err(TryLockError::WouldBlock) => Err(io::ErrorKind::WouldBlock.into()),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_held_once_and_let_go() {
        let directory = tempfile::tempdir().expect("a directory");
        let held = DirLock::take(directory.path()).expect("free");
        let refused = DirLock::take(directory.path()).expect_err("held");
        assert_eq!(refused.kind(), io::ErrorKind::WouldBlock);
        drop(held);
        DirLock::take(directory.path()).expect("free again");
    }
}
