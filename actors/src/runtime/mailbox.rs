//! The mailbox: a bounded user lane, a control lane that overtakes it, and the typed reference to it.

use std::any::Any;
use std::collections::VecDeque;
use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::task::Waker;
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use tokio::sync::Notify;

use super::call::{CallError, Pending, ReplyTo, SendError, block_on_until, in_turn};
use super::exit::Reason;
use super::link::{Relations, Signal};
use super::pid::Pid;

/// Messages a mailbox holds unless its [`MailboxOptions`] say otherwise.
pub const DEFAULT_CAPACITY: usize = 1024;

/// What happens to a message for a full mailbox.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// The sender gets it back with `Full`.
    #[default]
    Reject,
    /// `call` and `send` wait for room within their deadline; `cast`, which cannot wait, is refused.
    Wait,
    /// The oldest queued message makes room; a call that is dropped so fails at once.
    DropOldest,
}

/// The bound of a mailbox and what happens at it.
#[derive(Clone, Copy, Debug)]
pub struct MailboxOptions {
    /// Messages of the user lane, at least 1.
    pub capacity: usize,
    /// What happens to the next one.
    pub policy: Policy,
}

impl Default for MailboxOptions {
    fn default() -> Self {
        MailboxOptions {
            capacity: DEFAULT_CAPACITY,
            policy: Policy::Reject,
        }
    }
}

/// What is common to processes of every message type.
pub(crate) struct Core {
    pub(crate) pid: Pid,
    pub(crate) parent: Pid,
    pub(crate) behaviour: &'static str,
    pub(crate) executor: u32,
    pub(crate) restarts: u32,
    /// Whether the parent wants a signal when the start is complete.
    pub(crate) announce: bool,
    pub(crate) name: RwLock<Option<Arc<str>>>,
    pub(crate) handled: AtomicU64,
    /// Monotonic microseconds plus one at which the present turn began; 0 when idle.
    pub(crate) busy_since: AtomicU64,
    pub(crate) relations: Mutex<Relations>,
}

/// A process without its message type.
pub(crate) trait AnyProcess: Send + Sync + 'static {
    fn core(&self) -> &Core;
    fn signal(&self, signal: Signal);
    fn queue_len(&self) -> usize;
    fn capacity(&self) -> usize;
    fn into_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync>;
}

/// What a look into the mailbox found: a signal, or a message, or neither.
pub(crate) struct Popped<M> {
    pub(crate) control: Option<Box<Signal>>,
    pub(crate) user: Option<M>,
    /// The mailbox is empty now, and wakes the process for more.
    pub(crate) parked: bool,
}

struct Lanes<M> {
    control: VecDeque<Signal>,
    user: VecDeque<M>,
    waker: Option<Waker>,
    closed: Option<Reason>,
}

pub(crate) struct Mailbox<M> {
    core: Core,
    lanes: Mutex<Lanes<M>>,
    capacity: usize,
    policy: Policy,
    /// Signalled when room appears; only mailboxes that let senders wait have one.
    room: Option<Box<Notify>>,
}

