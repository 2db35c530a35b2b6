//! Headers: found by looking backwards for a block that begins with the header prefix, and whose checksum and seal fit.

use super::blocks::{self, BLOCK_BYTES, HEADER};
use super::chunk::LENGTH_BYTES;
use super::error::FileError;
use super::file::CouchFile;
use super::seal::{Refused, SEAL_BYTES, Seal, Sealed};
use super::vfs::Wait;
use crate::codec::checksum::{CHECKSUM_BYTES, Checksum, ChecksumKind, checksum, verify};

/// Prefix byte and length field of a header block.
const PREFIX_BYTES: u64 = 5;
/// Most blocks read at once while searching: candidates are then found with few reads of bounded size.
const SCAN_BLOCKS_MAX: u64 = 256;
/// Longest header believed while searching, in bytes. Real ones are a few hundred; the bound keeps junk cheap.
pub const HEADER_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Longest header term that is written, in bytes.
pub(super) const TERM_BYTES_MAX: usize = HEADER_BYTES_MAX - CHECKSUM_BYTES - SEAL_BYTES;
/// Sealed headers that may be passed over. A crash leaves one; so many are another kind of damage, and cutting them off
/// would finish it.
const REFUSED_MAX: usize = 64;

/// The newest header that counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundHeader {
    /// Where it begins, in bytes.
    pub pos: u64,
    /// Where it ends: what lies behind was never acknowledged.
    pub end: u64,
    /// The term, with the version byte 131.
    pub term: Vec<u8>,
    /// The newest of the headers behind it that do not count.
    pub refused: Option<Refused>,
}

/// A header whose bytes are all there and whose checksum fits.
struct Whole {
    end: u64,
    payload: Vec<u8>,
}

/// Appends a header at file position `pos`, which must begin a block; returns the position behind it.
pub(super) fn append(
    out: &mut Vec<u8>,
    pos: u64,
    etf: &[u8],
    seal: Option<&Seal>,
    kind: ChecksumKind,
) -> u64 {
    debug_assert!(pos.is_multiple_of(BLOCK_BYTES), "headers begin blocks");
    let mut payload = Vec::with_capacity(etf.len() + SEAL_BYTES);
    payload.extend_from_slice(etf);
    if let Some(seal) = seal {
        payload.extend_from_slice(&seal.encode());
    }
    let length = u32::try_from(payload.len() + CHECKSUM_BYTES).unwrap_or(u32::MAX);
    out.push(HEADER);
    let end = blocks::append(out, pos + 1, &length.to_be_bytes());
    let end = blocks::append(out, end, &checksum(kind, &payload));
    let end = blocks::append(out, end, &payload);
    blocks::finish(out, end)
}

/// Finds the newest header that counts.
pub(super) fn find(file: &CouchFile) -> Result<Option<FoundHeader>, FileError> {
    let eof = file.len();
    let mut scan = Vec::new();
    let mut refused = Vec::new();
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
                && let Some(found) = candidate(file, block * BLOCK_BYTES, &mut refused)?
            {
                return Ok(Some(found));
            }
        }
        upper = lower;
        batch = (batch * 4).min(batch_max);
    }
    Ok(None)
}

/// The header at `pos`, or `None` when what stands there is no header or one that does not count.
fn candidate(
    file: &CouchFile,
    pos: u64,
    refused: &mut Vec<Refused>,
) -> Result<Option<FoundHeader>, FileError> {
    let Some(Whole { end, payload }) = load(file, pos)? else {
        return Ok(None);
    };
    let (term, sealed) = Seal::split(&payload);
    let reason = match sealed {
        Sealed::No => None,
        Sealed::Unknown(version) => {
            return Err(file.corrupt(
                pos,
                format!("a header with a seal of the unknown version {version}"),
            ));
        }
        Sealed::By(_) if file.options().trust_seals => None,
        Sealed::By(seal) => seal.check(file, pos)?,
    };
    let Some(reason) = reason else {
        return Ok(Some(FoundHeader {
            pos,
            end,
            term: term.to_vec(),
            refused: refused.first().copied(),
        }));
    };
    refused.push(Refused { pos, reason });
    if refused.len() == REFUSED_MAX {
        return Err(file.corrupt(
            pos,
            format!("{REFUSED_MAX} headers do not fit what lies before them"),
        ));
    }
    Ok(None)
}

/// What stands at `pos`, if that is a header, sealed or not.
fn load(file: &CouchFile, pos: u64) -> Result<Option<Whole>, FileError> {
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
    let Some((expected, payload)) = raw
        .get(LENGTH_BYTES..)
        .and_then(|r| r.split_first_chunk::<CHECKSUM_BYTES>())
    else {
        return Ok(None);
    };
    let expected: &Checksum = expected;
    let end = pos + total as u64;
    Ok(verify(payload, expected, file.options().checksum).map(|_| Whole {
        end: end + u64::from(end.is_multiple_of(BLOCK_BYTES)),
        payload: payload.to_vec(),
    }))
}
