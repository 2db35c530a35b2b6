//! An owned tree of a term, for cold paths: headers, properties, security objects, messages.

use super::{Int, ListHead, OWNED_DEPTH_MAX, Reader, TermError, VERSION, compare, external_size, tag, write};
use num_bigint::{BigInt, Sign};
use std::cmp::Ordering;
use std::io::Read;

/// Elements for which room is made before they are seen; what a length claims beyond it grows as elements arrive.
const TRUSTED_ELEMENTS: usize = 64;

/// A term as a tree.
///
/// Equality is structural, as `=:=` is; the term order is [`Term::order`].
#[derive(Clone, Debug, PartialEq)]
pub enum Term {
    /// An integer of up to 64 bits.
    Int(i64),
    /// An integer beyond 64 bits.
    BigInt(BigInt),
    /// A finite float.
    Float(f64),
    /// An atom.
    Atom(Box<str>),
    /// A binary.
    Binary(Vec<u8>),
    /// A bit string whose last byte counts only in part: the bytes, and the number of bits used in the last one (1 to 7).
    Bits(Vec<u8>, u8),
    /// A tuple.
    Tuple(Vec<Term>),
    /// A proper list.
    List(Vec<Term>),
    /// An improper list: at least one element, and a tail that is no list.
    ImproperList(Vec<Term>, Box<Term>),
    /// A map, in the order in which its pairs stand.
    Map(Vec<(Term, Term)>),
}

impl Term {
    /// The term in `raw`, which holds nothing else.
    ///
    /// # Errors
    /// Malformed, nested deeper than [`OWNED_DEPTH_MAX`], or followed by other bytes.
    pub fn decode(raw: &[u8]) -> Result<Self, TermError> {
        let mut reader = Reader::new(raw);
        let term = Self::read(&mut reader)?;
        reader.end()?;
        Ok(term)
    }

    /// Reads the next term of `reader`.
    ///
    /// # Errors
    /// Malformed, or nested deeper than [`OWNED_DEPTH_MAX`]; the cursor may then stand inside the term.
    pub fn read(reader: &mut Reader<'_>) -> Result<Self, TermError> {
        Self::read_nested(reader, 0)
    }

    /// The term behind a version byte; bytes behind it are ignored, as `binary_to_term` ignores them. A compressed term
    /// (131 80) is expanded.
    ///
    /// # Errors
    /// No version byte, malformed, or nested too deep.
    pub fn decode_versioned(versioned: &[u8]) -> Result<Self, TermError> {
        let raw = super::strip_version(versioned)?;
        match raw.split_first() {
            Some((&tag::COMPRESSED, rest)) => Self::read(&mut Reader::new(&expand(rest)?)),
            _ => Self::read(&mut Reader::new(raw)),
        }
    }

    fn read_nested(reader: &mut Reader<'_>, depth: usize) -> Result<Self, TermError> {
        if depth >= OWNED_DEPTH_MAX {
            return Err(TermError::TooDeep {
                limit: OWNED_DEPTH_MAX,
            });
        }
        match reader.peek_tag()? {
            tag::SMALL_INTEGER | tag::INTEGER | tag::SMALL_BIG | tag::LARGE_BIG => {
                Ok(Self::from_int(reader.read_int()?))
            }
            tag::NEW_FLOAT => Ok(Self::Float(reader.read_f64()?)),
            tag::BINARY => Ok(Self::Binary(reader.read_binary()?.to_vec())),
            tag::BIT_BINARY => Ok(match reader.read_bits()? {
                (bytes, 8) => Self::Binary(bytes.to_vec()),
                (bytes, bits) => Self::Bits(bytes.to_vec(), bits),
            }),
            tag::SMALL_TUPLE | tag::LARGE_TUPLE => {
                let arity = reader.read_tuple()?;
                Ok(Self::Tuple(Self::read_many(reader, arity, depth)?))
            }
            tag::NIL | tag::STRING | tag::LIST => Self::read_list(reader, depth),
            tag::MAP => {
                let pairs = reader.read_map()?;
                let mut map = Vec::with_capacity(pairs.min(TRUSTED_ELEMENTS));
                for _ in 0..pairs {
                    let key = Self::read_nested(reader, depth + 1)?;
                    map.push((key, Self::read_nested(reader, depth + 1)?));
                }
                Ok(Self::Map(map))
            }
            _ => {
                let offset = reader.position();
                let name = reader.read_atom()?.name();
                let name = name.ok_or(TermError::Invalid {
                    what: "atom that is not utf-8",
                    offset,
                })?;
                Ok(Self::Atom(name.into()))
            }
        }
    }

