//! Revision ids: the MD5 of the term `[Deleted, OldStart, OldRev, Body, Atts]`, so that the same edit of the same
//! document has the same id wherever it is made.

use crate::codec::term::{VERSION, write};
use crate::ids::{Rev, RevId};
use md5::{Digest, Md5};

/// What of an attachment takes part in a revision id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttDigest<'a> {
    /// Name.
    pub name: &'a str,
    /// Content type.
    pub content_type: &'a str,
    /// MD5 of the stored bytes; empty for attachments of the oldest files.
    pub md5: &'a [u8],
}

/// The id of a new edit: of `body` (a raw object term) on top of `parent`, with attachments in document order.
///
/// CouchDB makes a random id when an attachment has no MD5; here its empty MD5 is hashed, so that ids stay repeatable.
#[must_use]
pub fn new_rev_id(deleted: bool, parent: Option<&Rev>, body: &[u8], atts: &[AttDigest<'_>]) -> RevId {
    let mut tail = Vec::new();
    if atts.is_empty() {
        write::nil(&mut tail);
    } else {
        write::list(&mut tail, atts.len());
        for att in atts.iter().rev() {
            write::tuple(&mut tail, 3);
            write::binary(&mut tail, att.name.as_bytes());
            write::binary(&mut tail, att.content_type.as_bytes());
            write::binary(&mut tail, att.md5);
        }
        write::nil(&mut tail);
    }
    hash(deleted, parent, body, tail)
}

/// The id of a new edit on top of the winning deleted revision `parent`, when a deleted document is written again.
/// CouchDB hashes `{undefined, undefined, undefined}` for each attachment there.
#[must_use]
pub fn recreated_rev_id(parent: &Rev, body: &[u8], att_count: usize) -> RevId {
    let mut tail = Vec::new();
    if att_count == 0 {
        write::nil(&mut tail);
    } else {
        write::list(&mut tail, att_count);
        for _ in 0..att_count {
            write::tuple(&mut tail, 3);
            (0..3).for_each(|_| write::atom(&mut tail, "undefined"));
        }
        write::nil(&mut tail);
    }
    hash(false, Some(parent), body, tail)
}

fn hash(deleted: bool, parent: Option<&Rev>, body: &[u8], mut tail: Vec<u8>) -> RevId {
    let mut head = Vec::with_capacity(48);
    head.push(VERSION);
    write::list(&mut head, 5);
    write::atom(&mut head, if deleted { "true" } else { "false" });
    match parent {
        Some(parent) => {
            write::uint(&mut head, parent.pos);
            write::binary(&mut head, parent.id.as_bytes());
        }
        None => {
            write::uint(&mut head, 0);
            write::uint(&mut head, 0);
        }
    }
    write::nil(&mut tail);
    let mut md5 = Md5::new();
    md5.update(&head);
    md5.update(body);
    md5.update(&tail);
    RevId::from_md5(md5.finalize().into())
}
