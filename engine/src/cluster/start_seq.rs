//! From a packed sequence to the workers of a changes feed: which copies are asked, from where each of them starts, and
//! when a shard has to begin at 0 again.

use super::packed_seq::{EpochNode, PackedSeq, ShardSeq};
use super::ring::{self, RING_END};
use super::shard_map::ShardMap;
use crate::ids::{NodeName, ShardRange};

/// From where one worker is asked to start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StartVector {
    /// A sequence as found in the packed sequence.
    Seq(ShardSeq),
    /// The sequence of another copy, which this one stands in for.
    Replace {
        /// The node that wrote the sequence.
        node: NodeName,
        /// The beginning of that file's uuid.
        uuid: Vec<u8>,
        /// The sequence there.
        seq: u64,
    },
}

impl StartVector {
    /// From the beginning.
    pub const ZERO: Self = Self::Seq(ShardSeq::Int(0));

    /// What the copy of another node is asked when it stands in for a copy on `node` that had come this far.
    fn standing_in(seq: &ShardSeq, node: &NodeName) -> Self {
        match seq {
            ShardSeq::Epoch {
                seq,
                uuid,
                node: epoch,
            } => match epoch.or(node) {
                Some(epoch) => Self::Replace {
                    node: epoch.clone(),
                    uuid: uuid.clone(),
                    seq: *seq,
                },
                None => Self::ZERO,
            },
            ShardSeq::Split { .. } | ShardSeq::Int(_) => Self::ZERO,
        }
    }
}

/// Who wrote a shard file from which sequence on, newest first, as the file's header holds it.
pub type Epochs<'a> = &'a [(NodeName, u64)];

/// Where a worker starts, as far as its own file can tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StartSeq {
    /// Behind this sequence.
    At(u64),
    /// From the beginning, and why.
    Rewind(RewindReason),
    /// Behind the sequence that this file, a part of a split shard, had when its source had come to `seq`; the internal
    /// replicator's checkpoints know it, and without one it is 0.
    SplitTarget {
        /// The node of the source.
        node: NodeName,
        /// The beginning of the source's uuid.
        uuid: Vec<u8>,
        /// The source's sequence.
        seq: u64,
    },
    /// Behind the sequence of this file up to which the other file held all when it had come to `seq`; the internal
    /// replicator's checkpoints know it, and without one it is 0.
    Source {
        /// The node of the other file.
        node: NodeName,
        /// The beginning of its uuid.
        uuid: Vec<u8>,
        /// Its sequence.
        seq: u64,
    },
}

/// Why a worker starts at 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RewindReason {
    /// The file is another one than that of the sequence, most likely in another order.
    UuidMismatch,
    /// The node named never wrote this file at that sequence.
    NotOwner,
}

impl RewindReason {
    /// The reason in words for the log.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::UuidMismatch => "the shard file has another uuid",
            Self::NotOwner => "the shard file was not written by that node at that sequence",
        }
    }
}

/// Where the file with this uuid and these epochs, on `node`, starts for this vector.
#[must_use]
pub fn calculate_start_seq(
    node: &NodeName,
    uuid: &[u8],
    epochs: Epochs<'_>,
    vector: &StartVector,
) -> StartSeq {
    match vector {
        StartVector::Seq(ShardSeq::Int(seq)) => StartSeq::At(*seq),
        StartVector::Seq(ShardSeq::Split {
            seq,
            uuid: source,
            node: epoch,
        }) => match epoch.or(node) {
            Some(epoch) if owner_of(epochs, *seq) == Some(epoch) => StartSeq::SplitTarget {
                node: epoch.clone(),
                uuid: source.clone(),
                seq: *seq,
            },
            _ => StartSeq::Rewind(RewindReason::NotOwner),
        },
        StartVector::Seq(ShardSeq::Epoch {
            seq,
            uuid: prefix,
            node: epoch,
        }) => {
            let epoch = epoch.or(node);
            if !uuid.starts_with(prefix) {
                return StartSeq::Rewind(RewindReason::UuidMismatch);
            }
            if owner_of(epochs, *seq) == epoch {
                return StartSeq::At(*seq);
            }
            epoch.map_or(StartSeq::Rewind(RewindReason::NotOwner), |epoch| {
                epoch_start(epochs, epoch, *seq)
            })
        }
        StartVector::Replace {
            node: original,
            uuid: prefix,
            seq,
        } => {
            if uuid.starts_with(prefix) {
                epoch_start(epochs, original, *seq)
            } else {
                StartSeq::Source {
                    node: original.clone(),
                    uuid: prefix.clone(),
                    seq: *seq,
                }
            }
        }
    }
}

