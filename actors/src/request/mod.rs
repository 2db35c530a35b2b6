//! Request processes: each stream of rows has one. It drives a cursor per shard, merges what they bring, and hands the
//! rows to whoever asked, no faster than they are taken.
//!
//! A cursor makes one batch at a time on the blocking pool, and the next is asked for only when there is room for it, so
//! a slow client holds no thread and little memory. When the client goes, its process ends, and the cursors with it.

mod changes;
mod rows;

pub use changes::{ChangesRequest, ChangesRequestArgs, ShardFeed};
pub use rows::{RowCursor, RowsItem, RowsRequest, RowsRequestArgs};

use settee_engine::db::DocDamage;

/// Runs of rows that wait for the client at the most.
pub const RUNS_AHEAD: usize = 4;
/// Bytes at which a run of rows is handed on.
pub const RUN_BYTES: usize = 128 * 1024;

/// Counts and logs documents that could not be read.
pub(crate) fn tell_damaged(counters: &crate::stats::Counters, damaged: &[DocDamage]) {
    for damage in damaged {
        counters.damaged_documents.increment();
        tracing::error!(id = damage.id.as_ref().map(|id| id.as_str()), %damage, "damaged document in a stream of rows");
    }
}
