//! Reading documents and revisions.

use super::{Coordinator, DbError, Missing, MissingRevs, OpenDoc, OpenRevs, OpenedDoc};
use settee_engine::cluster::ShardMap;
use settee_engine::db::{DocLookup, FoundDoc, ReadDoc};
use settee_engine::ids::{DbName, DocId, Rev};
use std::sync::Arc;

/// Answer of `open_revs` for one document: each revision, or the one that is missing.
pub type Revisions = Vec<Result<OpenedDoc, Rev>>;

impl Coordinator {
    /// Opens a document: the winner, or the revision asked for.
    ///
    /// # Errors
    /// [`DbError::NotFound`] when it is missing, or when the winner is deleted and `deleted` was not asked for; otherwise
    /// what reading met.
    pub async fn open_doc(&self, db: &DbName, id: &DocId, options: &OpenDoc) -> Result<OpenedDoc, DbError> {
        let map = self.shards(db).await?;
        let shard = shard_of(&map, id)?;
        let lease = self.lease(map.shards()[shard].name()).await?;
        self.shared().counters.database_reads.increment();
        let what = ReadDoc {
            rev: options.rev.clone(),
            revs_info: options.revs_info,
            conflicts: options.conflicts || options.deleted_conflicts,
        };
        let snapshot = lease.snapshot();
        let doc_id = id.clone();
        let found = self
            .read(move |wait| snapshot.open_doc(&doc_id, &what, wait))
            .await?;
        let DocLookup::Found(found) = found else {
            return Err(DbError::NotFound(Missing::Missing));
        };
        if found.doc.deleted && !options.deleted && options.rev.is_none() {
            return Err(DbError::NotFound(Missing::Deleted));
        }
        Ok(opened(*found, shard, options))
    }

    /// Opens revisions of one document: all leaves, or those asked for; `latest` follows a revision to its leaves.
    ///
    /// # Errors
    /// [`DbError::NotFound`] when all leaves of a missing document are asked for; otherwise what reading met.
    pub async fn open_revs(
        &self,
        db: &DbName,
        id: &DocId,
        which: OpenRevs,
        latest: bool,
    ) -> Result<Revisions, DbError> {
        let map = self.shards(db).await?;
        let all = matches!(which, OpenRevs::All);
        let revisions = self.revisions(&map, id.clone(), which, latest).await?;
        if all && revisions.is_empty() {
            return Err(DbError::NotFound(Missing::Missing));
        }
        Ok(revisions)
    }

    /// [`Coordinator::open_revs`] for many documents; a missing one has no revisions.
    ///
    /// # Errors
    /// When the database is not there. What concerns one document stands in its place.
    pub async fn bulk_get(
        &self,
        db: &DbName,
        requests: Vec<(DocId, OpenRevs)>,
        latest: bool,
    ) -> Result<Vec<Result<Revisions, DbError>>, DbError> {
        let map = self.shards(db).await?;
        let mut answers = Vec::with_capacity(requests.len());
        for (id, which) in requests {
            answers.push(self.revisions(&map, id, which, latest).await);
        }
        Ok(answers)
    }

    async fn revisions(
        &self,
        map: &Arc<ShardMap>,
        id: DocId,
        which: OpenRevs,
        latest: bool,
    ) -> Result<Revisions, DbError> {
        let shard = shard_of(map, &id)?;
        let lease = self.lease(map.shards()[shard].name()).await?;
        self.shared().counters.database_reads.increment();
        let snapshot = lease.snapshot();
        let revs = match which {
            OpenRevs::All => None,
            OpenRevs::List(revs) => Some(revs),
        };
        let asked = revs.clone();
        let found = self
            .read(move |wait| snapshot.open_revs(&id, asked.as_deref(), latest, wait))
            .await?;
        let Some(found) = found else {
            return Ok(revs.unwrap_or_default().into_iter().map(Err).collect());
        };
        Ok(found
            .into_iter()
            .map(|doc| {
                doc.map(|doc| OpenedDoc {
                    doc,
                    revs_info: None,
                    conflicts: Vec::new(),
                    deleted_conflicts: Vec::new(),
                    local_seq: None,
                    shard,
                })
            })
            .collect())
    }

    /// Which of these revisions the database lacks. Documents that miss none are left out.
    ///
    /// # Errors
    /// As [`Coordinator::open_doc`].
    pub async fn missing_revs(
        &self,
        db: &DbName,
        wanted: Vec<(DocId, Vec<Rev>)>,
    ) -> Result<Vec<MissingRevs>, DbError> {
        let map = self.shards(db).await?;
        let mut by_shard: Vec<Vec<usize>> = vec![Vec::new(); map.shards().len()];
        for (index, (id, _)) in wanted.iter().enumerate() {
            by_shard[shard_of(&map, id)?].push(index);
        }
        let mut answers: Vec<Option<MissingRevs>> = Vec::new();
        answers.resize_with(wanted.len(), || None);
        for (shard, indexes) in by_shard
            .into_iter()
            .enumerate()
            .filter(|(_, indexes)| !indexes.is_empty())
        {
            let lease = self.lease(map.shards()[shard].name()).await?;
            let snapshot = lease.snapshot();
            let ids: Vec<DocId> = indexes.iter().map(|index| wanted[*index].0.clone()).collect();
            let infos = self
                .read(move |wait| {
                    let ids: Vec<&DocId> = ids.iter().collect();
                    snapshot.full_infos(&ids, wait)
                })
                .await?;
            for (index, info) in indexes.into_iter().zip(infos) {
                let (id, revs) = &wanted[index];
                let (missing, possible_ancestors) = match info {
                    None => (revs.clone(), Vec::new()),
                    Some(info) => {
                        let missing = info.tree.missing(revs);
                        let ancestors = info.tree.possible_ancestors(&missing);
                        (missing, ancestors)
                    }
                };
                if !missing.is_empty() {
                    answers[index] = Some(MissingRevs {
                        id: id.clone(),
                        missing,
                        possible_ancestors,
                    });
                }
            }
        }
        Ok(answers.into_iter().flatten().collect())
    }
}

fn opened(found: FoundDoc, shard: usize, options: &OpenDoc) -> OpenedDoc {
    OpenedDoc {
        doc: found.doc,
        revs_info: found.revs_info,
        conflicts: if options.conflicts {
            found.conflicts
        } else {
            Vec::new()
        },
        deleted_conflicts: if options.deleted_conflicts {
            found.deleted_conflicts
        } else {
            Vec::new()
        },
        local_seq: options.local_seq.then_some(found.seq),
        shard,
    }
}

/// Index of the shard that a document belongs to.
pub(super) fn shard_of(map: &ShardMap, id: &DocId) -> Result<usize, DbError> {
    map.for_doc(id.as_bytes())
        .map_err(|error| DbError::IllegalDocId(error.to_string()))
}
