//! Headers: found by looking backwards for a block that begins with the header prefix and whose checksum fits.

use super::blocks::{self, BLOCK_BYTES, HEADER};
use super::chunk::LENGTH_BYTES;
use super::error::FileError;
use super::file::CouchFile;
use super::vfs::Wait;
use crate::codec::checksum::{CHECKSUM_BYTES, Checksum, ChecksumKind, checksum, verify};

/// Prefix byte and length field of a header block.
const PREFIX_BYTES: u64 = 5;
/// Most blocks read at once while searching: candidates are then found with few reads of bounded size.
const SCAN_BLOCKS_MAX: u64 = 256;
/// Longest header believed while searching, in bytes. Real ones are a few hundred; the bound keeps junk cheap.
pub const HEADER_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Appends a header at file position `pos`, which must begin a block; returns the position behind it.
pub(super) fn append(out: &mut Vec<u8>, pos: u64, etf: &[u8], kind: ChecksumKind) -> u64 {
    debug_assert!(pos.is_multiple_of(BLOCK_BYTES), "headers begin blocks");
    let length = u32::try_from(etf.len() + CHECKSUM_BYTES).unwrap_or(u32::MAX);
    out.push(HEADER);
    let end = blocks::append(out, pos + 1, &length.to_be_bytes());
    let end = blocks::append(out, end, &checksum(kind, etf));
    let end = blocks::append(out, end, etf);
    blocks::finish(out, end)
}

/// Finds the newest valid header.
pub(super) fn find(file: &CouchFile) -> Result<Option<(u64, Vec<u8>)>, FileError> {
    let eof = file.len();
    let mut scan = Vec::new();
    // Blocks at and above this one have been tried.
    let mut upper = eof.div_ceil(BLOCK_BYTES);
    let batch_max = (file.options().header_read_count as u64).clamp(1, SCAN_BLOCKS_MAX);
    // The newest header is nearly always in the last blocks; later batches grow.
    let mut batch = 2.min(batch_max);
    while upper > 0 {
        let lower = upper.saturating_sub(batch);
        let start = lower * BLOCK_BYTES;
        let len = (upper * BLOCK_BYTES).min(eof) - start;
        file.read_raw(
            start,
            usize::try_from(len).unwrap_or(usize::MAX),
            Wait::Yes,
            &mut scan,
        )?;
        for block in (lower..upper).rev() {
            let at = usize::try_from((block - lower) * BLOCK_BYTES).unwrap_or(usize::MAX);
            if scan.get(at) == Some(&HEADER)
                && let Some(etf) = load(file, block * BLOCK_BYTES)?
            {
                return Ok(Some((block * BLOCK_BYTES, etf)));
            }
        }
        upper = lower;
        batch = (batch * 4).min(batch_max);
    }
    Ok(None)
}

/// The header term at `pos`, or `None` when what stands there is no valid header.
fn load(file: &CouchFile, pos: u64) -> Result<Option<Vec<u8>>, FileError> {
    let available = file.len().saturating_sub(pos);
    if available < PREFIX_BYTES {
        return Ok(None);
    }
    let mut raw = Vec::new();
    let first = usize::try_from(available.min(BLOCK_BYTES)).unwrap_or_default();
    file.read_raw(pos, first, Wait::Yes, &mut raw)?;
    let Some(field) = raw.get(1..1 + LENGTH_BYTES).and_then(|f| f.try_into().ok()) else {
        return Ok(None);
    };
    let length = usize::try_from(u32::from_be_bytes(field)).unwrap_or(usize::MAX);
    if length <= CHECKSUM_BYTES || length > HEADER_BYTES_MAX {
        return Ok(None);
    }
    // The block's own prefix is the first of these raw bytes.
    let total = blocks::raw_len(pos, (LENGTH_BYTES + length) as u64);
    if total > available {
        return Ok(None);
    }
    let total = usize::try_from(total).unwrap_or(usize::MAX);
    if total > raw.len() {
        file.read_raw(pos, total, Wait::Yes, &mut raw)?;
    } else {
        raw.truncate(total);
    }
    let kept = blocks::strip(&mut raw, pos);
    raw.truncate(kept);
    let Some((expected, etf)) = raw
        .get(LENGTH_BYTES..)
        .and_then(|r| r.split_first_chunk::<CHECKSUM_BYTES>())
    else {
        return Ok(None);
    };
    let expected: &Checksum = expected;
    Ok(verify(etf, expected, file.options().checksum).map(|_| etf.to_vec()))
}
