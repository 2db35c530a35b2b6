//! What a supervisor supervises: child specifications, strategies, and how children are made.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::mailbox::Ref;
use super::options::{SpawnError, SpawnOptions};
use super::pid::Pid;
use super::process::Process;
use super::supervisor::Supervisor;
use super::system::System;

/// Restarts that a supervisor makes within [`DEFAULT_PERIOD`] before it gives up.
pub const DEFAULT_INTENSITY: u32 = 3;

/// The time in which restarts are counted.
pub const DEFAULT_PERIOD: Duration = Duration::from_secs(5);

/// How long a worker may take to stop.
pub const DEFAULT_SHUTDOWN: Duration = Duration::from_secs(5);

/// Which children restart when one has died.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strategy {
    /// Only the dead one.
    OneForOne,
    /// All: the others are stopped in reverse order, then all are started in order.
    OneForAll,
    /// The dead one and those that were started after it.
    RestForOne,
    /// Only the dead one; children come and go at run time, have no order and stop side by side.
    Dynamic,
}

/// When a child is restarted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Restart {
    /// Whenever it ends.
    #[default]
    Permanent,
    /// When it did not end in an orderly way.
    Transient,
    /// Never; it is forgotten at its end.
    Temporary,
}

/// How a child is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shutdown {
    /// Killed.
    Brutal,
    /// Ordered to stop, and killed after this time.
    After(Duration),
    /// Ordered to stop, and waited for.
    Infinity,
}

/// Whether a child has children.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ChildKind {
    /// It has none.
    #[default]
    Worker,
    /// It is a supervisor.
    Supervisor,
}

/// Starts a child, each time anew, and returns its pid.
pub type StartChild = Arc<dyn Fn(&Parent<'_>) -> Result<Pid, SpawnError> + Send + Sync>;

/// How a child is started, restarted and stopped.
#[derive(Clone)]
pub struct ChildSpec {
    /// Its name within the supervisor.
    pub id: Arc<str>,
    /// Makes it.
    pub start: StartChild,
    /// When it is restarted.
    pub restart: Restart,
    /// How it is stopped.
    pub shutdown: Shutdown,
    /// Whether it is a supervisor.
    pub kind: ChildKind,
}

impl fmt::Debug for ChildSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "ChildSpec({:?}, {:?}, {:?}, {:?})",
            self.id, self.restart, self.shutdown, self.kind
        )
    }
}

impl ChildSpec {
    /// A permanent worker that `start` makes; [`Parent::spawn`] is what it uses.
    pub fn new(
        id: impl Into<Arc<str>>,
        start: impl Fn(&Parent<'_>) -> Result<Pid, SpawnError> + Send + Sync + 'static,
    ) -> ChildSpec {
        ChildSpec {
            id: id.into(),
            start: Arc::new(start),
            restart: Restart::Permanent,
            shutdown: Shutdown::After(DEFAULT_SHUTDOWN),
            kind: ChildKind::Worker,
        }
    }

    /// A permanent worker made from a clone of `args` at each start. A name in `options` is registered again each time.
    pub fn worker<P: Process>(id: impl Into<Arc<str>>, args: P::Args, options: SpawnOptions) -> ChildSpec
    where
        P::Args: Clone + Sync,
    {
        ChildSpec::new(id, move |parent| parent.spawn::<P>(args.clone(), options.clone()))
    }

    /// A permanent child that is itself a supervisor; it may take as long as its children need to stop.
    pub fn supervisor(id: impl Into<Arc<str>>, spec: SupervisorSpec, options: SpawnOptions) -> ChildSpec {
        let mut child = ChildSpec::worker::<Supervisor>(id, spec, options);
        child.shutdown = Shutdown::Infinity;
        child.kind = ChildKind::Supervisor;
        child
    }

    /// With this restart rule.
    #[must_use]
    pub fn restart(mut self, restart: Restart) -> ChildSpec {
        self.restart = restart;
        self
    }

    /// With this way to stop.
    #[must_use]
    pub fn shutdown(mut self, shutdown: Shutdown) -> ChildSpec {
        self.shutdown = shutdown;
        self
    }
}

/// The supervisor, as the start of a child sees it.
pub struct Parent<'a> {
    system: &'a System,
    pid: Pid,
    restarts: u32,
}

impl<'a> Parent<'a> {
    pub(crate) fn new(system: &'a System, pid: Pid, restarts: u32) -> Parent<'a> {
        Parent {
            system,
            pid,
            restarts,
        }
    }

    /// The system; this handle does not count as an owner.
    pub fn system(&self) -> &System {
        self.system
    }

    /// The supervisor's pid.
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// Starts a process as a linked child of the supervisor.
    ///
    /// # Errors
    /// See [`System::spawn`].
    pub fn spawn<P: Process>(&self, args: P::Args, options: SpawnOptions) -> Result<Pid, SpawnError> {
        self.spawn_ref::<P>(args, options).map(|child| child.pid())
    }

    /// The same, with a reference instead of a pid.
    ///
    /// # Errors
    /// See [`System::spawn`].
    pub fn spawn_ref<P: Process>(
        &self,
        args: P::Args,
        mut options: SpawnOptions,
    ) -> Result<Ref<P::Msg>, SpawnError> {
        options.link = Some(self.pid);
        options.restarts = self.restarts;
        options.announce = true;
        self.system.spawn_child::<P>(args, options, self.pid)
    }
}

/// What a supervisor is made from.
#[derive(Clone, Debug)]
pub struct SupervisorSpec {
    /// Which children restart together.
    pub strategy: Strategy,
    /// Restarts within `period` before the supervisor gives up and ends itself.
    pub intensity: u32,
    /// The time in which restarts are counted.
    pub period: Duration,
    /// The first children, in start order.
    pub children: Vec<ChildSpec>,
}

impl SupervisorSpec {
    /// A specification without children, with OTP's intensity for a small tree: 3 restarts in 5 seconds.
    pub fn new(strategy: Strategy) -> SupervisorSpec {
        SupervisorSpec {
            strategy,
            intensity: DEFAULT_INTENSITY,
            period: DEFAULT_PERIOD,
            children: Vec::new(),
        }
    }

    /// With this limit of restarts.
    #[must_use]
    pub fn intensity(mut self, intensity: u32, period: Duration) -> SupervisorSpec {
        self.intensity = intensity;
        self.period = period;
        self
    }

    /// With one more child at the end of the order.
    #[must_use]
    pub fn child(mut self, child: ChildSpec) -> SupervisorSpec {
        self.children.push(child);
        self
    }
}

/// One child, as `which_children` shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChildInfo {
    /// Its name within the supervisor.
    pub id: Arc<str>,
    /// Its present incarnation; `None` while it does not run.
    pub pid: Option<Pid>,
    /// Whether it is a supervisor.
    pub kind: ChildKind,
    /// When it is restarted.
    pub restart: Restart,
    /// How often it was restarted.
    pub restarts: u32,
}
