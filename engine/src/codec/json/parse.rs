//! Reading whole values: into a term, or only over them.
//!
//! Both walk nested values with a stack of their own; the innermost object or array is kept in a local variable.

use super::numbers::read_numbers;
use super::object::{Open, patch_count};
use super::reader::JsonReader;
use super::scan::{append_part, find_special};
use super::string::unescape;
use super::{JsonError, number::parse_small};
use crate::codec::term::{tag, write};
use smallvec::SmallVec;

/// The raw terms of the three literals.
const TRUE: &[u8] = b"d\0\x04true";
const FALSE: &[u8] = b"d\0\x05false";
const NULL: &[u8] = b"d\0\x04null";

/// Head of an array's term, whose length is written at the end.
const LIST_HEAD: [u8; 5] = [tag::LIST, 0, 0, 0, 0];

/// An object or array that is being written.
#[derive(Clone, Copy, Debug)]
pub(super) enum Frame {
    /// The value that was asked for is complete.
    Root,
    /// An array: where its term begins, and how many elements it has so far.
    Array { start: usize, count: usize },
    /// An object.
    Object(Open),
}

impl<'a> JsonReader<'a> {
    /// Reads one whole value and appends its raw term to `out`. After an error, `out` may end with a part of a term.
    ///
    /// # Errors
    /// Malformed, or beyond the limits.
    pub fn value_to_term(&mut self, out: &mut Vec<u8>) -> Result<(), JsonError> {
        self.frames.clear();
        self.members.clear();
        let mut top = Frame::Root;
        loop {
            let complete = self.begin_value(out, &mut top)?;
            if complete && self.after_value(out, &mut top)? {
                return Ok(());
            }
        }
    }

    /// Reads a scalar or an empty array or object, and says `true`; or opens an array or object, reads the name of the first
    /// member, and says `false`.
    #[inline]
    fn begin_value(&mut self, out: &mut Vec<u8>, top: &mut Frame) -> Result<bool, JsonError> {
        match self.peek() {
            Some(b'"') => self.string_to_term(out)?,
            Some(b'-' | b'0'..=b'9') => match parse_small(self.bytes(), self.position) {
                Some((value, end)) => {
                    self.position = end;
                    write::int(out, value);
                }
                None => self.number()?.write_term(out),
            },
            Some(b'{') => {
                self.open_level()?;
                if self.peek() == Some(b'}') {
                    self.position += 1;
                    out.extend_from_slice(&[tag::SMALL_TUPLE, 1, tag::NIL]);
                    return Ok(true);
                }
                let mut open = Open::begin(out, &self.members);
                self.name_to_term(out, &mut open)?;
                self.frames.push(std::mem::replace(top, Frame::Object(open)));
                return Ok(false);
            }
            Some(b'[') => {
                self.open_level()?;
                if self.peek() == Some(b']') {
                    self.position += 1;
                    write::nil(out);
                    return Ok(true);
                }
                let start = out.len();
                out.extend_from_slice(&LIST_HEAD);
                let (count, position) = read_numbers(self.bytes(), self.position, out);
                self.position = position;
                self.frames
                    .push(std::mem::replace(top, Frame::Array { start, count }));
                return Ok(false);
            }
            Some(b't') => {
                self.literal(b"true")?;
                out.extend_from_slice(TRUE);
            }
            Some(b'f') => {
                self.literal(b"false")?;
                out.extend_from_slice(FALSE);
            }
            Some(b'n') => {
                self.literal(b"null")?;
                out.extend_from_slice(NULL);
            }
            Some(_) => return Err(self.error("no value begins here")),
            None => return Err(self.error("text ends where a value should stand")),
        }
        Ok(true)
    }

    /// Moves on behind a value: over a comma and the next name, or out of what ends here. `true` when all is complete.
    #[inline]
    fn after_value(&mut self, out: &mut Vec<u8>, top: &mut Frame) -> Result<bool, JsonError> {
        loop {
            match top {
                Frame::Root => return Ok(true),
                Frame::Object(open) => match self.peek() {
                    Some(b',') => {
                        self.position += 1;
                        self.name_to_term(out, open)?;
                        return Ok(false);
                    }
                    Some(b'}') => open.finish(out, &mut self.members),
                    _ => return Err(self.error("expected a comma or the end of the object")),
                },
                Frame::Array { start, count } => {
                    *count += 1;
                    match self.peek() {
                        Some(b',') => {
                            self.position += 1;
                            return Ok(false);
                        }
                        Some(b']') => finish_array(out, *start, *count),
                        _ => return Err(self.error("expected a comma or the end of the array")),
                    }
                }
            }
            self.position += 1;
            *top = self.frames.pop().unwrap_or(Frame::Root);
        }
    }

    #[inline]
    fn open_level(&mut self) -> Result<(), JsonError> {
        if self.depth + self.frames.len() >= self.limits.max_depth {
            return Err(self.error("nested too deep"));
        }
        self.position += 1;
        Ok(())
    }

