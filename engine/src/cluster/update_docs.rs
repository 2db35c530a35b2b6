//! Writing documents to all copies of their ranges: `fabric_doc_update`.
//!
//! Documents are known by their tag, which is their place in the batch; ids and bodies are never compared. A batch may
//! hold the same id twice.

use super::workers::Worker;
use crate::ids::NodeName;
use smallvec::SmallVec;

/// What one copy answered for one document. `V` is the new revision; `E` is an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UpdateReply<V, E> {
    /// Written as this revision.
    Ok(V),
    /// Accepted without a word, as replicated changes are.
    NoReply,
    /// The document has been changed since.
    Conflict,
    /// Refused by a validation function; from replicated changes. It decides when no copy says anything else.
    Forbidden(E),
    /// Any other refusal.
    Error(E),
}

/// What one document comes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UpdateResult<V, E> {
    /// Written by enough copies.
    Ok(V),
    /// Written, but by fewer copies than asked for.
    Accepted(V),
    /// A replicated change that was taken; clients are not told of it.
    NoReply,
    /// The document has been changed since.
    Conflict,
    /// Refused.
    Error(E),
    /// No copy answered for the document.
    InternalServerError,
}

/// How the whole batch went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    /// Every document has its quorum: 201.
    Ok,
    /// Some were written by fewer copies than asked for: 202.
    Accepted,
    /// Copies contradict each other or did not answer: 500.
    Error,
}

/// One copy of a range and the documents of the batch that fall into it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpdateGroup {
    /// The shard's index in the map.
    pub shard: usize,
    /// The node of the copy.
    pub node: NodeName,
    /// The tags of the documents, ascending.
    pub tags: Vec<u32>,
}

/// A worker to start and the documents to give it: its answers come in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartWorker {
    /// The worker: the place of its group.
    pub worker: Worker,
    /// The tags of its documents.
    pub tags: Vec<u32>,
}

/// The batch is decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpdateDone<V, E> {
    /// How it went.
    pub health: Health,
    /// One result for each document, in batch order.
    pub results: Vec<UpdateResult<V, E>>,
}

/// What to do after an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpdateStep<V, E> {
    /// Workers to start, also after the decision: every copy gets the batch, whether it is waited for or not.
    pub start: Vec<StartWorker>,
    /// The decision, once. Workers that run are left alone.
    pub done: Option<UpdateDone<V, E>>,
}

/// How documents are written.
#[derive(Clone, Copy, Debug)]
pub struct UpdateOptions {
    /// Equal good answers needed for each document. Not cut to the number of copies.
    pub w: usize,
    /// Copies of a range are started one after another, the owner first, whose conflicts are final. Not for replicated
    /// changes nor for streamed attachments, which would have to be held in memory.
    pub serialize: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Idle,
    Running,
    Ended,
}

/// Collects answers until every document is decided.
#[derive(Clone, Debug)]
pub struct UpdateDocs<V, E> {
    options: UpdateOptions,
    groups: Vec<UpdateGroup>,
    states: Vec<State>,
    replies: Vec<SmallVec<[UpdateReply<V, E>; 1]>>,
    conflicts: Vec<bool>,
    /// Documents with at least one answer.
    answered: usize,
    /// Groups that have not ended.
    waiting: usize,
    decided: bool,
}

impl<V: Clone + PartialEq, E: Clone + PartialEq> UpdateDocs<V, E> {
    /// A write of `documents` documents. The groups of one range stand together and in owner order; every tag is below
    /// `documents`. Answers with the workers to start.
    #[must_use]
    pub fn new(
        documents: usize,
        groups: Vec<UpdateGroup>,
        options: UpdateOptions,
    ) -> (Self, UpdateStep<V, E>) {
        let mut machine = Self {
            options,
            states: vec![State::Idle; groups.len()],
            waiting: groups.len(),
            groups,
            replies: vec![SmallVec::new(); documents],
            conflicts: vec![false; documents],
            answered: 0,
            decided: false,
        };
        let start = if options.serialize {
            machine.start_one_per_range()
        } else {
            machine.start_rest()
        };
        let done = (machine.waiting == 0).then(|| machine.force());
        (machine, UpdateStep { start, done })
    }

    /// A copy answered, with one reply for each document that it was given, in that order; missing ones at the end count
    /// as [`UpdateReply::NoReply`].
    pub fn reply(&mut self, worker: Worker, replies: Vec<UpdateReply<V, E>>) -> UpdateStep<V, E> {
        if !self.end(worker) {
            return UpdateStep {
                start: Vec::new(),
                done: None,
            };
        }
        if !self.decided {
            self.take(worker, replies);
        }
        if self.decided {
            return UpdateStep {
                start: Vec::new(),
                done: None,
            };
        }
        let done = if self.waiting == 0 {
            Some(self.force())
        } else if self.answered == self.replies.len() {
            self.all_met()
        } else {
            None
        };
        let start = if done.is_some() {
            self.start_rest()
        } else {
            self.start_next(worker)
        };
        UpdateStep { start, done }
    }

