//! Walking the changes of one file in the order of their sequences, batch by batch.

use super::read::Snapshot;
use super::rows::{BodyReader, Rendering, begin_change_row, narrow};
use super::trees::SeqTree;
use super::update::seq_key;
use super::{DbError, DocDamage};
use crate::cluster::{ChangeBatch, ChangeRef};
use crate::codec::term::Reader;
use crate::doc::info::{InfoView, seq_value_view};
use crate::doc::revtree::winner_of_raw;
use crate::doc::{RevTree, StoredDocError};
use crate::ids::DocId;
use crate::storage::btree::{Cursor, CursorOptions, Direction};
use crate::storage::vfs::Wait;
use std::ops::Bound;
use std::sync::Arc;

use super::fold::{BATCH_BYTES, BATCH_ROWS_MAX};

/// Entries that are passed over by a filter before a batch ends without a row, so that a filter cannot hold a thread.
const PASSED_OVER_MAX: usize = 16_384;

/// Which changes are given, and how.
#[derive(Clone, Debug)]
pub struct ChangesOptions {
    /// Changes after this sequence; when descending, up to the newest and down to here.
    pub since: u64,
    /// Newest first.
    pub descending: bool,
    /// Rows at the most.
    pub limit: u64,
    /// All leaves in each row instead of the winner.
    pub all_leaves: bool,
    /// Only design documents.
    pub only_design: bool,
    /// Only these ids, sorted.
    pub only_ids: Option<Arc<[Vec<u8>]>>,
    /// What a row carries.
    pub rendering: Rendering,
}

/// A walk over the seq tree that renders rows of `_changes`, without their sequences: those are the coordinator's.
pub struct ChangesCursor {
    snapshot: Arc<Snapshot>,
    cursor: Cursor<SeqTree>,
    bodies: Option<BodyReader>,
    options: ChangesOptions,
    left: u64,
    /// Entries that have not been seen yet.
    pending: u64,
    damaged: Vec<DocDamage>,
}

impl ChangesCursor {
    /// A walk that has not begun.
    ///
    /// # Errors
    /// When the number of changes cannot be read.
    pub fn new(snapshot: Arc<Snapshot>, options: ChangesOptions, wait: Wait) -> Result<Self, DbError> {
        let pending = snapshot.count_changes_since(options.since, wait)?;
        let root = snapshot.header().seq_tree.as_ref();
        let after = seq_key(options.since.saturating_add(1));
        let cursor_options = if options.descending {
            let (end, direction) = (Bound::Included(after), Direction::Reverse);
            CursorOptions {
                start: None,
                end,
                direction,
                wait: Wait::Yes,
            }
        } else {
            let (end, direction) = (Bound::Unbounded, Direction::Forward);
            CursorOptions {
                start: Some(after),
                end,
                direction,
                wait: Wait::Yes,
            }
        };
        Ok(Self {
            cursor: Cursor::new(SeqTree, Arc::clone(snapshot.file()), root, cursor_options),
            bodies: options.rendering.include_docs.then(|| BodyReader::new(&snapshot)),
            left: options.limit,
            options,
            pending,
            damaged: Vec::new(),
            snapshot,
        })
    }

    /// Changes that the walk has not come to.
    #[must_use]
    pub const fn pending(&self) -> u64 {
        self.pending
    }

    /// Where the walk ends: the newest sequence, or the oldest when descending.
    #[must_use]
    pub fn end_seq(&self) -> u64 {
        if self.options.descending {
            self.options.since
        } else {
            self.snapshot.header().update_seq
        }
    }

    /// The snapshot that is walked.
    #[must_use]
    pub fn snapshot(&self) -> &Arc<Snapshot> {
        &self.snapshot
    }

    /// The next changes; none at the end. Where a filter kept changes back, a last entry without a row says how far the
    /// walk has come.
    ///
    /// # Errors
    /// As [`FoldCursor::next_batch`](super::FoldCursor::next_batch).
    pub fn next_batch(&mut self, rows_max: usize) -> Result<Option<ChangeBatch>, DbError> {
        let rows_max = rows_max.min(BATCH_ROWS_MAX);
        let mut batch = ChangeBatch::default();
        let mut seen = 0usize;
        let mut passed_over = None;
        while self.left > 0
            && batch.rows.len() < rows_max
            && batch.bytes.len() < BATCH_BYTES
            && seen < PASSED_OVER_MAX
        {
            let Some(leaf) = self.cursor.next_leaf()? else {
                break;
            };
            for (key, value) in leaf.entries() {
                if self.left == 0 {
                    break;
                }
                seen += 1;
                self.pending = self.pending.saturating_sub(1);
                let rows = batch.rows.len();
                let bodies = self.bodies.as_mut();
                let change = Entry {
                    key,
                    value,
                    pending: self.pending,
                };
                passed_over = render_change(
                    &self.snapshot,
                    bodies,
                    &self.options,
                    change,
                    &mut batch,
                    &mut self.damaged,
                )?;
                self.left -= (batch.rows.len() - rows) as u64;
            }
        }
        batch.rows.extend(passed_over);
        Ok((seen > 0).then_some(batch))
    }

