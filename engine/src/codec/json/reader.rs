//! A pull parser: the caller walks a text and says for each value what becomes of it.

use super::number::{self, Number};
use super::object::Members;
use super::parse::Frame;
use super::scan::{find_special, skip_space};
use super::string::unescape;
use super::{JSON_BYTES_MAX, JsonError, JsonLimits};
use smallvec::SmallVec;
use std::borrow::Cow;

/// What kind of value stands next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `{`
    Object,
    /// `[`
    Array,
    /// A string.
    String,
    /// A number.
    Number,
    /// `true` or `false`.
    Bool,
    /// `null`.
    Null,
}

/// A cursor over one JSON text.
///
/// Objects and arrays that the caller opens with [`begin_object`](Self::begin_object) and
/// [`begin_array`](Self::begin_array) are walked with [`next_member`](Self::next_member) and
/// [`next_element`](Self::next_element) until these say that there is no more; between two of them exactly one value must
/// be read. Whole values are read with [`value_to_term`](Self::value_to_term) or [`skip_value`](Self::skip_value).
#[derive(Debug)]
pub struct JsonReader<'a> {
    pub(super) text: &'a str,
    pub(super) position: usize,
    pub(super) limits: JsonLimits,
    /// Objects and arrays that the caller has opened.
    pub(super) depth: usize,
    /// Whether the innermost of them has just been opened, so that no comma stands before its first member.
    fresh: bool,
    pub(super) frames: SmallVec<[Frame; 12]>,
    pub(super) members: Members,
}

impl<'a> JsonReader<'a> {
    /// A cursor at the beginning of `json`, with the default limits.
    ///
    /// # Errors
    /// Not UTF-8, or too long.
    pub fn new(json: &'a [u8]) -> Result<Self, JsonError> {
        Self::with_limits(json, JsonLimits::default())
    }

    /// A cursor at the beginning of `json`.
    ///
    /// # Errors
    /// Not UTF-8, or longer than `limits` allow.
    pub fn with_limits(json: &'a [u8], limits: JsonLimits) -> Result<Self, JsonError> {
        if json.len() > limits.max_bytes.min(JSON_BYTES_MAX) {
            return Err(JsonError::new("text is too long", 0));
        }
        let text = simdutf8::basic::from_utf8(json).map_err(|_| {
            let offset = std::str::from_utf8(json).map_or_else(|error| error.valid_up_to(), str::len);
            JsonError::new("invalid utf-8", offset)
        })?;
        Ok(Self {
            text,
            position: 0,
            limits,
            depth: 0,
            fresh: false,
            frames: SmallVec::new(),
            members: Members::new(),
        })
    }

    /// Bytes read so far.
    #[must_use]
    pub const fn position(&self) -> usize {
        self.position
    }

    /// Bytes not yet read.
    #[must_use]
    pub const fn remaining(&self) -> usize {
        self.text.len() - self.position
    }

