//! The single writer of a file.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::chunk::{self, Head, PAYLOAD_BYTES_MAX};
use super::error::FileError;
use super::file::{CouchFile, io_error, next_block};
use super::header::{self, HEADER_BYTES_MAX};
use super::memo::NodeMemo;
use super::vfs::Wait;
use crate::cache::Key;
use crate::codec::compress::compress;

/// Unwritten bytes above which an append writes on its own account.
const FLUSH_BYTES: usize = 8 * 1024 * 1024;
/// Room that the buffer keeps after a write.
const BUFFER_KEEP_BYTES: usize = 1024 * 1024;

/// Where something was appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// Byte position of its beginning.
    pub pos: u64,
    /// Bytes it takes in the file, with length, checksum and prefix bytes. CouchDB's sizes are made of these.
    pub written: u64,
}

/// The single writer of a [`CouchFile`].
///
/// Appended chunks are collected in memory in their form on disk until [`flush`](Self::flush), and can be read through
/// this value at once. After a failed write or sync nothing is known about the file any more, so every later call fails
/// with [`FileError::Latched`]: the file has to be opened again.
#[derive(Debug)]
pub struct Appender {
    file: Arc<CouchFile>,
    /// Bytes behind `flushed` that are not written yet.
    pending: Vec<u8>,
    flushed: u64,
    eof: u64,
    latch: Option<Arc<str>>,
    scratch: Vec<u8>,
    memo: RefCell<NodeMemo>,
}

impl Appender {
    /// A writer that appends at the end of `file`. There must be only one for a file.
    #[must_use]
    pub fn new(file: Arc<CouchFile>) -> Self {
        let eof = file.len();
        Self {
            file,
            pending: Vec::new(),
            flushed: eof,
            eof,
            latch: None,
            scratch: Vec::new(),
            memo: RefCell::default(),
        }
    }

    /// The file.
    #[must_use]
    pub const fn file(&self) -> &Arc<CouchFile> {
        &self.file
    }

    /// Position of the next chunk, in bytes.
    #[must_use]
    pub const fn eof(&self) -> u64 {
        self.eof
    }

    /// Appends a chunk with a checksum.
    ///
    /// # Errors
    /// [`FileError::ChunkLength`] for an empty payload (which nobody could read) or one beyond the format's 2^31 - 1
    /// bytes; [`FileError::Latched`]; [`FileError::Io`] when the buffer was full and had to be written.
    pub fn append_chunk(&mut self, payload: &[u8]) -> Result<Chunk, FileError> {
        self.check_latch()?;
        if payload.is_empty() || payload.len() > PAYLOAD_BYTES_MAX {
            return Err(self.chunk_length(payload.len()));
        }
        let pos = self.eof;
        let end = chunk::append(&mut self.pending, pos, payload, self.file.options().checksum);
        self.eof = end;
        if self.pending.len() >= FLUSH_BYTES {
            self.flush()?;
        }
        Ok(Chunk {
            pos,
            written: end - pos,
        })
    }

    /// Appends a term, given with its version byte 131, compressed as the file's options say.
    ///
    /// # Errors
    /// As [`append_chunk`](Self::append_chunk).
    pub fn append_term(&mut self, etf: &[u8]) -> Result<Chunk, FileError> {
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.clear();
        compress(etf, self.file.options().compression, &mut scratch);
        let chunk = self.append_chunk(&scratch);
        self.scratch = scratch;
        chunk
    }

    /// Appends a term that the next header will point to (security, properties, time-seq) in the place of the one at
    /// `old`, and puts it into the cache.
    ///
    /// # Errors
    /// As [`append_chunk`](Self::append_chunk).
    pub fn append_header_term(&mut self, etf: &[u8], old: Option<u64>) -> Result<Chunk, FileError> {
        let chunk = self.append_term(etf)?;
        let file = self.file.id();
        if let (Some(cache), Some(offset)) = (self.file.cache(), old) {
            cache.reset(Key { file, offset });
        }
        self.file.keep_header_term(
            Key {
                file,
                offset: chunk.pos,
            },
            &etf.into(),
        );
        Ok(chunk)
    }

    /// Hands everything appended to the system, in one write. Nothing is durable before [`sync`](Self::sync).
    ///
    /// # Errors
    /// [`FileError::Latched`], or [`FileError::Io`], after which the appender is latched.
    pub fn flush(&mut self) -> Result<(), FileError> {
        self.check_latch()?;
        if self.pending.is_empty() {
            return Ok(());
        }
        self.file.stats().writes.fetch_add(1, Ordering::Relaxed);
        if let Err(source) = self.file.file.write_at(&self.pending, self.flushed) {
            let error = io_error(self.file.shared_path(), "writing", self.flushed, source);
            return Err(self.latch(error));
        }
        self.pending.clear();
        self.pending.shrink_to(BUFFER_KEEP_BYTES);
        self.flushed = self.eof;
        self.file.set_eof(self.eof);
        Ok(())
    }