    /// A worker failed, or could not work: `all_dbs_active`, validation functions that do not load.
    pub fn exit(&mut self, worker: Worker) -> UpdateStep<V, E> {
        self.lose(vec![worker])
    }

    /// A node went down.
    pub fn node_down(&mut self, node: &NodeName) -> UpdateStep<V, E> {
        self.lose(
            (0..self.groups.len())
                .filter(|&worker| self.groups[worker].node == *node)
                .collect(),
        )
    }

    /// The time is up: what arrived decides.
    pub fn timeout(&mut self) -> UpdateDone<V, E> {
        self.force()
    }

    /// The same answer for every document of a worker, for instance that its file does not exist.
    pub fn reply_for_all(&mut self, worker: Worker, reply: UpdateReply<V, E>) -> UpdateStep<V, E> {
        let count = self.groups.get(worker).map_or(0, |group| group.tags.len());
        self.reply(worker, vec![reply; count])
    }

    fn lose(&mut self, workers: Vec<Worker>) -> UpdateStep<V, E> {
        let mut start = Vec::new();
        let lost: Vec<Worker> = workers.into_iter().filter(|&worker| self.end(worker)).collect();
        if lost.is_empty() || self.decided {
            return UpdateStep { start, done: None };
        }
        if self.waiting == 0 {
            return UpdateStep {
                start,
                done: Some(self.force()),
            };
        }
        for worker in lost {
            start.extend(self.start_next(worker));
        }
        UpdateStep { start, done: None }
    }

    /// Marks a worker as ended; false when it was so before.
    fn end(&mut self, worker: Worker) -> bool {
        match self.states.get_mut(worker) {
            None | Some(State::Ended) => false,
            Some(state) => {
                *state = State::Ended;
                self.waiting -= 1;
                true
            }
        }
    }

    fn take(&mut self, worker: Worker, replies: Vec<UpdateReply<V, E>>) {
        let Self {
            groups,
            replies: all,
            conflicts,
            answered,
            options,
            ..
        } = self;
        let mut replies = replies.into_iter();
        for &tag in &groups[worker].tags {
            let Ok(tag) = usize::try_from(tag) else { continue };
            let Some(of_doc) = all.get_mut(tag) else { continue };
            let reply = replies.next().unwrap_or(UpdateReply::NoReply);
            if options.serialize && reply == UpdateReply::Conflict {
                conflicts[tag] = true;
            }
            *answered += usize::from(of_doc.is_empty());
            of_doc.push(reply);
        }
    }

    /// Starts a group with those of its documents that are not yet in conflict.
    fn start(&mut self, worker: Worker) -> StartWorker {
        self.states[worker] = State::Running;
        let conflicts = &self.conflicts;
        let tags = &mut self.groups[worker].tags;
        tags.retain(|&tag| {
            usize::try_from(tag).is_ok_and(|tag| !conflicts.get(tag).is_some_and(|conflict| *conflict))
        });
        StartWorker {
            worker,
            tags: tags.clone(),
        }
    }

    fn start_one_per_range(&mut self) -> Vec<StartWorker> {
        let firsts = (0..self.groups.len())
            .filter(|&worker| worker == 0 || self.groups[worker - 1].shard != self.groups[worker].shard);
        firsts
            .collect::<Vec<_>>()
            .into_iter()
            .map(|worker| self.start(worker))
            .collect()
    }

    /// Starts the next copy of the range of a worker that ended.
    fn start_next(&mut self, ended: Worker) -> Vec<StartWorker> {
        let shard = self.groups[ended].shard;
        let of_range = |&worker: &Worker| self.groups[worker].shard == shard;
        if (0..self.groups.len())
            .filter(of_range)
            .any(|worker| self.states[worker] == State::Running)
        {
            return Vec::new();
        }
        let next = (0..self.groups.len())
            .filter(of_range)
            .find(|&worker| self.states[worker] == State::Idle);
        next.map(|worker| self.start(worker)).into_iter().collect()
    }

    fn start_rest(&mut self) -> Vec<StartWorker> {
        let idle: Vec<Worker> = (0..self.groups.len())
            .filter(|&worker| self.states[worker] == State::Idle)
            .collect();
        let started = idle.into_iter().map(|worker| self.start(worker));
        let started: Vec<StartWorker> = started.collect();
        // After the decision a copy whose documents are all in conflict has nothing to do.
        let decided = self.decided;
        started
            .into_iter()
            .filter(|start| !decided || !start.tags.is_empty())
            .collect()
    }

