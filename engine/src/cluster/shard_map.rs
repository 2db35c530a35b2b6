//! The shard map of one database: its ranges, which nodes hold a copy of each, and the `_dbs` document that says so.

use super::ring::{self, FULL_RING, HashError, HashKind, RING_END};
use crate::ids::{DbName, NodeName, ShardRange};
use std::sync::Arc;
use thiserror::Error;

/// The characters of a shard name before the database name: `shards/rrrrrrrr-ssssssss/`.
const PREFIX_LEN: usize = 25;

/// The characters of a suffix: a dot and ten digits of unix seconds.
const SUFFIX_LEN: usize = 11;

/// Why shards do not make a map.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ShardMapError {
    /// There is no range at all.
    #[error("shard map has no ranges")]
    NoRanges,
    /// A range has no node.
    #[error("range {0} has no node")]
    NoNode(ShardRange),
    /// The ranges do not cover the ring.
    #[error("the ranges do not cover the ring")]
    Incomplete,
}

/// One range of a database and the nodes that hold it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShardCopies {
    range: ShardRange,
    nodes: Vec<NodeName>,
    name: Arc<str>,
}

impl ShardCopies {
    /// The range.
    #[must_use]
    pub const fn range(&self) -> ShardRange {
        self.range
    }

    /// The nodes with a copy, in the document's order.
    #[must_use]
    pub fn nodes(&self) -> &[NodeName] {
        &self.nodes
    }

    /// The name of the shard's own database: `shards/RRRRRRRR-SSSSSSSS/DB.TTTTTTTTTT`. The same on every node.
    #[must_use]
    pub const fn name(&self) -> &Arc<str> {
        &self.name
    }
}

/// A clustered database as its shard document describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShardMap {
    db: DbName,
    suffix: String,
    shards: Vec<ShardCopies>,
    /// Width of the ranges when they are those of a fresh ring, so that a division finds a document's range.
    width: Option<u32>,
    hash: HashKind,
    partitioned: bool,
    pub(super) engine: Option<String>,
    /// Raw ejson terms kept as found, so that what other versions wrote is written back.
    pub(super) props: Option<Vec<u8>>,
    pub(super) changelog: Vec<u8>,
}

/// What a map is made of besides its shards.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShardMapOptions {
    /// Whether ids name a partition.
    pub partitioned: bool,
    /// The hash of ids.
    pub hash: HashKind,
    /// The storage engine asked for at creation.
    pub engine: Option<String>,
}

impl ShardMap {
    /// A map from its ranges. They are put in ring order; ranges may overlap, as after the split of one copy.
    ///
    /// # Errors
    /// [`ShardMapError`] when documents would have no place.
    pub fn new(
        db: DbName,
        suffix: String,
        shards: Vec<(ShardRange, Vec<NodeName>)>,
        options: ShardMapOptions,
    ) -> Result<Self, ShardMapError> {
        if shards.is_empty() {
            return Err(ShardMapError::NoRanges);
        }
        let mut shards: Vec<ShardCopies> = shards
            .into_iter()
            .map(|(range, nodes)| ShardCopies {
                name: shard_name(range, db.as_str(), &suffix).into(),
                range,
                nodes,
            })
            .collect();
        shards.sort_by_key(|shard| (shard.range.begin, std::cmp::Reverse(shard.range.end)));
        if let Some(empty) = shards.iter().find(|shard| shard.nodes.is_empty()) {
            return Err(ShardMapError::NoNode(empty.range));
        }
        let ranges: Vec<ShardRange> = shards.iter().map(|shard| shard.range).collect();
        if ring::get_ring(&ranges, 0, RING_END).is_none() {
            return Err(ShardMapError::Incomplete);
        }
        let width = uniform_width(&ranges);
        let ShardMapOptions {
            partitioned,
            hash,
            engine,
        } = options;
        let mut map = Self {
            db,
            suffix,
            shards,
            width,
            hash,
            partitioned,
            engine,
            props: Some(super::shard_doc::props_term(partitioned, hash)),
            changelog: Vec::new(),
        };
        map.changelog = super::shard_doc::creation_changelog(&map);
        Ok(map)
    }

    /// The map of a node-local database such as `_dbs`, seen through the coordinator: one shard, the database itself.
    #[must_use]
    pub fn local(db: DbName, node: NodeName) -> Self {
        let name = Arc::from(db.as_str());
        let shards = vec![ShardCopies {
            range: FULL_RING,
            nodes: vec![node],
            name,
        }];
        Self {
            db,
            suffix: String::new(),
            width: uniform_width(&[FULL_RING]),
            shards,
            hash: HashKind::Crc32,
            partitioned: false,
            engine: None,
            props: None,
            changelog: Vec::new(),
        }
    }

    /// The database.
    #[must_use]
    pub const fn db(&self) -> &DbName {
        &self.db
    }

    /// What stands behind the database name in shard names: a dot and the unix seconds of creation.
    #[must_use]
    pub fn suffix(&self) -> &str {
        &self.suffix
    }

    /// The creation time as clients see it in `instance_start_time`: unix seconds in decimal, "0" when unknown.
    #[must_use]
    pub fn instance_start_time(&self) -> &str {
        match self.suffix.strip_prefix('.') {
            Some(digits) if !digits.is_empty() => digits,
            _ => "0",
        }
    }

    /// The ranges in ring order; a shard index is a place in this list.
    #[must_use]
    pub fn shards(&self) -> &[ShardCopies] {
        &self.shards
    }

    /// The number of distinct ranges.
    #[must_use]
    pub fn q(&self) -> usize {
        self.shards.len()
    }

