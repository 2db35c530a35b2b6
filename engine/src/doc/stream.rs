//! Writing an attachment: bytes are gathered, compressed if their type calls for it, and handed out in chunks.

use crate::doc::attachment::{Attachment, Encoding};
use crate::doc::error::DocError;
use crate::doc::revtree::Stream;
use crate::limits::{ATTACHMENT_BUFFER_BYTES_DEFAULT, ATTACHMENT_COMPRESSION_LEVEL_DEFAULT};
use flate2::{Compress, Compression, FlushCompress};
use md5::{Digest, Md5};

/// The default of `[attachments] compressible_types`.
pub const COMPRESSIBLE_TYPES_DEFAULT: &str =
    "text/*, application/javascript, application/json, application/xml";

/// What the compressor writes at a time, in bytes.
const COMPRESS_STEP_BYTES: usize = 8192;

/// How attachments are written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamOptions {
    /// Bytes that are gathered before a chunk is written.
    pub buffer_bytes: usize,
    /// From 1 to 9; 0 switches compression off.
    pub compression_level: u32,
    /// Patterns of content types to compress, separated by commas.
    pub compressible_types: String,
}

impl Default for StreamOptions {
    fn default() -> Self {
        Self {
            buffer_bytes: ATTACHMENT_BUFFER_BYTES_DEFAULT,
            compression_level: ATTACHMENT_COMPRESSION_LEVEL_DEFAULT,
            compressible_types: COMPRESSIBLE_TYPES_DEFAULT.to_owned(),
        }
    }
}

impl StreamOptions {
    /// Whether an attachment of this type is to be compressed.
    #[must_use]
    pub fn compresses(&self, content_type: &str) -> bool {
        (1..=9).contains(&self.compression_level)
            && self
                .compressible_types
                .split(',')
                .map(str::trim)
                .any(|pattern| !pattern.is_empty() && matches_type(pattern, content_type))
    }
}

/// Whether `content_type`, perhaps with parameters behind a semicolon, matches `pattern`, in which `*` stands for
/// anything. Letter case does not matter.
fn matches_type(pattern: &str, content_type: &str) -> bool {
    let (pattern, whole) = (
        pattern.to_ascii_lowercase(),
        content_type.trim().to_ascii_lowercase(),
    );
    let bare = whole.split(';').next().unwrap_or_default().trim_end();
    [bare, whole.as_str()]
        .into_iter()
        .any(|text| match pattern.split_once('*') {
            None => pattern == text,
            Some((before, behind)) => {
                text.len() >= before.len() + behind.len()
                    && text.starts_with(before)
                    && text.ends_with(behind)
            }
        })
}

/// Takes a chunk, appends it to the file, and returns where it begins.
pub trait ChunkSink {
    /// What can go wrong.
    type Error;

    /// Appends `chunk`, which is not empty; returns its position.
    ///
    /// # Errors
    /// The sink's own.
    fn append(&mut self, chunk: &[u8]) -> Result<u64, Self::Error>;
}

impl<E, F: FnMut(&[u8]) -> Result<u64, E>> ChunkSink for F {
    type Error = E;

    fn append(&mut self, chunk: &[u8]) -> Result<u64, E> {
        self(chunk)
    }
}

/// A gzip stream in the making, with the header that zlib writes.
struct Gzip {
    deflate: Compress,
    crc: crc32fast::Hasher,
    length: u32,
    level: u32,
    begun: bool,
}

impl std::fmt::Debug for Gzip {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gzip")
            .field("length", &self.length)
            .finish_non_exhaustive()
    }
}

impl Gzip {
    fn new(level: u32) -> Self {
        let deflate = Compress::new(Compression::new(level), false);
        Self {
            deflate,
            crc: crc32fast::Hasher::new(),
            length: 0,
            level,
            begun: false,
        }
    }

    fn encode(&mut self, data: &[u8], flush: FlushCompress, out: &mut Vec<u8>) {
        if !std::mem::replace(&mut self.begun, true) {
            let extra = match self.level {
                9 => 2,
                1 => 4,
                _ => 0,
            };
            out.extend_from_slice(&[0x1f, 0x8b, 8, 0, 0, 0, 0, 0, extra, 3]);
        }
        self.crc.update(data);
        // The format keeps the length modulo 2^32.
        self.length = self.length.wrapping_add(data.len() as u32);
        let mut rest = data;
        loop {
            out.reserve(COMPRESS_STEP_BYTES);
            let (taken_before, room_before) = (self.deflate.total_in(), out.len());
            let status = self.deflate.compress_vec(rest, out, flush);
            let taken = usize::try_from(self.deflate.total_in() - taken_before).unwrap_or(rest.len());
            rest = rest.get(taken..).unwrap_or_default();
            let idle = taken == 0 && out.len() == room_before;
            match status {
                Ok(flate2::Status::StreamEnd) | Err(_) => return,
                // Data taken whole, and room left: the compressor has nothing more to give for now.
                Ok(_) if rest.is_empty() && out.len() < out.capacity() && flush == FlushCompress::None => {
                    return;
                }
                Ok(_) if idle => return,
                Ok(_) => {}
            }
        }
    }

    fn finish(mut self, out: &mut Vec<u8>) {
        self.encode(&[], FlushCompress::Finish, out);
        out.extend_from_slice(&self.crc.finalize().to_le_bytes());
        out.extend_from_slice(&self.length.to_le_bytes());
    }
}

/// Gathers the bytes of one attachment and hands them out in chunks.
#[derive(Debug)]
pub struct StreamWriter {
    buffer: Vec<u8>,
    buffer_bytes_max: usize,
    gzip: Option<Gzip>,
    stream: Stream,
    stored_len: u64,
    identity_len: u64,
    stored_md5: Md5,
    identity_md5: Md5,
}

