//! Reductions over ranges and groups, and the shape of a tree.

use std::cmp::Ordering;
use std::ops::{Bound, ControlFlow, Range};

use super::fold::{Direction, FoldOptions};
use super::node::{KpNode, Leaf, Loaded, NodeSource, Target, load};
use super::{ReduceError, Tree, TreeError, TreeKind};
use crate::storage::vfs::Wait;

/// Reductions collected before they are reduced to one.
const PARTIALS_MAX: usize = 256;

/// Reductions of the parts of something, in one buffer.
#[derive(Debug, Default)]
pub(super) struct Partials {
    bytes: Vec<u8>,
    ranges: Vec<Range<usize>>,
}

impl Partials {
    pub(super) fn push(&mut self, reduction: &[u8]) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(reduction);
        self.ranges.push(start..self.bytes.len());
    }

    /// Reduces entries to one more part; no entries are no part.
    pub(super) fn push_entries<'e, K: TreeKind + ?Sized>(
        &mut self,
        kind: &K,
        entries: &mut (dyn ExactSizeIterator<Item = (&'e [u8], &'e [u8])> + '_),
    ) -> Result<(), ReduceError> {
        if entries.len() == 0 {
            return Ok(());
        }
        let start = self.bytes.len();
        kind.reduce(&mut entries.into_iter(), &mut self.bytes)?;
        self.ranges.push(start..self.bytes.len());
        Ok(())
    }

    /// Reduces what is there to one part when it is much.
    fn compact<K: TreeKind + ?Sized>(&mut self, kind: &K) -> Result<(), ReduceError> {
        if self.ranges.len() >= PARTIALS_MAX {
            let mut out = Vec::new();
            self.finish(kind, &mut out)?;
            self.push(&out);
        }
        Ok(())
    }

    /// Replaces `out` by the reduction of all parts and forgets them. One part is taken as it is; none is the reduction
    /// of no entries.
    pub(super) fn finish<K: TreeKind + ?Sized>(
        &mut self,
        kind: &K,
        out: &mut Vec<u8>,
    ) -> Result<(), ReduceError> {
        out.clear();
        match self.ranges.as_slice() {
            [] => kind.reduce(&mut std::iter::empty(), out)?,
            [only] => out.extend_from_slice(&self.bytes[only.clone()]),
            ranges => kind.rereduce(&mut ranges.iter().map(|range| &self.bytes[range.clone()]), out)?,
        }
        self.bytes.clear();
        self.ranges.clear();
        Ok(())
    }
}

/// Which keys are one group in [`Tree::fold_reduce`].
pub enum Group<'g> {
    /// All.
    All,
    /// Those that are equal in the tree's order.
    Exact,
    /// Those for which the function says so. It must hold for neighbours in the tree's order or not at all.
    By(&'g dyn Fn(&[u8], &[u8]) -> bool),
}

impl std::fmt::Debug for Group<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::All => "All",
            Self::Exact => "Exact",
            Self::By(_) => "By(..)",
        })
    }
}

/// One level of a tree, for `settee depth`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Level {
    /// Nodes at this depth.
    pub nodes: u64,
    /// Entries or children in them.
    pub entries: u64,
    /// Uncompressed bytes of them.
    pub bytes: u64,
}

