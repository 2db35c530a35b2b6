//! The single writer of a file.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::blocks::BLOCK_BYTES;
use super::chunk::{self, Head, PAYLOAD_BYTES_MAX};
use super::error::FileError;
use super::file::{CouchFile, io_error, next_block};
use super::header::{self, FoundHeader, TERM_BYTES_MAX};
use super::memo::NodeMemo;
use super::seal::{REGION_BYTES_MAX, Region};
use super::vfs::Wait;
use crate::cache::Key;
use crate::codec::compress::compress;

/// Unwritten bytes above which an append writes on its own account.
const FLUSH_BYTES: usize = 8 * 1024 * 1024;
/// Room that the buffer keeps after a write.
const BUFFER_KEEP_BYTES: usize = 1024 * 1024;
/// Space ahead of the end comes in multiples of this, in bytes; files below twice as much have none.
const AHEAD_BYTES_MIN: u64 = 64 * 1024;
/// Most bytes of space ahead of the end.
const AHEAD_BYTES_MAX: u64 = 256 * 1024;
/// Space ahead is written for commits that it would hold so many of: long ones gain nothing by it.
const AHEAD_COMMITS: u64 = 8;
static ZEROS: [u8; AHEAD_BYTES_MAX as usize] = [0; AHEAD_BYTES_MAX as usize];

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
/// this value at once. After a failed write or sync nothing is known about the bytes behind the last commit any more:
/// they are cut off, and every later call fails with [`FileError::Latched`] until the file is opened again.
#[derive(Debug)]
pub struct Appender {
    file: Arc<CouchFile>,
    /// Bytes behind `flushed` that are not written yet.
    pending: Vec<u8>,
    flushed: u64,
    eof: u64,
    /// What was written since the last sync.
    region: Region,
    /// Where the last commit or sync ended; the bytes before it are never cut off.
    kept: u64,
    /// Length of the file with the zeros that were written ahead.
    allocated: u64,
    /// Whether space ahead was refused once; there will be no other try.
    without_space: bool,
    /// Whether something lies behind the end of a file that was opened, or its last byte is missing.
    ragged: bool,
    /// Whether the end of a file that was opened may not be durable yet.
    unsynced: bool,
    latch: Option<Arc<str>>,
    scratch: Vec<u8>,
    memo: RefCell<NodeMemo>,
}

impl Appender {
    /// A writer that appends at the end of `file`, whose bytes are all durable. There must be only one for a file.
    #[must_use]
    pub fn new(file: Arc<CouchFile>) -> Self {
        let eof = file.len();
        Self {
            file,
            pending: Vec::new(),
            flushed: eof,
            eof,
            region: Region::new(eof),
            kept: eof,
            allocated: eof,
            without_space: false,
            ragged: false,
            unsynced: false,
            latch: None,
            scratch: Vec::new(),
            memo: RefCell::default(),
        }
    }

