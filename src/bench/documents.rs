//! The documents of the benchmark: three sizes, random enough not to compress, and made fast, because making them counts.

use super::random::Random;
use bytes::Bytes;
use std::fmt::Write as _;
use std::ops::Range;

/// Random bytes of a medium document's blob.
const BLOB_BYTES: usize = 512;

/// Random bytes of one of a large document's blobs.
const LARGE_BLOB_BYTES: usize = 2048;

/// Blobs that a large document has besides those of a medium one.
const LARGE_BLOBS: usize = 32;

/// Highest random value of a document.
const RANDOM_VALUE_MAX: u64 = 1 << 50;

/// How large documents are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DocSize {
    /// About 334 bytes.
    Small,
    /// About 14,550 bytes.
    Medium,
    /// About 145,900 bytes.
    Large,
}

impl DocSize {
    /// The size's name, as it is printed.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Small => "small",
            Self::Medium => "medium",
            Self::Large => "large",
        }
    }
}

/// Documents of one bulk request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DocBatch {
    /// The body of the request: `{"docs":[...]}`.
    pub body: Bytes,
    /// Where each document stands in it.
    pub docs: Vec<Range<usize>>,
}

/// Two upper-case hexadecimal digits for every byte.
const HEX: [[u8; 2]; 256] = {
    let digits = b"0123456789ABCDEF";
    let mut table = [[0_u8; 2]; 256];
    let mut byte = 0;
    while byte < 256 {
        table[byte] = [digits[byte >> 4], digits[byte & 15]];
        byte += 1;
    }
    table
};

/// Makes documents of one size.
#[derive(Clone, Debug)]
pub struct DocGenerator {
    size: DocSize,
    random: Random,
    /// What stands between the id and the rest, and the constant parts between random ones.
    constant: Constant,
}

/// The parts of a document that are always the same, as JSON text.
#[derive(Clone, Debug)]
struct Constant {
    /// Behind `random_val`.
    middle: String,
    /// Between the two blobs of a medium document, with the keys of both.
    between: String,
}

impl DocGenerator {
    /// A generator; the documents follow from `seed`.
    #[must_use]
    pub fn new(size: DocSize, seed: u64) -> Self {
        let constant = match size {
            DocSize::Small => Constant {
                middle: small_part(),
                between: String::new(),
            },
            DocSize::Medium | DocSize::Large => Constant {
                middle: ",\"index\":0,\"blob1\":\"".to_owned(),
                between: medium_part(),
            },
        };
        Self {
            size,
            random: Random::new(seed),
            constant,
        }
    }

    /// Appends one document with this id.
    pub fn append(&mut self, id: impl std::fmt::Display, out: &mut Vec<u8>) {
        let mut digits = Text(out);
        // Writing into a vector cannot fail.
        let _ = write!(
            digits,
            "{{\"_id\":\"{id}\",\"random_val\":{}",
            self.random.one_to(RANDOM_VALUE_MAX)
        );
        out.extend_from_slice(self.constant.middle.as_bytes());
        if self.size != DocSize::Small {
            self.hex(BLOB_BYTES, out);
            out.extend_from_slice(self.constant.between.as_bytes());
            self.hex(BLOB_BYTES, out);
            out.push(b'"');
        }
        if self.size == DocSize::Large {
            for number in 1..=LARGE_BLOBS {
                let _ = write!(Text(out), ",\"{number}\":\"");
                self.hex(LARGE_BLOB_BYTES, out);
                out.push(b'"');
            }
        }
        out.push(b'}');
    }

    /// Makes the body of a bulk request with documents of these ids, in the place of the batch's former content.
    pub fn fill(&mut self, ids: impl Iterator<Item = u64>, batch: &mut DocBatch) {
        let mut body = Vec::with_capacity(batch.body.len() + batch.body.len() / 16);
        batch.docs.clear();
        body.extend_from_slice(b"{\"docs\":[");
        for id in ids {
            if !batch.docs.is_empty() {
                body.push(b',');
            }
            let start = body.len();
            self.append(id, &mut body);
            batch.docs.push(start..body.len());
        }
        body.extend_from_slice(b"]}");
        batch.body = body.into();
    }

    /// An id of 128 random bits in decimal.
    pub fn random_id(&mut self) -> u128 {
        self.random.next_u128()
    }

    fn hex(&mut self, bytes: usize, out: &mut Vec<u8>) {
        out.reserve(bytes * 2);
        for _ in 0..bytes / 8 {
            let mut digits = [0_u8; 16];
            for (pair, byte) in digits.chunks_exact_mut(2).zip(self.random.next().to_le_bytes()) {
                pair.copy_from_slice(&HEX[usize::from(byte)]);
            }
            out.extend_from_slice(&digits);
        }
    }
}

/// Text appended to bytes.
struct Text<'a>(&'a mut Vec<u8>);

impl std::fmt::Write for Text<'_> {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        self.0.extend_from_slice(text.as_bytes());
        Ok(())
    }
}

