//! The JSON of documents in both directions, and the edits that requests make of it.

use bytes::Bytes;
use settee_actors::coordinator::{OpenedDoc, ParseDocs};
use settee_engine::doc::{
    Attachment, AttachmentData, Doc, DocEdit, DocError, DocLimits, EditAttachment, EditOptions, IdSource,
    JsonOptions, RevContent, new_rev_id, parse_edit, recreated_rev_id,
};
use settee_engine::ids::{DbName, DocId, Rev};

use std::sync::Arc;

use crate::config::{Bound, Settings};

use super::error::HttpError;
use super::request::Request;
use super::{App, outside};

/// Attachments above this many bytes are unpacked on a blocking thread.
const UNPACK_IN_PLACE_MAX: usize = 256 * 1024;

/// What a request wants to see of documents beside their bodies.
#[derive(Debug, Clone, Copy, Default)]
pub struct Shape {
    /// `_revisions`
    pub revs: bool,
    /// `encoding` and `encoded_length` of attachments.
    pub att_encoding_info: bool,
}

impl Shape {
    /// Reads the query.
    pub fn of(request: &Request) -> Self {
        Self {
            revs: request.query.is_true("revs"),
            att_encoding_info: request.query.is_true("att_encoding_info"),
        }
    }
}

/// Appends the JSON of a document, without a line feed. `data` says what is shown of each attachment.
///
/// # Errors
/// 500 for damaged bytes.
pub fn write<'d>(
    opened: &OpenedDoc,
    shape: Shape,
    out: &mut Vec<u8>,
    data: impl FnMut(usize, &Attachment) -> AttachmentData<'d>,
) -> Result<(), HttpError> {
    let local_seq = opened.local_seq.map(|seq| seq.to_string());
    let options = JsonOptions {
        revs: shape.revs,
        revs_info: opened.revs_info.as_deref(),
        conflicts: &opened.conflicts,
        deleted_conflicts: &opened.deleted_conflicts,
        local_seq: local_seq.as_deref(),
        att_encoding_info: shape.att_encoding_info,
    };
    opened
        .doc
        .write_json_with(out, &options, data)
        .map_err(|error| damaged(&opened.doc.id, &error.to_string()))
}

/// Appends the JSON of a document with stubs for its attachments.
///
/// # Errors
/// 500 for damaged bytes.
pub fn write_stubs(opened: &OpenedDoc, shape: Shape, out: &mut Vec<u8>) -> Result<(), HttpError> {
    write(opened, shape, out, |_, _| AttachmentData::Stub)
}

fn damaged(id: &DocId, detail: &str) -> HttpError {
    HttpError::new(500, "corrupt_data", format!("document {}: {detail}", id.as_str()))
}

/// Which attachments are sent in full.
#[derive(Debug, Clone, Default)]
pub enum Wanted {
    /// None.
    #[default]
    Stubs,
    /// All.
    All,
    /// Those that are newer than the newest of these revisions that the document descends from.
    Since(Vec<Rev>),
}

impl Wanted {
    /// For each attachment of a document, whether it is sent in full.
    pub fn choose(&self, doc: &Doc) -> Vec<bool> {
        match self {
            Self::Stubs => vec![false; doc.atts.len()],
            Self::All => vec![true; doc.atts.len()],
            Self::Since(known) => {
                let common = common_position(doc, known);
                doc.atts.iter().map(|att| att.revpos > common).collect()
            }
        }
    }
}

/// The position of the newest revision of the document's branch that is among `known`; 0 for none.
fn common_position(doc: &Doc, known: &[Rev]) -> u64 {
    let mut position = doc.revs.start;
    for id in &doc.revs.ids {
        if known.iter().any(|rev| rev.pos == position && rev.id == *id) {
            return position;
        }
        position = position.saturating_sub(1);
    }
    0
}

/// Reads the chosen attachments of a document, unpacked, for putting them inline.
///
/// # Errors
/// What reading met.
pub async fn inline(
    request: &Request,
    db: &DbName,
    opened: &OpenedDoc,
    chosen: &[bool],
) -> Result<Vec<Option<Vec<u8>>>, HttpError> {
    inline_of(&request.app, db, opened, chosen).await
}

