//! Nodes: read, parsed just far enough, searched in place.

use std::cmp::Ordering;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering as Memory};

use super::root::{Pointer, Root};
use super::skip::term_end;
use super::{DEPTH_MAX, TreeKind};
use crate::cache::{Key, Weight};
use crate::codec::compress::decompress_into;
use crate::codec::term::{ListHead, Reader, TermError, VERSION, tag};
use crate::storage::vfs::Wait;
use crate::storage::{Appender, CouchFile, FileError};

/// Bytes read at once for a node whose length is not known.
const READ_GUESS_BYTES: usize = 4096;
/// Longest single read on the word of a pointer's size, in bytes; a subtree's size is no hint for its top node.
const READ_HINT_BYTES_MAX: u64 = 64 * 1024;
/// Largest buffer that a thread keeps for its next lookup, in bytes.
const KEEP_BYTES: usize = 1024 * 1024;
/// Priority of a root in the cache; each level below has one less, but never less than one.
const ROOT_PRIORITY: u8 = 8;

/// What the shared cache holds.
#[derive(Clone, Debug)]
pub enum CachedNode {
    /// A pointer node.
    Node(Arc<KpNode>),
    /// A term that a header points to (security, properties, time-seq), as a raw external term with its version byte.
    Term(Arc<[u8]>),
}

impl Weight for CachedNode {
    fn weight(&self) -> usize {
        match self {
            Self::Node(node) => node.bytes.len() + size_of::<KpEntry>() * node.entries.len(),
            Self::Term(term) => term.len(),
        }
    }

    fn term_size(&self) -> usize {
        match self {
            Self::Node(node) => node.bytes.len(),
            Self::Term(term) => term.len(),
        }
    }
}

/// Where nodes are read from.
pub trait NodeSource {
    /// The file, for its options, its cache and its name.
    fn file(&self) -> &CouchFile;

    /// Reads the node at `pos` and leaves its uncompressed term in `out`; `raw` is room to read into.
    ///
    /// # Errors
    /// As [`CouchFile::read_chunk`], and [`FileError::Corrupt`] when the node cannot be decompressed.
    fn read_node(
        &self,
        pos: u64,
        hint: usize,
        wait: Wait,
        raw: &mut Vec<u8>,
        out: &mut Vec<u8>,
    ) -> Result<(), FileError>;
}

impl NodeSource for CouchFile {
    fn file(&self) -> &CouchFile {
        self
    }

    fn read_node(
        &self,
        pos: u64,
        hint: usize,
        wait: Wait,
        raw: &mut Vec<u8>,
        out: &mut Vec<u8>,
    ) -> Result<(), FileError> {
        self.read_chunk_hint(pos, hint, wait, raw)?;
        expand(self, pos, raw, out)
    }
}

impl NodeSource for Appender {
    fn file(&self) -> &CouchFile {
        Appender::file(self)
    }

    fn read_node(
        &self,
        pos: u64,
        hint: usize,
        wait: Wait,
        raw: &mut Vec<u8>,
        out: &mut Vec<u8>,
    ) -> Result<(), FileError> {
        if self.memo().borrow_mut().copy_to(pos, out) {
            return Ok(());
        }
        self.read_chunk_hint(pos, hint, wait, raw)?;
        expand(Appender::file(self), pos, raw, out)?;
        self.memo().borrow_mut().insert(pos, out);
        Ok(())
    }
}

impl<S: NodeSource + ?Sized> NodeSource for &S {
    fn file(&self) -> &CouchFile {
        (**self).file()
    }

    fn read_node(
        &self,
        pos: u64,
        hint: usize,
        wait: Wait,
        raw: &mut Vec<u8>,
        out: &mut Vec<u8>,
    ) -> Result<(), FileError> {
        (**self).read_node(pos, hint, wait, raw, out)
    }
}

impl<S: NodeSource + ?Sized> NodeSource for Arc<S> {
    fn file(&self) -> &CouchFile {
        (**self).file()
    }

    fn read_node(
        &self,
        pos: u64,
        hint: usize,
        wait: Wait,
        raw: &mut Vec<u8>,
        out: &mut Vec<u8>,
    ) -> Result<(), FileError> {
        (**self).read_node(pos, hint, wait, raw, out)
    }
}

