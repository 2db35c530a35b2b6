//! Reading one document from all its copies: `fabric_doc_open`.

use super::workers::{Revision, Waiting, Worker, leaf, path_holds};
use crate::ids::NodeName;

/// Why a document is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NotFound {
    /// Its winning revision is a deletion.
    Deleted,
    /// There is none.
    Missing,
}

/// What one copy answered; `E` is an error that it answered in place of a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OpenReply<D, E> {
    /// The document, deleted or not.
    Found(D),
    /// No document.
    NotFound(NotFound),
    /// Something else.
    Error(E),
}

/// What the reader gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OpenResult<D, E> {
    /// The document.
    Found(D),
    /// No document, or a deletion that was not asked for.
    NotFound(NotFound),
    /// The error that a copy answered, when no copy had the document.
    Error(E),
    /// No copy answered.
    ReadFailure,
    /// Not enough copies answered in time.
    Timeout,
}

/// Which revisions which node has, for the repair's filter against purged revisions.
pub type NodeRevs<D> = Vec<(NodeName, Vec<(u64, <D as Revision>::Id)>)>;

/// Copies differ: these documents are to be written to all of them, as replicated changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadRepair<D: Revision> {
    /// The revisions found.
    pub docs: Vec<D>,
    /// Which node has which of them.
    pub node_revs: NodeRevs<D>,
    /// Whether the reader waits for the repair.
    pub blocking: bool,
}

/// The read is decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenDone<D: Revision, E> {
    /// What the reader gets.
    pub result: OpenResult<D, E>,
    /// What is to be repaired.
    pub repair: Option<ReadRepair<D>>,
    /// Workers that run still.
    pub kill: Vec<Worker>,
}

/// How a document is read.
#[derive(Clone, Copy, Debug)]
pub struct OpenDocOptions {
    /// Equal answers needed; more than there are copies counts as all of them.
    pub r: usize,
    /// Whether the reader wants a deletion as a document.
    pub deleted: bool,
    /// Whether differing copies are repaired: not for local documents, nor in `_replicator` databases.
    pub repair: bool,
}

/// Collects the answers of all copies until enough of them are equal.
#[derive(Clone, Debug)]
pub struct OpenDoc<D: Revision, E> {
    options: OpenDocOptions,
    waiting: Waiting,
    replies: Vec<(OpenReply<D, E>, usize)>,
    node_revs: NodeRevs<D>,
}

impl<D: Revision, E: Clone + Ord> OpenDoc<D, E> {
    /// A read from the copies on these nodes; each gets the same request, for the document whether deleted or not.
    #[must_use]
    pub fn new(nodes: Vec<NodeName>, options: OpenDocOptions) -> Self {
        let r = options.r.min(nodes.len());
        let options = OpenDocOptions { r, ..options };
        Self {
            options,
            waiting: Waiting::new(nodes),
            replies: Vec::new(),
            node_revs: Vec::new(),
        }
    }

    /// A copy answered.
    pub fn reply(&mut self, worker: Worker, reply: OpenReply<D, E>) -> Option<OpenDone<D, E>> {
        if !self.waiting.take(worker) {
            return None;
        }
        if let OpenReply::Found(doc) = &reply
            && let (Some((position, id)), Some(node)) = (leaf(doc), self.waiting.node(worker))
        {
            self.node_revs.push((node.clone(), vec![(position, id.clone())]));
        }
        let place = match self.replies.iter().position(|(known, _)| same(known, &reply)) {
            Some(place) => place,
            None => {
                self.replies.push((reply, 0));
                self.replies.len() - 1
            }
        };
        self.replies[place].1 += 1;
        if self.replies[place].1 >= self.options.r {
            return Some(self.quorum_met(place));
        }
        self.decide_if_alone()
    }

    /// A worker failed.
    pub fn exit(&mut self, worker: Worker) -> Option<OpenDone<D, E>> {
        if self.waiting.take(worker) {
            self.decide_if_alone()
        } else {
            None
        }
    }

    /// A node went down.
    pub fn node_down(&mut self, node: &NodeName) -> Option<OpenDone<D, E>> {
        let lost = self.waiting.on_node(node);
        lost.iter().for_each(|&worker| {
            self.waiting.take(worker);
        });
        if lost.is_empty() {
            None
        } else {
            self.decide_if_alone()
        }
    }