    /// The number of copies, as CouchDB counts it for a database: of the range that holds `_design/foo`.
    #[must_use]
    pub fn n(&self) -> usize {
        let position = crc32fast::hash(b"_design/foo");
        self.for_position(position)
            .map(|index| self.shards[index].nodes.len())
            .sum()
    }

    /// The default quorum for reads and writes.
    #[must_use]
    pub fn quorum(&self) -> usize {
        quorum(self.n())
    }

    /// Whether ids name a partition.
    #[must_use]
    pub const fn partitioned(&self) -> bool {
        self.partitioned
    }

    /// The hash of ids.
    #[must_use]
    pub const fn hash_kind(&self) -> HashKind {
        self.hash
    }

    /// The storage engine that was asked for at creation.
    #[must_use]
    pub fn engine(&self) -> Option<&str> {
        self.engine.as_deref()
    }

    /// The index of the shard that holds a document; with overlapping ranges the first of them.
    ///
    /// # Errors
    /// [`HashError`] when the database is partitioned and the id names no partition.
    #[inline]
    pub fn for_doc(&self, id: &[u8]) -> Result<usize, HashError> {
        let position = self.hash.hash(id)?;
        Ok(match self.width {
            // The remainder of the last range gives an index past the end.
            Some(width) => usize::try_from(position / width)
                .unwrap_or(usize::MAX)
                .min(self.shards.len() - 1),
            None => self.for_position(position).next().unwrap_or(0),
        })
    }

    /// The indexes of all shards whose range holds a document: more than one only after the split of one copy.
    ///
    /// # Errors
    /// [`HashError`] when the database is partitioned and the id names no partition.
    pub fn all_for_doc(&self, id: &[u8]) -> Result<impl Iterator<Item = usize> + '_, HashError> {
        Ok(self.for_position(self.hash.hash(id)?))
    }

    /// The indexes of the shards that hold a partition.
    pub fn for_partition(&self, partition: &[u8]) -> impl Iterator<Item = usize> + '_ {
        self.for_position(crc32fast::hash(partition))
    }

    fn for_position(&self, position: u32) -> impl Iterator<Item = usize> + '_ {
        let before = self.shards.partition_point(|shard| shard.range.begin <= position);
        (0..before).filter(move |&index| self.shards[index].range.end >= position)
    }

    /// The index of the shard with exactly this range.
    #[must_use]
    pub fn index_of(&self, range: ShardRange) -> Option<usize> {
        self.shards.iter().position(|shard| shard.range == range)
    }

    /// Whether `node` holds a copy of exactly this range.
    #[must_use]
    pub fn has_copy(&self, node: &NodeName, range: ShardRange) -> bool {
        self.shards
            .iter()
            .any(|shard| shard.range == range && shard.nodes.contains(node))
    }

    /// Every copy: the shard's index and a node.
    pub fn copies(&self) -> impl Iterator<Item = (usize, &NodeName)> + '_ {
        self.shards
            .iter()
            .enumerate()
            .flat_map(|(index, shard)| shard.nodes.iter().map(move |node| (index, node)))
    }

    /// The indexes of the shards of which `node` holds a copy.
    pub fn on_node<'a>(&'a self, node: &'a NodeName) -> impl Iterator<Item = usize> + 'a {
        (0..self.shards.len()).filter(move |&index| self.shards[index].nodes.contains(node))
    }

    pub(super) fn set_partitioned(&mut self, partitioned: bool, hash: HashKind) {
        self.partitioned = partitioned;
        self.hash = hash;
    }
}

/// The default quorum of `n` copies: more than half of them.
#[must_use]
pub const fn quorum(n: usize) -> usize {
    n / 2 + 1
}

/// The width of the ranges when they are those that [`ring::ranges`] makes.
fn uniform_width(ranges: &[ShardRange]) -> Option<u32> {
    let q = u32::try_from(ranges.len()).ok()?;
    if ring::ranges(q).ok()? != ranges {
        return None;
    }
    // One range is as wide as the whole ring, which a u32 cannot say; dividing by the last position is as good, because
    // the index is cut to the last range.
    Some(u32::try_from((1_u64 << 32) / u64::from(q)).unwrap_or(RING_END))
}

/// The name of a shard's own database.
#[must_use]
pub fn shard_name(range: ShardRange, db: &str, suffix: &str) -> String {
    format!("shards/{range}/{db}{suffix}")
}

/// The suffix of a database that is created now, at `unix_seconds`.
#[must_use]
pub fn shard_suffix(unix_seconds: u64) -> String {
    format!(".{unix_seconds}")
}

/// The database of a shard name, and the name itself for a name that is none.
#[must_use]
pub fn db_name_of_shard(name: &str) -> &str {
    if !name.starts_with("shards/") {
        return name;
    }
    let Some(rest) = name.get(PREFIX_LEN..) else {
        return name;
    };
    let digits = rest
        .len()
        .checked_sub(SUFFIX_LEN)
        .and_then(|at| Some((rest.get(..at)?, rest.get(at..)?)));
    match digits {
        Some((db, suffix)) if suffix.starts_with('.') && suffix[1..].bytes().all(|b| b.is_ascii_digit()) => {
            db
        }
        // `filename:rootname`: the last extension goes, unless it holds a slash.
        _ => match rest.rfind(['.', '/']) {
            Some(at) if rest.as_bytes()[at] == b'.' => &rest[..at],
            _ => rest,
        },
    }
}

/// The range of a shard name; `None` for a name that is none.
#[must_use]
pub fn range_of_shard(name: &str) -> Option<ShardRange> {
    name.strip_prefix("shards/")?
        .get(..PREFIX_LEN - "shards/".len() - 1)?
        .parse()
        .ok()
}
