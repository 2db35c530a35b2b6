//! What a process is: the behaviour that code implements, its context, and the turn that drives it.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Duration;

use ahash::AHashMap;
use futures_util::stream::{FuturesUnordered, Stream};

use super::call::TurnFrame;
use super::exit::{Reason, guard};
use super::link::{self, Signal, Watcher};
use super::mailbox::{AnyProcess, Mailbox, Ref};
use super::observe::Snapshot;
use super::options::{SpawnError, SpawnOptions};
use super::pid::{MRef, Pid, TimerRef, unique};
use super::system::System;
use super::timers::Timers;

/// A behaviour: one message enum, private state, callbacks that never block.
///
/// Messages are handled one at a time, on one thread. A panic in a callback ends this process alone.
pub trait Process: Sized + 'static {
    /// What a start is made from; each (re)start builds a fresh value.
    type Args: Send + 'static;
    /// Everything the process can be sent; typed answers go through [`super::ReplyTo`] tokens inside.
    type Msg: Send + 'static;
    /// The behaviour's name in `process_info`.
    const NAME: &'static str;

    /// Builds the state.
    ///
    /// # Errors
    /// The reason with which the process ends instead of starting.
    fn init(args: Self::Args, ctx: &mut Ctx<Self>) -> Result<Self, Reason>;

    /// Handles one message.
    fn handle(&mut self, msg: Self::Msg, ctx: &mut Ctx<Self>) -> Next;

    /// Handles exit signals (when trapping), monitors and timers. By default they are ignored.
    fn handle_info(&mut self, info: Info, ctx: &mut Ctx<Self>) -> Next {
        tracing::trace!(pid = %ctx.pid(), ?info, "info ignored");
        Next::Continue
    }

    /// The parent ended or orders the stop of a process that traps exits. By default it stops with that reason.
    fn parent_exit(&mut self, reason: Reason, ctx: &mut Ctx<Self>) -> Next {
        let _ = ctx;
        Next::Stop(reason)
    }

    /// Cleans up before the end, for every reason but [`Reason::Killed`].
    fn terminate(&mut self, reason: &Reason, ctx: &mut Ctx<Self>) {
        let _ = (reason, ctx);
    }

    /// A few values for people who look at the process from outside.
    fn snapshot(&self) -> Snapshot {
        Snapshot::default()
    }
}

/// What a process does after a callback.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// Goes on with the next message.
    Continue,
    /// Ends with this reason.
    Stop(Reason),
}

/// News that come by the control lane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Info {
    /// A linked process ended, or someone sent an exit signal; only while trapping exits.
    Exit {
        /// Who ended, or who sent the signal.
        from: Pid,
        /// Why.
        reason: Reason,
    },
    /// A monitored process ended.
    Down {
        /// The monitor, now spent.
        mref: MRef,
        /// Who ended.
        pid: Pid,
        /// Why; `NoProc` if it was dead before the monitor was made.
        reason: Reason,
    },
    /// A timer fired; the token given when it was made.
    Timer(u64),
    /// A child that was started on another thread is through its `init`; only for those who asked.
    Started {
        /// The child.
        pid: Pid,
    },
}

type OwnWork<M> = FuturesUnordered<Pin<Box<dyn Future<Output = M>>>>;

/// What only some processes need; made when first used, so that an idle process stays small.
struct Extra<M> {
    monitors: AHashMap<MRef, Pid>,
    timers: Timers,
    futures: OwnWork<M>,
}

/// What a process can do besides handling messages.
pub struct Ctx<P: Process> {
    me: Ref<P::Msg>,
    system: System,
    trap_exit: bool,
    start_deferred: bool,
    /// Timers or futures were added since they were last polled.
    fresh_work: bool,
    extra: Option<Box<Extra<P::Msg>>>,
}

impl<P: Process> Ctx<P> {
    pub(crate) fn new(me: Ref<P::Msg>, system: System) -> Ctx<P> {
        Ctx {
            me,
            system,
            trap_exit: false,
            start_deferred: false,
            fresh_work: false,
            extra: None,
        }
    }

