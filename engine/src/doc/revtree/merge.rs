//! Merging a path into a tree, and taking leaves out.

use super::{Leaf, MergeOutcome, Node, RevPath, RevTree};
use crate::ids::{Rev, RevId};
use smallvec::SmallVec;

/// One revision of a path that is being merged, the oldest first.
pub(super) struct PathNode {
    pub(super) id: RevId,
    pub(super) leaf: Option<Leaf>,
}

/// Where a path meets a tree: a node, and the element of the path that is that node.
struct Meeting {
    root: usize,
    node: usize,
    element: usize,
}

impl RevTree {
    /// Merges `path` into the tree; `leaf` is what is stored of its newest revision. What the tree already holds of a
    /// revision stays; `leaf` fills a revision of which only the id was known.
    ///
    /// A path without revisions changes nothing.
    pub fn merge(&mut self, path: &RevPath, leaf: Option<Leaf>) -> MergeOutcome {
        // A path cannot reach below position 0; what a caller lists beyond that is dropped.
        let count = path.ids.len().min(
            usize::try_from(path.start)
                .unwrap_or(usize::MAX)
                .saturating_add(1),
        );
        let mut nodes: SmallVec<[PathNode; 2]> = path.ids[..count]
            .iter()
            .rev()
            .map(|id| PathNode {
                id: id.clone(),
                leaf: None,
            })
            .collect();
        let Some(newest) = nodes.last_mut() else {
            return MergeOutcome::InternalNode;
        };
        newest.leaf = leaf;
        self.merge_nodes(path.start + 1 - count as u64, nodes)
    }

    /// Merges revisions that stand at `first` and behind.
    pub(super) fn merge_nodes(&mut self, first: u64, mut path: SmallVec<[PathNode; 2]>) -> MergeOutcome {
        let Some(meeting) = self.meeting(first, &path) else {
            let outcome = if self.is_empty() {
                MergeOutcome::NewLeaf
            } else {
                MergeOutcome::NewBranch
            };
            let index = self.nodes.len();
            self.insert_chain(index, first, true, path);
            self.sort_roots();
            return outcome;
        };
        let rest = path.drain(meeting.element..).collect();
        let outcome = self.extend(meeting.node, rest);
        if !path.is_empty() {
            // The path reaches further back than this root: the root gets its ancestors.
            self.nodes[meeting.root].root = false;
            self.insert_chain(meeting.root, first, true, path);
            self.sort_roots();
        }
        outcome
    }

    /// The first place, in the order of the roots, where the path and the tree have a revision in common that is the
    /// beginning of one of them.
    fn meeting(&self, first: u64, path: &[PathNode]) -> Option<Meeting> {
        let mut root = 0;
        while root < self.nodes.len() {
            let end = self.root_end(root);
            let start = self.nodes[root].pos;
            if start > first {
                let element = usize::try_from(start - first).unwrap_or(usize::MAX);
                if path
                    .get(element)
                    .is_some_and(|node| node.id == self.nodes[root].id)
                {
                    return Some(Meeting {
                        root,
                        node: root,
                        element,
                    });
                }
            } else if let Some(oldest) = path.first() {
                let nodes = &self.nodes[root..end];
                if let Some(offset) = nodes
                    .iter()
                    .position(|node| node.pos == first && node.id == oldest.id)
                {
                    return Some(Meeting {
                        root,
                        node: root + offset,
                        element: 0,
                    });
                }
            }
            root = end;
        }
        None
    }

    /// Lays `path`, whose first revision is the node at `index`, over the tree below it.
    fn extend(&mut self, mut index: usize, mut path: SmallVec<[PathNode; 2]>) -> MergeOutcome {
        let mut used = 0;
        loop {
            let node = &mut self.nodes[index];
            if node.leaf.is_none() {
                node.leaf = path[used].leaf.take();
            }
            let pos = node.pos;
            used += 1;
            let Some(next) = path.get(used) else {
                return MergeOutcome::InternalNode;
            };
            let first_child = self.is_leaf_at(index);
            let (place, found) = self.place_of_child(index, &next.id);
            if found {
                index = place;
                continue;
            }
            path.drain(..used);
            self.insert_chain(place, pos + 1, false, path);
            return if first_child {
                MergeOutcome::NewLeaf
            } else {
                MergeOutcome::NewBranch
            };
        }
    }