    /// A writer that appends behind the header that was found in `file`. What lies there is cut off before the first
    /// write. Another process may have written the header and ended before it synced; so it is synced now, or before the
    /// first write when the options say so.
    ///
    /// # Errors
    /// [`FileError::Io`] when the file cannot be synced.
    pub fn resume(file: Arc<CouchFile>, found: &FoundHeader) -> Result<Self, FileError> {
        let ragged = file.len() != found.end;
        file.set_eof(found.end);
        let mut writer = Self::new(file);
        writer.ragged = ragged;
        writer.unsynced = true;
        if writer.file.options().sync.on_open {
            writer.sync_written()?;
        }
        Ok(writer)
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

    /// Hands everything appended to the system, in one write. Nothing is durable before [`sync`](Self::sync), unless so
    /// much waits that it was synced on the way.
    ///
    /// # Errors
    /// [`FileError::Latched`], or [`FileError::Io`], after which the appender is latched.
    pub fn flush(&mut self) -> Result<(), FileError> {
        self.check_latch()?;
        if !self.pending.is_empty() {
            // Before the region grows, since it may begin anew there.
            self.settle()?;
            self.region.extend(&self.pending);
        }
        self.write_pending()?;
        if self.flushed - self.region.start() > REGION_BYTES_MAX {
            self.sync_written()?;
        }
        Ok(())
    }

    /// Writes what is appended and makes it durable.
    ///
    /// # Errors
    /// As [`flush`](Self::flush).
    pub fn sync(&mut self) -> Result<(), FileError> {
        self.check_latch()?;
        self.write_pending()?;
        if self.file.options().space_ahead && self.flushed > self.allocated {
            self.write_ahead();
        }
        self.sync_written()
    }

    /// Cuts off the space ahead, when the file is closed. Without it, opening does that.
    pub fn close(mut self) {
        if self.latch.is_none() && self.allocated > self.flushed {
            self.cut_ahead();
        }
    }

    /// Commits: writes the header behind what it points to, with one sync or two as the file's options say. `etf` has
    /// its version byte 131.
    ///
    /// # Errors
    /// As [`flush`](Self::flush), and [`FileError::ChunkLength`] for a header beyond its bound.
    pub fn write_header(&mut self, etf: &[u8]) -> Result<Chunk, FileError> {
        self.check_header_length(etf)?;
        let sync = self.file.options().sync;
        if sync.before_header {
            self.sync()?;
        }
        let chunk = self.append_header(etf)?;
        if sync.after_header {
            self.sync()?;
        } else {
            self.flush()?;
        }
        self.kept = self.eof;
        Ok(chunk)
    }

    /// Writes a header without any sync, as CouchDB does for view files.
    ///
    /// # Errors
    /// As [`write_header`](Self::write_header).
    pub fn write_header_unsynced(&mut self, etf: &[u8]) -> Result<Chunk, FileError> {
        let chunk = self.append_header(etf)?;
        self.flush()?;
        self.kept = self.eof;
        Ok(chunk)
    }

    /// Appends padding and a header to what is not written yet.
    fn append_header(&mut self, etf: &[u8]) -> Result<Chunk, FileError> {
        self.check_latch()?;
        self.check_header_length(etf)?;
        let options = self.file.options();
        let (sealed, checksum) = (!options.sync.before_header, options.checksum);
        if sealed && next_block(self.eof) - self.region.start() > REGION_BYTES_MAX {
            self.sync()?;
        }
        let pos = next_block(self.eof);
        let padding = usize::try_from(pos - self.eof).unwrap_or_default();
        self.pending.resize(self.pending.len() + padding, 0);
        let seal = sealed.then(|| self.region.seal(&self.pending));
        self.eof = header::append(&mut self.pending, pos, etf, seal.as_ref(), checksum);
        Ok(Chunk {
            pos,
            written: self.eof - pos,
        })
    }

    /// Writes what waits; whoever calls it adds the bytes to the region, or ends the region by a sync.
    fn write_pending(&mut self) -> Result<(), FileError> {
        if self.pending.is_empty() {
            return Ok(());
        }
        self.settle()?;
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

    /// Writes zeros behind a commit that made the file longer, so that the next ones do not. A sync is faster when the
    /// length and the blocks of the file stay as they are; only blocks that were written do, reserved ones do not.
    fn write_ahead(&mut self) {
        self.allocated = self.flushed;
        let since_sync = self.flushed - self.region.start();
        let half = self.flushed / 2;
        let ahead = (half - half % AHEAD_BYTES_MIN).min(AHEAD_BYTES_MAX);
        if self.without_space || ahead == 0 || since_sync > ahead / AHEAD_COMMITS {
            return;
        }
        let ahead = ahead - (self.flushed + ahead) % BLOCK_BYTES;
        let zeros = usize::try_from(ahead).ok().and_then(|ahead| ZEROS.get(..ahead));
        match self.file.file.write_at(zeros.unwrap_or_default(), self.flushed) {
            Ok(()) => self.allocated += ahead,
            Err(_) => {
                // Nothing that was asked for is lost by it.
                self.without_space = true;
                self.cut_ahead();
            }
        }
    }

    /// Cuts the file to what is written. A cut that fails leaves zeros, which opening tells from data.
    fn cut_ahead(&mut self) {
        if self.file.file.set_len(self.flushed).is_ok() {
            self.allocated = self.flushed;
        }
    }

    /// Makes what is written durable; the next region begins here.
    fn sync_written(&mut self) -> Result<(), FileError> {
        self.file.stats().syncs.fetch_add(1, Ordering::Relaxed);
        if let Err(source) = self.file.file.sync_data() {
            let error = io_error(self.file.shared_path(), "syncing", self.flushed, source);
            return Err(self.latch(error));
        }
        self.region = Region::new(self.flushed);
        self.kept = self.flushed;
        self.unsynced = false;
        Ok(())
    }

    /// Before the first write: cuts off what lies behind the end of a file that was opened, and makes it durable.
    ///
    /// Without the sync, a crash could put what was cut beside what is written next.
    fn settle(&mut self) -> Result<(), FileError> {
        if self.unsynced {
            // First: a cut that is not durable may leave the header that it took away, and zeros in what that points to.
            self.sync_written()?;
        }
        if self.ragged {
            let file = &self.file.file;
            // A header that ends with its block ends with the prefix of the next: cut before it, and let it grow as zero.
            let before_prefix = self.flushed - u64::from(self.flushed % BLOCK_BYTES == 1);
            let cut = file
                .set_len(before_prefix)
                .and_then(|()| file.set_len(self.flushed));
            if let Err(source) = cut {
                let error = io_error(self.file.shared_path(), "truncation", self.flushed, source);
                return Err(self.latch(error));
            }
            self.sync_written()?;
            self.ragged = false;
        }
        Ok(())
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
        // Whatever happens, only what was cut may be missing.
        self.kept = self.kept.min(len);
        if let Err(error) = self.file.truncate(len) {
            return Err(self.latch(error));
        }
        self.allocated = len;
        self.flushed = len;
        self.eof = len;
        self.ragged = false;
        // Synced, so that after a crash nothing that was cut can stand beside what is written next.
        self.sync_written()
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

    /// The failure since which everything is refused.
    #[must_use]
    pub fn latched(&self) -> Option<&str> {
        self.latch.as_deref()
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

    /// Refuses all that follows. What a failed sync leaves in memory looks durable and may not be, so the file is cut
    /// back to its last commit; should that fail too, its seal tells when it is opened.
    fn latch(&mut self, error: FileError) -> FileError {
        let mut cause = error.to_string();
        match self.file.file.set_len(self.kept) {
            Ok(()) => self.file.set_eof(self.kept),
            Err(second) => cause.push_str(&format!("; cutting it back to {} failed: {second}", self.kept)),
        }
        self.latch = Some(cause.into());
        error
    }

    fn check_header_length(&self, etf: &[u8]) -> Result<(), FileError> {
        if etf.is_empty() || etf.len() > TERM_BYTES_MAX {
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
