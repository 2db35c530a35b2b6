//! Writing terms exactly as `term_to_binary(T, [{minor_version, 1}])` does.
//!
//! Every function appends to the caller's vector and none writes the version byte, except [`version`].

use super::tag;
use num_bigint::{BigInt, Sign};

/// Appends the version byte 131, which stands once in front of a stored term.
pub fn version(out: &mut Vec<u8>) {
    out.push(super::VERSION);
}

/// Appends a tuple's head; `arity` terms must follow.
pub fn tuple(out: &mut Vec<u8>, arity: usize) {
    match u8::try_from(arity) {
        Ok(small) => out.extend_from_slice(&[tag::SMALL_TUPLE, small]),
        Err(_) => tag_and_length(out, tag::LARGE_TUPLE, arity),
    }
}

/// Appends a list's head; `length` terms and then [`nil`] (or another tail) must follow. An empty list is [`nil`] alone,
/// and a list of nothing but bytes is [`byte_list`].
pub fn list(out: &mut Vec<u8>, length: usize) {
    tag_and_length(out, tag::LIST, length);
}

/// Appends the empty list.
pub fn nil(out: &mut Vec<u8>) {
    out.push(tag::NIL);
}

/// Appends a map's head; `pairs` keys, each with its value behind it, must follow.
pub fn map(out: &mut Vec<u8>, pairs: usize) {
    tag_and_length(out, tag::MAP, pairs);
}

/// Appends a binary.
pub fn binary(out: &mut Vec<u8>, bytes: &[u8]) {
    binary_head(out, bytes.len());
    out.extend_from_slice(bytes);
}

/// Appends a binary's head; `length` bytes must follow.
pub fn binary_head(out: &mut Vec<u8>, length: usize) {
    tag_and_length(out, tag::BINARY, length);
}

/// Appends an atom: latin-1 (tag 100) when its characters allow it, which is always so in CouchDB, else UTF-8.
pub fn atom(out: &mut Vec<u8>, name: &str) {
    if name.is_ascii() {
        return latin1_atom(out, name.as_bytes());
    }
    let latin1: Option<Vec<u8>> = name.chars().map(|c| u8::try_from(u32::from(c)).ok()).collect();
    match (latin1, u8::try_from(name.len())) {
        (Some(bytes), _) => latin1_atom(out, &bytes),
        (None, Ok(length)) => {
            out.extend_from_slice(&[tag::SMALL_ATOM_UTF8, length]);
            out.extend_from_slice(name.as_bytes());
        }
        (None, Err(_)) => {
            out.push(tag::ATOM_UTF8);
            name_with_length(out, name.as_bytes());
        }
    }
}

fn latin1_atom(out: &mut Vec<u8>, bytes: &[u8]) {
    out.push(tag::ATOM);
    name_with_length(out, bytes);
}

/// An atom has at most 255 characters, so at most 1020 bytes; what is longer is no atom and is cut.
fn name_with_length(out: &mut Vec<u8>, bytes: &[u8]) {
    debug_assert!(
        bytes.len() <= super::ATOM_BYTES_MAX,
        "an atom of {} bytes",
        bytes.len()
    );
    let length = bytes.len().min(super::ATOM_BYTES_MAX);
    let prefix = u16::try_from(length).unwrap_or(u16::MAX);
    out.extend_from_slice(&prefix.to_be_bytes());
    out.extend_from_slice(&bytes[..length]);
}

/// Appends a signed integer.
#[inline]
pub fn int(out: &mut Vec<u8>, value: i64) {
    if let Ok(small) = u8::try_from(value) {
        out.extend_from_slice(&[tag::SMALL_INTEGER, small]);
    } else if let Ok(medium) = i32::try_from(value) {
        let [a, b, c, d] = medium.to_be_bytes();
        out.extend_from_slice(&[tag::INTEGER, a, b, c, d]);
    } else {
        big_magnitude(out, value < 0, &value.unsigned_abs().to_le_bytes());
    }
}

/// Appends an unsigned integer.
#[inline]
pub fn uint(out: &mut Vec<u8>, value: u64) {
    match i64::try_from(value) {
        Ok(signed) => int(out, signed),
        Err(_) => big_magnitude(out, false, &value.to_le_bytes()),
    }
}

/// Appends an integer of any size in its shortest form.
pub fn big(out: &mut Vec<u8>, value: &BigInt) {
    match i64::try_from(value) {
        Ok(small) => int(out, small),
        Err(_) => {
            let (sign, magnitude) = value.to_bytes_le();
            big_magnitude(out, sign == Sign::Minus, &magnitude);
        }
    }
}

/// Appends an integer outside the range of `i32` from its little-endian magnitude; high zero bytes are dropped.
pub fn big_magnitude(out: &mut Vec<u8>, negative: bool, magnitude_le: &[u8]) {
    let length = magnitude_le
        .iter()
        .rposition(|byte| *byte != 0)
        .map_or(0, |last| last + 1);
    match u8::try_from(length) {
        Ok(small) => out.extend_from_slice(&[tag::SMALL_BIG, small]),
        Err(_) => tag_and_length(out, tag::LARGE_BIG, length),
    }
    out.push(u8::from(negative));
    out.extend_from_slice(&magnitude_le[..length]);
}

/// Appends a float. The format has no place for infinities and NaN, and no reader accepts them: they must not be given.
#[inline]
pub fn float(out: &mut Vec<u8>, value: f64) {
    debug_assert!(value.is_finite(), "a term cannot hold {value}");
    let mut bytes = [tag::NEW_FLOAT; 9];
    bytes[1..].copy_from_slice(&value.to_be_bytes());
    out.extend_from_slice(&bytes);
}

/// Appends a proper list of small integers in the form that OTP gives it: nothing else than [`nil`] when empty, a
/// STRING up to 65535 elements, a plain list beyond.
pub fn byte_list(out: &mut Vec<u8>, bytes: &[u8]) {
    if bytes.is_empty() {
        return nil(out);
    }
    match u16::try_from(bytes.len()) {
        Ok(length) => {
            out.push(tag::STRING);
            out.extend_from_slice(&length.to_be_bytes());
            out.extend_from_slice(bytes);
        }
        Err(_) => {
            list(out, bytes.len());
            out.reserve(2 * bytes.len() + 1);
            for byte in bytes {
                out.extend_from_slice(&[tag::SMALL_INTEGER, *byte]);
            }
            nil(out);
        }
    }
}

/// Four-byte lengths bound every compound term. A caller cannot reach this bound with what fits in a chunk; the length
/// is clamped so that a reader refuses the term instead of misreading it.
#[inline]
fn tag_and_length(out: &mut Vec<u8>, tag: u8, length: usize) {
    debug_assert!(u32::try_from(length).is_ok(), "a term of {length} elements");
    let [a, b, c, d] = u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes();
    out.extend_from_slice(&[tag, a, b, c, d]);
}
