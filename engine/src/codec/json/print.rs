//! Printing a term as JSON text.

use super::JSON_DEPTH_MAX;
use super::number::{write_json_big, write_json_float, write_json_int};
use super::numbers::print_numbers;
use super::string::write_json_string;
use crate::codec::term::{Int, ListHead, Reader, TermError, tag};
use smallvec::SmallVec;

/// Appends the compact JSON text of one raw term, as CouchDB prints it. On an error, `out` is as before.
///
/// Objects are `{[{Name, Value}]}` or maps, lists of small integers given as bytes are arrays of numbers, and atoms other
/// than `true`, `false` and `null` are strings.
///
/// # Errors
/// Malformed, without a JSON form, nested deeper than [`JSON_DEPTH_MAX`], followed by other bytes, or with an integer that
/// is too long.
pub fn term_to_json(term: &[u8], out: &mut Vec<u8>) -> Result<(), TermError> {
    let before = out.len();
    let mut reader = Reader::new(term);
    let result = value_to_json(&mut reader, out).and_then(|()| reader.end());
    if result.is_err() {
        out.truncate(before);
    }
    result
}

/// Appends the members of an object term without its braces, so that others can stand before and behind them. `first`
/// says whether nothing stands before them, so that no comma is needed; it is false afterwards if there was a member.
/// On an error, `out` is as before.
///
/// # Errors
/// As [`term_to_json`], and when the term is no object.
pub fn members_to_json(term: &[u8], out: &mut Vec<u8>, first: &mut bool) -> Result<(), TermError> {
    let before = out.len();
    let mut reader = Reader::new(term);
    let result = members(&mut reader, out, first).and_then(|()| reader.end());
    if result.is_err() {
        out.truncate(before);
    }
    result
}

fn members(reader: &mut Reader<'_>, out: &mut Vec<u8>, first: &mut bool) -> Result<(), TermError> {
    reader.expect_tuple(1)?;
    let count = match reader.read_list()? {
        ListHead::Nil => return Ok(()),
        ListHead::Bytes(_) => return Err(not_json("member that is no pair", reader)),
        ListHead::Elements(count) => count,
    };
    for _ in 0..count {
        if !std::mem::replace(first, false) {
            out.push(b',');
        }
        member_name(reader, out)?;
        value_to_json(reader, out)?;
    }
    reader.end_list()
}

/// An array, object or map that is being printed: how many elements are still to come.
#[derive(Clone, Copy)]
enum Frame {
    Root,
    Array(usize),
    Object(usize),
    Map(usize),
}

/// Prints one term; the reader then stands behind it.
fn value_to_json(reader: &mut Reader<'_>, out: &mut Vec<u8>) -> Result<(), TermError> {
    let mut frames: SmallVec<[Frame; 16]> = SmallVec::new();
    let mut top = Frame::Root;
    loop {
        if let Some(opened) = begin_value(reader, out)? {
            if frames.len() >= JSON_DEPTH_MAX {
                return Err(TermError::TooDeep {
                    limit: JSON_DEPTH_MAX,
                });
            }
            frames.push(std::mem::replace(&mut top, opened));
            continue;
        }
        // Behind a value: on to the next one, or out of what ends here.
        loop {
            match &mut top {
                Frame::Root => return Ok(()),
                Frame::Array(left @ 1..) => {
                    *left -= 1;
                    out.push(b',');
                    break;
                }
                Frame::Object(left @ 1..) => {
                    *left -= 1;
                    out.push(b',');
                    member_name(reader, out)?;
                    break;
                }
                Frame::Map(left @ 1..) => {
                    *left -= 1;
                    out.push(b',');
                    name(reader, out)?;
                    break;
                }
                Frame::Array(0) => {
                    reader.end_list()?;
                    out.push(b']');
                }
                Frame::Object(0) => {
                    reader.end_list()?;
                    out.push(b'}');
                }
                Frame::Map(0) => out.push(b'}'),
            }
            top = frames.pop().unwrap_or(Frame::Root);
        }
    }
}

