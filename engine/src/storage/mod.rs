//! The append-only file and the B-trees in it.
//!
//! [`vfs`] is the file system. A [`CouchFile`] reads one file: chunks by position, and the newest header. Its one
//! [`Appender`] writes. [`btree`] keeps sorted maps in such a file; a changed tree is a new root, so whoever holds an
//! older root goes on reading the older tree.

mod appender;
mod blocks;
pub mod btree;
mod chunk;
mod error;
mod file;
mod header;
mod memo;
mod options;
mod readahead;
mod seal;
pub mod vfs;
mod vfs_lock;

pub use appender::{Appender, Chunk};
pub use blocks::BLOCK_BYTES;
pub use error::FileError;
pub use file::{CouchFile, FileId, FileStats, NodeCache};
pub use header::{FoundHeader, HEADER_BYTES_MAX};
pub use options::{BTREE_CHUNK_SIZE, CACHE_DEPTH, FileOptions, HEADER_READ_COUNT, SyncOptions};
pub use readahead::{ReadAhead, WINDOW_BYTES_MAX};
pub use seal::{REGION_BYTES_MAX, Refused, RefusedReason};
pub use vfs_lock::DirLock;