/// What is known of an attachment when all its bytes are written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamEnd {
    /// Where its bytes lie.
    pub stream: Stream,
    /// Bytes stored.
    pub stored_len: u64,
    /// Bytes taken.
    pub identity_len: u64,
    /// MD5 of what is stored.
    pub stored_md5: [u8; 16],
    /// MD5 of what was taken.
    pub identity_md5: [u8; 16],
}

impl StreamWriter {
    /// A writer for an attachment of `content_type`. What comes already encoded is not compressed again.
    #[must_use]
    pub fn new(options: &StreamOptions, content_type: &str, encoding: Encoding) -> Self {
        let compresses = encoding == Encoding::Identity && options.compresses(content_type);
        Self {
            buffer: Vec::new(),
            buffer_bytes_max: options.buffer_bytes,
            gzip: compresses.then(|| Gzip::new(options.compression_level)),
            stream: Stream::new(),
            stored_len: 0,
            identity_len: 0,
            stored_md5: Md5::new(),
            identity_md5: Md5::new(),
        }
    }

    /// Bytes taken so far.
    #[must_use]
    pub const fn len(&self) -> u64 {
        self.identity_len
    }

    /// Whether no byte has been taken.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.identity_len == 0
    }

    /// Takes bytes; chunks that are full go to `sink`.
    ///
    /// # Errors
    /// The sink's. The writer must then be given up.
    pub fn write<S: ChunkSink>(&mut self, data: &[u8], sink: &mut S) -> Result<(), S::Error> {
        self.identity_len += data.len() as u64;
        if self.buffer.len() + data.len() <= self.buffer_bytes_max {
            self.buffer.extend_from_slice(data);
            return Ok(());
        }
        if self.buffer.is_empty() {
            return self.flush(data, sink);
        }
        let mut gathered = std::mem::take(&mut self.buffer);
        gathered.extend_from_slice(data);
        let result = self.flush(&gathered, sink);
        gathered.clear();
        self.buffer = gathered;
        result
    }

    fn flush<S: ChunkSink>(&mut self, data: &[u8], sink: &mut S) -> Result<(), S::Error> {
        self.identity_md5.update(data);
        match &mut self.gzip {
            None => self.append(data, sink),
            Some(gzip) => {
                let mut encoded = Vec::new();
                gzip.encode(data, FlushCompress::None, &mut encoded);
                self.append(&encoded, sink)
            }
        }
    }

    fn append<S: ChunkSink>(&mut self, chunk: &[u8], sink: &mut S) -> Result<(), S::Error> {
        if chunk.is_empty() {
            return Ok(());
        }
        self.stored_md5.update(chunk);
        self.stored_len += chunk.len() as u64;
        self.stream.push((sink.append(chunk)?, chunk.len() as u64));
        Ok(())
    }

    /// Hands out what is left.
    ///
    /// # Errors
    /// The sink's.
    pub fn finish<S: ChunkSink>(mut self, sink: &mut S) -> Result<StreamEnd, S::Error> {
        let rest = std::mem::take(&mut self.buffer);
        if !rest.is_empty() {
            self.identity_md5.update(&rest);
        }
        match self.gzip.take() {
            None => self.append(&rest, sink)?,
            Some(mut gzip) => {
                let mut encoded = Vec::new();
                gzip.encode(&rest, FlushCompress::None, &mut encoded);
                gzip.finish(&mut encoded);
                self.append(&encoded, sink)?;
            }
        }
        Ok(StreamEnd {
            stream: self.stream,
            stored_len: self.stored_len,
            identity_len: self.identity_len,
            stored_md5: self.stored_md5.finalize().into(),
            identity_md5: self.identity_md5.finalize().into(),
        })
    }
}

/// What a client said of an attachment's bytes before it sent them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Announced {
    /// How the bytes come.
    pub encoding: Encoding,
    /// MD5 of the bytes as they come.
    pub digest: Option<[u8; 16]>,
    /// Their number.
    pub att_len: Option<u64>,
    /// Their number without encoding.
    pub disk_len: Option<u64>,
}

impl StreamEnd {
    /// The stored attachment. Lengths of what comes encoded are the client's if it gave both, else the stored one.
    ///
    /// # Errors
    /// [`DocError::Md5Mismatch`], or another number of bytes than announced.
    pub fn into_attachment(
        self,
        name: &str,
        content_type: &str,
        revpos: u64,
        announced: &Announced,
    ) -> Result<Attachment, DocError> {
        if announced.digest.is_some_and(|digest| digest != self.identity_md5) {
            return Err(DocError::Md5Mismatch {
                name: name.to_owned(),
            });
        }
        match announced.att_len {
            Some(expected) if expected > self.identity_len => return Err(DocError::AttachmentShorter),
            Some(expected) if expected < self.identity_len => return Err(DocError::AttachmentLonger),
            _ => {}
        }
        let (att_len, disk_len, encoding) = match (announced.encoding, announced.att_len, announced.disk_len)
        {
            (Encoding::Gzip, Some(att_len), Some(disk_len)) => (att_len, disk_len, Encoding::Gzip),
            (Encoding::Gzip, _, _) => (self.stored_len, self.stored_len, Encoding::Gzip),
            (Encoding::Identity, _, _) => {
                let same = self.stored_md5 == self.identity_md5;
                (
                    self.stored_len,
                    self.identity_len,
                    if same { Encoding::Identity } else { Encoding::Gzip },
                )
            }
        };
        Ok(Attachment {
            name: name.to_owned(),
            content_type: content_type.to_owned(),
            stream: self.stream,
            att_len,
            disk_len,
            revpos,
            md5: self.stored_md5.to_vec(),
            encoding,
        })
    }
}