/// Prints a scalar or something empty and answers `None`; or opens what has elements, up to the first of them.
#[inline]
fn begin_value(reader: &mut Reader<'_>, out: &mut Vec<u8>) -> Result<Option<Frame>, TermError> {
    match reader.peek_tag()? {
        tag::BINARY => write_json_string(out, reader.read_binary()?),
        tag::SMALL_INTEGER | tag::INTEGER | tag::SMALL_BIG | tag::LARGE_BIG => match reader.read_int()? {
            Int::Small(value) => write_json_int(out, value),
            Int::Big { negative, magnitude } => write_json_big(out, negative, magnitude)?,
        },
        tag::NEW_FLOAT => write_json_float(out, reader.read_f64()?),
        tag::SMALL_TUPLE | tag::LARGE_TUPLE => return begin_object(reader, out),
        tag::NIL | tag::STRING | tag::LIST => match reader.read_list()? {
            ListHead::Nil => out.extend_from_slice(b"[]"),
            ListHead::Bytes(bytes) => write_bytes(out, bytes),
            ListHead::Elements(0) => {
                reader.end_list()?;
                out.extend_from_slice(b"[]");
            }
            ListHead::Elements(count) => {
                out.push(b'[');
                let (printed, bytes) = print_numbers(reader.rest(), count, out);
                reader.advance(bytes);
                if printed < count {
                    return Ok(Some(Frame::Array(count - printed - 1)));
                }
                reader.end_list()?;
                // In the place of the comma behind the last number.
                out.pop();
                out.push(b']');
            }
        },
        tag::MAP => match reader.read_map()? {
            0 => out.extend_from_slice(b"{}"),
            pairs => {
                out.push(b'{');
                name(reader, out)?;
                return Ok(Some(Frame::Map(pairs - 1)));
            }
        },
        _ => write_atom(reader, out)?,
    }
    Ok(None)
}

#[inline]
fn begin_object(reader: &mut Reader<'_>, out: &mut Vec<u8>) -> Result<Option<Frame>, TermError> {
    if reader.read_tuple()? != 1 {
        return Err(not_json("tuple that is no object", reader));
    }
    match reader.read_list()? {
        ListHead::Nil => {
            out.extend_from_slice(b"{}");
            Ok(None)
        }
        ListHead::Elements(count @ 1..) => {
            out.push(b'{');
            member_name(reader, out)?;
            Ok(Some(Frame::Object(count - 1)))
        }
        ListHead::Elements(0) | ListHead::Bytes(_) => Err(not_json("member that is no pair", reader)),
    }
}

/// Reads the head of a member, and prints its name with the colon.
#[inline]
fn member_name(reader: &mut Reader<'_>, out: &mut Vec<u8>) -> Result<(), TermError> {
    if reader.read_tuple()? != 2 {
        return Err(not_json("member that is no pair", reader));
    }
    name(reader, out)
}

#[inline]
fn name(reader: &mut Reader<'_>, out: &mut Vec<u8>) -> Result<(), TermError> {
    match reader.peek_tag()? {
        tag::BINARY => write_json_string(out, reader.read_binary()?),
        _ => {
            let offset = reader.position();
            let name = reader.read_atom()?.name();
            let name = name.ok_or(TermError::Invalid {
                what: "atom that is not utf-8",
                offset,
            })?;
            write_json_string(out, name.as_ref());
        }
    }
    out.push(b':');
    Ok(())
}

#[inline]
fn write_atom(reader: &mut Reader<'_>, out: &mut Vec<u8>) -> Result<(), TermError> {
    let offset = reader.position();
    let atom = reader.read_atom()?;
    if let b"true" | b"false" | b"null" = atom.bytes {
        out.extend_from_slice(atom.bytes);
        return Ok(());
    }
    let name = atom.name().ok_or(TermError::Invalid {
        what: "atom that is not utf-8",
        offset,
    })?;
    write_json_string(out, name.as_ref());
    Ok(())
}

/// Prints a list of small integers that is given as bytes.
fn write_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    let mut separator = b'[';
    for byte in bytes {
        out.push(separator);
        write_json_int(out, i64::from(*byte));
        separator = b',';
    }
    if bytes.is_empty() {
        out.push(separator);
    }
    out.push(b']');
}

#[cold]
fn not_json(what: &'static str, reader: &Reader<'_>) -> TermError {
    TermError::NotJson {
        what,
        offset: reader.position(),
    }
}