    /// The decision, when every document has its quorum.
    fn all_met(&mut self) -> Option<UpdateDone<V, E>> {
        let met = |replies: &SmallVec<[UpdateReply<V, E>; 1]>| quorum_reply(replies, self.options).is_some();
        if !self.replies.iter().all(met) {
            return None;
        }
        self.decided = true;
        let options = self.options;
        let results = std::mem::take(&mut self.replies)
            .into_iter()
            .map(|replies| quorum_place(&replies, options).map(|place| as_result(&replies[place])))
            .map(|result| result.unwrap_or(UpdateResult::InternalServerError))
            .collect();
        Some(UpdateDone {
            health: Health::Ok,
            results,
        })
    }

    /// The decision from what there is.
    fn force(&mut self) -> UpdateDone<V, E> {
        self.decided = true;
        let mut health = Health::Ok;
        let options = self.options;
        let results = std::mem::take(&mut self.replies)
            .into_iter()
            .map(|replies| {
                let (result, worse) = forced_result(&replies, options);
                health = match (health, worse) {
                    (Health::Error, _) | (_, Health::Error) => Health::Error,
                    (Health::Accepted, _) | (_, Health::Accepted) => Health::Accepted,
                    (Health::Ok, Health::Ok) => Health::Ok,
                };
                result
            })
            .collect();
        UpdateDone { health, results }
    }
}

fn quorum_reply<V: PartialEq, E: PartialEq>(
    replies: &[UpdateReply<V, E>],
    options: UpdateOptions,
) -> Option<&UpdateReply<V, E>> {
    quorum_place(replies, options).map(|place| &replies[place])
}

/// The place of an answer that decides: a good one given often enough, or the owner's conflict.
fn quorum_place<V: PartialEq, E: PartialEq>(
    replies: &[UpdateReply<V, E>],
    options: UpdateOptions,
) -> Option<usize> {
    let decides = |reply: &UpdateReply<V, E>| match reply {
        UpdateReply::Ok(_) | UpdateReply::NoReply => {
            options.w <= 1 || replies.iter().filter(|other| *other == reply).count() >= options.w
        }
        UpdateReply::Conflict => options.serialize,
        UpdateReply::Forbidden(_) | UpdateReply::Error(_) => false,
    };
    // Several may decide at once; CouchDB takes the lowest in Erlang's order of terms, which puts atoms before tuples:
    // a conflict, then no reply, then the lowest revision. Here the first revision given stands for the lowest.
    let order = |place: &usize| match &replies[*place] {
        UpdateReply::Conflict => 0,
        UpdateReply::NoReply => 1,
        _ => 2,
    };
    (0..replies.len())
        .filter(|&place| decides(&replies[place]))
        .min_by_key(order)
}

/// A document's result when there will be no more answers, and the least health that goes with it.
fn forced_result<V: Clone + PartialEq, E: Clone + PartialEq>(
    replies: &[UpdateReply<V, E>],
    options: UpdateOptions,
) -> (UpdateResult<V, E>, Health) {
    let Some(first) = replies.first() else {
        return (UpdateResult::InternalServerError, Health::Error);
    };
    let forbidden = || {
        let forbidden = replies
            .iter()
            .find(|reply| matches!(reply, UpdateReply::Forbidden(_)))?;
        let silent = |reply: &&UpdateReply<V, E>| **reply == UpdateReply::NoReply;
        let others = replies.iter().filter(|reply| !std::ptr::eq(*reply, forbidden));
        others
            .clone()
            .all(|reply| silent(&reply))
            .then(|| as_result(forbidden))
    };
    if let Some(reply) = quorum_reply(replies, options) {
        return (forbidden().unwrap_or_else(|| as_result(reply)), Health::Ok);
    }
    let written = replies.iter().find_map(|reply| match reply {
        UpdateReply::Ok(rev) => Some(rev.clone()),
        _ => None,
    });
    if let Some(rev) = written {
        return (UpdateResult::Accepted(rev), Health::Accepted);
    }
    if replies.iter().all(|reply| reply == first) {
        return (as_result(first), Health::Ok);
    }
    match forbidden() {
        Some(result) => (result, Health::Ok),
        None => (as_result(first), Health::Error),
    }
}

fn as_result<V: Clone, E: Clone>(reply: &UpdateReply<V, E>) -> UpdateResult<V, E> {
    match reply {
        UpdateReply::Ok(rev) => UpdateResult::Ok(rev.clone()),
        UpdateReply::NoReply => UpdateResult::NoReply,
        UpdateReply::Conflict => UpdateResult::Conflict,
        UpdateReply::Forbidden(error) | UpdateReply::Error(error) => UpdateResult::Error(error.clone()),
    }
}
