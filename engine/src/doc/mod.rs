//! Documents: revision trees, revision ids, bodies and attachments on disk and as JSON, validation and limits.
//!
//! This layer has never heard of a file: it takes and gives terms and JSON texts. What must be written to a file first
//! (summaries, attachment chunks) is produced as bytes, and the pointers come back in from the layer above.

pub mod attachment;
pub mod document;
pub mod edit;
pub mod error;
pub mod info;
pub mod local;
pub mod md5_lanes;
mod revid;
pub mod revtree;
pub mod stream;
pub mod summary;
pub mod validate;

pub use attachment::{Attachment, Encoding};
pub use document::{AttachmentData, Doc, JsonOptions};
pub use edit::{
    AttData, DocEdit, EditAttachment, EditOptions, IdSource, parse_edit, parse_edit_from, parse_edits,
};
pub use error::{DocError, StoredDocError};
pub use info::FullDocInfo;
pub use revid::{AttDigest, RevContent, new_rev_id, new_rev_ids, recreated_rev_id};
pub use revtree::{Leaf, MergeOutcome, NodeRef, RevPath, RevTree, Sizes, Stream, WinnerView};
pub use validate::DocLimits;
