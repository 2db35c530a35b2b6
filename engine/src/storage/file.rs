//! The read handle of an append-only file.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use super::blocks::BLOCK_BYTES;
use super::btree::CachedNode;
use super::chunk::{self, Head};
use super::error::FileError;
use super::header::{self, FoundHeader};
use super::options::FileOptions;
use super::vfs::{OpenMode, Vfs, VfsFile, Wait};
pub use crate::cache::FileId;
use crate::cache::{Cache, Key, Priority};
use crate::codec::compress::decompress;

/// The cache that files of a node share.
pub type NodeCache = Cache<CachedNode>;

/// Bytes read at once when nothing is known about a chunk's length.
pub const READ_GUESS_BYTES: usize = 4096;
/// Priority in the cache of terms that headers point to, above that of any node.
const HEADER_TERM_PRIORITY: Priority = 16;

/// What was done with a file since it was opened.
#[derive(Debug, Default)]
pub struct FileStats {
    /// Read calls to the system.
    pub reads: AtomicU64,
    /// Write calls to the system.
    pub writes: AtomicU64,
    /// Data syncs.
    pub syncs: AtomicU64,
    /// Chunks whose checksum was not made with the algorithm that is configured.
    pub legacy_checksums: AtomicU64,
    /// Reads of chunks beyond the end of the file.
    pub exceed_eof: AtomicU64,
    /// Searches for the header that passed over a newer one whose seal does not fit.
    pub refused_headers: AtomicU64,
}

/// An open append-only file, shared by everyone who reads it. The one who writes has an [`Appender`](super::Appender).
#[derive(Debug)]
pub struct CouchFile {
    /// The current [`FileId`]; it changes when the file is truncated.
    id: AtomicU64,
    path: Arc<Path>,
    pub(super) file: Arc<dyn VfsFile>,
    options: FileOptions,
    cache: Option<Arc<NodeCache>>,
    eof: AtomicU64,
    stats: FileStats,
    /// Held by whoever changes the id or closes, so that the two cannot cross.
    closed: Mutex<bool>,
}

impl CouchFile {
    /// Opens an existing file for reading and writing.
    ///
    /// # Errors
    /// [`FileError::NotFound`], or [`FileError::Io`].
    pub fn open(
        vfs: &dyn Vfs,
        path: &Path,
        options: FileOptions,
        cache: Option<Arc<NodeCache>>,
    ) -> Result<Self, FileError> {
        let path: Arc<Path> = path.into();
        let file = vfs
            .open(&path, OpenMode::ReadWrite)
            .map_err(|source| match source.kind() {
                io::ErrorKind::NotFound => FileError::NotFound {
                    path: Arc::clone(&path),
                },
                _ => io_error(&path, "opening", 0, source),
            })?;
        Self::with_file(file, path, options, cache)
    }

    /// Makes a file and its directories. An empty file that is there is taken; with `overwrite` any file is, and cut to
    /// nothing. The directory is synced, so that the name survives a crash.
    ///
    /// # Errors
    /// [`FileError::Exists`] when the file has bytes and may not be overwritten; [`FileError::Io`].
    pub fn create(
        vfs: &dyn Vfs,
        path: &Path,
        options: FileOptions,
        cache: Option<Arc<NodeCache>>,
        overwrite: bool,
    ) -> Result<Self, FileError> {
        let path: Arc<Path> = path.into();
        let fail = |operation, source| io_error(&path, operation, 0, source);
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        if let Some(parent) = parent {
            vfs.create_dir_all(parent)
                .map_err(|e| fail("making the directory", e))?;
        }
        let file = vfs
            .open(&path, OpenMode::Create)
            .map_err(|e| fail("creation", e))?;
        if file.len().map_err(|e| fail("measuring", e))? > 0 {
            if !overwrite {
                return Err(FileError::Exists { path });
            }
            file.set_len(0).map_err(|e| fail("truncation", e))?;
            file.sync_data().map_err(|e| fail("syncing", e))?;
        }
        if let Some(parent) = parent {
            vfs.sync_dir(parent)
                .map_err(|e| fail("syncing the directory", e))?;
        }
        Self::with_file(file, path, options, cache)
    }