/// As [`inline`], for when the request is gone.
///
/// # Errors
/// What reading met.
pub async fn inline_of(
    app: &App,
    db: &DbName,
    opened: &OpenedDoc,
    chosen: &[bool],
) -> Result<Vec<Option<Vec<u8>>>, HttpError> {
    let mut all = Vec::with_capacity(chosen.len());
    for (index, (att, chosen)) in opened.doc.atts.iter().zip(chosen).enumerate() {
        if !chosen {
            all.push(None);
            continue;
        }
        let stored = app
            .coordinator
            .attachment(db, opened, index)
            .await?
            .read_all()
            .await?;
        all.push(Some(unpack(&opened.doc.id, att, stored).await?));
    }
    Ok(all)
}

async fn unpack(id: &DocId, att: &Attachment, stored: Vec<u8>) -> Result<Vec<u8>, HttpError> {
    let att = att.clone();
    let large = stored.len() > UNPACK_IN_PLACE_MAX;
    let decode = move || {
        att.decode(&stored)
            .map(std::borrow::Cow::into_owned)
            .map_err(|error| error.to_string())
    };
    let decoded = if large {
        actix_web::web::block(decode)
            .await
            .unwrap_or_else(|_| Err("unpacking was cancelled".to_owned()))
    } else {
        decode()
    };
    decoded.map_err(|detail| damaged(id, &detail))
}

/// Appends the JSON of a document with these attachments inline.
///
/// # Errors
/// 500 for damaged bytes.
pub fn write_inline(
    opened: &OpenedDoc,
    shape: Shape,
    inline: &[Option<Vec<u8>>],
    out: &mut Vec<u8>,
) -> Result<(), HttpError> {
    write(opened, shape, out, |index, _| match inline.get(index) {
        Some(Some(bytes)) => AttachmentData::Inline(bytes.as_slice().into()),
        _ => AttachmentData::Stub,
    })
}

/// Whether the revision of a document says what is in it: it is the hash of just this content. Only then may a client
/// that knows the revision be told that it knows the document, because a revision that a client made up can stand for
/// another content in a database of the same name.
pub fn rev_names_content(doc: &Doc) -> bool {
    if doc.id.is_local() {
        return true;
    }
    let Some(rev) = doc.rev() else { return false };
    let parent = match (doc.revs.ids.get(1), rev.pos) {
        (Some(id), pos) => Some(Rev::new(pos - 1, id.clone())),
        (None, 1) => None,
        (None, _) => return false,
    };
    let content = RevContent {
        deleted: doc.deleted,
        parent: parent.as_ref(),
        body: &doc.body,
        atts: doc.atts.iter().map(Attachment::digest).collect(),
    };
    if new_rev_id(&content) == rev.id {
        return true;
    }
    // Writing a deleted document again is hashed in another way.
    parent
        .as_ref()
        .is_some_and(|parent| !doc.deleted && recreated_rev_id(parent, &doc.body, doc.atts.len()) == rev.id)
}

/// Bounds on documents, from the settings.
pub fn limits(request: &Request) -> DocLimits {
    let couchdb = &request.settings.couchdb;
    let finite = |bound: Bound| match bound {
        Bound::Finite(bytes) => Some(bytes),
        Bound::Infinity => None,
    };
    DocLimits {
        document_bytes_max: couchdb.max_document_size,
        attachment_bytes_max: finite(couchdb.max_attachment_size),
        doc_id_bytes_max: finite(couchdb.max_document_id_length)
            .and_then(|bytes| usize::try_from(bytes).ok()),
    }
}

/// Parses a document whose id the URL gives.
///
/// # Errors
/// 400 or 413.
pub fn parse_at(request: &Request, json: &Bytes, id: &DocId) -> Result<DocEdit, HttpError> {
    // Whether it names its revision is looked at later, because the URL may name it as well.
    let options = EditOptions {
        id: IdSource::Url(id),
        new_edits: true,
        limits: limits(request),
    };
    Ok(parse_edit(json, &options)?)
}