    /// The time is up.
    pub fn timeout(&mut self) -> OpenDone<D, E> {
        OpenDone {
            result: OpenResult::Timeout,
            repair: None,
            kill: self.waiting.drain(),
        }
    }

    fn decide_if_alone(&mut self) -> Option<OpenDone<D, E>> {
        (self.waiting.count() == 0).then(|| self.repair(true))
    }

    fn quorum_met(&mut self, place: usize) -> OpenDone<D, E> {
        let quorum = self.replies[place].0.clone();
        let others_are_older =
            (0..self.replies.len()).all(|other| other == place || older(&self.replies[other].0, &quorum));
        if !others_are_older {
            return self.repair(true);
        }
        let mut done = if self.replies.len() == 1 {
            OpenDone {
                result: OpenResult::ReadFailure,
                repair: None,
                kill: self.waiting.drain(),
            }
        } else {
            self.repair(false)
        };
        done.result = self.format(quorum);
        done
    }

    /// The decision from what was found, and the repair of what differs.
    fn repair(&mut self, blocking: bool) -> OpenDone<D, E> {
        let docs: Vec<D> = self
            .replies
            .iter()
            .filter_map(|(reply, _)| match reply {
                OpenReply::Found(doc) => Some(doc.clone()),
                OpenReply::NotFound(_) | OpenReply::Error(_) => None,
            })
            .collect();
        let winner = docs.iter().max_by(|a, b| rank(*a).cmp(&rank(*b))).cloned();
        let result = match winner {
            Some(doc) => self.format(OpenReply::Found(doc)),
            None => self.nothing_found(),
        };
        let repair = (self.options.repair && !docs.is_empty()).then(|| ReadRepair {
            docs,
            node_revs: std::mem::take(&mut self.node_revs),
            blocking,
        });
        OpenDone {
            result,
            repair,
            kill: self.waiting.drain(),
        }
    }

    fn nothing_found(&self) -> OpenResult<D, E> {
        let mut errors = Vec::new();
        let mut not_found = None;
        for (reply, _) in &self.replies {
            match reply {
                OpenReply::Found(_) => {}
                OpenReply::NotFound(kind) => not_found = not_found.max(Some(*kind)),
                OpenReply::Error(error) => errors.push(error),
            }
        }
        match (not_found, errors.into_iter().min()) {
            (Some(NotFound::Missing), _) => OpenResult::NotFound(NotFound::Missing),
            (_, Some(error)) => OpenResult::Error(error.clone()),
            (Some(kind), None) => OpenResult::NotFound(kind),
            (None, None) => OpenResult::ReadFailure,
        }
    }

    fn format(&self, reply: OpenReply<D, E>) -> OpenResult<D, E> {
        match reply {
            OpenReply::Found(doc) if doc.deleted() && !self.options.deleted => {
                OpenResult::NotFound(NotFound::Deleted)
            }
            OpenReply::Found(doc) => OpenResult::Found(doc),
            OpenReply::NotFound(kind) => OpenResult::NotFound(kind),
            OpenReply::Error(error) => OpenResult::Error(error),
        }
    }
}

/// What makes one revision win over another.
fn rank<D: Revision>(doc: &D) -> (bool, u64, &[D::Id]) {
    (!doc.deleted(), doc.position(), doc.path())
}

/// Whether two answers count together: documents by their whole path, all else by itself.
fn same<D: Revision, E: PartialEq>(a: &OpenReply<D, E>, b: &OpenReply<D, E>) -> bool {
    match (a, b) {
        (OpenReply::Found(a), OpenReply::Found(b)) => a.position() == b.position() && a.path() == b.path(),
        (OpenReply::NotFound(a), OpenReply::NotFound(b)) => a == b,
        (OpenReply::Error(a), OpenReply::Error(b)) => a == b,
        _ => false,
    }
}

/// Whether answer `a` is what a copy gives that has not yet got what `b` shows.
fn older<D: Revision, E>(a: &OpenReply<D, E>, b: &OpenReply<D, E>) -> bool {
    match (a, b) {
        (OpenReply::NotFound(_), OpenReply::Found(_)) => true,
        (OpenReply::Found(a), OpenReply::Found(b)) => {
            leaf(a).is_some_and(|wanted| path_holds(b.position(), b.path(), wanted))
        }
        _ => false,
    }
}
