//! The summary of a revision: its body and its attachment list as they lie in the file, `{BodyBin, AttsBin}`.
//!
//! Both binaries are external terms that are compressed each for itself; the tuple around them is not.

use crate::codec::compress::{Compression, compress, decompress, decompress_into};
use crate::codec::term::{Reader, VERSION, strip_version, tag, write};
use crate::doc::attachment::{Attachment, read_attachments, write_attachments};
use crate::doc::error::StoredDocError;
use std::borrow::Cow;

/// Builds summaries; keeps its room from one to the next.
#[derive(Debug, Default)]
pub struct SummaryWriter {
    compression: Compression,
    scratch: Vec<u8>,
}

impl SummaryWriter {
    /// A writer that compresses with `compression`.
    #[must_use]
    pub fn new(compression: Compression) -> Self {
        Self {
            compression,
            scratch: Vec::new(),
        }
    }

    /// Appends the payload of a summary chunk to `out`: `body` is a raw object term.
    pub fn write(&mut self, body: &[u8], atts: &[Attachment], out: &mut Vec<u8>) {
        out.extend_from_slice(&[VERSION, tag::SMALL_TUPLE, 2]);
        self.scratch.clear();
        self.scratch.push(VERSION);
        self.scratch.extend_from_slice(body);
        self.write_part(out);
        self.scratch.clear();
        self.scratch.push(VERSION);
        write_attachments(atts, &mut self.scratch);
        self.write_part(out);
    }

    /// Appends the compressed scratch as a binary, whose length is known only afterwards.
    fn write_part(&self, out: &mut Vec<u8>) {
        write::binary_head(out, 0);
        let start = out.len();
        compress(&self.scratch, self.compression, out);
        let length = u32::try_from(out.len() - start).unwrap_or(u32::MAX);
        out[start - 4..start].copy_from_slice(&length.to_be_bytes());
    }
}

/// One half of a summary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part<'a> {
    /// A compressed external term.
    Stored(&'a [u8]),
    /// A raw term, as the oldest files have it.
    Raw(&'a [u8]),
}

/// A summary whose parts are still compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SummaryView<'a> {
    body: Part<'a>,
    atts: Part<'a>,
}

impl<'a> SummaryView<'a> {
    /// Reads the payload of a summary chunk. The parts are looked at only when they are asked for.
    ///
    /// # Errors
    /// Another shape.
    pub fn parse(payload: &'a [u8]) -> Result<Self, StoredDocError> {
        let mut reader = Reader::versioned(payload)?;
        reader.expect_tuple(2)?;
        let mut part = || match reader.peek_tag()? {
            tag::BINARY => reader.read_binary().map(Part::Stored),
            _ => reader.skip().map(Part::Raw),
        };
        let (body, atts) = (part()?, part()?);
        reader.end()?;
        Ok(Self { body, atts })
    }

    /// The body as a raw object term.
    ///
    /// # Errors
    /// Damaged.
    pub fn body(&self) -> Result<Cow<'a, [u8]>, StoredDocError> {
        let Part::Stored(stored) = self.body else {
            return Ok(match self.body {
                Part::Raw(raw) | Part::Stored(raw) => Cow::Borrowed(raw),
            });
        };
        match decompress(stored)? {
            Cow::Borrowed(term) => Ok(Cow::Borrowed(strip_version(term)?)),
            Cow::Owned(mut term) => {
                strip_version(&term)?;
                term.drain(..1);
                Ok(Cow::Owned(term))
            }
        }
    }

    /// The body as a raw object term, expanded into `buffer` if it is compressed.
    ///
    /// # Errors
    /// Damaged.
    pub fn body_into<'b>(&self, buffer: &'b mut Vec<u8>) -> Result<&'b [u8], StoredDocError>
    where
        'a: 'b,
    {
        match self.body {
            Part::Raw(raw) => Ok(raw),
            Part::Stored(stored) => Ok(strip_version(decompress_into(stored, buffer)?)?),
        }
    }

    /// Whether there are attachments, without expanding anything in the usual case of none.
    ///
    /// # Errors
    /// Damaged.
    pub fn has_attachments(&self) -> Result<bool, StoredDocError> {
        match self.atts {
            Part::Raw([tag::NIL]) | Part::Stored([VERSION, tag::NIL] | [1, 2, 4, VERSION, tag::NIL]) => {
                Ok(false)
            }
            Part::Raw(_) => Ok(true),
            Part::Stored(stored) => Ok(*decompress(stored)? != [VERSION, tag::NIL]),
        }
    }

    /// The attachments in document order.
    ///
    /// # Errors
    /// Damaged.
    pub fn attachments(&self) -> Result<Vec<Attachment>, StoredDocError> {
        if !self.has_attachments()? {
            return Ok(Vec::new());
        }
        match self.atts {
            Part::Raw(raw) => read_attachments(raw),
            Part::Stored(stored) => read_attachments(strip_version(&decompress(stored)?)?),
        }
    }
}