impl<M: Send + 'static> Mailbox<M> {
    pub(crate) fn new(core: Core, options: MailboxOptions) -> Mailbox<M> {
        let room = (options.policy == Policy::Wait).then(Box::default);
        let lanes = Lanes {
            control: VecDeque::new(),
            user: VecDeque::new(),
            waker: None,
            closed: None,
        };
        Mailbox {
            core,
            lanes: Mutex::new(lanes),
            capacity: options.capacity.max(1),
            policy: options.policy,
            room,
        }
    }

    pub(crate) fn core_ref(&self) -> &Core {
        &self.core
    }

    /// Puts a message at the end of the user lane.
    pub(crate) fn push(&self, msg: M) -> Result<(), SendError<M>> {
        let (waker, dropped) = {
            let mut lanes = self.lanes.lock();
            if lanes.closed.is_some() {
                return Err(SendError::NoProc(msg));
            }
            let mut dropped = None;
            if lanes.user.len() >= self.capacity {
                if self.policy != Policy::DropOldest {
                    return Err(SendError::Full(msg));
                }
                dropped = lanes.user.pop_front();
            }
            lanes.user.push_back(msg);
            (lanes.waker.take(), dropped)
        };
        // A dropped message may run foreign code (its reply token), so the lock is free again by now.
        drop(dropped);
        if let Some(waker) = waker {
            waker.wake();
        }
        Ok(())
    }

    /// Puts a result of the process's own asynchronous work into the user lane; the bound does not apply, because the
    /// process itself limits how much it started.
    pub(crate) fn push_own(&self, msg: M) {
        let mut lanes = self.lanes.lock();
        if lanes.closed.is_none() {
            lanes.user.push_back(msg);
        }
    }

    /// The next piece of work, control first. When the mailbox is empty after that, `waker` (where one is given) is left to
    /// be woken for more: an exchange of one message takes the lock once.
    ///
    /// The two kinds come back side by side and not as one enum, because a signal is much larger than most messages, and
    /// every message would be copied at its size.
    #[inline]
    pub(crate) fn pop(&self, waker: Option<&Waker>) -> Popped<M> {
        let mut lanes = self.lanes.lock();
        let control = if lanes.control.is_empty() {
            None
        } else {
            lanes.control.pop_front().map(Box::new)
        };
        let user = if control.is_none() {
            lanes.user.pop_front()
        } else {
            None
        };
        let empty = lanes.control.is_empty() && lanes.user.is_empty();
        let parked = match waker {
            Some(waker) if empty => {
                // An idle process gives a grown queue back.
                if user.is_none() && lanes.user.capacity() > IDLE_CAPACITY {
                    lanes.user.shrink_to(IDLE_CAPACITY);
                }
                if !lanes.waker.as_ref().is_some_and(|old| old.will_wake(waker)) {
                    lanes.waker = Some(waker.clone());
                }
                true
            }
            _ => false,
        };
        drop(lanes);
        if let (Some(room), Some(_)) = (&self.room, &user) {
            room.notify_one();
        }
        Popped {
            control,
            user,
            parked,
        }
    }

    /// Closes the mailbox; what was queued is dropped, outside the lock.
    pub(crate) fn close(&self, reason: &Reason) {
        let (control, user) = {
            let mut lanes = self.lanes.lock();
            lanes.closed.get_or_insert_with(|| reason.clone());
            lanes.waker = None;
            (
                std::mem::take(&mut lanes.control),
                std::mem::take(&mut lanes.user),
            )
        };
        drop(control);
        drop(user);
        if let Some(room) = &self.room {
            room.notify_waiters();
        }
    }

    fn is_closed(&self) -> bool {
        self.lanes.lock().closed.is_some()
    }

    /// Pushes, waiting for room where the policy says so.
    async fn push_waiting(&self, mut msg: M) -> Result<(), SendError<M>> {
        let Some(room) = &self.room else {
            return self.push(msg);
        };
        loop {
            let mut notified = pin!(room.notified());
            // Registered before the attempt, so that room made in between is not missed.
            notified.as_mut().enable();
            match self.push(msg) {
                Err(SendError::Full(back)) => msg = back,
                done => return done,
            }
            notified.await;
        }
    }
}

/// Slots an idle mailbox keeps; a burst gives the rest back.
const IDLE_CAPACITY: usize = 64;

impl<M: Send + 'static> AnyProcess for Mailbox<M> {
    fn core(&self) -> &Core {
        &self.core
    }

    fn signal(&self, signal: Signal) {
        let waker = {
            let mut lanes = self.lanes.lock();
            if lanes.closed.is_some() {
                return;
            }
            lanes.control.push_back(signal);
            lanes.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn queue_len(&self) -> usize {
        let lanes = self.lanes.lock();
        lanes.control.len() + lanes.user.len()
    }

    fn capacity(&self) -> usize {
        self.capacity
    }

    fn into_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync> {
        self
    }
}

/// A typed reference to one incarnation of a process. Holding one does not keep the process alive.
pub struct Ref<M: Send + 'static> {
    pub(crate) mailbox: Arc<Mailbox<M>>,
}

impl<M: Send + 'static> Clone for Ref<M> {
    fn clone(&self) -> Self {
        Ref {
            mailbox: Arc::clone(&self.mailbox),
        }
    }
}

