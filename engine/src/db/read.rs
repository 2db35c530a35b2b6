//! Reading one database file: a snapshot is a header and a file handle, and never changes.

use super::header::{DbHeader, Purges};
use super::trees::{IdReduction, IdTree, LocalTree, PurgeSeqTree, PurgeTree, SeqTree};
use super::update::{id_key, seq_key};
use super::{DbError, DocDamage};
use crate::cache::{Key, Priority};
use crate::codec::compress::decompress;
use crate::codec::term::{Reader, strip_version};
use crate::doc::local::read_local_doc;
use crate::doc::revtree::{CHUNK_LEN_UNKNOWN, RevStatus};
use crate::doc::summary::SummaryView;
use crate::doc::{Attachment, Doc, FullDocInfo, Leaf, RevPath, Sizes};
use crate::ids::{DocId, Rev};
use crate::storage::CouchFile;
use crate::storage::btree::{CachedNode, Cursor, CursorOptions, Direction, Level, Tree};
use crate::storage::vfs::Wait;
use std::sync::Arc;

/// Priority in the cache of the terms that a header points to.
const HEADER_TERM_PRIORITY: Priority = 16;

/// What a database file said at one commit. Cloning is cheap; readers keep one as long as they like.
#[derive(Clone, Debug)]
pub struct Snapshot {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    file: Arc<CouchFile>,
    header: DbHeader,
    eof: u64,
}

/// What to read of a document.
#[derive(Clone, Debug, Default)]
pub struct ReadDoc {
    /// This revision instead of the winner.
    pub rev: Option<Rev>,
    /// Status of every revision of the branch.
    pub revs_info: bool,
    /// Leaves beside the winner.
    pub conflicts: bool,
}

/// A document, and what was asked for beside it.
#[derive(Clone, Debug)]
pub struct FoundDoc {
    /// Id, revisions, body and attachments.
    pub doc: Doc,
    /// Sequence of the document.
    pub seq: u64,
    /// The branch, newest first, when asked for.
    pub revs_info: Option<Vec<(Rev, RevStatus)>>,
    /// Live leaves beside this revision, best first, when asked for.
    pub conflicts: Vec<Rev>,
    /// Deleted leaves beside this revision, best first, when asked for.
    pub deleted_conflicts: Vec<Rev>,
}

/// What an id lookup found.
#[derive(Clone, Debug)]
pub enum DocLookup {
    /// No such id, or no such revision.
    Missing,
    /// The document.
    Found(Box<FoundDoc>),
}

/// Numbers of a database file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShardInfo {
    /// Live documents.
    pub doc_count: u64,
    /// Deleted documents.
    pub doc_del_count: u64,
    /// Sequence of the last update.
    pub update_seq: u64,
    /// Sequence of the last purge.
    pub purge_seq: u64,
    /// Bytes of the file.
    pub file_bytes: u64,
    /// Bytes that compaction would keep; unknown in files from before 1.2.
    pub active_bytes: Option<u64>,
    /// Bytes of documents as JSON and of attachments.
    pub external_bytes: u64,
    /// UUID of the file.
    pub uuid: String,
    /// `(node, seq)`, newest first.
    pub epochs: Vec<(String, u64)>,
}

impl Snapshot {
    pub(super) fn new(file: Arc<CouchFile>, header: DbHeader, eof: u64) -> Self {
        Self {
            inner: Arc::new(Inner { file, header, eof }),
        }
    }

    /// The header.
    #[must_use]
    pub fn header(&self) -> &DbHeader {
        &self.inner.header
    }

    /// The file.
    #[must_use]
    pub fn file(&self) -> &Arc<CouchFile> {
        &self.inner.file
    }

