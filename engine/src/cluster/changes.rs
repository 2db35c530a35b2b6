//! Merging the changes of the shards in the order in which they arrive: `fabric_view_changes`.
//!
//! Every row carries the packed vector of all shards after it, so that a client can go on from any row.

use super::packed_seq::{PackedSeq, ShardSeq};
use super::packed_template::PackedSeqTemplate;
use super::workers::Worker;
use std::ops::Range;

/// One change within its batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangeRef {
    /// The shard's update sequence of the change.
    pub seq: u64,
    /// Changes of the shard behind this one.
    pub pending: u64,
    /// The row as JSON without its opening brace and its `seq`: from `"id":` to the closing brace. `None` for a change that
    /// a filter kept back, which only moves the vector.
    pub json: Option<Range<u32>>,
}

/// Changes of one shard, in the order of its sequences.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChangeBatch {
    /// Uuid and epoch of the rows, when they are not those of the worker's batch before. Its number does not count.
    pub form: Option<ShardSeq>,
    /// Text of the rows.
    pub bytes: Vec<u8>,
    /// Where they are.
    pub rows: Vec<ChangeRef>,
}

/// How changes are merged.
#[derive(Clone, Copy, Debug)]
pub struct ChangesOptions {
    /// Rows wanted at most.
    pub limit: u64,
    /// Only every so-manieth row carries a sequence; 1 for all. Counted by the rows left, as CouchDB does.
    pub seq_interval: u64,
}

/// Rows ready to be sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChangeRows {
    /// The rows, complete, with the separator between them.
    pub bytes: Vec<u8>,
    /// Where each row stands.
    pub rows: Vec<Range<u32>>,
}

/// Whether the pass goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangesState {
    /// More may come.
    More,
    /// The pass is over: all workers have ended, or the limit is reached and every worker has been heard of. Workers that
    /// run still are to be killed.
    Done,
}

/// Where a pass stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangesEnd {
    /// The vector, packed: `last_seq`, and where the next pass begins.
    pub last_seq: String,
    /// Changes not yet sent; `None` while some worker has not been heard of.
    pub pending: Option<u64>,
}

/// One pass of a changes feed over the chosen copies.
#[derive(Clone, Debug)]
pub struct ChangesMerge {
    template: PackedSeqTemplate,
    pending: Vec<Option<u64>>,
    complete: Vec<bool>,
    /// Workers of which a row behind the limit has been left out: their part of the vector must stay before it.
    left_out: Vec<bool>,
    limit: u64,
    seq_interval: u64,
}

impl ChangesMerge {
    /// A pass that begins with this vector; a worker is the place of its entry.
    #[must_use]
    pub fn new(vector: PackedSeq, options: ChangesOptions) -> Self {
        let workers = vector.entries.len();
        Self {
            template: PackedSeqTemplate::new(vector),
            pending: vec![None; workers],
            complete: vec![false; workers],
            left_out: vec![false; workers],
            limit: options.limit,
            seq_interval: options.seq_interval.max(1),
        }
    }

    /// Changes of a worker: appends the rows that are to be sent, with `separator` between rows.
    pub fn push(
        &mut self,
        worker: Worker,
        batch: &ChangeBatch,
        separator: &[u8],
        out: &mut ChangeRows,
    ) -> ChangesState {
        if worker >= self.pending.len() {
            return self.state();
        }
        // What comes behind the limit does not move the vector, nor does its form.
        if self.limit > 0
            && let Some(form) = &batch.form
        {
            self.set_form(worker, form);
        }
        out.bytes
            .reserve(batch.bytes.len() + batch.rows.len() * self.template.encoded_len());
        for row in &batch.rows {
            if self.limit == 0 {
                self.beyond_limit(worker, row);
                if self.state() == ChangesState::Done {
                    break;
                }
                continue;
            }
            self.template.set(worker, row.seq);
            if let Some(json) = &row.json {
                self.pending[worker] = Some(row.pending);
                self.write_row(slice(&batch.bytes, json), separator, out);
                self.limit -= 1;
            }
        }
        self.state()
    }

    /// A worker has come to its end, at this sequence and with so many changes behind it (those of another direction or
    /// behind its limit).
    pub fn complete(&mut self, worker: Worker, seq: &ShardSeq, pending: u64) -> ChangesState {
        if worker < self.pending.len() && !self.complete[worker] {
            self.complete[worker] = true;
            if self.limit > 0 {
                self.set_form(worker, seq);
                self.template.set(worker, seq.seq());
                self.pending[worker] = Some(pending);
            } else {
                self.pending[worker].get_or_insert(pending);
            }
        }
        self.state()
    }

    /// Whether the loss of a worker ends the feed: there is no failover within a pass.
    #[must_use]
    pub fn needs(&self, worker: Worker) -> bool {
        self.complete.get(worker).is_some_and(|complete| !complete)
    }

    /// Rows that may still be sent.
    #[must_use]
    pub const fn limit_left(&self) -> u64 {
        self.limit
    }

    /// Where the pass stands.
    #[must_use]
    pub fn end(&self) -> ChangesEnd {
        ChangesEnd {
            last_seq: self.template.vector().pack(),
            pending: self.pending(),
        }
    }

    /// Changes not yet sent; `None` while some worker has not been heard of.
    #[must_use]
    pub fn pending(&self) -> Option<u64> {
        self.pending.iter().try_fold(0_u64, |sum, pending| {
            pending.map(|pending| sum.saturating_add(pending))
        })
    }

    /// The vector as it stands, from which the next pass begins.
    #[must_use]
    pub fn vector(&self) -> PackedSeq {
        self.template.vector()
    }

    fn state(&self) -> ChangesState {
        let all_heard = self.limit == 0 && self.pending.iter().all(Option::is_some);
        if all_heard || self.complete.iter().all(|complete| *complete) {
            ChangesState::Done
        } else {
            ChangesState::More
        }
    }

    /// A change behind the limit: only tells how much is pending, the row itself included.
    fn beyond_limit(&mut self, worker: Worker, row: &ChangeRef) {
        if row.json.is_some() {
            self.left_out[worker] = true;
            self.pending[worker].get_or_insert(row.pending.saturating_add(1));
        } else if !self.left_out[worker] {
            self.pending[worker] = Some(row.pending);
            self.template.set(worker, row.seq);
        }
    }

    fn set_form(&mut self, worker: Worker, form: &ShardSeq) {
        let mut form = form.clone();
        form.set_seq(self.template.get(worker));
        self.template.set_form(worker, form);
    }

    fn write_row(&self, json: &[u8], separator: &[u8], out: &mut ChangeRows) {
        if !out.bytes.is_empty() {
            out.bytes.extend_from_slice(separator);
        }
        let start = out.bytes.len();
        if self.limit.is_multiple_of(self.seq_interval) {
            out.bytes.extend_from_slice(b"{\"seq\":\"");
            self.template.write_into(&mut out.bytes);
            out.bytes.extend_from_slice(b"\",");
        } else {
            out.bytes.extend_from_slice(b"{\"seq\":null,");
        }
        out.bytes.extend_from_slice(json);
        let place = |value: usize| u32::try_from(value).unwrap_or(u32::MAX);
        out.rows.push(place(start)..place(out.bytes.len()));
    }
}

fn slice<'a>(bytes: &'a [u8], range: &Range<u32>) -> &'a [u8] {
    let place = |value: u32| usize::try_from(value).unwrap_or(usize::MAX);
    bytes
        .get(place(range.start)..place(range.end))
        .unwrap_or_default()
}
