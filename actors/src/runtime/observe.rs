//! Looking at processes from outside: one process, all of them, and the tree.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ahash::AHashMap;
use tokio::sync::oneshot;

use super::call::{CallError, Undelivered};
use super::exit::Reason;
use super::link::Signal;
use super::mailbox::AnyProcess;
use super::pid::Pid;
use super::system::System;

/// A small list of named values that a process shows of its state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot(pub Vec<(&'static str, String)>);

impl Snapshot {
    /// Adds one value.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: impl fmt::Display) -> Snapshot {
        self.0.push((name, value.to_string()));
        self
    }

    /// The value under `name`.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0
            .iter()
            .find(|(key, _)| *key == name)
            .map(|(_, value)| value.as_str())
    }
}

/// What is known of a process without asking it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessInfo {
    /// Its identity.
    pub pid: Pid,
    /// Who started it; [`Pid::ROOT`] if it was started from outside.
    pub parent: Pid,
    /// The behaviour's name.
    pub behaviour: &'static str,
    /// Its registered name.
    pub name: Option<Arc<str>>,
    /// The number of the thread it runs on.
    pub arbiter: usize,
    /// Messages that wait in both lanes.
    pub queue_len: usize,
    /// The bound of its user lane.
    pub capacity: usize,
    /// User messages handled so far; counted at the end of each turn.
    pub handled: u64,
    /// For how long it has been in its present turn, to a few milliseconds; `None` when idle.
    pub busy_for: Option<Duration>,
    /// How often its supervisor has restarted it.
    pub restarts: u32,
    /// Processes it is linked with.
    pub links: Vec<Pid>,
    /// How many monitors watch it.
    pub monitors: usize,
    /// Whether its start is complete.
    pub started: bool,
}

fn info_of(system: &System, process: &dyn AnyProcess) -> ProcessInfo {
    let core = process.core();
    let (links, monitors, started) = {
        let relations = core.relations.lock();
        (
            relations.links.to_vec(),
            relations.watchers.len(),
            relations.started,
        )
    };
    let since = core.busy_since.load(Ordering::Relaxed);
    let busy_for =
        (since > 0).then(|| Duration::from_micros(system.inner().now_mark_coarse().saturating_sub(since)));
    ProcessInfo {
        pid: core.pid,
        parent: core.parent,
        behaviour: core.behaviour,
        name: core.name.read().clone(),
        arbiter: core.executor as usize,
        queue_len: process.queue_len(),
        capacity: process.capacity(),
        handled: core.handled.load(Ordering::Relaxed),
        busy_for,
        restarts: core.restarts,
        links,
        monitors,
        started,
    }
}

impl System {
    /// What is known of a process; `None` if it is dead.
    pub fn process_info(&self, pid: Pid) -> Option<ProcessInfo> {
        self.inner()
            .table
            .get(pid)
            .map(|process| info_of(self, &*process))
    }

    /// All living processes in the order of their starts.
    pub fn processes(&self) -> Vec<ProcessInfo> {
        self.inner()
            .table
            .all()
            .iter()
            .map(|process| info_of(self, &**process))
            .collect()
    }

    /// How many processes live.
    pub fn process_count(&self) -> usize {
        self.inner().table.len()
    }

    /// Asks a process for its [`Snapshot`], ahead of its queued messages.
    ///
    /// # Errors
    /// `NoProc`, `Died` or `Timeout`, as a call.
    pub async fn snapshot(&self, pid: Pid, deadline: Duration) -> Result<Snapshot, CallError> {
        let process = self
            .inner()
            .table
            .get(pid)
            .ok_or(CallError::Undelivered(Undelivered::NoProc))?;
        let (tx, rx) = oneshot::channel();
        process.signal(Signal::Observe(tx));
        match tokio::time::timeout(deadline, rx).await {
            Ok(Ok(snapshot)) => Ok(snapshot),
            Ok(Err(_)) => {
                let reason = process.core().relations.lock().dead.clone();
                Err(CallError::Died(reason.unwrap_or(Reason::NoProc)))
            }
            Err(_) => Err(CallError::Timeout),
        }
    }

    /// The supervision tree of this moment.
    pub fn tree(&self) -> Tree {
        let mut children: AHashMap<Pid, Vec<ProcessInfo>> = AHashMap::new();
        let processes = self.processes();
        let alive: ahash::AHashSet<Pid> = processes.iter().map(|info| info.pid).collect();
        for info in processes {
            let parent = if alive.contains(&info.parent) {
                info.parent
            } else {
                Pid::ROOT
            };
            children.entry(parent).or_default().push(info);
        }
        Tree {
            roots: grow(&mut children),
        }
    }
}

/// Builds the trees below the root without recursion over its depth: parents are always older than their children, so the
/// youngest can be completed first.
fn grow(children: &mut AHashMap<Pid, Vec<ProcessInfo>>) -> Vec<TreeNode> {
    let mut all: Vec<(Pid, ProcessInfo)> = Vec::new();
    for (parent, infos) in children.drain() {
        all.extend(infos.into_iter().map(|info| (parent, info)));
    }
    all.sort_by_key(|(_, info)| std::cmp::Reverse(info.pid.generation()));
    let mut grown: AHashMap<Pid, Vec<TreeNode>> = AHashMap::new();
    for (parent, info) in all {
        let mut below = grown.remove(&info.pid).unwrap_or_default();
        below.reverse();
        grown.entry(parent).or_default().push(TreeNode {
            info,
            children: below,
        });
    }
    let mut roots = grown.remove(&Pid::ROOT).unwrap_or_default();
    roots.reverse();
    roots
}

/// The processes of a system by parent.
#[derive(Clone, Debug, Default)]
pub struct Tree {
    /// Processes without a living parent, in the order of their starts.
    pub roots: Vec<TreeNode>,
}

/// A process and those it started.
#[derive(Clone, Debug)]
pub struct TreeNode {
    /// The process.
    pub info: ProcessInfo,
    /// Its children in the order of their starts.
    pub children: Vec<TreeNode>,
}

impl fmt::Display for Tree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.roots.iter().try_for_each(|root| root.write(f, 0))
    }
}

impl TreeNode {
    fn write(&self, f: &mut fmt::Formatter<'_>, depth: usize) -> fmt::Result {
        let info = &self.info;
        write!(f, "{:1$}{2} {3}", "", depth * 2, info.pid, info.behaviour)?;
        if let Some(name) = &info.name {
            write!(f, " \"{name}\"")?;
        }
        write!(
            f,
            " queue {}/{} handled {}",
            info.queue_len, info.capacity, info.handled
        )?;
        if let Some(busy) = info.busy_for {
            write!(f, " busy {} us", busy.as_micros())?;
        }
        writeln!(f, " restarts {}", info.restarts)?;
        self.children
            .iter()
            .try_for_each(|child| child.write(f, depth + 1))
    }
}
