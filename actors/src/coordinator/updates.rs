//! Writing documents: edits go to their shards at once, and every one is answered in its place.

use super::documents::shard_of;
use super::{Coordinator, DbError, DocRefusal, UpdateDocs, UpdateResult, Updated, pool_failed, read_failed};
use crate::db::DbMsg;
use crate::open_db::DbLease;
use futures_util::future::{join_all, try_join_all};
use settee_engine::cluster::ShardMap;
use settee_engine::db::{
    Batch, BatchAnswer, DbError as EngineError, Prepared, Preparer, UpdateOutcome, prepare_local,
};
use settee_engine::doc::DocEdit;
use settee_engine::ids::DbName;
use settee_engine::storage::vfs::Wait;

/// From this many edits for one shard on, they are made ready on the blocking pool, so that shards share the cores.
const PREPARE_IN_PLACE_MAX: usize = 16;

/// The edits of one request that belong to one shard.
struct ShardEdits {
    shard: usize,
    /// Place of each document in the request.
    doc_tags: Vec<usize>,
    /// Place of each local document in the request.
    local_tags: Vec<usize>,
    edits: Vec<DocEdit>,
    locals: Vec<DocEdit>,
}

/// The same, made ready.
struct ShardBatch {
    lease: DbLease,
    doc_tags: Vec<usize>,
    local_tags: Vec<usize>,
    batch: Batch,
}

impl Coordinator {
    /// Applies edits; on return those answered with `Ok` are on disk.
    ///
    /// # Errors
    /// When the database is not there, or one of the edits breaks a rule that concerns the whole request, such as a stub
    /// without an attachment: then nothing is written. What concerns one document stands in its place.
    pub async fn update_docs(
        &self,
        db: &DbName,
        edits: Vec<DocEdit>,
        options: UpdateDocs,
    ) -> Result<Vec<UpdateResult>, DbError> {
        let map = self.shards(db).await?;
        self.shared().counters.database_writes.increment();
        let mut results: Vec<Option<UpdateResult>> = Vec::new();
        results.resize_with(edits.len(), || None);
        let groups = group(&map, edits)?;
        let replicated = !options.new_edits;
        // All are made ready before the first is sent, so that a bad edit leaves nothing half written.
        let ready = groups.into_iter().map(|group| self.make_ready(&map, group, replicated));
        let batches = try_join_all(ready).await?;
        let answers = join_all(batches.into_iter().map(|batch| self.send(batch))).await;
        let needed = options.w.unwrap_or_else(|| u32::try_from(map.quorum()).unwrap_or(u32::MAX));
        for (doc_tags, local_tags, answer) in answers {
            match answer {
                Ok(answer) => place(answer, &doc_tags, &local_tags, needed, &mut results),
                Err(error) => {
                    for tag in doc_tags.into_iter().chain(local_tags) {
                        results[tag] = Some(Err(DocRefusal::Storage(error.to_string())));
                    }
                }
            }
        }
        let unanswered = || Err(DocRefusal::Storage("no shard answered".to_owned()));
        Ok(results.into_iter().map(|result| result.unwrap_or_else(unanswered)).collect())
    }

    async fn make_ready(&self, map: &ShardMap, group: ShardEdits, replicated: bool) -> Result<ShardBatch, DbError> {
        let lease = self.lease(map.shards()[group.shard].name()).await?;
        let locals = group.locals.into_iter().map(prepare_local).collect::<Result<Vec<_>, _>>()?;
        let mut docs = Vec::new();
        if !group.edits.is_empty() {
            let options = self.shared().prepare_options();
            let snapshot = lease.snapshot();
            let edits = group.edits;
            let all = move |edits: Vec<DocEdit>| -> Result<Vec<Prepared>, EngineError> {
                let mut preparer = Preparer::new(&options);
                let prepare = |edit| preparer.prepare(&snapshot, edit, replicated, Wait::Yes);
                edits.into_iter().map(prepare).collect()
            };
            // A stub has to be looked up in the file, which may block.
            let reads = edits.iter().any(DocEdit::has_stubs);
            docs = if edits.len() > PREPARE_IN_PLACE_MAX || reads {
                self.shared().pool.run(move || all(edits)).await.map_err(pool_failed)?
            } else {
                all(edits)
            }
            .map_err(|error| read_failed(&error))?;
        }
        Ok(ShardBatch {
            lease,
            doc_tags: group.doc_tags,
            local_tags: group.local_tags,
            batch: Batch { docs, locals },
        })
    }

    async fn send(&self, batch: ShardBatch) -> (Vec<usize>, Vec<usize>, Result<BatchAnswer, DbError>) {
        let ShardBatch { lease, doc_tags, local_tags, batch } = batch;
        let answer = self.tell(&lease, |reply| DbMsg::Update(batch, reply)).await;
        (doc_tags, local_tags, answer)
    }
}

/// Sorts edits by shard; the order within a shard is that of the request.
fn group(map: &ShardMap, edits: Vec<DocEdit>) -> Result<Vec<ShardEdits>, DbError> {
    let mut groups: Vec<Option<ShardEdits>> = Vec::new();
    groups.resize_with(map.shards().len(), || None);
    let expected = edits.len() / map.shards().len().max(1) + 1;
    for (tag, edit) in edits.into_iter().enumerate() {
        let shard = shard_of(map, &edit.id)?;
        let group = groups[shard].get_or_insert_with(|| ShardEdits {
            shard,
            doc_tags: Vec::with_capacity(expected),
            local_tags: Vec::new(),
            edits: Vec::with_capacity(expected),
            locals: Vec::new(),
        });
        if edit.id.is_local() {
            group.local_tags.push(tag);
            group.locals.push(edit);
        } else {
            group.doc_tags.push(tag);
            group.edits.push(edit);
        }
    }
    Ok(groups.into_iter().flatten().collect())
}

/// Puts the answers of one shard into their places.
fn place(
    answer: BatchAnswer,
    doc_tags: &[usize],
    local_tags: &[usize],
    needed: u32,
    results: &mut [Option<UpdateResult>],
) {
    let updated = |rev| Ok(Updated { rev, accepted: needed > 1 });
    for (tag, outcome) in doc_tags.iter().zip(answer.docs) {
        results[*tag] = Some(match outcome {
            UpdateOutcome::Written(rev) | UpdateOutcome::Known(rev) => updated(rev),
            UpdateOutcome::Conflict => Err(DocRefusal::Conflict),
            UpdateOutcome::Corrupt(why) => Err(DocRefusal::Storage(why)),
        });
    }
    for (tag, rev) in local_tags.iter().zip(answer.locals) {
        results[*tag] = Some(updated(rev));
    }
}
