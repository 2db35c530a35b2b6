//! Questions to a tree: leaves, winner, paths, what is missing.

use super::{Leaf, RevPath, RevTree};
use crate::ids::{Rev, RevId};
use std::cmp::Reverse;

/// One revision in a tree.
#[derive(Clone, Copy, Debug)]
pub struct NodeRef<'t> {
    tree: &'t RevTree,
    index: usize,
}

/// What is known of a revision, as `_revs_info` tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RevStatus {
    /// Its body is stored.
    Available,
    /// Only its id is known.
    Missing,
    /// It is a deletion.
    Deleted,
}

impl RevStatus {
    /// The word for it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Available => "available",
            Self::Missing => "missing",
            Self::Deleted => "deleted",
        }
    }
}

impl<'t> NodeRef<'t> {
    pub(super) const fn index(self) -> usize {
        self.index
    }

    /// Position.
    #[must_use]
    pub fn pos(self) -> u64 {
        self.tree.nodes[self.index].pos
    }

    /// Revision id.
    #[must_use]
    pub fn id(self) -> &'t RevId {
        &self.tree.nodes[self.index].id
    }

    /// The revision.
    #[must_use]
    pub fn rev(self) -> Rev {
        Rev::new(self.pos(), self.id().clone())
    }

    /// What is stored of it; nothing when only its id is known.
    #[must_use]
    pub fn leaf(self) -> Option<&'t Leaf> {
        self.tree.nodes[self.index].leaf.as_ref()
    }

    /// Whether no revision follows it.
    #[must_use]
    pub fn is_leaf(self) -> bool {
        self.tree.is_leaf_at(self.index)
    }

    /// Whether it is known to be a deletion.
    #[must_use]
    pub fn is_deleted(self) -> bool {
        self.leaf().is_some_and(|leaf| leaf.deleted)
    }

    /// It and its known ancestors, the newest first.
    #[must_use]
    pub fn path(self) -> RevPath {
        let ids = self.ancestors().map(|node| node.id().clone()).collect();
        RevPath {
            start: self.pos(),
            ids,
        }
    }

    /// It and its known ancestors, the newest first.
    pub fn ancestors(self) -> impl Iterator<Item = Self> {
        let tree = self.tree;
        tree.ancestors_from(self.index)
            .map(move |index| Self { tree, index })
    }

    /// What `_revs_info` says of it and its ancestors.
    #[must_use]
    pub fn revs_info(self) -> Vec<(Rev, RevStatus)> {
        let status = |node: Self| match node.leaf() {
            None => RevStatus::Missing,
            Some(leaf) if leaf.deleted => RevStatus::Deleted,
            Some(_) => RevStatus::Available,
        };
        self.ancestors().map(|node| (node.rev(), status(node))).collect()
    }

    /// What the winner is greatest in: live before deleted, then position, then id. A leaf without a body loses to all.
    fn rank(self) -> (bool, bool, u64, &'t RevId) {
        let leaf = self.leaf();
        (
            leaf.is_some(),
            leaf.is_some_and(|leaf| !leaf.deleted),
            self.pos(),
            self.id(),
        )
    }
}

impl RevTree {
    fn node(&self, index: usize) -> NodeRef<'_> {
        NodeRef { tree: self, index }
    }

    /// Indexes of a node and its ancestors, the newest first.
    pub(super) fn ancestors_from(&self, index: usize) -> impl Iterator<Item = usize> {
        std::iter::successors(Some(index), |index| self.parent_of(*index))
    }

    /// The leaves in the tree's order.
    pub fn leaves(&self) -> impl Iterator<Item = NodeRef<'_>> {
        (0..self.nodes.len())
            .filter(|index| self.is_leaf_at(*index))
            .map(|index| self.node(index))
    }

    /// The leaves, the winner first: live before deleted, then higher positions, then greater ids.
    #[must_use]
    pub fn leaves_sorted(&self) -> Vec<NodeRef<'_>> {
        let mut leaves: Vec<NodeRef<'_>> = self.leaves().collect();
        leaves.sort_by_key(|node| Reverse(node.rank()));
        leaves
    }

    /// The revision that the document shows; nothing in an empty tree.
    #[must_use]
    pub fn winner(&self) -> Option<NodeRef<'_>> {
        self.leaves().max_by_key(|node| node.rank())
    }

    /// Whether no leaf is live.
    #[must_use]
    pub fn is_deleted(&self) -> bool {
        !self
            .leaves()
            .any(|node| node.leaf().is_some_and(|leaf| !leaf.deleted))
    }

    /// The greatest sequence of any revision; 0 when none is stored.
    #[must_use]
    pub fn max_seq(&self) -> u64 {
        self.nodes
            .iter()
            .filter_map(|node| node.leaf.as_ref())
            .map(|leaf| leaf.seq)
            .max()
            .unwrap_or(0)
    }

    /// A revision anywhere in the tree.
    #[must_use]
    pub fn find(&self, rev: &Rev) -> Option<NodeRef<'_>> {
        let index = self
            .nodes
            .iter()
            .position(|node| node.pos == rev.pos && node.id == rev.id)?;
        Some(self.node(index))
    }

    /// A revision that is a leaf.
    #[must_use]
    pub fn find_leaf(&self, rev: &Rev) -> Option<NodeRef<'_>> {
        self.find(rev).filter(|node| node.is_leaf())
    }

    /// A revision with its ancestors.
    #[must_use]
    pub fn path_of(&self, rev: &Rev) -> Option<RevPath> {
        self.find(rev).map(NodeRef::path)
    }

    /// The leaves at or below a revision, in the tree's order; none if the revision is not known.
    #[must_use]
    pub fn latest(&self, rev: &Rev) -> Vec<NodeRef<'_>> {
        let Some(found) = self.find(rev) else {
            return Vec::new();
        };
        let below = found.index..self.subtree_end(found.index);
        below
            .filter(|index| self.is_leaf_at(*index))
            .map(|index| self.node(index))
            .collect()
    }

    /// Those of `revs` that stand nowhere in the tree, sorted.
    #[must_use]
    pub fn missing(&self, revs: &[Rev]) -> Vec<Rev> {
        let mut wanted: Vec<(&Rev, bool)> = revs.iter().map(|rev| (rev, false)).collect();
        wanted.sort_unstable();
        for node in &self.nodes {
            let order = |(rev, _): &(&Rev, bool)| rev.pos.cmp(&node.pos).then_with(|| rev.id.cmp(&node.id));
            let at = wanted.partition_point(|entry| order(entry).is_lt());
            wanted
                .iter_mut()
                .skip(at)
                .take_while(|entry| order(entry).is_eq())
                .for_each(|entry| entry.1 = true);
        }
        wanted
            .into_iter()
            .filter(|(_, found)| !found)
            .map(|(rev, _)| rev.clone())
            .collect()
    }

    /// Leaves from which a client's missing revisions may descend: those before the greatest of `missing`.
    #[must_use]
    pub fn possible_ancestors(&self, missing: &[Rev]) -> Vec<Rev> {
        let Some(max_pos) = missing.iter().map(|rev| rev.pos).max() else {
            return Vec::new();
        };
        self.leaves_sorted()
            .into_iter()
            .map(NodeRef::rev)
            .filter(|rev| rev.pos < max_pos)
            .collect()
    }
}
