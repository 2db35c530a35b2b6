//! Reading trees straight from their bytes, without allocation, for folds over many documents.

use super::codec::{RevTreeError, WriteInfo, read_value};
use crate::codec::term::{ListHead, Reader, tag};
use crate::limits::REV_POS_MAX;

/// One node of a tree as it is met in preorder.
#[derive(Debug)]
pub(super) struct RawNode<'a> {
    pub(super) pos: u64,
    pub(super) root: bool,
    pub(super) id: &'a [u8],
    /// Nothing when the revision's body is not stored.
    pub(super) value: Option<WriteInfo<'a>>,
    pub(super) is_leaf: bool,
}

/// Walks a tree's bytes in preorder. Lists are followed by their ends and not by their counts, so that no stack is
/// needed however deep the tree is.
#[derive(Debug)]
pub(super) struct RawWalk<'a> {
    reader: Reader<'a>,
    /// Position of the next node, unless it is a root.
    pos: u64,
    /// Lists of children that are open.
    open: usize,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Roots,
    Done,
}

impl<'a> RawWalk<'a> {
    pub(super) fn new(raw: &'a [u8]) -> Result<Self, RevTreeError> {
        let mut reader = Reader::new(raw);
        let state = match reader.read_list()? {
            ListHead::Nil => State::Done,
            ListHead::Elements(_) => State::Roots,
            ListHead::Bytes(_) => return Err(RevTreeError::Shape("list of bytes as a tree")),
        };
        Ok(Self {
            reader,
            pos: 0,
            open: 0,
            state,
        })
    }

    /// The next node, or nothing behind the last one.
    #[inline]
    pub(super) fn next(&mut self) -> Result<Option<RawNode<'a>>, RevTreeError> {
        while self.state != State::Done {
            if self.reader.peek_tag()? != tag::NIL {
                return self.node().map(Some);
            }
            self.reader.end_list()?;
            if self.open == 0 {
                self.state = State::Done;
            } else {
                self.open -= 1;
                self.pos -= 1;
            }
        }
        self.reader.end()?;
        Ok(None)
    }

    #[inline]
    fn node(&mut self) -> Result<RawNode<'a>, RevTreeError> {
        let root = self.open == 0;
        if root {
            self.reader.expect_tuple(2)?;
            self.pos = self.reader.read_u64()?;
        }
        let pos = self.pos;
        if pos > REV_POS_MAX {
            return Err(RevTreeError::Shape("position out of range"));
        }
        self.reader.expect_tuple(3)?;
        let id = self.reader.read_binary()?;
        let value = read_value(&mut self.reader)?;
        let is_leaf = match self.reader.read_list()? {
            ListHead::Nil => true,
            ListHead::Elements(count) if count > 0 => {
                self.open += 1;
                self.pos += 1;
                false
            }
            _ => return Err(RevTreeError::Shape("list of children")),
        };
        Ok(RawNode {
            pos,
            root,
            id,
            value,
            is_leaf,
        })
    }
}

/// A leaf of a tree in its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeafView<'a> {
    /// Position.
    pub pos: u64,
    /// Revision id.
    pub id: &'a [u8],
    /// Whether it is a deletion.
    pub deleted: bool,
    /// Where its summary begins.
    pub ptr: u64,
    /// The update that wrote it.
    pub seq: u64,
}

impl LeafView<'_> {
    /// What the winner is greatest in: live before deleted, then position, then id.
    fn rank(&self) -> (bool, u64, &[u8]) {
        (!self.deleted, self.pos, self.id)
    }
}

/// The revision that a document shows, and how many others there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WinnerView<'a> {
    /// Position.
    pub pos: u64,
    /// Revision id.
    pub id: &'a [u8],
    /// Whether the document is deleted.
    pub deleted: bool,
    /// Where its summary begins.
    pub ptr: u64,
    /// The update that wrote it.
    pub seq: u64,
    /// Leaves in the tree, the winner among them.
    pub leaf_count: u64,
    /// Those of them that are not deletions.
    pub live_leaf_count: u64,
}

impl WinnerView<'_> {
    /// Whether there are live revisions beside the winner.
    #[must_use]
    pub const fn has_conflicts(&self) -> bool {
        self.live_leaf_count > if self.deleted { 0 } else { 1 }
    }
}

/// The winner of a tree, from the tree's raw term.
///
/// # Errors
/// The bytes are not a tree, or no leaf has a body.
pub fn winner_of_raw(raw: &[u8]) -> Result<WinnerView<'_>, RevTreeError> {
    let mut best: Option<LeafView<'_>> = None;
    let (mut leaf_count, mut live_leaf_count) = (0, 0);
    leaves_of_raw(raw, |leaf| {
        leaf_count += 1;
        live_leaf_count += u64::from(!leaf.deleted);
        if best.is_none_or(|best| best.rank() < leaf.rank()) {
            best = Some(leaf);
        }
    })?;
    let LeafView {
        pos,
        id,
        deleted,
        ptr,
        seq,
    } = best.ok_or(RevTreeError::NoLeaf)?;
    Ok(WinnerView {
        pos,
        id,
        deleted,
        ptr,
        seq,
        leaf_count,
        live_leaf_count,
    })
}

/// Visits every leaf whose body is stored, in the tree's order, from the tree's raw term.
///
/// # Errors
/// The bytes are not a tree; leaves before the fault have been visited.
pub fn leaves_of_raw<'a>(raw: &'a [u8], mut visit: impl FnMut(LeafView<'a>)) -> Result<(), RevTreeError> {
    let mut walk = RawWalk::new(raw)?;
    while let Some(node) = walk.next()? {
        if let (true, Some(value)) = (node.is_leaf, node.value) {
            let WriteInfo {
                deleted, ptr, seq, ..
            } = value;
            visit(LeafView {
                pos: node.pos,
                id: node.id,
                deleted,
                ptr,
                seq,
            });
        }
    }
    Ok(())
}
