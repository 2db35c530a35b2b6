//! Supervisors: processes that start, watch, restart and stop others. See [`super::child`] for what they supervise.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use ahash::AHashMap;
use slab::Slab;
use thiserror::Error;

use super::call::ReplyTo;
use super::child::{ChildInfo, ChildSpec, Parent, Restart, Shutdown, Strategy, SupervisorSpec};
use super::clock::Clock;
use super::exit::{Reason, guard};
use super::link::Signal;
use super::observe::Snapshot;
use super::options::SpawnError;
use super::pid::{Pid, TimerRef};
use super::process::{Ctx, Info, Next, Process};

/// Why a supervisor did not do what it was asked.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SupervisorError {
    /// The child did not start.
    #[error("child not started: {0}")]
    Start(#[from] SpawnError),
    /// The child ended before its start was complete.
    #[error("child ended while it started: {0}")]
    Ended(Reason),
    /// Another child has the id.
    #[error("a child with this id exists")]
    Exists,
    /// The child runs; only a stopped one can be restarted or deleted.
    #[error("child is running")]
    Running,
    /// No child has the id.
    #[error("no such child")]
    NotFound,
    /// The supervisor is stopping.
    #[error("supervisor is stopping")]
    Stopping,
}

/// The answer to a request about a child.
pub type ChildReply = ReplyTo<Result<Pid, SupervisorError>>;

