//! The system: a value that owns processes, names, groups, clock and pools. Several live in one program.

use std::fmt;
use std::future::Future;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

use ahash::AHashMap;
use parking_lot::{Mutex, RwLock};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::blocking::{BlockingPool, PoolOptions};
use super::clock::{Clock, RealClock, SimClock};
use super::driver::{self, Executor, Threads};
use super::exit::Reason;
use super::groups::Groups;
use super::link::{self, Relations, Signal, Watcher};
use super::mailbox::{Core, Mailbox, Ref};
use super::options::{OnDrop, Placement, RegisterError, SpawnError, SpawnOptions, SystemOptions};
use super::pid::Pid;
use super::process::{Process, Runner};
use super::registry::Registry;
use super::table::Table;

/// How long processes that were ordered to stop may take after the supervisors have stopped theirs.
const LEFTOVER_GRACE: Duration = Duration::from_millis(500);

/// The insides, shared by all handles and processes.
pub(crate) struct Inner {
    pub(crate) table: Table,
    pub(crate) registry: Registry,
    pub(crate) groups: Groups,
    pub(crate) quantum: u32,
    name: Arc<str>,
    clock: Arc<dyn Clock>,
    on_drop: OnDrop,
    executors: Vec<Executor>,
    loads: Vec<AtomicUsize>,
    next: AtomicU32,
    pools: RwLock<AHashMap<Arc<str>, BlockingPool>>,
    threads: Mutex<Option<Threads>>,
    stopped: AtomicBool,
}

impl Inner {
    pub(crate) fn signal(&self, pid: Pid, signal: Signal) {
        if let Some(process) = self.table.get(pid) {
            process.signal(signal);
        }
    }

    /// Coarse monotonic microseconds plus one; zero stands for "idle" where this is kept.
    pub(crate) fn now_mark_coarse(&self) -> u64 {
        u64::try_from(self.clock.now_coarse().as_micros()).unwrap_or(u64::MAX - 1) + 1
    }

    pub(crate) fn unload(&self, executor: u32) {
        if let Some(load) = self.loads.get(executor as usize) {
            load.fetch_sub(1, Ordering::Relaxed);
        }
    }

    fn place(&self, placement: Placement) -> usize {
        let count = self.executors.len();
        match placement {
            _ if count == 1 => 0,
            Placement::Arbiter(index) => index % count,
            Placement::Here => match self.executors.iter().position(Executor::is_here) {
                Some(here) => here,
                None => self.place(Placement::LeastLoaded),
            },
            Placement::LeastLoaded => {
                // Beginning at a moving place spreads processes that are as light as each other.
                let first = self.next.fetch_add(1, Ordering::Relaxed) as usize;
                let order = (0..count).map(|step| (first + step) % count);
                order
                    .min_by_key(|index| self.loads[*index].load(Ordering::Relaxed))
                    .unwrap_or(0)
            }
        }
    }

    fn stop_pools(&self) {
        for (_, pool) in self.pools.write().drain() {
            pool.stop();
        }
    }
}

/// The drop of the last one is the drop of the system.
struct Owner {
    inner: Arc<Inner>,
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.inner.stopped.store(true, Ordering::SeqCst);
        let survivors = self.inner.table.all();
        for process in &survivors {
            process.signal(Signal::Exit {
                from: Pid::ROOT,
                reason: Reason::Killed,
                linked: false,
            });
        }
        self.inner.stop_pools();
        drop(self.inner.threads.lock().take());
        let Some(first) = survivors.first() else { return };
        let (count, first) = (survivors.len(), first.core());
        let text = format!(
            "system {:?} dropped with {count} living processes, the first is {} {}; stop it before",
            self.inner.name, first.pid, first.behaviour
        );
        if self.inner.on_drop == OnDrop::Panic && !std::thread::panicking() {
            panic!("{text}");
        }
        tracing::error!("{text}");
    }
}

/// A handle of a system. Clones are owners too; handles that processes get from their context are not.
#[derive(Clone)]
pub struct System {
    inner: Arc<Inner>,
    owner: Option<Arc<Owner>>,
}

impl fmt::Debug for System {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "System({:?}, {} processes)",
            self.inner.name,
            self.inner.table.len()
        )
    }
}

impl System {
    /// A system on the current thread, inside a tokio `LocalSet`: for tests, simulators and hosts with their own event
    /// loop. No actix system is needed.
    ///
    /// # Panics
    /// Panics outside a `LocalSet`.
    pub fn local(options: SystemOptions) -> System {
        System::build(options, vec![Executor::local()], None)
    }

    /// A system with `arbiters` threads of its own, each with an event loop.
    ///
    /// # Errors
    /// When a thread or its event loop cannot be made.
    pub fn threaded(arbiters: usize, options: SystemOptions) -> io::Result<System> {
        let (threads, executors) = Threads::start(arbiters, &options.name)?;
        Ok(System::build(options, executors, Some(threads)))
    }

