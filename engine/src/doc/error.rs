//! What can be wrong with a document that a client sends, or with one that a file holds.

use crate::codec::compress::CompressError;
use crate::codec::json::JsonError;
use crate::codec::term::TermError;
use crate::doc::revtree::RevTreeError;
use crate::ids::{DocIdError, RevError};
use std::borrow::Cow;
use thiserror::Error;

/// Why a document is refused. [`DocError::error_and_reason`] gives CouchDB's words for it.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum DocError {
    /// The text is not JSON.
    #[error("invalid json: {0}")]
    InvalidJson(#[from] JsonError),
    /// The JSON value is not an object.
    #[error("document is not an object")]
    NotAnObject,
    /// The id breaks the rules.
    #[error(transparent)]
    IllegalDocId(#[from] DocIdError),
    /// There is no id, and the caller does not make one.
    #[error("document has no id")]
    MissingId,
    /// A revision cannot be parsed.
    #[error("invalid rev format")]
    InvalidRevFormat,
    /// A member with an underscore first that is not known, or that has a value of the wrong kind.
    #[error("bad special document member {0:?}")]
    BadSpecialMember(String),
    /// `_revisions.start` is no integer.
    #[error("_revisions.start is no integer")]
    RevisionsStart,
    /// `_revisions.ids` is no array.
    #[error("_revisions.ids is no array")]
    RevisionsIds,
    /// An element of `_revisions.ids` is no string.
    #[error("revision id is no string")]
    RevIdNotString,
    /// An element of `_revisions.ids` of 32 characters is not hexadecimal.
    #[error("revision id is not hexadecimal")]
    RevIdNotHex,
    /// `_revisions` lists more revisions than there are positions up to its start, or more than the bound.
    #[error("_revisions does not fit its start")]
    RevisionsOutOfRange,
    /// `new_edits=false` without a revision.
    #[error("document has no revision")]
    MissingRev,
    /// The body is larger than the bound. `id` is empty when the body does not name one.
    #[error("document {id:?} is too large")]
    DocumentTooLarge {
        /// The document's id as the body gives it.
        id: String,
    },
    /// An attachment is larger than the bound.
    #[error("attachment {name:?} is too large")]
    AttachmentTooLarge {
        /// The attachment.
        name: String,
    },
    /// An attachment's data is missing or is not base64.
    #[error("invalid data of attachment {name:?}")]
    InvalidAttachmentData {
        /// The attachment.
        name: String,
    },
    /// An attachment's encoding is neither `identity` nor `gzip`.
    #[error("unknown encoding of attachment {name:?}")]
    UnknownAttachmentEncoding {
        /// The attachment.
        name: String,
    },
    /// An attachment's name begins with an underscore.
    #[error("attachment name {name:?} begins with an underscore")]
    AttachmentNameUnderscore {
        /// The attachment.
        name: String,
    },
    /// An attachment's name, from a URL, is not UTF-8.
    #[error("attachment name is not utf-8")]
    AttachmentNameNotUtf8,
    /// Two attachments have the same name.
    #[error("duplicate attachments")]
    DuplicateAttachments,
    /// A stub names an attachment that the previous revision does not have, or not with that `revpos`.
    #[error("invalid attachment stub in {id:?} for {name:?}")]
    MissingStub {
        /// The document.
        id: String,
        /// The attachment.
        name: String,
    },
    /// Stubs, but no previous revision.
    #[error("previous revision missing for document {id:?}")]
    MissingStubParent {
        /// The document.
        id: String,
    },
    /// An attachment's bytes do not have the digest that the client gave.
    #[error("md5 of attachment {name:?} does not match")]
    Md5Mismatch {
        /// The attachment.
        name: String,
    },
    /// More bytes than the announced length.
    #[error("attachment longer than expected")]
    AttachmentLonger,
    /// Fewer bytes than the announced length.
    #[error("attachment shorter than expected")]
    AttachmentShorter,
    /// An attachment on a local document.
    #[error("local documents do not accept attachments")]
    LocalAttachments,
}

impl From<RevError> for DocError {
    fn from(_: RevError) -> Self {
        Self::InvalidRevFormat
    }
}

impl DocError {
    /// CouchDB's error word and reason.
    #[must_use]
    pub fn error_and_reason(&self) -> (&'static str, Cow<'static, str>) {
        let (error, reason) = match self {
            Self::InvalidJson(_) => ("bad_request", "invalid UTF-8 JSON"),
            Self::NotAnObject => ("bad_request", "Document must be a JSON object"),
            Self::IllegalDocId(error) => ("illegal_docid", doc_id_reason(*error)),
            Self::MissingId => ("illegal_docid", doc_id_reason(DocIdError::Empty)),
            Self::InvalidRevFormat => ("bad_request", "Invalid rev format"),
            Self::RevisionsStart => ("doc_validation", "_revisions.start isn't an integer."),
            Self::RevisionsIds => ("doc_validation", "_revisions.ids isn't a array."),
            Self::RevIdNotString => ("doc_validation", "RevId isn't a string"),
            Self::RevIdNotHex => ("doc_validation", "RevId isn't a valid hexadecimal"),
            Self::RevisionsOutOfRange => ("doc_validation", "_revisions.ids doesn't fit _revisions.start"),
            Self::MissingRev => (
                "bad_request",
                "When `new_edits: false`, the document needs `_rev` or `_revisions` specified",
            ),
            Self::AttachmentNameNotUtf8 => ("bad_request", "Attachment name is not UTF-8 encoded"),
            Self::DuplicateAttachments => ("bad_request", "Duplicate attachments"),
            Self::AttachmentLonger => ("bad_request", "attachment longer than expected"),
            Self::AttachmentShorter => ("bad_request", "attachment shorter than expected"),
            Self::LocalAttachments => ("bad_request", "_local documents do not accept attachments."),
            Self::Md5Mismatch { .. } => ("content_md5_mismatch", "Possible message corruption."),
            named => return named.error_and_named_reason(),
        };
        (error, Cow::Borrowed(reason))
    }

    /// The part of the table whose reasons name something; the others do not come here.
    fn error_and_named_reason(&self) -> (&'static str, Cow<'static, str>) {
        let (error, reason) = match self {
            Self::BadSpecialMember(name) => {
                ("doc_validation", format!("Bad special document member: {name}"))
            }
            Self::DocumentTooLarge { id } => ("document_too_large", id.clone()),
            Self::AttachmentTooLarge { name } => ("attachment_too_large", name.clone()),
            Self::InvalidAttachmentData { name } => {
                ("bad_request", format!("Invalid attachment data for {name}"))
            }
            Self::UnknownAttachmentEncoding { name } => {
                ("bad_request", format!("Unknown attachment encoding for {name}"))
            }
            Self::AttachmentNameUnderscore { name } => (
                "bad_request",
                format!("Attachment name '{name}' starts with prohibited character '_'"),
            ),
            Self::MissingStub { id, name } => (
                "missing_stub",
                format!("Invalid attachment stub in {id} for {name}"),
            ),
            Self::MissingStubParent { id } => (
                "missing_stub",
                format!("Previous revision missing for document {id}"),
            ),
            other => ("bad_request", other.to_string()),
        };
        (error, Cow::Owned(reason))
    }
}

/// CouchDB's reason for an illegal document id.
#[must_use]
pub const fn doc_id_reason(error: DocIdError) -> &'static str {
    match error {
        DocIdError::Empty => "Document id must not be empty",
        DocIdError::EmptyDesign => "Illegal document id `_design/`",
        DocIdError::EmptyLocal => "Illegal document id `_local/`",
        DocIdError::Reserved => "Only reserved document ids may start with underscore.",
        DocIdError::NotUtf8 => "Document id must be valid UTF-8",
        DocIdError::TooLong => "Document id is too long",
        DocIdError::NotString => "Document id must be a string",
    }
}

/// Why what a file holds of a document cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum StoredDocError {
    /// The bytes are not the terms expected.
    #[error("stored document: {0}")]
    Term(#[from] TermError),
    /// A compressed part is damaged.
    #[error("stored document: {0}")]
    Compression(#[from] CompressError),
    /// The revision tree is damaged.
    #[error(transparent)]
    RevTree(#[from] RevTreeError),
    /// A term of another shape.
    #[error("stored document: unexpected {0}")]
    Shape(&'static str),
    /// An id that is not UTF-8.
    #[error("stored document id: {0}")]
    Id(#[from] DocIdError),
    /// An attachment's bytes do not have the digest that is stored with it.
    #[error("attachment {name:?} is damaged")]
    DamagedAttachment {
        /// The attachment.
        name: String,
    },
}
