//! A document as a read gives it, and its JSON.

pub use crate::doc::attachment::AttachmentData;

use crate::codec::json::{members_to_json, write_json_string};
use crate::codec::term::TermError;
use crate::doc::attachment::Attachment;
use crate::doc::revtree::{RevPath, RevStatus};
use crate::ids::{DocId, Rev, write_rev_id_text, write_rev_text};

/// One revision of a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Doc {
    /// The document.
    pub id: DocId,
    /// The revision and its ancestors.
    pub revs: RevPath,
    /// Whether it is a deletion.
    pub deleted: bool,
    /// The body: a raw object term.
    pub body: Vec<u8>,
    /// Its attachments in document order.
    pub atts: Vec<Attachment>,
    /// The update that wrote it, in its shard.
    pub local_seq: u64,
}

/// What stands in a document's JSON beside its body.
#[derive(Clone, Copy, Debug, Default)]
pub struct JsonOptions<'a> {
    /// `_revisions`.
    pub revs: bool,
    /// `_revs_info`, left out when not given.
    pub revs_info: Option<&'a [(Rev, RevStatus)]>,
    /// `_conflicts`, left out when empty.
    pub conflicts: &'a [Rev],
    /// `_deleted_conflicts`, left out when empty.
    pub deleted_conflicts: &'a [Rev],
    /// `_local_seq`, a JSON value.
    pub local_seq: Option<&'a str>,
    /// `encoding` and `encoded_length` of compressed attachments.
    pub att_encoding_info: bool,
}

impl Doc {
    /// The revision; nothing for a document that was never written.
    #[must_use]
    pub fn rev(&self) -> Option<Rev> {
        self.revs.rev()
    }

    /// Appends the document as JSON, its attachments as stubs.
    ///
    /// # Errors
    /// The body has no JSON form; `out` is then as before.
    pub fn write_json(&self, out: &mut Vec<u8>, options: &JsonOptions<'_>) -> Result<(), TermError> {
        self.write_json_with(out, options, |_, _| AttachmentData::Stub)
    }

    /// Appends the document as JSON; `data` says for each attachment, by its index, what is shown of it.
    ///
    /// # Errors
    /// The body has no JSON form; `out` is then as before.
    pub fn write_json_with<'d>(
        &self,
        out: &mut Vec<u8>,
        options: &JsonOptions<'_>,
        mut data: impl FnMut(usize, &Attachment) -> AttachmentData<'d>,
    ) -> Result<(), TermError> {
        let newest = self.revs.ids.first().map(|id| (self.revs.start, id.as_bytes()));
        write_open_object(out, self.id.as_bytes(), newest, self.deleted, &self.body)?;
        if options.revs && !self.revs.is_empty() {
            self.write_revisions(out);
        }
        if let Some(revs_info) = options.revs_info {
            write_revs_info(out, revs_info);
        }
        if let Some(local_seq) = options.local_seq {
            out.extend_from_slice(b",\"_local_seq\":");
            out.extend_from_slice(local_seq.as_bytes());
        }
        write_revs(out, b",\"_conflicts\":[", options.conflicts);
        write_revs(out, b",\"_deleted_conflicts\":[", options.deleted_conflicts);
        if !self.atts.is_empty() {
            out.extend_from_slice(b",\"_attachments\":{");
            for (index, att) in self.atts.iter().enumerate() {
                if index > 0 {
                    out.push(b',');
                }
                att.write_json(out, &data(index, att), options.att_encoding_info);
            }
            out.push(b'}');
        }
        out.push(b'}');
        Ok(())
    }

    fn write_revisions(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b",\"_revisions\":{\"start\":");
        out.extend_from_slice(itoa::Buffer::new().format(self.revs.start).as_bytes());
        out.extend_from_slice(b",\"ids\":[");
        for (index, id) in self.revs.ids.iter().enumerate() {
            if index > 0 {
                out.push(b',');
            }
            write_rev_id_json(out, self.revs.start, id.as_bytes());
        }
        out.extend_from_slice(b"]}");
    }
}

/// Appends a document without attachments and meta members as JSON, straight from its parts: the path of plain reads.
///
/// # Errors
/// The body has no JSON form; `out` is then as before.
pub fn write_plain_json(
    out: &mut Vec<u8>,
    id: &[u8],
    rev: (u64, &[u8]),
    deleted: bool,
    body: &[u8],
) -> Result<(), TermError> {
    write_open_object(out, id, Some(rev), deleted, body)?;
    out.push(b'}');
    Ok(())
}

/// Appends `{"_id":...,"_rev":...`, the body's members and `_deleted`, and leaves the object open.
fn write_open_object(
    out: &mut Vec<u8>,
    id: &[u8],
    rev: Option<(u64, &[u8])>,
    deleted: bool,
    body: &[u8],
) -> Result<(), TermError> {
    let before = out.len();
    out.extend_from_slice(b"{\"_id\":");
    write_json_string(out, id);
    if let Some((pos, rev_id)) = rev {
        out.extend_from_slice(b",\"_rev\":");
        write_rev_json(out, pos, rev_id);
    }
    let mut first = false;
    if let Err(error) = members_to_json(body, out, &mut first) {
        out.truncate(before);
        return Err(error);
    }
    if deleted {
        out.extend_from_slice(b",\"_deleted\":true");
    }
    Ok(())
}

/// Appends a revision as a JSON string.
pub fn write_rev_json(out: &mut Vec<u8>, pos: u64, id: &[u8]) {
    if pos > 0 && id.len() == crate::limits::REV_ID_BYTES {
        out.push(b'"');
        write_rev_text(pos, id, out);
        out.push(b'"');
    } else {
        let mut text = Vec::with_capacity(id.len() + 8);
        write_rev_text(pos, id, &mut text);
        write_json_string(out, &text);
    }
}

fn write_rev_id_json(out: &mut Vec<u8>, pos: u64, id: &[u8]) {
    if pos > 0 && id.len() == crate::limits::REV_ID_BYTES {
        out.push(b'"');
        write_rev_id_text(pos, id, out);
        out.push(b'"');
    } else {
        write_json_string(out, id);
    }
}

fn write_revs(out: &mut Vec<u8>, head: &[u8], revs: &[Rev]) {
    if revs.is_empty() {
        return;
    }
    out.extend_from_slice(head);
    for (index, rev) in revs.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        write_rev_json(out, rev.pos, rev.id.as_bytes());
    }
    out.push(b']');
}

fn write_revs_info(out: &mut Vec<u8>, revs_info: &[(Rev, RevStatus)]) {
    out.extend_from_slice(b",\"_revs_info\":[");
    for (index, (rev, status)) in revs_info.iter().enumerate() {
        out.extend_from_slice(if index > 0 { b",{\"rev\":" } else { b"{\"rev\":" });
        write_rev_json(out, rev.pos, rev.id.as_bytes());
        out.extend_from_slice(b",\"status\":\"");
        out.extend_from_slice(status.as_str().as_bytes());
        out.extend_from_slice(b"\"}");
    }
    out.push(b']');
}
