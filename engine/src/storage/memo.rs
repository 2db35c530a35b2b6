//! Uncompressed nodes that the writer of a file read or wrote of late.
//!
//! A commit looks keys up, then modifies the same leaves, and the next commit often meets the leaves that this one wrote.
//! Positions are never used twice (truncation clears the memo), so what is remembered cannot be stale.

use ahash::AHashMap;

/// Bytes of one generation; two are kept.
const GENERATION_BYTES: usize = 512 * 1024;
/// Larger nodes are not remembered, in bytes.
const NODE_BYTES_MAX: usize = GENERATION_BYTES / 4;

/// Two generations of nodes: a full young one becomes the old one, and what nobody asked for meanwhile is forgotten.
#[derive(Debug, Default)]
pub struct NodeMemo {
    young: AHashMap<u64, Box<[u8]>>,
    old: AHashMap<u64, Box<[u8]>>,
    young_bytes: usize,
}

impl NodeMemo {
    /// Copies the node at `pos` to `out`, whose contents are replaced; false when it is not remembered.
    pub fn copy_to(&mut self, pos: u64, out: &mut Vec<u8>) -> bool {
        if let Some(node) = self.young.get(&pos) {
            out.clear();
            out.extend_from_slice(node);
            return true;
        }
        let Some(node) = self.old.remove(&pos) else {
            return false;
        };
        out.clear();
        out.extend_from_slice(&node);
        self.keep(pos, node);
        true
    }

    /// Remembers the node at `pos`.
    pub fn insert(&mut self, pos: u64, node: &[u8]) {
        if node.len() <= NODE_BYTES_MAX {
            self.keep(pos, node.into());
        }
    }

    /// Forgets a node that was replaced.
    pub fn remove(&mut self, pos: u64) {
        if let Some(node) = self.young.remove(&pos) {
            self.young_bytes -= node.len();
        }
        self.old.remove(&pos);
    }

    /// Forgets everything and gives the memory back.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    fn keep(&mut self, pos: u64, node: Box<[u8]>) {
        if self.young_bytes + node.len() > GENERATION_BYTES {
            self.old = std::mem::take(&mut self.young);
            self.young_bytes = 0;
        }
        self.young_bytes += node.len();
        if let Some(before) = self.young.insert(pos, node) {
            self.young_bytes -= before.len();
        }
    }
}
