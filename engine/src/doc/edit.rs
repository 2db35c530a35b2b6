//! Parsing the JSON of a document that a client writes.

use crate::codec::json::{JsonError, JsonReader, Kind, ObjectBuilder, ejson_size};
use crate::doc::attachment::{
    Attachment, CONTENT_TYPE_DEFAULT, Encoding, check_attachment_name, decode_base64, parse_digest,
};
use crate::doc::error::DocError;
use crate::doc::revid::{RevContent, new_rev_id};
use crate::doc::revtree::{RevIds, RevPath};
use crate::doc::stream::Announced;
use crate::doc::validate::{DocLimits, SpecialMember};
use crate::ids::{DocId, DocIdError, Rev, RevId};
use crate::limits::{REV_POS_MAX, REVISIONS_MAX};
use smallvec::SmallVec;
use std::borrow::Cow;
use std::collections::HashSet;

/// A document to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DocEdit {
    /// The document.
    pub id: DocId,
    /// What `_rev` or `_revisions` say: the parent of a new edit, or the whole path of a replicated one.
    pub revs: RevPath,
    /// Whether it is a deletion.
    pub deleted: bool,
    /// The body without special members: a raw object term.
    pub body: Vec<u8>,
    /// `couch_ejson_size` of the body, in bytes: the external size of its leaf.
    pub external_size: u64,
    /// Its attachments in document order.
    pub atts: Vec<EditAttachment>,
}

/// An attachment of a document to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EditAttachment {
    /// Name.
    pub name: String,
    /// Content type.
    pub content_type: String,
    /// Where its bytes are.
    pub data: AttData,
    /// How the bytes come.
    pub encoding: Encoding,
    /// `revpos`, if given.
    pub revpos: Option<u64>,
    /// MD5 of the bytes as they come, if given and not inline.
    pub digest: Option<[u8; 16]>,
    /// Length without encoding, in bytes, if known.
    pub disk_len: Option<u64>,
}

/// Where the bytes of an attachment are that is to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AttData {
    /// Here.
    Inline(Vec<u8>),
    /// In the previous revision.
    Stub,
    /// Behind the document, so many of them (as they come) if the client said so.
    Follows {
        /// Number of bytes.
        length: Option<u64>,
    },
    /// Already in the file.
    Stored(Attachment),
}

/// Where a document's id comes from.
#[derive(Clone, Copy)]
pub enum IdSource<'a> {
    /// From the URL; a checked `_id` in the body is ignored.
    Url(&'a DocId),
    /// From the body.
    Body,
    /// From the body, or made by this function.
    BodyOr(&'a dyn Fn() -> DocId),
}

/// How a document is read.
#[derive(Clone, Copy)]
pub struct EditOptions<'a> {
    /// Where its id comes from.
    pub id: IdSource<'a>,
    /// Whether it is a new edit; a replicated one must name its revision.
    pub new_edits: bool,
    /// Bounds.
    pub limits: DocLimits,
}

impl std::fmt::Debug for EditOptions<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EditOptions")
            .field("new_edits", &self.new_edits)
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}

impl DocEdit {
    /// The revision that the edit is based on, or, of a replicated one, the revision itself.
    #[must_use]
    pub fn rev(&self) -> Option<Rev> {
        self.revs.rev()
    }

    /// Whether attachments have to be taken over from the previous revision.
    #[must_use]
    pub fn has_stubs(&self) -> bool {
        self.atts.iter().any(|att| att.data == AttData::Stub)
    }

    /// Replaces stubs by the attachments of the same name of the previous revision.
    ///
    /// # Errors
    /// There is no previous revision, it has no such attachment, or not with the given `revpos`.
    pub fn merge_stubs(&mut self, previous: Option<&[Attachment]>) -> Result<(), DocError> {
        let id = &self.id;
        for att in self.atts.iter_mut().filter(|att| att.data == AttData::Stub) {
            let previous = previous.ok_or_else(|| DocError::MissingStubParent {
                id: id.as_str().to_owned(),
            })?;
            let stored = previous
                .iter()
                .find(|stored| {
                    stored.name == att.name && att.revpos.is_none_or(|revpos| revpos == stored.revpos)
                })
                .ok_or_else(|| DocError::MissingStub {
                    id: id.as_str().to_owned(),
                    name: att.name.clone(),
                })?;
            *att = EditAttachment::stored(stored.clone());
        }
        Ok(())
    }