/// Leaves the uncompressed term of `stored` in `out`, without a copy when it is plain already.
fn expand(file: &CouchFile, pos: u64, stored: &mut Vec<u8>, out: &mut Vec<u8>) -> Result<(), FileError> {
    let compressed = [VERSION, tag::COMPRESSED];
    if stored.first() == Some(&VERSION) && !stored.starts_with(&compressed) {
        std::mem::swap(stored, out);
        return Ok(());
    }
    decompress_into(stored, out)
        .map(drop)
        .map_err(|error| file.corrupt(pos, error.to_string()))
}

/// Which node to read next.
#[derive(Clone, Copy, Debug)]
pub(super) struct Target {
    pub(super) pos: u64,
    /// Size of the subtree as its pointer tells; for a leaf, the length of its chunk.
    pub(super) size: Option<u64>,
    /// The root's is 1.
    pub(super) depth: usize,
    /// Set when the node is known to be a leaf, which the cache does not hold.
    pub(super) leaf: bool,
}

impl Target {
    pub(super) const fn root(root: &Root) -> Self {
        Self {
            pos: root.pos,
            size: root.size,
            depth: 1,
            leaf: false,
        }
    }

    fn hint(&self) -> usize {
        match self.size {
            Some(size) if size <= READ_HINT_BYTES_MAX => usize::try_from(size).unwrap_or(READ_GUESS_BYTES),
            _ => READ_GUESS_BYTES,
        }
    }
}

/// A node that was read.
pub(super) enum Loaded {
    /// A pointer node.
    Kp(Arc<KpNode>),
    /// A leaf, which now stands in the [`Leaf`] that was given.
    Kv,
}

/// Reads the node that `target` names. Pointer nodes near the root come from the cache and go into it.
pub(super) fn load<S: NodeSource + ?Sized>(
    source: &S,
    target: Target,
    wait: Wait,
    leaf: &mut Leaf,
) -> Result<Loaded, FileError> {
    load_until(source, target, wait, leaf, |_| false)
}

/// The same; of a leaf, only the entries up to and with the first whose key `stop` wants no further than.
pub(super) fn load_until<S: NodeSource + ?Sized>(
    source: &S,
    target: Target,
    wait: Wait,
    leaf: &mut Leaf,
    stop: impl FnMut(&[u8]) -> bool,
) -> Result<Loaded, FileError> {
    let file = source.file();
    if target.depth > DEPTH_MAX {
        return Err(file.corrupt(target.pos, "tree is too deep"));
    }
    let cached = file
        .cache()
        .filter(|_| !target.leaf && target.depth <= usize::from(file.options().cache_depth));
    let key = Key {
        file: file.id(),
        offset: target.pos,
    };
    if let Some(cache) = cached
        && let Some(CachedNode::Node(node)) = cache.lookup(key)
    {
        return Ok(Loaded::Kp(node));
    }
    source.read_node(target.pos, target.hint(), wait, &mut leaf.raw, &mut leaf.bytes)?;
    let bad = |error: TermError| file.corrupt(target.pos, format!("no tree node: {error}"));
    match read_head(&leaf.bytes).map_err(bad)? {
        (NodeType::Kv, entries) => {
            leaf.parse(entries, stop).map_err(bad)?;
            Ok(Loaded::Kv)
        }
        (NodeType::Kp, entries) => {
            let node = Arc::new(KpNode::parse(&leaf.bytes, entries, target.pos).map_err(bad)?);
            if let Some(cache) = cached {
                let depth = u8::try_from(target.depth).unwrap_or(ROOT_PRIORITY);
                let priority = ROOT_PRIORITY.saturating_sub(depth).max(1);
                cache.insert(key, CachedNode::Node(Arc::clone(&node)), priority);
            }
            Ok(Loaded::Kp(node))
        }
    }
}

/// The two kinds of node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NodeType {
    Kv,
    Kp,
}

impl NodeType {
    const fn atom(self) -> &'static [u8; 7] {
        match self {
            Self::Kv => b"kv_node",
            Self::Kp => b"kp_node",
        }
    }
}

/// How many entries a node has and where they begin.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entries {
    count: usize,
    start: usize,
}

/// Reads `{kv_node | kp_node, [` with the version byte in front.
fn read_head(bytes: &[u8]) -> Result<(NodeType, Entries), TermError> {
    let mut reader = Reader::versioned(bytes)?;
    reader.expect_tuple(2)?;
    let offset = reader.position();
    let atom = reader.read_atom()?;
    let node_type = match atom.bytes {
        b"kv_node" => NodeType::Kv,
        b"kp_node" => NodeType::Kp,
        _ => {
            return Err(TermError::Invalid {
                what: "no node type",
                offset,
            });
        }
    };
    let count = match reader.read_list()? {
        ListHead::Nil => 0,
        ListHead::Elements(count) => count,
        ListHead::Bytes(_) => {
            return Err(TermError::Invalid {
                what: "list of bytes",
                offset,
            });
        }
    };
    Ok((
        node_type,
        Entries {
            count,
            start: 1 + reader.position(),
        },
    ))
}

