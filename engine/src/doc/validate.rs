//! Limits on documents, and the rules for members whose names begin with an underscore.

use crate::limits::{ATTACHMENT_BYTES_MAX_DEFAULT, DOCUMENT_BYTES_MAX_DEFAULT};

/// Bounds on what a client may write; `None` is CouchDB's `infinity`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DocLimits {
    /// `max_document_size`: bytes of the body as JSON, without special members and attachments.
    pub document_bytes_max: u64,
    /// `max_attachment_size`: bytes of one attachment.
    pub attachment_bytes_max: Option<u64>,
    /// `max_document_id_length`: bytes of an id.
    pub doc_id_bytes_max: Option<usize>,
}

impl Default for DocLimits {
    fn default() -> Self {
        Self {
            document_bytes_max: DOCUMENT_BYTES_MAX_DEFAULT,
            attachment_bytes_max: Some(ATTACHMENT_BYTES_MAX_DEFAULT),
            doc_id_bytes_max: None,
        }
    }
}

/// What becomes of a top-level member whose name begins with an underscore.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpecialMember {
    /// `_id`.
    Id,
    /// `_rev`.
    Rev,
    /// `_deleted`.
    Deleted,
    /// `_attachments`.
    Attachments,
    /// `_revisions`.
    Revisions,
    /// What a read added; dropped.
    Dropped,
    /// What the replicator and access control keep in the body.
    Kept,
    /// Refused.
    Unknown,
}

impl SpecialMember {
    /// What the member `name`, which begins with an underscore, is.
    #[must_use]
    pub fn of(name: &str) -> Self {
        match name {
            "_id" => Self::Id,
            "_rev" => Self::Rev,
            "_deleted" => Self::Deleted,
            "_attachments" => Self::Attachments,
            "_revisions" => Self::Revisions,
            "_revs_info" | "_local_seq" | "_conflicts" | "_deleted_conflicts" => Self::Dropped,
            "_access"
            | "_replication_state"
            | "_replication_state_time"
            | "_replication_state_reason"
            | "_replication_id"
            | "_replication_stats" => Self::Kept,
            _ => Self::Unknown,
        }
    }
}