    fn build(options: SystemOptions, executors: Vec<Executor>, threads: Option<Threads>) -> System {
        let clock = options.clock.unwrap_or_else(|| match &threads {
            Some(_) => Arc::new(RealClock::new()),
            None => Arc::new(SimClock::default()),
        });
        let inner = Arc::new(Inner {
            table: Table::new(),
            registry: Registry::default(),
            groups: Groups::default(),
            quantum: options.quantum.max(1),
            name: options.name,
            clock,
            on_drop: options.on_drop,
            loads: executors.iter().map(|_| AtomicUsize::new(0)).collect(),
            executors,
            next: AtomicU32::new(0),
            pools: RwLock::new(AHashMap::new()),
            threads: Mutex::new(threads),
            stopped: AtomicBool::new(false),
        });
        let system = System {
            owner: Some(Arc::new(Owner {
                inner: Arc::clone(&inner),
            })),
            inner,
        };
        for (name, options) in options.pools {
            system.add_pool(name, options);
        }
        system
    }

    pub(crate) fn inner(&self) -> &Arc<Inner> {
        &self.inner
    }

    /// A handle that does not keep the system from ending.
    pub fn uncounted(&self) -> System {
        System {
            inner: Arc::clone(&self.inner),
            owner: None,
        }
    }

    /// Whether this handle keeps the system from ending.
    pub fn is_owner(&self) -> bool {
        self.owner.is_some()
    }

