//! Revision trees: every revision of a document that is known, where each stands, and what is stored of it.
//!
//! A tree is kept as one flat list of nodes in preorder, each with its position. A child stands at the position of its
//! parent plus one, so no links are needed, nothing is recursive, and the usual tree of one revision takes no allocation.

mod codec;
mod merge;
mod query;
mod raw;
mod stem;

pub use codec::RevTreeError;
pub use query::{NodeRef, RevStatus};
pub use raw::{LeafView, WinnerView, leaves_of_raw, winner_of_raw};

pub(crate) use codec::{read_sizes, read_stream, write_sizes, write_stream};

use crate::ids::{Rev, RevId};
use smallvec::SmallVec;

/// Length of a chunk in a [`Stream`] of an old file that did not note it.
pub const CHUNK_LEN_UNKNOWN: u64 = u64::MAX;

/// Sequence of a leaf that is not yet written; see [`RevTree::settle`].
pub const SEQ_PENDING: u64 = u64::MAX;

/// Where an attachment lies: position and length of each chunk, in bytes.
pub type Stream = Vec<(u64, u64)>;

/// Revision ids of a path; short ones stay inline.
pub type RevIds = SmallVec<[RevId; 2]>;

/// How much a revision or a document takes, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sizes {
    /// In the file.
    pub active: u64,
    /// As JSON, roughly.
    pub external: u64,
}

/// What is stored of one revision. An inner revision keeps this too until compaction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Leaf {
    /// Whether the revision is a deletion.
    pub deleted: bool,
    /// Where its summary begins in the file; while `seq` is [`SEQ_PENDING`], whatever the caller put there.
    pub ptr: u64,
    /// The update that wrote it.
    pub seq: u64,
    /// Its sizes, without attachments.
    pub sizes: Sizes,
    /// Streams of its attachments with their stored lengths, sorted and without repetition.
    pub atts: Vec<(Stream, u64)>,
}

impl Leaf {
    /// A leaf that is not yet written: `tag` is the caller's own and comes back in [`RevTree::settle`].
    #[must_use]
    pub const fn pending(deleted: bool, tag: u64) -> Self {
        Self {
            deleted,
            ptr: tag,
            seq: SEQ_PENDING,
            sizes: Sizes {
                active: 0,
                external: 0,
            },
            atts: Vec::new(),
        }
    }

    /// Sets the attachments' streams, sorted and without repetition as they stand in a file.
    pub fn set_atts(&mut self, mut atts: Vec<(Stream, u64)>) {
        atts.sort_unstable();
        atts.dedup();
        self.atts = atts;
    }
}

/// One revision with its ancestors as far as they are known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RevPath {
    /// Position of the newest revision; 0 only when there is none.
    pub start: u64,
    /// Ids, the newest first. Never more than positions from 1 (or 0) to `start`.
    pub ids: RevIds,
}

impl RevPath {
    /// The path of one revision whose ancestors are not known.
    #[must_use]
    pub fn single(rev: Rev) -> Self {
        Self {
            start: rev.pos,
            ids: SmallVec::from_iter([rev.id]),
        }
    }

    /// The newest revision.
    #[must_use]
    pub fn rev(&self) -> Option<Rev> {
        self.ids.first().map(|id| Rev::new(self.start, id.clone()))
    }

    /// The path of a new edit whose parent is the newest revision here (or that has none).
    #[must_use]
    pub fn child(&self, id: RevId) -> Self {
        let mut ids = RevIds::with_capacity(self.ids.len() + 1);
        ids.push(id);
        ids.extend(self.ids.iter().cloned());
        Self {
            start: self.start.saturating_add(1),
            ids,
        }
    }

    /// Whether no revision is named.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }
}

/// What a merge did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MergeOutcome {
    /// The path extends a leaf, or is the first one.
    NewLeaf,
    /// The path begins a branch or a tree of its own: a conflict.
    NewBranch,
    /// The path ends at a revision that was there already.
    InternalNode,
}

