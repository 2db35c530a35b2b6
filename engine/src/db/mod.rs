//! One database file: snapshots to read, a writer to write.
//!
//! Everything here is plain code over values: it reads and writes through the `Vfs` it was given, and whether a read
//! may block is the caller's choice ([`Wait`](crate::storage::vfs::Wait)).

mod changes;
mod fold;
mod header;
mod open;
mod prepare;
mod purges;
mod read;
mod rows;
mod trees;
mod update;

pub use changes::{ChangesCursor, ChangesOptions};
pub use fold::{BATCH_BYTES, BATCH_ROWS_MAX, FoldCursor, FoldOptions, LocalCursor, ROW_SEPARATOR};
pub use header::{
    DISK_VERSION, DISK_VERSION_MIN, DbHeader, HeaderError, PURGE_INFOS_LIMIT_DEFAULT, Purges,
    REVS_LIMIT_DEFAULT,
};
pub use open::{DbOptions, create, open, peek};
pub use prepare::{PrepareOptions, Prepared, PreparedLocal, Preparer, prepare_local};
pub use read::{DocLookup, FoundDoc, ReadDoc, ShardInfo, Snapshot};
pub use rows::Rendering;
pub use trees::{IdReduction, IdTree, LocalTree, PurgeSeqTree, PurgeTree, SeqTree};
pub use update::{Batch, BatchAnswer, CommitCounts, DbWriter, UpdateOutcome};

use crate::codec::term::TermError;
use crate::doc::{DocError, StoredDocError};
use crate::ids::DocId;
use crate::storage::FileError;
use crate::storage::btree::TreeError;
use std::path::PathBuf;
use thiserror::Error;

/// Bytes on disk that are not what was written, and whose they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DocDamage {
    /// The document, when known.
    pub id: Option<DocId>,
    /// The file.
    pub file: PathBuf,
    /// Offset in the file, when known.
    pub position: Option<u64>,
    /// What is wrong.
    pub detail: String,
}

impl std::fmt::Display for DocDamage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Some(id) = &self.id {
            write!(f, "document {id:?} is damaged in ")?;
        }
        write!(f, "{}", self.file.display())?;
        if let Some(position) = self.position {
            write!(f, " at offset {position}")?;
        }
        write!(f, ": {}", self.detail)
    }
}

/// Why a database file could not be read or written.
#[derive(Debug, Error)]
pub enum DbError {
    /// The read would have to wait for the disk, and the caller did not want to.
    #[error("the read would block")]
    WouldBlock,
    /// The file.
    #[error(transparent)]
    File(FileError),
    /// A tree.
    #[error(transparent)]
    Tree(TreeError),
    /// A term of the wrong shape outside of any document.
    #[error("unexpected term: {0}")]
    Term(#[from] TermError),
    /// The header.
    #[error("{path}: {error}", path = path.display())]
    Header {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        error: HeaderError,
    },
    /// A file with bytes but no valid header: it is not touched.
    #[error(
        "{} has {bytes} bytes but no valid header; it is left as it is, since what it holds may be rescued", path.display()
    )]
    NoHeader {
        /// The file.
        path: PathBuf,
        /// Its length.
        bytes: u64,
    },
    /// Damage in what belongs to one document.
    #[error("{0}")]
    Damaged(DocDamage),
    /// Something stored outside of any one document's reach, or a document whose name is not known here.
    #[error(transparent)]
    Stored(#[from] StoredDocError),
    /// The edit breaks the rules.
    #[error(transparent)]
    Doc(#[from] DocError),
}

impl DbError {
    /// Whether the file system has no room left.
    #[must_use]
    pub fn is_storage_full(&self) -> bool {
        let file = match self {
            Self::File(file) | Self::Tree(TreeError::File(file)) => file,
            _ => return false,
        };
        matches!(file, FileError::Io { source, .. } if source.kind() == std::io::ErrorKind::StorageFull)
    }

    /// A failure of the file system that concerns a whole file.
    #[must_use]
    pub fn from_io(path: &std::path::Path, operation: &'static str, source: std::io::Error) -> Self {
        Self::File(FileError::Io {
            path: path.into(),
            operation,
            pos: 0,
            source,
        })
    }
}

impl From<FileError> for DbError {
    fn from(error: FileError) -> Self {
        if error.is_would_block() {
            Self::WouldBlock
        } else {
            Self::File(error)
        }
    }
}

impl From<TreeError> for DbError {
    fn from(error: TreeError) -> Self {
        if error.is_would_block() {
            Self::WouldBlock
        } else {
            Self::Tree(error)
        }
    }
}
