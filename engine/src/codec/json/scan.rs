//! Finding the next byte that matters, eight bytes at a time.

const ONES: u64 = 0x0101_0101_0101_0101;
const HIGHS: u64 = 0x8080_8080_8080_8080;

/// A mask whose lowest set bit lies in the first byte that is a quote, a backslash or below 0x20.
///
/// Borrows can set bits above the first hit, never below it, so only the lowest one may be used.
#[inline]
const fn special_mask(word: u64) -> u64 {
    let quote = word ^ (ONES * 0x22);
    let backslash = word ^ (ONES * 0x5c);
    let control = word.wrapping_sub(ONES * 0x20) & !word;
    let quote = quote.wrapping_sub(ONES) & !quote;
    let backslash = backslash.wrapping_sub(ONES) & !backslash;
    (control | quote | backslash) & HIGHS
}

/// Whether `byte` must be escaped in a JSON string, or ends it.
#[inline]
const fn is_special(byte: u8) -> bool {
    byte < 0x20 || byte == b'"' || byte == b'\\'
}

/// Position of the first quote, backslash or control character at or behind `from`, or the length of `bytes`.
#[inline]
pub(super) fn find_special(bytes: &[u8], from: usize) -> usize {
    let mut position = from;
    while let Some(chunk) = bytes.get(position..).and_then(|rest| rest.first_chunk::<8>()) {
        let mask = special_mask(u64::from_le_bytes(*chunk));
        if mask != 0 {
            return position + byte_index(mask);
        }
        position += 8;
    }
    while let Some(byte) = bytes.get(position) {
        if is_special(*byte) {
            return position;
        }
        position += 1;
    }
    bytes.len()
}

/// Whether `bytes` can be printed between quotes as they are: ASCII without anything to escape.
#[inline]
pub(super) fn is_plain_ascii(bytes: &[u8]) -> bool {
    const fn needs_work(word: u64) -> u64 {
        special_mask(word) | (word & HIGHS)
    }
    if let Some(word) = short_word(bytes) {
        return needs_work(word) == 0;
    }
    let mut found = 0;
    let (chunks, _) = bytes.as_chunks::<8>();
    for chunk in chunks {
        found |= needs_work(u64::from_le_bytes(*chunk));
    }
    // The last eight bytes, some of them for the second time.
    if let Some(last) = bytes.last_chunk::<8>() {
        found |= needs_work(u64::from_le_bytes(*last));
    }
    found == 0
}

/// The bytes of a slice shorter than eight in one word, some of them twice, with plain ones to fill it.
#[inline]
fn short_word(bytes: &[u8]) -> Option<u64> {
    match (bytes.first_chunk::<4>(), bytes.last_chunk::<4>()) {
        (Some(first), Some(last)) => {
            let word = u64::from(u32::from_le_bytes(*first)) << 32 | u64::from(u32::from_le_bytes(*last));
            (bytes.len() < 8).then_some(word)
        }
        _ => {
            let byte = |index: usize| bytes.get(index).copied().unwrap_or(b'x');
            Some(u64::from_le_bytes([
                byte(0),
                byte(1),
                byte(2),
                b'x',
                b'x',
                b'x',
                b'x',
                b'x',
            ]))
        }
    }
}

/// Appends the bytes of `source` from `start` to `end`.
///
/// A short part is copied as 16 bytes, of which those behind it are dropped again: a copy of known length is two
/// instructions, one of unknown length is a call.
#[inline]
pub(super) fn append_part(out: &mut Vec<u8>, source: &[u8], start: usize, end: usize) {
    let length = end - start;
    match source.get(start..).and_then(|rest| rest.first_chunk::<16>()) {
        Some(chunk) if length <= 16 => {
            out.extend_from_slice(chunk);
            out.truncate(out.len() - (16 - length));
        }
        _ => out.extend_from_slice(source.get(start..end).unwrap_or_default()),
    }
}

#[inline]
fn byte_index(mask: u64) -> usize {
    usize::try_from(mask.trailing_zeros() / 8).unwrap_or_default()
}

/// Position of the first byte at or behind `from` that is no JSON white space.
#[inline]
pub(super) fn skip_space(bytes: &[u8], from: usize) -> usize {
    let mut position = from;
    while let Some(b' ' | b'\n' | b'\r' | b'\t') = bytes.get(position) {
        position += 1;
    }
    position
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_word_search_finds_what_the_byte_search_finds() {
        for length in 0..40 {
            let clean: Vec<u8> = (0..length)
                .map(|i| 0x7f - u8::try_from(i).expect("short"))
                .collect();
            let clean: Vec<u8> = clean
                .into_iter()
                .map(|b| if b == b'\\' { b'x' } else { b })
                .collect();
            assert_eq!(find_special(&clean, 0), clean.len());
            assert!(is_plain_ascii(&clean));
            for at in 0..clean.len() {
                for special in [0, 0x1f, b'"', b'\\', 0x80, 0xff] {
                    let mut dirty = clean.clone();
                    dirty[at] = special;
                    let expected = if special < 0x80 { at } else { dirty.len() };
                    assert_eq!(
                        find_special(&dirty, 0),
                        expected,
                        "{special:x} at {at} of {length}"
                    );
                    assert!(!is_plain_ascii(&dirty));
                }
            }
        }
    }
}
