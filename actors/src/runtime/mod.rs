//! The actor runtime: Erlang processes, links, monitors and supervisors over actix.
//!
//! A [`System`] is a value that hosts processes. A [`Process`] owns its state and handles one message at a time; others
//! reach it by a typed [`Ref`]. Every mailbox is bounded, every call has a deadline, and a panic ends one process alone,
//! which its [`Supervisor`] then builds anew. `docs/PROCESSES.md` states each guarantee beside the test that proves it.

mod blocking;
mod call;
mod child;
mod clock;
mod driver;
mod exit;
mod groups;
mod link;
mod mailbox;
mod observe;
mod options;
mod pid;
pub mod probe;
mod process;
mod registry;
mod supervisor;
mod system;
mod table;
mod timers;

pub use blocking::{BlockingPool, Lane, PoolError, PoolOptions, PoolStats};
pub use call::{Answer, CallError, ReplyTo, SendError, Undelivered};
pub use child::{
    ChildInfo, ChildKind, ChildSpec, DEFAULT_INTENSITY, DEFAULT_PERIOD, DEFAULT_SHUTDOWN, Parent, Restart,
    Shutdown, StartChild, Strategy, SupervisorSpec,
};
pub use clock::{Clock, ManualClock, RealClock, SimClock};
pub use exit::Reason;
pub use mailbox::{DEFAULT_CAPACITY, MailboxOptions, Policy, Ref};
pub use observe::{ProcessInfo, Snapshot, Tree, TreeNode};
pub use options::{
    DEFAULT_QUANTUM, OnDrop, Placement, RegisterError, SpawnError, SpawnOptions, SystemOptions,
};
pub use pid::{MRef, Pid, TimerRef};
pub use process::{Ctx, Info, Next, Process};
pub use registry::Name;
pub use supervisor::{ChildReply, Supervisor, SupervisorError, SupervisorMsg};
pub use system::System;