impl<M: Send + 'static> fmt::Debug for Ref<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Ref({} {})", self.pid(), self.mailbox.core.behaviour)
    }
}

impl<M: Send + 'static> PartialEq for Ref<M> {
    fn eq(&self, other: &Self) -> bool {
        self.pid() == other.pid()
    }
}

impl<M: Send + 'static> Eq for Ref<M> {}

impl<M: Send + 'static> Ref<M> {
    /// The process's identity.
    pub fn pid(&self) -> Pid {
        self.mailbox.core.pid
    }

    /// Whether the process still takes messages.
    pub fn is_alive(&self) -> bool {
        !self.mailbox.is_closed()
    }

    /// Why the process ended, if it has.
    pub fn exit_reason(&self) -> Option<Reason> {
        self.mailbox.lanes.lock().closed.clone()
    }

    /// Messages that wait in both lanes.
    pub fn queue_len(&self) -> usize {
        self.mailbox.queue_len()
    }

    /// Sends without waiting for anything. Two casts of one sender arrive in their order.
    ///
    /// # Errors
    /// The message comes back when the mailbox is full (unless its policy drops the oldest) or the process is dead.
    pub fn cast(&self, msg: M) -> Result<(), SendError<M>> {
        self.mailbox.push(msg)
    }

    /// Sends; where the mailbox's policy is [`Policy::Wait`] it waits for room, at most `deadline`.
    ///
    /// # Errors
    /// As [`Ref::cast`], but a wait that ends at the deadline loses the message and is `Err(CallError::Timeout)`.
    pub async fn send(&self, deadline: Duration, msg: M) -> Result<(), CallError> {
        match tokio::time::timeout(deadline, self.mailbox.push_waiting(msg)).await {
            Ok(sent) => sent.map_err(|error| CallError::Undelivered(error.kind())),
            Err(_) => Err(CallError::Timeout),
        }
    }

    /// Asks and waits for the answer, at most `deadline`. Must run inside a tokio runtime.
    ///
    /// A request whose caller has given up stays queued, as in Erlang; its process can see that nobody waits by
    /// [`ReplyTo::is_wanted`].
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn call<R: Send + 'static>(
        &self,
        deadline: Duration,
        make: impl FnOnce(ReplyTo<R>) -> M,
    ) -> Result<R, CallError> {
        let (reply_to, answer) = ReplyTo::pair();
        let msg = make(reply_to);
        if self.mailbox.room.is_none() {
            self.mailbox
                .push(msg)
                .map_err(|error| CallError::Undelivered(error.kind()))?;
            return Pending::new(answer, deadline).await;
        }
        let started = tokio::time::Instant::now();
        match self.send(deadline, msg).await {
            // No room until the deadline: nothing was queued, so the caller may repeat it safely.
            Err(CallError::Timeout) => Err(CallError::Undelivered(super::call::Undelivered::Full)),
            Err(error) => Err(error),
            Ok(()) => answer.within(deadline.saturating_sub(started.elapsed())).await,
        }
    }

    /// The same as [`Ref::call`], for a plain thread: it blocks. Never use it inside a process: it would stall every
    /// process of its thread.
    ///
    /// # Errors
    /// See [`CallError`].
    pub fn call_blocking<R: Send + 'static>(
        &self,
        deadline: Duration,
        make: impl FnOnce(ReplyTo<R>) -> M,
    ) -> Result<R, CallError> {
        if in_turn() {
            tracing::warn!(callee = %self.pid(), "blocking call inside a process or a job");
        }
        #[expect(
            clippy::disallowed_methods,
            reason = "a thread outside the system waits in real time"
        )]
        let started = std::time::Instant::now();
        let (reply_to, answer) = ReplyTo::pair();
        match block_on_until(self.mailbox.push_waiting(make(reply_to)), deadline) {
            Some(sent) => sent.map_err(|error| CallError::Undelivered(error.kind()))?,
            None => return Err(CallError::Undelivered(super::call::Undelivered::Full)),
        }
        answer.within_blocking(deadline.saturating_sub(started.elapsed()))
    }
}
