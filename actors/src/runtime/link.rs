//! Links and monitors: what one process keeps about its peers, and the signals between them.

use ahash::AHashSet;
use tokio::sync::oneshot;

use super::exit::Reason;
use super::observe::Snapshot;
use super::pid::{MRef, Pid};
use super::system::Inner;

/// A message of the control lane.
pub(crate) enum Signal {
    /// An exit signal; `linked` ones count only while the link stands.
    Exit { from: Pid, reason: Reason, linked: bool },
    /// A monitored process ended.
    Down { mref: MRef, pid: Pid, reason: Reason },
    /// A child that began on another thread is through its `init`.
    Started { pid: Pid },
    /// A question for the state's snapshot.
    Observe(oneshot::Sender<Snapshot>),
}

/// A set of pids that costs nothing while empty and no heap for one.
#[derive(Default)]
pub(crate) enum PidSet {
    #[default]
    Empty,
    One(Pid),
    Many(Box<AHashSet<Pid>>),
}

impl PidSet {
    pub(crate) fn insert(&mut self, pid: Pid) {
        match self {
            PidSet::Empty => *self = PidSet::One(pid),
            PidSet::One(one) if *one == pid => {}
            PidSet::One(one) => *self = PidSet::Many(Box::new([*one, pid].into_iter().collect())),
            PidSet::Many(set) => {
                set.insert(pid);
            }
        }
    }

    pub(crate) fn remove(&mut self, pid: Pid) -> bool {
        match self {
            PidSet::One(one) if *one == pid => {
                *self = PidSet::Empty;
                true
            }
            PidSet::Many(set) => set.remove(&pid),
            _ => false,
        }
    }

    pub(crate) fn to_vec(&self) -> Vec<Pid> {
        match self {
            PidSet::Empty => Vec::new(),
            PidSet::One(one) => vec![*one],
            PidSet::Many(set) => {
                // Signals leave in pid order, so that a simulated run does not depend on hash order.
                let mut pids: Vec<Pid> = set.iter().copied().collect();
                pids.sort_unstable_by_key(|pid| pid.generation());
                pids
            }
        }
    }
}

/// Who wants to know of a process's end or start.
pub(crate) enum Watcher {
    Process(Pid, MRef),
    Outside(oneshot::Sender<Reason>),
    Start(oneshot::Sender<Result<(), Reason>>),
}

/// What a process keeps about others; guarded by one lock, and settled by `dead` once.
#[derive(Default)]
pub(crate) struct Relations {
    pub(crate) links: PidSet,
    pub(crate) watchers: Vec<Watcher>,
    pub(crate) started: bool,
    pub(crate) dead: Option<Reason>,
}

/// Links two processes. If `b` is dead, `a` gets an exit signal with `NoProc`.
pub(crate) fn link(system: &Inner, a: Pid, b: Pid) {
    if a == b {
        return;
    }
    let Some(first) = system.table.get(a) else { return };
    first.core().relations.lock().links.insert(b);
    let linked = system.table.get(b).is_some_and(|second| {
        let mut relations = second.core().relations.lock();
        if relations.dead.is_none() {
            relations.links.insert(a);
            true
        } else {
            false
        }
    });
    if !linked {
        first.signal(Signal::Exit {
            from: b,
            reason: Reason::NoProc,
            linked: true,
        });
    }
}

/// Takes the link away on both sides; a signal already under way is then ignored by its receiver.
pub(crate) fn unlink(system: &Inner, a: Pid, b: Pid) {
    for (one, other) in [(a, b), (b, a)] {
        if let Some(process) = system.table.get(one) {
            process.core().relations.lock().links.remove(other);
        }
    }
}

/// Registers `watcher` at `target`. A dead target answers at once: its watcher comes back with the reason.
pub(crate) fn watch(system: &Inner, target: Pid, watcher: Watcher) -> Result<(), (Watcher, Reason)> {
    let Some(process) = system.table.get(target) else {
        return Err((watcher, Reason::NoProc));
    };
    let mut relations = process.core().relations.lock();
    match &relations.dead {
        None => {
            relations.watchers.push(watcher);
            Ok(())
        }
        Some(reason) => Err((watcher, reason.clone())),
    }
}

/// Removes the monitor `mref` from `target`.
pub(crate) fn unwatch(system: &Inner, target: Pid, mref: MRef) {
    if let Some(process) = system.table.get(target) {
        let mut relations = process.core().relations.lock();
        if let Some(at) = relations
            .watchers
            .iter()
            .position(|w| matches!(w, Watcher::Process(_, m) if *m == mref))
        {
            relations.watchers.swap_remove(at);
        }
    }
}

/// Tells links and watchers of the end of `pid`.
pub(crate) fn announce_exit(
    system: &Inner,
    pid: Pid,
    reason: &Reason,
    links: &PidSet,
    watchers: Vec<Watcher>,
) {
    for peer in links.to_vec() {
        system.signal(
            peer,
            Signal::Exit {
                from: pid,
                reason: reason.clone(),
                linked: true,
            },
        );
    }
    for watcher in watchers {
        match watcher {
            Watcher::Process(watching, mref) => {
                system.signal(
                    watching,
                    Signal::Down {
                        mref,
                        pid,
                        reason: reason.clone(),
                    },
                );
            }
            // Whoever waited outside may have gone; then nobody needs the reason.
            Watcher::Outside(tx) => drop(tx.send(reason.clone())),
            Watcher::Start(tx) => drop(tx.send(Err(reason.clone()))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pid_set_grows_and_shrinks() {
        let mut set = PidSet::default();
        let pids: Vec<Pid> = (0..3).map(Pid::fresh).collect();
        for pid in &pids {
            set.insert(*pid);
            set.insert(*pid);
        }
        assert_eq!(set.to_vec(), pids);
        assert!(set.remove(pids[1]));
        assert!(!set.remove(pids[1]));
        assert_eq!(set.to_vec(), vec![pids[0], pids[2]]);
    }
}