/// The fields of a small document behind its random value: eleven short constants and a flag.
fn small_part() -> String {
    let mut text = String::from(",\"worker_id\":72");
    let fields = [
        ("foo", "first of several texts"),
        ("bar", "a second, of much that size"),
        ("baz", "0123456789-0123456789"),
        ("blah", "some more of it"),
        ("num1", "123456"),
        ("num2", "654321"),
        ("biz", "nothing random"),
        ("zab", "nor this"),
        ("mtime", "2026-01-01T00:00:00.000Z"),
        ("ctime", "2025-01-01T00:00:00.000Z"),
    ];
    for (name, value) in fields {
        let _ = write!(text, ",\"{name}\":\"{value}\"");
    }
    text.push_str(",\"bool\":false");
    text
}

/// Words that follow each other until there are `length` characters.
fn words(length: usize) -> String {
    let list = [
        "tree", "leaf", "branch", "root", "stem", "bark", "seed", "fruit", "ring", "trunk", "twig",
    ];
    let mut text = String::new();
    for word in list.iter().cycle() {
        if text.len() >= length {
            break;
        }
        text.push_str(word);
        text.push(' ');
    }
    text.truncate(length);
    text
}

/// The fields of a medium document between its two blobs.
fn medium_part() -> String {
    let mut text = String::from("\"");
    let short = [
        ("guid", "8f7f8f4c-6a5b-4c3d-9e2f-1a0b2c3d4e5f"),
        ("name", "Lakisha Hazelwood"),
        ("company", "SETTEE"),
        ("registered", "2024-03-04T05:06:07 -01:00"),
    ];
    for (name, value) in short {
        let _ = write!(text, ",\"{name}\":\"{value}\"");
    }
    text.push_str(",\"isActive\":true,\"latitude\":-29.384637,\"longitude\":103.482091");
    let _ = write!(text, ",\"about\":\"{}\",\"extra\":\"{}\"", words(221), words(660));
    let tags: Vec<String> = (0..15).map(|_| format!("\"{}\"", words(94))).collect();
    let ints: Vec<String> = (1..=1000).map(|number| number.to_string()).collect();
    let floats: Vec<String> = (1..=1000).map(|number| format!("{number}.0")).collect();
    let (tags, ints, floats) = (tags.join(","), ints.join(","), floats.join(","));
    let _ = write!(
        text,
        ",\"tags\":[{tags}],\"array_ints\":[{ints}],\"array_floats\":[{floats}],\"blob2\":\""
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn document(size: DocSize, seed: u64) -> Vec<u8> {
        let mut out = Vec::new();
        DocGenerator::new(size, seed).append(50_000, &mut out);
        out
    }

    #[test]
    fn documents_have_the_sizes_of_the_original() {
        for (size, bytes) in [
            (DocSize::Small, 334),
            (DocSize::Medium, 14_550),
            (DocSize::Large, 145_900),
        ] {
            let found = document(size, 1).len();
            let off = found.abs_diff(bytes) * 100;
            assert!(off <= bytes, "{}: {found} instead of {bytes}", size.name());
        }
    }

    #[test]
    fn documents_are_json_with_their_fields() {
        for (size, fields) in [(DocSize::Small, 14), (DocSize::Medium, 17), (DocSize::Large, 49)] {
            let parsed: serde_json::Value =
                serde_json::from_slice(&document(size, 2)).expect("a document is json");
            let object = parsed.as_object().expect("a document is an object");
            assert_eq!(object.len(), fields, "{}", size.name());
            assert_eq!(object["_id"], "50000");
            let value = object["random_val"].as_u64().expect("a number");
            assert!((1..=RANDOM_VALUE_MAX).contains(&value));
        }
        let medium: serde_json::Value = serde_json::from_slice(&document(DocSize::Medium, 2)).expect("json");
        for blob in ["blob1", "blob2"] {
            let blob = medium[blob].as_str().expect("a text");
            assert_eq!(blob.len(), 1024);
            assert!(
                blob.bytes()
                    .all(|digit| digit.is_ascii_digit() || (b'A'..=b'F').contains(&digit))
            );
        }
        assert_eq!(medium["array_ints"].as_array().map(Vec::len), Some(1000));
        assert_eq!(medium["array_floats"][999], 1000.0);
        assert_eq!(medium["tags"].as_array().map(Vec::len), Some(15));
    }

    #[test]
    fn a_batch_is_a_body_and_knows_its_documents() {
        let mut batch = DocBatch::default();
        let mut generator = DocGenerator::new(DocSize::Small, 3);
        for _ in 0..2 {
            generator.fill((1..=3).rev(), &mut batch);
            let parsed: serde_json::Value = serde_json::from_slice(&batch.body).expect("a body is json");
            let docs = parsed["docs"].as_array().expect("a list");
            let ids: Vec<&str> = docs.iter().filter_map(|doc| doc["_id"].as_str()).collect();
            assert_eq!(ids, ["3", "2", "1"]);
            for (range, doc) in batch.docs.iter().zip(docs) {
                let alone: serde_json::Value =
                    serde_json::from_slice(&batch.body[range.clone()]).expect("json");
                assert_eq!(alone, *doc);
            }
        }
        generator.fill(std::iter::empty(), &mut batch);
        assert_eq!(*batch.body, *b"{\"docs\":[]}");
    }

    #[test]
    fn the_same_seed_makes_the_same_documents() {
        assert_eq!(document(DocSize::Medium, 4), document(DocSize::Medium, 4));
        assert_ne!(document(DocSize::Medium, 4), document(DocSize::Medium, 5));
    }
}
