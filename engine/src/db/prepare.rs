//! Making an edit ready before it reaches the one writer: revision id, compressed body, merged attachments.
//!
//! This is the costly part of an update (hashing and compressing), and it needs only a snapshot, so it runs wherever
//! the request runs. What is left for the writer is merging trees and appending bytes.

use super::read::Snapshot;
use super::{DbError, DbOptions};
use crate::codec::compress::Compression;
use crate::doc::local::{local_rev, next_local_rev, write_local_value};
use crate::doc::stream::{StreamOptions, StreamWriter};
use crate::doc::summary::{SummaryView, SummaryWriter};
use crate::doc::{
    AttData, Attachment, DocEdit, DocError, EditAttachment, RevPath, RevTree, Stream, new_rev_ids,
    recreated_rev_id,
};
use crate::ids::{DocId, Rev};
use crate::storage::vfs::Wait;
use crate::storage::{Appender, Chunk};
use std::convert::Infallible;
use std::ops::Range;
use std::sync::Arc;

/// How bodies and attachments are stored.
#[derive(Clone, Debug, Default)]
pub struct PrepareOptions {
    /// `[couchdb] file_compression`.
    pub compression: Compression,
    /// `[attachments]`, and the buffer of attachment streams.
    pub streams: StreamOptions,
}

/// An edit that only has to be merged and appended.
#[derive(Debug)]
pub struct Prepared {
    /// The document.
    pub id: DocId,
    /// The new revision and its ancestors, newest first.
    pub path: RevPath,
    /// Whether the revision is a deletion.
    pub deleted: bool,
    /// Whether it is stored as it is (`new_edits=false`).
    pub replicated: bool,
    /// Size of the body as JSON, in bytes.
    pub external: u64,
    body: Body,
}

#[derive(Debug)]
enum Body {
    /// The payload of the summary chunk, complete, and the streams that it names.
    Summary {
        payload: Payload,
        streams: Vec<(Stream, u64)>,
    },
    /// Attachments have to be appended before the summary can say where they stand.
    Pending {
        body: Vec<u8>,
        attachments: Vec<PendingAttachment>,
    },
}

/// One of the summaries that were made together, and lie in one piece of memory.
#[derive(Debug)]
struct Payload {
    all: Arc<Vec<u8>>,
    at: Range<usize>,
}

impl Payload {
    fn bytes(&self) -> &[u8] {
        self.all.get(self.at.clone()).unwrap_or_default()
    }
}

/// What [`Body`] is made of, before it is known where all summaries lie.
enum Staged {
    Summary {
        at: Range<usize>,
        streams: Vec<(Stream, u64)>,
    },
    Pending(Vec<PendingAttachment>),
}

/// An attachment and the chunks that are still to be appended; none when it is in the file already.
#[derive(Debug)]
struct PendingAttachment {
    attachment: Attachment,
    chunks: Vec<Vec<u8>>,
}

/// Where the bytes of an edit ended up.
pub(super) struct Written {
    pub summary: Chunk,
    pub streams: Vec<(Stream, u64)>,
}

/// Makes edits ready, one after the other; keeps its buffers from one to the next.
#[derive(Debug)]
pub struct Preparer<'o> {
    options: &'o PrepareOptions,
    summaries: SummaryWriter,
}

impl<'o> Preparer<'o> {
    /// A preparer with these options.
    #[must_use]
    pub fn new(options: &'o PrepareOptions) -> Self {
        Self {
            options,
            summaries: SummaryWriter::new(options.compression),
        }
    }

    /// Makes edits ready, in their order. `wait` says whether a previous revision may be waited for, where a stub names its
    /// attachment.
    ///
    /// # Errors
    /// [`DbError::Doc`] when an edit breaks a rule, such as a stub of an attachment that the parent does not have;
    /// otherwise when the parent cannot be read.
    pub fn prepare_all(
        &mut self,
        snapshot: &Snapshot,
        edits: Vec<DocEdit>,
        replicated: bool,
        wait: Wait,
    ) -> Result<Vec<Prepared>, DbError> {
        let mut staged = Vec::with_capacity(edits.len());
        for mut edit in edits {
            let chunks = self.stage(snapshot, &mut edit, replicated, wait)?;
            staged.push((edit, chunks));
        }
        let paths: Vec<RevPath> = if replicated {
            staged.iter().map(|(edit, _)| edit.revs.clone()).collect()
        } else {
            let parents: Vec<Option<Rev>> = staged.iter().map(|(edit, _)| edit.rev()).collect();
            let contents = staged.iter().zip(&parents);
            let contents: Vec<_> = contents
                .map(|((edit, _), parent)| edit.rev_content(parent.as_ref()))
                .collect();
            let ids = staged.iter().zip(new_rev_ids(&contents));
            ids.map(|((edit, _), id)| edit.revs.child(id)).collect()
        };
        Ok(self.finish(staged, paths, replicated))
    }

