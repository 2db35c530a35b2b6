//! A cursor over a raw term that hands out slices of it.

use super::{TermError, tag};
use std::borrow::Cow;

/// A cursor over raw terms. Every read moves behind what was read; a failed read leaves the cursor where it stood.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    bytes: &'a [u8],
    position: usize,
}

/// How a list begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListHead<'a> {
    /// The empty list; nothing follows.
    Nil,
    /// As many terms follow, and behind them a tail, which [`Reader::end_list`] reads.
    Elements(usize),
    /// A list of small integers given as bytes; nothing follows.
    Bytes(&'a [u8]),
}

/// An atom's name as it stands in the term.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Atom<'a> {
    /// The bytes of the name.
    pub bytes: &'a [u8],
    /// Whether the bytes are UTF-8; otherwise latin-1.
    pub utf8: bool,
}

impl<'a> Atom<'a> {
    /// Whether this is the ASCII atom `name`.
    #[must_use]
    pub fn is(&self, name: &[u8]) -> bool {
        self.bytes == name
    }

    /// The name as text, or `None` when bytes that should be UTF-8 are not.
    #[must_use]
    pub fn name(&self) -> Option<Cow<'a, str>> {
        if self.utf8 || self.bytes.is_ascii() {
            simdutf8::basic::from_utf8(self.bytes).ok().map(Cow::Borrowed)
        } else {
            Some(Cow::Owned(
                self.bytes.iter().map(|byte| char::from(*byte)).collect(),
            ))
        }
    }
}

/// An integer of any size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Int<'a> {
    /// One that fits in 64 bits.
    Small(i64),
    /// One that does not.
    Big {
        /// Whether it is below zero.
        negative: bool,
        /// Its magnitude, little-endian, without high zero bytes.
        magnitude: &'a [u8],
    },
}