    /// A reference to this process.
    pub fn me(&self) -> Ref<P::Msg> {
        self.me.clone()
    }

    /// This process's identity.
    pub fn pid(&self) -> Pid {
        self.me.pid()
    }

    /// Who started this process.
    pub fn parent(&self) -> Pid {
        self.core().parent
    }

    /// The system. This handle, and clones of it, do not count as owners: they do not keep the system from ending.
    pub fn system(&self) -> &System {
        &self.system
    }

    /// How often the supervisor has restarted this process.
    pub fn restarts(&self) -> u32 {
        self.core().restarts
    }

    fn core(&self) -> &super::mailbox::Core {
        self.me.mailbox.core_ref()
    }

    fn extra(&mut self) -> &mut Extra<P::Msg> {
        self.extra.get_or_insert_with(|| {
            Box::new(Extra {
                monitors: AHashMap::new(),
                timers: Timers::default(),
                futures: FuturesUnordered::new(),
            })
        })
    }

    /// Whether exit signals come as [`Info::Exit`] instead of ending this process. Off at the start.
    pub fn trap_exit(&mut self, on: bool) {
        self.trap_exit = on;
    }

    /// Links this process with another: when one ends, the other gets an exit signal.
    pub fn link(&mut self, pid: Pid) {
        link::link(self.system.inner(), self.pid(), pid);
    }

    /// Takes a link away. No signal of that link arrives afterwards.
    pub fn unlink(&mut self, pid: Pid) {
        link::unlink(self.system.inner(), self.pid(), pid);
    }

    /// Asks for one [`Info::Down`] when `pid` ends; at once, with `NoProc`, if it is dead.
    pub fn monitor(&mut self, pid: Pid) -> MRef {
        let mref = MRef(unique());
        let me = self.pid();
        self.extra().monitors.insert(mref, pid);
        if let Err((_, reason)) = link::watch(self.system.inner(), pid, Watcher::Process(me, mref)) {
            self.me.mailbox.signal(Signal::Down { mref, pid, reason });
        }
        mref
    }

    /// Takes a monitor away. No `Down` of it arrives afterwards. Returns whether it was still to come.
    pub fn demonitor(&mut self, mref: MRef) -> bool {
        let target = self.extra.as_mut().and_then(|extra| extra.monitors.remove(&mref));
        if let Some(target) = target {
            link::unwatch(self.system.inner(), target, mref);
        }
        target.is_some()
    }

    /// One [`Info::Timer`] with `token` after `after`.
    pub fn send_after(&mut self, after: Duration, token: u64) -> TimerRef {
        self.fresh_work = true;
        self.extra().timers.add(after, false, token)
    }

    /// An [`Info::Timer`] with `token` every `every` (at least 1 ms), the first after that time. Beats that a busy process
    /// misses are skipped.
    pub fn send_interval(&mut self, every: Duration, token: u64) -> TimerRef {
        self.fresh_work = true;
        self.extra().timers.add(every, true, token)
    }

    /// Stops a timer. Returns whether it was still to fire; afterwards it does not.
    pub fn cancel(&mut self, timer: TimerRef) -> bool {
        self.extra
            .as_mut()
            .is_some_and(|extra| extra.timers.cancel(timer))
    }

    /// Starts a process whose parent is this one, without a link.
    ///
    /// # Errors
    /// See [`System::spawn`].
    pub fn spawn<Q: Process>(
        &mut self,
        args: Q::Args,
        options: SpawnOptions,
    ) -> Result<Ref<Q::Msg>, SpawnError> {
        self.system.spawn_child::<Q>(args, options, self.pid())
    }

    /// Starts a process whose parent is this one, linked with it.
    ///
    /// # Errors
    /// See [`System::spawn`]. A failed `init` is only this error; no exit signal follows.
    pub fn spawn_link<Q: Process>(
        &mut self,
        args: Q::Args,
        mut options: SpawnOptions,
    ) -> Result<Ref<Q::Msg>, SpawnError> {
        options.link = Some(self.pid());
        self.system.spawn_child::<Q>(args, options, self.pid())
    }