    fn read_list(reader: &mut Reader<'_>, depth: usize) -> Result<Self, TermError> {
        let mut elements = match reader.read_list()? {
            ListHead::Nil => return Ok(Self::List(Vec::new())),
            ListHead::Bytes(bytes) => return Ok(Self::bytes_list(bytes)),
            ListHead::Elements(length) => Self::read_many(reader, length, depth)?,
        };
        // A list as the tail continues this one: OTP never writes it so, but reads it.
        match Self::read_nested(reader, depth + 1)? {
            Self::List(more) => elements.extend(more),
            Self::ImproperList(more, tail) => {
                elements.extend(more);
                return Ok(Self::ImproperList(elements, tail));
            }
            tail if elements.is_empty() => return Ok(tail),
            tail => return Ok(Self::ImproperList(elements, Box::new(tail))),
        }
        Ok(Self::List(elements))
    }

    fn read_many(reader: &mut Reader<'_>, count: usize, depth: usize) -> Result<Vec<Self>, TermError> {
        let mut terms = Vec::with_capacity(count.min(TRUSTED_ELEMENTS));
        for _ in 0..count {
            terms.push(Self::read_nested(reader, depth + 1)?);
        }
        Ok(terms)
    }

    fn from_int(int: Int<'_>) -> Self {
        match int {
            Int::Small(value) => Self::Int(value),
            Int::Big { negative, magnitude } => {
                let sign = if negative { Sign::Minus } else { Sign::Plus };
                Self::BigInt(BigInt::from_bytes_le(sign, magnitude))
            }
        }
    }

    /// Appends the raw term, as OTP would write it: a list of nothing but bytes becomes a STRING.
    pub fn encode_into(&self, out: &mut Vec<u8>) {
        match self {
            Self::Int(value) => write::int(out, *value),
            Self::BigInt(value) => write::big(out, value),
            Self::Float(value) => write::float(out, *value),
            Self::Atom(name) => write::atom(out, name),
            Self::Binary(bytes) => write::binary(out, bytes),
            Self::Bits(bytes, bits) => {
                write::binary_head(out, bytes.len());
                let head = out.len() - 5;
                out[head] = tag::BIT_BINARY;
                out.push(*bits);
                out.extend_from_slice(bytes);
            }
            Self::Tuple(elements) => {
                write::tuple(out, elements.len());
                elements.iter().for_each(|element| element.encode_into(out));
            }
            Self::List(elements) => match Self::as_bytes(elements) {
                Some(bytes) => write::byte_list(out, &bytes),
                None => {
                    write::list(out, elements.len());
                    elements.iter().for_each(|element| element.encode_into(out));
                    write::nil(out);
                }
            },
            Self::ImproperList(elements, tail) => {
                write::list(out, elements.len());
                elements.iter().for_each(|element| element.encode_into(out));
                tail.encode_into(out);
            }
            Self::Map(pairs) => {
                write::map(out, pairs.len());
                for (key, value) in pairs {
                    key.encode_into(out);
                    value.encode_into(out);
                }
            }
        }
    }

    /// The elements as bytes, when all are small integers (also when there are none).
    fn as_bytes(elements: &[Self]) -> Option<Vec<u8>> {
        let byte = |element: &Self| match element {
            Self::Int(value) => u8::try_from(*value).ok(),
            _ => None,
        };
        // Most lists fail at the first element, before anything is allocated.
        elements.first().map_or(Some(0), byte)?;
        elements.iter().map(byte).collect()
    }

