//! Reading documents and revisions.

use super::{Coordinator, DbError, Missing, MissingRevs, OpenDoc, OpenRevs, OpenedDoc};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use settee_engine::cluster::{
    Lacking, MissingRevs as MissingRevsMachine, MissingRevsResult, NotFound, OpenDoc as OpenDocMachine,
    OpenDocOptions, OpenReply, OpenResult, OpenRevs as OpenRevsMachine, OpenRevsOptions, OpenRevsResult,
    RevReply, Revision, ShardMap, Worker,
};
use settee_engine::db::{DocLookup, FoundDoc, ReadDoc};
use settee_engine::ids::{DbName, DocId, NodeName, Rev, RevId};
use std::convert::Infallible;
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
        let copies = self.copies();
        let machine_options = OpenDocOptions {
            r: map.quorum(),
            deleted: options.deleted || options.rev.is_some(),
            repair: false,
        };
        let mut machine = OpenDocMachine::<Found, Infallible>::new(copies.clone(), machine_options);
        let workers = copies.iter().map(|_| self.open_copy(&map, shard, id, options));
        let (done, failure) = ask(workers, &mut machine, OpenDocMachine::reply, OpenDocMachine::exit).await;
        let result = done.unwrap_or_else(|| machine.timeout()).result;
        drop(machine);
        match result {
            OpenResult::Found(Found(found)) => Ok(Arc::unwrap_or_clone(found)),
            OpenResult::NotFound(NotFound::Missing) => Err(DbError::NotFound(Missing::Missing)),
            OpenResult::NotFound(NotFound::Deleted) => Err(DbError::NotFound(Missing::Deleted)),
            OpenResult::Error(never) => match never {},
            OpenResult::ReadFailure | OpenResult::Timeout => Err(failure.unwrap_or_else(no_copy)),
        }
    }

    /// Reads one copy of a document.
    async fn open_copy(
        &self,
        map: &ShardMap,
        shard: usize,
        id: &DocId,
        options: &OpenDoc,
    ) -> Result<OpenReply<Found, Infallible>, DbError> {
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
        Ok(match found {
            DocLookup::Missing => OpenReply::NotFound(NotFound::Missing),
            DocLookup::Found(found) => OpenReply::Found(Found(Arc::new(opened(*found, shard, options)))),
        })
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
        let revs = match which {
            OpenRevs::All => None,
            OpenRevs::List(revs) => Some(revs),
        };
        let copies = self.copies();
        let machine_options = OpenRevsOptions {
            r: map.quorum().min(copies.len()),
            tree: revs.is_none() || latest,
            repair: false,
        };
        let mut machine = OpenRevsMachine::<Found>::new(copies.clone(), machine_options);
        let workers = copies
            .iter()
            .map(|_| self.revisions_of_copy(map, shard, &id, revs.as_deref(), latest));
        let (done, failure) = ask(
            workers,
            &mut machine,
            OpenRevsMachine::reply,
            OpenRevsMachine::exit,
        )
        .await;
        let result = done.unwrap_or_else(|| machine.timeout()).result;
        drop(machine);
        match result {
            OpenRevsResult::Revs(revs) => Ok(revs
                .into_iter()
                .map(|reply| match reply {
                    RevReply::Found(Found(found)) => Ok(Arc::unwrap_or_clone(found)),
                    RevReply::Missing(pos, id) => Err(Rev { pos, id }),
                })
                .collect()),
            OpenRevsResult::AllWorkersDied | OpenRevsResult::Timeout => Err(failure.unwrap_or_else(no_copy)),
        }
    }

    /// Reads revisions of one copy of a document: all leaves when `revs` is absent.
    async fn revisions_of_copy(
        &self,
        map: &ShardMap,
        shard: usize,
        id: &DocId,
        revs: Option<&[Rev]>,
        latest: bool,
    ) -> Result<Vec<RevReply<Found>>, DbError> {
        let lease = self.lease(map.shards()[shard].name()).await?;
        self.shared().counters.database_reads.increment();
        let snapshot = lease.snapshot();
        let (id, asked) = (id.clone(), revs.map(<[Rev]>::to_vec));
        let found = self
            .read(move |wait| snapshot.open_revs(&id, asked.as_deref(), latest, wait))
            .await?;
        let missing = |rev: Rev| RevReply::Missing(rev.pos, rev.id);
        let Some(found) = found else {
            return Ok(revs.unwrap_or_default().iter().cloned().map(missing).collect());
        };
        let reply = |doc| {
            RevReply::Found(Found(Arc::new(OpenedDoc {
                doc,
                revs_info: None,
                conflicts: Vec::new(),
                deleted_conflicts: Vec::new(),
                local_seq: None,
                shard,
            })))
        };
        Ok(found
            .into_iter()
            .map(|doc| doc.map_or_else(missing, reply))
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
        if wanted.is_empty() {
            return Ok(Vec::new());
        }
        let mut by_shard: Vec<Vec<usize>> = vec![Vec::new(); map.shards().len()];
        for (index, (id, _)) in wanted.iter().enumerate() {
            by_shard[shard_of(&map, id)?].push(index);
        }
        let by_shard = by_shard.into_iter().enumerate();
        let asked: Vec<(NodeName, usize, Vec<usize>)> = by_shard
            .filter(|(_, places)| !places.is_empty())
            .flat_map(|(shard, places)| {
                let copies = self.copies().into_iter();
                copies.map(move |node| (node, shard, places.clone()))
            })
            .collect();
        let copies = asked
            .iter()
            .map(|(node, _, places)| (node.clone(), places.clone()));
        let revs = wanted.iter().map(|(_, revs)| revs.clone()).collect();
        let mut machine = MissingRevsMachine::<Rev>::new(revs, copies.collect());
        let workers = asked
            .iter()
            .map(|(_, shard, places)| self.missing_in_copy(&map, *shard, &wanted, places));
        let (done, failure) = ask(
            workers,
            &mut machine,
            MissingRevsMachine::reply,
            MissingRevsMachine::exit,
        )
        .await;
        // A shard without any copy left: its revisions must not be called missing.
        if let Some(failure) = failure {
            return Err(failure);
        }
        match done.unwrap_or_else(|| machine.timeout()).result {
            MissingRevsResult::Missing(missing) => Ok(missing
                .into_iter()
                .map(|(place, lacking)| MissingRevs {
                    id: wanted[place].0.clone(),
                    missing: lacking.missing,
                    possible_ancestors: lacking.possible_ancestors,
                })
                .collect()),
            MissingRevsResult::Timeout => Err(no_copy()),
        }
    }

    /// What one copy of a shard lacks, for the documents at `places` of `wanted`.
    async fn missing_in_copy(
        &self,
        map: &ShardMap,
        shard: usize,
        wanted: &[(DocId, Vec<Rev>)],
        places: &[usize],
    ) -> Result<Vec<Lacking<Rev>>, DbError> {
        let lease = self.lease(map.shards()[shard].name()).await?;
        let snapshot = lease.snapshot();
        let ids: Vec<DocId> = places.iter().map(|place| wanted[*place].0.clone()).collect();
        let infos = self
            .read(move |wait| {
                let ids: Vec<&DocId> = ids.iter().collect();
                snapshot.full_infos(&ids, wait)
            })
            .await?;
        let lacking = places.iter().zip(infos).map(|(place, info)| {
            let revs = &wanted[*place].1;
            let (missing, possible_ancestors) = match info {
                None => (revs.clone(), Vec::new()),
                Some(info) => {
                    let missing = info.tree.missing(revs);
                    let ancestors = info.tree.possible_ancestors(&missing);
                    (missing, ancestors)
                }
            };
            Lacking {
                missing,
                possible_ancestors,
            }
        });
        Ok(lacking.collect())
    }

    /// The nodes whose copies of a shard are asked: this one, as long as there is no other.
    fn copies(&self) -> Vec<NodeName> {
        vec![self.node_name().clone()]
    }
}

