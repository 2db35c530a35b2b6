//! Walking a tree in either direction, leaf by leaf.

use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use super::node::{KpNode, Leaf, Loaded, NodeSource, Target, load};
use super::reduce::Partials;
use super::{Root, Tree, TreeError, TreeKind};
use crate::storage::CouchFile;
use crate::storage::vfs::Wait;

/// Which way a fold goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Direction {
    /// From the least key upwards.
    #[default]
    Forward,
    /// From the greatest key downwards.
    Reverse,
}

/// What a fold walks over. Keys are raw terms.
#[derive(Clone, Copy, Debug)]
pub struct FoldOptions<'a> {
    /// Where to begin, inclusive; with [`Direction::Reverse`] this is the greatest key.
    pub start: Option<&'a [u8]>,
    /// Where to end.
    pub end: Bound<&'a [u8]>,
    /// Which way.
    pub direction: Direction,
    /// Whether reads may wait for the disk.
    pub wait: Wait,
}

impl Default for FoldOptions<'_> {
    fn default() -> Self {
        Self {
            start: None,
            end: Bound::Unbounded,
            direction: Direction::Forward,
            wait: Wait::Yes,
        }
    }
}

/// The same with keys of its own, for a [`Cursor`].
#[derive(Clone, Debug)]
pub struct CursorOptions {
    /// Where to begin, inclusive; with [`Direction::Reverse`] this is the greatest key.
    pub start: Option<Vec<u8>>,
    /// Where to end.
    pub end: Bound<Vec<u8>>,
    /// Which way.
    pub direction: Direction,
    /// Whether reads may wait for the disk; [`Cursor::set_wait`] changes it.
    pub wait: Wait,
}

impl Default for CursorOptions {
    fn default() -> Self {
        FoldOptions::default().into()
    }
}

impl From<FoldOptions<'_>> for CursorOptions {
    fn from(options: FoldOptions<'_>) -> Self {
        Self {
            start: options.start.map(<[u8]>::to_vec),
            end: options.end.map(<[u8]>::to_vec),
            direction: options.direction,
            wait: options.wait,
        }
    }
}

/// A pointer node on the way to the current leaf, and the child that the way takes.
#[derive(Clone, Debug)]
struct Step {
    node: Arc<KpNode>,
    index: usize,
    depth: usize,
}

/// A fold that can be left and taken up again: it yields one leaf at a time and owns all it needs.
///
/// With an `Arc<CouchFile>` as its source it is `Send` (if the kind is) and may outlive everything but the file.
#[derive(Debug)]
pub struct Cursor<K, S = Arc<CouchFile>> {
    kind: K,
    source: S,
    options: CursorOptions,
    root_pos: u64,
    path: Vec<Step>,
    /// The node to read next; kept when a read fails, so that the call can be repeated.
    next: Option<Target>,
    /// True until the first leaf is found: the descent follows the start key.
    seeking: bool,
    /// True when the end key was passed.
    ended: bool,
    leaf: Leaf,
}

impl<K: TreeKind, S: NodeSource> Cursor<K, S> {
    /// A cursor over the tree under `root`.
    #[must_use]
    pub fn new(kind: K, source: S, root: Option<&Root>, options: CursorOptions) -> Self {
        Self {
            kind,
            source,
            options,
            root_pos: root.map_or(0, |root| root.pos),
            path: Vec::new(),
            next: root.map(Target::root),
            seeking: true,
            ended: false,
            leaf: Leaf::default(),
        }
    }

    /// Changes whether reads may wait, for instance after [`TreeError::is_would_block`].
    pub const fn set_wait(&mut self, wait: Wait) {
        self.options.wait = wait;
    }

    /// The next leaf that has entries within the bounds, or `None` at the end.
    ///
    /// # Errors
    /// [`TreeError::File`]. After one that says the read would block, the call can be repeated and loses nothing.
    pub fn next_leaf(&mut self) -> Result<Option<LeafView<'_, K, S>>, TreeError> {
        while !self.ended {
            if self.next.is_none() && !self.step() {
                break;
            }
            let Some(target) = self.next else { break };
            match load(&self.source, target, self.options.wait, &mut self.leaf)? {
                Loaded::Kp(node) => self.enter(node, target.depth),
                Loaded::Kv => {
                    self.next = None;
                    if let Some(parent) = self.path.last() {
                        parent.node.note_leaves();
                    }
                    let (from, to) = self.bounds();
                    self.seeking = false;
                    if from < to {
                        return Ok(Some(LeafView {
                            cursor: self,
                            from,
                            to,
                        }));
                    }
                }
            }
        }
        self.ended = true;
        Ok(None)
    }

    /// Chooses the child of a pointer node that was just read.
    fn enter(&mut self, node: Arc<KpNode>, depth: usize) {
        self.next = None;
        if node.len() == 0 {
            return;
        }
        let last = node.len() - 1;
        let start = self.options.start.as_deref().filter(|_| self.seeking);
        let index = match (self.options.direction, start) {
            (Direction::Forward, None) => 0,
            (Direction::Reverse, None) => last,
            (Direction::Forward, Some(start)) => node.find(&self.kind, start, 0),
            (Direction::Reverse, Some(start)) => node.find(&self.kind, start, 0).min(last),
        };
        // With an index behind the last child nothing here is at or above the start key: go on at the level above.
        if index <= last {
            self.next = Some(node.child(index, depth));
        }
        self.path.push(Step { node, index, depth });
    }

    /// Moves to the next child of the deepest node that has one; false at the end of the tree.
    fn step(&mut self) -> bool {
        while let Some(step) = self.path.last_mut() {
            let next = match self.options.direction {
                Direction::Forward => Some(step.index + 1).filter(|index| *index < step.node.len()),
                Direction::Reverse => step.index.checked_sub(1),
            };
            if let Some(index) = next {
                step.index = index;
                self.next = Some(step.node.child(index, step.depth));
                return true;
            }
            self.path.pop();
        }
        false
    }

    /// The indices of the current leaf's entries that are within the bounds. Notes when the end was passed.
    fn bounds(&mut self) -> (usize, usize) {
        let (kind, leaf, len) = (&self.kind, &self.leaf, self.leaf.len());
        let start = self.options.start.as_deref().filter(|_| self.seeking);
        let (mut from, mut to) = (0, len);
        match self.options.direction {
            Direction::Forward => {
                if let Some(start) = start {
                    from = leaf.find(kind, start, 0..len, false);
                }
                to = match &self.options.end {
                    Bound::Unbounded => len,
                    Bound::Included(end) => leaf.find(kind, end, from..len, true),
                    Bound::Excluded(end) => leaf.find(kind, end, from..len, false),
                };
                self.ended = to < len;
            }
            Direction::Reverse => {
                if let Some(start) = start {
                    to = leaf.find(kind, start, 0..len, true);
                }
                from = match &self.options.end {
                    Bound::Unbounded => 0,
                    Bound::Included(end) => leaf.find(kind, end, 0..to, false),
                    Bound::Excluded(end) => leaf.find(kind, end, 0..to, true),
                };
                self.ended = from > 0;
            }
        }
        (from, to)
    }
}

