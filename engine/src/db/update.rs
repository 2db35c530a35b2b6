//! The one writer of a database file: batches of prepared edits become tree changes and one header, synced once.

use super::header::DbHeader;
use super::prepare::{Prepared, PreparedLocal};
use super::read::Snapshot;
use super::trees::{IdTree, LocalTree, SeqTree};
use super::{DbError, DbOptions};
use crate::codec::term::write;
use crate::doc::revtree::SEQ_PENDING;
use crate::doc::{FullDocInfo, Leaf, MergeOutcome, RevTree};
use crate::ids::Rev;
use crate::storage::btree;
use crate::storage::vfs::Wait;
use crate::storage::{Appender, CouchFile, Refused};
use std::ops::Range;
use std::sync::Arc;

/// Room for the keys and tree entries of the usual document.
const ENTRY_BYTES: usize = 256;

/// What became of one edit of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UpdateOutcome {
    /// Stored under this revision.
    Written(Rev),
    /// Replicated, and known already: nothing to do.
    Known(Rev),
    /// Another update came first.
    Conflict,
    /// The stored tree of this document cannot be read; the document is left as it is.
    Corrupt(String),
}

/// Counts of one commit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CommitCounts {
    /// Documents that were new.
    pub inserts: u64,
    /// Documents that got a new sequence.
    pub writes: u64,
    /// Local documents written or removed.
    pub local_writes: u64,
    /// Edits that lost against another.
    pub conflicts: u64,
}

/// Edits that are committed together.
#[derive(Debug, Default)]
pub struct Batch {
    /// Documents, in the order of their arrival.
    pub docs: Vec<Prepared>,
    /// Local documents, in the order of their arrival.
    pub locals: Vec<PreparedLocal>,
}

/// Answers, in the order of the batch.
#[derive(Debug, Default)]
pub struct BatchAnswer {
    /// For `docs`.
    pub docs: Vec<UpdateOutcome>,
    /// For `locals`: the new revision.
    pub locals: Vec<Rev>,
    /// What was done.
    pub counts: CommitCounts,
}

/// The writer. One exists per open file, and whoever holds it may write.
#[derive(Debug)]
pub struct DbWriter {
    pub(super) appender: Appender,
    pub(super) file: Arc<CouchFile>,
    pub(super) header: DbHeader,
    pub(super) options: DbOptions,
    pub(super) refused: Option<Refused>,
}

/// Keys and values of a batch on their way into the trees, in one piece of memory.
#[derive(Default)]
pub(super) struct Entries(Vec<u8>);

impl Entries {
    /// Keeps what `write` writes, and says where it lies.
    pub(super) fn add(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> Range<usize> {
        let start = self.0.len();
        write(&mut self.0);
        start..self.0.len()
    }

    pub(super) fn get(&self, at: &Range<usize>) -> &[u8] {
        self.0.get(at.clone()).unwrap_or_default()
    }
}

/// A changed document on its way into the trees; ranges lie in [`Entries`].
struct Change {
    key: Range<usize>,
    id_value: Range<usize>,
    old_seq_key: Option<Range<usize>>,
    seq_key: Range<usize>,
    seq_value: Range<usize>,
}

impl DbWriter {
    /// What the file says now; readers keep it as long as they like.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::new(Arc::clone(&self.file), self.header.clone(), self.appender.eof())
    }

    /// The newer header that was passed over when the file was opened, since its seal did not fit. Nobody was told of its
    /// commit, unless the disk lost what it had called durable.
    #[must_use]
    pub const fn refused_header(&self) -> Option<Refused> {
        self.refused
    }

