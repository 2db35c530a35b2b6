//! Append-only B-trees, byte for byte as CouchDB's `couch_btree` keeps them.
//!
//! A node is one chunk: `{kv_node, [{Key, Value}]}` for a leaf, `{kp_node, [{LastKey, {Pos, Reduction, Size}}]}` for a
//! pointer node. Keys, values and reductions are *raw* terms (without the version byte 131) and stay bytes: nothing here
//! decodes them, but the [`TreeKind`] may look inside. A change writes new nodes up to a new [`Root`] and touches nothing
//! that was there.
//!
//! Children lie below their parents in the file. Every descent checks that, so a damaged file cannot make it go round in
//! circles.

mod fold;
mod lookup;
mod modify;
mod node;
mod reduce;
mod root;
mod skip;

use std::cmp::Ordering;
use std::path::Path;
use std::sync::Arc;

use thiserror::Error;

use super::{CouchFile, FileError};
use crate::codec::term;

pub use fold::{Cursor, CursorOptions, Direction, FoldOptions, FoldPosition, LeafView};
pub use modify::{Found, modify};
pub use node::{CachedNode, KpNode, NodeSource};
pub use reduce::{Group, Level};
pub use root::Root;

/// Deepest tree that is followed; a real one of this depth would not fit on any disk.
pub const DEPTH_MAX: usize = 64;

/// What a tree's keys and values are: their order and their reduction.
pub trait TreeKind {
    /// The order of two raw keys.
    #[inline]
    fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        term::compare(a, b)
    }

    /// Appends the reduction of entries (raw key, raw value), given in key order, to `out` as a raw term.
    ///
    /// # Errors
    /// [`ReduceError`] when a value is not of the shape that this kind of tree holds.
    fn reduce(
        &self,
        entries: &mut dyn Iterator<Item = (&[u8], &[u8])>,
        out: &mut Vec<u8>,
    ) -> Result<(), ReduceError>;

    /// Appends the reduction of reductions to `out` as a raw term.
    ///
    /// # Errors
    /// [`ReduceError`] when one is not of the shape that this kind of tree keeps.
    fn rereduce(
        &self,
        reductions: &mut dyn Iterator<Item = &[u8]>,
        out: &mut Vec<u8>,
    ) -> Result<(), ReduceError>;
}

impl<K: TreeKind + ?Sized> TreeKind for &K {
    fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        (**self).compare(a, b)
    }

    fn reduce(
        &self,
        entries: &mut dyn Iterator<Item = (&[u8], &[u8])>,
        out: &mut Vec<u8>,
    ) -> Result<(), ReduceError> {
        (**self).reduce(entries, out)
    }

    fn rereduce(
        &self,
        reductions: &mut dyn Iterator<Item = &[u8]>,
        out: &mut Vec<u8>,
    ) -> Result<(), ReduceError> {
        (**self).rereduce(reductions, out)
    }
}

/// A tree in the native term order without reductions: the empty list stands for each.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoReduce;

impl TreeKind for NoReduce {
    fn reduce(
        &self,
        _: &mut dyn Iterator<Item = (&[u8], &[u8])>,
        out: &mut Vec<u8>,
    ) -> Result<(), ReduceError> {
        term::write::nil(out);
        Ok(())
    }

    fn rereduce(&self, _: &mut dyn Iterator<Item = &[u8]>, out: &mut Vec<u8>) -> Result<(), ReduceError> {
        term::write::nil(out);
        Ok(())
    }
}

/// A tree in the native term order whose reduction is the number of entries.
#[derive(Clone, Copy, Debug, Default)]
pub struct CountReduce;

impl TreeKind for CountReduce {
    fn reduce(
        &self,
        entries: &mut dyn Iterator<Item = (&[u8], &[u8])>,
        out: &mut Vec<u8>,
    ) -> Result<(), ReduceError> {
        term::write::uint(out, entries.count() as u64);
        Ok(())
    }

    fn rereduce(
        &self,
        reductions: &mut dyn Iterator<Item = &[u8]>,
        out: &mut Vec<u8>,
    ) -> Result<(), ReduceError> {
        let mut sum = 0_u64;
        for reduction in reductions {
            let count = term::Reader::new(reduction)
                .read_u64()
                .map_err(|_| ReduceError::Shape("count"))?;
            sum = sum.checked_add(count).ok_or(ReduceError::Shape("count"))?;
        }
        term::write::uint(out, sum);
        Ok(())
    }
}

/// Why a reduction could not be computed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ReduceError {
    /// A value or reduction is not what this kind of tree holds.
    #[error("unexpected shape of a {0}")]
    Shape(&'static str),
    /// The reduce function failed.
    #[error("reduce function failed: {0}")]
    Failed(String),
}

/// A failed tree operation.
#[derive(Debug, Error)]
pub enum TreeError {
    /// The file could not be read or written, or a node in it is damaged.
    #[error(transparent)]
    File(#[from] FileError),
    /// A reduction could not be computed.
    #[error("{source} in the tree at {pos} of {}", path.display())]
    Reduce {
        /// The file.
        path: Arc<Path>,
        /// Position of the node, or of the root when the reduction spans nodes.
        pos: u64,
        /// Why.
        source: ReduceError,
    },
}

impl TreeError {
    /// True when the bytes are not in memory and the caller asked not to wait.
    #[must_use]
    pub const fn is_would_block(&self) -> bool {
        matches!(self, Self::File(FileError::WouldBlock { .. }))
    }

    fn reduce(file: &CouchFile, pos: u64, source: ReduceError) -> Self {
        Self::Reduce {
            path: Arc::clone(file.shared_path()),
            pos,
            source,
        }
    }
}

/// A tree to read: what it holds, where it is, and its root.
///
/// `S` is a [`CouchFile`], or an [`Appender`](super::Appender) to see nodes that are not written yet.
#[derive(Debug)]
pub struct Tree<'a, K, S: ?Sized = CouchFile> {
    kind: &'a K,
    source: &'a S,
    root: Option<&'a Root>,
}

impl<K, S: ?Sized> Clone for Tree<'_, K, S> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K, S: ?Sized> Copy for Tree<'_, K, S> {}

impl<'a, K: TreeKind, S: NodeSource + ?Sized> Tree<'a, K, S> {
    /// The tree under `root` in `source`; no root is an empty tree.
    #[must_use]
    pub const fn new(kind: &'a K, source: &'a S, root: Option<&'a Root>) -> Self {
        Self { kind, source, root }
    }

    /// Its root.
    #[must_use]
    pub const fn root(&self) -> Option<&'a Root> {
        self.root
    }

    /// Bytes of all its nodes in the file, or `None` when old pointers do not tell.
    #[must_use]
    pub fn size(&self) -> Option<u64> {
        self.root.map_or(Some(0), |root| root.size)
    }
}

#[cfg(test)]
mod tests;
