//! Strings: escapes read, escapes written.

use super::JsonError;
use super::scan::{find_special, is_plain_ascii};

const HEX_UPPER: [u8; 16] = *b"0123456789ABCDEF";

/// Reads a string whose first character stands at `start`, behind the quote, and in which the first special byte stands at
/// `special`. Appends its contents to `out` and returns the position behind the closing quote.
///
/// `text` is valid UTF-8, and so is what is appended.
pub(super) fn unescape(
    bytes: &[u8],
    start: usize,
    special: usize,
    out: &mut Vec<u8>,
) -> Result<usize, JsonError> {
    let (mut from, mut position) = (start, special);
    loop {
        out.extend_from_slice(bytes.get(from..position).unwrap_or_default());
        match bytes.get(position) {
            Some(b'"') => return Ok(position + 1),
            Some(b'\\') => from = escape(bytes, position, out)?,
            Some(_) => return Err(JsonError::new("control character in a string", position)),
            None => return Err(JsonError::new("string without an end", position)),
        }
        position = find_special(bytes, from);
    }
}

/// Appends the character whose backslash stands at `at`; returns the position behind the escape.
fn escape(bytes: &[u8], at: usize, out: &mut Vec<u8>) -> Result<usize, JsonError> {
    let plain = match bytes.get(at + 1) {
        Some(byte @ (b'"' | b'\\' | b'/')) => *byte,
        Some(b'b') => 0x08,
        Some(b'f') => 0x0c,
        Some(b'n') => b'\n',
        Some(b'r') => b'\r',
        Some(b't') => b'\t',
        Some(b'u') => return unicode_escape(bytes, at, out),
        _ => return Err(JsonError::new("unknown escape", at)),
    };
    out.push(plain);
    Ok(at + 2)
}

fn unicode_escape(bytes: &[u8], at: usize, out: &mut Vec<u8>) -> Result<usize, JsonError> {
    let first = hex4(bytes, at + 2)?;
    let (code, end) = match first {
        0xd800..=0xdbff => {
            let paired = bytes.get(at + 6..at + 8) == Some(b"\\u");
            let second = if paired { hex4(bytes, at + 8)? } else { 0 };
            if !(0xdc00..=0xdfff).contains(&second) {
                return Err(JsonError::new("lone surrogate", at));
            }
            (0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00), at + 12)
        }
        _ => (first, at + 6),
    };
    // What is left that is no character is a low surrogate on its own.
    let character = char::from_u32(code).ok_or(JsonError::new("lone surrogate", at))?;
    let mut buffer = [0; 4];
    out.extend_from_slice(character.encode_utf8(&mut buffer).as_bytes());
    Ok(end)
}

fn hex4(bytes: &[u8], at: usize) -> Result<u32, JsonError> {
    let digits = bytes
        .get(at..at + 4)
        .ok_or(JsonError::new("escape without four hex digits", at))?;
    digits.iter().try_fold(0, |value, byte| {
        let digit = char::from(*byte)
            .to_digit(16)
            .ok_or(JsonError::new("escape without four hex digits", at))?;
        Ok(value << 4 | digit)
    })
}

/// Appends `text` as a JSON string with its quotes.
///
/// Only the quote, the backslash and control characters are escaped. Bytes that are not UTF-8 become U+FFFD, as CouchDB
/// prints them.
#[inline]
pub fn write_json_string(out: &mut Vec<u8>, text: impl AsRef<[u8]>) {
    let bytes = text.as_ref();
    out.push(b'"');
    if is_plain_ascii(bytes) {
        out.extend_from_slice(bytes);
    } else {
        write_escaped(out, bytes);
    }
    out.push(b'"');
}

fn write_escaped(out: &mut Vec<u8>, bytes: &[u8]) {
    if simdutf8::basic::from_utf8(bytes).is_ok() {
        return write_escaped_utf8(out, bytes);
    }
    for chunk in bytes.utf8_chunks() {
        write_escaped_utf8(out, chunk.valid().as_bytes());
        if !chunk.invalid().is_empty() {
            out.extend_from_slice("\u{fffd}".as_bytes());
        }
    }
}

fn write_escaped_utf8(out: &mut Vec<u8>, bytes: &[u8]) {
    let mut from = 0;
    loop {
        let special = find_special(bytes, from);
        out.extend_from_slice(bytes.get(from..special).unwrap_or_default());
        let Some(byte) = bytes.get(special) else { return };
        let short = match byte {
            b'"' | b'\\' => *byte,
            0x08 => b'b',
            b'\t' => b't',
            b'\n' => b'n',
            0x0c => b'f',
            b'\r' => b'r',
            _ => {
                let (high, low) = (usize::from(byte >> 4), usize::from(byte & 15));
                out.extend_from_slice(&[b'\\', b'u', b'0', b'0', HEX_UPPER[high], HEX_UPPER[low]]);
                from = special + 1;
                continue;
            }
        };
        out.extend_from_slice(&[b'\\', short]);
        from = special + 1;
    }
}