/// Writes a node with its version byte; `entries` are raw keys and raw values.
pub(super) fn write_node<'a>(
    out: &mut Vec<u8>,
    node_type: NodeType,
    count: usize,
    entries: impl Iterator<Item = (&'a [u8], &'a [u8])>,
) {
    out.extend_from_slice(&[VERSION, tag::SMALL_TUPLE, 2, tag::ATOM, 0, 7]);
    out.extend_from_slice(node_type.atom());
    crate::codec::term::write::list(out, count);
    for (key, value) in entries {
        out.extend_from_slice(&[tag::SMALL_TUPLE, 2]);
        out.extend_from_slice(key);
        out.extend_from_slice(value);
    }
    out.push(tag::NIL);
}

/// Where an entry stands in its node's bytes. A node is at most a gigabyte, so 32 bits do.
#[derive(Clone, Copy, Debug)]
struct Span {
    key: u32,
    value: u32,
    end: u32,
}

fn narrow(at: usize) -> Result<u32, TermError> {
    u32::try_from(at).map_err(|_| TermError::Invalid {
        what: "node is too long",
        offset: at,
    })
}

const fn wide(at: u32) -> usize {
    at as usize
}

/// A leaf in buffers that are used again for the next one.
#[derive(Debug, Default)]
pub(super) struct Leaf {
    raw: Vec<u8>,
    bytes: Vec<u8>,
    spans: Vec<Span>,
}

impl Leaf {
    /// Finds the entries, up to and with the first whose key `stop` wants no further than.
    fn parse(&mut self, entries: Entries, mut stop: impl FnMut(&[u8]) -> bool) -> Result<(), TermError> {
        self.spans.clear();
        let bytes = self.bytes.as_slice();
        narrow(bytes.len())?;
        let mut at = entries.start;
        // The count is at most the number of bytes, and each entry is found before it gets a span.
        for _ in 0..entries.count {
            let key = match bytes.get(at..) {
                Some([tag::SMALL_TUPLE, 2, ..]) => at + 2,
                Some([tag::LARGE_TUPLE, 0, 0, 0, 2, ..]) => at + 5,
                _ => {
                    return Err(TermError::Invalid {
                        what: "no pair",
                        offset: at,
                    });
                }
            };
            let bad = TermError::Truncated { offset: at };
            let Some(value) = term_end(bytes, key) else {
                return Err(bad);
            };
            let Some(end) = term_end(bytes, value) else {
                return Err(bad);
            };
            self.spans.push(Span {
                key: narrow(key)?,
                value: narrow(value)?,
                end: narrow(end)?,
            });
            at = end;
            if stop(&bytes[key..value]) {
                return Ok(());
            }
        }
        if entries.count > 0 && bytes.get(at) != Some(&tag::NIL) {
            return Err(TermError::Invalid {
                what: "list without end",
                offset: at,
            });
        }
        Ok(())
    }

    /// Makes this the leaf of an empty tree.
    pub(super) fn clear(&mut self) {
        self.spans.clear();
    }

    /// The leaf itself, or an empty one when its buffers are too large to be kept for the next.
    pub(super) fn recycle(self) -> Self {
        if self.raw.capacity().max(self.bytes.capacity()) > KEEP_BYTES {
            Self::default()
        } else {
            self
        }
    }

    pub(super) fn len(&self) -> usize {
        self.spans.len()
    }

    /// Bytes of the uncompressed node.
    pub(super) fn bytes_len(&self) -> usize {
        self.bytes.len()
    }

    #[inline]
    pub(super) fn key(&self, index: usize) -> &[u8] {
        let span = self.spans[index];
        &self.bytes[wide(span.key)..wide(span.value)]
    }

    #[inline]
    pub(super) fn value(&self, index: usize) -> &[u8] {
        let span = self.spans[index];
        &self.bytes[wide(span.value)..wide(span.end)]
    }

    #[inline]
    pub(super) fn entry(&self, index: usize) -> (&[u8], &[u8]) {
        (self.key(index), self.value(index))
    }