    /// Documents that could not be read since the last call.
    pub fn take_damaged(&mut self) -> Vec<DocDamage> {
        std::mem::take(&mut self.damaged)
    }
}

/// An entry of the seq tree, and how many stand behind it.
struct Entry<'a> {
    key: &'a [u8],
    value: &'a [u8],
    pending: u64,
}

/// Renders a change; gives it back without a row when a filter keeps it.
fn render_change(
    snapshot: &Arc<Snapshot>,
    bodies: Option<&mut BodyReader>,
    options: &ChangesOptions,
    change: Entry<'_>,
    batch: &mut ChangeBatch,
    damaged: &mut Vec<DocDamage>,
) -> Result<Option<ChangeRef>, DbError> {
    let Entry { key, value, pending } = change;
    let seq = Reader::new(key).read_u64()?;
    let (id, entry) = seq_value_view(value)?;
    if !passes(options, id) {
        return Ok(Some(ChangeRef {
            seq,
            pending,
            json: None,
        }));
    }
    let begin = batch.bytes.len();
    damaged.extend(render_row(
        snapshot,
        bodies,
        options,
        id,
        &entry,
        &mut batch.bytes,
    )?);
    let json = narrow(begin)..narrow(batch.bytes.len());
    batch.rows.push(ChangeRef {
        seq,
        pending,
        json: Some(json),
    });
    Ok(None)
}

fn passes(options: &ChangesOptions, id: &[u8]) -> bool {
    let wanted = options
        .only_ids
        .as_ref()
        .is_none_or(|ids| ids.binary_search_by(|other| other[..].cmp(id)).is_ok());
    wanted && (!options.only_design || id.starts_with(b"_design/"))
}

fn render_row(
    snapshot: &Arc<Snapshot>,
    bodies: Option<&mut BodyReader>,
    options: &ChangesOptions,
    id: &[u8],
    entry: &InfoView<'_>,
    out: &mut Vec<u8>,
) -> Result<Option<DocDamage>, DbError> {
    let winner = winner_of_raw(entry.tree).map_err(StoredDocError::from)?;
    if options.all_leaves && winner.leaf_count > 1 {
        let tree = RevTree::decode(entry.tree).map_err(StoredDocError::from)?;
        let leaves = tree.leaves_sorted();
        let revs = leaves.iter().map(|node| (node.pos(), node.id().as_bytes()));
        begin_change_row(id, revs, entry.deleted, out);
    } else {
        begin_change_row(id, [(winner.pos, winner.id)], entry.deleted, out);
    }
    let damage =
        bodies.and_then(|bodies| bodies.write_doc(snapshot, id, entry.tree, &winner, options.rendering, out));
    out.push(b'}');
    Ok(damage)
}

impl Snapshot {
    /// The change of each of these documents, ascending by sequence: what a feed over few ids gives without a walk; and the
    /// documents that could not be read.
    ///
    /// # Errors
    /// As [`Snapshot::full_info`].
    pub fn changes_of(
        &self,
        ids: &[DocId],
        options: &ChangesOptions,
        wait: Wait,
    ) -> Result<(ChangeBatch, Vec<DocDamage>), DbError> {
        let ids: Vec<&DocId> = ids.iter().collect();
        let mut infos: Vec<_> = self.full_infos(&ids, wait)?.into_iter().flatten().collect();
        infos.retain(|info| info.seq > options.since);
        infos.sort_by_key(|info| info.seq);
        infos.dedup_by_key(|info| info.seq);
        if options.descending {
            infos.reverse();
        }
        infos.truncate(usize::try_from(options.limit).unwrap_or(usize::MAX));
        let snapshot = Arc::new(self.clone());
        let mut bodies = options.rendering.include_docs.then(|| BodyReader::new(self));
        let mut batch = ChangeBatch::default();
        let mut damaged = Vec::new();
        for info in infos {
            let mut value = Vec::new();
            info.encode_seq(&mut value);
            let change = Entry {
                key: &seq_key(info.seq),
                value: &value,
                pending: 0,
            };
            render_change(
                &snapshot,
                bodies.as_mut(),
                options,
                change,
                &mut batch,
                &mut damaged,
            )?;
        }
        Ok((batch, damaged))
    }
}