/// One revision in a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Node {
    pub(crate) id: RevId,
    pub(crate) pos: u64,
    /// Whether the node begins a tree of its own, its parent being unknown.
    pub(crate) root: bool,
    /// What is stored of it; nothing when only its id is known.
    pub(crate) leaf: Option<Leaf>,
}

/// All known revisions of a document.
///
/// Invariants: nodes stand in preorder, children sorted by id, roots by position and then id; a node that is no root
/// stands at its parent's position plus one; the first node is a root.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RevTree {
    pub(crate) nodes: SmallVec<[Node; 1]>,
}

impl RevTree {
    /// A tree without revisions.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The tree of one path.
    #[must_use]
    pub fn single(path: &RevPath, leaf: Option<Leaf>) -> Self {
        let mut tree = Self::new();
        tree.merge(path, leaf);
        tree
    }

    /// Number of revisions.
    #[must_use]
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether there is no revision.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Whether no child follows the node at `index`.
    pub(crate) fn is_leaf_at(&self, index: usize) -> bool {
        match (self.nodes.get(index), self.nodes.get(index + 1)) {
            (Some(node), Some(next)) => next.root || next.pos <= node.pos,
            _ => true,
        }
    }

    /// The index behind the last descendant of the node at `index`.
    pub(crate) fn subtree_end(&self, index: usize) -> usize {
        let Some(node) = self.nodes.get(index) else {
            return self.nodes.len();
        };
        let behind = self
            .nodes
            .iter()
            .skip(index + 1)
            .position(|other| other.root || other.pos <= node.pos);
        behind.map_or(self.nodes.len(), |count| index + 1 + count)
    }

    /// The index behind the last node of the tree whose root stands at `index`.
    pub(crate) fn root_end(&self, index: usize) -> usize {
        let behind = self.nodes.iter().skip(index + 1).position(|other| other.root);
        behind.map_or(self.nodes.len(), |count| index + 1 + count)
    }

    /// The index of the parent of the node at `index`.
    pub(crate) fn parent_of(&self, index: usize) -> Option<usize> {
        let node = self.nodes.get(index).filter(|node| !node.root)?;
        self.nodes[..index].iter().rposition(|other| other.pos < node.pos)
    }

    /// The sizes of the document: over its leaves, with every attachment stream counted once.
    #[must_use]
    pub fn doc_sizes(&self) -> Sizes {
        let mut sizes = Sizes::default();
        let mut streams: Vec<&(Stream, u64)> = Vec::new();
        for leaf in self.leaves().filter_map(|node| node.leaf()) {
            sizes.active = sizes.active.saturating_add(leaf.sizes.active);
            sizes.external = sizes.external.saturating_add(leaf.sizes.external);
            streams.extend(leaf.atts.iter());
        }
        streams.sort_unstable();
        streams.dedup();
        let attachments = streams
            .iter()
            .fold(0_u64, |sum, (_, len)| sum.saturating_add(*len));
        sizes.active = sizes.active.saturating_add(attachments);
        sizes.external = sizes.external.saturating_add(attachments);
        sizes
    }

    /// Gives every revision that is not yet written its sequence; `write` completes the rest (pointer, sizes, streams).
    pub fn settle(&mut self, seq: u64, mut write: impl FnMut(&mut Leaf)) {
        for leaf in self.nodes.iter_mut().filter_map(|node| node.leaf.as_mut()) {
            if leaf.seq == SEQ_PENDING {
                write(leaf);
                leaf.seq = seq;
            }
        }
    }

    /// Drops what is stored of inner revisions, as compaction does.
    pub fn forget_inner_bodies(&mut self) {
        for index in 0..self.nodes.len() {
            if !self.is_leaf_at(index) {
                self.nodes[index].leaf = None;
            }
        }
    }

    /// Visits everything that is stored, with whether it is a leaf, for instance to move pointers.
    pub fn for_each_stored(&mut self, mut visit: impl FnMut(&mut Leaf, bool)) {
        for index in 0..self.nodes.len() {
            let is_leaf = self.is_leaf_at(index);
            if let Some(leaf) = self.nodes[index].leaf.as_mut() {
                visit(leaf, is_leaf);
            }
        }
    }
}
