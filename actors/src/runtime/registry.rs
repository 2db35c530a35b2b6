//! Unique names of processes.

use std::sync::Arc;
use std::time::Duration;

use ahash::AHashMap;
use parking_lot::RwLock;

use super::call::{CallError, ReplyTo, SendError, Undelivered};
use super::mailbox::Ref;
use super::pid::Pid;
use super::system::System;

/// Names and who has them.
#[derive(Default)]
pub(crate) struct Registry {
    names: RwLock<AHashMap<Arc<str>, Pid>>,
}

impl Registry {
    /// Gives `name` to `pid`, or says who has it.
    pub(crate) fn register(&self, name: Arc<str>, pid: Pid) -> Result<(), Pid> {
        match self.names.write().entry(name) {
            std::collections::hash_map::Entry::Occupied(entry) if *entry.get() == pid => Ok(()),
            std::collections::hash_map::Entry::Occupied(entry) => Err(*entry.get()),
            std::collections::hash_map::Entry::Vacant(entry) => {
                entry.insert(pid);
                Ok(())
            }
        }
    }

    /// Takes `name` away if `pid` still has it.
    pub(crate) fn unregister(&self, name: &str, pid: Pid) -> bool {
        let mut names = self.names.write();
        if names.get(name) == Some(&pid) {
            names.remove(name);
            true
        } else {
            false
        }
    }

    pub(crate) fn whereis(&self, name: &str) -> Option<Pid> {
        self.names.read().get(name).copied()
    }

    /// Every name, sorted.
    pub(crate) fn all(&self) -> Vec<(Arc<str>, Pid)> {
        let mut all: Vec<_> = self
            .names
            .read()
            .iter()
            .map(|(name, pid)| (Arc::clone(name), *pid))
            .collect();
        all.sort();
        all
    }
}

/// A process by name: looked up at each use, so it reaches whoever has the name now, also after a restart.
pub struct Name<M: Send + 'static> {
    system: System,
    name: Arc<str>,
    kind: std::marker::PhantomData<fn(M)>,
}

impl<M: Send + 'static> Clone for Name<M> {
    fn clone(&self) -> Self {
        Name {
            system: self.system.clone(),
            name: Arc::clone(&self.name),
            kind: std::marker::PhantomData,
        }
    }
}

impl<M: Send + 'static> Name<M> {
    /// The process that is called `name` in `system`. The handle held inside does not count as an owner of the system.
    pub fn new(system: &System, name: impl Into<Arc<str>>) -> Name<M> {
        Name {
            system: system.uncounted(),
            name: name.into(),
            kind: std::marker::PhantomData,
        }
    }

    /// The name itself.
    pub fn as_str(&self) -> &str {
        &self.name
    }

    /// Who has the name now; `None` also when that process takes other messages.
    pub fn find(&self) -> Option<Ref<M>> {
        self.system.find(&self.name)
    }

    /// Looks up and casts.
    ///
    /// # Errors
    /// As [`Ref::cast`]; nobody under that name is `NoProc`.
    pub fn cast(&self, msg: M) -> Result<(), SendError<M>> {
        match self.find() {
            Some(process) => process.cast(msg),
            None => Err(SendError::NoProc(msg)),
        }
    }

    /// Looks up and calls.
    ///
    /// # Errors
    /// As [`Ref::call`]; nobody under that name is `Undelivered(NoProc)`.
    pub async fn call<R: Send + 'static>(
        &self,
        deadline: Duration,
        make: impl FnOnce(ReplyTo<R>) -> M,
    ) -> Result<R, CallError> {
        match self.find() {
            Some(process) => process.call(deadline, make).await,
            None => Err(CallError::Undelivered(Undelivered::NoProc)),
        }
    }
}
