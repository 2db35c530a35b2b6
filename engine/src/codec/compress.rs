//! The compression container: the first byte of a stored term says how it is compressed.
//!
//! | first bytes | content |
//! |---|---|
//! | `01` | a raw snappy block |
//! | `83 50` | a compressed external term (zlib) |
//! | `83` | a plain external term |
//! | `28 B5 2F FD` | a zstd frame that carries its content size |
//!
//! What comes out is always an external term with its version byte. Whatever is configured for writing, all of them
//! are read. No claimed size is believed: room is made only for what the compressed bytes can hold, or as they are read.

use super::term::{VERSION, tag};
use std::borrow::Cow;
use std::cell::RefCell;
use std::fmt;
use std::io::{Read, Write};
use std::str::FromStr;
use thiserror::Error;
use zstd::zstd_safe;

/// Largest term that is expanded, in bytes.
pub const UNCOMPRESSED_BYTES_MAX: u64 = 1 << 30;

/// Level of `zstd` without a number.
pub const ZSTD_LEVEL_DEFAULT: i32 = 3;

const SNAPPY_PREFIX: u8 = 1;
const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
/// Version byte, tag and size in front of a compressed term's zlib stream.
const DEFLATE_HEAD_BYTES: usize = 6;
/// A snappy copy of 64 bytes takes three bytes, and nothing expands more; rounded up.
const SNAPPY_EXPANSION_MAX: usize = 22;
/// Zstd frames up to this size get their room at once, larger ones as they are read.
const ZSTD_AT_ONCE_BYTES: u64 = 1 << 20;

/// How terms are compressed when they are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Compression {
    /// Not at all.
    None,
    /// Snappy, always, even where the result is longer.
    #[default]
    Snappy,
    /// Zlib with a level from 1 to 9; a term that does not get shorter stays plain.
    Deflate(u8),
    /// Zstd with a level from -131072 to 22.
    Zstd(i32),
}

/// Why the name of a method is not one.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("file_compression must be none, snappy, deflate_1 to deflate_9, zstd or zstd_N, not {0:?}")]
pub struct UnknownCompression(pub String);

impl FromStr for Compression {
    type Err = UnknownCompression;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let unknown = || UnknownCompression(name.to_owned());
        match name {
            "none" => return Ok(Self::None),
            "snappy" => return Ok(Self::Snappy),
            "zstd" => return Ok(Self::Zstd(ZSTD_LEVEL_DEFAULT)),
            _ => {}
        }
        if let Some(level) = name.strip_prefix("deflate_") {
            let level = level.parse().ok().filter(|level| (1..=9).contains(level));
            return level.map(Self::Deflate).ok_or_else(unknown);
        }
        let level = name.strip_prefix("zstd_").and_then(|level| level.parse().ok());
        let level = level.filter(|level| zstd::compression_level_range().contains(level));
        level.map(Self::Zstd).ok_or_else(unknown)
    }
}

impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::Snappy => f.write_str("snappy"),
            Self::Deflate(level) => write!(f, "deflate_{level}"),
            Self::Zstd(ZSTD_LEVEL_DEFAULT) => f.write_str("zstd"),
            Self::Zstd(level) => write!(f, "zstd_{level}"),
        }
    }
}

/// Why stored bytes are not a term.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CompressError {
    /// The first bytes belong to no known method.
    #[error("unknown compression")]
    UnknownPrefix,
    /// The compressed bytes are damaged.
    #[error("damaged {0} data")]
    Damaged(&'static str),
    /// The claimed size is beyond [`UNCOMPRESSED_BYTES_MAX`], or beyond what the compressed bytes can hold.
    #[error("{method} data claims {claimed} bytes")]
    TooLarge {
        /// The method.
        method: &'static str,
        /// The claimed size, in bytes.
        claimed: u64,
    },
    /// What came out is no external term: it lacks the version byte.
    #[error("{0} data holds no external term")]
    NotATerm(&'static str),
}

/// What a stored term's first bytes say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Container {
    Plain,
    Snappy,
    Deflate,
    Zstd,
}

fn container(stored: &[u8]) -> Result<Container, CompressError> {
    match stored {
        [SNAPPY_PREFIX, ..] => Ok(Container::Snappy),
        [VERSION, tag::COMPRESSED, ..] => Ok(Container::Deflate),
        [VERSION, ..] => Ok(Container::Plain),
        _ if stored.starts_with(&ZSTD_MAGIC) => Ok(Container::Zstd),
        _ => Err(CompressError::UnknownPrefix),
    }
}