/// The entries of one leaf within a cursor's bounds.
#[derive(Debug)]
pub struct LeafView<'c, K, S> {
    cursor: &'c Cursor<K, S>,
    from: usize,
    to: usize,
}

impl<'c, K: TreeKind, S: NodeSource> LeafView<'c, K, S> {
    /// Number of entries, never zero.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "a view is never empty")]
    pub const fn len(&self) -> usize {
        self.to - self.from
    }

    /// The `n`th entry in the cursor's direction: raw key and raw value.
    #[must_use]
    pub fn get(&self, n: usize) -> Option<(&'c [u8], &'c [u8])> {
        let cursor: &'c Cursor<K, S> = self.cursor;
        (n < self.len()).then(|| cursor.leaf.entry(self.index(n)))
    }

    /// The entries in the cursor's direction: raw keys and raw values.
    pub fn entries(&self) -> impl Iterator<Item = (&'c [u8], &'c [u8])> + use<'c, K, S> {
        let (cursor, from, to) = (self.cursor, self.from, self.to);
        (0..to - from).map(move |n| {
            cursor.leaf.entry(match cursor.options.direction {
                Direction::Forward => from + n,
                Direction::Reverse => to - 1 - n,
            })
        })
    }

    /// Where the `n`th entry stands.
    #[must_use]
    pub fn position(&self, n: usize) -> FoldPosition<'c, K, S> {
        FoldPosition {
            cursor: self.cursor,
            index: self.index(n),
        }
    }

    fn index(&self, n: usize) -> usize {
        match self.cursor.options.direction {
            Direction::Forward => self.from + n,
            Direction::Reverse => (self.to - 1).saturating_sub(n),
        }
    }
}

/// Where an entry stands in a fold. It computes nothing until it is asked.
#[derive(Debug)]
pub struct FoldPosition<'c, K, S> {
    cursor: &'c Cursor<K, S>,
    index: usize,
}

impl<K: TreeKind, S: NodeSource> FoldPosition<'_, K, S> {
    /// Replaces `out` by the reduction of everything in the tree that lies before this entry in the fold's direction,
    /// whether within the bounds or not. From it, for example, comes the `offset` of a view row.
    ///
    /// # Errors
    /// [`TreeError::Reduce`].
    pub fn reduction_before(&self, out: &mut Vec<u8>) -> Result<(), TreeError> {
        let cursor = self.cursor;
        let mut partials = Partials::default();
        for step in &cursor.path {
            let before = match cursor.options.direction {
                Direction::Forward => 0..step.index,
                Direction::Reverse => step.index + 1..step.node.len(),
            };
            before.for_each(|index| partials.push(step.node.reduction(index)));
        }
        let leaf = &cursor.leaf;
        let before = match cursor.options.direction {
            Direction::Forward => 0..self.index,
            Direction::Reverse => self.index + 1..leaf.len(),
        };
        partials
            .push_entries(&cursor.kind, &mut before.map(|index| leaf.entry(index)))
            .and_then(|()| partials.finish(&cursor.kind, out))
            .map_err(|source| TreeError::reduce(cursor.source.file(), cursor.root_pos, source))
    }
}

impl<K: TreeKind, S: NodeSource> Tree<'_, K, S> {
    /// Calls `f` with raw key, raw value and position of each entry within the bounds, until it breaks.
    ///
    /// # Errors
    /// [`TreeError::File`].
    pub fn fold(
        &self,
        options: FoldOptions<'_>,
        mut f: impl FnMut(&[u8], &[u8], &FoldPosition<'_, &K, &S>) -> ControlFlow<()>,
    ) -> Result<(), TreeError> {
        let mut cursor = Cursor::new(self.kind, self.source, self.root, options.into());
        while let Some(view) = cursor.next_leaf()? {
            for (n, (key, value)) in view.entries().enumerate() {
                if f(key, value, &view.position(n)).is_break() {
                    return Ok(());
                }
            }
        }
        Ok(())
    }
}