    pub(super) fn id_tree(&self) -> Tree<'_, IdTree> {
        Tree::new(&IdTree, &self.inner.file, self.inner.header.id_tree.as_ref())
    }

    pub(super) fn seq_tree(&self) -> Tree<'_, SeqTree> {
        Tree::new(&SeqTree, &self.inner.file, self.inner.header.seq_tree.as_ref())
    }

    pub(super) fn local_tree(&self) -> Tree<'_, LocalTree> {
        Tree::new(
            &LocalTree,
            &self.inner.file,
            self.inner.header.local_tree.as_ref(),
        )
    }

    /// Live and deleted documents and their sizes.
    ///
    /// # Errors
    /// When the reduction in the header has another shape.
    pub fn counts(&self) -> Result<IdReduction, DbError> {
        match &self.inner.header.id_tree {
            Some(root) => Ok(IdReduction::decode(&root.reduction)?),
            None => Ok(IdReduction::default()),
        }
    }

    /// Numbers for `GET /db`.
    ///
    /// # Errors
    /// When reductions have another shape or the purge tree cannot be read.
    pub fn info(&self, wait: Wait) -> Result<ShardInfo, DbError> {
        let counts = self.counts()?;
        let header = &self.inner.header;
        let tree_bytes = header.tree_bytes();
        Ok(ShardInfo {
            doc_count: counts.live,
            doc_del_count: counts.deleted,
            update_seq: header.update_seq,
            purge_seq: self.purge_seq(wait)?,
            file_bytes: self.inner.eof,
            active_bytes: tree_bytes.map(|bytes| bytes.saturating_add(counts.sizes.active)),
            external_bytes: counts.sizes.external,
            uuid: header.uuid.clone(),
            epochs: header.epochs.clone(),
        })
    }

    /// The greatest key of the purge tree.
    fn purge_seq(&self, wait: Wait) -> Result<u64, DbError> {
        match &self.inner.header.purges {
            Purges::Legacy { purge_seq, .. } => Ok(*purge_seq),
            Purges::Trees { by_seq, .. } => {
                let options = CursorOptions {
                    direction: Direction::Reverse,
                    wait,
                    ..CursorOptions::default()
                };
                let mut cursor = Cursor::new(
                    PurgeSeqTree,
                    Arc::clone(&self.inner.file),
                    by_seq.as_ref(),
                    options,
                );
                match cursor.next_leaf()?.and_then(|leaf| leaf.get(0)) {
                    Some((key, _)) => Ok(Reader::new(key).read_u64()?),
                    None => Ok(0),
                }
            }
        }
    }

    /// Changes after `seq`.
    ///
    /// # Errors
    /// When the tree cannot be read.
    pub fn count_changes_since(&self, seq: u64, wait: Wait) -> Result<u64, DbError> {
        let Some(root) = &self.inner.header.seq_tree else {
            return Ok(0);
        };
        let total = Reader::new(&root.reduction).read_u64()?;
        let mut reduction = Vec::new();
        self.seq_tree()
            .reduce_before(&seq_key(seq.saturating_add(1)), wait, &mut reduction)?;
        Ok(total.saturating_sub(Reader::new(&reduction).read_u64()?))
    }

    /// Live documents whose id comes before `id`.
    ///
    /// # Errors
    /// When the tree cannot be read.
    pub fn count_docs_before(&self, id: &[u8], wait: Wait) -> Result<u64, DbError> {
        let mut reduction = Vec::new();
        self.id_tree().reduce_before(&id_key(id), wait, &mut reduction)?;
        Ok(IdReduction::decode(&reduction)?.live)
    }

    /// Live documents whose id is `id` or comes before it.
    ///
    /// # Errors
    /// When the tree cannot be read.
    pub fn count_docs_up_to(&self, id: &[u8], wait: Wait) -> Result<u64, DbError> {
        let mut behind = Vec::new();
        self.id_tree().reduce_after(&id_key(id), wait, &mut behind)?;
        let behind = IdReduction::decode(&behind)?.live;
        Ok(self.counts()?.live.saturating_sub(behind))
    }

    /// The levels of every tree, from the root down, by the tree's name. Every node is read.
    ///
    /// # Errors
    /// When a node cannot be read.
    pub fn tree_levels(&self, wait: Wait) -> Result<Vec<(&'static str, Vec<Level>)>, DbError> {
        let mut levels = vec![
            ("id", self.id_tree().levels(wait)?),
            ("seq", self.seq_tree().levels(wait)?),
            ("local", self.local_tree().levels(wait)?),
        ];
        if let Purges::Trees { by_uuid, by_seq } = &self.inner.header.purges {
            let file = &*self.inner.file;
            levels.push((
                "purge",
                Tree::new(&PurgeTree, file, by_uuid.as_ref()).levels(wait)?,
            ));
            levels.push((
                "purge_seq",
                Tree::new(&PurgeSeqTree, file, by_seq.as_ref()).levels(wait)?,
            ));
        }
        Ok(levels)
    }

    /// The revision tree of a document.
    ///
    /// # Errors
    /// When the tree cannot be read, or says what no revision tree says.
    pub fn full_info(&self, id: &DocId, wait: Wait) -> Result<Option<FullDocInfo>, DbError> {
        let found = self.id_tree().lookup_one(&id_key(id.as_bytes()), wait, |value| {
            value.map(|raw| FullDocInfo::decode_id(id.as_bytes(), raw))
        })?;
        found.transpose().map_err(|error| self.damage(id, None, &error))
    }

    /// The revision trees of many documents, in the order of `ids`.
    ///
    /// # Errors
    /// As [`Snapshot::full_info`].
    pub fn full_infos(&self, ids: &[&DocId], wait: Wait) -> Result<Vec<Option<FullDocInfo>>, DbError> {
        let keys: Vec<Vec<u8>> = ids.iter().map(|id| id_key(id.as_bytes())).collect();
        let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        let mut infos: Vec<Option<Result<FullDocInfo, _>>> = Vec::new();
        infos.resize_with(ids.len(), || None);
        self.id_tree().lookup(&keys, wait, |index, value| {
            infos[index] = value.map(|raw| FullDocInfo::decode_id(ids[index].as_bytes(), raw));
        })?;
        let infos = infos.into_iter().zip(ids);
        infos
            .map(|(info, id)| info.transpose().map_err(|error| self.damage(id, None, &error)))
            .collect()
    }

    /// Opens a document; a deleted one is found as well.
    ///
    /// # Errors
    /// When bytes cannot be read or are damaged: the error names document, file and offset.
    pub fn open_doc(&self, id: &DocId, what: &ReadDoc, wait: Wait) -> Result<DocLookup, DbError> {
        if id.is_local() {
            return self.open_local(id, wait);
        }
        let Some(info) = self.full_info(id, wait)? else {
            return Ok(DocLookup::Missing);
        };
        let node = match &what.rev {
            Some(rev) => info.tree.find(rev),
            None => info.tree.winner(),
        };
        let Some((node, leaf)) = node.and_then(|node| Some((node, node.leaf()?))) else {
            return Ok(DocLookup::Missing);
        };
        let doc = self.read_body(&info.id, node.path(), leaf, wait)?;
        let mut found = FoundDoc {
            doc,
            seq: info.seq,
            revs_info: what.revs_info.then(|| node.revs_info()),
            conflicts: Vec::new(),
            deleted_conflicts: Vec::new(),
        };
        if what.conflicts {
            let rev = node.rev();
            for other in info
                .tree
                .leaves_sorted()
                .into_iter()
                .filter(|other| other.rev() != rev)
            {
                match other.is_deleted() {
                    true => found.deleted_conflicts.push(other.rev()),
                    false => found.conflicts.push(other.rev()),
                }
            }
        }
        Ok(DocLookup::Found(Box::new(found)))
    }

    /// One revision of a document with its body; nothing when the revision or its body is not there.
    ///
    /// # Errors
    /// As [`Snapshot::open_doc`].
    pub fn doc_of(&self, info: &FullDocInfo, rev: &Rev, wait: Wait) -> Result<Option<Doc>, DbError> {
        let Some(node) = info.tree.find(rev) else {
            return Ok(None);
        };
        let Some(leaf) = node.leaf() else { return Ok(None) };
        self.read_body(&info.id, node.path(), leaf, wait).map(Some)
    }

    fn read_body(&self, id: &DocId, path: RevPath, leaf: &Leaf, wait: Wait) -> Result<Doc, DbError> {
        let mut payload = Vec::new();
        let damage = |error: &dyn std::fmt::Display| self.damage(id, Some(leaf.ptr), error);
        self.inner
            .file
            .read_chunk(leaf.ptr, wait, &mut payload)
            .map_err(|error| match error.is_would_block() {
                true => DbError::from(error),
                false => damage(&error),
            })?;
        let parsed = SummaryView::parse(&payload)
            .and_then(|summary| Ok((summary.body()?.into_owned(), summary.attachments()?)))
            .map_err(|error| damage(&error));
        let (body, atts) = parsed?;
        Ok(Doc {
            id: id.clone(),
            revs: path,
            deleted: leaf.deleted,
            body,
            atts,
            local_seq: leaf.seq,
        })
    }

    /// Revisions of a document: all leaves, or those asked for. With `latest`, a revision that is no leaf is followed
    /// to the leaves that grew from it. Nothing when the document is not there.
    ///
    /// # Errors
    /// As [`Snapshot::open_doc`].
    pub fn open_revs(
        &self,
        id: &DocId,
        revs: Option<&[Rev]>,
        latest: bool,
        wait: Wait,
    ) -> Result<Option<Vec<Result<Doc, Rev>>>, DbError> {
        let Some(info) = self.full_info(id, wait)? else {
            return Ok(None);
        };
        let wanted: Vec<Rev> = match revs {
            None => info
                .tree
                .leaves_sorted()
                .into_iter()
                .map(|node| node.rev())
                .collect(),
            Some(revs) if latest => {
                let mut wanted: Vec<Rev> = Vec::with_capacity(revs.len());
                for rev in revs {
                    let newest: Vec<Rev> = info.tree.latest(rev).into_iter().map(|node| node.rev()).collect();
                    let newest = if newest.is_empty() {
                        vec![rev.clone()]
                    } else {
                        newest
                    };
                    for rev in newest {
                        if !wanted.contains(&rev) {
                            wanted.push(rev);
                        }
                    }
                }
                wanted
            }
            Some(revs) => revs.to_vec(),
        };
        let mut found = Vec::with_capacity(wanted.len());
        for rev in wanted {
            found.push(self.doc_of(&info, &rev, wait)?.ok_or(rev));
        }
        Ok(Some(found))
    }

    fn open_local(&self, id: &DocId, wait: Wait) -> Result<DocLookup, DbError> {
        let found = self
            .local_tree()
            .lookup_one(&id_key(id.as_bytes()), wait, |value| {
                value.map(|raw| read_local_doc(id.clone(), raw))
            })?;
        match found.transpose().map_err(|error| self.damage(id, None, &error))? {
            None => Ok(DocLookup::Missing),
            Some(doc) => Ok(DocLookup::Found(Box::new(FoundDoc {
                doc,
                seq: 0,
                revs_info: None,
                conflicts: Vec::new(),
                deleted_conflicts: Vec::new(),
            }))),
        }
    }

    /// The term at the security pointer: a list of members, raw.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn security(&self, wait: Wait) -> Result<Vec<u8>, DbError> {
        self.header_term(self.inner.header.security_ptr, wait)
    }

    /// The term at the props pointer: a list of properties, raw.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn props(&self, wait: Wait) -> Result<Vec<u8>, DbError> {
        self.header_term(self.inner.header.props_ptr, wait)
    }

    pub(super) fn header_term(&self, pointer: Option<u64>, wait: Wait) -> Result<Vec<u8>, DbError> {
        let Some(pointer) = pointer else {
            let mut empty = Vec::new();
            crate::codec::term::write::nil(&mut empty);
            return Ok(empty);
        };
        let file = &self.inner.file;
        let key = Key {
            file: file.id(),
            offset: pointer,
        };
        if let Some(CachedNode::Term(term)) = file.cache().and_then(|cache| cache.lookup(key)) {
            return Ok(strip_version(&term)?.to_vec());
        }
        let mut stored = Vec::new();
        file.read_chunk(pointer, wait, &mut stored)?;
        let term = decompress(&stored).map_err(|error| file.corrupt(pointer, error.to_string()))?;
        if let Some(cache) = file.cache() {
            cache.insert(key, CachedNode::Term(Arc::from(&*term)), HEADER_TERM_PRIORITY);
        }
        Ok(strip_version(&term)?.to_vec())
    }

    /// Reads one chunk of an attachment into `out`.
    ///
    /// # Errors
    /// When it cannot be read, or is longer or shorter than the document says.
    pub fn read_attachment_chunk(
        &self,
        position: u64,
        length: u64,
        wait: Wait,
        out: &mut Vec<u8>,
    ) -> Result<(), DbError> {
        self.inner.file.read_chunk(position, wait, out)?;
        if length != CHUNK_LEN_UNKNOWN && out.len() as u64 != length {
            return Err(DbError::Damaged(DocDamage {
                id: None,
                file: self.inner.file.path().to_owned(),
                position: Some(position),
                detail: format!(
                    "attachment chunk has {} bytes, the document says {length}",
                    out.len()
                ),
            }));
        }
        Ok(())
    }

    /// The bytes of an attachment, decoded, after a check of their digest.
    ///
    /// # Errors
    /// When they cannot be read, or are not those that were stored.
    pub fn attachment_bytes(&self, attachment: &Attachment, wait: Wait) -> Result<Vec<u8>, DbError> {
        let mut stored = Vec::new();
        let mut chunk = Vec::new();
        for (position, length) in &attachment.stream {
            self.read_attachment_chunk(*position, *length, wait, &mut chunk)?;
            stored.extend_from_slice(&chunk);
        }
        Ok(attachment.decode(&stored)?.into_owned())
    }

    pub(super) fn damage(&self, id: &DocId, position: Option<u64>, error: &dyn std::fmt::Display) -> DbError {
        DbError::Damaged(DocDamage {
            id: Some(id.clone()),
            file: self.inner.file.path().to_owned(),
            position,
            detail: error.to_string(),
        })
    }

    /// Sizes that the id tree sums up.
    ///
    /// # Errors
    /// As [`Snapshot::counts`].
    pub fn sizes(&self) -> Result<Sizes, DbError> {
        Ok(self.counts()?.sizes)
    }
}