    /// The system's name.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// The system's clock.
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.inner.clock
    }

    /// How many threads run processes.
    pub fn arbiters(&self) -> usize {
        self.inner.executors.len()
    }

    /// Starts a process whose parent is the system.
    ///
    /// On the current thread `init` has run when this returns. On another thread it runs there, ahead of the first message;
    /// [`System::wait_started`] waits for it, and its failure is the process's exit.
    ///
    /// # Errors
    /// See [`SpawnError`].
    pub fn spawn<P: Process>(&self, args: P::Args, options: SpawnOptions) -> Result<Ref<P::Msg>, SpawnError> {
        self.spawn_child::<P>(args, options, Pid::ROOT)
    }

    pub(crate) fn spawn_child<P: Process>(
        &self,
        args: P::Args,
        options: SpawnOptions,
        parent: Pid,
    ) -> Result<Ref<P::Msg>, SpawnError> {
        let inner = &self.inner;
        if inner.stopped.load(Ordering::SeqCst) {
            return Err(SpawnError::Stopped);
        }
        let place = inner.place(options.placement);
        let mailbox = inner
            .table
            .insert(|pid| {
                Mailbox::<P::Msg>::new(new_core::<P>(pid, parent, place, &options), options.mailbox)
            })
            .ok_or(SpawnError::TableFull)?;
        inner.loads[place].fetch_add(1, Ordering::Relaxed);
        let me = Ref {
            mailbox: Arc::clone(&mailbox),
        };
        if let Err(error) = self.introduce(&me, &options) {
            self.withdraw(&me, options.link);
            return Err(error);
        }
        let system = self.uncounted();
        if inner.executors[place].is_here() {
            return match Runner::<P>::start_linked(mailbox, system, args, options.link) {
                Ok(runner) => {
                    driver::host(runner);
                    Ok(me)
                }
                Err(reason) => Err(SpawnError::Init(reason)),
            };
        }
        let sent = inner.executors[place].execute(Box::new(move || {
            if let Ok(runner) = Runner::<P>::start(mailbox, system, args) {
                driver::host(runner);
            }
        }));
        if sent {
            Ok(me)
        } else {
            self.withdraw(&me, options.link);
            Err(SpawnError::Stopped)
        }
    }

    /// Name and link of a process that is about to start.
    fn introduce<M: Send + 'static>(&self, me: &Ref<M>, options: &SpawnOptions) -> Result<(), SpawnError> {
        let core = me.mailbox.core_ref();
        if let Some(name) = &options.name {
            if let Err(pid) = self.inner.registry.register(Arc::clone(name), core.pid) {
                return Err(SpawnError::NameTaken {
                    name: Arc::clone(name),
                    pid,
                });
            }
            *core.name.write() = Some(Arc::clone(name));
        }
        if let Some(peer) = options.link {
            let other = self.inner.table.get(peer).ok_or(SpawnError::NoLink)?;
            let mut relations = other.core().relations.lock();
            if relations.dead.is_some() {
                return Err(SpawnError::NoLink);
            }
            relations.links.insert(core.pid);
            drop(relations);
            core.relations.lock().links.insert(peer);
        }
        Ok(())
    }

    /// Takes back a process that never ran.
    fn withdraw<M: Send + 'static>(&self, me: &Ref<M>, linked: Option<Pid>) {
        let core = me.mailbox.core_ref();
        self.inner.table.remove(core.pid);
        if let Some(name) = core.name.write().take() {
            self.inner.registry.unregister(&name, core.pid);
        }
        if let Some(peer) = linked {
            link::unlink(&self.inner, peer, core.pid);
        }
        core.relations.lock().dead = Some(Reason::NoProc);
        me.mailbox.close(&Reason::NoProc);
        self.inner.unload(core.executor);
    }

    /// Runs a plain future on one of the system's threads. Returns whether that thread still runs.
    pub fn spawn_task(
        &self,
        placement: Placement,
        future: impl Future<Output = ()> + Send + 'static,
    ) -> bool {
        let place = self.inner.place(placement);
        self.inner.executors[place].execute(Box::new(move || driver::spawn_here(future)))
    }

    /// Who has `name`.
    pub fn whereis(&self, name: &str) -> Option<Pid> {
        self.inner.registry.whereis(name)
    }

    /// The process called `name`, if it lives and takes messages of type `M`.
    pub fn find<M: Send + 'static>(&self, name: &str) -> Option<Ref<M>> {
        self.resolve(self.whereis(name)?)
    }

    /// The process `pid`, if it lives and takes messages of type `M`.
    pub fn resolve<M: Send + 'static>(&self, pid: Pid) -> Option<Ref<M>> {
        let process = self.inner.table.get(pid)?;
        process
            .into_any()
            .downcast::<Mailbox<M>>()
            .ok()
            .map(|mailbox| Ref { mailbox })
    }

    /// Whether `pid` lives.
    pub fn is_alive(&self, pid: Pid) -> bool {
        self.inner.table.get(pid).is_some()
    }

    /// Gives a living process a name; it loses it at its end.
    ///
    /// # Errors
    /// See [`RegisterError`].
    pub fn register(&self, name: impl Into<Arc<str>>, pid: Pid) -> Result<(), RegisterError> {
        let name = name.into();
        let process = self.inner.table.get(pid).ok_or(RegisterError::NoProc)?;
        let mut slot = process.core().name.write();
        match &*slot {
            Some(old) if *old != name => return Err(RegisterError::AlreadyNamed(Arc::clone(old))),
            _ => {}
        }
        self.inner
            .registry
            .register(Arc::clone(&name), pid)
            .map_err(RegisterError::Taken)?;
        // The end of a process takes the name out of the slot under this lock, after leaving the table.
        if self.inner.table.get(pid).is_none() {
            self.inner.registry.unregister(&name, pid);
            return Err(RegisterError::NoProc);
        }
        *slot = Some(name);
        Ok(())
    }

    /// Takes a name away. Returns whether someone had it.
    pub fn unregister(&self, name: &str) -> bool {
        let Some(pid) = self.whereis(name) else {
            return false;
        };
        if let Some(process) = self.inner.table.get(pid) {
            process.core().name.write().take();
        }
        self.inner.registry.unregister(name, pid)
    }

    /// Every registered name with its process, sorted.
    pub fn registered(&self) -> Vec<(Arc<str>, Pid)> {
        self.inner.registry.all()
    }

    /// Adds a living process to a group. Returns whether it lives. It leaves by itself at its end.
    pub fn join(&self, group: impl Into<Arc<str>>, pid: Pid) -> bool {
        if !self.is_alive(pid) {
            return false;
        }
        self.inner.groups.join(group.into(), pid);
        if self.is_alive(pid) {
            return true;
        }
        self.inner.groups.forget(pid);
        false
    }

    /// Takes a process out of a group. Returns whether it was a member.
    pub fn leave(&self, group: &str, pid: Pid) -> bool {
        self.inner.groups.leave(group, pid)
    }

    /// The members of a group in the order of joining.
    pub fn members(&self, group: &str) -> Vec<Pid> {
        self.inner.groups.members(group)
    }

    /// The names of all groups that have members, sorted.
    pub fn groups(&self) -> Vec<Arc<str>> {
        self.inner.groups.names()
    }

    /// Sends an exit signal from outside. [`Reason::Killed`] cannot be trapped; [`Reason::Normal`] ends nobody.
    pub fn exit(&self, pid: Pid, reason: Reason) {
        self.inner.signal(
            pid,
            Signal::Exit {
                from: Pid::OUTSIDE,
                reason,
                linked: false,
            },
        );
    }

    /// Links two processes, as either of them could do itself.
    pub fn link(&self, a: Pid, b: Pid) {
        link::link(&self.inner, a, b);
    }

    /// Waits for the end of a process; `NoProc` if it is dead already.
    pub async fn wait_exit(&self, pid: Pid) -> Reason {
        let (tx, rx) = oneshot::channel();
        match link::watch(&self.inner, pid, Watcher::Outside(tx)) {
            Ok(()) => rx.await.unwrap_or(Reason::Killed),
            Err((_, reason)) => reason,
        }
    }

    /// Waits until a process's start is complete.
    ///
    /// # Errors
    /// The reason of its end, if it ended before that.
    pub async fn wait_started(&self, pid: Pid) -> Result<(), Reason> {
        let process = self.inner.table.get(pid).ok_or(Reason::NoProc)?;
        let rx = {
            let mut relations = process.core().relations.lock();
            if let Some(reason) = &relations.dead {
                return Err(reason.clone());
            }
            if relations.started {
                return Ok(());
            }
            let (tx, rx) = oneshot::channel();
            relations.watchers.push(Watcher::Start(tx));
            rx
        };
        drop(process);
        rx.await.unwrap_or(Err(Reason::Killed))
    }

    /// Adds a blocking pool, or returns the one that has the name.
    pub fn add_pool(&self, name: impl Into<Arc<str>>, options: PoolOptions) -> BlockingPool {
        let name = name.into();
        let mut pools = self.inner.pools.write();
        pools
            .entry(Arc::clone(&name))
            .or_insert_with(|| BlockingPool::new(&name, options))
            .clone()
    }

    /// The blocking pool called `name`.
    pub fn pool(&self, name: &str) -> Option<BlockingPool> {
        self.inner.pools.read().get(name).cloned()
    }

    /// Every blocking pool, sorted by name.
    pub fn pools(&self) -> Vec<(Arc<str>, BlockingPool)> {
        let mut pools: Vec<_> = self
            .inner
            .pools
            .read()
            .iter()
            .map(|(name, pool)| (Arc::clone(name), pool.clone()))
            .collect();
        pools.sort_by(|a, b| a.0.cmp(&b.0));
        pools
    }

    /// Whether [`System::stop`] was called.
    pub fn is_stopped(&self) -> bool {
        self.inner.stopped.load(Ordering::SeqCst)
    }

    /// Stops everything within `deadline`: processes without a parent in the reverse order of their starts (a supervisor
    /// stops its children in reverse first), then whoever is left, by force at the deadline; then pools and threads.
    /// Returns how many had to be killed. Call it from outside the system's own threads.
    pub async fn stop(&self, deadline: Duration) -> usize {
        let ends = Instant::now() + deadline;
        let mut killed = 0;
        for process in self.inner.table.all().into_iter().rev() {
            if process.core().parent == Pid::ROOT {
                killed += usize::from(self.order_stop(process.core().pid, ends).await);
            }
        }
        self.inner.stopped.store(true, Ordering::SeqCst);
        // What is left lost its parent, or was started meanwhile.
        let left: Vec<Pid> = self
            .inner
            .table
            .all()
            .iter()
            .rev()
            .map(|process| process.core().pid)
            .collect();
        for pid in &left {
            self.inner.signal(
                *pid,
                Signal::Exit {
                    from: Pid::ROOT,
                    reason: Reason::Shutdown,
                    linked: false,
                },
            );
        }
        let ends = ends.max(Instant::now() + LEFTOVER_GRACE);
        for pid in left {
            killed += usize::from(self.order_stop(pid, ends).await);
        }
        self.inner.stop_pools();
        let threads = self.inner.threads.lock().take();
        if let Some(threads) = threads {
            threads.stop().await;
        }
        killed
    }

    /// Orders one process to stop and waits; kills it at `ends`. Returns whether it had to be killed.
    async fn order_stop(&self, pid: Pid, ends: Instant) -> bool {
        let exit = self.wait_exit(pid);
        // The kill that may follow is waited for with the same monitor.
        tokio::pin!(exit);
        self.inner.signal(
            pid,
            Signal::Exit {
                from: Pid::ROOT,
                reason: Reason::Shutdown,
                linked: false,
            },
        );
        if tokio::time::timeout_at(ends, &mut exit).await.is_ok() {
            return false;
        }
        tracing::warn!(%pid, "process did not stop in time and is killed");
        self.inner.signal(
            pid,
            Signal::Exit {
                from: Pid::ROOT,
                reason: Reason::Killed,
                linked: false,
            },
        );
        // A process that blocks its thread cannot even be killed; stopping must end all the same.
        if tokio::time::timeout(LEFTOVER_GRACE, exit).await.is_err() {
            tracing::error!(%pid, "process blocks its thread and is left behind");
        }
        true
    }
}

fn new_core<P: Process>(pid: Pid, parent: Pid, place: usize, options: &SpawnOptions) -> Core {
    Core {
        pid,
        parent,
        behaviour: P::NAME,
        executor: u32::try_from(place).unwrap_or(u32::MAX),
        restarts: options.restarts,
        announce: options.announce,
        name: RwLock::new(None),
        handled: Default::default(),
        busy_since: Default::default(),
        relations: Mutex::new(Relations::default()),
    }
}
