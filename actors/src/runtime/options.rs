//! How systems and processes are made, and why they are not.

use std::sync::Arc;

use thiserror::Error;

use super::blocking::PoolOptions;
use super::clock::Clock;
use super::exit::Reason;
use super::mailbox::{MailboxOptions, Policy};
use super::pid::Pid;

/// Messages a process handles in one turn before its neighbours get theirs.
pub const DEFAULT_QUANTUM: u32 = 64;

/// What the drop of the last handle does when processes are still alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnDrop {
    /// Panics, unless the thread is panicking already.
    Panic,
    /// Logs an error.
    Log,
}

/// How a system is made.
#[derive(Clone)]
pub struct SystemOptions {
    /// A name for logs and threads.
    pub name: Arc<str>,
    /// The clock; by default the machine's for threaded systems, and tokio's for local ones.
    pub clock: Option<Arc<dyn Clock>>,
    /// Messages per turn, at least 1.
    pub quantum: u32,
    /// What the drop of the last handle with survivors does: panics where debug assertions are on, logs elsewhere.
    pub on_drop: OnDrop,
    /// Blocking pools to begin with.
    pub pools: Vec<(Arc<str>, PoolOptions)>,
}

impl Default for SystemOptions {
    fn default() -> Self {
        SystemOptions {
            name: "settee".into(),
            clock: None,
            quantum: DEFAULT_QUANTUM,
            on_drop: if cfg!(debug_assertions) {
                OnDrop::Panic
            } else {
                OnDrop::Log
            },
            pools: Vec::new(),
        }
    }
}

impl SystemOptions {
    /// With this clock.
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> SystemOptions {
        self.clock = Some(clock);
        self
    }

    /// With this blocking pool.
    #[must_use]
    pub fn pool(mut self, name: impl Into<Arc<str>>, options: PoolOptions) -> SystemOptions {
        self.pools.push((name.into(), options));
        self
    }
}

/// Where a process runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Placement {
    /// On the current thread if it is one of the system's, else as `LeastLoaded`.
    #[default]
    Here,
    /// On this arbiter, counted from zero, modulo their number.
    Arbiter(usize),
    /// On the arbiter with the fewest processes.
    LeastLoaded,
}

/// How a process is started.
#[derive(Clone, Debug, Default)]
pub struct SpawnOptions {
    /// The name to register it under.
    pub name: Option<Arc<str>>,
    /// The bound of its mailbox.
    pub mailbox: MailboxOptions,
    /// Where it runs.
    pub placement: Placement,
    /// A process to link it with from the start.
    pub link: Option<Pid>,
    pub(crate) restarts: u32,
    pub(crate) announce: bool,
}

impl SpawnOptions {
    /// With a registered name.
    #[must_use]
    pub fn named(mut self, name: impl Into<Arc<str>>) -> SpawnOptions {
        self.name = Some(name.into());
        self
    }

    /// With room for `capacity` messages.
    #[must_use]
    pub fn capacity(mut self, capacity: usize) -> SpawnOptions {
        self.mailbox.capacity = capacity;
        self
    }

    /// With this policy for a full mailbox.
    #[must_use]
    pub fn policy(mut self, policy: Policy) -> SpawnOptions {
        self.mailbox.policy = policy;
        self
    }

    /// With this place to run.
    #[must_use]
    pub fn on(mut self, placement: Placement) -> SpawnOptions {
        self.placement = placement;
        self
    }
}

/// Why a process was not started.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SpawnError {
    /// `init` failed or panicked.
    #[error("init failed: {0}")]
    Init(Reason),
    /// Another process has the name.
    #[error("name {name:?} is taken by {pid}")]
    NameTaken {
        /// The name.
        name: Arc<str>,
        /// Who has it.
        pid: Pid,
    },
    /// The process to link with is dead.
    #[error("no such process to link with")]
    NoLink,
    /// The system is stopping or has stopped.
    #[error("system stopped")]
    Stopped,
    /// No room in the process table.
    #[error("process table full")]
    TableFull,
}

/// Why a name was not registered.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum RegisterError {
    /// Another process has it.
    #[error("name is taken by {0}")]
    Taken(Pid),
    /// The process has another name already.
    #[error("process is already called {0:?}")]
    AlreadyNamed(Arc<str>),
    /// The process is dead.
    #[error("no such process")]
    NoProc,
}
