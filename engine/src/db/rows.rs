//! Rendering rows of `_all_docs` and `_changes` as JSON, straight from the bytes of the trees.
//!
//! Rows are rendered where their bytes are read, by many workers at once, and only copied afterwards.

use super::read::Snapshot;
use super::{DbError, DocDamage};
use crate::cluster::RowRef;
use crate::codec::json::write_json_string;
use crate::doc::document::{write_plain_json, write_rev_json};
use crate::doc::summary::SummaryView;
use crate::doc::{AttachmentData, Doc, JsonOptions, RevPath, RevTree, StoredDocError, WinnerView};
use crate::ids::{DocId, Rev, RevId};
use crate::storage::ReadAhead;
use crate::storage::vfs::Wait;
use std::borrow::Cow;
use std::sync::Arc;

/// What a row carries beside id and revision.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rendering {
    /// The document.
    pub include_docs: bool,
    /// `_conflicts` in it.
    pub conflicts: bool,
    /// Bodies of attachments, base64.
    pub attachments: bool,
    /// `encoding` and `encoded_length`.
    pub att_encoding_info: bool,
}

/// A place in a batch. Batches are far below four gigabytes; a row that is not comes out empty and is not lost silently,
/// because its text is not JSON.
pub(super) fn narrow(place: usize) -> u32 {
    u32::try_from(place).unwrap_or(u32::MAX)
}

/// `{"id":ID,"key":ID,"value":{"rev":REV}`, still open. Gives the place of the bare id: in the row where it needs no
/// escape, before it otherwise.
pub(super) fn begin_id_row(id: &[u8], winner: &WinnerView<'_>, out: &mut Vec<u8>) -> RowRef {
    let mut row = out.len();
    out.extend_from_slice(b"{\"id\":");
    let mut begin = out.len();
    write_json_string(out, id);
    let mut end = out.len();
    let mut key = begin + 1..end - 1;
    if end - begin != id.len() + 2 {
        out.truncate(row);
        key = row..row + id.len();
        out.extend_from_slice(id);
        row = out.len();
        out.extend_from_slice(b"{\"id\":");
        begin = out.len();
        write_json_string(out, id);
        end = out.len();
    }
    out.extend_from_slice(b",\"key\":");
    out.extend_from_within(begin..end);
    out.extend_from_slice(b",\"value\":{\"rev\":");
    write_rev_json(out, winner.pos, winner.id);
    out.push(b'}');
    RowRef {
        key: narrow(key.start)..narrow(key.end),
        json: narrow(row)..narrow(row),
    }
}

/// `"id":ID,"changes":[{"rev":REV},...]` and `,"deleted":true`, still open.
pub(super) fn begin_change_row<'a>(
    id: &[u8],
    revs: impl IntoIterator<Item = (u64, &'a [u8])>,
    deleted: bool,
    out: &mut Vec<u8>,
) {
    out.extend_from_slice(b"\"id\":");
    write_json_string(out, id);
    out.extend_from_slice(b",\"changes\":[");
    for (index, (pos, rev)) in revs.into_iter().enumerate() {
        out.extend_from_slice(if index == 0 { b"{\"rev\":" } else { b",{\"rev\":" });
        write_rev_json(out, pos, rev);
        out.push(b'}');
    }
    out.push(b']');
    if deleted {
        out.extend_from_slice(b",\"deleted\":true");
    }
}

/// Reads bodies for rows; neighbours in the file share system calls.
pub(super) struct BodyReader {
    ahead: ReadAhead,
    payload: Vec<u8>,
    body: Vec<u8>,
}

impl BodyReader {
    pub fn new(snapshot: &Snapshot) -> Self {
        Self {
            ahead: ReadAhead::new(Arc::clone(snapshot.file())),
            payload: Vec::new(),
            body: Vec::new(),
        }
    }

    /// Appends `,"doc":DOC`. A document that cannot be read gives an error in its place and is returned, so that the
    /// other rows still come.
    pub fn write_doc(
        &mut self,
        snapshot: &Snapshot,
        id: &[u8],
        tree: &[u8],
        winner: &WinnerView<'_>,
        rendering: Rendering,
        out: &mut Vec<u8>,
    ) -> Option<DocDamage> {
        let begin = out.len();
        out.extend_from_slice(b",\"doc\":");
        let error = self.render(snapshot, id, tree, winner, rendering, out).err()?;
        out.truncate(begin);
        out.extend_from_slice(b",\"doc\":null,\"error\":\"damaged\",\"reason\":");
        write_json_string(out, error.to_string().as_bytes());
        Some(damage_of(snapshot, id, winner.ptr, &error))
    }

    fn render(
        &mut self,
        snapshot: &Snapshot,
        id: &[u8],
        tree: &[u8],
        winner: &WinnerView<'_>,
        rendering: Rendering,
        out: &mut Vec<u8>,
    ) -> Result<(), DbError> {
        self.ahead.read_chunk(winner.ptr, Wait::Yes, &mut self.payload)?;
        let summary = SummaryView::parse(&self.payload)?;
        let body = summary.body_into(&mut self.body)?;
        let conflicts = rendering.conflicts && winner.leaf_count > 1;
        if !conflicts && !summary.has_attachments()? {
            return Ok(write_plain_json(
                out,
                id,
                (winner.pos, winner.id),
                winner.deleted,
                body,
            )?);
        }
        let rev = Rev::new(winner.pos, RevId::new(winner.id));
        let mut others = Vec::new();
        if conflicts {
            let tree = RevTree::decode(tree).map_err(StoredDocError::from)?;
            let live = tree.leaves_sorted().into_iter().filter(|node| !node.is_deleted());
            others = live
                .map(|node| node.rev())
                .filter(|other| *other != rev)
                .collect();
        }
        let doc = Doc {
            id: DocId::from_stored(id).map_err(StoredDocError::from)?,
            revs: RevPath::single(rev),
            deleted: winner.deleted,
            body: body.to_vec(),
            atts: summary.attachments()?,
            local_seq: winner.seq,
        };
        let mut bodies = Vec::new();
        if rendering.attachments {
            for attachment in &doc.atts {
                bodies.push(snapshot.attachment_bytes(attachment, Wait::Yes)?);
            }
        }
        let options = JsonOptions {
            conflicts: &others,
            att_encoding_info: rendering.att_encoding_info,
            ..JsonOptions::default()
        };
        doc.write_json_with(out, &options, |index, _| match bodies.get(index) {
            Some(body) => AttachmentData::Inline(Cow::Borrowed(body)),
            None => AttachmentData::Stub,
        })?;
        Ok(())
    }
}

fn damage_of(snapshot: &Snapshot, id: &[u8], position: u64, error: &dyn std::fmt::Display) -> DocDamage {
    DocDamage {
        id: DocId::from_stored(id).ok(),
        file: snapshot.file().path().to_owned(),
        position: Some(position),
        detail: error.to_string(),
    }
}
