//! Attachments: what a file and a JSON document say of them.

use crate::codec::json::write_json_string;
use crate::codec::term::{ListHead, Reader, tag, write};
use crate::doc::error::{DocError, StoredDocError};
use crate::doc::revid::AttDigest;
use crate::doc::revtree::{Stream, read_stream, write_stream};
use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use std::borrow::Cow;
use std::io::Read;

/// Base64 as OTP reads it: padding is needed, bits behind the last byte do not matter.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_allow_trailing_bits(true)
        .with_decode_padding_mode(DecodePaddingMode::RequireCanonical),
);

/// Content type of an attachment that names none.
pub const CONTENT_TYPE_DEFAULT: &str = "application/octet-stream";

/// How an attachment's bytes are stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Encoding {
    /// As they are.
    #[default]
    Identity,
    /// As a gzip stream.
    Gzip,
}

impl Encoding {
    /// Its name on disk and in JSON.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Identity => "identity",
            Self::Gzip => "gzip",
        }
    }
}

/// A stored attachment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attachment {
    /// Name.
    pub name: String,
    /// Content type.
    pub content_type: String,
    /// Where its bytes lie.
    pub stream: Stream,
    /// Stored length, in bytes.
    pub att_len: u64,
    /// Length without encoding, in bytes.
    pub disk_len: u64,
    /// Position of the revision that stored it.
    pub revpos: u64,
    /// MD5 of the stored bytes; empty in the oldest files.
    pub md5: Vec<u8>,
    /// How the bytes are stored.
    pub encoding: Encoding,
}

/// What the JSON of an attachment holds instead of or beside its data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AttachmentData<'a> {
    /// Nothing: `"stub":true`.
    Stub,
    /// The data come behind the document: `"follows":true`.
    Follows,
    /// The data themselves, not encoded: `"data":"..."`.
    Inline(Cow<'a, [u8]>),
}

impl Attachment {
    /// The stream and its stored length, as a leaf of a revision tree keeps them.
    #[must_use]
    pub fn size_info(&self) -> (Stream, u64) {
        (self.stream.clone(), self.att_len)
    }

    /// What takes part in a revision id.
    #[must_use]
    pub fn digest(&self) -> AttDigest<'_> {
        AttDigest {
            name: &self.name,
            content_type: &self.content_type,
            md5: &self.md5,
        }
    }

    /// Appends `"Name":{...}` as it stands in `_attachments`.
    pub fn write_json(&self, out: &mut Vec<u8>, data: &AttachmentData<'_>, encoding_info: bool) {
        write_json_string(out, &self.name);
        out.extend_from_slice(b":{\"content_type\":");
        write_json_string(out, &self.content_type);
        out.extend_from_slice(b",\"revpos\":");
        write_number(out, self.revpos);
        if !self.md5.is_empty() {
            out.extend_from_slice(b",\"digest\":\"");
            self.write_digest(out);
            out.push(b'"');
        }
        match data {
            AttachmentData::Inline(bytes) => {
                out.extend_from_slice(b",\"data\":\"");
                out.extend_from_slice(BASE64.encode(bytes).as_bytes());
                out.push(b'"');
            }
            AttachmentData::Stub | AttachmentData::Follows => {
                out.extend_from_slice(b",\"length\":");
                write_number(out, self.disk_len);
                let stub = matches!(data, AttachmentData::Stub);
                out.extend_from_slice(if stub {
                    b",\"stub\":true"
                } else {
                    b",\"follows\":true"
                });
            }
        }
        if encoding_info && self.encoding == Encoding::Gzip {
            out.extend_from_slice(b",\"encoding\":\"gzip\",\"encoded_length\":");
            write_number(out, self.att_len);
        }
        out.push(b'}');
    }

    /// Appends `md5-` and the digest in base64.
    pub fn write_digest(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"md5-");
        out.extend_from_slice(BASE64.encode(&self.md5).as_bytes());
    }

    /// The attachment's own bytes from its stored ones, after a check of their digest.
    ///
    /// # Errors
    /// [`StoredDocError::DamagedAttachment`].
    pub fn decode<'a>(&self, stored: &'a [u8]) -> Result<Cow<'a, [u8]>, StoredDocError> {
        let damaged = || StoredDocError::DamagedAttachment {
            name: self.name.clone(),
        };
        if !self.md5.is_empty() && self.md5 != crate::codec::checksum::md5(stored) {
            return Err(damaged());
        }
        match self.encoding {
            Encoding::Identity => Ok(Cow::Borrowed(stored)),
            Encoding::Gzip => {
                // Room is made as bytes come, and never for more than the length that was noted when they were stored
                // (which is the stored length for what a client had compressed).
                let mut bytes = Vec::new();
                let limit = if self.disk_len == self.att_len {
                    u64::MAX
                } else {
                    self.disk_len.saturating_add(1)
                };
                flate2::read::MultiGzDecoder::new(stored)
                    .take(limit)
                    .read_to_end(&mut bytes)
                    .map_err(|_| damaged())?;
                Ok(Cow::Owned(bytes))
            }
        }
    }
}

