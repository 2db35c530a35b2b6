//! The term of a tree: `[{Start, {RevId, Value, [Child, ...]}}, ...]`.

use super::raw::RawWalk;
use super::{CHUNK_LEN_UNKNOWN, Leaf, Node, RevTree, Sizes, Stream};
use crate::codec::term::{ListHead, Reader, TermError, tag, write};
use crate::ids::RevId;
use crate::limits::{REV_TREE_NODES_MAX, STREAM_CHUNKS_MAX};
use smallvec::SmallVec;
use thiserror::Error;

/// Why bytes are not a revision tree.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum RevTreeError {
    /// The bytes are not the terms that a tree is made of.
    #[error("revision tree: {0}")]
    Term(#[from] TermError),
    /// A term of another shape.
    #[error("revision tree: unexpected {0}")]
    Shape(&'static str),
    /// More than [`REV_TREE_NODES_MAX`] revisions.
    #[error("revision tree has more than {REV_TREE_NODES_MAX} revisions")]
    TooManyNodes,
    /// No leaf whose body is stored, so no winner.
    #[error("revision tree without a stored leaf")]
    NoLeaf,
}

/// The value of a node before its attachments are decoded.
#[derive(Clone, Copy, Debug)]
pub(super) struct WriteInfo<'a> {
    pub(super) deleted: bool,
    pub(super) ptr: u64,
    pub(super) seq: u64,
    pub(super) sizes: Sizes,
    /// The raw list of attachments; empty in old files.
    pub(super) atts: &'a [u8],
}

/// Reads a node's value: `[]`, or a tuple of three to five in the shapes of all releases.
#[inline]
pub(super) fn read_value<'a>(reader: &mut Reader<'a>) -> Result<Option<WriteInfo<'a>>, RevTreeError> {
    if reader.peek_tag()? == tag::NIL {
        reader.read_list()?;
        return Ok(None);
    }
    let arity = reader.read_tuple()?;
    if !(3..=5).contains(&arity) {
        return Err(RevTreeError::Shape("tuple as a revision's value"));
    }
    let deleted = reader.read_u64()? != 0;
    let ptr = reader.read_u64()?;
    let seq = reader.read_u64()?;
    let sizes = if arity > 3 {
        read_sizes(reader)?
    } else {
        Sizes::default()
    };
    let atts = if arity > 4 { reader.skip()? } else { &[] };
    Ok(Some(WriteInfo {
        deleted,
        ptr,
        seq,
        sizes,
        atts,
    }))
}

/// Reads sizes: `{Active, External}`, `{size_info, Active, External}`, or the active size alone.
pub(crate) fn read_sizes(reader: &mut Reader<'_>) -> Result<Sizes, RevTreeError> {
    match reader.peek_tag()? {
        tag::SMALL_TUPLE | tag::LARGE_TUPLE => match reader.read_tuple()? {
            2 => {}
            3 if reader.skip_atom(b"size_info") => {}
            _ => return Err(RevTreeError::Shape("tuple as sizes")),
        },
        _ => {
            return Ok(Sizes {
                active: reader.read_u64()?,
                external: 0,
            });
        }
    }
    let active = reader.read_u64()?;
    let external = reader.read_u64()?;
    Ok(Sizes { active, external })
}

/// Reads a stream pointer: a list of `{Pos, Len}`, or of bare positions in old files.
pub(crate) fn read_stream(reader: &mut Reader<'_>) -> Result<Stream, RevTreeError> {
    let count = match reader.read_list()? {
        ListHead::Nil => return Ok(Stream::new()),
        ListHead::Bytes(bytes) => {
            return Ok(bytes
                .iter()
                .map(|pos| (u64::from(*pos), CHUNK_LEN_UNKNOWN))
                .collect());
        }
        ListHead::Elements(count) if count <= STREAM_CHUNKS_MAX => count,
        ListHead::Elements(_) => return Err(RevTreeError::Shape("number of chunks")),
    };
    let mut stream = Stream::new();
    for _ in 0..count {
        stream.push(match reader.peek_tag()? {
            tag::SMALL_TUPLE => {
                reader.expect_tuple(2)?;
                (reader.read_u64()?, reader.read_u64()?)
            }
            _ => (reader.read_u64()?, CHUNK_LEN_UNKNOWN),
        });
    }
    reader.end_list()?;
    Ok(stream)
}

