//! Writing documents: edits go to their shards at once, and every one is answered in its place.
//!
//! The state machine [`Machine`] decides which copies are told and when enough have answered; here its orders are carried
//! out. Edits are known by their tag, their place in the request, from beginning to end.

use super::documents::shard_of;
use super::{Coordinator, DbError, DocRefusal, UpdateDocs, UpdateResult, Updated, pool_failed, read_failed};
use crate::db::DbMsg;
use crate::open_db::DbLease;
use futures_util::future::try_join_all;
use futures_util::stream::{FuturesUnordered, StreamExt};
use settee_engine::cluster::{
    ShardMap, UpdateDocs as Machine, UpdateDone, UpdateGroup, UpdateOptions, UpdateReply,
    UpdateResult as Decision,
};
use settee_engine::db::{
    Batch, BatchAnswer, DbError as EngineError, Prepared, PreparedLocal, Preparer, UpdateOutcome,
    prepare_local,
};
use settee_engine::doc::DocEdit;
use settee_engine::ids::{DbName, Rev};
use settee_engine::storage::vfs::Wait;
use std::sync::Arc;

/// From this many edits for one shard on, they are made ready on the blocking pool, so that shards share the cores.
const PREPARE_IN_PLACE_MAX: usize = 16;

/// The edits of one request that belong to one shard, in the order of the request.
struct ShardEdits {
    shard: usize,
    tags: Vec<u32>,
    edits: Vec<DocEdit>,
}

/// The same, free of whatever could still break the request.
struct ShardBatch {
    lease: DbLease,
    /// For each edit, whether it is one of a local document.
    local: Vec<bool>,
    docs: Docs,
    locals: Vec<PreparedLocal>,
    replicated: bool,
}

/// Documents on their way to a shard.
enum Docs {
    Ready(Vec<Prepared>),
    /// Edits without attachments: making them ready cannot fail, so it waits for nothing but its turn.
    Sound(Vec<DocEdit>),
}

type Reply = UpdateReply<Rev, DocRefusal>;

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
        let documents = edits.len();
        let mut groups = Vec::new();
        let mut ready = Vec::new();
        for group in group(&map, edits)? {
            let ShardEdits { shard, ref tags, .. } = group;
            groups.push(UpdateGroup {
                shard,
                node: self.node_name().clone(),
                tags: tags.clone(),
            });
            ready.push(self.check(&map, group, !options.new_edits));
        }
        // All are checked before the first is sent, so that a bad edit leaves nothing half written.
        let batches = try_join_all(ready).await?;
        let machine_options = UpdateOptions {
            w: options
                .w
                .map_or(map.quorum(), |w| usize::try_from(w).unwrap_or(usize::MAX)),
            serialize: options.new_edits,
        };
        self.run(documents, groups, batches, machine_options).await
    }

    /// Does what the machine says until it has decided.
    async fn run(
        &self,
        documents: usize,
        groups: Vec<UpdateGroup>,
        batches: Vec<ShardBatch>,
        options: UpdateOptions,
    ) -> Result<Vec<UpdateResult>, DbError> {
        let mut batches: Vec<Option<ShardBatch>> = batches.into_iter().map(Some).collect();
        let tags: Vec<Vec<u32>> = groups.iter().map(|group| group.tags.clone()).collect();
        let (mut machine, mut step) = Machine::<Rev, DocRefusal>::new(documents, groups, options);
        let mut running = FuturesUnordered::new();
        let mut failures: Vec<Option<DbError>> = vec![None; batches.len()];
        loop {
            for start in step.start {
                if let Some(batch) = batches.get_mut(start.worker).and_then(Option::take) {
                    running.push(async move { (start.worker, self.send(batch).await) });
                }
            }
            if let Some(done) = step.done {
                return Ok(results(done, &tags, &failures));
            }
            let Some((worker, answer)) = running.next().await else {
                return Ok(results(machine.timeout(), &tags, &failures));
            };
            step = match answer {
                Ok(replies) => machine.reply(worker, replies),
                Err(error) => {
                    failures[worker] = Some(error);
                    machine.exit(worker)
                }
            };
        }
    }

    /// Does what may fail for a reason that lies in the edits.
    async fn check(
        &self,
        map: &ShardMap,
        group: ShardEdits,
        replicated: bool,
    ) -> Result<ShardBatch, DbError> {
        let lease = self.lease(map.shards()[group.shard].name()).await?;
        let local: Vec<bool> = group.edits.iter().map(|edit| edit.id.is_local()).collect();
        let (locals, edits): (Vec<DocEdit>, Vec<DocEdit>) =
            group.edits.into_iter().partition(|edit| edit.id.is_local());
        let locals = locals
            .into_iter()
            .map(prepare_local)
            .collect::<Result<Vec<_>, _>>()?;
        let docs = match edits.iter().all(|edit| edit.atts.is_empty()) {
            true => Docs::Sound(edits),
            false => Docs::Ready(self.prepare(&lease, edits, replicated).await?),
        };
        Ok(ShardBatch {
            lease,
            local,
            docs,
            locals,
            replicated,
        })
    }

    /// Makes edits ready: many of them, or those that may have to wait for the file, on the blocking pool.
    async fn prepare(
        &self,
        lease: &DbLease,
        edits: Vec<DocEdit>,
        replicated: bool,
    ) -> Result<Vec<Prepared>, DbError> {
        let options = Arc::clone(&self.shared().prepare);
        let snapshot = lease.snapshot();
        // A stub has to be looked up in the file, which may block.
        let on_pool = edits.len() > PREPARE_IN_PLACE_MAX || edits.iter().any(DocEdit::has_stubs);
        let all = move |edits: Vec<DocEdit>| -> Result<Vec<Prepared>, EngineError> {
            Preparer::new(&options).prepare_all(&snapshot, edits, replicated, Wait::Yes)
        };
        let prepared = match on_pool {
            true => self
                .shared()
                .pool
                .run(move || all(edits))
                .await
                .map_err(pool_failed)?,
            false => all(edits),
        };
        prepared.map_err(|error| read_failed(&error))
    }

    /// Hands a batch to its shard as soon as it is ready, so that some shards sync while others' documents are compressed.
    async fn send(&self, batch: ShardBatch) -> Result<Vec<Reply>, DbError> {
        let ShardBatch {
            lease,
            local,
            docs,
            locals,
            replicated,
        } = batch;
        let docs = match docs {
            Docs::Ready(docs) => docs,
            Docs::Sound(edits) => self.prepare(&lease, edits, replicated).await?,
        };
        let batch = Batch { docs, locals };
        let answer = self.tell(&lease, |reply| DbMsg::Update(batch, reply)).await?;
        Ok(replies(answer, &local))
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
            tags: Vec::with_capacity(expected),
            edits: Vec::with_capacity(expected),
        });
        group.tags.push(u32::try_from(tag).unwrap_or(u32::MAX));
        group.edits.push(edit);
    }
    Ok(groups.into_iter().flatten().collect())
}

