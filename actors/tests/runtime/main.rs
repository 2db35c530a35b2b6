//! The runtime's guarantees, one test each; `docs/PROCESSES.md` names them.
#![expect(clippy::unwrap_used, reason = "tests")]

mod calls;
mod common;
mod exits;
mod mailboxes;
mod pools;
mod supervisors;
mod systems;
mod timers;
