//! Merging the rows of `_all_docs` from the shards in the byte order of ids: `fabric_view_all_docs`.
//!
//! Rows come as text that the shard has rendered, many in a batch. The merge compares ids, which are slices of the
//! batches, and copies text; it allocates nothing for a row.

use super::packed_seq::{PackedSeq, SeqEntry};
use super::workers::Worker;
use std::cmp::Ordering;
use std::collections::VecDeque;
use std::ops::Range;

/// One row within its batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowRef {
    /// The bytes of the id, unescaped: as they are compared.
    pub key: Range<u32>,
    /// The row as JSON, complete.
    pub json: Range<u32>,
}

/// Rows of one shard, ascending by id, or descending when the query is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RowBatch {
    /// Text and ids of the rows. Text that stands in row order with the separator of the output between rows is copied in
    /// one piece.
    pub bytes: Vec<u8>,
    /// Where they are.
    pub rows: Vec<RowRef>,
}

impl RowBatch {
    fn slice(&self, range: &Range<u32>) -> &[u8] {
        let place = |value: u32| usize::try_from(value).unwrap_or(usize::MAX);
        self.bytes
            .get(place(range.start)..place(range.end))
            .unwrap_or_default()
    }
}

/// How the rows are to be merged.
#[derive(Clone, Copy, Debug)]
pub struct AllDocsOptions {
    /// Whether ids descend.
    pub descending: bool,
    /// Rows to leave out at the beginning.
    pub skip: u64,
    /// Rows wanted at most; the shards must be asked for `skip + limit`.
    pub limit: u64,
}

/// What a shard says before its rows. `None` where it cannot tell.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShardMeta {
    /// Documents in the shard.
    pub total: Option<u64>,
    /// Documents before the first row.
    pub offset: Option<u64>,
    /// The shard's part of the packed sequence, when it was asked for.
    pub update_seq: Option<SeqEntry>,
}

/// What stands before the rows of the answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AllDocsMeta {
    /// Documents in the database.
    pub total_rows: Option<u64>,
    /// Documents before the first row.
    pub offset: Option<u64>,
    /// The packed sequence, when every shard gave its part.
    pub update_seq: Option<String>,
}

/// Why a drain ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MergeState {
    /// A shard that is not at its end has no rows here; nothing can go out before it sends some.
    Starved,
    /// The output has as many bytes as wanted.
    Full,
    /// There are no more rows. Workers that run still are to be killed.
    Done,
}

/// What a drain did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drained {
    /// Rows appended.
    pub rows: usize,
    /// Why it ended.
    pub state: MergeState,
}

/// A loser where there is none yet.
const NOBODY: usize = usize::MAX;

/// What one shard has sent and has not yet gone out.
#[derive(Clone, Debug, Default)]
struct Source {
    /// The batch whose rows go out; used up when `next` is at its end.
    batch: RowBatch,
    next: usize,
    /// Where the id of the next row stands in the batch, kept because it is compared several times.
    key: Range<usize>,
    /// Batches behind it.
    queue: VecDeque<RowBatch>,
    meta: bool,
    complete: bool,
}

impl Source {
    #[inline]
    const fn has_row(&self) -> bool {
        self.next < self.batch.rows.len()
    }

    #[inline]
    fn key(&self) -> Option<&[u8]> {
        if self.has_row() {
            Some(self.batch.bytes.get(self.key.clone()).unwrap_or_default())
        } else {
            None
        }
    }

    /// Whether rows may come that are not here.
    const fn starved(&self) -> bool {
        !self.has_row() && !self.complete
    }

    /// Moves to a row, or to the next batch when there is no such row.
    #[inline]
    fn seek(&mut self, next: usize) {
        self.next = next;
        if !self.has_row() {
            self.batch = self.queue.pop_front().unwrap_or_default();
            self.next = 0;
        }
        let place = |value: u32| usize::try_from(value).unwrap_or(usize::MAX);
        self.key = self
            .batch
            .rows
            .get(self.next)
            .map_or(0..0, |row| place(row.key.start)..place(row.key.end));
    }

    fn push(&mut self, batch: RowBatch) {
        self.queue.push_back(batch);
        if !self.has_row() {
            self.seek(self.batch.rows.len());
        }
    }

    fn rows(&self) -> usize {
        self.batch.rows.len() - self.next + self.queue.iter().map(|batch| batch.rows.len()).sum::<usize>()
    }
}

/// The merge: batches go in with [`push`](Self::push), text comes out with [`drain`](Self::drain).
#[derive(Clone, Debug)]
pub struct AllDocsMerge {
    options: AllDocsOptions,
    sources: Vec<Source>,
    meta: Vec<ShardMeta>,
    skip: u64,
    left: u64,
    /// A tree of losers over the sources: place 0 holds the winner. Empty while some source is starved.
    tree: Vec<usize>,
    /// The source of the row before: only when it wins again is it worth to look how far it goes on winning.
    last_winner: usize,
}