fn write_number(out: &mut Vec<u8>, number: u64) {
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

/// Decodes base64 as OTP does: white space is skipped.
pub(crate) fn decode_base64(text: &str) -> Option<Vec<u8>> {
    let white = |byte: u8| matches!(byte, b' ' | b'\t' | b'\r' | b'\n');
    if text.bytes().any(white) {
        let packed: Vec<u8> = text.bytes().filter(|byte| !white(*byte)).collect();
        return BASE64.decode(packed).ok();
    }
    BASE64.decode(text).ok()
}

/// Parses `md5-` and 16 bytes in base64; anything else is no digest.
#[must_use]
pub fn parse_digest(text: &str) -> Option<[u8; 16]> {
    decode_base64(text.strip_prefix("md5-")?)?.try_into().ok()
}

/// That an attachment may have this name.
///
/// # Errors
/// [`DocError::AttachmentNameUnderscore`].
pub fn check_attachment_name(name: &str) -> Result<(), DocError> {
    if name.starts_with('_') {
        Err(DocError::AttachmentNameUnderscore {
            name: name.to_owned(),
        })
    } else {
        Ok(())
    }
}

/// Appends the raw list of attachments of a summary.
pub(crate) fn write_attachments(atts: &[Attachment], out: &mut Vec<u8>) {
    if atts.is_empty() {
        return write::nil(out);
    }
    write::list(out, atts.len());
    for att in atts {
        write::tuple(out, 8);
        write::binary(out, att.name.as_bytes());
        write::binary(out, att.content_type.as_bytes());
        write_stream(out, &att.stream);
        write::uint(out, att.att_len);
        write::uint(out, att.disk_len);
        write::uint(out, att.revpos);
        write::binary(out, &att.md5);
        write::atom(out, att.encoding.as_str());
    }
    write::nil(out);
}

/// Reads the raw list of attachments of a summary, in the shapes of all releases.
pub(crate) fn read_attachments(raw: &[u8]) -> Result<Vec<Attachment>, StoredDocError> {
    let mut reader = Reader::new(raw);
    let count = match reader.read_list()? {
        ListHead::Nil => return Ok(Vec::new()),
        ListHead::Elements(count) => count,
        ListHead::Bytes(_) => return Err(StoredDocError::Shape("list of bytes as attachments")),
    };
    let mut atts = Vec::new();
    for _ in 0..count {
        atts.push(read_attachment(&mut reader)?);
    }
    reader.end_list()?;
    reader.end()?;
    Ok(atts)
}

fn read_attachment(reader: &mut Reader<'_>) -> Result<Attachment, StoredDocError> {
    match reader.read_tuple()? {
        8 => read_attachment_8(reader),
        6 => {
            let (name, content_type) = (read_text(reader)?, read_text(reader)?);
            let (stream, att_len) = (read_stream(reader)?, reader.read_u64()?);
            let (revpos, md5) = (reader.read_u64()?, reader.read_binary()?.to_vec());
            let encoding = Encoding::Identity;
            Ok(Attachment {
                name,
                content_type,
                stream,
                att_len,
                disk_len: att_len,
                revpos,
                md5,
                encoding,
            })
        }
        2 if matches!(reader.peek_tag()?, tag::SMALL_TUPLE | tag::LARGE_TUPLE) => {
            // Properties of a later release, such as part headers, stand behind the usual tuple.
            reader.expect_tuple(8)?;
            let attachment = read_attachment_8(reader)?;
            reader.skip()?;
            Ok(attachment)
        }
        2 => {
            let name = read_text(reader)?;
            reader.expect_tuple(3)?;
            let content_type = read_text(reader)?;
            let (stream, att_len) = (read_stream(reader)?, reader.read_u64()?);
            Ok(Attachment {
                name,
                content_type,
                stream,
                att_len,
                disk_len: att_len,
                ..Attachment::default()
            })
        }
        _ => Err(StoredDocError::Shape("tuple as an attachment")),
    }
}

fn read_attachment_8(reader: &mut Reader<'_>) -> Result<Attachment, StoredDocError> {
    let (name, content_type) = (read_text(reader)?, read_text(reader)?);
    let stream = read_stream(reader)?;
    let (att_len, disk_len, revpos) = (reader.read_u64()?, reader.read_u64()?, reader.read_u64()?);
    let md5 = reader.read_binary()?.to_vec();
    let atom = reader.read_atom()?;
    let encoding = match atom.bytes {
        b"gzip" | b"true" => Encoding::Gzip,
        b"identity" | b"false" => Encoding::Identity,
        _ => return Err(StoredDocError::Shape("encoding of an attachment")),
    };
    Ok(Attachment {
        name,
        content_type,
        stream,
        att_len,
        disk_len,
        revpos,
        md5,
        encoding,
    })
}

/// A name or type: a binary, or a list of characters in the oldest files.
fn read_text(reader: &mut Reader<'_>) -> Result<String, StoredDocError> {
    let bytes = match reader.peek_tag()? {
        tag::STRING | tag::NIL => match reader.read_list()? {
            ListHead::Bytes(bytes) => bytes,
            _ => &[],
        },
        _ => reader.read_binary()?,
    };
    Ok(String::from_utf8_lossy(bytes).into_owned())
}
