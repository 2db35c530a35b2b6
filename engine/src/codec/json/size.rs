//! The external size of a body, as CouchDB's `couch_ejson_size:encoded_size/1` counts it.

use crate::codec::term::{Int, ListHead, Reader, TermError, tag};

/// The approximate length of a term's JSON text in bytes, by CouchDB's rules, in one pass and without a stack.
///
/// What cannot be read counts nothing: the size is a statistic, and damage is found by whoever reads the body.
#[must_use]
pub fn ejson_size(term: &[u8]) -> u64 {
    let mut reader = Reader::new(term);
    let mut size = 0;
    // The terms still to come, tails of lists among them. What a container adds for each child is counted with the
    // container's head, so that one number is enough to walk the tree.
    let mut pending = 1_u64;
    while pending > 0 {
        pending -= 1;
        match value_size(&mut reader) {
            Ok((own, children)) => {
                size += own;
                pending += children;
            }
            Err(_) => break,
        }
    }
    size
}

/// What the next term itself adds, and how many terms follow that belong to it.
fn value_size(reader: &mut Reader<'_>) -> Result<(u64, u64), TermError> {
    Ok(match reader.peek_tag()? {
        tag::BINARY => (reader.read_binary()?.len() as u64 + 2, 0),
        tag::SMALL_TUPLE | tag::LARGE_TUPLE => return tuple_size(reader),
        tag::NIL | tag::STRING | tag::LIST => return list_size(reader),
        tag::NEW_FLOAT => (float_size(reader.read_f64()?), 0),
        tag::SMALL_INTEGER | tag::INTEGER | tag::SMALL_BIG | tag::LARGE_BIG => {
            (int_size(&reader.read_int()?), 0)
        }
        _ => {
            let atom = reader.read_atom()?;
            let name = match atom.bytes {
                b"null" | b"true" => 4,
                b"false" => 5,
                other => other.len() as u64 + 2,
            };
            (name, 0)
        }
    })
}

/// A tuple is an object `{Members}` or one of its members `{Name, Value}`.
fn tuple_size(reader: &mut Reader<'_>) -> Result<(u64, u64), TermError> {
    let offset = reader.position();
    match reader.read_tuple()? {
        // The list inside counts the braces, and each of its members adds 1 as an array's element does.
        1 => Ok((0, 1)),
        // Another byte makes the 2 that a member adds.
        2 => Ok((1, 2)),
        _ => Err(TermError::NotJson {
            what: "tuple that is no object",
            offset,
        }),
    }
}

fn list_size(reader: &mut Reader<'_>) -> Result<(u64, u64), TermError> {
    Ok(match reader.read_list()? {
        ListHead::Nil => (2, 0),
        ListHead::Bytes(bytes) => (
            1 + bytes.iter().map(|byte| 1 + digits(u64::from(*byte))).sum::<u64>(),
            0,
        ),
        // The tail is met as an empty list, which adds 2: one byte too many, taken off here by the one that a list has.
        ListHead::Elements(count) => {
            let (size, numbers, bytes) = numbers_size(reader.rest(), count);
            reader.advance(bytes);
            (
                (count as u64).saturating_sub(1) + size,
                (count - numbers) as u64 + 1,
            )
        }
    })
}

/// The sizes of the short numbers that a list of `count` elements begins with, in a tight loop, as long lists are mostly
/// of numbers: their sum, how many they are, and the bytes of their terms.
fn numbers_size(terms: &[u8], count: usize) -> (u64, usize, usize) {
    let (mut size, mut numbers, mut position) = (0, 0, 0);
    while numbers < count {
        let Some([first, rest @ ..]) = terms.get(position..) else {
            break;
        };
        match (*first, rest.first_chunk::<4>(), rest.first_chunk::<8>()) {
            (tag::INTEGER, Some(bytes), _) => {
                let value = i32::from_be_bytes(*bytes);
                size += u64::from(value < 0) + digits(u64::from(value.unsigned_abs()));
                position += 5;
            }
            (tag::SMALL_INTEGER, ..) => {
                let Some(value) = rest.first() else { break };
                size += digits(u64::from(*value));
                position += 2;
            }
            (tag::NEW_FLOAT, _, Some(bytes)) => {
                let value = f64::from_be_bytes(*bytes);
                if !value.is_finite() {
                    break;
                }
                size += float_size(value);
                position += 9;
            }
            _ => break,
        }
        numbers += 1;
    }
    (size, numbers, position)
}

fn digits(value: u64) -> u64 {
    match value {
        0..10 => 1,
        10..100 => 2,
        100..1000 => 3,
        1000..10_000 => 4,
        // As CouchDB does it, through a double: 999999999999999999 counts 19.
        _ => (value as f64).log10() as u64 + 1,
    }
}

fn int_size(int: &Int<'_>) -> u64 {
    match int {
        Int::Small(value) => u64::from(*value < 0) + digits(value.unsigned_abs()),
        Int::Big { negative, magnitude } => {
            // The top eight bytes give the logarithm as exactly as a double holds it.
            let top = magnitude.len().saturating_sub(8);
            let bytes = magnitude.get(top..).and_then(|bytes| bytes.first_chunk::<8>());
            let leading = bytes.map_or(0.0, |bytes| u64::from_le_bytes(*bytes) as f64);
            let logarithm = leading.log10() + (top * 8) as f64 * std::f64::consts::LOG10_2;
            u64::from(*negative) + logarithm as u64 + 1
        }
    }
}

#[inline]
fn float_size(value: f64) -> u64 {
    let magnitude = value.abs();
    if magnitude > 0.01 && magnitude < 1e10 {
        return 3 + u64::from(value < 0.0);
    }
    let size = if magnitude == 0.0 {
        return 3;
    } else if magnitude >= 1e100 {
        5
    } else if magnitude >= 1e10 {
        4
    } else if magnitude > 0.01 || magnitude <= 1e-300 {
        3
    } else if magnitude <= 1e-100 {
        6
    } else if magnitude <= 1e-10 {
        5
    } else {
        4
    };
    size + u64::from(value < 0.0)
}
