//! How a file is read, written and synced.

use crate::codec::checksum::ChecksumKind;
use crate::codec::compress::Compression;

/// Default number of blocks that the search for a header looks at together.
pub const HEADER_READ_COUNT: usize = 1024;
/// Default `btree_chunk_size`, in bytes. CouchDB's is 1279.
pub const BTREE_CHUNK_SIZE: usize = 4096;
/// Default depth down to which pointer nodes are cached; the root has depth 1.
pub const CACHE_DEPTH: u8 = 3;

/// How a file is read and written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileOptions {
    /// Algorithm of the checksums that are written, and the one tried first when reading.
    pub checksum: ChecksumKind,
    /// Compression of the terms that are written.
    pub compression: Compression,
    /// Uncompressed size, in bytes, above which a B-tree node is split.
    pub btree_chunk_size: usize,
    /// Blocks that the search for a header looks at together.
    pub header_read_count: usize,
    /// Depth down to which pointer nodes are cached; 0 is never.
    pub cache_depth: u8,
    /// When the file is synced.
    pub sync: SyncOptions,
    /// Whether zeros are written ahead of the end, so that few commits change the file's length.
    pub space_ahead: bool,
    /// Takes each sealed header as it is. For the test that shows what the seal is for, and for nothing else.
    #[doc(hidden)]
    pub trust_seals: bool,
}

/// When a file is synced, as CouchDB's `fsync_options` says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SyncOptions {
    /// Between what is appended and the header, which then needs no seal. Without it, headers are sealed.
    pub before_header: bool,
    /// Behind the header. Without it, a commit is not durable when it is acknowledged.
    pub after_header: bool,
    /// When a file is opened for writing, for what another process may have left unsynced.
    pub on_open: bool,
}

impl Default for SyncOptions {
    fn default() -> Self {
        Self {
            before_header: false,
            after_header: true,
            on_open: true,
        }
    }
}

impl Default for FileOptions {
    fn default() -> Self {
        Self {
            checksum: ChecksumKind::Xxh3,
            compression: Compression::Snappy,
            btree_chunk_size: BTREE_CHUNK_SIZE,
            header_read_count: HEADER_READ_COUNT,
            cache_depth: CACHE_DEPTH,
            sync: SyncOptions::default(),
            space_ahead: true,
            trust_seals: false,
        }
    }
}
