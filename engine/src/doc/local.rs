//! Local documents: no tree, no conflicts, a revision that counts writes.

use crate::codec::term::{Int, Reader, tag, write};
use crate::doc::document::Doc;
use crate::doc::error::{DocError, StoredDocError};
use crate::doc::revtree::{RevIds, RevPath};
use crate::ids::{DocId, Rev, RevId};

/// The revision `0-N` of a local document as a path.
#[must_use]
pub fn local_revs(count: u64) -> RevPath {
    RevPath {
        start: 0,
        ids: RevIds::from_iter([RevId::new(itoa::Buffer::new().format(count).as_bytes())]),
    }
}

/// The revision that a write gets: 0 for a deletion, 1 without a given revision, else one more than the given one. What
/// is stored does not matter, so a local document never conflicts.
///
/// # Errors
/// [`DocError::InvalidRevFormat`] when the given revision is not `0-N`.
pub fn next_local_rev(given: &RevPath, deleted: bool) -> Result<u64, DocError> {
    if deleted {
        return Ok(0);
    }
    let Some(id) = given.ids.first() else { return Ok(1) };
    let count = std::str::from_utf8(id.as_bytes())
        .ok()
        .and_then(|text| text.parse::<u64>().ok());
    match count.and_then(|count| count.checked_add(1)) {
        Some(next) if given.start == 0 => Ok(next),
        _ => Err(DocError::InvalidRevFormat),
    }
}

/// The revision `0-N`.
#[must_use]
pub fn local_rev(count: u64) -> Rev {
    Rev::new(0, RevId::new(itoa::Buffer::new().format(count).as_bytes()))
}

/// Appends the value of the local tree, `{N, Body}`; `body` is a raw object term.
pub fn write_local_value(count: u64, body: &[u8], out: &mut Vec<u8>) {
    write::tuple(out, 2);
    write::uint(out, count);
    out.extend_from_slice(body);
}

/// Reads a value of the local tree: the text of the revision behind `0-`, and the raw body.
///
/// # Errors
/// Another shape.
pub fn read_local_value(raw: &[u8]) -> Result<(RevId, &[u8]), StoredDocError> {
    let mut reader = Reader::new(raw);
    reader.expect_tuple(2)?;
    let rev = match reader.peek_tag()? {
        tag::BINARY => RevId::new(reader.read_binary()?),
        _ => match reader.read_int()? {
            Int::Small(count) => RevId::new(itoa::Buffer::new().format(count).as_bytes()),
            Int::Big { .. } => return Err(StoredDocError::Shape("revision of a local document")),
        },
    };
    let body = reader.skip()?;
    reader.end()?;
    Ok((rev, body))
}

/// A local document as a read gives it.
///
/// # Errors
/// The value has another shape.
pub fn read_local_doc(id: DocId, raw: &[u8]) -> Result<Doc, StoredDocError> {
    let (rev, body) = read_local_value(raw)?;
    let revs = RevPath {
        start: 0,
        ids: RevIds::from_iter([rev]),
    };
    Ok(Doc {
        id,
        revs,
        deleted: false,
        body: body.to_vec(),
        atts: Vec::new(),
        local_seq: 0,
    })
}
