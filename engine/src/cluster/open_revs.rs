//! Reading several revisions of one document from all its copies: `fabric_doc_open_revs`.

use super::open_doc::{NodeRevs, ReadRepair};
use super::workers::{Revision, Waiting, Worker, leaf, path_holds};
use crate::ids::NodeName;

/// One entry of a copy's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RevReply<D: Revision> {
    /// The revision, or with `latest` the leaf that came of it.
    Found(D),
    /// The copy does not have the revision at this position with this id.
    Missing(u64, D::Id),
}

/// What the reader gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OpenRevsResult<D: Revision> {
    /// Revisions found, and those asked for and found nowhere.
    Revs(Vec<RevReply<D>>),
    /// No copy answered.
    AllWorkersDied,
    /// Not enough copies answered in time.
    Timeout,
}

/// The read is decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenRevsDone<D: Revision> {
    /// What the reader gets.
    pub result: OpenRevsResult<D>,
    /// What is to be repaired, in the background.
    pub repair: Option<ReadRepair<D>>,
    /// Workers that run still.
    pub kill: Vec<Worker>,
}

/// How revisions are read.
#[derive(Clone, Copy, Debug)]
pub struct OpenRevsOptions {
    /// Answers needed. Not cut to the number of copies: then all of them are waited for.
    pub r: usize,
    /// All leaves were asked for, or the latest ones of given revisions: answers are united as a tree.
    pub tree: bool,
    /// Whether differing copies are repaired: not in `_replicator` databases.
    pub repair: bool,
}

/// A leaf of the united tree: a document, or a revision that a copy does not know.
#[derive(Clone, Debug)]
struct Branch<D: Revision> {
    position: u64,
    path: Vec<D::Id>,
    doc: Option<D>,
}

/// What putting a path into the tree did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Merged {
    /// The tree had it.
    InternalNode,
    /// It extends a leaf.
    NewLeaf,
    /// It is a branch of its own.
    NewBranch,
}

/// Collects the answers of all copies until they agree often enough.
#[derive(Clone, Debug)]
pub struct OpenRevs<D: Revision> {
    options: OpenRevsOptions,
    waiting: Waiting,
    answers: usize,
    failures: usize,
    tree: Vec<Branch<D>>,
    list: Vec<(RevReply<D>, usize)>,
    node_revs: NodeRevs<D>,
    differ: bool,
}

impl<D: Revision> OpenRevs<D> {
    /// A read from the copies on these nodes; each gets the same request.
    #[must_use]
    pub fn new(nodes: Vec<NodeName>, options: OpenRevsOptions) -> Self {
        Self {
            options,
            waiting: Waiting::new(nodes),
            answers: 0,
            failures: 0,
            tree: Vec::new(),
            list: Vec::new(),
            node_revs: Vec::new(),
            differ: false,
        }
    }

    /// A copy answered.
    pub fn reply(&mut self, worker: Worker, replies: Vec<RevReply<D>>) -> Option<OpenRevsDone<D>> {
        if !self.waiting.take(worker) {
            return None;
        }
        let found = replies.iter().filter_map(|reply| match reply {
            RevReply::Found(doc) => leaf(doc).map(|(position, id)| (position, id.clone())),
            RevReply::Missing(..) => None,
        });
        let found: Vec<(u64, D::Id)> = found.collect();
        if let (false, Some(node)) = (found.is_empty(), self.waiting.node(worker)) {
            self.node_revs.push((node.clone(), found));
        }
        self.count(replies)
    }

    /// A worker failed.
    pub fn exit(&mut self, worker: Worker) -> Option<OpenRevsDone<D>> {
        if !self.waiting.take(worker) {
            return None;
        }
        self.failures += 1;
        self.count(Vec::new())
    }

    /// A node went down.
    pub fn node_down(&mut self, node: &NodeName) -> Option<OpenRevsDone<D>> {
        // More than one worker on a node is only possible after a split; the last of them may decide.
        self.waiting
            .on_node(node)
            .into_iter()
            .fold(None, |done, worker| done.or_else(|| self.exit(worker)))
    }

    /// The time is up.
    pub fn timeout(&mut self) -> OpenRevsDone<D> {
        OpenRevsDone {
            result: OpenRevsResult::Timeout,
            repair: None,
            kill: self.waiting.drain(),
        }
    }

    fn count(&mut self, replies: Vec<RevReply<D>>) -> Option<OpenRevsDone<D>> {
        let first = self.answers == 0;
        self.answers += 1;
        let real = self.answers - self.failures;
        let quorum = if self.options.tree {
            let (leaves, answered) = (self.tree.len(), replies.len());
            let (nothing_new, differ) = self.unite(replies);
            self.differ |= differ && !first;
            nothing_new && answered == leaves && real >= self.options.r
        } else {
            self.tally(replies);
            self.list.iter().map(|(_, count)| *count).min().unwrap_or(0) >= self.options.r
        };
        (quorum || self.waiting.count() == 0).then(|| self.done(real))
    }