    /// Where the child `id` of the node at `index` stands, or where it would have to be inserted.
    fn place_of_child(&self, index: usize, id: &RevId) -> (usize, bool) {
        let pos = self.nodes[index].pos;
        let mut place = index + 1;
        while let Some(node) = self.nodes.get(place).filter(|node| !node.root && node.pos > pos) {
            if node.pos == pos + 1 && node.id >= *id {
                return (place, node.id == *id);
            }
            place += 1;
        }
        (place, false)
    }

    fn insert_chain(&mut self, index: usize, first: u64, root: bool, path: SmallVec<[PathNode; 2]>) {
        let chain = path.into_iter().enumerate().map(|(offset, node)| Node {
            id: node.id,
            pos: first + offset as u64,
            root: root && offset == 0,
            leaf: node.leaf,
        });
        if index == self.nodes.len() {
            self.nodes.extend(chain);
        } else {
            self.nodes.insert_many(index, chain);
        }
    }

    /// Brings the roots into order: by position, then id.
    pub(super) fn sort_roots(&mut self) {
        let roots: SmallVec<[usize; 4]> = (0..self.nodes.len())
            .filter(|index| self.nodes[*index].root)
            .collect();
        let key = |index: usize| (self.nodes[index].pos, &self.nodes[index].id);
        if roots.is_sorted_by_key(|index| key(*index)) {
            return;
        }
        let mut order: Vec<(usize, usize)> = roots.iter().map(|root| (*root, self.root_end(*root))).collect();
        order.sort_by(|a, b| key(a.0).cmp(&key(b.0)));
        let mut nodes: Vec<Option<Node>> = std::mem::take(&mut self.nodes).into_iter().map(Some).collect();
        for (start, end) in order {
            self.nodes
                .extend(nodes[start..end].iter_mut().filter_map(Option::take));
        }
    }

    /// Removes the branches that end in one of `revs`; ancestors that lead nowhere else go with them. Returns those of
    /// `revs` that were leaves and are gone.
    pub fn remove_leafs(&mut self, revs: &[Rev]) -> Vec<Rev> {
        let mut removed = Vec::new();
        let mut kept = Vec::new();
        for node in self.leaves() {
            let rev = node.rev();
            if revs.contains(&rev) {
                removed.push(rev);
            } else {
                kept.push(node.index());
            }
        }
        if !removed.is_empty() {
            *self = self.rebuilt_from(&kept, usize::MAX);
        }
        removed
    }

    /// A tree of the branches that end at `leaves`, each cut to its newest `limit` revisions, merged in order of where
    /// they begin.
    pub(super) fn rebuilt_from(&self, leaves: &[usize], limit: usize) -> Self {
        let mut paths: Vec<(u64, Vec<usize>)> = leaves
            .iter()
            .map(|leaf| {
                let path: Vec<usize> = self.ancestors_from(*leaf).take(limit).collect();
                let start = path.last().map_or(0, |oldest| self.nodes[*oldest].pos);
                (start, path)
            })
            .collect();
        let ids = |path: &[usize]| {
            path.iter()
                .map(|index| &self.nodes[*index].id)
                .collect::<Vec<_>>()
        };
        paths.sort_by(|a, b| a.0.cmp(&b.0).then_with(|| ids(&a.1).cmp(&ids(&b.1))));
        let mut tree = Self::new();
        for (start, path) in paths {
            let nodes = path.iter().rev().map(|index| &self.nodes[*index]);
            let nodes = nodes
                .map(|node| PathNode {
                    id: node.id.clone(),
                    leaf: node.leaf.clone(),
                })
                .collect();
            tree.merge_nodes(start, nodes);
        }
        tree
    }
}