    /// Runs asynchronous work inside this process; its result comes back as a message at the end of the own queue. The
    /// work ends with the process, and a panic in it is a panic of the process.
    pub fn spawn_future<F>(&mut self, work: F, map: impl FnOnce(F::Output) -> P::Msg + 'static)
    where
        F: Future + 'static,
    {
        self.fresh_work = true;
        self.extra()
            .futures
            .push(Box::pin(async move { map(work.await) }));
    }

    /// How much asynchronous work of this process is under way.
    pub fn futures_running(&self) -> usize {
        self.extra.as_ref().map_or(0, |extra| extra.futures.len())
    }

    /// Called in `init`: the process counts as started only when it calls [`Ctx::started`].
    pub fn defer_started(&mut self) {
        self.start_deferred = true;
    }

    /// Reports that the start is complete, to the parent and to [`System::wait_started`].
    pub fn started(&mut self) {
        self.start_deferred = false;
        let waiting: Vec<Watcher> = {
            let mut relations = self.core().relations.lock();
            relations.started = true;
            relations
                .watchers
                .extract_if(.., |w| matches!(w, Watcher::Start(_)))
                .collect()
        };
        for watcher in waiting {
            if let Watcher::Start(tx) = watcher {
                let _ = tx.send(Ok(()));
            }
        }
        if self.core().announce {
            self.system
                .inner()
                .signal(self.core().parent, Signal::Started { pid: self.pid() });
        }
    }
}

/// A process as it is driven: state, context, and the rules of a turn. Knows nothing of the executor.
pub(crate) struct Runner<P: Process> {
    state: Option<P>,
    ctx: Ctx<P>,
    finished: bool,
}

impl<P: Process> Runner<P> {
    /// Runs `init` on the current thread.
    ///
    /// # Errors
    /// The reason of a failed start; the process is then already gone from every table.
    pub(crate) fn start(
        mailbox: Arc<Mailbox<P::Msg>>,
        system: System,
        args: P::Args,
    ) -> Result<Runner<P>, Reason> {
        let mut runner = Runner {
            state: None,
            ctx: Ctx::new(Ref { mailbox }, system),
            finished: false,
        };
        let frame = TurnFrame::enter();
        match guard(|| P::init(args, &mut runner.ctx)).flatten() {
            Ok(state) => {
                runner.state = Some(state);
                frame.leave(None);
                if !runner.ctx.start_deferred {
                    runner.ctx.started();
                }
                Ok(runner)
            }
            Err(reason) => {
                runner.finish(reason.clone(), frame);
                Err(reason)
            }
        }
    }

    /// As [`Runner::start`]; a failed start leaves no link, because the starter learns of it by the error.
    pub(crate) fn start_linked(
        mailbox: Arc<Mailbox<P::Msg>>,
        system: System,
        args: P::Args,
        linked: Option<Pid>,
    ) -> Result<Runner<P>, Reason> {
        let pid = mailbox.core_ref().pid;
        let inner = Arc::clone(system.inner());
        let started = Runner::start(mailbox, system, args);
        if let (Err(_), Some(peer)) = (&started, linked)
            && let Some(peer) = inner.table.get(peer)
        {
            // The exit signal is on its way already; without the link its receiver ignores it.
            peer.core().relations.lock().links.remove(pid);
        }
        started
    }