thread_local! {
    /// Compression contexts are large, so that each thread keeps one of each kind.
    static SNAPPY: RefCell<snap::raw::Encoder> = RefCell::new(snap::raw::Encoder::new());
    static ZSTD_WRITER: RefCell<zstd_safe::CCtx<'static>> = RefCell::new(zstd_safe::CCtx::create());
    static ZSTD_READER: RefCell<zstd_safe::DCtx<'static>> = RefCell::new(zstd_safe::DCtx::create());
}

/// Appends `term`, an external term with its version byte, to `out` as `method` stores it.
///
/// A term beyond what the method can hold (4 GiB for snappy) is stored plain, which every reader understands.
pub fn compress(term: &[u8], method: Compression, out: &mut Vec<u8>) {
    let before = out.len();
    let done = match method {
        Compression::None => None,
        Compression::Snappy => compress_snappy(term, out),
        Compression::Deflate(level) => compress_deflate(term, level, out),
        Compression::Zstd(level) => compress_zstd(term, level, out),
    };
    if done.is_none() {
        out.truncate(before);
        out.extend_from_slice(term);
    }
}

fn compress_snappy(term: &[u8], out: &mut Vec<u8>) -> Option<()> {
    let room = snap::raw::max_compress_len(term.len());
    if room == 0 {
        return None;
    }
    out.push(SNAPPY_PREFIX);
    let from = out.len();
    out.resize(from + room, 0);
    let written = SNAPPY
        .with_borrow_mut(|encoder| encoder.compress(term, &mut out[from..]))
        .ok()?;
    out.truncate(from + written);
    Some(())
}

/// As OTP does it: the zlib stream may take the term's length less five bytes, else the term stays plain.
fn compress_deflate(term: &[u8], level: u8, out: &mut Vec<u8>) -> Option<()> {
    let (_, raw) = term.split_first()?;
    let size = u32::try_from(raw.len()).ok()?;
    out.extend_from_slice(&[VERSION, tag::COMPRESSED]);
    out.extend_from_slice(&size.to_be_bytes());
    let from = out.len();
    let level = flate2::Compression::new(u32::from(level.min(9)));
    let mut encoder = flate2::write::ZlibEncoder::new(&mut *out, level);
    encoder.write_all(raw).ok()?;
    encoder.finish().ok()?;
    (out.len() - from + 5 <= term.len()).then_some(())
}

fn compress_zstd(term: &[u8], level: i32, out: &mut Vec<u8>) -> Option<()> {
    let from = out.len();
    out.resize(from + zstd_safe::compress_bound(term.len()), 0);
    let written = ZSTD_WRITER
        .with_borrow_mut(|context| context.compress(&mut out[from..], term, level))
        .ok()?;
    out.truncate(from + written);
    Some(())
}

/// The external term, with its version byte, in `stored`. A plain one is borrowed.
///
/// # Errors
/// Unknown, damaged, or too large.
pub fn decompress(stored: &[u8]) -> Result<Cow<'_, [u8]>, CompressError> {
    let mut buffer = Vec::new();
    match container(stored)? {
        Container::Plain => Ok(Cow::Borrowed(stored)),
        other => {
            expand(stored, other, &mut buffer)?;
            Ok(Cow::Owned(buffer))
        }
    }
}

/// The external term in `stored`: borrowed if it is plain, else expanded into `buffer`, whose contents are replaced and
/// whose room is used again.
///
/// # Errors
/// Unknown, damaged, or too large.
pub fn decompress_into<'b>(stored: &'b [u8], buffer: &'b mut Vec<u8>) -> Result<&'b [u8], CompressError> {
    match container(stored)? {
        Container::Plain => Ok(stored),
        other => {
            expand(stored, other, buffer)?;
            Ok(buffer)
        }
    }
}

fn expand(stored: &[u8], container: Container, buffer: &mut Vec<u8>) -> Result<(), CompressError> {
    buffer.clear();
    let method = match container {
        Container::Plain => {
            buffer.extend_from_slice(stored);
            "plain"
        }
        Container::Snappy => {
            expand_snappy(stored, buffer)?;
            "snappy"
        }
        Container::Deflate => {
            expand_deflate(stored, buffer)?;
            "deflate"
        }
        Container::Zstd => {
            expand_zstd(stored, buffer)?;
            "zstd"
        }
    };
    match buffer.first() {
        Some(&VERSION) => Ok(()),
        _ => Err(CompressError::NotATerm(method)),
    }
}

