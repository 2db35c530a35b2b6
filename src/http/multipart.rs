//! `multipart/related` and `multipart/mixed`: a streaming reader for uploads and the framing of replies.
//!
//! The reader never holds more than one part's headers and one boundary's length of look-ahead, whatever the size of
//! an attachment.

use bytes::{Bytes, BytesMut};
use futures_util::{Stream, StreamExt};

use super::error::HttpError;
use super::outside;

/// Longest header block of one part, in bytes.
const PART_HEADERS_MAX: usize = 16 * 1024;
/// Longest boundary, in bytes (RFC 2046 says 70).
const BOUNDARY_MAX: usize = 256;
/// Most bytes before the first boundary.
const PREAMBLE_MAX: usize = 64 * 1024;

/// The boundary that a content type names.
///
/// # Errors
/// 400 when there is none, or an unusable one.
pub fn boundary(content_type: &str) -> Result<String, HttpError> {
    let mut parameters = content_type.split(';').skip(1);
    let value = parameters
        .find_map(|parameter| {
            let (name, value) = parameter.split_once('=')?;
            name.trim()
                .eq_ignore_ascii_case("boundary")
                .then(|| value.trim().trim_matches('"').to_owned())
        })
        .ok_or_else(|| HttpError::bad_request("multipart content type has no boundary"))?;
    if value.is_empty() || value.len() > BOUNDARY_MAX {
        return Err(HttpError::bad_request("multipart boundary is empty or too long"));
    }
    Ok(value)
}

/// Parts are told apart by their order, so their headers only have to be well formed.
fn check_headers(block: &[u8]) -> Result<(), HttpError> {
    let text = std::str::from_utf8(block).map_err(|_| malformed("part headers are not UTF-8"))?;
    if text
        .split("\r\n")
        .any(|line| !line.trim().is_empty() && !line.contains(':'))
    {
        return Err(malformed("a part header has no colon"));
    }
    Ok(())
}

fn malformed(what: &str) -> HttpError {
    HttpError::bad_request(format!("malformed multipart body: {what}"))
}

/// Where the reader stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Position {
    /// Before the first boundary.
    Preamble,
    /// Within the bytes of a part.
    InPart,
    /// Right behind a boundary.
    AfterBoundary,
    /// Behind the closing boundary.
    End,
}

/// Reads parts one after the other from a stream of chunks.
pub struct MultipartReader<S> {
    source: S,
    ended: bool,
    buffer: BytesMut,
    /// CRLF, two dashes and the boundary.
    delimiter: Vec<u8>,
    position: Position,
}

impl<S> MultipartReader<S>
where
    S: Stream<Item = Result<Bytes, HttpError>> + Unpin,
{
    /// A reader over `source`, whose parts are separated by `boundary`.
    pub fn new(source: S, boundary: &str) -> Self {
        let delimiter = [b"\r\n--", boundary.as_bytes()].concat();
        // A first boundary has no line before it; with this prefix it looks like all others.
        let buffer = BytesMut::from(&b"\r\n"[..]);
        Self {
            source,
            ended: false,
            buffer,
            delimiter,
            position: Position::Preamble,
        }
    }

    async fn fill(&mut self) -> Result<bool, HttpError> {
        if self.ended {
            return Ok(false);
        }
        match self.source.next().await {
            Some(chunk) => {
                self.buffer.extend_from_slice(&chunk?);
                Ok(true)
            }
            None => {
                self.ended = true;
                Ok(false)
            }
        }
    }

    /// Goes to the next part, skipping what is left of the current one. Tells whether there is one.
    ///
    /// # Errors
    /// 400 when the body is not multipart or ends early.
    pub async fn next_part(&mut self) -> Result<bool, HttpError> {
        if self.position == Position::Preamble {
            let mut skipped = 0;
            while let Some(chunk) = self.chunk_before_delimiter().await? {
                skipped += chunk.len();
                if skipped > PREAMBLE_MAX {
                    return Err(malformed("no boundary"));
                }
            }
        }
        while self.position == Position::InPart {
            self.part_chunk().await?;
        }
        if self.position == Position::End {
            return Ok(false);
        }
        while self.buffer.len() < 2 {
            if !self.fill().await? {
                return Err(malformed("ends within a boundary"));
            }
        }
        if self.buffer.starts_with(b"--") {
            self.position = Position::End;
            return Ok(false);
        }
        self.read_headers().await?;
        Ok(true)
    }

    async fn read_headers(&mut self) -> Result<(), HttpError> {
        // The boundary's own line end counts as the start of the search, so an empty header block is found as well.
        loop {
            if let Some(at) = find(&self.buffer, b"\r\n\r\n") {
                let block = self.buffer.split_to(at);
                let _ = self.buffer.split_to(4);
                self.position = Position::InPart;
                return check_headers(&block);
            }
            if self.buffer.len() > PART_HEADERS_MAX {
                return Err(malformed("part headers are too long"));
            }
            if !self.fill().await? {
                return Err(malformed("ends within the headers of a part"));
            }
        }
    }

    /// The next bytes of the current part; `None` at its end.
    ///
    /// # Errors
    /// 400 when the body ends before the next boundary.
    pub async fn part_chunk(&mut self) -> Result<Option<Bytes>, HttpError> {
        if self.position != Position::InPart {
            return Ok(None);
        }
        self.chunk_before_delimiter().await
    }

    /// All bytes of the current part, at most `limit` of them.
    ///
    /// # Errors
    /// 413 beyond the limit, 400 when the body ends early.
    pub async fn part_bytes(&mut self, limit: u64) -> Result<Vec<u8>, HttpError> {
        let mut out = Vec::new();
        while let Some(chunk) = self.part_chunk().await? {
            if (out.len() + chunk.len()) as u64 > limit {
                return Err(HttpError::request_too_large());
            }
            out.extend_from_slice(&chunk);
        }
        Ok(out)
    }

    /// Bytes up to the next delimiter; `None` when the delimiter has been reached and consumed.
    async fn chunk_before_delimiter(&mut self) -> Result<Option<Bytes>, HttpError> {
        loop {
            if let Some(at) = find(&self.buffer, &self.delimiter) {
                if at > 0 {
                    return Ok(Some(self.buffer.split_to(at).freeze()));
                }
                let _ = self.buffer.split_to(self.delimiter.len());
                self.position = Position::AfterBoundary;
                return Ok(None);
            }
            let keep = self.delimiter.len() - 1;
            if self.buffer.len() > keep {
                let free = self.buffer.len() - keep;
                return Ok(Some(self.buffer.split_to(free).freeze()));
            }
            if !self.fill().await? {
                return Err(malformed("ends without its closing boundary"));
            }
        }
    }

    /// Reads what is left behind the closing boundary, so that the connection can be used again.
    ///
    /// # Errors
    /// Those of the source.
    pub async fn drain(&mut self) -> Result<(), HttpError> {
        self.buffer.clear();
        while self.fill().await? {
            self.buffer.clear();
        }
        Ok(())
    }
}

