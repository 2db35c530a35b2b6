//! Batched lookup: one traversal for many keys, each node read once.

use std::cell::RefCell;
use std::cmp::Ordering;

use smallvec::SmallVec;

use super::node::{Leaf, Loaded, NodeSource, Target, load, load_until};
use super::{Tree, TreeError, TreeKind};
use crate::storage::vfs::Wait;

thread_local! {
    /// Buffers for one leaf. A lookup inside another lookup's callback finds fresh ones.
    static SCRATCH: RefCell<Leaf> = RefCell::default();
}

struct Search<'s, K: ?Sized, S: ?Sized, F> {
    kind: &'s K,
    source: &'s S,
    keys: &'s [&'s [u8]],
    wait: Wait,
    found: F,
}

impl<K: TreeKind, S: NodeSource + ?Sized> Tree<'_, K, S> {
    /// Looks up `keys`, raw terms in any order, duplicates allowed. Calls `f` once for each with its index and the raw
    /// value, or `None`; not in the order of the indices.
    ///
    /// # Errors
    /// [`TreeError::File`]. `f` may have been called for some keys by then.
    pub fn lookup(
        &self,
        keys: &[&[u8]],
        wait: Wait,
        mut f: impl FnMut(usize, Option<&[u8]>),
    ) -> Result<(), TreeError> {
        let Some(root) = self.root else {
            (0..keys.len()).for_each(|index| f(index, None));
            return Ok(());
        };
        let mut order: SmallVec<[usize; 32]> = (0..keys.len()).collect();
        let ascending = |a: &usize, b: &usize| self.kind.compare(keys[*a], keys[*b]);
        if !order.is_sorted_by(|a, b| ascending(a, b) != Ordering::Greater) {
            order.sort_by(ascending);
        }
        let mut search = Search {
            kind: self.kind,
            source: self.source,
            keys,
            wait,
            found: f,
        };
        let mut leaf = SCRATCH.take();
        let result = search.descend(Target::root(root), &order, &mut leaf).map(drop);
        SCRATCH.replace(leaf.recycle());
        result
    }

    /// Looks up one key; `f` gets the raw value.
    ///
    /// # Errors
    /// [`TreeError::File`].
    pub fn lookup_one<R>(
        &self,
        key: &[u8],
        wait: Wait,
        f: impl FnOnce(Option<&[u8]>) -> R,
    ) -> Result<R, TreeError> {
        let mut leaf = SCRATCH.take();
        let result = self
            .find_one(key, wait, &mut leaf)
            .map(|index| f(index.map(|index| leaf.value(index))));
        SCRATCH.replace(leaf.recycle());
        result
    }

    /// The index of `key` in the leaf that is left in `leaf`.
    fn find_one(&self, key: &[u8], wait: Wait, leaf: &mut Leaf) -> Result<Option<usize>, TreeError> {
        let Some(root) = self.root else { return Ok(None) };
        let mut target = Target::root(root);
        let mut parent: Option<std::sync::Arc<super::KpNode>> = None;
        loop {
            let stop = |found: &[u8]| self.kind.compare(found, key) != Ordering::Less;
            match load_until(self.source, target, wait, leaf, stop)? {
                Loaded::Kp(node) => {
                    let index = node.find(self.kind, key, 0);
                    if index == node.len() {
                        return Ok(None);
                    }
                    target = node.child(index, target.depth);
                    parent = Some(node);
                }
                Loaded::Kv => {
                    if let Some(parent) = parent {
                        parent.note_leaves();
                    }
                    // Only the last entry that was looked at can be the one.
                    let last = leaf.len().checked_sub(1);
                    return Ok(last.filter(|last| self.kind.compare(leaf.key(*last), key) == Ordering::Equal));
                }
            }
        }
    }
}

impl<K: TreeKind + ?Sized, S: NodeSource + ?Sized, F: FnMut(usize, Option<&[u8]>)> Search<'_, K, S, F> {
    /// Looks up the keys at the indices in `order` below `target`; true when that is a leaf.
    fn descend(&mut self, target: Target, mut order: &[usize], leaf: &mut Leaf) -> Result<bool, TreeError> {
        let node = match load(self.source, target, self.wait, leaf)? {
            Loaded::Kv => {
                self.search_leaf(order, leaf);
                return Ok(true);
            }
            Loaded::Kp(node) => node,
        };
        let mut child = 0;
        while let Some((first, _)) = order.split_first() {
            child = node.find(self.kind, self.keys[*first], child);
            if child == node.len() {
                break;
            }
            let within =
                |index: &usize| self.kind.compare(self.keys[*index], node.key(child)) != Ordering::Greater;
            // At least the first key descends, whatever the order of the keys in a damaged node.
            let run = order.partition_point(within).max(1);
            let (now, later) = order.split_at(run);
            if self.descend(node.child(child, target.depth), now, leaf)? {
                node.note_leaves();
            }
            order = later;
            child += 1;
        }
        order.iter().for_each(|index| (self.found)(*index, None));
        Ok(false)
    }

    fn search_leaf(&mut self, order: &[usize], leaf: &Leaf) {
        let mut at = 0;
        for index in order {
            let key = self.keys[*index];
            at = leaf.find(self.kind, key, at..leaf.len(), false);
            let found = at < leaf.len() && self.kind.compare(leaf.key(at), key) == Ordering::Equal;
            (self.found)(*index, found.then(|| leaf.value(at)));
        }
    }
}