    /// The first index in `range` whose key is not below `key` (or, with `after`, is above it), else the range's end.
    pub(super) fn find<K: TreeKind + ?Sized>(
        &self,
        kind: &K,
        key: &[u8],
        range: Range<usize>,
        after: bool,
    ) -> usize {
        let spans = &self.spans[range.clone()];
        let below = |span: &Span| {
            let order = kind.compare(&self.bytes[wide(span.key)..wide(span.value)], key);
            order == Ordering::Less || (after && order == Ordering::Equal)
        };
        range.start + spans.partition_point(below)
    }
}

/// An entry of a pointer node.
#[derive(Clone, Copy, Debug)]
struct KpEntry {
    key: u32,
    value: u32,
    end: u32,
    reduction: u32,
    reduction_end: u32,
    pos: u64,
    size: Option<u64>,
}

/// A pointer node, parsed once: searched without looking at the term again.
#[derive(Debug)]
pub struct KpNode {
    bytes: Box<[u8]>,
    entries: Box<[KpEntry]>,
    /// What the children are, once one has been read: 0 not known, 1 pointer nodes, 2 leaves.
    children: AtomicU8,
}

const CHILDREN_LEAVES: u8 = 2;

impl KpNode {
    /// Parses the node that stands at `node_pos`; every child must lie below it.
    fn parse(bytes: &[u8], entries: Entries, node_pos: u64) -> Result<Self, TermError> {
        let mut reader = Reader::new(bytes.get(entries.start..).unwrap_or_default());
        let at = |reader: &Reader<'_>| narrow(entries.start + reader.position());
        let mut parsed = Vec::new();
        for _ in 0..entries.count {
            reader.expect_tuple(2)?;
            let key = at(&reader)?;
            reader.skip()?;
            let value = at(&reader)?;
            let pointer = Pointer::read(&mut reader)?;
            if pointer.pos >= node_pos {
                return Err(TermError::Invalid {
                    what: "child behind its parent",
                    offset: wide(value),
                });
            }
            let end = at(&reader)?;
            // The reduction is a slice of `bytes`; its place follows from the two addresses.
            let start = pointer.reduction.as_ptr() as usize - bytes.as_ptr() as usize;
            parsed.push(KpEntry {
                key,
                value,
                end,
                reduction: narrow(start)?,
                reduction_end: narrow(start + pointer.reduction.len())?,
                pos: pointer.pos,
                size: pointer.size,
            });
        }
        if entries.count > 0 {
            reader.end_list()?;
        }
        Ok(Self {
            bytes: bytes.into(),
            entries: parsed.into(),
            children: AtomicU8::new(0),
        })
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Bytes of the uncompressed node.
    pub(super) fn bytes_len(&self) -> usize {
        self.bytes.len()
    }

    /// The greatest key below child `index`.
    #[inline]
    pub(super) fn key(&self, index: usize) -> &[u8] {
        let entry = &self.entries[index];
        &self.bytes[wide(entry.key)..wide(entry.value)]
    }

    /// The pointer to child `index` as a raw term.
    pub(super) fn value(&self, index: usize) -> &[u8] {
        let entry = &self.entries[index];
        &self.bytes[wide(entry.value)..wide(entry.end)]
    }

    /// The reduction of child `index`.
    pub(super) fn reduction(&self, index: usize) -> &[u8] {
        let entry = &self.entries[index];
        &self.bytes[wide(entry.reduction)..wide(entry.reduction_end)]
    }

    pub(super) fn child_pos(&self, index: usize) -> u64 {
        self.entries[index].pos
    }

    pub(super) fn child_size(&self, index: usize) -> Option<u64> {
        self.entries[index].size
    }

    /// Child `index` of this node, which has depth `depth`.
    pub(super) fn child(&self, index: usize, depth: usize) -> Target {
        let entry = &self.entries[index];
        let leaf = self.children.load(Memory::Relaxed) == CHILDREN_LEAVES;
        Target {
            pos: entry.pos,
            size: entry.size,
            depth: depth + 1,
            leaf,
        }
    }

    /// Remembers that the children are leaves, so that nobody looks for them in the cache.
    pub(super) fn note_leaves(&self) {
        if self.children.load(Memory::Relaxed) != CHILDREN_LEAVES {
            self.children.store(CHILDREN_LEAVES, Memory::Relaxed);
        }
    }

    /// The first child from `from` on whose keys are not all below `key`, or the number of children.
    #[inline]
    pub(super) fn find<K: TreeKind + ?Sized>(&self, kind: &K, key: &[u8], from: usize) -> usize {
        let below = |entry: &KpEntry| {
            kind.compare(&self.bytes[wide(entry.key)..wide(entry.value)], key) == Ordering::Less
        };
        from + self.entries[from..].partition_point(below)
    }
}