impl<K: TreeKind, S: NodeSource + ?Sized> Tree<'_, K, S> {
    /// Replaces `out` by the reduction of the whole tree. Nothing is read: the root has it.
    ///
    /// # Errors
    /// [`TreeError::Reduce`] when there is no root and the kind cannot reduce nothing.
    pub fn full_reduce(&self, out: &mut Vec<u8>) -> Result<(), TreeError> {
        out.clear();
        match self.root {
            Some(root) => out.extend_from_slice(&root.reduction),
            None => self
                .kind
                .reduce(&mut std::iter::empty(), out)
                .map_err(|e| self.reduce_error(e))?,
        }
        Ok(())
    }

    /// Replaces `out` by the reduction of every entry whose key is below `key`.
    ///
    /// # Errors
    /// [`TreeError`].
    pub fn reduce_before(&self, key: &[u8], wait: Wait, out: &mut Vec<u8>) -> Result<(), TreeError> {
        self.reduce_side(key, false, wait, out)
    }

    /// Replaces `out` by the reduction of every entry whose key is above `key`, as the number of pending changes needs it.
    ///
    /// # Errors
    /// [`TreeError`].
    pub fn reduce_after(&self, key: &[u8], wait: Wait, out: &mut Vec<u8>) -> Result<(), TreeError> {
        self.reduce_side(key, true, wait, out)
    }

    fn reduce_side(&self, key: &[u8], above: bool, wait: Wait, out: &mut Vec<u8>) -> Result<(), TreeError> {
        let mut partials = Partials::default();
        let mut leaf = Leaf::default();
        let mut next = self.root.map(Target::root);
        while let Some(target) = next.take() {
            match load(self.source, target, wait, &mut leaf)? {
                Loaded::Kp(node) => {
                    let index = node.find(self.kind, key, 0);
                    let whole = if above {
                        (index + 1).min(node.len())..node.len()
                    } else {
                        0..index
                    };
                    whole.for_each(|child| partials.push(node.reduction(child)));
                    next = (index < node.len()).then(|| node.child(index, target.depth));
                }
                Loaded::Kv => {
                    let at = leaf.find(self.kind, key, 0..leaf.len(), above);
                    let side = if above { at..leaf.len() } else { 0..at };
                    partials
                        .push_entries(self.kind, &mut side.map(|index| leaf.entry(index)))
                        .map_err(|e| self.reduce_error(e))?;
                }
            }
        }
        partials.finish(self.kind, out).map_err(|e| self.reduce_error(e))
    }

    /// Reduces each group of neighbouring keys within the bounds and calls `f` with the group's first key, in the fold's
    /// direction, and its reduction, until it breaks. Subtrees that lie wholly in a group are not read.
    ///
    /// # Errors
    /// [`TreeError`].
    pub fn fold_reduce(
        &self,
        options: FoldOptions<'_>,
        group: Group<'_>,
        f: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<(), TreeError> {
        let Some(root) = self.root else { return Ok(()) };
        let mut walk = GroupWalk {
            tree: *self,
            options,
            group,
            f,
            open: None,
            partials: Partials::default(),
            reduction: Vec::new(),
        };
        let flow = walk.node(Target::root(root), None, &mut Leaf::default())?;
        if flow.is_continue() {
            let _ended_anyway = walk.close()?;
        }
        Ok(())
    }

    /// The levels of the tree from the root down; their number is the tree's depth. Every node is read.
    ///
    /// # Errors
    /// [`TreeError::File`].
    pub fn levels(&self, wait: Wait) -> Result<Vec<Level>, TreeError> {
        let mut levels = Vec::new();
        if let Some(root) = self.root {
            self.add_levels(Target::root(root), wait, &mut Leaf::default(), &mut levels)?;
        }
        Ok(levels)
    }

    /// The number of levels, following the first child down.
    ///
    /// # Errors
    /// [`TreeError::File`].
    pub fn depth(&self, wait: Wait) -> Result<usize, TreeError> {
        let mut leaf = Leaf::default();
        let mut next = self.root.map(Target::root);
        let mut depth = 0;
        while let Some(target) = next.take() {
            depth = target.depth;
            if let Loaded::Kp(node) = load(self.source, target, wait, &mut leaf)? {
                next = (node.len() > 0).then(|| node.child(0, target.depth));
            }
        }
        Ok(depth)
    }

    fn add_levels(
        &self,
        target: Target,
        wait: Wait,
        leaf: &mut Leaf,
        levels: &mut Vec<Level>,
    ) -> Result<(), TreeError> {
        let loaded = load(self.source, target, wait, leaf)?;
        if levels.len() < target.depth {
            levels.resize(target.depth, Level::default());
        }
        let level = &mut levels[target.depth - 1];
        level.nodes += 1;
        match loaded {
            Loaded::Kv => {
                level.entries += leaf.len() as u64;
                level.bytes += leaf.bytes_len() as u64;
            }
            Loaded::Kp(node) => {
                level.entries += node.len() as u64;
                level.bytes += node.bytes_len() as u64;
                for index in 0..node.len() {
                    self.add_levels(node.child(index, target.depth), wait, leaf, levels)?;
                }
            }
        }
        Ok(())
    }

    fn reduce_error(&self, source: ReduceError) -> TreeError {
        TreeError::reduce(self.source.file(), self.root.map_or(0, |root| root.pos), source)
    }
}

/// A grouped reduction under way.
struct GroupWalk<'w, K, S: ?Sized, F> {
    tree: Tree<'w, K, S>,
    options: FoldOptions<'w>,
    group: Group<'w>,
    f: F,
    /// The first key of the group that is open.
    open: Option<Vec<u8>>,
    partials: Partials,
    reduction: Vec<u8>,
}

