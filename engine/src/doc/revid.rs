//! Revision ids: the MD5 of the term `[Deleted, OldStart, OldRev, Body, Atts]`, so that the same edit of the same
//! document has the same id wherever it is made.

use crate::codec::term::{VERSION, write};
use crate::doc::md5_lanes::{LANES, md5_of_group};
use crate::ids::{Rev, RevId};
use md5::{Digest, Md5};
use smallvec::SmallVec;

/// Room for what stands before the body.
const HEAD_BYTES: usize = 48;

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

/// What a revision id is made from.
#[derive(Clone, Debug)]
pub struct RevContent<'a> {
    /// Whether the edit is a deletion.
    pub deleted: bool,
    /// The revision that it is based on.
    pub parent: Option<&'a Rev>,
    /// The body, a raw object term.
    pub body: &'a [u8],
    /// Attachments in document order.
    pub atts: SmallVec<[AttDigest<'a>; 4]>,
}

/// The id of a new edit.
///
/// CouchDB makes a random id when an attachment has no MD5; here its empty MD5 is hashed, so that ids stay repeatable.
#[must_use]
pub fn new_rev_id(content: &RevContent<'_>) -> RevId {
    hash(content.deleted, content.parent, content.body, &content.tail())
}

/// The ids of many new edits, in their order; those of about the same length are hashed side by side.
#[must_use]
pub fn new_rev_ids(contents: &[RevContent<'_>]) -> Vec<RevId> {
    let mut digests = vec![[0; 16]; contents.len()];
    let mut order: Vec<usize> = (0..contents.len()).collect();
    order.sort_by_key(|index| contents[*index].body.len());
    let mut messages: [Vec<u8>; LANES] = Default::default();
    for group in order.chunks(LANES) {
        for (message, index) in messages.iter_mut().zip(group) {
            message.clear();
            contents[*index].write(message);
        }
        let slices: [&[u8]; LANES] = std::array::from_fn(|lane| messages[lane].as_slice());
        for (digest, index) in md5_of_group(&slices[..group.len()]).into_iter().zip(group) {
            digests[*index] = digest;
        }
    }
    digests.into_iter().map(RevId::from_md5).collect()
}

impl RevContent<'_> {
    /// Appends all that is hashed.
    fn write(&self, out: &mut Vec<u8>) {
        write_head(self.deleted, self.parent, out);
        out.extend_from_slice(self.body);
        out.extend_from_slice(&self.tail());
    }

    /// What stands behind the body.
    fn tail(&self) -> SmallVec<[u8; 64]> {
        let mut tail = Vec::new();
        if !self.atts.is_empty() {
            write::list(&mut tail, self.atts.len());
            for att in self.atts.iter().rev() {
                write::tuple(&mut tail, 3);
                write::binary(&mut tail, att.name.as_bytes());
                write::binary(&mut tail, att.content_type.as_bytes());
                write::binary(&mut tail, att.md5);
            }
        }
        // The end of the attachments, or their empty list, and the end of the whole.
        write::nil(&mut tail);
        write::nil(&mut tail);
        SmallVec::from_vec(tail)
    }
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
    write::nil(&mut tail);
    hash(false, Some(parent), body, &tail)
}

fn hash(deleted: bool, parent: Option<&Rev>, body: &[u8], tail: &[u8]) -> RevId {
    let mut head = Vec::with_capacity(HEAD_BYTES);
    write_head(deleted, parent, &mut head);
    let mut md5 = Md5::new();
    md5.update(&head);
    md5.update(body);
    md5.update(tail);
    RevId::from_md5(md5.finalize().into())
}

/// Appends what stands before the body.
fn write_head(deleted: bool, parent: Option<&Rev>, head: &mut Vec<u8>) {
    head.push(VERSION);
    write::list(head, 5);
    write::atom(head, if deleted { "true" } else { "false" });
    match parent {
        Some(parent) => {
            write::uint(head, parent.pos);
            write::binary(head, parent.id.as_bytes());
        }
        None => {
            write::uint(head, 0);
            write::uint(head, 0);
        }
    }
}
