//! Walking the documents of one file in the order of their ids, batch by batch.
//!
//! A cursor holds no callback and no thread: whoever drives it decides where each batch is made. It may wait for the
//! disk, so that is a place where blocking is allowed.

use super::read::Snapshot;
use super::rows::{BodyReader, Rendering, begin_id_row, narrow};
use super::trees::{IdTree, LocalTree};
use super::update::id_key;
use super::{DbError, DocDamage};
use crate::cluster::{RowBatch, RowRef};
use crate::codec::json::write_json_string;
use crate::codec::term::Reader;
use crate::doc::info::id_value_view;
use crate::doc::local::read_local_doc;
use crate::doc::revtree::winner_of_raw;
use crate::doc::{JsonOptions, StoredDocError};
use crate::ids::DocId;
use crate::storage::btree::{Cursor, CursorOptions, Direction};
use crate::storage::vfs::Wait;
use std::ops::Bound;
use std::sync::Arc;

/// Rows at which a batch is full; the rest of a leaf may come on top.
pub const BATCH_ROWS_MAX: usize = 1024;
/// Bytes at which a batch is full.
pub const BATCH_BYTES: usize = 128 * 1024;

/// What stands between two rows of `_all_docs`.
pub const ROW_SEPARATOR: &[u8] = b",\r\n";

/// Which documents a fold gives.
#[derive(Clone, Debug)]
pub struct FoldOptions {
    /// First id in the direction of travel, inclusive.
    pub start: Option<Vec<u8>>,
    /// Last id in the direction of travel.
    pub end: Option<Vec<u8>>,
    /// Whether `end` itself is given.
    pub inclusive_end: bool,
    /// From the greatest id down.
    pub descending: bool,
    /// Rows at the most.
    pub limit: u64,
    /// What a row carries.
    pub rendering: Rendering,
}

impl Default for FoldOptions {
    /// Every document, without its body.
    fn default() -> Self {
        Self {
            start: None,
            end: None,
            inclusive_end: true,
            descending: false,
            limit: u64::MAX,
            rendering: Rendering::default(),
        }
    }
}

/// The options of a cursor over ids.
fn cursor_options(options: &FoldOptions) -> CursorOptions {
    CursorOptions {
        start: options.start.as_deref().map(id_key),
        end: match (&options.end, options.inclusive_end) {
            (None, _) => Bound::Unbounded,
            (Some(end), true) => Bound::Included(id_key(end)),
            (Some(end), false) => Bound::Excluded(id_key(end)),
        },
        direction: if options.descending {
            Direction::Reverse
        } else {
            Direction::Forward
        },
        wait: Wait::Yes,
    }
}

/// A walk over the id tree that renders rows of `_all_docs`.
pub struct FoldCursor {
    snapshot: Arc<Snapshot>,
    cursor: Cursor<IdTree>,
    bodies: Option<BodyReader>,
    rendering: Rendering,
    left: u64,
    /// Room for the next batch, from the size of the last.
    batch_bytes: usize,
    batch_rows: usize,
    damaged: Vec<DocDamage>,
}

impl FoldCursor {
    /// A walk that has not begun.
    #[must_use]
    pub fn new(snapshot: Arc<Snapshot>, options: &FoldOptions) -> Self {
        let root = snapshot.header().id_tree.as_ref();
        Self {
            cursor: Cursor::new(IdTree, Arc::clone(snapshot.file()), root, cursor_options(options)),
            bodies: options.rendering.include_docs.then(|| BodyReader::new(&snapshot)),
            rendering: options.rendering,
            left: options.limit,
            batch_bytes: 0,
            batch_rows: 0,
            damaged: Vec::new(),
            snapshot,
        }
    }

    /// The next rows; none at the end. The batch is full at `rows_max` or at its own bounds.
    ///
    /// # Errors
    /// When the tree cannot be read. Damage of one document does not end the walk: its row says so, and
    /// [`FoldCursor::take_damaged`] tells it.
    pub fn next_batch(&mut self, rows_max: usize) -> Result<Option<RowBatch>, DbError> {
        let rows_max = rows_max.min(BATCH_ROWS_MAX);
        let mut batch = RowBatch::default();
        while self.left > 0 && batch.rows.len() < rows_max && batch.bytes.len() < BATCH_BYTES {
            let Some(leaf) = self.cursor.next_leaf()? else {
                break;
            };
            for (key, value) in leaf.entries() {
                if self.left == 0 {
                    break;
                }
                let bodies = self.bodies.as_mut();
                let rendered = render_row(&self.snapshot, bodies, self.rendering, key, value, &mut batch)?;
                match rendered {
                    Rendered::Row => self.left -= 1,
                    Rendered::Nothing => {}
                    Rendered::Damaged(damage) => {
                        self.left -= 1;
                        self.damaged.push(damage);
                    }
                }
            }
        }
        self.batch_bytes = batch.bytes.len() + batch.bytes.len() / 8;
        self.batch_rows = batch.rows.len() + batch.rows.len() / 8;
        Ok((!batch.rows.is_empty()).then_some(batch))
    }

