//! What the state machines share: which copies were asked, and what they need to know of a document.

use crate::ids::NodeName;

/// A worker: its place in the list of copies with which a machine was made.
pub type Worker = usize;

/// A revision of a document together with its history, as far as quorums look at it.
pub trait Revision: Clone {
    /// The id part of a revision.
    type Id: Clone + Ord + std::fmt::Debug;

    /// The position of the newest revision.
    fn position(&self) -> u64;

    /// The ids of the revision and its ancestors, newest first; never empty.
    fn path(&self) -> &[Self::Id];

    /// Whether the revision is a deletion.
    fn deleted(&self) -> bool;
}

/// The leaf of a revision: its position and id; `None` for a path without ids, which no stored document has.
pub(super) fn leaf<D: Revision>(doc: &D) -> Option<(u64, &D::Id)> {
    Some((doc.position(), doc.path().first()?))
}

/// Whether the path that ends in `position` and `path` holds a revision.
pub(super) fn path_holds<I: PartialEq>(position: u64, path: &[I], wanted: (u64, &I)) -> bool {
    position
        .checked_sub(wanted.0)
        .and_then(|depth| path.get(usize::try_from(depth).ok()?))
        .is_some_and(|id| id == wanted.1)
}

/// The copies that were asked and have neither answered nor failed.
#[derive(Clone, Debug)]
pub(super) struct Waiting {
    nodes: Vec<NodeName>,
    waiting: Vec<bool>,
    count: usize,
}

impl Waiting {
    pub(super) fn new(nodes: Vec<NodeName>) -> Self {
        let count = nodes.len();
        Self {
            waiting: vec![true; count],
            nodes,
            count,
        }
    }

    pub(super) const fn count(&self) -> usize {
        self.count
    }

    pub(super) fn node(&self, worker: Worker) -> Option<&NodeName> {
        self.nodes.get(worker)
    }

    /// Takes a worker off the list; false when it is not on it, because it answered before or was given up.
    pub(super) fn take(&mut self, worker: Worker) -> bool {
        let taken = self.waiting.get_mut(worker).is_some_and(std::mem::take);
        self.count -= usize::from(taken);
        taken
    }

    /// The workers on a node that are waited for.
    pub(super) fn on_node(&self, node: &NodeName) -> Vec<Worker> {
        self.all().filter(|&worker| self.nodes[worker] == *node).collect()
    }

    pub(super) fn all(&self) -> impl Iterator<Item = Worker> + '_ {
        (0..self.waiting.len()).filter(|&worker| self.waiting[worker])
    }

    /// Takes all workers off the list and returns them, to be killed.
    pub(super) fn drain(&mut self) -> Vec<Worker> {
        let rest: Vec<Worker> = self.all().collect();
        self.waiting.fill(false);
        self.count = 0;
        rest
    }
}
