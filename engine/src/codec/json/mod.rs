//! JSON to terms and terms to JSON, each in one pass and without a tree in between, as CouchDB's JSON library does it.
//!
//! What is kept: the order of members, integers of any size, the difference between `1` and `1.0`. Of members with the same
//! name the last one stays, in its place. Numbers beyond a double, lone surrogates, invalid UTF-8, control characters in
//! strings and anything behind the value are refused.

mod number;
mod numbers;
mod object;
mod parse;
mod print;
mod reader;
mod scan;
mod size;
mod string;

pub use number::{write_json_big, write_json_float};
pub use object::ObjectBuilder;
pub use print::{members_to_json, term_to_json};
pub use reader::{JsonReader, Kind};
pub use size::ejson_size;
pub use string::write_json_string;

use thiserror::Error;

/// Deepest nesting of arrays and objects that is read or printed by default, in levels.
pub const JSON_DEPTH_MAX: usize = 10_000;

/// Longest integer that is read or printed, in decimal digits: conversion takes time in the square of it.
pub const INTEGER_DIGITS_MAX: usize = 100_000;

/// The magnitude of an integer of [`INTEGER_DIGITS_MAX`] digits, in bytes.
pub const INTEGER_BYTES_MAX: usize = 41_525;

/// Longest JSON text, in bytes: every length in its term then fits in four bytes.
pub const JSON_BYTES_MAX: usize = 1 << 30;

/// Bounds on what a reader accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JsonLimits {
    /// Deepest nesting, in levels.
    pub max_depth: usize,
    /// Longest integer, in digits.
    pub max_integer_digits: usize,
    /// Longest text, in bytes; never more than [`JSON_BYTES_MAX`].
    pub max_bytes: usize,
}

impl Default for JsonLimits {
    fn default() -> Self {
        Self {
            max_depth: JSON_DEPTH_MAX,
            max_integer_digits: INTEGER_DIGITS_MAX,
            max_bytes: JSON_BYTES_MAX,
        }
    }
}

/// Why a text is not the JSON that was asked for.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{message} at byte {offset}")]
pub struct JsonError {
    /// What is wrong.
    pub message: &'static str,
    /// Where, in bytes from the beginning of the text.
    pub offset: usize,
}

impl JsonError {
    #[cold]
    pub(super) const fn new(message: &'static str, offset: usize) -> Self {
        Self { message, offset }
    }
}

/// Appends the raw term of one whole JSON value to `out`. On an error, `out` is as before.
///
/// # Errors
/// `json` is not exactly one value within the default [`JsonLimits`].
///
/// ```
/// let mut term = Vec::new();
/// settee_engine::codec::json::json_to_term(br#"{"a":[1,2]}"#, &mut term)?;
/// assert_eq!(term, b"\x68\x01\x6c\0\0\0\x01\x68\x02\x6d\0\0\0\x01a\x6b\0\x02\x01\x02\x6a");
/// # Ok::<(), settee_engine::codec::json::JsonError>(())
/// ```
pub fn json_to_term(json: &[u8], out: &mut Vec<u8>) -> Result<(), JsonError> {
    let before = out.len();
    let mut reader = JsonReader::new(json)?;
    let result = reader.value_to_term(out).and_then(|()| reader.end());
    if result.is_err() {
        out.truncate(before);
    }
    result
}
