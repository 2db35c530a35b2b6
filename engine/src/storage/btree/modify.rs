//! Changing a tree: lookups, removals and insertions in one traversal, with CouchDB's rules for splitting and for
//! leaving an old node where it is.

use std::cmp::Ordering;
use std::ops::Range;
use std::sync::Arc;

use super::node::{KpNode, Leaf, Loaded, NodeType, Target, load, write_node};
use super::root::{Root, write_pointer};
use super::{TreeError, TreeKind};
use crate::cache::Key;
use crate::codec::term;
use crate::storage::Appender;
use crate::storage::vfs::Wait;

/// Bytes of a list beside its elements, as `external_size` counts them: version, tag, length, tail.
const LIST_OVERHEAD: usize = 7;
/// Bytes of an entry beside its key and value, as `external_size` counts it: version, tag, arity.
const ENTRY_OVERHEAD: usize = 3;

/// What a lookup in [`modify`] found: the stored key and the value, both raw; `None` when the key was absent.
pub type Found = Option<(Vec<u8>, Vec<u8>)>;

/// In this order for equal keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Op {
    Fetch,
    Remove,
    Insert,
}

#[derive(Clone, Copy, Debug)]
struct Action<'a> {
    op: Op,
    key: &'a [u8],
    value: &'a [u8],
    /// Which lookup this is.
    index: usize,
}

/// Appends what changes in the tree under `root` to the file and returns the new root (CouchDB's `query_modify`).
///
/// `inserts` are raw keys and raw values, best in ascending order of the keys; the first of several with one key counts.
/// An inserted key that is there is replaced. Removing a missing key does nothing. A key that is both removed and inserted
/// ends up present. The answers to `lookups` come in the order asked and show the tree as it was before.
///
/// Nothing is written to the file yet: [`Appender::flush`] or a header does that. If nothing changes, nothing is appended.
///
/// # Errors
/// [`TreeError`]. What had been appended by then stays in the file as garbage; the old root is still good.
pub fn modify<K: TreeKind + ?Sized>(
    kind: &K,
    appender: &mut Appender,
    root: Option<&Root>,
    inserts: &[(&[u8], &[u8])],
    removes: &[&[u8]],
    lookups: &[&[u8]],
) -> Result<(Option<Root>, Vec<Found>), TreeError> {
    let actions = actions(kind, inserts, removes, lookups);
    let chunk_size = appender.file().options().btree_chunk_size;
    let mut change = Change {
        kind,
        appender,
        chunk_size,
        found: vec![None; lookups.len()],
        leaves: Vec::new(),
        out: Vec::new(),
        chunks: Vec::new(),
    };
    let outcome = if actions.is_empty() {
        Outcome::Unchanged
    } else {
        change.node(root.map(Target::root), root.map(Old::of_root), &actions)?
    };
    let root = match outcome {
        Outcome::Unchanged => root.cloned(),
        Outcome::Changed(pointers) => change.complete_root(pointers)?,
    };
    Ok((root, change.found))
}

/// All that is to be done, in the tree's order.
fn actions<'a, K: TreeKind + ?Sized>(
    kind: &K,
    inserts: &[(&'a [u8], &'a [u8])],
    removes: &[&'a [u8]],
    lookups: &[&'a [u8]],
) -> Vec<Action<'a>> {
    let mut actions = Vec::with_capacity(inserts.len() + removes.len() + lookups.len());
    actions.extend(lookups.iter().enumerate().map(|(index, &key)| Action {
        op: Op::Fetch,
        key,
        value: &[],
        index,
    }));
    actions.extend(removes.iter().map(|&key| Action {
        op: Op::Remove,
        key,
        value: &[],
        index: 0,
    }));
    actions.extend(inserts.iter().map(|&(key, value)| Action {
        op: Op::Insert,
        key,
        value,
        index: 0,
    }));
    let order = |a: &Action<'_>, b: &Action<'_>| kind.compare(a.key, b.key).then(a.op.cmp(&b.op));
    if !actions.is_sorted_by(|a, b| order(a, b) != Ordering::Greater) {
        // Stable, so that the first of several insertions with one key stays the first.
        actions.sort_by(order);
    }
    let same = |a: &Action<'_>, b: &Action<'_>| {
        a.op == b.op && a.op != Op::Fetch && kind.compare(a.key, b.key) == Ordering::Equal
    };
    actions.dedup_by(|later, first| same(later, first));
    actions
}

/// The pointer to a node that may stay as it is.
#[derive(Clone, Copy)]
struct Old<'a> {
    pos: u64,
    reduction: &'a [u8],
    size: Option<u64>,
}