    /// Writes what is appended and makes it durable.
    ///
    /// # Errors
    /// As [`flush`](Self::flush).
    pub fn sync(&mut self) -> Result<(), FileError> {
        self.flush()?;
        self.file.stats().syncs.fetch_add(1, Ordering::Relaxed);
        if let Err(source) = self.file.file.sync_data() {
            let error = io_error(self.file.shared_path(), "syncing", self.flushed, source);
            return Err(self.latch(error));
        }
        Ok(())
    }

    /// Commits: syncs what the header points to, writes the header, syncs again. `etf` has its version byte 131.
    ///
    /// # Errors
    /// As [`flush`](Self::flush), and [`FileError::ChunkLength`] for a header beyond its bound.
    pub fn write_header(&mut self, etf: &[u8]) -> Result<Chunk, FileError> {
        self.check_header_length(etf)?;
        self.sync()?;
        let chunk = self.append_header(etf)?;
        self.sync()?;
        Ok(chunk)
    }

    /// Writes a header without any sync, as CouchDB does for view files.
    ///
    /// # Errors
    /// As [`write_header`](Self::write_header).
    pub fn write_header_unsynced(&mut self, etf: &[u8]) -> Result<Chunk, FileError> {
        let chunk = self.append_header(etf)?;
        self.flush()?;
        Ok(chunk)
    }

    /// Appends padding and a header to what is not written yet.
    fn append_header(&mut self, etf: &[u8]) -> Result<Chunk, FileError> {
        self.check_latch()?;
        self.check_header_length(etf)?;
        let pos = next_block(self.eof);
        let padding = usize::try_from(pos - self.eof).unwrap_or_default();
        self.pending.resize(self.pending.len() + padding, 0);
        self.eof = header::append(&mut self.pending, pos, etf, self.file.options().checksum);
        Ok(Chunk {
            pos,
            written: self.eof - pos,
        })
    }

    /// Reads the payload of a chunk, whether it is written yet or not.
    ///
    /// # Errors
    /// As [`CouchFile::read_chunk`].
    pub fn read_chunk(&self, pos: u64, out: &mut Vec<u8>) -> Result<(), FileError> {
        self.read_chunk_hint(pos, super::file::READ_GUESS_BYTES, Wait::Yes, out)
    }

    /// The same with the number of bytes to read at once, and without waiting if that is asked for.
    ///
    /// # Errors
    /// As [`CouchFile::read_chunk`].
    pub fn read_chunk_hint(
        &self,
        pos: u64,
        hint: usize,
        wait: Wait,
        out: &mut Vec<u8>,
    ) -> Result<(), FileError> {
        if pos < self.flushed {
            return self.file.read_chunk_hint(pos, hint, wait, out);
        }
        let start = usize::try_from(pos - self.flushed).unwrap_or(usize::MAX);
        let raw = self.pending.get(start..).unwrap_or_default();
        let Some(head) = Head::parse(raw, pos) else {
            return Err(self.file.beyond_eof(pos, chunk::LENGTH_BYTES as u64));
        };
        let total = head.raw_len(pos);
        let Some(raw) = usize::try_from(total).ok().and_then(|total| raw.get(..total)) else {
            return Err(self.file.beyond_eof(pos, total));
        };
        out.clear();
        out.extend_from_slice(raw);
        self.file.unwrap_chunk(pos, head, out)
    }

    /// Cuts the file to `len` bytes, forgetting what was not written yet.
    ///
    /// # Errors
    /// [`FileError::Latched`], or [`FileError::Io`], after which the appender is latched.
    pub fn truncate(&mut self, len: u64) -> Result<(), FileError> {
        self.check_latch()?;
        self.pending.clear();
        self.memo.borrow_mut().clear();
        if let Err(error) = self.file.truncate(len) {
            return Err(self.latch(error));
        }
        self.flushed = len;
        self.eof = len;
        Ok(())
    }

    /// Gives back the memory of remembered nodes and of the buffer, for a database that is idle.
    pub fn forget(&mut self) {
        self.memo.borrow_mut().clear();
        self.pending.shrink_to_fit();
        self.scratch = Vec::new();
    }

    /// Uncompressed nodes that were read or written of late.
    pub(super) const fn memo(&self) -> &RefCell<NodeMemo> {
        &self.memo
    }

    fn check_latch(&self) -> Result<(), FileError> {
        match &self.latch {
            None => Ok(()),
            Some(cause) => Err(FileError::Latched {
                path: Arc::clone(self.file.shared_path()),
                cause: Arc::clone(cause),
            }),
        }
    }

    fn latch(&mut self, error: FileError) -> FileError {
        self.latch = Some(error.to_string().into());
        error
    }

    fn check_header_length(&self, etf: &[u8]) -> Result<(), FileError> {
        if etf.is_empty() || etf.len() > HEADER_BYTES_MAX - crate::codec::checksum::CHECKSUM_BYTES {
            return Err(self.chunk_length(etf.len()));
        }
        Ok(())
    }

    fn chunk_length(&self, length: usize) -> FileError {
        FileError::ChunkLength {
            path: Arc::clone(self.file.shared_path()),
            length: length as u64,
        }
    }
}