    /// The stored attachments; nothing if one is not stored yet.
    #[must_use]
    pub fn stored_atts(&self) -> Option<Vec<Attachment>> {
        let stored = |att: &EditAttachment| match &att.data {
            AttData::Stored(stored) => Some(stored.clone()),
            _ => None,
        };
        self.atts.iter().map(stored).collect()
    }

    /// The revision of this new edit and its path, once all attachments are stored.
    #[must_use]
    pub fn new_revs(&self) -> RevPath {
        let parent = self.rev();
        self.revs.child(new_rev_id(&self.rev_content(parent.as_ref())))
    }

    /// What the revision id of this new edit is made from, once all attachments are stored. `parent` is its
    /// [`rev`](Self::rev).
    #[must_use]
    pub fn rev_content<'a>(&'a self, parent: Option<&'a Rev>) -> RevContent<'a> {
        let stored = |att: &'a EditAttachment| match &att.data {
            AttData::Stored(stored) => Some(stored.digest()),
            _ => None,
        };
        RevContent {
            deleted: self.deleted,
            parent,
            body: &self.body,
            atts: self.atts.iter().filter_map(stored).collect(),
        }
    }
}

impl EditAttachment {
    /// An attachment that is already in the file.
    #[must_use]
    pub fn stored(stored: Attachment) -> Self {
        Self {
            name: stored.name.clone(),
            content_type: stored.content_type.clone(),
            encoding: stored.encoding,
            revpos: Some(stored.revpos),
            digest: None,
            disk_len: Some(stored.disk_len),
            data: AttData::Stored(stored),
        }
    }

    /// What the client said of bytes that are to be written to a stream.
    #[must_use]
    pub fn announced(&self) -> Announced {
        let att_len = match &self.data {
            AttData::Follows { length } => *length,
            _ => None,
        };
        Announced {
            encoding: self.encoding,
            digest: self.digest,
            att_len,
            disk_len: self.disk_len,
        }
    }
}

/// Parses the one document in `json`.
///
/// # Errors
/// [`DocError`]; a text that is not JSON is reported as such whatever else is wrong.
pub fn parse_edit(json: &[u8], options: &EditOptions<'_>) -> Result<DocEdit, DocError> {
    parse_text(json, options, &mut Vec::new())
}

/// Parses the documents in `texts`, one in each.
///
/// # Errors
/// [`DocError`] of the first that is none.
pub fn parse_edits<'t>(
    texts: impl Iterator<Item = &'t [u8]>,
    options: &EditOptions<'_>,
) -> Result<Vec<DocEdit>, DocError> {
    let mut body = Vec::new();
    texts.map(|json| parse_text(json, options, &mut body)).collect()
}

fn parse_text(json: &[u8], options: &EditOptions<'_>, body: &mut Vec<u8>) -> Result<DocEdit, DocError> {
    let parsed = JsonReader::new(json)
        .map_err(DocError::from)
        .and_then(|mut reader| {
            let edit = read_edit(&mut reader, options, body)?;
            reader.end()?;
            Ok(edit)
        });
    parsed.map_err(|error| match error {
        DocError::InvalidJson(_) => error,
        other => check_json(json).err().map_or(other, DocError::from),
    })
}

fn check_json(json: &[u8]) -> Result<(), JsonError> {
    let mut reader = JsonReader::new(json)?;
    reader.skip_value()?;
    reader.end()
}

/// What has been read of a document. A special member that comes again replaces what came before, errors too.
#[derive(Default)]
struct Parts<'a> {
    id: Option<Result<Cow<'a, str>, DocError>>,
    rev: Option<Result<Rev, DocError>>,
    revisions: Option<Result<RevPath, DocError>>,
    deleted: Option<Result<bool, DocError>>,
    atts: Option<Result<Vec<EditAttachment>, DocError>>,
}

/// Parses the document that stands next in `reader`, for instance an element of `docs`. After an error the reader stands
/// somewhere inside; whether the whole text is JSON is then for the caller to find out.
///
/// # Errors
/// [`DocError`].
pub fn parse_edit_from(reader: &mut JsonReader<'_>, options: &EditOptions<'_>) -> Result<DocEdit, DocError> {
    read_edit(reader, options, &mut Vec::new())
}

