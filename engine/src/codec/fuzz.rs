//! One function for each codec that takes any bytes at all and checks what must always hold.
//!
//! The fuzzing targets call these, and so does a seeded test of the ordinary test run. Each of them panics when something
//! does not hold; none is called by the database.

use super::compress::{self, Compression};
use super::json::{self, JsonReader};
use super::term::{self, Reader, Term};
use std::cmp::Ordering;

/// Any bytes as a raw term: what decodes also encodes to something that decodes to the same, what one walk accepts the
/// others accept, and the order is reflexive and antisymmetric.
pub fn term(data: &[u8]) {
    let skipped = Reader::new(data).skip().map(<[u8]>::len);
    if let Ok(decoded) = Term::read(&mut Reader::new(data)) {
        assert!(skipped.is_ok(), "decoded but not skipped");
        let encoded = decoded.encode();
        let again = Term::decode(&encoded);
        assert_eq!(again.as_ref(), Ok(&decoded), "another term after a round trip");
    }
    let _ = Term::decode_versioned(data);
    let _ = json::ejson_size(data);
    assert_eq!(term::compare(data, data), Ordering::Equal, "not equal to itself");
    let (a, b) = data.split_at(data.len() / 2);
    assert_eq!(
        term::compare(a, b),
        term::compare(b, a).reverse(),
        "order depends on the sides"
    );
    let mut printed = Vec::new();
    if json::term_to_json(data, &mut printed).is_ok() {
        reread(&printed);
    }
}

/// Printed JSON is JSON, except that an integer may be longer than the reader takes.
fn reread(printed: &[u8]) {
    let mut term = Vec::new();
    if let Err(error) = json::json_to_term(printed, &mut term) {
        assert_eq!(
            error.message, "integer is too long",
            "printed text is refused: {error}"
        );
    }
}

/// Any bytes as JSON: reading over a value and reading it into a term agree, and what is read prints to a text that reads
/// and prints the same again.
pub fn json(data: &[u8]) {
    let mut term = Vec::new();
    let read = json::json_to_term(data, &mut term);
    let skipped = JsonReader::new(data).and_then(|mut reader| {
        reader.skip_value()?;
        reader.end()
    });
    assert_eq!(read, skipped, "one way to read accepts what the other refuses");
    if read.is_err() {
        assert!(term.is_empty(), "a part of a term was left");
        return;
    }
    assert_eq!(
        Reader::new(&term).skip(),
        Ok(term.as_slice()),
        "not exactly one term"
    );
    let mut printed = Vec::new();
    let result = json::term_to_json(&term, &mut printed);
    assert_eq!(result, Ok(()), "a term made from json has no json form");
    let (mut term_again, mut printed_again) = (Vec::new(), Vec::new());
    let result = json::json_to_term(&printed, &mut term_again);
    assert_eq!(result, Ok(()), "printed text is refused");
    let result = json::term_to_json(&term_again, &mut printed_again);
    assert_eq!(
        (result, &printed_again),
        (Ok(()), &printed),
        "another text after a round trip"
    );
    let _ = json::ejson_size(&term);
}

/// Any bytes as stored terms: nothing but a term comes out, of the claimed size, and it survives every method.
pub fn compress(data: &[u8]) {
    let Ok(expanded) = compress::decompress(data) else {
        return;
    };
    assert_eq!(expanded.first(), Some(&term::VERSION), "not a term");
    assert_eq!(
        compress::uncompressed_size(data),
        Ok(expanded.len() as u64),
        "another size than claimed"
    );
    for method in [
        Compression::None,
        Compression::Snappy,
        Compression::Deflate(6),
        Compression::Zstd(3),
    ] {
        let mut stored = Vec::new();
        compress::compress(&expanded, method, &mut stored);
        // A plain term that looks compressed, and is not, cannot be told apart.
        if expanded.get(1) != Some(&term::tag::COMPRESSED) {
            assert_eq!(
                compress::decompress(&stored).as_deref(),
                Ok(&*expanded),
                "lost by {method}"
            );
        }
    }
}