impl<'a> Reader<'a> {
    /// A cursor at the beginning of `bytes`, which hold one raw term or several in a row.
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, position: 0 }
    }

    /// A cursor behind the version byte of `versioned`.
    ///
    /// # Errors
    /// [`TermError::NotVersioned`].
    pub fn versioned(versioned: &'a [u8]) -> Result<Self, TermError> {
        Ok(Self::new(super::strip_version(versioned)?))
    }

    /// Bytes read so far.
    #[must_use]
    pub const fn position(&self) -> usize {
        self.position
    }

    /// Whether all bytes have been read.
    #[must_use]
    pub const fn is_at_end(&self) -> bool {
        self.position >= self.bytes.len()
    }

    /// The bytes not yet read.
    #[must_use]
    pub fn rest(&self) -> &'a [u8] {
        self.bytes.get(self.position..).unwrap_or_default()
    }

    /// Moves over `bytes` bytes, which the caller has read from [`rest`](Self::rest).
    #[inline]
    pub(in crate::codec) fn advance(&mut self, bytes: usize) {
        self.position = self.position.saturating_add(bytes).min(self.bytes.len());
    }

    /// The next term's tag.
    ///
    /// # Errors
    /// [`TermError::Truncated`] at the end.
    #[inline]
    pub fn peek_tag(&self) -> Result<u8, TermError> {
        self.bytes
            .get(self.position)
            .copied()
            .ok_or(TermError::Truncated {
                offset: self.position,
            })
    }

    /// That nothing follows.
    ///
    /// # Errors
    /// [`TermError::TrailingBytes`].
    pub fn end(&self) -> Result<(), TermError> {
        match self.rest().len() {
            0 => Ok(()),
            count => Err(TermError::TrailingBytes { count }),
        }
    }

    /// Reads a tuple's head and returns its arity; so many terms follow. The arity is never more than the bytes left.
    ///
    /// # Errors
    /// Not a tuple, or truncated.
    #[inline]
    pub fn read_tuple(&mut self) -> Result<usize, TermError> {
        match self.peek_tag()? {
            tag::SMALL_TUPLE => {
                let [arity] = self.array_at(1)?;
                self.counted(2, usize::from(arity))
            }
            tag::LARGE_TUPLE => {
                let arity = self.length_at(1)?;
                self.counted(5, arity)
            }
            _ => Err(self.unexpected("a tuple")),
        }
    }

    /// Reads the head of a tuple that must have `arity` elements.
    ///
    /// # Errors
    /// Not a tuple, of another arity, or truncated.
    pub fn expect_tuple(&mut self, arity: usize) -> Result<(), TermError> {
        let mut ahead = self.clone();
        if ahead.read_tuple()? != arity {
            return Err(self.invalid("tuple of another arity"));
        }
        *self = ahead;
        Ok(())
    }

    /// Reads a list's head. The length is never more than the bytes left.
    ///
    /// # Errors
    /// Not a list, or truncated.
    #[inline]
    pub fn read_list(&mut self) -> Result<ListHead<'a>, TermError> {
        match self.peek_tag()? {
            tag::NIL => {
                self.position += 1;
                Ok(ListHead::Nil)
            }
            tag::LIST => {
                let length = self.length_at(1)?;
                Ok(ListHead::Elements(self.counted(5, length)?))
            }
            tag::STRING => {
                let length = u16::from_be_bytes(self.array_at(1)?);
                Ok(ListHead::Bytes(self.take(3, usize::from(length))?))
            }
            _ => Err(self.unexpected("a list")),
        }
    }

    /// Reads the tail of a list that [`ListHead::Elements`] announced, which must be the empty list.
    ///
    /// # Errors
    /// The list is improper, or truncated.
    #[inline]
    pub fn end_list(&mut self) -> Result<(), TermError> {
        match self.peek_tag()? {
            tag::NIL => {
                self.position += 1;
                Ok(())
            }
            _ => Err(self.unexpected("the end of a list")),
        }
    }

    /// Reads a map's head and returns the number of its pairs, never more than half of the bytes left.
    ///
    /// # Errors
    /// Not a map, or truncated.
    pub fn read_map(&mut self) -> Result<usize, TermError> {
        match self.peek_tag()? {
            tag::MAP => {
                let pairs = self.length_at(1)?;
                if pairs > self.bytes.len() / 2 {
                    return Err(TermError::Truncated {
                        offset: self.bytes.len(),
                    });
                }
                self.counted(5, pairs)
            }
            _ => Err(self.unexpected("a map")),
        }
    }

    /// Reads a binary.
    ///
    /// # Errors
    /// Not a binary, or truncated.
    #[inline]
    pub fn read_binary(&mut self) -> Result<&'a [u8], TermError> {
        match self.peek_tag()? {
            tag::BINARY => {
                let length = self.length_at(1)?;
                self.take(5, length)
            }
            _ => Err(self.unexpected("a binary")),
        }
    }

    /// Reads a binary or a bit string: its bytes, and how many bits of the last one count (8 for a binary).
    ///
    /// # Errors
    /// Neither, truncated, or a number of bits that cannot be.
    pub fn read_bits(&mut self) -> Result<(&'a [u8], u8), TermError> {
        if self.peek_tag()? != tag::BIT_BINARY {
            return Ok((self.read_binary()?, 8));
        }
        let length = self.length_at(1)?;
        let [bits] = self.array_at(5)?;
        if bits > 8 || (bits == 0) != (length == 0) {
            return Err(self.invalid("bit string with an impossible number of bits"));
        }
        Ok((self.take(6, length)?, if length == 0 { 8 } else { bits }))
    }

    /// Reads an atom.
    ///
    /// # Errors
    /// Not an atom, or truncated.
    #[inline]
    pub fn read_atom(&mut self) -> Result<Atom<'a>, TermError> {
        let (utf8, short) = match self.peek_tag()? {
            tag::ATOM => (false, false),
            tag::SMALL_ATOM => (false, true),
            tag::ATOM_UTF8 => (true, false),
            tag::SMALL_ATOM_UTF8 => (true, true),
            _ => return Err(self.unexpected("an atom")),
        };
        let bytes = if short {
            let [length] = self.array_at(1)?;
            self.take(2, usize::from(length))?
        } else {
            let length = u16::from_be_bytes(self.array_at(1)?);
            self.take(3, usize::from(length))?
        };
        Ok(Atom { bytes, utf8 })
    }

    /// Reads the atom `name` if it stands here, and says whether it did.
    pub fn skip_atom(&mut self, name: &[u8]) -> bool {
        let mut ahead = self.clone();
        let found = ahead.read_atom().is_ok_and(|atom| atom.is(name));
        if found {
            *self = ahead;
        }
        found
    }

    /// Reads `true` or `false`.
    ///
    /// # Errors
    /// Neither, or truncated.
    pub fn read_bool(&mut self) -> Result<bool, TermError> {
        match (self.skip_atom(b"true"), self.skip_atom(b"false")) {
            (true, _) => Ok(true),
            (_, true) => Ok(false),
            _ => {
                self.peek_tag()?;
                Err(self.unexpected("a boolean"))
            }
        }
    }

    /// Reads an integer of any size.
    ///
    /// # Errors
    /// Not an integer, or truncated.
    #[inline]
    pub fn read_int(&mut self) -> Result<Int<'a>, TermError> {
        match self.peek_tag()? {
            tag::SMALL_INTEGER => {
                let [value] = self.array_at(1)?;
                self.position += 2;
                Ok(Int::Small(i64::from(value)))
            }
            tag::INTEGER => {
                let value = i32::from_be_bytes(self.array_at(1)?);
                self.position += 5;
                Ok(Int::Small(i64::from(value)))
            }
            tag::SMALL_BIG => {
                let [length, sign] = self.array_at(1)?;
                Ok(shortest(sign, self.take(3, usize::from(length))?))
            }
            tag::LARGE_BIG => {
                let length = self.length_at(1)?;
                let [sign] = self.array_at(5)?;
                Ok(shortest(sign, self.take(6, length)?))
            }
            _ => Err(self.unexpected("an integer")),
        }
    }

    /// Reads an integer that fits in 64 bits.
    ///
    /// # Errors
    /// Not an integer, too big, or truncated.
    #[inline]
    pub fn read_i64(&mut self) -> Result<i64, TermError> {
        let mut ahead = self.clone();
        match ahead.read_int()? {
            Int::Small(value) => {
                *self = ahead;
                Ok(value)
            }
            Int::Big { .. } => Err(self.invalid("integer beyond 64 bits")),
        }
    }

    /// Reads an integer from zero to 2^64 - 1.
    ///
    /// # Errors
    /// Not an integer, negative, too big, or truncated.
    #[inline]
    pub fn read_u64(&mut self) -> Result<u64, TermError> {
        let mut ahead = self.clone();
        let value = match ahead.read_int()? {
            Int::Small(value) => u64::try_from(value).ok(),
            Int::Big {
                negative: false,
                magnitude,
            } => magnitude.try_into().ok().map(u64::from_le_bytes),
            Int::Big { negative: true, .. } => None,
        };
        let value = value.ok_or_else(|| self.invalid("integer outside 0 to 2^64 - 1"))?;
        *self = ahead;
        Ok(value)
    }

    /// Reads a float, which is always finite.
    ///
    /// # Errors
    /// Not a float, not finite, or truncated.
    #[inline]
    pub fn read_f64(&mut self) -> Result<f64, TermError> {
        if self.peek_tag()? != tag::NEW_FLOAT {
            return Err(self.unexpected("a float"));
        }
        let value = f64::from_be_bytes(self.array_at(1)?);
        if !value.is_finite() {
            return Err(self.invalid("float that is not finite"));
        }
        self.position += 9;
        Ok(value)
    }

    /// Moves over one whole term and returns its bytes. It takes no stack however deep the term is nested.
    ///
    /// # Errors
    /// The term is malformed or truncated.
    pub fn skip(&mut self) -> Result<&'a [u8], TermError> {
        let mut ahead = self.clone();
        // No overflow: every count is at most the number of bytes left, and each counted term takes one of them.
        let mut pending = 1_usize;
        while pending > 0 {
            pending = pending.saturating_sub(1).saturating_add(ahead.skip_head()?);
        }
        let raw = &self.bytes[self.position..ahead.position];
        *self = ahead;
        Ok(raw)
    }

    /// The same as [`skip`](Self::skip): the raw bytes of one whole term.
    ///
    /// # Errors
    /// The term is malformed or truncated.
    pub fn read_raw(&mut self) -> Result<&'a [u8], TermError> {
        self.skip()
    }

    /// Moves over a term without its children and returns how many there are.
    #[inline]
    fn skip_head(&mut self) -> Result<usize, TermError> {
        match self.peek_tag()? {
            tag::BINARY => self.read_binary().map(|_| 0),
            tag::SMALL_INTEGER | tag::INTEGER | tag::SMALL_BIG | tag::LARGE_BIG => self.read_int().map(|_| 0),
            tag::SMALL_TUPLE | tag::LARGE_TUPLE => self.read_tuple(),
            tag::NIL | tag::STRING => self.read_list().map(|_| 0),
            tag::LIST => {
                let length = self.length_at(1)?;
                self.counted(5, length).map(|elements| elements + 1)
            }
            tag::NEW_FLOAT => self.read_f64().map(|_| 0),
            tag::MAP => self.read_map().map(|pairs| pairs * 2),
            tag::BIT_BINARY => self.read_bits().map(|_| 0),
            _ => self.read_atom().map(|_| 0),
        }
    }

    /// The fixed bytes at `offset` behind the cursor.
    #[inline]
    fn array_at<const N: usize>(&self, offset: usize) -> Result<[u8; N], TermError> {
        self.bytes
            .get(self.position + offset..)
            .and_then(|rest| rest.first_chunk::<N>())
            .copied()
            .ok_or(TermError::Truncated {
                offset: self.bytes.len(),
            })
    }

    #[inline]
    fn length_at(&self, offset: usize) -> Result<usize, TermError> {
        let length = u32::from_be_bytes(self.array_at(offset)?);
        usize::try_from(length).map_err(|_| self.invalid("length beyond the address space"))
    }

    /// Moves over a head of `head` bytes and the `length` bytes behind it, which are returned.
    #[inline]
    fn take(&mut self, head: usize, length: usize) -> Result<&'a [u8], TermError> {
        let start = self.position + head;
        let taken = self.bytes.get(start..).and_then(|rest| rest.get(..length));
        let taken = taken.ok_or(TermError::Truncated {
            offset: self.bytes.len(),
        })?;
        self.position = start + length;
        Ok(taken)
    }

    /// Moves over a head of `head` bytes that announces `count` terms; each needs at least one byte.
    #[inline]
    fn counted(&mut self, head: usize, count: usize) -> Result<usize, TermError> {
        let start = self.position + head;
        if count > self.bytes.len().saturating_sub(start) {
            return Err(TermError::Truncated {
                offset: self.bytes.len(),
            });
        }
        self.position = start;
        Ok(count)
    }

    #[cold]
    fn unexpected(&self, expected: &'static str) -> TermError {
        let found = self.bytes.get(self.position).copied().unwrap_or_default();
        TermError::UnexpectedTag {
            found,
            expected,
            offset: self.position,
        }
    }

    #[cold]
    fn invalid(&self, what: &'static str) -> TermError {
        TermError::Invalid {
            what,
            offset: self.position,
        }
    }
}

/// Drops high zero bytes and takes the small form where the value fits.
fn shortest(sign: u8, magnitude: &[u8]) -> Int<'_> {
    let negative = sign != 0;
    let length = magnitude
        .iter()
        .rposition(|byte| *byte != 0)
        .map_or(0, |last| last + 1);
    let magnitude = &magnitude[..length];
    if length <= 8 {
        let mut bytes = [0; 8];
        bytes[..length].copy_from_slice(magnitude);
        let absolute = u64::from_le_bytes(bytes);
        let small = if negative {
            0_i64.checked_sub_unsigned(absolute)
        } else {
            i64::try_from(absolute).ok()
        };
        if let Some(value) = small {
            return Int::Small(value);
        }
    }
    Int::Big { negative, magnitude }
}
