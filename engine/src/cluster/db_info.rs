//! What a database says of itself, summed over its shards: `fabric_db_info`.

use super::packed_seq::{PackedSeq, SeqEntry, ShardSeq};
use super::ring::{Progress, RingCollector, RingOptions};
use super::shard_map::ShardMap;
use super::workers::Worker;
use crate::ids::NodeName;

/// What one shard answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShardInfo {
    /// Documents that are not deleted.
    pub doc_count: u64,
    /// Deleted documents.
    pub doc_del_count: u64,
    /// Bytes of the file.
    pub sizes_file: u64,
    /// Bytes of bodies and attachments as clients see them.
    pub sizes_external: u64,
    /// Bytes of the file that are in use; `None` when the file is too old to tell.
    pub sizes_active: Option<u64>,
    /// Version of the file's format.
    pub disk_format_version: u64,
    /// Whether a compaction runs.
    pub compact_running: bool,
    /// How far the shard has come.
    pub update_seq: ShardSeq,
    /// How far its purges have come.
    pub purge_seq: u64,
}

/// What the database says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterInfo {
    /// Sums of the shards, but the highest format version, and a compaction when any runs. The sequences are those of the
    /// last shard and without meaning.
    pub sums: ShardInfo,
    /// The packed update sequence.
    pub update_seq: String,
    /// The packed purge sequence.
    pub purge_seq: String,
    /// Distinct ranges.
    pub q: usize,
    /// Copies of each.
    pub n: usize,
    /// The default quorum of writes and of reads.
    pub quorum: usize,
}

/// What an event led to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InfoStep {
    /// More answers are needed.
    Wait,
    /// Complete; the workers are to be killed.
    Done(Box<ClusterInfo>, Vec<Worker>),
    /// The copies that are left do not cover the ring.
    NoRing,
}

/// Collects the answers of all copies until they cover the ring.
#[derive(Clone, Debug)]
pub struct DbInfoMerge {
    ring: RingCollector,
    copies: Vec<SeqCopy>,
    answers: Vec<Option<ShardInfo>>,
    shape: (usize, usize, usize),
}

#[derive(Clone, Debug)]
struct SeqCopy {
    node: NodeName,
    range: crate::ids::ShardRange,
}

impl DbInfoMerge {
    /// A question to these copies of a database: shard indexes of the map and nodes.
    #[must_use]
    pub fn new(map: &ShardMap, copies: Vec<(usize, NodeName)>) -> Self {
        let copies: Vec<SeqCopy> = copies
            .into_iter()
            .filter_map(|(shard, node)| {
                map.shards().get(shard).map(|copies| SeqCopy {
                    node,
                    range: copies.range(),
                })
            })
            .collect();
        let ring = RingCollector::new(copies.iter().map(|copy| copy.range).collect(), RingOptions::Ring);
        Self {
            ring,
            answers: vec![None; copies.len()],
            copies,
            shape: (map.q(), map.n(), map.quorum()),
        }
    }

    /// A copy answered.
    pub fn reply(&mut self, worker: Worker, info: ShardInfo) -> InfoStep {
        if !self.ring.is_pending(worker) {
            return InfoStep::Wait;
        }
        self.answers[worker] = Some(info);
        match self.ring.answer(worker) {
            Progress::Wait => InfoStep::Wait,
            Progress::Impossible => InfoStep::NoRing,
            Progress::Done { used, kill } => InfoStep::Done(Box::new(self.merge(&used)), kill),
        }
    }

    /// A worker failed.
    pub fn exit(&mut self, worker: Worker) -> InfoStep {
        self.lose(vec![worker])
    }

    /// A node went down.
    pub fn node_down(&mut self, node: &NodeName) -> InfoStep {
        self.lose(
            (0..self.copies.len())
                .filter(|&worker| self.copies[worker].node == *node)
                .collect(),
        )
    }

    fn lose(&mut self, workers: Vec<Worker>) -> InfoStep {
        match self.ring.lose(workers) {
            Progress::Impossible => InfoStep::NoRing,
            Progress::Wait | Progress::Done { .. } => InfoStep::Wait,
        }
    }

    fn merge(&self, used: &[Worker]) -> ClusterInfo {
        let mut sums = ShardInfo {
            doc_count: 0,
            doc_del_count: 0,
            sizes_file: 0,
            sizes_external: 0,
            sizes_active: Some(0),
            disk_format_version: 0,
            compact_running: false,
            update_seq: ShardSeq::Int(0),
            purge_seq: 0,
        };
        let (mut updates, mut purges) = (PackedSeq::default(), PackedSeq::default());
        for &worker in used {
            let Some(info) = &self.answers[worker] else {
                continue;
            };
            let SeqCopy { node, range } = &self.copies[worker];
            let entry = |seq| SeqEntry {
                node: node.clone(),
                range: *range,
                seq,
            };
            updates.entries.push(entry(info.update_seq.clone()));
            purges.entries.push(entry(ShardSeq::Int(info.purge_seq)));
            sums = ShardInfo {
                doc_count: sums.doc_count.saturating_add(info.doc_count),
                doc_del_count: sums.doc_del_count.saturating_add(info.doc_del_count),
                sizes_file: sums.sizes_file.saturating_add(info.sizes_file),
                sizes_external: sums.sizes_external.saturating_add(info.sizes_external),
                sizes_active: sums
                    .sizes_active
                    .zip(info.sizes_active)
                    .map(|(a, b)| a.saturating_add(b)),
                disk_format_version: sums.disk_format_version.max(info.disk_format_version),
                compact_running: sums.compact_running || info.compact_running,
                update_seq: info.update_seq.clone(),
                purge_seq: info.purge_seq,
            };
        }
        let (q, n, quorum) = self.shape;
        ClusterInfo {
            sums,
            update_seq: updates.pack(),
            purge_seq: purges.pack(),
            q,
            n,
            quorum,
        }
    }
}