    /// Reads the name of a member and its colon, and begins the member's term.
    #[inline]
    fn name_to_term(&mut self, out: &mut Vec<u8>, open: &mut Open) -> Result<(), JsonError> {
        if self.peek() != Some(b'"') {
            return Err(self.error("expected the name of a member"));
        }
        let start = out.len();
        out.extend_from_slice(&[tag::SMALL_TUPLE, 2]);
        self.string_to_term(out)?;
        open.note(out, start, &mut self.members);
        self.expect_colon()
    }

    /// Reads the string whose quote stands here.
    #[inline]
    fn string_to_term(&mut self, out: &mut Vec<u8>) -> Result<(), JsonError> {
        let bytes = self.bytes();
        let start = self.position + 1;
        let special = find_special(bytes, start);
        if bytes.get(special) == Some(&b'"') {
            write::binary_head(out, special - start);
            append_part(out, bytes, start, special);
            self.position = special + 1;
            return Ok(());
        }
        write::binary_head(out, 0);
        let from = out.len();
        self.position = unescape(bytes, start, special, out)?;
        let length = out.len() - from;
        patch_count(out, from - 4, length);
        Ok(())
    }

    /// Reads over one whole value and returns its text, which is valid JSON.
    ///
    /// # Errors
    /// Malformed, or beyond the limits.
    pub fn skip_value(&mut self) -> Result<&'a [u8], JsonError> {
        self.peek();
        let start = self.position;
        // The kind of each open level: true for an object.
        let mut levels: SmallVec<[bool; 64]> = SmallVec::new();
        let mut scratch = Vec::new();
        loop {
            match self.peek() {
                Some(byte @ (b'{' | b'[')) => {
                    if self.depth + levels.len() >= self.limits.max_depth {
                        return Err(self.error("nested too deep"));
                    }
                    self.position += 1;
                    let object = byte == b'{';
                    if self.peek() != Some(if object { b'}' } else { b']' }) {
                        levels.push(object);
                        if object {
                            self.skip_name(&mut scratch)?;
                        }
                        continue;
                    }
                    self.position += 1;
                }
                Some(b'"') => self.skip_string(&mut scratch)?,
                Some(b'-' | b'0'..=b'9') => {
                    self.number()?;
                }
                Some(b't') => self.literal(b"true")?,
                Some(b'f') => self.literal(b"false")?,
                Some(b'n') => self.literal(b"null")?,
                Some(_) => return Err(self.error("no value begins here")),
                None => return Err(self.error("text ends where a value should stand")),
            }
            if self.skip_after(&mut levels, &mut scratch)? {
                return Ok(self.bytes().get(start..self.position).unwrap_or_default());
            }
        }
    }

    /// Moves on behind a value that is read over; `true` when all is complete.
    fn skip_after(
        &mut self,
        levels: &mut SmallVec<[bool; 64]>,
        scratch: &mut Vec<u8>,
    ) -> Result<bool, JsonError> {
        while let Some(object) = levels.last().copied() {
            match self.peek() {
                Some(b',') => {
                    self.position += 1;
                    if object {
                        self.skip_name(scratch)?;
                    }
                    return Ok(false);
                }
                Some(b'}') if object => {}
                Some(b']') if !object => {}
                _ if object => return Err(self.error("expected a comma or the end of the object")),
                _ => return Err(self.error("expected a comma or the end of the array")),
            }
            self.position += 1;
            levels.pop();
        }
        Ok(true)
    }

    fn skip_name(&mut self, scratch: &mut Vec<u8>) -> Result<(), JsonError> {
        if self.peek() != Some(b'"') {
            return Err(self.error("expected the name of a member"));
        }
        self.skip_string(scratch)?;
        self.expect_colon()
    }

    fn skip_string(&mut self, scratch: &mut Vec<u8>) -> Result<(), JsonError> {
        let bytes = self.bytes();
        let start = self.position + 1;
        let special = find_special(bytes, start);
        self.position = if bytes.get(special) == Some(&b'"') {
            special + 1
        } else {
            scratch.clear();
            unescape(bytes, start, special, scratch)?
        };
        Ok(())
    }
}

/// Ends the list of `count` elements that begins at `start`. As OTP does it, a list of small integers becomes a STRING.
#[inline]
fn finish_array(out: &mut Vec<u8>, start: usize, count: usize) {
    let body = start + LIST_HEAD.len();
    let elements = out.get_mut(body..).unwrap_or_default();
    // By induction from the first element, every tag stands at an even place and each element takes two bytes.
    let all_bytes =
        elements.len() == 2 * count && elements.chunks_exact(2).all(|pair| pair[0] == tag::SMALL_INTEGER);
    match u16::try_from(count) {
        Ok(length) if all_bytes => {
            for index in 0..count {
                elements[index] = elements[2 * index + 1];
            }
            let length = length.to_be_bytes();
            out.copy_within(body..body + count, start + 3);
            out[start..start + 3].copy_from_slice(&[tag::STRING, length[0], length[1]]);
            out.truncate(start + 3 + count);
        }
        _ => {
            patch_count(out, start + 1, count);
            write::nil(out);
        }
    }
}