/// A shard's answers in the order of its edits.
fn replies(answer: BatchAnswer, local: &[bool]) -> Vec<Reply> {
    let mut docs = answer.docs.into_iter();
    let mut locals = answer.locals.into_iter();
    let unanswered = || UpdateReply::Error(DocRefusal::Storage("the shard did not answer".to_owned()));
    local
        .iter()
        .map(|local| match local {
            true => locals.next().map_or_else(unanswered, UpdateReply::Ok),
            false => docs.next().map_or_else(unanswered, |outcome| match outcome {
                UpdateOutcome::Written(rev) | UpdateOutcome::Known(rev) => UpdateReply::Ok(rev),
                UpdateOutcome::Conflict => UpdateReply::Conflict,
                UpdateOutcome::Corrupt(why) => UpdateReply::Error(DocRefusal::Storage(why)),
            }),
        })
        .collect()
}

/// The decision in the words of the caller. An edit without an answer gets the failure of its shard.
fn results(
    done: UpdateDone<Rev, DocRefusal>,
    tags: &[Vec<u32>],
    failures: &[Option<DbError>],
) -> Vec<UpdateResult> {
    let mut group_of = vec![None; done.results.len()];
    for (group, tags) in tags.iter().enumerate() {
        for tag in tags {
            if let Some(place) = group_of.get_mut(*tag as usize) {
                *place = Some(group);
            }
        }
    }
    let failure_of = |tag: usize| {
        let group = group_of.get(tag).copied().flatten();
        match group.and_then(|group: usize| failures.get(group)?.as_ref()) {
            Some(DbError::StorageFull(why)) => DocRefusal::StorageFull(why.clone()),
            Some(failure) => DocRefusal::Storage(failure.to_string()),
            None => DocRefusal::Storage("no shard answered".to_owned()),
        }
    };
    done.results
        .into_iter()
        .enumerate()
        .map(|(tag, decision)| match decision {
            Decision::Ok(rev) => Ok(Updated { rev, accepted: false }),
            Decision::Accepted(rev) => Ok(Updated { rev, accepted: true }),
            Decision::Conflict => Err(DocRefusal::Conflict),
            Decision::Error(refusal) => Err(refusal),
            Decision::NoReply | Decision::InternalServerError => Err(failure_of(tag)),
        })
        .collect()
}
