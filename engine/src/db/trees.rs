//! The five B-trees of a database: their order is the native one, and these are their reductions.

use crate::codec::term::{Reader, TermError, tag, write};
use crate::doc::Sizes;
pub use crate::storage::btree::{
    CountReduce as SeqTree, CountReduce as PurgeTree, CountReduce as PurgeSeqTree, NoReduce as LocalTree,
};
use crate::storage::btree::{ReduceError, TreeKind};

/// What the id tree sums up: live and deleted documents, and their sizes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IdReduction {
    /// Documents with at least one live leaf.
    pub live: u64,
    /// Documents whose leaves are all deleted.
    pub deleted: u64,
    /// Sizes in bytes.
    pub sizes: Sizes,
}

impl IdReduction {
    /// Reads `{Live, Deleted, {size_info, Active, External}}` and its older shapes.
    ///
    /// # Errors
    /// [`TermError`] for any other shape.
    pub fn decode(raw: &[u8]) -> Result<Self, TermError> {
        let mut reader = Reader::new(raw);
        let arity = reader.read_tuple()?;
        let mut reduction = Self {
            live: reader.read_u64()?,
            deleted: reader.read_u64()?,
            ..Self::default()
        };
        if arity > 2 {
            reduction.sizes = read_sizes(&mut reader)?;
        }
        Ok(reduction)
    }

    fn encode(&self, out: &mut Vec<u8>) {
        write::tuple(out, 3);
        write::uint(out, self.live);
        write::uint(out, self.deleted);
        write::tuple(out, 3);
        write::atom(out, "size_info");
        write::uint(out, self.sizes.active);
        write::uint(out, self.sizes.external);
    }

    fn add(&mut self, other: &Self) {
        self.live += other.live;
        self.deleted += other.deleted;
        self.sizes.active = self.sizes.active.saturating_add(other.sizes.active);
        self.sizes.external = self.sizes.external.saturating_add(other.sizes.external);
    }
}

/// Sizes as `{A, E}`, as `{size_info, A, E}`, or an old bare number that is the active size.
fn read_sizes(reader: &mut Reader<'_>) -> Result<Sizes, TermError> {
    match reader.peek_tag()? {
        tag::SMALL_TUPLE => {
            if reader.read_tuple()? == 3 {
                reader.read_atom()?;
            }
            Ok(Sizes {
                active: reader.read_u64()?,
                external: reader.read_u64()?,
            })
        }
        tag::SMALL_INTEGER | tag::INTEGER | tag::SMALL_BIG => Ok(Sizes {
            active: reader.read_u64()?,
            external: 0,
        }),
        _ => {
            reader.read_atom()?;
            Ok(Sizes::default())
        }
    }
}

/// Adds one entry of the id tree, `{Seq, Deleted, Sizes, RevTree}` or the old `{Seq, Deleted, RevTree}`.
fn add_id_entry(sum: &mut IdReduction, value: &[u8]) -> Result<(), TermError> {
    let mut reader = Reader::new(value);
    let arity = reader.read_tuple()?;
    reader.read_u64()?;
    match reader.read_u64()? {
        0 => sum.live += 1,
        _ => sum.deleted += 1,
    }
    if arity > 3 {
        let sizes = read_sizes(&mut reader)?;
        sum.sizes.active = sum.sizes.active.saturating_add(sizes.active);
        sum.sizes.external = sum.sizes.external.saturating_add(sizes.external);
    }
    Ok(())
}

/// The id tree.
#[derive(Clone, Copy, Debug, Default)]
pub struct IdTree;

impl TreeKind for IdTree {
    fn reduce(
        &self,
        entries: &mut dyn Iterator<Item = (&[u8], &[u8])>,
        out: &mut Vec<u8>,
    ) -> Result<(), ReduceError> {
        let mut sum = IdReduction::default();
        for (_, value) in entries {
            add_id_entry(&mut sum, value).map_err(|_| ReduceError::Shape("document entry"))?;
        }
        sum.encode(out);
        Ok(())
    }

    fn rereduce(
        &self,
        reductions: &mut dyn Iterator<Item = &[u8]>,
        out: &mut Vec<u8>,
    ) -> Result<(), ReduceError> {
        let mut sum = IdReduction::default();
        for reduction in reductions {
            sum.add(&IdReduction::decode(reduction).map_err(|_| ReduceError::Shape("document count"))?);
        }
        sum.encode(out);
        Ok(())
    }
}