    /// One turn: at most a quantum of messages, so that a busy process leaves room for its neighbours. Ready at the end
    /// of the process.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.finished {
            return Poll::Ready(());
        }
        let frame = TurnFrame::enter();
        match guard(|| self.turn(cx)) {
            Ok(None) => {
                frame.leave(None);
                Poll::Pending
            }
            Ok(Some(reason)) | Err(reason) => {
                self.finish(reason, frame);
                Poll::Ready(())
            }
        }
    }

    fn turn(&mut self, cx: &mut Context<'_>) -> Option<Reason> {
        let Runner {
            state: Some(state),
            ctx,
            ..
        } = self
        else {
            return Some(Reason::Killed);
        };
        let span = tracing::debug_span!("process", pid = %ctx.pid(), behaviour = P::NAME);
        let _entered = span.enter();
        let mut turn = Turn {
            budget: ctx.system.inner().quantum,
            handled: 0,
            marked: false,
            interrupted: false,
        };
        let stop = turn.run(state, ctx, cx);
        let core = ctx.core();
        if turn.handled > 0 {
            // Only the process itself writes here, so that no read-modify-write is needed.
            core.handled.store(
                core.handled.load(Ordering::Relaxed) + turn.handled,
                Ordering::Relaxed,
            );
        }
        if turn.marked && !turn.interrupted {
            core.busy_since.store(0, Ordering::Relaxed);
        }
        stop
    }

    /// Ends the process. Order matters: the state is gone before anyone learns of the end, so that a successor finds files
    /// and names free; the table entry goes before the mailbox closes; and callers learn the reason.
    fn finish(&mut self, reason: Reason, frame: TurnFrame) {
        self.finished = true;
        let mailbox = Arc::clone(&self.ctx.me.mailbox);
        let core = mailbox.core_ref();
        if reason != Reason::Killed
            && let Some(state) = &mut self.state
            && let Err(second) = guard(|| state.terminate(&reason, &mut self.ctx))
        {
            tracing::error!(pid = %core.pid, behaviour = P::NAME, %second, "panic in terminate");
        }
        let state = self.state.take();
        let extra = self.ctx.extra.take();
        let inner = Arc::clone(self.ctx.system.inner());
        if let Some(extra) = &extra {
            for (mref, target) in &extra.monitors {
                link::unwatch(&inner, *target, *mref);
            }
        }
        for dropped in [guard(move || drop(state)), guard(move || drop(extra))] {
            if let Err(second) = dropped {
                tracing::error!(pid = %core.pid, behaviour = P::NAME, %second, "panic in drop");
            }
        }
        inner.table.remove(core.pid);
        if let Some(name) = core.name.write().take() {
            inner.registry.unregister(&name, core.pid);
        }
        inner.groups.forget(core.pid);
        let (links, watchers) = {
            let mut relations = core.relations.lock();
            relations.dead = Some(reason.clone());
            (
                std::mem::take(&mut relations.links),
                std::mem::take(&mut relations.watchers),
            )
        };
        if let Err(second) = guard(|| mailbox.close(&reason)) {
            tracing::error!(pid = %core.pid, behaviour = P::NAME, %second, "panic in the drop of a message");
        }
        frame.leave(Some(&reason));
        inner.unload(core.executor);
        if reason.is_orderly() || reason == Reason::Killed {
            tracing::debug!(pid = %core.pid, behaviour = P::NAME, %reason, "process ended");
        } else {
            tracing::error!(pid = %core.pid, behaviour = P::NAME, %reason, "process ended");
        }
        link::announce_exit(&inner, core.pid, &reason, &links, watchers);
    }
}

/// Nothing in a runner is pinned in place: the state is only ever used by reference.
impl<P: Process> Unpin for Runner<P> {}

/// The executor went away with the process in it.
impl<P: Process> Drop for Runner<P> {
    fn drop(&mut self) {
        if !self.finished {
            let frame = TurnFrame::enter();
            self.finish(Reason::Killed, frame);
        }
    }
}

/// The bookkeeping of one turn.
struct Turn {
    budget: u32,
    handled: u64,
    marked: bool,
    /// The quantum was used up with work left.
    interrupted: bool,
}