    /// The raw term.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.encode_into(&mut out);
        out
    }

    /// The term behind a version byte.
    #[must_use]
    pub fn encode_versioned(&self) -> Vec<u8> {
        let mut out = vec![VERSION];
        self.encode_into(&mut out);
        out
    }

    /// `erlang:external_size` of this term, the version byte counted.
    #[must_use]
    pub fn external_size(&self) -> usize {
        external_size(self.encode().len())
    }

    /// The Erlang term order of two trees.
    #[must_use]
    pub fn order(&self, other: &Self) -> Ordering {
        compare(&self.encode(), &other.encode())
    }

    /// An atom.
    #[must_use]
    pub fn atom(name: &str) -> Self {
        Self::Atom(name.into())
    }

    /// A binary.
    #[must_use]
    pub fn binary(bytes: impl Into<Vec<u8>>) -> Self {
        Self::Binary(bytes.into())
    }

    /// A tuple.
    #[must_use]
    pub fn tuple(elements: impl Into<Vec<Self>>) -> Self {
        Self::Tuple(elements.into())
    }

    /// A proper list.
    #[must_use]
    pub fn list(elements: impl Into<Vec<Self>>) -> Self {
        Self::List(elements.into())
    }

    /// The empty list.
    #[must_use]
    pub const fn nil() -> Self {
        Self::List(Vec::new())
    }

    /// A list of small integers, which an Erlang string is.
    #[must_use]
    pub fn bytes_list(bytes: &[u8]) -> Self {
        Self::List(bytes.iter().map(|byte| Self::Int(i64::from(*byte))).collect())
    }

    /// The atom `true` or `false`.
    #[must_use]
    pub fn boolean(value: bool) -> Self {
        Self::atom(if value { "true" } else { "false" })
    }

    /// An unsigned integer.
    #[must_use]
    pub fn uint(value: u64) -> Self {
        i64::try_from(value).map_or_else(|_| Self::BigInt(BigInt::from(value)), Self::Int)
    }

    /// The integer, if this is one of up to 64 bits.
    #[must_use]
    pub const fn as_i64(&self) -> Option<i64> {
        match self {
            Self::Int(value) => Some(*value),
            _ => None,
        }
    }

    /// The integer, if this is one from zero to 2^64 - 1.
    #[must_use]
    pub fn as_u64(&self) -> Option<u64> {
        match self {
            Self::Int(value) => u64::try_from(*value).ok(),
            Self::BigInt(value) => u64::try_from(value).ok(),
            _ => None,
        }
    }

    /// The float, if this is one.
    #[must_use]
    pub const fn as_f64(&self) -> Option<f64> {
        match self {
            Self::Float(value) => Some(*value),
            _ => None,
        }
    }

    /// The atom's name, if this is an atom.
    #[must_use]
    pub fn as_atom(&self) -> Option<&str> {
        match self {
            Self::Atom(name) => Some(name),
            _ => None,
        }
    }

    /// Whether this is the atom `name`.
    #[must_use]
    pub fn is_atom(&self, name: &str) -> bool {
        self.as_atom() == Some(name)
    }

    /// The boolean, if this is `true` or `false`.
    #[must_use]
    pub fn as_bool(&self) -> Option<bool> {
        match self.as_atom()? {
            "true" => Some(true),
            "false" => Some(false),
            _ => None,
        }
    }

    /// The bytes, if this is a binary.
    #[must_use]
    pub fn as_binary(&self) -> Option<&[u8]> {
        match self {
            Self::Binary(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// The binary as text, if this is a binary of UTF-8.
    #[must_use]
    pub fn as_str(&self) -> Option<&str> {
        simdutf8::basic::from_utf8(self.as_binary()?).ok()
    }

    /// The elements, if this is a tuple.
    #[must_use]
    pub fn as_tuple(&self) -> Option<&[Self]> {
        match self {
            Self::Tuple(elements) => Some(elements),
            _ => None,
        }
    }

    /// The elements, if this is a proper list.
    #[must_use]
    pub fn as_list(&self) -> Option<&[Self]> {
        match self {
            Self::List(elements) => Some(elements),
            _ => None,
        }
    }

    /// The pairs, if this is a map.
    #[must_use]
    pub fn as_map(&self) -> Option<&[(Self, Self)]> {
        match self {
            Self::Map(pairs) => Some(pairs),
            _ => None,
        }
    }

    /// The value of the first pair `{Key, Value}` with the atom `name` as its key, if this is a property list.
    #[must_use]
    pub fn property(&self, name: &str) -> Option<&Self> {
        self.as_list()?
            .iter()
            .find_map(|element| match element.as_tuple()? {
                [key, value] if key.is_atom(name) => Some(value),
                _ => None,
            })
    }

    /// The value of the member `name`, if this is an ejson object.
    #[must_use]
    pub fn member(&self, name: &str) -> Option<&Self> {
        let [members] = self.as_tuple()? else { return None };
        members
            .as_list()?
            .iter()
            .find_map(|element| match element.as_tuple()? {
                [key, value] if key.as_binary() == Some(name.as_bytes()) => Some(value),
                _ => None,
            })
    }
}

/// The raw term in what follows the tag COMPRESSED: four bytes of size, and a zlib stream of exactly that size.
fn expand(sized: &[u8]) -> Result<Vec<u8>, TermError> {
    let (size, stream) = sized.split_first_chunk::<4>().ok_or(TermError::Expansion)?;
    let size = u64::from(u32::from_be_bytes(*size));
    if size > crate::codec::compress::UNCOMPRESSED_BYTES_MAX {
        return Err(TermError::Expansion);
    }
    let mut raw = Vec::new();
    let read = flate2::read::ZlibDecoder::new(stream)
        .take(size + 1)
        .read_to_end(&mut raw);
    match read {
        Ok(length) if u64::try_from(length) == Ok(size) => Ok(raw),
        _ => Err(TermError::Expansion),
    }
}