    /// Applies a batch and commits it: on return it is on disk.
    ///
    /// # Errors
    /// When bytes cannot be read or written. After a failed write the writer refuses everything until the file is
    /// opened anew; what was acknowledged before is untouched.
    pub fn update(&mut self, batch: Batch) -> Result<BatchAnswer, DbError> {
        self.or_as_before(|writer| {
            let mut answer = BatchAnswer::default();
            let mut entries = Entries::default();
            let changes = writer.merge_docs(batch.docs, &mut entries, &mut answer)?;
            writer.write_trees(&entries, &changes)?;
            writer.write_locals(&batch.locals, &mut answer)?;
            writer.commit()?;
            Ok(answer)
        })
    }

    /// Why a write was refused, once one failed: everything is until the file is opened anew. Reads go on.
    #[must_use]
    pub fn latched(&self) -> Option<&str> {
        self.appender.latched()
    }

    /// Closes the file in order: what was written ahead of its end is cut off. A writer that is only dropped leaves it to
    /// the next opening.
    pub fn close(self) {
        self.appender.close();
    }

    /// A change that fails leaves the header as it was, so that neither a snapshot nor a later commit shows half of it.
    fn or_as_before<T>(
        &mut self,
        change: impl FnOnce(&mut Self) -> Result<T, DbError>,
    ) -> Result<T, DbError> {
        let before = self.header.clone();
        let changed = change(self);
        if changed.is_err() {
            self.header = before;
        }
        changed
    }

    /// Writes the header behind everything appended so far.
    pub(super) fn commit(&mut self) -> Result<(), DbError> {
        let mut header = Vec::with_capacity(512);
        self.header.encode(&mut header);
        self.appender.write_header(&header)?;
        Ok(())
    }

    fn merge_docs(
        &mut self,
        docs: Vec<Prepared>,
        entries: &mut Entries,
        answer: &mut BatchAnswer,
    ) -> Result<Vec<Change>, DbError> {
        answer.docs = vec![UpdateOutcome::Conflict; docs.len()];
        let mut order: Vec<usize> = (0..docs.len()).collect();
        // A stable sort: edits of one document keep the order of their arrival.
        order.sort_by(|left, right| docs[*left].id.as_bytes().cmp(docs[*right].id.as_bytes()));
        let groups: Vec<&[usize]> = order
            .chunk_by(|left, right| docs[*left].id == docs[*right].id)
            .collect();
        entries.0.reserve(groups.len() * ENTRY_BYTES);
        let keys: Vec<Range<usize>> = groups
            .iter()
            .map(|group| entries.add(|out| write::binary(out, docs[group[0]].id.as_bytes())))
            .collect();
        let olds = self.old_infos(entries, &keys)?;
        let mut docs: Vec<Option<Prepared>> = docs.into_iter().map(Some).collect();
        let mut changes = Vec::with_capacity(groups.len());
        for ((group, key), old) in groups.iter().zip(keys).zip(olds) {
            if let Some((info, old_seq)) = self.merge_group(group, old, &mut docs, answer)? {
                changes.push(Change {
                    key,
                    id_value: entries.add(|out| info.encode_id(out)),
                    old_seq_key: old_seq.map(|seq| entries.add(|out| write::uint(out, seq))),
                    seq_key: entries.add(|out| write::uint(out, info.seq)),
                    seq_value: entries.add(|out| info.encode_seq(out)),
                });
            }
        }
        Ok(changes)
    }

    /// The stored value of each document, read in one walk over the id tree.
    fn old_infos(&self, entries: &Entries, keys: &[Range<usize>]) -> Result<Vec<Option<Vec<u8>>>, DbError> {
        let mut olds = vec![None; keys.len()];
        let keys: Vec<&[u8]> = keys.iter().map(|key| entries.get(key)).collect();
        btree::Tree::new(&IdTree, &self.appender, self.header.id_tree.as_ref()).lookup(
            &keys,
            Wait::Yes,
            |index, value| {
                olds[index] = value.map(<[u8]>::to_vec);
            },
        )?;
        Ok(olds)
    }