/// The node that wrote a sequence.
#[must_use]
pub fn owner_of<'a>(epochs: Epochs<'a>, seq: u64) -> Option<&'a NodeName> {
    epochs
        .iter()
        .find(|(_, begin)| seq >= *begin)
        .map(|(node, _)| node)
}

/// In a file that was copied between nodes: the sequence itself while `node` wrote it, else the beginning of the epoch
/// that followed, because what `node` wrote after the copy is not here.
fn epoch_start(epochs: Epochs<'_>, node: &NodeName, seq: u64) -> StartSeq {
    for (index, (owner, begin)) in epochs.iter().enumerate() {
        if owner == node && seq >= *begin {
            return StartSeq::At(seq);
        }
        if epochs.get(index + 1).is_some_and(|(older, _)| older == node) && seq >= *begin {
            return StartSeq::At(*begin);
        }
    }
    StartSeq::Rewind(RewindReason::NotOwner)
}

/// One worker of a changes feed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FeedWorker {
    /// The shard's index in the map.
    pub shard: usize,
    /// The node whose copy is asked.
    pub node: NodeName,
    /// From where it is asked to start.
    pub start: StartVector,
    /// What the vector of the feed holds for the shard until the worker has answered.
    pub seq: ShardSeq,
}

/// Why no feed can be started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no live copies cover the ring")]
pub struct NoRing;

/// The workers of a feed from the beginning: one live copy of each range of a ring, `prefer` first.
///
/// # Errors
/// [`NoRing`] when the live copies do not cover the ring.
pub fn workers_from_zero(
    map: &ShardMap,
    live: impl Fn(&NodeName) -> bool,
    prefer: &NodeName,
) -> Result<Vec<FeedWorker>, NoRing> {
    let ranges = live_ranges(map, &live);
    let chosen = ring::get_ring(&ranges, 0, RING_END).ok_or(NoRing)?;
    let worker = |range: ShardRange| {
        let shard = map.index_of(range)?;
        let copies = || map.shards()[shard].nodes().iter().filter(|node| live(node));
        let node = copies()
            .find(|node| *node == prefer)
            .or_else(|| copies().next())?
            .clone();
        Some(FeedWorker {
            shard,
            node,
            start: StartVector::ZERO,
            seq: ShardSeq::Int(0),
        })
    };
    chosen
        .into_iter()
        .map(worker)
        .collect::<Option<_>>()
        .ok_or(NoRing)
}