    #[inline]
    pub(super) fn bytes(&self) -> &'a [u8] {
        self.text.as_bytes()
    }

    /// The next byte that is no white space.
    #[inline]
    pub(super) fn peek(&mut self) -> Option<u8> {
        let bytes = self.bytes();
        // In compact text, which is the usual one, the byte here is it.
        let mut byte = bytes.get(self.position).copied();
        if byte.is_some_and(|byte| byte <= b' ') {
            self.position = skip_space(bytes, self.position);
            byte = bytes.get(self.position).copied();
        }
        byte
    }

    #[cold]
    pub(super) fn error(&self, message: &'static str) -> JsonError {
        JsonError::new(message, self.position)
    }

    /// What kind of value stands next, by its first byte.
    ///
    /// # Errors
    /// No value begins here.
    pub fn peek_kind(&mut self) -> Result<Kind, JsonError> {
        match self.peek() {
            Some(b'{') => Ok(Kind::Object),
            Some(b'[') => Ok(Kind::Array),
            Some(b'"') => Ok(Kind::String),
            Some(b'-' | b'0'..=b'9') => Ok(Kind::Number),
            Some(b't' | b'f') => Ok(Kind::Bool),
            Some(b'n') => Ok(Kind::Null),
            Some(_) => Err(self.error("no value begins here")),
            None => Err(self.error("text ends where a value should stand")),
        }
    }

    /// Opens an object.
    ///
    /// # Errors
    /// Not an object, or nested too deep.
    pub fn begin_object(&mut self) -> Result<(), JsonError> {
        self.begin(b'{', "expected an object")
    }

    /// Opens an array.
    ///
    /// # Errors
    /// Not an array, or nested too deep.
    pub fn begin_array(&mut self) -> Result<(), JsonError> {
        self.begin(b'[', "expected an array")
    }

    fn begin(&mut self, byte: u8, message: &'static str) -> Result<(), JsonError> {
        if self.peek() != Some(byte) {
            return Err(self.error(message));
        }
        if self.depth >= self.limits.max_depth {
            return Err(self.error("nested too deep"));
        }
        self.position += 1;
        self.depth += 1;
        self.fresh = true;
        Ok(())
    }

    /// The name of the next member of the innermost object, after which its value must be read; or `None` behind the last
    /// one, and the object is closed.
    ///
    /// # Errors
    /// Malformed.
    pub fn next_member(&mut self) -> Result<Option<Cow<'a, str>>, JsonError> {
        if !self.next(b'}', "expected a comma or the end of the object")? {
            return Ok(None);
        }
        if self.peek() != Some(b'"') {
            return Err(self.error("expected the name of a member"));
        }
        let name = self.read_string()?;
        self.expect_colon()?;
        Ok(Some(name))
    }

    /// Whether the innermost array has another element, which must then be read; otherwise the array is closed.
    ///
    /// # Errors
    /// Malformed.
    pub fn next_element(&mut self) -> Result<bool, JsonError> {
        self.next(b']', "expected a comma or the end of the array")
    }

    fn next(&mut self, end: u8, message: &'static str) -> Result<bool, JsonError> {
        let fresh = std::mem::take(&mut self.fresh);
        match self.peek() {
            Some(byte) if byte == end => {
                self.position += 1;
                self.depth = self.depth.saturating_sub(1);
                Ok(false)
            }
            Some(_) if fresh => Ok(true),
            Some(b',') => {
                self.position += 1;
                if self.peek() == Some(end) {
                    return Err(self.error("comma before the end"));
                }
                Ok(true)
            }
            _ => Err(self.error(message)),
        }
    }

    #[inline]
    pub(super) fn expect_colon(&mut self) -> Result<(), JsonError> {
        if self.peek() != Some(b':') {
            return Err(self.error("expected a colon"));
        }
        self.position += 1;
        Ok(())
    }

    /// Reads a string; it is borrowed when it has no escapes.
    ///
    /// # Errors
    /// Not a string, or malformed.
    pub fn read_string(&mut self) -> Result<Cow<'a, str>, JsonError> {
        if self.peek() != Some(b'"') {
            return Err(self.error("expected a string"));
        }
        let bytes = self.bytes();
        let start = self.position + 1;
        let special = find_special(bytes, start);
        if bytes.get(special) == Some(&b'"') {
            self.position = special + 1;
            return Ok(Cow::Borrowed(self.text.get(start..special).unwrap_or_default()));
        }
        let mut unescaped = Vec::new();
        self.position = unescape(bytes, start, special, &mut unescaped)?;
        let owned = String::from_utf8(unescaped).map_err(|_| JsonError::new("invalid utf-8", start))?;
        Ok(Cow::Owned(owned))
    }

    /// Reads `true` or `false`.
    ///
    /// # Errors
    /// Neither.
    pub fn read_bool(&mut self) -> Result<bool, JsonError> {
        match self.peek() {
            Some(b't') => self.literal(b"true").map(|()| true),
            Some(b'f') => self.literal(b"false").map(|()| false),
            _ => Err(self.error("expected a boolean")),
        }
    }

    /// Reads `null`.
    ///
    /// # Errors
    /// Something else stands here.
    pub fn read_null(&mut self) -> Result<(), JsonError> {
        match self.peek() {
            Some(b'n') => self.literal(b"null"),
            _ => Err(self.error("expected null")),
        }
    }

    #[inline]
    pub(super) fn literal(&mut self, literal: &'static [u8]) -> Result<(), JsonError> {
        if self
            .bytes()
            .get(self.position..)
            .is_some_and(|rest| rest.starts_with(literal))
        {
            self.position += literal.len();
            return Ok(());
        }
        Err(self.error("unknown literal"))
    }

    #[inline]
    pub(super) fn number(&mut self) -> Result<Number<'a>, JsonError> {
        let start = self.position;
        let (number, end) = number::parse(self.text, start)?;
        if end - start > self.limits.max_integer_digits && matches!(number, Number::Long { .. }) {
            return Err(self.error("integer is too long"));
        }
        self.position = end;
        Ok(number)
    }

    fn any_number(&mut self) -> Result<Number<'a>, JsonError> {
        match self.peek_kind()? {
            Kind::Number => self.number(),
            _ => Err(self.error("expected a number")),
        }
    }

    /// Reads an integer of up to 64 bits.
    ///
    /// # Errors
    /// Not an integer, or too big.
    pub fn read_i64(&mut self) -> Result<i64, JsonError> {
        self.peek();
        let start = self.position;
        let value = match self.any_number()? {
            Number::Small(value) => Some(value),
            Number::Long { .. } => self
                .text
                .get(start..self.position)
                .and_then(|digits| digits.parse().ok()),
            Number::Float(_) => None,
        };
        value.ok_or(JsonError::new("expected an integer of 64 bits", start))
    }

    /// Reads a number as the nearest double.
    ///
    /// # Errors
    /// Not a number, or beyond a double.
    pub fn read_f64(&mut self) -> Result<f64, JsonError> {
        self.peek();
        let start = self.position;
        let value = match self.any_number()? {
            Number::Small(value) => value as f64,
            Number::Float(value) => value,
            Number::Long { .. } => self
                .text
                .get(start..self.position)
                .and_then(|number| number.parse().ok())
                .filter(|value: &f64| value.is_finite())
                .ok_or(JsonError::new("number beyond a double", start))?,
        };
        Ok(value)
    }

    /// That nothing but white space follows.
    ///
    /// # Errors
    /// Something does, or an object or array is still open.
    pub fn end(&mut self) -> Result<(), JsonError> {
        match self.peek() {
            None if self.depth == 0 => Ok(()),
            None => Err(self.error("text ends early")),
            Some(_) => Err(self.error("text goes on behind its value")),
        }
    }
}