    /// Merges the edits of one document; gives what it is now and its sequence before, or nothing when it did not change.
    fn merge_group(
        &mut self,
        group: &[usize],
        old: Option<Vec<u8>>,
        docs: &mut [Option<Prepared>],
        answer: &mut BatchAnswer,
    ) -> Result<Option<(FullDocInfo, Option<u64>)>, DbError> {
        let Some(id) = docs[group[0]].as_ref().map(|doc| doc.id.clone()) else {
            return Ok(None);
        };
        let mut info = match old
            .as_deref()
            .map(|raw| FullDocInfo::decode_id(id.as_bytes(), raw))
        {
            None => FullDocInfo::new(id),
            Some(Ok(info)) => info,
            Some(Err(error)) => {
                for index in group {
                    answer.docs[*index] = UpdateOutcome::Corrupt(error.to_string());
                }
                return Ok(None);
            }
        };
        let old_seq = old.is_some().then_some(info.seq);
        for index in group {
            let outcome = match docs[*index].as_mut() {
                Some(doc) => merge_one(&mut info.tree, doc, *index),
                None => continue,
            };
            answer.counts.conflicts += u64::from(outcome == UpdateOutcome::Conflict);
            answer.docs[*index] = outcome;
        }
        let seq = self.header.update_seq + 1;
        if !self.append_bodies(&mut info.tree, seq, docs)? {
            return Ok(None);
        }
        self.header.update_seq = seq;
        info.seq = seq;
        info.tree.stem(self.header.revs_limit);
        info.refresh();
        answer.counts.writes += 1;
        answer.counts.inserts += u64::from(old_seq.is_none());
        Ok(Some((info, old_seq)))
    }

    /// Appends what the merged edits hold and writes it into their leaves; false when no edit was taken.
    fn append_bodies(
        &mut self,
        tree: &mut RevTree,
        seq: u64,
        docs: &mut [Option<Prepared>],
    ) -> Result<bool, DbError> {
        let (appender, options) = (&mut self.appender, &self.options);
        let mut taken = false;
        let mut failed = None;
        tree.settle(seq, |leaf| {
            let doc = usize::try_from(leaf.ptr)
                .ok()
                .and_then(|index| docs.get_mut(index)?.take());
            let Some(doc) = doc.filter(|_| failed.is_none()) else {
                return;
            };
            leaf.sizes.external = doc.external;
            match doc.append(appender, options) {
                Ok(written) => {
                    taken = true;
                    leaf.ptr = written.summary.pos;
                    leaf.sizes.active = written.summary.written;
                    leaf.set_atts(written.streams);
                }
                Err(error) => failed = Some(error),
            }
        });
        failed.map_or(Ok(taken), Err)
    }

    fn write_trees(&mut self, entries: &Entries, changes: &[Change]) -> Result<(), DbError> {
        if changes.is_empty() {
            return Ok(());
        }
        let pairs = |key: fn(&Change) -> &Range<usize>, value: fn(&Change) -> &Range<usize>| -> Vec<_> {
            let pair = |change| (entries.get(key(change)), entries.get(value(change)));
            changes.iter().map(pair).collect()
        };
        let by_id = pairs(|change| &change.key, |change| &change.id_value);
        let by_seq = pairs(|change| &change.seq_key, |change| &change.seq_value);
        let removed = changes.iter().filter_map(|change| change.old_seq_key.as_ref());
        let removed: Vec<&[u8]> = removed.map(|key| entries.get(key)).collect();
        let header = &mut self.header;
        let appender = &mut self.appender;
        header.id_tree = btree::modify(&IdTree, appender, header.id_tree.as_ref(), &by_id, &[], &[])?.0;
        header.seq_tree = btree::modify(
            &SeqTree,
            appender,
            header.seq_tree.as_ref(),
            &by_seq,
            &removed,
            &[],
        )?
        .0;
        Ok(())
    }

