//! Reading many chunks with few system calls.

use std::sync::Arc;

use super::chunk::{Head, LENGTH_BYTES};
use super::error::FileError;
use super::file::{CouchFile, FileId, READ_GUESS_BYTES};
use super::vfs::Wait;

/// Largest window read ahead, in bytes.
pub const WINDOW_BYTES_MAX: usize = 128 * 1024;
/// Positions closer than this, in bytes, are read together: copying so much costs about as much as a system call.
const GAP_BYTES: u64 = 8 * 1024;
/// Room kept for the last chunk of a window whose length is not known.
const TAIL_BYTES: u64 = 2 * READ_GUESS_BYTES as u64;

/// A reader with a window that grows while positions lie next to each other, upwards or downwards, and shrinks to one
/// chunk when they jump.
#[derive(Debug)]
pub struct ReadAhead {
    file: Arc<CouchFile>,
    window: Vec<u8>,
    start: u64,
    /// The file's id when the window was read; after a truncation it is another one and the window is void.
    id: FileId,
    /// Bytes to read at the next miss.
    size: usize,
}

impl ReadAhead {
    /// A reader of `file` with an empty window.
    #[must_use]
    pub fn new(file: Arc<CouchFile>) -> Self {
        let id = file.id();
        Self {
            file,
            window: Vec::new(),
            start: 0,
            id,
            size: READ_GUESS_BYTES,
        }
    }

    /// The file.
    #[must_use]
    pub const fn file(&self) -> &Arc<CouchFile> {
        &self.file
    }

    /// Reads the payload of the chunk at `pos` into `out`, whose contents are replaced.
    ///
    /// # Errors
    /// As [`CouchFile::read_chunk`].
    pub fn read_chunk(&mut self, pos: u64, wait: Wait, out: &mut Vec<u8>) -> Result<(), FileError> {
        if self.copy_from_window(pos, out)? {
            return Ok(());
        }
        let end = self.start + self.window.len() as u64;
        let upwards = pos >= self.start && pos <= end.saturating_add(GAP_BYTES);
        let downwards = pos < self.start && self.start - pos <= GAP_BYTES;
        self.size = if !self.window.is_empty() && (upwards || downwards) {
            (self.size * 4).min(WINDOW_BYTES_MAX)
        } else {
            READ_GUESS_BYTES
        };
        let from = if downwards {
            (pos + TAIL_BYTES).saturating_sub(self.size as u64).min(pos)
        } else {
            pos
        };
        self.load(from, self.size, wait)?;
        if self.copy_from_window(pos, out)? {
            return Ok(());
        }
        // A chunk longer than the window.
        self.file.read_chunk(pos, wait, out)
    }

    /// Reads many chunks, sorted and coalesced, and calls `f` with the index of each position and its payload, in the
    /// order of the file.
    ///
    /// # Errors
    /// As [`CouchFile::read_chunk`]; `f` has then been called for some of them.
    pub fn read_many(
        &mut self,
        positions: &[u64],
        wait: Wait,
        mut f: impl FnMut(usize, &[u8]),
    ) -> Result<(), FileError> {
        let mut order: Vec<usize> = (0..positions.len()).collect();
        order.sort_unstable_by_key(|index| positions[*index]);
        let mut out = Vec::new();
        let mut at = 0;
        while at < order.len() {
            let first = positions[order[at]];
            let mut last = first;
            let mut next = at + 1;
            while next < order.len() {
                let pos = positions[order[next]];
                if pos - last > GAP_BYTES || pos - first > WINDOW_BYTES_MAX as u64 {
                    break;
                }
                last = pos;
                next += 1;
            }
            let wanted = last - first + READ_GUESS_BYTES as u64;
            if next > at + 1 && !self.covers(first, wanted) {
                self.load(first, usize::try_from(wanted).unwrap_or(WINDOW_BYTES_MAX), wait)?;
            }
            for index in &order[at..next] {
                if !self.copy_from_window(positions[*index], &mut out)? {
                    self.file.read_chunk(positions[*index], wait, &mut out)?;
                }
                f(*index, &out);
            }
            at = next;
        }
        Ok(())
    }

    fn covers(&self, from: u64, len: u64) -> bool {
        from >= self.start && from.saturating_add(len) <= self.start + self.window.len() as u64
    }

    fn load(&mut self, from: u64, len: usize, wait: Wait) -> Result<(), FileError> {
        let available = usize::try_from(self.file.len().saturating_sub(from)).unwrap_or(usize::MAX);
        let id = self.file.id();
        let result = self
            .file
            .read_raw(from, len.min(available), wait, &mut self.window);
        self.start = from;
        self.id = id;
        if result.is_err() {
            // What a failed read left in the buffer must not be taken for the file.
            self.window.clear();
        }
        result
    }

    /// Takes the chunk from the window; false when it is not wholly there.
    fn copy_from_window(&self, pos: u64, out: &mut Vec<u8>) -> Result<bool, FileError> {
        if self.file.id() != self.id {
            return Ok(false);
        }
        let Some(start) = pos
            .checked_sub(self.start)
            .and_then(|start| usize::try_from(start).ok())
        else {
            return Ok(false);
        };
        let Some(raw) = self.window.get(start..).filter(|raw| raw.len() > LENGTH_BYTES) else {
            return Ok(false);
        };
        let Some(head) = Head::parse(raw, pos) else {
            return Ok(false);
        };
        let Some(raw) = usize::try_from(head.raw_len(pos))
            .ok()
            .and_then(|total| raw.get(..total))
        else {
            return Ok(false);
        };
        out.clear();
        out.extend_from_slice(raw);
        self.file.unwrap_chunk(pos, head, out)?;
        Ok(true)
    }
}