/// What a running supervisor can be asked.
pub enum SupervisorMsg {
    /// Adds a child at the end of the order and starts it. One that fails to start is forgotten.
    StartChild(ChildSpec, ChildReply),
    /// Stops a child; its specification stays (but for temporary and dynamic ones). Answers when it has ended.
    TerminateChild(Arc<str>, ReplyTo<Result<(), SupervisorError>>),
    /// The same by pid; for dynamic children, whose ids need not be unique.
    TerminatePid(Pid, ReplyTo<Result<(), SupervisorError>>),
    /// Starts a child that was stopped.
    RestartChild(Arc<str>, ChildReply),
    /// Forgets a child that was stopped.
    DeleteChild(Arc<str>, ReplyTo<Result<(), SupervisorError>>),
    /// The children in their order.
    WhichChildren(ReplyTo<Vec<ChildInfo>>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Not running, and not to be.
    Stopped,
    /// To be started by a step of the plan.
    Planned,
    Starting,
    Running,
    Stopping,
}

struct Child {
    spec: ChildSpec,
    pid: Option<Pid>,
    phase: Phase,
    restarts: u32,
    on_start: Option<ChildReply>,
    on_stop: Vec<ReplyTo<Result<(), SupervisorError>>>,
    kill_timer: Option<TimerRef>,
    /// Forget the child when it has stopped.
    forget: bool,
}

impl Child {
    fn new(spec: ChildSpec, on_start: Option<ChildReply>) -> Child {
        Child {
            spec,
            pid: None,
            phase: Phase::Planned,
            restarts: 0,
            on_start,
            on_stop: Vec::new(),
            kill_timer: None,
            forget: false,
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Start(usize),
    Stop(usize),
}

/// The supervisor process. It never waits: a plan of steps is worked off as the children report their starts and ends.
pub struct Supervisor {
    strategy: Strategy,
    intensity: u32,
    period: Duration,
    children: Slab<Child>,
    /// Keys in start order.
    order: Vec<usize>,
    by_pid: AHashMap<Pid, usize>,
    plan: VecDeque<Step>,
    /// The child whose start or end the next step waits for; never set for dynamic ones.
    waiting: Option<usize>,
    clock: Arc<dyn Clock>,
    restarts: VecDeque<Duration>,
    restarts_total: u64,
    complete: bool,
    ending: Option<Reason>,
}

impl Process for Supervisor {
    type Args = SupervisorSpec;
    type Msg = SupervisorMsg;
    const NAME: &'static str = "supervisor";

    fn init(spec: SupervisorSpec, ctx: &mut Ctx<Self>) -> Result<Self, Reason> {
        ctx.trap_exit(true);
        ctx.defer_started();
        let mut supervisor = Supervisor {
            strategy: spec.strategy,
            intensity: spec.intensity,
            period: spec.period,
            children: Slab::new(),
            order: Vec::new(),
            by_pid: AHashMap::new(),
            plan: VecDeque::new(),
            waiting: None,
            clock: Arc::clone(ctx.system().clock()),
            restarts: VecDeque::new(),
            restarts_total: 0,
            complete: false,
            ending: None,
        };
        for child in spec.children {
            if supervisor.strategy != Strategy::Dynamic && supervisor.key_of(&child.id).is_some() {
                return Err(Reason::error(format_args!(
                    "two children are called {:?}",
                    child.id
                )));
            }
            supervisor.add(child, None);
        }
        match supervisor.advance(ctx) {
            Next::Continue => Ok(supervisor),
            Next::Stop(reason) => Err(reason),
        }
    }

    fn handle(&mut self, msg: SupervisorMsg, ctx: &mut Ctx<Self>) -> Next {
        match msg {
            SupervisorMsg::StartChild(spec, reply_to) => self.start_child(spec, reply_to),
            SupervisorMsg::TerminateChild(id, reply_to) => {
                let key = self.key_of(&id);
                self.terminate_child(key, reply_to);
            }
            SupervisorMsg::TerminatePid(pid, reply_to) => {
                let key = self.by_pid.get(&pid).copied();
                self.terminate_child(key, reply_to);
            }
            SupervisorMsg::RestartChild(id, reply_to) => self.restart_child(&id, reply_to),
            SupervisorMsg::DeleteChild(id, reply_to) => self.delete_child(&id, reply_to),
            SupervisorMsg::WhichChildren(reply_to) => reply_to.reply(self.which_children()),
        }
        self.advance(ctx)
    }

    fn handle_info(&mut self, info: Info, ctx: &mut Ctx<Self>) -> Next {
        match info {
            Info::Exit { from, reason } if self.by_pid.contains_key(&from) => {
                self.child_ended(from, reason, ctx)
            }
            Info::Exit {
                from: Pid::OUTSIDE,
                reason,
            } => return self.parent_exit(reason, ctx),
            Info::Exit { from, reason } => {
                tracing::warn!(pid = %ctx.pid(), %from, %reason, "exit signal from a stranger ignored");
            }
            Info::Started { pid } => self.child_started(pid),
            Info::Timer(key) => self.kill_late(key, ctx),
            Info::Down { .. } => {}
        }
        self.advance(ctx)
    }

    fn parent_exit(&mut self, reason: Reason, ctx: &mut Ctx<Self>) -> Next {
        self.end_with(reason);
        self.advance(ctx)
    }

    fn snapshot(&self) -> Snapshot {
        Snapshot::default()
            .with("strategy", format_args!("{:?}", self.strategy))
            .with("children", self.children.len())
            .with("running", self.by_pid.len())
            .with("restarts", self.restarts_total)
    }
}

/// Requests.
impl Supervisor {
    fn add(&mut self, spec: ChildSpec, on_start: Option<ChildReply>) {
        let key = self.children.insert(Child::new(spec, on_start));
        if self.strategy != Strategy::Dynamic {
            self.order.push(key);
        }
        self.plan.push_back(Step::Start(key));
    }

    fn key_of(&self, id: &str) -> Option<usize> {
        self.children
            .iter()
            .find(|(_, child)| *child.spec.id == *id)
            .map(|(key, _)| key)
    }

    fn start_child(&mut self, spec: ChildSpec, reply_to: ChildReply) {
        if self.ending.is_some() {
            reply_to.reply(Err(SupervisorError::Stopping));
        } else if self.strategy != Strategy::Dynamic && self.key_of(&spec.id).is_some() {
            reply_to.reply(Err(SupervisorError::Exists));
        } else {
            self.add(spec, Some(reply_to));
        }
    }

    fn terminate_child(&mut self, key: Option<usize>, reply_to: ReplyTo<Result<(), SupervisorError>>) {
        let Some(child) = key.and_then(|key| self.children.get_mut(key)) else {
            reply_to.reply(Err(SupervisorError::NotFound));
            return;
        };
        child.on_stop.push(reply_to);
        child.forget |= self.strategy == Strategy::Dynamic || child.spec.restart == Restart::Temporary;
        self.plan.extend(key.map(Step::Stop));
    }

    fn restart_child(&mut self, id: &str, reply_to: ChildReply) {
        let found = self.key_of(id).map(|key| (key, &mut self.children[key]));
        match found {
            _ if self.ending.is_some() => reply_to.reply(Err(SupervisorError::Stopping)),
            None => reply_to.reply(Err(SupervisorError::NotFound)),
            Some((key, child)) if child.phase == Phase::Stopped => {
                child.phase = Phase::Planned;
                child.on_start = Some(reply_to);
                self.plan.push_back(Step::Start(key));
            }
            Some(_) => reply_to.reply(Err(SupervisorError::Running)),
        }
    }

    fn delete_child(&mut self, id: &str, reply_to: ReplyTo<Result<(), SupervisorError>>) {
        let answer = match self.key_of(id) {
            None => Err(SupervisorError::NotFound),
            Some(key) if self.children[key].phase == Phase::Stopped => {
                self.forget(key);
                Ok(())
            }
            Some(_) => Err(SupervisorError::Running),
        };
        reply_to.reply(answer);
    }

    fn which_children(&self) -> Vec<ChildInfo> {
        let info = |child: &Child| ChildInfo {
            id: Arc::clone(&child.spec.id),
            pid: child.pid,
            kind: child.spec.kind,
            restart: child.spec.restart,
            restarts: child.restarts,
        };
        if self.strategy == Strategy::Dynamic {
            self.children.iter().map(|(_, child)| info(child)).collect()
        } else {
            self.order.iter().map(|key| info(&self.children[*key])).collect()
        }
    }
}

/// The plan.
impl Supervisor {
    /// Works off steps until one has to wait.
    fn advance(&mut self, ctx: &mut Ctx<Self>) -> Next {
        loop {
            if self.waiting.is_some() {
                return Next::Continue;
            }
            match self.plan.pop_front() {
                Some(Step::Start(key)) => self.begin_start(key, ctx),
                Some(Step::Stop(key)) => self.begin_stop(key, ctx),
                None => break,
            }
        }
        if let Some(reason) = self.ending.take_if(|_| self.by_pid.is_empty()) {
            return Next::Stop(reason);
        }
        if !self.complete && self.ending.is_none() && self.all_running() {
            self.complete = true;
            ctx.started();
        }
        Next::Continue
    }

    fn all_running(&self) -> bool {
        self.children
            .iter()
            .all(|(_, child)| child.phase != Phase::Starting)
    }

    /// Ordered strategies go on only when this child has reported.
    fn wait_for(&mut self, key: usize) {
        if self.strategy != Strategy::Dynamic {
            self.waiting = Some(key);
        }
    }

    fn reported(&mut self, key: usize) {
        if self.waiting == Some(key) {
            self.waiting = None;
        }
    }

    fn begin_start(&mut self, key: usize, ctx: &mut Ctx<Self>) {
        let Some(child) = self
            .children
            .get_mut(key)
            .filter(|child| child.phase == Phase::Planned)
        else {
            return;
        };
        let start = Arc::clone(&child.spec.start);
        let parent = Parent::new(ctx.system(), ctx.pid(), child.restarts);
        match guard(|| start(&parent)).unwrap_or_else(|reason| Err(SpawnError::Init(reason))) {
            Ok(pid) => {
                child.pid = Some(pid);
                child.phase = Phase::Starting;
                self.by_pid.insert(pid, key);
                // Most are linked already. For one that has died meanwhile this brings the exit signal.
                ctx.link(pid);
                let process = ctx.system().inner().table.get(pid);
                if process.is_some_and(|process| process.core().relations.lock().started) {
                    self.child_started(pid);
                } else {
                    self.wait_for(key);
                }
            }
            Err(error) => self.start_failed(key, SupervisorError::Start(error)),
        }
    }

    fn child_started(&mut self, pid: Pid) {
        let Some(key) = self.by_pid.get(&pid).copied() else {
            return;
        };
        let child = &mut self.children[key];
        if child.phase != Phase::Starting {
            return;
        }
        child.phase = Phase::Running;
        if let Some(reply_to) = child.on_start.take() {
            reply_to.reply(Ok(pid));
        }
        self.reported(key);
    }

    fn start_failed(&mut self, key: usize, error: SupervisorError) {
        let child = &mut self.children[key];
        child.phase = Phase::Stopped;
        tracing::warn!(child = %child.spec.id, %error, "child did not start");
        if let Some(reply_to) = child.on_start.take() {
            reply_to.reply(Err(error));
            self.forget(key);
        } else if !self.complete {
            let reason = Reason::error(format_args!("child {:?}: {error}", child.spec.id));
            self.end_with(reason);
        } else if self.ending.is_none() {
            // A restart that fails counts as the next death, so that a broken child uses the intensity up.
            self.restart(key);
        }
    }

    fn begin_stop(&mut self, key: usize, ctx: &mut Ctx<Self>) {
        let Some(child) = self.children.get_mut(key) else {
            return;
        };
        let Some(pid) = child.pid else {
            self.child_stopped(key);
            return;
        };
        if child.phase != Phase::Stopping {
            child.phase = Phase::Stopping;
            let reason = match child.spec.shutdown {
                Shutdown::Brutal => Reason::Killed,
                Shutdown::After(_) | Shutdown::Infinity => Reason::Shutdown,
            };
            if let Shutdown::After(limit) = child.spec.shutdown {
                child.kill_timer = Some(ctx.send_after(limit, key as u64));
            }
            ctx.system().inner().signal(
                pid,
                Signal::Exit {
                    from: ctx.pid(),
                    reason,
                    linked: false,
                },
            );
        }
        self.wait_for(key);
    }

    /// The time that a child had to stop is over.
    fn kill_late(&mut self, key: u64, ctx: &mut Ctx<Self>) {
        let child = usize::try_from(key)
            .ok()
            .and_then(|key| self.children.get_mut(key));
        if let Some(child) = child.filter(|child| child.phase == Phase::Stopping)
            && let (Some(pid), Some(_)) = (child.pid, child.kill_timer.take())
        {
            tracing::warn!(child = %child.spec.id, %pid, "child did not stop in time and is killed");
            let kill = Signal::Exit {
                from: ctx.pid(),
                reason: Reason::Killed,
                linked: false,
            };
            ctx.system().inner().signal(pid, kill);
        }
    }

    fn child_ended(&mut self, pid: Pid, reason: Reason, ctx: &mut Ctx<Self>) {
        let Some(key) = self.by_pid.remove(&pid) else {
            return;
        };
        let child = &mut self.children[key];
        child.pid = None;
        if let Some(timer) = child.kill_timer.take() {
            ctx.cancel(timer);
        }
        match child.phase {
            Phase::Starting => {
                self.reported(key);
                self.start_failed(key, SupervisorError::Ended(reason));
            }
            Phase::Running => self.child_died(key, &reason),
            Phase::Stopping | Phase::Stopped | Phase::Planned => {
                self.reported(key);
                self.child_stopped(key);
            }
        }
    }

    /// A child has ended as it was told to.
    fn child_stopped(&mut self, key: usize) {
        let planned = self
            .plan
            .iter()
            .any(|step| matches!(step, Step::Start(other) if *other == key));
        let child = &mut self.children[key];
        child.phase = if planned { Phase::Planned } else { Phase::Stopped };
        let asked = std::mem::take(&mut child.on_stop);
        if child.forget {
            self.forget(key);
        }
        for reply_to in asked {
            reply_to.reply(Ok(()));
        }
    }

    /// A child has ended by itself.
    fn child_died(&mut self, key: usize, reason: &Reason) {
        let child = &mut self.children[key];
        child.phase = Phase::Stopped;
        let again = match child.spec.restart {
            Restart::Permanent => true,
            Restart::Transient => !reason.is_orderly(),
            Restart::Temporary => false,
        };
        if again && self.ending.is_none() {
            tracing::warn!(child = %child.spec.id, %reason, "child ended and is restarted");
            self.restart(key);
        } else if self.strategy == Strategy::Dynamic || child.spec.restart == Restart::Temporary {
            self.forget(key);
        }
    }

    fn forget(&mut self, key: usize) {
        self.plan
            .retain(|step| !matches!(step, Step::Start(other) | Step::Stop(other) if *other == key));
        self.order.retain(|other| *other != key);
        drop(self.children.try_remove(key));
    }

    /// Plans the restart after the death of a child, unless there were too many.
    fn restart(&mut self, key: usize) {
        let now = self.clock.now_monotonic();
        self.restarts.push_back(now);
        while self
            .restarts
            .front()
            .is_some_and(|first| now.saturating_sub(*first) > self.period)
        {
            self.restarts.pop_front();
        }
        if self.restarts.len() > self.intensity as usize {
            let id = &self.children[key].spec.id;
            let text = format!(
                "restart intensity exceeded: {} restarts within {:?}, the last of child {id:?}",
                self.restarts.len(),
                self.period
            );
            self.end_with(Reason::error(text));
            return;
        }
        self.restarts_total += 1;
        self.children[key].restarts += 1;
        let position = self.order.iter().position(|other| *other == key).unwrap_or(0);
        let affected: Vec<usize> = match self.strategy {
            Strategy::OneForOne | Strategy::Dynamic => vec![key],
            Strategy::OneForAll => self.order.clone(),
            Strategy::RestForOne => self.order[position..].to_vec(),
        };
        // Starts that an earlier death planned take their place in the new order.
        self.plan
            .retain(|step| !matches!(step, Step::Start(other) if affected.contains(other)));
        for other in affected.iter().rev().filter(|other| **other != key) {
            let child = &mut self.children[*other];
            child.forget |= child.spec.restart == Restart::Temporary;
            if child.pid.is_some() {
                self.plan.push_back(Step::Stop(*other));
            }
        }
        self.children[key].phase = Phase::Planned;
        for other in affected {
            let child = &self.children[other];
            // One that somebody asked to terminate stays down, and so does one that was down before.
            let runs = child.pid.is_some() && !child.forget && child.on_stop.is_empty();
            if runs || child.phase == Phase::Planned {
                self.plan.push_back(Step::Start(other));
            }
        }
    }

    /// Begins the end: all children in reverse order, then the supervisor itself. Dynamic ones stop side by side.
    fn end_with(&mut self, reason: Reason) {
        if self.ending.is_some() {
            return;
        }
        self.ending = Some(reason);
        self.waiting = self
            .waiting
            .filter(|key| self.children[*key].phase == Phase::Stopping);
        self.plan.clear();
        if self.strategy == Strategy::Dynamic {
            self.plan
                .extend(self.children.iter().map(|(key, _)| Step::Stop(key)));
        } else {
            self.plan
                .extend(self.order.iter().rev().map(|key| Step::Stop(*key)));
        }
    }
}