/// The first place of `needle` in `haystack`.
fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    let (&first, rest) = needle.split_first()?;
    let mut from = 0;
    while let Some(at) = haystack.get(from..)?.iter().position(|byte| *byte == first) {
        let start = from + at;
        if haystack
            .get(start + 1..)
            .is_some_and(|tail| tail.starts_with(rest))
        {
            return Some(start);
        }
        from = start + 1;
    }
    None
}

/// A boundary that no document contains except by a 1 in 2^128 chance: 32 hex digits.
pub fn fresh_boundary() -> String {
    outside::random_hex()
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::{FutureExt, stream};

    /// Reads everything from a body cut into chunks of `size`.
    fn parts(body: &[u8], size: usize) -> Result<Vec<Vec<u8>>, HttpError> {
        let chunks: Vec<_> = body
            .chunks(size)
            .map(|chunk| Ok(Bytes::copy_from_slice(chunk)))
            .collect();
        let mut reader = MultipartReader::new(stream::iter(chunks), "abc");
        async {
            let mut out = Vec::new();
            while reader.next_part().await? {
                out.push(reader.part_bytes(1000).await?);
            }
            reader.drain().await?;
            Ok(out)
        }
        .now_or_never()
        .expect("the source is always ready")
    }

    #[test]
    fn parts_are_found_however_the_body_is_cut() {
        let body = b"preamble\r\n--abc\r\nContent-Type: application/json\r\n\r\n{\"a\":1}\r\n--abc\r\n\r\nohai\r\n--abc\r\n\
                     X: y\r\n\r\n\r\n-\r\n--ab\r\n--abc--epilogue";
        for size in 1..body.len() {
            let parts = parts(body, size).expect("well formed");
            let expected: [&[u8]; 3] = [b"{\"a\":1}", b"ohai", b"\r\n-\r\n--ab"];
            assert_eq!(parts, expected, "chunks of {size}");
        }
    }

    #[test]
    fn an_empty_part_is_a_part() {
        let body = b"--abc\r\nA: b\r\n\r\n\r\n--abc\r\n\r\n\r\n--abc--";
        let parts = parts(body, 3).expect("well formed");
        assert_eq!(parts.len(), 2);
        assert!(parts.iter().all(Vec::is_empty));
    }

    #[test]
    fn garbled_bodies_are_refused_with_one_sentence() {
        for body in [
            &b""[..],
            b"junk",
            b"--abc",
            b"--abc\r\nA: b",
            b"--abc\r\n\r\nx",
            b"--abc\r\nnocolon\r\n\r\nx\r\n--abc--",
        ] {
            let error = parts(body, 2).expect_err("garbled");
            assert_eq!((error.status, &*error.error), (400, "bad_request"));
        }
        assert!(parts(b"--abc\r\n\r\nlong", 100).is_err());
    }

    #[test]
    fn boundaries_come_quoted_or_not() {
        assert_eq!(
            boundary("multipart/related; boundary=\"a b\"").expect("there"),
            "a b"
        );
        assert_eq!(
            boundary("multipart/related;type=x; Boundary=abc").expect("there"),
            "abc"
        );
        assert!(boundary("multipart/related").is_err());
        assert!(boundary("multipart/related; boundary=\"\"").is_err());
    }
}