impl<K, S, F> GroupWalk<'_, K, S, F>
where
    K: TreeKind,
    S: NodeSource + ?Sized,
    F: FnMut(&[u8], &[u8]) -> ControlFlow<()>,
{
    /// Walks what lies under `target`. `floor` is a key that all keys there are above, if one is known.
    fn node(
        &mut self,
        target: Target,
        floor: Option<&[u8]>,
        leaf: &mut Leaf,
    ) -> Result<ControlFlow<()>, TreeError> {
        let node = match load(self.tree.source, target, self.options.wait, leaf)? {
            Loaded::Kv => return self.leaf(leaf),
            Loaded::Kp(node) => node,
        };
        let len = node.len();
        for n in 0..len {
            let index = match self.options.direction {
                Direction::Forward => n,
                Direction::Reverse => len - 1 - n,
            };
            let floor = if index == 0 {
                floor
            } else {
                Some(node.key(index - 1))
            };
            if self.is_before_start(&node, index, floor) {
                continue;
            }
            if self.is_whole(&node, index, floor) {
                self.partials.push(node.reduction(index));
                self.partials
                    .compact(self.tree.kind)
                    .map_err(|e| self.tree.reduce_error(e))?;
            } else if self
                .node(node.child(index, target.depth), floor, leaf)?
                .is_break()
            {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// True when no key of the child can be at or behind the start.
    fn is_before_start(&self, node: &KpNode, index: usize, floor: Option<&[u8]>) -> bool {
        let Some(start) = self.options.start else {
            return false;
        };
        match self.options.direction {
            Direction::Forward => self.tree.kind.compare(node.key(index), start) == Ordering::Less,
            Direction::Reverse => floor.is_some_and(|f| self.tree.kind.compare(f, start) != Ordering::Less),
        }
    }

    /// True when every key of the child is within the bounds and in the open group.
    fn is_whole(&self, node: &KpNode, index: usize, floor: Option<&[u8]>) -> bool {
        let Some(first) = self.open.as_deref() else {
            return false;
        };
        let kind = self.tree.kind;
        let greatest = node.key(index);
        // A group is open, so the start lies behind; what can stick out is the far side.
        let far = match self.options.direction {
            Direction::Forward => Some(greatest),
            Direction::Reverse => floor,
        };
        let within = match (self.options.end, far) {
            (Bound::Unbounded, _) => true,
            (_, None) => false,
            (Bound::Included(end), Some(far)) => match self.options.direction {
                Direction::Forward => kind.compare(far, end) != Ordering::Greater,
                Direction::Reverse => kind.compare(far, end) != Ordering::Less,
            },
            (Bound::Excluded(end), Some(far)) => match self.options.direction {
                Direction::Forward => kind.compare(far, end) == Ordering::Less,
                // All keys are above the floor.
                Direction::Reverse => kind.compare(far, end) != Ordering::Less,
            },
        };
        within
            && match self.group {
                Group::All => true,
                Group::Exact | Group::By(_) => far.is_some_and(|far| self.same_group(first, far)),
            }
    }

    fn same_group(&self, first: &[u8], key: &[u8]) -> bool {
        match self.group {
            Group::All => true,
            Group::Exact => self.tree.kind.compare(first, key) == Ordering::Equal,
            Group::By(same) => same(first, key),
        }
    }

    fn leaf(&mut self, leaf: &Leaf) -> Result<ControlFlow<()>, TreeError> {
        let (range, ended) = self.range(leaf);
        let reverse = self.options.direction == Direction::Reverse;
        let nth = |n: usize| {
            if reverse {
                range.end - 1 - n
            } else {
                range.start + n
            }
        };
        let mut run = 0;
        for n in 0..range.len() {
            let key = leaf.key(nth(n));
            if self
                .open
                .as_deref()
                .is_some_and(|first| self.same_group(first, key))
            {
                continue;
            }
            self.add_run(leaf, &nth, run..n)?;
            run = n;
            if self.close()?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
            self.open = Some(key.to_vec());
        }
        self.add_run(leaf, &nth, run..range.len())?;
        if ended {
            let _ended_anyway = self.close()?;
            return Ok(ControlFlow::Break(()));
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Reduces the entries at the places `run` of the walk, in key order, into the open group.
    fn add_run(
        &mut self,
        leaf: &Leaf,
        nth: &dyn Fn(usize) -> usize,
        run: Range<usize>,
    ) -> Result<(), TreeError> {
        if run.is_empty() {
            return Ok(());
        }
        let (a, b) = (nth(run.start), nth(run.end - 1));
        let mut entries = (a.min(b)..a.max(b) + 1).map(|index| leaf.entry(index));
        self.partials
            .push_entries(self.tree.kind, &mut entries)
            .and_then(|()| self.partials.compact(self.tree.kind))
            .map_err(|e| self.tree.reduce_error(e))
    }

    /// The entries of a leaf within the bounds, and whether the end lies in it.
    fn range(&self, leaf: &Leaf) -> (Range<usize>, bool) {
        let (kind, len) = (self.tree.kind, leaf.len());
        let find = |key: &[u8], after| leaf.find(kind, key, 0..len, after);
        let reverse = self.options.direction == Direction::Reverse;
        let start = self.options.start.map(|key| find(key, reverse));
        let end = match self.options.end {
            Bound::Unbounded => None,
            Bound::Included(key) => Some(find(key, !reverse)),
            Bound::Excluded(key) => Some(find(key, reverse)),
        };
        if reverse {
            let (from, to) = (end.unwrap_or(0), start.unwrap_or(len));
            (from.min(to)..to, from > 0)
        } else {
            let (from, to) = (start.unwrap_or(0), end.unwrap_or(len));
            (from..to.max(from), to < len)
        }
    }

    /// Hands over the open group, if there is one.
    fn close(&mut self) -> Result<ControlFlow<()>, TreeError> {
        let Some(first) = self.open.take() else {
            return Ok(ControlFlow::Continue(()));
        };
        self.partials
            .finish(self.tree.kind, &mut self.reduction)
            .map_err(|e| self.tree.reduce_error(e))?;
        Ok((self.f)(&first, &self.reduction))
    }
}