    fn with_file(
        file: Arc<dyn VfsFile>,
        path: Arc<Path>,
        options: FileOptions,
        cache: Option<Arc<NodeCache>>,
    ) -> Result<Self, FileError> {
        let eof = file
            .len()
            .map_err(|source| io_error(&path, "measuring", 0, source))?;
        let id = FileId::fresh();
        if let Some(cache) = &cache {
            cache.register(id);
        }
        Ok(Self {
            id: AtomicU64::new(id.get()),
            path,
            file,
            options,
            cache,
            eof: AtomicU64::new(eof),
            stats: FileStats::default(),
            closed: Mutex::new(false),
        })
    }

    /// The id under which this file's nodes are cached now.
    #[must_use]
    pub fn id(&self) -> FileId {
        FileId::from_raw(self.id.load(Ordering::Acquire))
    }

    /// The path that the file was opened with.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub(super) const fn shared_path(&self) -> &Arc<Path> {
        &self.path
    }

    /// The options that the file was opened with.
    #[must_use]
    pub const fn options(&self) -> &FileOptions {
        &self.options
    }

    /// The shared cache, unless this file does not use it.
    #[must_use]
    pub const fn cache(&self) -> Option<&Arc<NodeCache>> {
        self.cache.as_ref()
    }

    /// Counters.
    #[must_use]
    pub const fn stats(&self) -> &FileStats {
        &self.stats
    }

    /// Length in bytes of what has been handed to the system.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.eof.load(Ordering::Acquire)
    }

    /// True for a file without bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(super) fn set_eof(&self, eof: u64) {
        self.eof.store(eof, Ordering::Release);
    }

    /// Cuts the file to `len` bytes. From here on its nodes are cached under a new id, and the old entries are gone.
    pub(super) fn truncate(&self, len: u64) -> Result<(), FileError> {
        self.file
            .set_len(len)
            .map_err(|source| io_error(&self.path, "truncation", len, source))?;
        self.set_eof(len);
        // The id changes after the cut and before anything is written again: a reader that still has the old id can
        // cache nothing under the new one that it read before the cut.
        let fresh = FileId::fresh();
        let closed = self.closed.lock();
        let old = FileId::from_raw(self.id.swap(fresh.get(), Ordering::AcqRel));
        if let Some(cache) = &self.cache {
            if !*closed {
                cache.register(fresh);
            }
            cache.unregister(old);
        }
        Ok(())
    }

    /// Removes this file's entries from the cache at once. Reads go on to work and cache nothing.
    pub fn close(&self) {
        let mut closed = self.closed.lock();
        *closed = true;
        if let Some(cache) = &self.cache {
            cache.unregister(self.id());
        }
    }

    /// The newest header that counts: whole, and sealed by the bytes before it if it is sealed at all. `None` when the
    /// file has none.
    ///
    /// # Errors
    /// [`FileError::Io`]; [`FileError::Corrupt`] for a seal that is not known, or when many headers do not count. What
    /// is no header at all is skipped.
    pub fn find_header(&self) -> Result<Option<FoundHeader>, FileError> {
        let found = header::find(self)?;
        if found.as_ref().is_some_and(|found| found.refused.is_some()) {
            self.stats.refused_headers.fetch_add(1, Ordering::Relaxed);
        }
        Ok(found)
    }

    /// Reads the payload of the chunk at `pos` into `out`, whose contents are replaced and whose room is used again.
    ///
    /// # Errors
    /// [`FileError::WouldBlock`] with [`Wait::No`]; [`FileError::ReadBeyondEof`]; [`FileError::Corrupt`] when the
    /// checksum does not fit; [`FileError::Io`].
    pub fn read_chunk(&self, pos: u64, wait: Wait, out: &mut Vec<u8>) -> Result<(), FileError> {
        self.read_chunk_hint(pos, READ_GUESS_BYTES, wait, out)
    }

    /// The same, reading `hint` bytes at once; with the chunk's true length there is exactly one read call.
    ///
    /// # Errors
    /// As [`read_chunk`](Self::read_chunk).
    pub fn read_chunk_hint(
        &self,
        pos: u64,
        hint: usize,
        wait: Wait,
        out: &mut Vec<u8>,
    ) -> Result<(), FileError> {
        let eof = self.len();
        let available = eof.saturating_sub(pos);
        // Enough for the head wherever a prefix byte falls.
        let guess = hint.max(chunk::HEAD_BYTES + 1);
        self.read_raw(
            pos,
            guess.min(usize::try_from(available).unwrap_or(usize::MAX)),
            wait,
            out,
        )?;
        let Some(head) = Head::parse(out, pos) else {
            return Err(self.beyond_eof(pos, chunk::LENGTH_BYTES as u64));
        };
        let total = head.raw_len(pos);
        if total > available {
            return Err(self.beyond_eof(pos, total));
        }
        let have = out.len();
        let total = usize::try_from(total).unwrap_or(usize::MAX);
        if total > have {
            out.resize(total, 0);
            self.read_exact(pos + have as u64, wait, &mut out[have..])?;
        } else {
            out.truncate(total);
        }
        self.unwrap_chunk(pos, head, out)
    }

    /// A term that a header points to (security, properties, time-seq), with its version byte 131 and not compressed.
    /// It is kept in the shared cache.
    ///
    /// # Errors
    /// As [`read_chunk`](Self::read_chunk), and [`FileError::Corrupt`] when it cannot be decompressed.
    pub fn header_term(&self, pos: u64, wait: Wait) -> Result<Arc<[u8]>, FileError> {
        let key = Key {
            file: self.id(),
            offset: pos,
        };
        if let Some(CachedNode::Term(term)) = self.cache.as_ref().and_then(|cache| cache.lookup(key)) {
            return Ok(term);
        }
        let mut stored = Vec::new();
        self.read_chunk(pos, wait, &mut stored)?;
        let term: Arc<[u8]> = decompress(&stored)
            .map_err(|error| self.corrupt(pos, error.to_string()))?
            .as_ref()
            .into();
        self.keep_header_term(key, &term);
        Ok(term)
    }

    pub(super) fn keep_header_term(&self, key: Key, term: &Arc<[u8]>) {
        if let Some(cache) = &self.cache {
            cache.insert(key, CachedNode::Term(Arc::clone(term)), HEADER_TERM_PRIORITY);
        }
    }

    /// Checks a whole raw chunk and leaves its payload.
    pub(super) fn unwrap_chunk(&self, pos: u64, head: Head, raw: &mut Vec<u8>) -> Result<(), FileError> {
        match chunk::unwrap(raw, pos, head, self.options.checksum) {
            Ok(Some(kind)) if kind != self.options.checksum => {
                self.stats.legacy_checksums.fetch_add(1, Ordering::Relaxed);
                Ok(())
            }
            Ok(_) => Ok(()),
            Err(chunk::Mismatch) => Err(self.corrupt(pos, "checksum mismatch")),
        }
    }

    /// Replaces `out` by `len` raw bytes from `pos`.
    pub(super) fn read_raw(
        &self,
        pos: u64,
        len: usize,
        wait: Wait,
        out: &mut Vec<u8>,
    ) -> Result<(), FileError> {
        // Cutting and not clearing: only what a longer read adds has to be zeroed.
        out.truncate(len);
        out.resize(len, 0);
        self.read_exact(pos, wait, out)
    }

    fn read_exact(&self, pos: u64, wait: Wait, buf: &mut [u8]) -> Result<(), FileError> {
        self.stats.reads.fetch_add(1, Ordering::Relaxed);
        match self.file.read_at(buf, pos, wait) {
            Ok(read) if read == buf.len() => Ok(()),
            Ok(_) => Err(self.beyond_eof(pos, buf.len() as u64)),
            Err(source) if source.kind() == io::ErrorKind::WouldBlock => Err(FileError::WouldBlock {
                path: Arc::clone(&self.path),
                pos,
            }),
            Err(source) => Err(io_error(&self.path, "reading", pos, source)),
        }
    }

    #[cold]
    pub(super) fn beyond_eof(&self, pos: u64, wanted: u64) -> FileError {
        self.stats.exceed_eof.fetch_add(1, Ordering::Relaxed);
        FileError::ReadBeyondEof {
            path: Arc::clone(&self.path),
            pos,
            wanted,
            eof: self.len(),
        }
    }

    /// A [`FileError::Corrupt`] that names this file.
    #[cold]
    #[must_use]
    pub fn corrupt(&self, pos: u64, reason: impl Into<String>) -> FileError {
        FileError::Corrupt {
            path: Arc::clone(&self.path),
            pos,
            reason: reason.into(),
        }
    }
}

impl Drop for CouchFile {
    fn drop(&mut self) {
        self.close();
    }
}

pub(super) fn io_error(path: &Arc<Path>, operation: &'static str, pos: u64, source: io::Error) -> FileError {
    FileError::Io {
        path: Arc::clone(path),
        operation,
        pos,
        source,
    }
}

/// Rounds up to the beginning of a block.
pub(super) const fn next_block(pos: u64) -> u64 {
    pos.div_ceil(BLOCK_BYTES) * BLOCK_BYTES
}