    /// Documents that could not be read since the last call.
    pub fn take_damaged(&mut self) -> Vec<DocDamage> {
        std::mem::take(&mut self.damaged)
    }
}

/// What became of an entry.
enum Rendered {
    Row,
    Nothing,
    /// A row that tells of a damaged document.
    Damaged(DocDamage),
}

fn render_row(
    snapshot: &Arc<Snapshot>,
    bodies: Option<&mut BodyReader>,
    rendering: Rendering,
    key: &[u8],
    value: &[u8],
    batch: &mut RowBatch,
) -> Result<Rendered, DbError> {
    let (_, entry) = id_value_view(value)?;
    if entry.deleted {
        return Ok(Rendered::Nothing);
    }
    let id = Reader::new(key).read_binary()?;
    let winner = winner_of_raw(entry.tree).map_err(StoredDocError::from)?;
    separate(batch);
    let mut row = begin_id_row(id, &winner, &mut batch.bytes);
    let mut rendered = Rendered::Row;
    if let Some(bodies) = bodies {
        let damage = bodies.write_doc(snapshot, id, entry.tree, &winner, rendering, &mut batch.bytes);
        if let Some(damage) = damage {
            rendered = Rendered::Damaged(damage);
        }
    }
    batch.bytes.push(b'}');
    row.json.end = narrow(batch.bytes.len());
    batch.rows.push(row);
    Ok(rendered)
}

/// Puts what stands between rows in an answer between them here as well, so that runs of rows are copied in one piece.
fn separate(batch: &mut RowBatch) {
    if !batch.rows.is_empty() {
        batch.bytes.extend_from_slice(ROW_SEPARATOR);
    }
}

/// A walk over local documents that renders rows of `_local_docs`.
pub struct LocalCursor {
    cursor: Cursor<LocalTree>,
    include_docs: bool,
    left: u64,
}

impl LocalCursor {
    /// A walk that has not begun.
    #[must_use]
    pub fn new(snapshot: &Snapshot, options: &FoldOptions) -> Self {
        let root = snapshot.header().local_tree.as_ref();
        Self {
            cursor: Cursor::new(
                LocalTree,
                Arc::clone(snapshot.file()),
                root,
                cursor_options(options),
            ),
            include_docs: options.rendering.include_docs,
            left: options.limit,
        }
    }

    /// The next rows; none at the end.
    ///
    /// # Errors
    /// When the tree cannot be read.
    pub fn next_batch(&mut self, rows_max: usize) -> Result<Option<RowBatch>, DbError> {
        let mut batch = RowBatch::default();
        while self.left > 0 && batch.rows.len() < rows_max && batch.bytes.len() < BATCH_BYTES {
            let Some(leaf) = self.cursor.next_leaf()? else {
                break;
            };
            for (key, value) in leaf
                .entries()
                .take(usize::try_from(self.left).unwrap_or(usize::MAX))
            {
                render_local(self.include_docs, key, value, &mut batch)?;
            }
            self.left = self.left.saturating_sub(batch.rows.len() as u64);
        }
        Ok((!batch.rows.is_empty()).then_some(batch))
    }
}

fn render_local(include_docs: bool, key: &[u8], value: &[u8], batch: &mut RowBatch) -> Result<(), DbError> {
    let id = Reader::new(key).read_binary()?;
    let doc_id = DocId::from_stored(id).map_err(StoredDocError::from)?;
    let doc = read_local_doc(doc_id, value)?;
    let key = narrow(batch.bytes.len())..narrow(batch.bytes.len() + id.len());
    batch.bytes.extend_from_slice(id);
    let json = batch.bytes.len();
    let out = &mut batch.bytes;
    out.extend_from_slice(b"{\"id\":");
    write_json_string(out, id);
    out.extend_from_slice(b",\"key\":");
    write_json_string(out, id);
    out.extend_from_slice(b",\"value\":{\"rev\":\"");
    if let Some(rev) = doc.rev() {
        rev.write_text(out);
    }
    out.extend_from_slice(b"\"}");
    if include_docs {
        out.extend_from_slice(b",\"doc\":");
        doc.write_json(out, &JsonOptions::default())?;
    }
    out.push(b'}');
    let json = narrow(json)..narrow(out.len());
    batch.rows.push(RowRef { key, json });
    Ok(())
}

impl Snapshot {
    /// Ids of all live documents but design documents, ascending. For node-local databases, which are small.
    ///
    /// # Errors
    /// When the tree cannot be read.
    pub fn live_ids(&self, wait: Wait) -> Result<Vec<String>, DbError> {
        let root = self.header().id_tree.as_ref();
        let options = CursorOptions {
            wait,
            ..CursorOptions::default()
        };
        let mut cursor = Cursor::new(IdTree, Arc::clone(self.file()), root, options);
        let mut ids = Vec::new();
        while let Some(leaf) = cursor.next_leaf()? {
            for (key, value) in leaf.entries() {
                let id = Reader::new(key).read_binary()?;
                if !id_value_view(value)?.1.deleted && !id.starts_with(b"_design/") {
                    ids.push(String::from_utf8_lossy(id).into_owned());
                }
            }
        }
        Ok(ids)
    }
}