/// A revision that was read, as the machines look at it. They copy it freely.
#[derive(Clone, Debug)]
struct Found(Arc<OpenedDoc>);

impl Revision for Found {
    type Id = RevId;

    fn position(&self) -> u64 {
        self.0.doc.revs.start
    }

    fn path(&self) -> &[RevId] {
        &self.0.doc.revs.ids
    }

    fn deleted(&self) -> bool {
        self.0.doc.deleted
    }
}

/// Feeds a machine with what its workers answer, in the order in which they do, until it has decided. Gives the first
/// failure as well. What is still running is dropped.
async fn ask<Machine, Reply, Done, Answer: Future<Output = Result<Reply, DbError>>>(
    workers: impl Iterator<Item = Answer>,
    machine: &mut Machine,
    reply: impl Fn(&mut Machine, Worker, Reply) -> Option<Done>,
    exit: impl Fn(&mut Machine, Worker) -> Option<Done>,
) -> (Option<Done>, Option<DbError>) {
    let numbered = workers
        .enumerate()
        .map(|(worker, answer)| async move { (worker, answer.await) });
    let mut running: FuturesUnordered<_> = numbered.collect();
    let mut failure = None;
    while let Some((worker, answer)) = running.next().await {
        let done = match answer {
            Ok(answer) => reply(machine, worker, answer),
            Err(error) => {
                failure.get_or_insert(error);
                exit(machine, worker)
            }
        };
        if done.is_some() {
            return (done, failure);
        }
    }
    (None, failure)
}

fn no_copy() -> DbError {
    DbError::Timeout("every copy of the shard".to_owned())
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
