//! Stemming: forgetting the oldest revisions of each branch.

use super::{Node, RevTree};
use crate::ids::RevId;
use smallvec::SmallVec;
use std::collections::HashSet;

/// Trees up to this size are searched for repeated ids by comparing each with each.
const PAIRWISE_NODES_MAX: usize = 16;

impl RevTree {
    /// Keeps of each branch its newest `limit` revisions; a revision stays if any branch needs it. Children of what is
    /// dropped become roots. A limit of 0 counts as 1.
    ///
    /// A tree in which an id stands twice was damaged by an old release: it is taken apart into its branches, which are
    /// cut and merged anew.
    pub fn stem(&mut self, limit: u64) {
        let limit = limit.max(1);
        let too_deep = self.is_deeper_than(limit);
        // Taking a single root apart and merging it again gives the same tree when nothing is to be cut.
        if (too_deep || self.nodes.iter().skip(1).any(|node| node.root)) && self.has_repeated_ids() {
            let leaves: Vec<usize> = self.leaves().map(|node| node.index()).collect();
            *self = self.rebuilt_from(&leaves, usize::try_from(limit).unwrap_or(usize::MAX));
        } else if too_deep {
            self.cut(limit);
        }
    }

    fn is_deeper_than(&self, limit: u64) -> bool {
        let mut start = 0;
        self.nodes.iter().any(|node| {
            if node.root {
                start = node.pos;
            }
            node.pos - start >= limit
        })
    }

    fn has_repeated_ids(&self) -> bool {
        if self.nodes.len() <= PAIRWISE_NODES_MAX {
            let repeated =
                |(index, node): (usize, &Node)| self.nodes[..index].iter().any(|other| other.id == node.id);
            return self.nodes.iter().enumerate().any(repeated);
        }
        let mut seen: HashSet<&RevId, ahash::RandomState> =
            HashSet::with_capacity_and_hasher(self.nodes.len(), ahash::RandomState::new());
        self.nodes.iter().any(|node| !seen.insert(&node.id))
    }

    fn cut(&mut self, limit: u64) {
        let distances = self.distances_to_leaves();
        // Each kept node belongs to the part of its parent, or begins a part of its own. Parents stand before their
        // children, so one pass suffices; `above` holds the way from the root to the node before this one.
        let mut part_of: Vec<Option<usize>> = vec![None; self.nodes.len()];
        let mut parts: Vec<Vec<usize>> = Vec::new();
        let mut above: SmallVec<[usize; 16]> = SmallVec::new();
        for index in 0..self.nodes.len() {
            self.unwind(&mut above, index);
            if distances[index] < limit {
                let part = above
                    .last()
                    .and_then(|parent| part_of[*parent])
                    .unwrap_or_else(|| {
                        parts.push(Vec::new());
                        parts.len() - 1
                    });
                self.nodes[index].root = parts[part].is_empty();
                part_of[index] = Some(part);
                parts[part].push(index);
            }
            above.push(index);
        }
        let mut nodes: Vec<Option<Node>> = std::mem::take(&mut self.nodes).into_iter().map(Some).collect();
        for index in parts.into_iter().flatten() {
            self.nodes.extend(nodes[index].take());
        }
        self.sort_roots();
    }

    /// Shortens the way to the node before `index` to the way to the parent of `index`, whose mark as a root is still
    /// the old one.
    fn unwind(&self, above: &mut SmallVec<[usize; 16]>, index: usize) {
        let node = &self.nodes[index];
        if node.root {
            above.clear();
        }
        while above.last().is_some_and(|last| self.nodes[*last].pos >= node.pos) {
            above.pop();
        }
    }

    /// For each node the way to the nearest leaf below it, 0 for a leaf.
    fn distances_to_leaves(&self) -> Vec<u64> {
        let mut distances = vec![u64::MAX; self.nodes.len()];
        // Nearest leaf below a node at each position, as seen from the end: children stand behind their parents.
        let mut pending: SmallVec<[(u64, u64); 16]> = SmallVec::new();
        for (index, node) in self.nodes.iter().enumerate().rev() {
            let mut nearest = u64::MAX;
            while let Some((pos, distance)) = pending.last().copied().filter(|(pos, _)| *pos > node.pos) {
                nearest = nearest.min(distance + (pos - node.pos));
                pending.pop();
            }
            distances[index] = if self.is_leaf_at(index) { 0 } else { nearest };
            if node.root {
                pending.clear();
            } else {
                pending.push((node.pos, distances[index]));
            }
        }
        distances
    }
}