    fn write_locals(&mut self, locals: &[PreparedLocal], answer: &mut BatchAnswer) -> Result<(), DbError> {
        for local in locals {
            let key = id_key(local.id.as_bytes());
            let key = key.as_slice();
            let value = local.value();
            let inserts: Vec<(&[u8], &[u8])> = value.iter().map(|value| (key, value.as_slice())).collect();
            let removes: &[&[u8]] = if value.is_some() { &[] } else { &[key] };
            let root = self.header.local_tree.as_ref();
            self.header.local_tree =
                btree::modify(&LocalTree, &mut self.appender, root, &inserts, removes, &[])?.0;
            answer.locals.push(local.rev());
            answer.counts.local_writes += 1;
        }
        Ok(())
    }

    /// Replaces the security object; `raw` is the term of its members.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn set_security(&mut self, raw: &[u8]) -> Result<(), DbError> {
        let chunk = self.appender.append_term(&super::open::versioned(raw))?;
        self.or_as_before(|writer| {
            writer.header.security_ptr = Some(chunk.pos);
            writer.header.update_seq += 1;
            writer.commit()
        })
    }

    /// Sets how many revisions are remembered of each document.
    ///
    /// # Errors
    /// When the header cannot be written.
    pub fn set_revs_limit(&mut self, limit: u64) -> Result<(), DbError> {
        self.or_as_before(|writer| {
            writer.header.revs_limit = limit;
            writer.header.update_seq += 1;
            writer.commit()
        })
    }

    /// Sets how many purge requests are remembered.
    ///
    /// # Errors
    /// When the header cannot be written.
    pub fn set_purge_infos_limit(&mut self, limit: u64) -> Result<(), DbError> {
        self.or_as_before(|writer| {
            writer.header.purge_infos_limit = limit;
            writer.header.update_seq += 1;
            writer.commit()
        })
    }

    /// Appends one chunk of an attachment; it is synced with the commit of the document that names it.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn append_attachment(&mut self, data: &[u8]) -> Result<(u64, u64), DbError> {
        let chunk = self.appender.append_chunk(data)?;
        self.appender.flush()?;
        Ok((chunk.pos, data.len() as u64))
    }
}

/// Merges one edit into the tree of its document. Its leaf is pending, with the place of the edit as its tag.
fn merge_one(tree: &mut RevTree, doc: &mut Prepared, tag: usize) -> UpdateOutcome {
    if !doc.replicated && !tree.is_empty() && tree.is_deleted() {
        // A deleted document is taken up again by an edit without a parent, on top of the deletion.
        if doc.path.ids.len() != 1 || doc.path.start != 1 || doc.deleted || !doc.recreate_on(tree) {
            return UpdateOutcome::Conflict;
        }
    }
    let Some(rev) = doc.path.rev() else {
        return UpdateOutcome::Conflict;
    };
    let leaf = Leaf::pending(doc.deleted, tag as u64);
    if doc.replicated {
        let outcome = tree.merge(&doc.path, Some(leaf));
        let filled = tree
            .find(&rev)
            .and_then(|node| node.leaf())
            .is_some_and(|leaf| leaf.ptr == tag as u64 && leaf.seq == SEQ_PENDING);
        return match outcome {
            MergeOutcome::InternalNode if !filled => UpdateOutcome::Known(rev),
            _ => UpdateOutcome::Written(rev),
        };
    }
    let mut merged = tree.clone();
    match merged.merge(&doc.path, Some(leaf)) {
        MergeOutcome::NewLeaf => {
            *tree = merged;
            UpdateOutcome::Written(rev)
        }
        MergeOutcome::NewBranch | MergeOutcome::InternalNode => UpdateOutcome::Conflict,
    }
}

/// The key of a document in the id tree and the local tree.
pub(super) fn id_key(id: &[u8]) -> Vec<u8> {
    let mut key = Vec::with_capacity(id.len() + 5);
    write::binary(&mut key, id);
    key
}

/// The key of a sequence.
pub(super) fn seq_key(seq: u64) -> Vec<u8> {
    let mut key = Vec::with_capacity(5);
    write::uint(&mut key, seq);
    key
}