/// [`parse_edit_from`] with room for the body, so that a body which is kept takes no more than it needs.
fn read_edit(
    reader: &mut JsonReader<'_>,
    options: &EditOptions<'_>,
    body: &mut Vec<u8>,
) -> Result<DocEdit, DocError> {
    if reader.peek_kind()? != Kind::Object {
        return Err(DocError::NotAnObject);
    }
    let begin = reader.position();
    reader.begin_object()?;
    let mut parts = Parts::default();
    let room = reader.remaining().min(BODY_BYTES_GUESS_MAX);
    body.clear();
    body.reserve(room + room / 4 + BODY_BYTES_FIRST);
    let mut object = ObjectBuilder::begin(body);
    while let Some(name) = reader.next_member()? {
        if name.as_bytes().first() == Some(&b'_') {
            match SpecialMember::of(&name) {
                SpecialMember::Kept => {}
                special => {
                    parts.read(special, &name, reader)?;
                    continue;
                }
            }
        }
        object.name(body, name.as_bytes());
        reader.value_to_term(body)?;
    }
    object.finish(body);
    let json_bytes = reader.position() - begin;
    parts.into_edit(body, json_bytes, options)
}

/// Room for a body beside a guess by the length of its text, in bytes.
const BODY_BYTES_FIRST: usize = 64;
/// The longest guess: what is longer grows.
const BODY_BYTES_GUESS_MAX: usize = 64 * 1024;

impl<'a> Parts<'a> {
    fn read(
        &mut self,
        special: SpecialMember,
        name: &str,
        reader: &mut JsonReader<'a>,
    ) -> Result<(), DocError> {
        let kind = reader.peek_kind()?;
        let bad = || DocError::BadSpecialMember(name.to_owned());
        match (special, kind) {
            (SpecialMember::Id, Kind::String) => self.id = Some(Ok(reader.read_string()?)),
            (SpecialMember::Rev, Kind::String) => {
                let text = reader.read_string()?;
                self.rev = Some(Rev::parse_bytes(text.as_bytes()).map_err(DocError::from));
            }
            (SpecialMember::Deleted, Kind::Bool) => self.deleted = Some(Ok(reader.read_bool()?)),
            (SpecialMember::Attachments, Kind::Object) => self.atts = Some(semantic(read_atts(reader))?),
            (SpecialMember::Revisions, Kind::Object) => self.revisions = Some(read_revisions(reader)?),
            (SpecialMember::Unknown, _) => return Err(bad()),
            (special, _) => {
                reader.skip_value()?;
                match special {
                    SpecialMember::Id => self.id = Some(Err(DocIdError::NotString.into())),
                    SpecialMember::Rev => self.rev = Some(Err(DocError::InvalidRevFormat)),
                    SpecialMember::Deleted => self.deleted = Some(Err(bad())),
                    SpecialMember::Attachments => self.atts = Some(Err(bad())),
                    SpecialMember::Revisions => self.revisions = Some(Err(bad())),
                    SpecialMember::Dropped | SpecialMember::Kept | SpecialMember::Unknown => {}
                }
            }
        }
        Ok(())
    }

    fn into_edit(
        self,
        body: &[u8],
        json_bytes: usize,
        options: &EditOptions<'_>,
    ) -> Result<DocEdit, DocError> {
        let body_id = self.id.transpose()?;
        if let Some(id) = &body_id {
            DocId::check(id, options.limits.doc_id_bytes_max)?;
        }
        let revs = match self.revisions.transpose()?.filter(|revs| !revs.is_empty()) {
            Some(revs) => revs,
            None => self.rev.transpose()?.map(RevPath::single).unwrap_or_default(),
        };
        let deleted = self.deleted.transpose()?.unwrap_or(false);
        let atts = self.atts.transpose()?.unwrap_or_default();
        let external_size = ejson_size(body);
        // No text is shorter than the size by CouchDB's rules, so a short text cannot be too large.
        let max = options.limits.document_bytes_max;
        if json_bytes as u64 > max && external_size > max {
            return Err(DocError::DocumentTooLarge {
                id: body_id.map(Cow::into_owned).unwrap_or_default(),
            });
        }
        for att in &atts {
            att.check_size(options.limits.attachment_bytes_max)?;
        }
        let id = match (options.id, body_id) {
            (IdSource::Url(id), _) => id.clone(),
            (_, Some(id)) => DocId::new(&id)?,
            (IdSource::BodyOr(make), None) => make(),
            (IdSource::Body, None) => return Err(DocError::MissingId),
        };
        if !options.new_edits && revs.is_empty() {
            return Err(DocError::MissingRev);
        }
        if id.is_local() && !atts.is_empty() {
            return Err(DocError::LocalAttachments);
        }
        Ok(DocEdit {
            id,
            revs,
            deleted,
            body: body.to_vec(),
            external_size,
            atts,
        })
    }
}

