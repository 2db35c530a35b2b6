//! The Erlang external term format: a zero-copy reader, a writer, an owned tree for cold paths, and the term order.
//!
//! A *raw* term stands without the version byte 131; everything here works on raw terms unless its name says
//! `versioned`. Tags are those that CouchDB writes with `minor_version` 1, and the atom tags of other OTP releases.

mod compare;
mod owned;
mod reader;
pub mod write;

pub use compare::compare;
pub use owned::Term;
pub use reader::{Atom, Int, ListHead, Reader};

use thiserror::Error;

/// The version byte in front of a stored term.
pub const VERSION: u8 = 131;

/// Longest atom: 255 characters of at most four bytes.
pub const ATOM_BYTES_MAX: usize = 255 * 4;

/// Deepest nesting that [`Term::decode`] builds; a tree is made, compared and dropped by recursion.
pub const OWNED_DEPTH_MAX: usize = 512;

/// Tags of the external term format.
pub mod tag {
    /// NEW_FLOAT: eight bytes, IEEE 754 big-endian.
    pub const NEW_FLOAT: u8 = 70;
    /// BIT_BINARY: length, number of bits used in the last byte, bytes.
    pub const BIT_BINARY: u8 = 77;
    /// A zlib stream with its uncompressed size before it; only directly behind the version byte.
    pub const COMPRESSED: u8 = 80;
    /// SMALL_INTEGER: one byte, 0 to 255.
    pub const SMALL_INTEGER: u8 = 97;
    /// INTEGER: four bytes, signed.
    pub const INTEGER: u8 = 98;
    /// ATOM in latin-1 with a two-byte length.
    pub const ATOM: u8 = 100;
    /// SMALL_TUPLE: one-byte arity.
    pub const SMALL_TUPLE: u8 = 104;
    /// LARGE_TUPLE: four-byte arity.
    pub const LARGE_TUPLE: u8 = 105;
    /// The empty list.
    pub const NIL: u8 = 106;
    /// STRING: a list of 1 to 65535 small integers, one byte each.
    pub const STRING: u8 = 107;
    /// LIST: length, elements, tail.
    pub const LIST: u8 = 108;
    /// BINARY: length, bytes.
    pub const BINARY: u8 = 109;
    /// SMALL_BIG: one-byte length, sign, magnitude little-endian.
    pub const SMALL_BIG: u8 = 110;
    /// LARGE_BIG: four-byte length, sign, magnitude little-endian.
    pub const LARGE_BIG: u8 = 111;
    /// SMALL_ATOM in latin-1 with a one-byte length.
    pub const SMALL_ATOM: u8 = 115;
    /// MAP: number of pairs, keys and values.
    pub const MAP: u8 = 116;
    /// ATOM_UTF8 with a two-byte length.
    pub const ATOM_UTF8: u8 = 118;
    /// SMALL_ATOM_UTF8 with a one-byte length.
    pub const SMALL_ATOM_UTF8: u8 = 119;
}

/// Why bytes are not the term that was asked for.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TermError {
    /// The bytes end inside the term.
    #[error("term ends early at byte {offset}")]
    Truncated {
        /// Where the missing bytes should have begun.
        offset: usize,
    },
    /// A tag that is not known, or not allowed here.
    #[error("unexpected term tag {found} at byte {offset}, expected {expected}")]
    UnexpectedTag {
        /// The tag found.
        found: u8,
        /// What would have been right.
        expected: &'static str,
        /// Where the tag stands.
        offset: usize,
    },
    /// A value that its tag does not allow, or that does not fit the type asked for.
    #[error("{what} at byte {offset}")]
    Invalid {
        /// What is wrong.
        what: &'static str,
        /// Where.
        offset: usize,
    },
    /// Deeper nesting than the named bound.
    #[error("term is nested deeper than {limit}")]
    TooDeep {
        /// The bound, in levels.
        limit: usize,
    },
    /// An integer with more digits than can be converted at bounded cost.
    #[error("integer is longer than {limit_bytes} bytes")]
    IntegerTooLong {
        /// The bound on the magnitude, in bytes.
        limit_bytes: usize,
    },
    /// The first byte is not 131.
    #[error("version byte 131 is missing")]
    NotVersioned,
    /// Bytes remain behind the term.
    #[error("{count} bytes remain behind the term")]
    TrailingBytes {
        /// How many.
        count: usize,
    },
    /// The zlib stream of a compressed term is damaged or does not have the size that it claims.
    #[error("compressed term cannot be expanded")]
    Expansion,
    /// A term that has no JSON form: an improper list, a tuple that is no object, a key that is no string.
    #[error("term has no json form: {what} at byte {offset}")]
    NotJson {
        /// What stands there.
        what: &'static str,
        /// Where.
        offset: usize,
    },
}

/// `erlang:external_size(T, [{minor_version, 1}])` of a raw term of `raw_len` bytes: the version byte is counted.
#[must_use]
pub const fn external_size(raw_len: usize) -> usize {
    raw_len + 1
}

/// The raw term behind the version byte.
///
/// # Errors
/// [`TermError::NotVersioned`] when the first byte is not 131. A compressed term (131 80) is not expanded here.
pub fn strip_version(versioned: &[u8]) -> Result<&[u8], TermError> {
    match versioned.split_first() {
        Some((&VERSION, raw)) => Ok(raw),
        _ => Err(TermError::NotVersioned),
    }
}