fn expand_snappy(stored: &[u8], buffer: &mut Vec<u8>) -> Result<(), CompressError> {
    let damaged = CompressError::Damaged("snappy");
    let block = stored.get(1..).unwrap_or_default();
    let claimed = snap::raw::decompress_len(block).map_err(|_| damaged.clone())?;
    let possible = block.len().saturating_mul(SNAPPY_EXPANSION_MAX);
    if claimed > possible || claimed as u64 > UNCOMPRESSED_BYTES_MAX {
        return Err(CompressError::TooLarge {
            method: "snappy",
            claimed: claimed as u64,
        });
    }
    buffer.resize(claimed, 0);
    let written = snap::raw::Decoder::new()
        .decompress(block, buffer)
        .map_err(|_| damaged.clone())?;
    if written == claimed { Ok(()) } else { Err(damaged) }
}

fn expand_deflate(stored: &[u8], buffer: &mut Vec<u8>) -> Result<(), CompressError> {
    let damaged = CompressError::Damaged("deflate");
    let claimed = deflate_size(stored)?;
    if claimed > UNCOMPRESSED_BYTES_MAX {
        return Err(CompressError::TooLarge {
            method: "deflate",
            claimed,
        });
    }
    buffer.push(VERSION);
    let stream = stored.get(DEFLATE_HEAD_BYTES..).unwrap_or_default();
    // The buffer grows with what the stream really holds, and one byte more than claimed is a lie found out.
    let read = flate2::read::ZlibDecoder::new(stream)
        .take(claimed + 1)
        .read_to_end(buffer);
    match read {
        Ok(length) if length as u64 == claimed => Ok(()),
        _ => Err(damaged),
    }
}

fn deflate_size(stored: &[u8]) -> Result<u64, CompressError> {
    let size = stored.get(2..).and_then(|rest| rest.first_chunk::<4>());
    let size = size.ok_or(CompressError::Damaged("deflate"))?;
    Ok(u64::from(u32::from_be_bytes(*size)))
}

fn expand_zstd(stored: &[u8], buffer: &mut Vec<u8>) -> Result<(), CompressError> {
    let damaged = CompressError::Damaged("zstd");
    let claimed = zstd_size(stored)?;
    if claimed > UNCOMPRESSED_BYTES_MAX {
        return Err(CompressError::TooLarge {
            method: "zstd",
            claimed,
        });
    }
    if claimed <= ZSTD_AT_ONCE_BYTES {
        buffer.resize(usize::try_from(claimed).map_err(|_| damaged.clone())?, 0);
        let read = ZSTD_READER.with_borrow_mut(|context| context.decompress(buffer.as_mut_slice(), stored));
        return match read {
            Ok(length) if length as u64 == claimed => Ok(()),
            _ => Err(damaged),
        };
    }
    let reader = zstd::stream::read::Decoder::with_buffer(stored).map_err(|_| damaged.clone())?;
    match reader.take(claimed + 1).read_to_end(buffer) {
        Ok(length) if length as u64 == claimed => Ok(()),
        _ => Err(damaged),
    }
}

fn zstd_size(stored: &[u8]) -> Result<u64, CompressError> {
    match zstd_safe::get_frame_content_size(stored) {
        Ok(Some(size)) => Ok(size),
        _ => Err(CompressError::Damaged("zstd")),
    }
}

/// Whether `stored` is already as `method` writes it; levels do not count.
#[must_use]
pub fn is_compressed(stored: &[u8], method: Compression) -> bool {
    matches!(
        (container(stored), method),
        (Ok(Container::Plain), Compression::None)
            | (Ok(Container::Snappy), Compression::Snappy)
            | (Ok(Container::Deflate), Compression::Deflate(_))
            | (Ok(Container::Zstd), Compression::Zstd(_))
    )
}

/// Appends `stored` as `method` stores it: untouched if it already is so, else expanded and compressed again.
///
/// # Errors
/// `stored` is unknown, damaged, or too large.
pub fn recompress(stored: &[u8], method: Compression, out: &mut Vec<u8>) -> Result<(), CompressError> {
    if is_compressed(stored, method) {
        out.extend_from_slice(stored);
        return Ok(());
    }
    compress(&decompress(stored)?, method, out);
    Ok(())
}

/// The size of the external term in `stored` with its version byte, in bytes, as the container claims it.
///
/// # Errors
/// Unknown, or the size is missing.
pub fn uncompressed_size(stored: &[u8]) -> Result<u64, CompressError> {
    match container(stored)? {
        Container::Plain => Ok(stored.len() as u64),
        Container::Snappy => snap::raw::decompress_len(stored.get(1..).unwrap_or_default())
            .map(|size| size as u64)
            .map_err(|_| CompressError::Damaged("snappy")),
        Container::Deflate => Ok(deflate_size(stored)? + 1),
        Container::Zstd => zstd_size(stored),
    }
}