impl EditAttachment {
    fn check_size(&self, bytes_max: Option<u64>) -> Result<(), DocError> {
        let length = match &self.data {
            AttData::Inline(bytes) => Some(bytes.len() as u64),
            AttData::Follows { length } => *length,
            AttData::Stub | AttData::Stored(_) => None,
        };
        match (length, bytes_max) {
            (Some(length), Some(max)) if length > max => Err(DocError::AttachmentTooLarge {
                name: self.name.clone(),
            }),
            _ => Ok(()),
        }
    }
}

/// Parts errors of the text itself, which end all, from those of a member, which a later one may replace.
fn semantic<T>(result: Result<T, DocError>) -> Result<Result<T, DocError>, DocError> {
    match result {
        Err(error @ DocError::InvalidJson(_)) => Err(error),
        other => Ok(other),
    }
}

/// Reads `_revisions`; the outer error is one of the text.
fn read_revisions(reader: &mut JsonReader<'_>) -> Result<Result<RevPath, DocError>, DocError> {
    let mut start = None;
    let mut ids: Option<Result<RevTexts<'_>, DocError>> = None;
    reader.begin_object()?;
    while let Some(name) = reader.next_member()? {
        match (name.as_ref(), reader.peek_kind()?) {
            ("start", Kind::Number) => start = reader.read_i64().ok(),
            ("start", _) => {
                start = None;
                reader.skip_value()?;
            }
            ("ids", Kind::Array) => ids = Some(read_rev_texts(reader)?),
            ("ids", _) => {
                ids = None;
                reader.skip_value()?;
            }
            _ => {
                reader.skip_value()?;
            }
        }
    }
    Ok(revisions_path(start, ids))
}

type RevTexts<'a> = SmallVec<[Cow<'a, str>; 8]>;

fn read_rev_texts<'a>(reader: &mut JsonReader<'a>) -> Result<Result<RevTexts<'a>, DocError>, DocError> {
    let mut texts = Ok(RevTexts::new());
    reader.begin_array()?;
    while reader.next_element()? {
        if reader.peek_kind()? != Kind::String {
            reader.skip_value()?;
            texts = Err(DocError::RevIdNotString);
            continue;
        }
        let text = reader.read_string()?;
        if let Ok(list) = &mut texts {
            if list.len() >= REVISIONS_MAX {
                texts = Err(DocError::RevisionsOutOfRange);
            } else {
                list.push(text);
            }
        }
    }
    Ok(texts)
}

fn revisions_path(
    start: Option<i64>,
    ids: Option<Result<RevTexts<'_>, DocError>>,
) -> Result<RevPath, DocError> {
    let start = start.ok_or(DocError::RevisionsStart)?;
    let ids = ids.ok_or(DocError::RevisionsIds)??;
    let start = u64::try_from(start)
        .ok()
        .filter(|start| *start <= REV_POS_MAX)
        .ok_or(DocError::RevisionsOutOfRange)?;
    if ids.len() as u64 > start.max(1) || (ids.is_empty() && start > 0) {
        return Err(DocError::RevisionsOutOfRange);
    }
    let ids: Result<RevIds, _> = ids
        .iter()
        .map(|text| RevId::parse(start, text.as_bytes()))
        .collect();
    Ok(RevPath {
        start,
        ids: ids.map_err(|_| DocError::RevIdNotHex)?,
    })
}

/// Up to this many attachments, a repeated name is found by comparing each with each.
const PAIRWISE_ATTS_MAX: usize = 16;

/// Reads `_attachments`. Members that are no objects are ignored; of the same name the last one stays, in its place.
fn read_atts(reader: &mut JsonReader<'_>) -> Result<Vec<EditAttachment>, DocError> {
    let mut atts = Vec::new();
    let mut failure = None;
    reader.begin_object()?;
    while let Some(name) = reader.next_member()? {
        if reader.peek_kind()? != Kind::Object {
            reader.skip_value()?;
            continue;
        }
        match semantic(read_att(name.into_owned(), reader))? {
            Ok(att) => atts.push(att),
            Err(error) => failure = failure.or(Some(error)),
        }
    }
    if let Some(error) = failure {
        return Err(error);
    }
    keep_last_of_each_name(&mut atts);
    Ok(atts)
}

