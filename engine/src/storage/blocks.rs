//! Blocks and their prefix bytes.
//!
//! A file is cut into blocks of [`BLOCK_BYTES`]. The first byte of each is a prefix, [`DATA`] or [`HEADER`], and does not
//! belong to the data. *Raw* lengths count prefix bytes, *logical* ones do not.

/// Length of a block, in bytes.
pub const BLOCK_BYTES: u64 = 4096;
/// Logical bytes of a whole block.
const BLOCK_DATA_BYTES: u64 = BLOCK_BYTES - 1;
/// Prefix of a block that continues data.
pub const DATA: u8 = 0;
/// Prefix of a block that begins a header.
pub const HEADER: u8 = 1;

/// Raw bytes that hold `logical` bytes from position `pos` on.
///
/// Only the prefixes that stand before one of these bytes count. A writer adds one more when the last byte ends a block.
#[must_use]
pub const fn raw_len(pos: u64, logical: u64) -> u64 {
    let offset = pos % BLOCK_BYTES;
    if logical == 0 {
        return 0;
    }
    let (first, left) = if offset == 0 {
        (1, BLOCK_DATA_BYTES)
    } else {
        (0, BLOCK_BYTES - offset)
    };
    if logical <= left {
        first + logical
    } else {
        first + logical + (logical - left).div_ceil(BLOCK_DATA_BYTES)
    }
}

/// Appends `data`, which begins at file position `pos`, to `out` with a prefix at each block start. Returns the position
/// behind it. [`finish`] must follow the last piece of a chunk.
pub fn append(out: &mut Vec<u8>, mut pos: u64, mut data: &[u8]) -> u64 {
    while !data.is_empty() {
        if pos.is_multiple_of(BLOCK_BYTES) {
            out.push(DATA);
            pos += 1;
        }
        let left = usize::try_from(BLOCK_BYTES - pos % BLOCK_BYTES).unwrap_or(usize::MAX);
        let (now, later) = data.split_at(left.min(data.len()));
        out.extend_from_slice(now);
        pos += now.len() as u64;
        data = later;
    }
    pos
}

/// Ends a chunk or header at `pos`: when its last byte ended a block, the next block's prefix belongs to it.
pub fn finish(out: &mut Vec<u8>, pos: u64) -> u64 {
    if pos.is_multiple_of(BLOCK_BYTES) {
        out.push(DATA);
        pos + 1
    } else {
        pos
    }
}

/// Removes the prefix bytes from `raw`, which was read at file position `pos`, in place; returns how many bytes remain
/// at its front.
pub fn strip(raw: &mut [u8], pos: u64) -> usize {
    let block = usize::try_from(BLOCK_BYTES).unwrap_or(usize::MAX);
    let offset = usize::try_from(pos % BLOCK_BYTES).unwrap_or_default();
    // The first prefix in this slice, or its end.
    let first = if offset == 0 {
        0
    } else {
        (block - offset).min(raw.len())
    };
    let (mut from, mut to) = (first, first);
    while from < raw.len() {
        let end = (from + block).min(raw.len());
        raw.copy_within(from + 1..end, to);
        to += end - from - 1;
        from = end;
    }
    to
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_appended_is_found_again_at_every_offset() {
        let data: Vec<u8> = (0..20_000_u32)
            .map(|i| u8::try_from(i % 251).expect("below 251"))
            .collect();
        for pos in [0, 1, 2, 4090, 4095, 4096, 4097, 8192, 12_287] {
            for len in [1_usize, 2, 5, 4090, 4094, 4095, 4096, 8189, 8190, 8191, 20_000] {
                let mut out = Vec::new();
                let end = append(&mut out, pos, &data[..len]);
                assert_eq!(end - pos, out.len() as u64);
                assert_eq!(raw_len(pos, len as u64), out.len() as u64, "{len} bytes at {pos}");
                let kept = strip(&mut out, pos);
                assert_eq!(&out[..kept], &data[..len], "{len} bytes at {pos}");
            }
        }
        assert_eq!(raw_len(0, 0), 0);
    }
}