/// The workers of a feed that goes on from a packed sequence: the copies named in it where they are still there and
/// alive, else parts of them after a split, copies that moved (found with `uuid_of_moved`: the node that now has the file
/// with this uuid and range), or other copies of the range.
///
/// # Errors
/// [`NoRing`] when the live copies do not cover the ring.
pub fn plan_workers(
    since: &PackedSeq,
    map: &ShardMap,
    live: impl Fn(&NodeName) -> bool,
    moved_to: impl Fn(&[u8], ShardRange) -> Option<NodeName>,
) -> Result<Vec<FeedWorker>, NoRing> {
    // The common case: every entry is still a live copy and together they are one ring.
    let entries: Vec<(NodeName, ShardRange, &ShardSeq)> = since
        .entries
        .iter()
        .map(|entry| {
            let node = match &entry.seq {
                ShardSeq::Epoch { uuid, .. } if !map.has_copy(&entry.node, entry.range) => {
                    moved_to(uuid, entry.range).unwrap_or_else(|| entry.node.clone())
                }
                _ => entry.node.clone(),
            };
            (node, entry.range, &entry.seq)
        })
        .collect();
    let ranges = live_ranges(map, &live);
    let named = |range: &ShardRange| entries.iter().any(|(_, of, _)| of == range);
    let ring = ring::get_ring_preferring(&ranges, 0, RING_END, named).ok_or(NoRing)?;
    let usable =
        |node: &NodeName, range: ShardRange| ring.contains(&range) && map.has_copy(node, range) && live(node);
    let mut workers: Vec<FeedWorker> = Vec::with_capacity(ring.len());
    for (node, range, seq) in &entries {
        let taken = |worker: &FeedWorker| map.shards()[worker.shard].range() == *range;
        if usable(node, *range)
            && !workers.iter().any(taken)
            && let Some(shard) = map.index_of(*range)
        {
            let start = StartVector::Seq((*seq).clone());
            workers.push(FeedWorker {
                shard,
                node: node.clone(),
                start,
                seq: (*seq).clone(),
            });
        }
    }
    for range in ring {
        let Some(shard) = map.index_of(range) else {
            continue;
        };
        if !workers.iter().any(|worker| worker.shard == shard) {
            workers.push(stand_in(map, shard, &entries, &live)?);
        }
    }
    workers.sort_by_key(|worker| map.shards()[worker.shard].range());
    Ok(workers)
}

/// A worker for a shard of which no copy named in the sequence is left.
fn stand_in(
    map: &ShardMap,
    shard: usize,
    entries: &[(NodeName, ShardRange, &ShardSeq)],
    live: &impl Fn(&NodeName) -> bool,
) -> Result<FeedWorker, NoRing> {
    let copies = &map.shards()[shard];
    let range = copies.range();
    // A part of a shard that was split: only the copy on the same node knows where the parts began.
    let split = entries.iter().find(|(node, of, _)| {
        of.begin <= range.begin
            && range.end <= of.end
            && *of != range
            && copies.nodes().contains(node)
            && live(node)
    });
    if let Some((node, _, seq)) = split {
        let seq = split_seq(seq, node);
        return Ok(FeedWorker {
            shard,
            node: node.clone(),
            start: StartVector::Seq(seq.clone()),
            seq,
        });
    }
    let node = copies
        .nodes()
        .iter()
        .find(|node| live(node))
        .ok_or(NoRing)?
        .clone();
    let start = match entries.iter().find(|(_, of, _)| *of == range) {
        Some((from, _, seq)) => StartVector::standing_in(seq, from),
        None => StartVector::ZERO,
    };
    Ok(FeedWorker {
        shard,
        node,
        start,
        seq: ShardSeq::Int(0),
    })
}

/// The sequence of a file that was split, marked as such for one of its parts.
fn split_seq(seq: &ShardSeq, node: &NodeName) -> ShardSeq {
    match seq {
        ShardSeq::Int(_) => ShardSeq::Int(0),
        ShardSeq::Split { .. } => seq.clone(),
        ShardSeq::Epoch {
            seq,
            uuid,
            node: epoch,
        } => {
            let epoch = epoch
                .or(node)
                .map_or(EpochNode::Undefined, |epoch| EpochNode::Node(epoch.clone()));
            ShardSeq::Split {
                seq: *seq,
                uuid: uuid.clone(),
                node: epoch,
            }
        }
    }
}

fn live_ranges(map: &ShardMap, live: &impl Fn(&NodeName) -> bool) -> Vec<ShardRange> {
    map.shards()
        .iter()
        .filter(|shard| shard.nodes().iter().any(live))
        .map(|shard| shard.range())
        .collect()
}