    /// Makes one edit ready.
    ///
    /// # Errors
    /// As [`Preparer::prepare_all`].
    pub fn prepare(
        &mut self,
        snapshot: &Snapshot,
        edit: DocEdit,
        replicated: bool,
        wait: Wait,
    ) -> Result<Prepared, DbError> {
        let mut ready = self.prepare_all(snapshot, vec![edit], replicated, wait)?;
        Ok(ready.swap_remove(0))
    }

    /// Takes over and encodes attachments; returns the chunks of each that are still to be appended.
    fn stage(
        &self,
        snapshot: &Snapshot,
        edit: &mut DocEdit,
        replicated: bool,
        wait: Wait,
    ) -> Result<Vec<Vec<Vec<u8>>>, DbError> {
        let generation = edit.revs.start.saturating_add(u64::from(!replicated));
        for att in edit.atts.iter_mut().filter(|att| att.data != AttData::Stub) {
            // What an upload stored belongs to this revision, and so does what names none.
            let named = att.revpos.filter(|revpos| replicated && *revpos > 0);
            att.revpos = Some(named.unwrap_or(generation));
        }
        if edit.has_stubs() {
            let previous = previous_attachments(snapshot, edit, replicated, wait)?;
            edit.merge_stubs(previous.as_deref())?;
        }
        let atts = edit.atts.iter_mut();
        Ok(atts
            .map(|att| encode(att, &self.options.streams))
            .collect::<Result<_, DocError>>()?)
    }

    /// Compresses bodies into one piece of memory, as a piece for each would cost more than compressing it.
    fn finish(
        &mut self,
        staged: Vec<(DocEdit, Vec<Vec<Vec<u8>>>)>,
        paths: Vec<RevPath>,
        replicated: bool,
    ) -> Vec<Prepared> {
        let room = staged.iter().map(|(edit, _)| summary_capacity(edit.body.len()));
        let mut all = Vec::with_capacity(room.sum());
        let ready: Vec<(DocEdit, Staged)> = staged
            .into_iter()
            .map(|(edit, chunks)| {
                let summary = self.summarize(&edit, chunks, &mut all);
                (edit, summary)
            })
            .collect();
        all.shrink_to_fit();
        let all = Arc::new(all);
        let ready = ready.into_iter().zip(paths);
        ready
            .map(|((edit, staged), path)| Prepared {
                id: edit.id,
                path,
                deleted: edit.deleted,
                replicated,
                external: edit.external_size,
                body: match staged {
                    Staged::Summary { at, streams } => {
                        let all = Arc::clone(&all);
                        let payload = Payload { all, at };
                        Body::Summary { payload, streams }
                    }
                    Staged::Pending(attachments) => Body::Pending {
                        body: edit.body,
                        attachments,
                    },
                },
            })
            .collect()
    }

    fn summarize(&mut self, edit: &DocEdit, chunks: Vec<Vec<Vec<u8>>>, all: &mut Vec<u8>) -> Staged {
        let attachments = edit.stored_atts().unwrap_or_default();
        if chunks.iter().all(Vec::is_empty) {
            let start = all.len();
            self.summaries.write(&edit.body, &attachments, all);
            return Staged::Summary {
                at: start..all.len(),
                streams: attachments.iter().map(Attachment::size_info).collect(),
            };
        }
        let pending = attachments.into_iter().zip(chunks);
        Staged::Pending(
            pending
                .map(|(attachment, chunks)| PendingAttachment { attachment, chunks })
                .collect(),
        )
    }
}

/// Room for a summary: a compressor asks for more than its input, and growing costs more than the room.
const fn summary_capacity(body_bytes: usize) -> usize {
    body_bytes + body_bytes / 6 + 128
}

/// Encodes an attachment whose bytes are at hand; the chunks stand in memory, and the stream counts them.
fn encode(att: &mut EditAttachment, options: &StreamOptions) -> Result<Vec<Vec<u8>>, DocError> {
    let data = match &mut att.data {
        AttData::Inline(data) => std::mem::take(data),
        AttData::Stored(stored) => {
            stored.name.clone_from(&att.name);
            stored.content_type.clone_from(&att.content_type);
            stored.revpos = att.revpos.unwrap_or(stored.revpos);
            return Ok(Vec::new());
        }
        // The bytes should have been stored by now, or taken over from the previous revision.
        AttData::Stub | AttData::Follows { .. } => return Err(DocError::AttachmentShorter),
    };
    let mut chunks: Vec<Vec<u8>> = Vec::new();
    let mut sink = |chunk: &[u8]| -> Result<u64, Infallible> {
        chunks.push(chunk.to_vec());
        Ok(chunks.len() as u64 - 1)
    };
    let mut writer = StreamWriter::new(options, &att.content_type, att.encoding);
    let Ok(()) = writer.write(&data, &mut sink);
    let Ok(end) = writer.finish(&mut sink);
    let revpos = att.revpos.unwrap_or(0);
    let stored = end.into_attachment(&att.name, &att.content_type, revpos, &att.announced())?;
    att.data = AttData::Stored(stored);
    Ok(chunks)
}

