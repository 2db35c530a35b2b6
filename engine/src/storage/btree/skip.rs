//! Moving over raw terms as fast as their bytes allow.
//!
//! Every leaf that is read is walked term by term to find its entries, so this is the innermost loop of every lookup and
//! fold. It finds where a term ends and leaves the meaning of its bytes to whoever decodes it.

use crate::codec::term::tag;

/// Where the term that begins at `at` ends, or `None` when it is malformed or does not end within `bytes`.
///
/// It takes no stack and no memory, and ends after at most as many steps as there are bytes.
#[inline]
pub(super) fn term_end(bytes: &[u8], mut at: usize) -> Option<usize> {
    let mut pending = 1_usize;
    while pending > 0 {
        pending -= 1;
        let rest = bytes.get(at..)?;
        // Fixed lengths are checked by the next round's `get`, or by the last line.
        let length = match *rest {
            [tag::SMALL_INTEGER, ..] => 2,
            [tag::BINARY, a, b, c, d, ..] => 5 + length_of([a, b, c, d])?,
            [tag::SMALL_TUPLE, arity, ..] => {
                pending += usize::from(arity);
                2
            }
            [tag::NIL, ..] => 1,
            [tag::INTEGER, ..] => 5,
            [tag::LIST, a, b, c, d, ..] => {
                // The elements and the tail. Each takes a byte at least, so `pending` stays below twice the length.
                let elements = length_of([a, b, c, d])?;
                if elements > rest.len() {
                    return None;
                }
                pending += elements + 1;
                5
            }
            [tag::ATOM | tag::ATOM_UTF8 | tag::STRING, a, b, ..] => {
                3 + usize::from(u16::from_be_bytes([a, b]))
            }
            [tag::SMALL_BIG, n, ..] => 3 + usize::from(n),
            [tag::NEW_FLOAT, ..] => 9,
            [tag::SMALL_ATOM | tag::SMALL_ATOM_UTF8, n, ..] => 2 + usize::from(n),
            [tag::MAP, a, b, c, d, ..] => {
                let pairs = length_of([a, b, c, d])?;
                if pairs > rest.len() / 2 {
                    return None;
                }
                pending += 2 * pairs;
                5
            }
            [tag::LARGE_TUPLE, a, b, c, d, ..] => {
                let arity = length_of([a, b, c, d])?;
                if arity > rest.len() {
                    return None;
                }
                pending += arity;
                5
            }
            [tag::LARGE_BIG | tag::BIT_BINARY, a, b, c, d, ..] => 6 + length_of([a, b, c, d])?,
            _ => return None,
        };
        if pending > bytes.len() {
            return None;
        }
        at = at.checked_add(length)?;
    }
    (at <= bytes.len()).then_some(at)
}

#[inline]
fn length_of(field: [u8; 4]) -> Option<usize> {
    usize::try_from(u32::from_be_bytes(field)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::term::{Reader, write};

    fn sample() -> Vec<u8> {
        let mut out = Vec::new();
        write::tuple(&mut out, 9);
        write::int(&mut out, -5);
        write::uint(&mut out, u64::MAX);
        write::float(&mut out, 1.5);
        write::atom(&mut out, "nil");
        write::byte_list(&mut out, &[1, 2, 3]);
        write::binary(&mut out, b"bytes");
        write::map(&mut out, 1);
        write::int(&mut out, 1);
        write::nil(&mut out);
        write::list(&mut out, 2);
        write::tuple(&mut out, 0);
        write::int(&mut out, 300);
        write::nil(&mut out);
        out.extend_from_slice(&[tag::BIT_BINARY, 0, 0, 0, 1, 3, 0xe0]);
        out
    }

    #[test]
    fn it_ends_where_the_reader_ends() {
        let whole = sample();
        assert_eq!(term_end(&whole, 0), Some(whole.len()));
        for cut in 0..whole.len() {
            assert_eq!(term_end(&whole[..cut], 0), None, "cut at {cut}");
        }
        for at in 0..whole.len() {
            for byte in 0..=255 {
                let mut bytes = whole.clone();
                bytes[at] = byte;
                let mut reader = Reader::new(&bytes);
                if reader.skip().is_ok() {
                    assert_eq!(
                        term_end(&bytes, 0),
                        Some(reader.position()),
                        "byte {byte} at {at}"
                    );
                }
            }
        }
    }
}