impl Turn {
    fn run<P: Process>(&mut self, state: &mut P, ctx: &mut Ctx<P>, cx: &mut Context<'_>) -> Option<Reason> {
        loop {
            if let Some(reason) = self.own_work(state, ctx, cx) {
                return Some(reason);
            }
            let mut parked = false;
            while self.budget > 0 && !parked {
                // New timers and futures have to be polled before this process may rest.
                let waker = (!ctx.fresh_work).then(|| cx.waker());
                let popped = ctx.me.mailbox.pop(waker);
                parked = popped.parked;
                if popped.user.is_none() && popped.control.is_none() {
                    break;
                }
                self.mark(ctx);
                self.budget -= 1;
                let next = if let Some(msg) = popped.user {
                    self.handled += 1;
                    state.handle(msg, ctx)
                } else if let Some(signal) = popped.control {
                    control(state, ctx, *signal)
                } else {
                    break;
                };
                if let Next::Stop(reason) = next {
                    return Some(reason);
                }
            }
            if parked && !ctx.fresh_work {
                return None;
            }
            if self.budget == 0 {
                self.interrupted = true;
                cx.waker().wake_by_ref();
                return None;
            }
        }
    }

    /// Notes once in a turn that the process is busy.
    #[inline]
    fn mark<P: Process>(&mut self, ctx: &Ctx<P>) {
        if !self.marked {
            self.marked = true;
            ctx.core()
                .busy_since
                .store(ctx.system.inner().now_mark_coarse(), Ordering::Relaxed);
        }
    }

    /// Timers that are due, and asynchronous work that is ready.
    fn own_work<P: Process>(
        &mut self,
        state: &mut P,
        ctx: &mut Ctx<P>,
        cx: &mut Context<'_>,
    ) -> Option<Reason> {
        ctx.fresh_work = false;
        while self.budget > 0 {
            let Some(token) = ctx.extra.as_mut().and_then(|extra| extra.timers.poll_due(cx)) else {
                break;
            };
            self.mark(ctx);
            self.budget -= 1;
            if let Next::Stop(reason) = state.handle_info(Info::Timer(token), ctx) {
                return Some(reason);
            }
        }
        if let Some(extra) = ctx.extra.as_mut()
            && !extra.futures.is_empty()
        {
            // At most a quantum of results in one go: the rest keeps its place and wakes this task again.
            for _ in 0..ctx.system.inner().quantum {
                match Pin::new(&mut extra.futures).poll_next(cx) {
                    Poll::Ready(Some(msg)) => ctx.me.mailbox.push_own(msg),
                    Poll::Ready(None) | Poll::Pending => return None,
                }
            }
            ctx.fresh_work = true;
        }
        None
    }
}

/// Handles one signal of the control lane.
fn control<P: Process>(state: &mut P, ctx: &mut Ctx<P>, signal: Signal) -> Next {
    match signal {
        Signal::Exit { from, reason, linked } => exit_signal(state, ctx, from, reason, linked),
        Signal::Down { mref, pid, reason } => {
            let expected = ctx
                .extra
                .as_mut()
                .is_some_and(|extra| extra.monitors.remove(&mref).is_some());
            if expected {
                state.handle_info(Info::Down { mref, pid, reason }, ctx)
            } else {
                Next::Continue
            }
        }
        Signal::Started { pid } => state.handle_info(Info::Started { pid }, ctx),
        Signal::Observe(tx) => {
            // Whoever asked may have given up.
            let _ = tx.send(state.snapshot());
            Next::Continue
        }
    }
}

fn exit_signal<P: Process>(state: &mut P, ctx: &mut Ctx<P>, from: Pid, reason: Reason, linked: bool) -> Next {
    if linked && !ctx.core().relations.lock().links.remove(from) {
        // The link was taken away while the signal was under way.
        return Next::Continue;
    }
    if !linked && reason == Reason::Killed {
        return Next::Stop(Reason::Killed);
    }
    if ctx.trap_exit {
        if from == ctx.core().parent {
            let reason = if linked { reason.through_link(from) } else { reason };
            return state.parent_exit(reason, ctx);
        }
        return state.handle_info(Info::Exit { from, reason }, ctx);
    }
    match reason {
        Reason::Normal => Next::Continue,
        reason if linked => Next::Stop(reason.through_link(from)),
        reason => Next::Stop(reason),
    }
}
