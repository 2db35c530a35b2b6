//! Documents: revision trees, revision ids, bodies and attachments on disk and as JSON, validation and limits.
//!
//! This layer has never heard of a file: it takes and gives terms and JSON texts. What must be written to a file first
//! (summaries, attachment chunks) is produced as bytes, and the pointers come back in from the layer above.

pub mod revtree;

pub use revtree::{Leaf, MergeOutcome, NodeRef, RevPath, RevTree, Sizes, Stream, WinnerView};
