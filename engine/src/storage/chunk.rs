//! Chunks: a length field, a checksum when its flag is set, and the payload, cut by block prefixes.

use super::blocks;
use crate::codec::checksum::{CHECKSUM_BYTES, Checksum, ChecksumKind, checksum, verify};

/// Bytes of the length field.
pub const LENGTH_BYTES: usize = 4;
/// Longest payload, in bytes.
pub const PAYLOAD_BYTES_MAX: usize = 0x7fff_ffff;
/// Top bit of the length field: a checksum follows.
const CHECKSUM_FLAG: u32 = 0x8000_0000;
/// Bytes in front of the payload of a chunk that we write.
pub const HEAD_BYTES: usize = LENGTH_BYTES + CHECKSUM_BYTES;

/// Appends a chunk at file position `pos` in its form on disk; returns the position behind it.
///
/// The payload must not be empty nor longer than [`PAYLOAD_BYTES_MAX`]; the caller checks.
pub fn append(out: &mut Vec<u8>, pos: u64, payload: &[u8], kind: ChecksumKind) -> u64 {
    let length = u32::try_from(payload.len()).unwrap_or(u32::MAX) | CHECKSUM_FLAG;
    let mut head = [0; HEAD_BYTES];
    head[..LENGTH_BYTES].copy_from_slice(&length.to_be_bytes());
    head[LENGTH_BYTES..].copy_from_slice(&checksum(kind, payload));
    let end = blocks::append(out, pos, &head);
    let end = blocks::append(out, end, payload);
    blocks::finish(out, end)
}

/// What a look at the beginning of a chunk tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// Bytes of the payload.
    pub payload: usize,
    /// Whether a checksum stands in front of the payload.
    pub checksummed: bool,
}

impl Head {
    /// Reads the head of the chunk at `pos` from the raw bytes that begin there; `None` when they are too few.
    #[must_use]
    pub fn parse(raw: &[u8], pos: u64) -> Option<Self> {
        let mut field = [0; LENGTH_BYTES];
        let mut at = 0;
        for byte in &mut field {
            if (pos + at as u64).is_multiple_of(blocks::BLOCK_BYTES) {
                at += 1;
            }
            *byte = *raw.get(at)?;
            at += 1;
        }
        let length = u32::from_be_bytes(field);
        let payload = usize::try_from(length & !CHECKSUM_FLAG).ok()?;
        Some(Self {
            payload,
            checksummed: length & CHECKSUM_FLAG != 0,
        })
    }

    /// Logical bytes in front of the payload.
    #[must_use]
    pub const fn bytes(self) -> usize {
        if self.checksummed {
            HEAD_BYTES
        } else {
            LENGTH_BYTES
        }
    }

    /// Raw bytes of the whole chunk at `pos`, without a trailing prefix.
    #[must_use]
    pub const fn raw_len(self, pos: u64) -> u64 {
        blocks::raw_len(pos, (self.bytes() + self.payload) as u64)
    }
}

/// Turns the raw bytes of a whole chunk at `pos` into its payload, in place.
///
/// Returns which checksum fitted, if there was one.
///
/// # Errors
/// The checksum fits with neither algorithm; the buffer's contents are then unspecified.
pub fn unwrap(
    raw: &mut Vec<u8>,
    pos: u64,
    head: Head,
    first: ChecksumKind,
) -> Result<Option<ChecksumKind>, Mismatch> {
    let logical = blocks::strip(raw, pos);
    raw.truncate(logical.min(head.bytes() + head.payload));
    let mut kind = None;
    if head.checksummed {
        let (front, payload) = raw.split_at(HEAD_BYTES.min(raw.len()));
        let expected: Option<&Checksum> = front.get(LENGTH_BYTES..).and_then(|c| c.try_into().ok());
        kind = expected.and_then(|expected| verify(payload, expected, first));
        if kind.is_none() {
            return Err(Mismatch);
        }
    }
    let front = head.bytes().min(raw.len());
    raw.copy_within(front.., 0);
    raw.truncate(raw.len() - front);
    Ok(kind)
}

/// A checksum that fits with no algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mismatch;