    /// Puts an answer into the tree. Says whether the tree had all of it, and whether the copy differs from others.
    fn unite(&mut self, mut replies: Vec<RevReply<D>>) -> (bool, bool) {
        replies.sort_by(|a, b| newest(a).cmp(&newest(b)));
        let (mut nothing_new, mut differ) = (true, false);
        for reply in replies.into_iter().rev() {
            match reply {
                RevReply::Found(doc) => {
                    let branch = Branch {
                        position: doc.position(),
                        path: doc.path().to_vec(),
                        doc: Some(doc),
                    };
                    match merge(&mut self.tree, branch) {
                        Merged::InternalNode => {}
                        Merged::NewLeaf => differ = true,
                        Merged::NewBranch => (nothing_new, differ) = (false, true),
                    }
                }
                RevReply::Missing(position, id) => {
                    // CouchDB repairs as well when all copies lack the revision; there is nothing to repair then.
                    let lacked_before = self.tree.iter().any(|branch| {
                        branch.doc.is_none()
                            && branch.position == position
                            && branch.path.first() == Some(&id)
                    });
                    match merge(
                        &mut self.tree,
                        Branch {
                            position,
                            path: vec![id],
                            doc: None,
                        },
                    ) {
                        Merged::InternalNode => differ |= !lacked_before,
                        Merged::NewLeaf | Merged::NewBranch => nothing_new = false,
                    }
                }
            }
        }
        (nothing_new, differ)
    }

    fn tally(&mut self, replies: Vec<RevReply<D>>) {
        for reply in replies {
            match self.list.iter_mut().find(|(known, _)| same(known, &reply)) {
                Some((_, count)) => *count += 1,
                None => self.list.push((reply, 1)),
            }
        }
    }

    fn done(&mut self, real: usize) -> OpenRevsDone<D> {
        let differ = if self.options.tree {
            self.differ
        } else {
            self.list.iter().any(|(_, count)| *count < self.answers)
        };
        let replies = if self.options.tree {
            self.leaves()
        } else {
            self.collapsed()
        };
        let docs: Vec<D> = if self.options.tree {
            self.tree.iter().filter_map(|branch| branch.doc.clone()).collect()
        } else {
            self.list
                .iter()
                .filter_map(|(reply, _)| found(reply).cloned())
                .collect()
        };
        let repair = (differ && self.options.repair && !docs.is_empty()).then(|| ReadRepair {
            docs,
            node_revs: std::mem::take(&mut self.node_revs),
            blocking: false,
        });
        let result = if real == 0 {
            OpenRevsResult::AllWorkersDied
        } else {
            OpenRevsResult::Revs(replies)
        };
        OpenRevsDone {
            result,
            repair,
            kill: self.waiting.drain(),
        }
    }

    /// The leaves of the tree: documents by position and path, then what is missing.
    fn leaves(&self) -> Vec<RevReply<D>> {
        let mut leaves: Vec<RevReply<D>> = self
            .tree
            .iter()
            .filter_map(|branch| match (&branch.doc, branch.path.first()) {
                (Some(doc), _) => Some(RevReply::Found(doc.clone())),
                (None, Some(id)) => Some(RevReply::Missing(branch.position, id.clone())),
                (None, None) => None,
            })
            .collect();
        leaves.sort_by(|a, b| (found(a).is_none(), whole(a)).cmp(&(found(b).is_none(), whole(b))));
        leaves
    }

    /// The distinct answers without what another answer makes obsolete: a revision missing on one copy and found on
    /// another, and the shorter history of the same revision.
    fn collapsed(&self) -> Vec<RevReply<D>> {
        let obsolete = |reply: &RevReply<D>| {
            self.list.iter().any(|(other, _)| {
                found(other).is_some()
                    && newest(other) == newest(reply)
                    && found(reply).is_none_or(|doc| {
                        found(other).is_some_and(|other| other.path().len() > doc.path().len())
                    })
            })
        };
        let mut replies: Vec<RevReply<D>> = self
            .list
            .iter()
            .map(|(reply, _)| reply)
            .filter(|reply| !obsolete(reply))
            .cloned()
            .collect();
        replies.sort_by(|a, b| (found(a).is_some(), whole(a)).cmp(&(found(b).is_some(), whole(b))));
        replies
    }
}

fn found<D: Revision>(reply: &RevReply<D>) -> Option<&D> {
    match reply {
        RevReply::Found(doc) => Some(doc),
        RevReply::Missing(..) => None,
    }
}

/// Position and id of an answer's revision.
fn newest<D: Revision>(reply: &RevReply<D>) -> (u64, Option<&D::Id>) {
    match reply {
        RevReply::Found(doc) => (doc.position(), doc.path().first()),
        RevReply::Missing(position, id) => (*position, Some(id)),
    }
}

/// Position and whole path of an answer's revision.
fn whole<D: Revision>(reply: &RevReply<D>) -> (u64, &[D::Id]) {
    match reply {
        RevReply::Found(doc) => (doc.position(), doc.path()),
        RevReply::Missing(position, id) => (*position, std::slice::from_ref(id)),
    }
}

fn same<D: Revision>(a: &RevReply<D>, b: &RevReply<D>) -> bool {
    found(a).is_some() == found(b).is_some() && whole(a) == whole(b)
}

/// Puts a path into the tree of leaves.
fn merge<D: Revision>(tree: &mut Vec<Branch<D>>, new: Branch<D>) -> Merged {
    let Some(id) = new.path.first().cloned() else {
        return Merged::InternalNode;
    };
    if let Some(branch) = tree
        .iter_mut()
        .find(|branch| path_holds(branch.position, &branch.path, (new.position, &id)))
    {
        // The same leaf, known so far only as missing or with less of its history.
        if branch.position == new.position {
            branch.doc = branch.doc.take().or(new.doc);
            if branch.path.len() < new.path.len() {
                branch.path = new.path;
            }
        }
        return Merged::InternalNode;
    }
    let before = tree.len();
    tree.retain(|branch| {
        let held = branch
            .path
            .first()
            .is_some_and(|leaf| path_holds(new.position, &new.path, (branch.position, leaf)));
        !held
    });
    let merged = if tree.len() < before {
        Merged::NewLeaf
    } else {
        Merged::NewBranch
    };
    tree.push(new);
    merged
}