/// Parses a document that brings its id or gets a new one.
///
/// # Errors
/// 400 or 413.
pub fn parse_new(request: &Request, json: &Bytes) -> Result<DocEdit, HttpError> {
    let make = || fresh_id(request);
    let options = EditOptions {
        id: IdSource::BodyOr(&make),
        new_edits: true,
        limits: limits(request),
    };
    Ok(parse_edit(json, &options)?)
}

/// How the documents of a list are read, each of which brings its id or gets a new one.
pub fn parse_options(request: &Request, new_edits: bool) -> ParseDocs {
    let (app, settings) = (request.app.clone(), request.settings.clone());
    ParseDocs {
        new_edits,
        limits: limits(request),
        make_id: Some(Arc::new(move || make_id(&app, &settings))),
    }
}

fn fresh_id(request: &Request) -> DocId {
    make_id(&request.app, &request.settings)
}

fn make_id(app: &App, settings: &Settings) -> DocId {
    let text = app.uuids.one(&settings.uuids);
    DocId::new(&text).unwrap_or_else(|_| {
        // Only a configured suffix can make a bad id; 32 hex digits are always a good one.
        DocId::new(&outside::random_hex()).expect("hex digits are a document id")
    })
}

/// The edit that DELETE makes: an empty deletion.
///
/// # Errors
/// None that a valid id can cause.
pub fn tombstone(request: &Request, id: &DocId) -> Result<DocEdit, HttpError> {
    parse_at(request, &Bytes::from_static(b"{\"_deleted\":true}"), id)
}

/// The edit that keeps a stored document's body and attachments.
pub fn edit_of(doc: Doc) -> DocEdit {
    let external_size = settee_engine::codec::json::ejson_size(&doc.body);
    DocEdit {
        id: doc.id,
        revs: doc.revs,
        deleted: doc.deleted,
        body: doc.body,
        external_size,
        atts: doc.atts.into_iter().map(EditAttachment::stored).collect(),
    }
}

/// Refuses a replicated document that does not name its revision.
///
/// # Errors
/// 400.
pub fn require_revs(edit: &DocEdit) -> Result<(), HttpError> {
    if edit.revs.is_empty() {
        Err(DocError::MissingRev.into())
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use settee_engine::doc::RevPath;
    use settee_engine::ids::RevId;

    fn doc(json: &str, limits: DocLimits) -> Doc {
        let id = DocId::new("d").expect("an id");
        let options = EditOptions {
            id: IdSource::Url(&id),
            new_edits: true,
            limits,
        };
        let edit = parse_edit(json.as_bytes(), &options).expect("a document");
        let revs = edit.new_revs();
        Doc {
            id: edit.id,
            revs,
            deleted: edit.deleted,
            body: edit.body,
            atts: Vec::new(),
            local_seq: 1,
        }
    }

    #[test]
    fn a_made_up_revision_does_not_name_its_content() {
        let mut doc = doc("{\"a\":1}", DocLimits::default());
        assert!(rev_names_content(&doc));
        doc.revs = RevPath::single(Rev::new(1, RevId::new(b"x")));
        assert!(!rev_names_content(&doc));
    }

    #[test]
    fn attachments_newer_than_a_known_ancestor_are_sent() {
        let mut doc = doc("{}", DocLimits::default());
        doc.revs = RevPath::single(Rev::new(2, RevId::new(b"a")))
            .child(RevId::new(b"b"))
            .child(RevId::new(b"c"));
        let known = |text: &[u8], pos| Rev::new(pos, RevId::new(text));
        assert_eq!(common_position(&doc, &[known(b"b", 3), known(b"a", 2)]), 3);
        assert_eq!(common_position(&doc, &[known(b"b", 2)]), 0);
        doc.atts = vec![
            Attachment {
                revpos: 2,
                ..Attachment::default()
            },
            Attachment {
                revpos: 4,
                ..Attachment::default()
            },
        ];
        assert_eq!(Wanted::Since(vec![known(b"b", 3)]).choose(&doc), [false, true]);
        assert_eq!(Wanted::All.choose(&doc), [true, true]);
        assert_eq!(Wanted::Stubs.choose(&doc), [false, false]);
    }
}
