//! Identities: processes, monitors and timers.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

/// The identity of one incarnation of a process.
///
/// A pid is never reused: the generation is unique in the host program, so a pid of a dead process, or of another
/// system in the same program, never reaches a living one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Pid {
    node: u32,
    index: u32,
    generation: u64,
}

static GENERATION: AtomicU64 = AtomicU64::new(1);

impl Pid {
    /// The parent of every process that was started from outside; its exit signals are the system's orders to stop.
    pub const ROOT: Pid = Pid {
        node: 0,
        index: 0,
        generation: 0,
    };

    /// The sender of exit signals that come from outside any process.
    pub const OUTSIDE: Pid = Pid {
        node: 0,
        index: 1,
        generation: 0,
    };

    /// A pid for a table slot, with the next generation.
    pub(crate) fn fresh(index: u32) -> Pid {
        Pid {
            node: 0,
            index,
            generation: GENERATION.fetch_add(1, Ordering::Relaxed),
        }
    }

    /// The pid of a process on another node; `node` is the local number of the link to it and is above zero.
    pub fn remote(node: u32, index: u32, generation: u64) -> Pid {
        Pid {
            node,
            index,
            generation,
        }
    }

    /// The number of the node: 0 is this one.
    pub fn node(self) -> u32 {
        self.node
    }

    /// The slot of the process table.
    pub fn index(self) -> u32 {
        self.index
    }

    /// The incarnation; later processes have greater ones.
    pub fn generation(self) -> u64 {
        self.generation
    }

    /// Whether the pid belongs to a process of this node (and is no constant such as [`Pid::ROOT`]).
    pub fn is_local_process(self) -> bool {
        self.node == 0 && self.generation != 0
    }
}

impl fmt::Display for Pid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "<{}.{}.{}>", self.node, self.index, self.generation)
    }
}

impl fmt::Debug for Pid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The identity of one monitor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MRef(pub(crate) u64);

/// The identity of one timer of one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TimerRef(pub(crate) u64);

static UNIQUE: AtomicU64 = AtomicU64::new(1);

/// A number that is unique in the host program.
pub(crate) fn unique() -> u64 {
    UNIQUE.fetch_add(1, Ordering::Relaxed)
}
