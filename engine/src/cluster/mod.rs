//! The ring, shard maps, packed sequences and quorum state machines.
//!
//! Everything here is a value: machines are fed with what workers answered and say what to do next; nothing here sends,
//! waits or looks at a clock.

mod all_docs;
mod changes;
mod db_info;
mod missing_revs;
mod open_doc;
mod open_revs;
mod owners;
mod packed_seq;
mod packed_template;
mod placement;
pub mod ring;
mod shard_doc;
mod shard_map;
mod start_seq;
mod update_docs;
mod workers;

pub use all_docs::{
    AllDocsMerge, AllDocsMeta, AllDocsOptions, Drained, MergeState, RowBatch, RowRef, ShardMeta,
};
pub use changes::{
    ChangeBatch, ChangeRef, ChangeRows, ChangesEnd, ChangesMerge, ChangesOptions, ChangesState,
};
pub use db_info::{ClusterInfo, DbInfoMerge, InfoStep, ShardInfo};
pub use missing_revs::{Lacking, MissingRevs, MissingRevsDone, MissingRevsResult};
pub use open_doc::{
    NodeRevs, NotFound, OpenDoc, OpenDocOptions, OpenDone, OpenReply, OpenResult, ReadRepair,
};
pub use open_revs::{OpenRevs, OpenRevsDone, OpenRevsOptions, OpenRevsResult, RevReply};
pub use owners::owners;
pub use packed_seq::{EpochNode, PackedSeq, PackedSeqError, SeqEntry, ShardSeq, UUID_PREFIX_LEN};
pub use packed_template::PackedSeqTemplate;
pub use placement::{Candidate, Placement, PlacementError, choose_shards};
pub use ring::{HashError, HashKind, RingCollector, RingOptions};
pub use shard_doc::ShardDocError;
pub use shard_map::{
    ShardCopies, ShardMap, ShardMapError, ShardMapOptions, db_name_of_shard, quorum, range_of_shard,
    shard_name, shard_suffix,
};
pub use start_seq::{
    Epochs, FeedWorker, NoRing, RewindReason, StartSeq, StartVector, calculate_start_seq, owner_of,
    plan_workers, workers_from_zero,
};
pub use update_docs::{
    Health, StartWorker, UpdateDocs, UpdateDone, UpdateGroup, UpdateOptions, UpdateReply, UpdateResult,
    UpdateStep,
};
pub use workers::{Revision, Worker};
