//! What can go wrong with a file.

use std::io;
use std::path::Path;
use std::sync::Arc;

use thiserror::Error;

/// A failed operation on a [`CouchFile`](super::CouchFile) or its [`Appender`](super::Appender).
#[derive(Debug, Error)]
pub enum FileError {
    /// The bytes are not in memory and the caller asked not to wait.
    #[error("reading {} at {pos} would block", path.display())]
    WouldBlock {
        /// The file.
        path: Arc<Path>,
        /// Byte position.
        pos: u64,
    },
    /// A chunk that should lie behind the end of the file.
    #[error("reading {} at {pos}: {wanted} bytes are beyond the end of the file at {eof}", path.display())]
    ReadBeyondEof {
        /// The file.
        path: Arc<Path>,
        /// Byte position.
        pos: u64,
        /// Bytes wanted from there.
        wanted: u64,
        /// Length of the file.
        eof: u64,
    },
    /// Bytes that are not what they should be.
    #[error("file corruption in {} at {pos}: {reason}", path.display())]
    Corrupt {
        /// The file.
        path: Arc<Path>,
        /// Byte position.
        pos: u64,
        /// What is wrong.
        reason: String,
    },
    /// The system refused an operation.
    #[error("{operation} of {} at {pos} failed: {source}", path.display())]
    Io {
        /// The file.
        path: Arc<Path>,
        /// What was tried.
        operation: &'static str,
        /// Byte position, zero where there is none.
        pos: u64,
        /// The system's answer.
        source: io::Error,
    },
    /// The file is not there.
    #[error("{} does not exist", path.display())]
    NotFound {
        /// The file.
        path: Arc<Path>,
    },
    /// A file that should be made is there and not empty.
    #[error("{} exists", path.display())]
    Exists {
        /// The file.
        path: Arc<Path>,
    },
    /// A chunk or header that the format cannot hold.
    #[error("{length} bytes cannot be one chunk of {}", path.display())]
    ChunkLength {
        /// The file.
        path: Arc<Path>,
        /// Bytes of the refused payload.
        length: u64,
    },
    /// An earlier write or sync failed; nothing more is written through this appender.
    #[error("{} takes no more writes: {cause}", path.display())]
    Latched {
        /// The file.
        path: Arc<Path>,
        /// What failed first.
        cause: Arc<str>,
    },
}

impl FileError {
    /// True for [`FileError::WouldBlock`]: try again with [`Wait::Yes`](super::vfs::Wait::Yes) where blocking is allowed.
    #[must_use]
    pub const fn is_would_block(&self) -> bool {
        matches!(self, Self::WouldBlock { .. })
    }
}