impl<'a> Old<'a> {
    fn of_root(root: &'a Root) -> Self {
        Self {
            pos: root.pos,
            reduction: &root.reduction,
            size: root.size,
        }
    }
}

/// A pointer to a node, to go into its parent.
#[derive(Debug)]
struct NewPointer {
    key: Vec<u8>,
    /// `{Pos, Reduction, Size}` as a raw term.
    value: Vec<u8>,
    reduction: Range<usize>,
    pos: u64,
    size: Option<u64>,
}

impl NewPointer {
    fn new(key: &[u8], pos: u64, reduction: &[u8], size: Option<u64>) -> Self {
        let mut value = Vec::with_capacity(reduction.len() + 24);
        write_pointer(&mut value, pos, reduction, size);
        // The reduction is followed by the size alone, whose length tells where it stands.
        let mut tail = Vec::with_capacity(12);
        match size {
            Some(size) => term::write::uint(&mut tail, size),
            None => term::write::atom(&mut tail, "nil"),
        }
        let end = value.len() - tail.len();
        Self {
            key: key.to_vec(),
            value,
            reduction: end - reduction.len()..end,
            pos,
            size,
        }
    }

    fn into_root(self) -> Root {
        Root {
            pos: self.pos,
            reduction: self.value[self.reduction].to_vec(),
            size: self.size,
        }
    }
}

/// What became of a node.
enum Outcome {
    /// It stays as it is.
    Unchanged,
    /// These nodes take its place; none when it became empty.
    Changed(Vec<NewPointer>),
}

/// An entry of a node that is being put together.
#[derive(Clone, Copy)]
struct Item<'a> {
    key: &'a [u8],
    value: &'a [u8],
    /// In a pointer node: the child's reduction and size.
    reduction: &'a [u8],
    size: Option<u64>,
}

impl<'a> Item<'a> {
    const fn entry((key, value): (&'a [u8], &'a [u8])) -> Self {
        Self {
            key,
            value,
            reduction: &[],
            size: None,
        }
    }

    fn child(node: &'a KpNode, index: usize) -> Self {
        Self {
            key: node.key(index),
            value: node.value(index),
            reduction: node.reduction(index),
            size: node.child_size(index),
        }
    }

    fn pointer(pointer: &'a NewPointer) -> Self {
        Self {
            key: &pointer.key,
            value: &pointer.value,
            reduction: &pointer.value[pointer.reduction.clone()],
            size: pointer.size,
        }
    }

    /// `external_size` of the entry.
    const fn external_size(&self) -> usize {
        self.key.len() + self.value.len() + ENTRY_OVERHEAD
    }

    /// Byte for byte the same. Most comparisons are of an entry with itself, which the addresses tell.
    fn same(&self, other: &Self) -> bool {
        let eq = |a: &[u8], b: &[u8]| std::ptr::eq(a, b) || a == b;
        eq(self.key, other.key) && eq(self.value, other.value)
    }

    /// The native order of `{Key, Value}`, whatever the tree's own order is.
    fn native_cmp(&self, other: &Self) -> Ordering {
        if self.same(other) {
            return Ordering::Equal;
        }
        term::compare(self.key, other.key).then_with(|| term::compare(self.value, other.value))
    }
}

/// A child of a pointer node that is being put together.
enum Child {
    Old(usize),
    New(NewPointer),
}

struct Change<'c, K: ?Sized> {
    kind: &'c K,
    appender: &'c mut Appender,
    chunk_size: usize,
    found: Vec<Found>,
    /// Buffers of leaves, used again.
    leaves: Vec<Leaf>,
    out: Vec<u8>,
    chunks: Vec<Range<usize>>,
}