impl AllDocsMerge {
    /// A merge of the rows of so many workers.
    #[must_use]
    pub fn new(workers: usize, options: AllDocsOptions) -> Self {
        Self {
            options,
            sources: vec![Source::default(); workers],
            meta: Vec::with_capacity(workers),
            skip: options.skip,
            left: options.limit,
            tree: Vec::new(),
            last_winner: NOBODY,
        }
    }

    /// A worker's meta, before its rows. Answers with the meta of the whole when it is the last.
    pub fn meta(&mut self, worker: Worker, meta: ShardMeta) -> Option<AllDocsMeta> {
        let source = self.sources.get_mut(worker)?;
        if std::mem::replace(&mut source.meta, true) {
            return None;
        }
        self.meta.push(meta);
        if self.meta.len() < self.sources.len() {
            return None;
        }
        let sum = |of: fn(&ShardMeta) -> Option<u64>| {
            self.meta
                .iter()
                .try_fold(0_u64, |sum, meta| of(meta).map(|value| sum.saturating_add(value)))
        };
        let total_rows = sum(|meta| meta.total);
        let offset = sum(|meta| meta.offset).zip(total_rows);
        let offset = offset.map(|(offset, total)| total.min(offset.saturating_add(self.options.skip)));
        let mut entries: Option<Vec<SeqEntry>> =
            self.meta.iter().map(|meta| meta.update_seq.clone()).collect();
        if let Some(entries) = &mut entries {
            entries.sort_by_key(|entry| entry.range);
        }
        let update_seq = entries
            .filter(|entries| !entries.is_empty())
            .map(|entries| PackedSeq { entries }.pack());
        Some(AllDocsMeta {
            total_rows,
            offset,
            update_seq,
        })
    }

    /// Rows of a worker, all of them behind those that it sent before.
    pub fn push(&mut self, worker: Worker, batch: RowBatch) {
        let Some(source) = self.sources.get_mut(worker) else {
            return;
        };
        if batch.rows.is_empty() || source.complete {
            return;
        }
        if !source.has_row() {
            self.tree.clear();
        }
        source.push(batch);
    }

    /// A worker has sent all its rows.
    pub fn complete(&mut self, worker: Worker) {
        if let Some(source) = self.sources.get_mut(worker) {
            source.complete = true;
            self.tree.clear();
        }
    }

    /// Whether the loss of a worker ends the query: there is no failover once rows have been asked for.
    #[must_use]
    pub fn needs(&self, worker: Worker) -> bool {
        self.sources.get(worker).is_some_and(|source| !source.complete)
    }

    /// Batches of one worker that are here and not used up: whether another should be asked for.
    #[must_use]
    pub fn buffered_batches(&self, worker: Worker) -> usize {
        self.sources
            .get(worker)
            .map_or(0, |source| usize::from(source.has_row()) + source.queue.len())
    }

    /// The rows that are here and not yet put out; a bound for what the merge holds.
    #[must_use]
    pub fn buffered_rows(&self) -> usize {
        self.sources.iter().map(Source::rows).sum()
    }

    /// Appends rows in order, with `separator` between them, until `out` has at least `bytes_max` bytes, rows are lacking, or
    /// all is done.
    pub fn drain(&mut self, out: &mut Vec<u8>, separator: &[u8], bytes_max: usize) -> Drained {
        let mut rows = 0;
        let state = loop {
            if self.meta.len() < self.sources.len() {
                break MergeState::Starved;
            }
            if self.left == 0 {
                break MergeState::Done;
            }
            if self.tree.is_empty() && !self.build() {
                break MergeState::Starved;
            }
            let Some(&winner) = self.tree.first() else {
                break MergeState::Done;
            };
            if !self.sources[winner].has_row() {
                break MergeState::Done;
            }
            if out.len() >= bytes_max && rows > 0 {
                break MergeState::Full;
            }
            rows += self.run(winner, out, separator, bytes_max, rows == 0);
            self.replay(winner);
        };
        Drained { rows, state }
    }

    /// Which of two sources goes first: the one with the lower id, a source without rows last, equal ids by place.
    fn order(&self, a: usize, b: usize) -> Ordering {
        compare(
            self.sources[a].key(),
            self.sources[b].key(),
            self.options.descending,
        )
        .then(a.cmp(&b))
    }

    /// Makes the tree; false when a source is starved.
    fn build(&mut self) -> bool {
        if self.sources.iter().any(Source::starved) {
            return false;
        }
        self.tree = vec![NOBODY; self.sources.len()];
        for source in (0..self.sources.len()).rev() {
            self.climb(source);
        }
        true
    }