fn keep_last_of_each_name(atts: &mut Vec<EditAttachment>) {
    let repeated = if atts.len() <= PAIRWISE_ATTS_MAX {
        (1..atts.len()).any(|index| atts[..index].iter().any(|other| other.name == atts[index].name))
    } else {
        let mut seen: HashSet<&str, ahash::RandomState> = HashSet::default();
        atts.iter().any(|att| !seen.insert(&att.name))
    };
    if !repeated {
        return;
    }
    let mut seen: HashSet<String, ahash::RandomState> = HashSet::default();
    atts.reverse();
    atts.retain(|att| seen.insert(att.name.clone()));
    atts.reverse();
}

/// The members of one attachment.
#[derive(Default)]
struct AttMembers<'a> {
    content_type: Option<Cow<'a, str>>,
    data: Option<Cow<'a, str>>,
    stub: bool,
    follows: bool,
    length: Option<u64>,
    encoded_length: Option<u64>,
    encoding: Option<Cow<'a, str>>,
    revpos: Option<u64>,
    digest: Option<Cow<'a, str>>,
}

/// Reads one attachment to its end, and only then says what is wrong with it.
fn read_att(name: String, reader: &mut JsonReader<'_>) -> Result<EditAttachment, DocError> {
    let mut members = AttMembers::default();
    reader.begin_object()?;
    while let Some(member) = reader.next_member()? {
        match member.as_ref() {
            "content_type" => members.content_type = read_optional_string(reader)?,
            "data" => members.data = read_optional_string(reader)?,
            "encoding" => members.encoding = read_optional_string(reader)?,
            "digest" => members.digest = read_optional_string(reader)?,
            "stub" => members.stub = read_flag(reader)?,
            "follows" => members.follows = read_flag(reader)?,
            "length" => members.length = read_optional_u64(reader)?,
            "encoded_length" => members.encoded_length = read_optional_u64(reader)?,
            "revpos" => members.revpos = read_optional_u64(reader)?,
            _ => {
                reader.skip_value()?;
            }
        }
    }
    check_attachment_name(&name)?;
    members.into_attachment(name)
}

impl AttMembers<'_> {
    fn into_attachment(self, name: String) -> Result<EditAttachment, DocError> {
        let content_type = self
            .content_type
            .map_or_else(|| CONTENT_TYPE_DEFAULT.to_owned(), Cow::into_owned);
        let revpos = self.revpos;
        if !self.stub && !self.follows {
            let Some(bytes) = self.data.as_deref().and_then(decode_base64) else {
                return Err(DocError::InvalidAttachmentData { name });
            };
            let disk_len = Some(bytes.len() as u64);
            let (data, encoding) = (AttData::Inline(bytes), Encoding::Identity);
            return Ok(EditAttachment {
                name,
                content_type,
                data,
                encoding,
                revpos,
                digest: None,
                disk_len,
            });
        }
        let (encoding, att_len) = match self.encoding.as_deref() {
            None => (Encoding::Identity, self.length),
            Some("identity") => (Encoding::Identity, self.encoded_length.or(self.length)),
            Some("gzip") => (Encoding::Gzip, self.encoded_length.or(self.length)),
            Some(_) => return Err(DocError::UnknownAttachmentEncoding { name }),
        };
        let data = if self.stub {
            AttData::Stub
        } else {
            AttData::Follows { length: att_len }
        };
        let digest = self.digest.as_deref().and_then(parse_digest);
        Ok(EditAttachment {
            name,
            content_type,
            data,
            encoding,
            revpos,
            digest,
            disk_len: self.length,
        })
    }
}

fn read_optional_string<'a>(reader: &mut JsonReader<'a>) -> Result<Option<Cow<'a, str>>, JsonError> {
    if reader.peek_kind()? == Kind::String {
        return reader.read_string().map(Some);
    }
    reader.skip_value()?;
    Ok(None)
}

fn read_optional_u64(reader: &mut JsonReader<'_>) -> Result<Option<u64>, JsonError> {
    if reader.peek_kind()? == Kind::Number {
        // A number that is no integer of 64 bits has been read over; its text was well formed or the reader stands at it.
        let before = reader.position();
        let value = reader.read_i64();
        return match value {
            Ok(value) => Ok(u64::try_from(value).ok()),
            Err(error) if reader.position() == before => Err(error),
            Err(_) => Ok(None),
        };
    }
    reader.skip_value()?;
    Ok(None)
}

/// Only the literal `true` sets a flag.
fn read_flag(reader: &mut JsonReader<'_>) -> Result<bool, JsonError> {
    if reader.peek_kind()? == Kind::Bool {
        return reader.read_bool();
    }
    reader.skip_value()?;
    Ok(false)
}