/// Appends a stream pointer.
pub(crate) fn write_stream(out: &mut Vec<u8>, stream: &[(u64, u64)]) {
    // A list of nothing but small integers has a form of its own; bare positions come from old files only.
    let bare: Option<Vec<u8>> = stream
        .iter()
        .map(|(pos, len)| u8::try_from(*pos).ok().filter(|_| *len == CHUNK_LEN_UNKNOWN))
        .collect();
    if let Some(bytes) = bare {
        return write::byte_list(out, &bytes);
    }
    write::list(out, stream.len());
    for (pos, len) in stream {
        if *len == CHUNK_LEN_UNKNOWN {
            write::uint(out, *pos);
        } else {
            write::tuple(out, 2);
            write::uint(out, *pos);
            write::uint(out, *len);
        }
    }
    write::nil(out);
}

fn read_leaf_atts(raw: &[u8]) -> Result<Vec<(Stream, u64)>, RevTreeError> {
    let mut reader = Reader::new(raw);
    let count = match reader.read_list()? {
        ListHead::Nil => return Ok(Vec::new()),
        ListHead::Elements(count) => count,
        ListHead::Bytes(_) => return Err(RevTreeError::Shape("list of bytes as attachments")),
    };
    let mut atts = Vec::new();
    for _ in 0..count {
        reader.expect_tuple(2)?;
        atts.push((read_stream(&mut reader)?, reader.read_u64()?));
    }
    reader.end_list()?;
    Ok(atts)
}

fn write_value(out: &mut Vec<u8>, leaf: Option<&Leaf>) {
    let Some(leaf) = leaf else { return write::nil(out) };
    write::tuple(out, 5);
    write::uint(out, u64::from(leaf.deleted));
    write::uint(out, leaf.ptr);
    write::uint(out, leaf.seq);
    write_sizes(out, leaf.sizes);
    if leaf.atts.is_empty() {
        return write::nil(out);
    }
    write::list(out, leaf.atts.len());
    for (stream, len) in &leaf.atts {
        write::tuple(out, 2);
        write_stream(out, stream);
        write::uint(out, *len);
    }
    write::nil(out);
}

/// Appends `{Active, External}`.
pub(crate) fn write_sizes(out: &mut Vec<u8>, sizes: Sizes) {
    write::tuple(out, 2);
    write::uint(out, sizes.active);
    write::uint(out, sizes.external);
}

impl RevTree {
    /// Reads a tree from its raw term, in the shapes of all releases.
    ///
    /// # Errors
    /// [`RevTreeError`].
    pub fn decode(raw: &[u8]) -> Result<Self, RevTreeError> {
        let mut walk = RawWalk::new(raw)?;
        let mut tree = Self::new();
        while let Some(node) = walk.next()? {
            if tree.nodes.len() >= REV_TREE_NODES_MAX {
                return Err(RevTreeError::TooManyNodes);
            }
            let leaf = match node.value {
                Some(value) => Some(Leaf {
                    deleted: value.deleted,
                    ptr: value.ptr,
                    seq: value.seq,
                    sizes: value.sizes,
                    atts: if value.atts.is_empty() {
                        Vec::new()
                    } else {
                        read_leaf_atts(value.atts)?
                    },
                }),
                None => None,
            };
            tree.nodes.push(Node {
                id: RevId::new(node.id),
                pos: node.pos,
                root: node.root,
                leaf,
            });
        }
        Ok(tree)
    }

    /// Appends the tree's raw term.
    pub fn encode(&self, out: &mut Vec<u8>) {
        if self.nodes.is_empty() {
            return write::nil(out);
        }
        write::list(out, self.nodes.iter().filter(|node| node.root).count());
        // Lists of children that are open: where their length goes, the position of their nodes, how many there were.
        let mut open: SmallVec<[(usize, u64, u32); 8]> = SmallVec::new();
        for (index, node) in self.nodes.iter().enumerate() {
            close_lists(out, &mut open, if node.root { None } else { Some(node.pos) });
            if node.root {
                write::tuple(out, 2);
                write::uint(out, node.pos);
            } else if let Some((_, _, count)) = open.last_mut() {
                *count += 1;
            }
            write::tuple(out, 3);
            write::binary(out, node.id.as_bytes());
            write_value(out, node.leaf.as_ref());
            if self.is_leaf_at(index) {
                write::nil(out);
            } else {
                write::list(out, 0);
                open.push((out.len(), node.pos + 1, 0));
            }
        }
        close_lists(out, &mut open, None);
        write::nil(out);
    }
}

/// Ends the lists whose nodes stand deeper than `pos`, or all.
fn close_lists(out: &mut Vec<u8>, open: &mut SmallVec<[(usize, u64, u32); 8]>, pos: Option<u64>) {
    while let Some((end_of_head, list_pos, count)) = open.last().copied() {
        if pos.is_some_and(|pos| list_pos <= pos) {
            return;
        }
        if let Some(length) = out.get_mut(end_of_head - 4..end_of_head) {
            length.copy_from_slice(&count.to_be_bytes());
        }
        write::nil(out);
        open.pop();
    }
}