impl<K: TreeKind + ?Sized> Change<'_, K> {
    /// Does `actions`, of which there is at least one, under the node that `target` names.
    fn node(
        &mut self,
        target: Option<Target>,
        old: Option<Old<'_>>,
        actions: &[Action<'_>],
    ) -> Result<Outcome, TreeError> {
        let mut leaf = self.leaves.pop().unwrap_or_default();
        let loaded = match target {
            None => {
                leaf.clear();
                Loaded::Kv
            }
            Some(target) => load(&*self.appender, target, Wait::Yes, &mut leaf)?,
        };
        let outcome = match (loaded, target) {
            (Loaded::Kp(node), Some(target)) => {
                self.leaves.push(leaf);
                self.pointers(&node, target, old, actions)?
            }
            _ => {
                let outcome = self.entries(&leaf, old, actions);
                self.leaves.push(leaf);
                outcome?
            }
        };
        if let (Outcome::Changed(pointers), Some(target)) = (&outcome, target)
            && !pointers.iter().any(|pointer| pointer.pos == target.pos)
        {
            self.replaced(target);
        }
        Ok(outcome)
    }

    /// A node is no longer part of the newest tree; older snapshots may still read it.
    fn replaced(&self, target: Target) {
        self.appender.memo().borrow_mut().remove(target.pos);
        let file = self.appender.file();
        if target.depth <= usize::from(file.options().cache_depth)
            && let Some(cache) = file.cache()
        {
            cache.reset(Key {
                file: file.id(),
                offset: target.pos,
            });
        }
    }

    fn pointers(
        &mut self,
        node: &Arc<KpNode>,
        target: Target,
        old: Option<Old<'_>>,
        mut actions: &[Action<'_>],
    ) -> Result<Outcome, TreeError> {
        let len = node.len();
        if len == 0 {
            return self.node(None, None, actions);
        }
        let mut children = Vec::with_capacity(len + 2);
        let mut changed = false;
        let mut next = 0;
        while let Some(first) = actions.first() {
            if next == len {
                break;
            }
            let index = node.find(self.kind, first.key, next).min(len - 1);
            children.extend((next..index).map(Child::Old));
            let run = if index == len - 1 {
                actions.len()
            } else {
                let within =
                    |action: &Action<'_>| self.kind.compare(node.key(index), action.key) != Ordering::Less;
                // At least one action descends, whatever the order of the keys in a damaged node.
                actions.partition_point(within).max(1)
            };
            let (now, later) = actions.split_at(run);
            let child = Old {
                pos: node.child_pos(index),
                reduction: node.reduction(index),
                size: node.child_size(index),
            };
            match self.node(Some(node.child(index, target.depth)), Some(child), now)? {
                Outcome::Unchanged => children.push(Child::Old(index)),
                Outcome::Changed(pointers) => {
                    changed = true;
                    children.extend(pointers.into_iter().map(Child::New));
                }
            }
            actions = later;
            next = index + 1;
        }
        if !changed {
            return Ok(Outcome::Unchanged);
        }
        children.extend((next..len).map(Child::Old));
        let old_items: Vec<Item<'_>> = (0..len).map(|index| Item::child(node, index)).collect();
        let new_items: Vec<Item<'_>> = children
            .iter()
            .map(|child| match child {
                Child::Old(index) => old_items[*index],
                Child::New(pointer) => Item::pointer(pointer),
            })
            .collect();
        self.rewrite(NodeType::Kp, old, &old_items, &new_items)
            .map(Outcome::Changed)
    }

    fn entries(
        &mut self,
        leaf: &Leaf,
        old: Option<Old<'_>>,
        actions: &[Action<'_>],
    ) -> Result<Outcome, TreeError> {
        let len = leaf.len();
        let mut items: Vec<Item<'_>> = Vec::with_capacity(len + actions.len());
        let mut changed = false;
        let mut next = 0;
        for action in actions {
            let at = leaf.find(self.kind, action.key, next..len, false);
            items.extend((next..at).map(|index| Item::entry(leaf.entry(index))));
            next = at;
            let present = at < len && self.kind.compare(leaf.key(at), action.key) == Ordering::Equal;
            match action.op {
                Op::Fetch if present => {
                    let (key, value) = leaf.entry(at);
                    if let Some(found) = self.found.get_mut(action.index) {
                        *found = Some((key.to_vec(), value.to_vec()));
                    }
                }
                Op::Fetch => {}
                Op::Remove => {
                    changed |= present;
                    next += usize::from(present);
                }
                Op::Insert => {
                    changed |= !present || leaf.entry(at) != (action.key, action.value);
                    next += usize::from(present);
                    items.push(Item::entry((action.key, action.value)));
                }
            }
        }
        items.extend((next..len).map(|index| Item::entry(leaf.entry(index))));
        let unchanged = || items.len() == len && (0..len).all(|i| items[i].same(&Item::entry(leaf.entry(i))));
        if !changed || unchanged() {
            // Without a node and without entries nothing is there to be left unchanged, but the outcome is the same.
            return Ok(Outcome::Unchanged);
        }
        let old_items: Vec<Item<'_>> = (0..len).map(|index| Item::entry(leaf.entry(index))).collect();
        self.rewrite(NodeType::Kv, old, &old_items, &items)
            .map(Outcome::Changed)
    }

    /// Writes a changed node: all of it, or only what stands before and behind the old one if that can stay.
    fn rewrite(
        &mut self,
        node_type: NodeType,
        old: Option<Old<'_>>,
        old_items: &[Item<'_>],
        new_items: &[Item<'_>],
    ) -> Result<Vec<NewPointer>, TreeError> {
        let mut pointers = Vec::new();
        let reused = old.and_then(|old| Some((old, self.reusable(old_items, new_items)?)));
        match (reused, old_items.last()) {
            (Some((old, kept)), Some(last)) => {
                self.write(node_type, &new_items[..kept.start], &mut pointers)?;
                pointers.push(NewPointer::new(last.key, old.pos, old.reduction, old.size));
                self.write(node_type, &new_items[kept.end..], &mut pointers)?;
            }
            _ => self.write(node_type, new_items, &mut pointers)?,
        }
        Ok(pointers)
    }

    /// Where the old entries stand in the new list, if the old node is full enough to be left alone.
    fn reusable(&self, old: &[Item<'_>], new: &[Item<'_>]) -> Option<Range<usize>> {
        if old.len() < 2 || new.len() < old.len() {
            return None;
        }
        let first = old.first()?;
        let start = new
            .iter()
            .position(|item| item.native_cmp(first) != Ordering::Less)?;
        let kept = new.get(start..start + old.len())?;
        if !old.iter().zip(kept).all(|(a, b)| a.same(b)) {
            return None;
        }
        let size: usize = old.iter().map(Item::external_size).sum();
        // Half of the chunk size, without rounding.
        (size * 2 >= self.chunk_size).then_some(start..start + old.len())
    }

    /// Splits entries into nodes and appends them.
    fn write(
        &mut self,
        node_type: NodeType,
        items: &[Item<'_>],
        pointers: &mut Vec<NewPointer>,
    ) -> Result<(), TreeError> {
        if items.is_empty() {
            return Ok(());
        }
        let mut chunks = std::mem::take(&mut self.chunks);
        chunkify(items, self.chunk_size, &mut chunks);
        for range in &chunks {
            pointers.push(self.write_one(node_type, &items[range.clone()])?);
        }
        self.chunks = chunks;
        Ok(())
    }

    fn write_one(&mut self, node_type: NodeType, items: &[Item<'_>]) -> Result<NewPointer, TreeError> {
        self.out.clear();
        write_node(
            &mut self.out,
            node_type,
            items.len(),
            items.iter().map(|item| (item.key, item.value)),
        );
        let chunk = self.appender.append_term(&self.out)?;
        self.appender.memo().borrow_mut().insert(chunk.pos, &self.out);
        self.out.clear();
        let (reduced, size) = match node_type {
            NodeType::Kv => {
                let mut entries = items.iter().map(|item| (item.key, item.value));
                (self.kind.reduce(&mut entries, &mut self.out), Some(chunk.written))
            }
            NodeType::Kp => {
                let below = items
                    .iter()
                    .try_fold(chunk.written, |sum, item| sum.checked_add(item.size?));
                (
                    self.kind
                        .rereduce(&mut items.iter().map(|item| item.reduction), &mut self.out),
                    below,
                )
            }
        };
        reduced.map_err(|source| TreeError::reduce(self.appender.file(), chunk.pos, source))?;
        let key = items.last().map_or(&[][..], |item| item.key);
        Ok(NewPointer::new(key, chunk.pos, &self.out, size))
    }

    /// Writes pointer nodes until there is one root.
    fn complete_root(&mut self, mut pointers: Vec<NewPointer>) -> Result<Option<Root>, TreeError> {
        while pointers.len() > 1 {
            let mut above = Vec::new();
            let items: Vec<Item<'_>> = pointers.iter().map(Item::pointer).collect();
            self.write(NodeType::Kp, &items, &mut above)?;
            pointers = above;
        }
        Ok(pointers.pop().map(NewPointer::into_root))
    }
}

/// Cuts entries into nodes exactly as CouchDB does: by uncompressed sizes, each entry counted with a version byte.
fn chunkify(items: &[Item<'_>], chunk_size: usize, chunks: &mut Vec<Range<usize>>) {
    chunks.clear();
    let raw: usize = items.iter().map(|item| item.external_size() - 1).sum();
    let total = raw + LIST_OVERHEAD;
    if total <= chunk_size {
        chunks.push(0..items.len());
        return;
    }
    let likely = total / chunk_size.max(1) + 1;
    let threshold = total / likely;
    let mut start = 0;
    let mut sum = 0;
    for (index, item) in items.iter().enumerate() {
        let size = item.external_size();
        if index > start && sum + size > threshold {
            chunks.push(start..index + 1);
            start = index + 1;
            sum = 0;
        } else {
            sum += size;
        }
    }
    match (items.len() - start, chunks.last_mut()) {
        (0, _) => {}
        (1, Some(last)) => last.end = items.len(),
        _ => chunks.push(start..items.len()),
    }
}
