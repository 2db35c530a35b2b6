//! Asking copies which revisions they lack: `fabric_doc_missing_revs`.

use super::workers::{Waiting, Worker};
use crate::ids::NodeName;

/// What one copy answered for one document: the revisions that it lacks, and leaves from which they may descend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lacking<R> {
    /// Revisions that the copy does not have; empty when it has all.
    pub missing: Vec<R>,
    /// Revisions that may be ancestors of them.
    pub possible_ancestors: Vec<R>,
}

/// The answer, or why there is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MissingRevsResult<R> {
    /// One entry for each document that lacks something: its place in the request, and what it lacks.
    Missing(Vec<(usize, Lacking<R>)>),
    /// Not every document was answered for in time.
    Timeout,
}

/// The question is answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingRevsDone<R> {
    /// The answer.
    pub result: MissingRevsResult<R>,
    /// Workers that run still.
    pub kill: Vec<Worker>,
}

/// Collects answers until there is one for each document; one copy is enough, and a later answer replaces an earlier.
#[derive(Clone, Debug)]
pub struct MissingRevs<R> {
    waiting: Waiting,
    places: Vec<Vec<usize>>,
    asked: Vec<Vec<R>>,
    answers: Vec<Option<Lacking<R>>>,
    unanswered: usize,
}

impl<R: Clone> MissingRevs<R> {
    /// A question about these revisions, one list for each document; every worker is a node and the places of the documents
    /// that it is asked about, in that order.
    #[must_use]
    pub fn new(asked: Vec<Vec<R>>, workers: Vec<(NodeName, Vec<usize>)>) -> Self {
        let (nodes, places): (Vec<_>, Vec<_>) = workers.into_iter().unzip();
        let answers: Vec<Option<Lacking<R>>> = asked.iter().map(|_| None).collect();
        Self {
            waiting: Waiting::new(nodes),
            places,
            unanswered: asked.len(),
            asked,
            answers,
        }
    }

    /// A copy answered: one entry for each document that it was asked about, in that order.
    pub fn reply(&mut self, worker: Worker, replies: Vec<Lacking<R>>) -> Option<MissingRevsDone<R>> {
        if !self.waiting.take(worker) {
            return None;
        }
        for (&place, reply) in self.places[worker].iter().zip(replies) {
            if let Some(answer) = self.answers.get_mut(place) {
                self.unanswered -= usize::from(answer.is_none());
                *answer = Some(reply);
            }
        }
        self.decide()
    }

    /// A worker failed.
    pub fn exit(&mut self, worker: Worker) -> Option<MissingRevsDone<R>> {
        if self.waiting.take(worker) {
            self.decide()
        } else {
            None
        }
    }

    /// A node went down.
    pub fn node_down(&mut self, node: &NodeName) -> Option<MissingRevsDone<R>> {
        let lost = self.waiting.on_node(node);
        for &worker in &lost {
            self.waiting.take(worker);
        }
        if lost.is_empty() { None } else { self.decide() }
    }

    /// The time is up.
    pub fn timeout(&mut self) -> MissingRevsDone<R> {
        MissingRevsDone {
            result: MissingRevsResult::Timeout,
            kill: self.waiting.drain(),
        }
    }

    fn decide(&mut self) -> Option<MissingRevsDone<R>> {
        if self.unanswered > 0 && self.waiting.count() > 0 {
            return None;
        }
        let answers = std::mem::take(&mut self.answers)
            .into_iter()
            .zip(std::mem::take(&mut self.asked));
        let missing = answers
            .enumerate()
            .map(|(place, (answer, asked))| {
                // A document of which no copy is left is taken to be missing.
                let lacking = answer.unwrap_or(Lacking {
                    missing: asked,
                    possible_ancestors: Vec::new(),
                });
                (place, lacking)
            })
            .filter(|(_, lacking)| !lacking.missing.is_empty())
            .collect();
        Some(MissingRevsDone {
            result: MissingRevsResult::Missing(missing),
            kill: self.waiting.drain(),
        })
    }
}