    /// Lets a source play from its leaf up. In a tree that is being made it stops at the first place where nobody waits.
    fn climb(&mut self, source: usize) {
        let count = self.sources.len();
        let mut champion = source;
        let mut place = usize::midpoint(count, source);
        // With one source the leaf is the root's only child and there is nobody to play.
        while place > 0 {
            let rival = self.tree[place];
            if rival == NOBODY {
                self.tree[place] = champion;
                return;
            }
            if self.order(rival, champion) == Ordering::Less {
                self.tree[place] = champion;
                champion = rival;
            }
            place /= 2;
        }
        self.tree[0] = champion;
    }

    /// After rows of the winner have gone: finds the next winner, or takes the tree down when the source is starved.
    fn replay(&mut self, winner: usize) {
        if self.sources[winner].starved() {
            self.tree.clear();
        } else if !self.tree.is_empty() {
            self.climb(winner);
        }
    }

    /// The source that would win if the winner were not there: one of those that lost to it.
    fn challenger(&self, winner: usize) -> Option<usize> {
        let mut best: Option<usize> = None;
        let mut place = usize::midpoint(self.sources.len(), winner);
        while place > 0 {
            let rival = self.tree[place];
            if rival != NOBODY && best.is_none_or(|best| self.order(rival, best) == Ordering::Less) {
                best = Some(rival);
            }
            place /= 2;
        }
        best
    }

    /// Takes the winner's first row, and when it won before as well, all that follow in its batch and go before the
    /// challenger's first. Appends those that are not skipped.
    fn run(
        &mut self,
        winner: usize,
        out: &mut Vec<u8>,
        separator: &[u8],
        bytes_max: usize,
        first: bool,
    ) -> usize {
        let start = self.sources[winner].next;
        let end = if std::mem::replace(&mut self.last_winner, winner) == winner || self.sources.len() == 1 {
            self.run_end(winner, bytes_max.saturating_sub(out.len()), separator.len())
        } else {
            start + 1
        };
        let source = &mut self.sources[winner];
        let skipped = usize::try_from(self.skip).unwrap_or(usize::MAX).min(end - start);
        let left = usize::try_from(self.left).unwrap_or(usize::MAX);
        let rows = &source.batch.rows[start + skipped..end];
        let rows = &rows[..rows.len().min(left)];
        append(&source.batch, rows, out, separator, first);
        let written = rows.len();
        self.skip -= skipped as u64;
        self.left -= written as u64;
        source.seek(end);
        written
    }

    /// The end of the winner's rows that go before the challenger's first and fit in so many bytes; at least one does.
    fn run_end(&self, winner: usize, mut room: usize, separator: usize) -> usize {
        let challenger = self.challenger(winner);
        let rival = challenger.and_then(|rival| self.sources[rival].key());
        // Equal ids go by place, as in `order`.
        let wins_ties = challenger.is_none_or(|rival| winner < rival);
        let Source { batch, next, .. } = &self.sources[winner];
        let before = |row: &RowRef| match compare(Some(batch.slice(&row.key)), rival, self.options.descending)
        {
            Ordering::Less => true,
            Ordering::Equal => wins_ties,
            Ordering::Greater => false,
        };
        let mut end = next + 1;
        while let Some(row) = batch.rows.get(end)
            && before(row)
        {
            room = room.saturating_sub(batch.slice(&batch.rows[end - 1].json).len() + separator);
            if room == 0 {
                break;
            }
            end += 1;
        }
        end
    }
}

#[inline]
fn compare(a: Option<&[u8]>, b: Option<&[u8]>, descending: bool) -> Ordering {
    match (a, b) {
        (Some(a), Some(b)) if descending => b.cmp(a),
        (Some(a), Some(b)) => a.cmp(b),
        (Some(_), None) => Ordering::Less,
        (None, Some(_)) => Ordering::Greater,
        (None, None) => Ordering::Equal,
    }
}

/// Appends the text of rows, in pieces as long as text and separators stand in the batch as they are wanted.
fn append(batch: &RowBatch, rows: &[RowRef], out: &mut Vec<u8>, separator: &[u8], mut first: bool) {
    let mut at = 0;
    while let Some(row) = rows.get(at) {
        let mut piece = row.json.clone();
        at += 1;
        while let Some(next) = rows.get(at)
            && batch.slice(&(piece.end..next.json.start)) == separator
            && next.json.start >= piece.end
        {
            piece.end = next.json.end;
            at += 1;
        }
        if !std::mem::take(&mut first) {
            out.extend_from_slice(separator);
        }
        out.extend_from_slice(batch.slice(&piece));
    }
}