/// Attachments that stubs may name: those of the parent, or of the nearest known ancestor when replicating. Nothing when
/// there is no previous revision.
fn previous_attachments(
    snapshot: &Snapshot,
    edit: &DocEdit,
    replicated: bool,
    wait: Wait,
) -> Result<Option<Vec<Attachment>>, DbError> {
    let Some(info) = snapshot.full_info(&edit.id, wait)? else {
        return Ok(None);
    };
    let known = if edit.revs.is_empty() {
        info.tree.winner().map(|winner| winner.rev())
    } else {
        let ancestors = if replicated { edit.revs.ids.len() } else { 1 };
        let path = edit.revs.ids.iter().take(ancestors).enumerate();
        let mut revs =
            path.map(|(depth, id)| Rev::new(edit.revs.start.saturating_sub(depth as u64), id.clone()));
        revs.find(|rev| info.tree.find(rev).is_some_and(|node| node.leaf().is_some()))
    };
    match known {
        Some(rev) => Ok(snapshot.doc_of(&info, &rev, wait)?.map(|doc| doc.atts)),
        None => Ok(None),
    }
}

impl Prepared {
    /// Puts the edit on top of the winning deleted revision; its revision id is made anew, as CouchDB makes it. False when
    /// there is no winner.
    pub(super) fn recreate_on(&mut self, tree: &RevTree) -> bool {
        let Some(winner) = tree.winner() else { return false };
        let rev = winner.rev();
        let id = match &self.body {
            Body::Summary { payload, streams } => {
                let body = SummaryView::parse(payload.bytes()).and_then(|summary| summary.body());
                recreated_rev_id(&rev, &body.unwrap_or_default(), streams.len())
            }
            Body::Pending { body, attachments } => recreated_rev_id(&rev, body, attachments.len()),
        };
        self.path = winner.path().child(id);
        true
    }

    /// Appends attachments and the summary.
    pub(super) fn append(self, appender: &mut Appender, options: &DbOptions) -> Result<Written, DbError> {
        let (summary, streams) = match self.body {
            Body::Summary { payload, streams } => (appender.append_chunk(payload.bytes())?, streams),
            Body::Pending { body, attachments } => {
                let mut stored = Vec::with_capacity(attachments.len());
                for pending in attachments {
                    stored.push(pending.append(appender)?);
                }
                let mut payload = Vec::with_capacity(summary_capacity(body.len()));
                SummaryWriter::new(options.prepare.compression).write(&body, &stored, &mut payload);
                let streams = stored.iter().map(Attachment::size_info).collect();
                (appender.append_chunk(&payload)?, streams)
            }
        };
        Ok(Written { summary, streams })
    }
}

impl PendingAttachment {
    fn append(self, appender: &mut Appender) -> Result<Attachment, DbError> {
        let Self {
            mut attachment,
            chunks,
        } = self;
        if !chunks.is_empty() {
            attachment.stream.clear();
        }
        for chunk in &chunks {
            let written = appender.append_chunk(chunk)?;
            attachment.stream.push((written.pos, chunk.len() as u64));
        }
        Ok(attachment)
    }
}

/// An edit of a `_local/` document.
#[derive(Clone, Debug)]
pub struct PreparedLocal {
    /// The document.
    pub id: DocId,
    /// The revision number that it gets.
    revision: u64,
    deleted: bool,
    body: Vec<u8>,
}

/// Makes an edit of a local document ready. There is no conflict: the revision given is counted up.
///
/// # Errors
/// When the revision given is not one of a local document.
pub fn prepare_local(edit: DocEdit) -> Result<PreparedLocal, DocError> {
    let revision = next_local_rev(&edit.revs, edit.deleted)?;
    Ok(PreparedLocal {
        id: edit.id,
        revision,
        deleted: edit.deleted,
        body: edit.body,
    })
}

impl PreparedLocal {
    /// The revision to answer.
    pub(super) fn rev(&self) -> Rev {
        local_rev(self.revision)
    }

    /// The value of the local tree; none removes the document.
    pub(super) fn value(&self) -> Option<Vec<u8>> {
        if self.deleted {
            return None;
        }
        let mut value = Vec::with_capacity(self.body.len() + 8);
        write_local_value(self.revision, &self.body, &mut value);
        Some(value)
    }
}
