//! Reply tokens, call errors and the waiting half of a call.

use std::cell::RefCell;
use std::fmt;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use thiserror::Error;
use tokio::sync::oneshot;
use tokio::time::Sleep;

use super::exit::Reason;

/// Why a message was not taken; the message comes back.
pub enum SendError<M> {
    /// The mailbox is at its limit.
    Full(M),
    /// The process is dead, or never was.
    NoProc(M),
}

impl<M> SendError<M> {
    /// The refused message.
    pub fn into_inner(self) -> M {
        match self {
            SendError::Full(msg) | SendError::NoProc(msg) => msg,
        }
    }

    /// The cause without the message.
    pub fn kind(&self) -> Undelivered {
        match self {
            SendError::Full(_) => Undelivered::Full,
            SendError::NoProc(_) => Undelivered::NoProc,
        }
    }
}

impl<M> fmt::Debug for SendError<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SendError::{:?}", self.kind())
    }
}

impl<M> fmt::Display for SendError<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.kind(), f)
    }
}

impl<M> std::error::Error for SendError<M> {}

/// Why a message did not reach a mailbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Undelivered {
    /// The mailbox is at its limit.
    #[error("mailbox full")]
    Full,
    /// The process is dead, or never was.
    #[error("no such process")]
    NoProc,
}

/// Why a call has no answer.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CallError {
    /// The request never entered the mailbox: it was certainly not handled.
    #[error("call not delivered: {0}")]
    Undelivered(Undelivered),
    /// The process ended, or let go of the token, before it answered; the request may have been handled in part.
    #[error("called process ended: {0}")]
    Died(Reason),
    /// No answer within the deadline; the request may still be handled later.
    #[error("call timed out")]
    Timeout,
}

/// The right to answer one call, once, from any thread.
///
/// Dropping it unanswered makes the caller fail at once with [`CallError::Died`]: with the exit reason if the process
/// that held it dies, else with a note that the token was dropped.
pub struct ReplyTo<R: Send + 'static> {
    tx: Option<oneshot::Sender<Result<R, Reason>>>,
}

impl<R: Send + 'static> ReplyTo<R> {
    /// A token and the future of its answer, for questions that are not calls to a process.
    pub fn pair() -> (ReplyTo<R>, Answer<R>) {
        let (tx, rx) = oneshot::channel();
        (ReplyTo { tx: Some(tx) }, Answer { rx })
    }

    /// Answers. An answer nobody waits for any more is dropped.
    pub fn reply(mut self, answer: R) {
        if let Some(tx) = self.tx.take() {
            let _ = tx.send(Ok(answer));
        }
    }

    /// Fails the call with a reason of the answerer's choice.
    pub fn fail(mut self, reason: Reason) {
        if let Some(tx) = self.tx.take() {
            let _ = tx.send(Err(reason));
        }
    }

    /// Whether the caller still waits; `false` after its deadline. Long work may ask before it begins.
    pub fn is_wanted(&self) -> bool {
        self.tx.as_ref().is_some_and(|tx| !tx.is_closed())
    }
}

impl<R: Send + 'static> fmt::Debug for ReplyTo<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ReplyTo")
    }
}

impl<R: Send + 'static> Drop for ReplyTo<R> {
    fn drop(&mut self) {
        let Some(tx) = self.tx.take() else { return };
        if tx.is_closed() {
            return;
        }
        let mut orphan: Option<Orphan> = Some(Box::new(move |reason| {
            let _ = tx.send(Err(reason));
        }));
        let kept = FRAME.try_with(|frame| {
            let mut frame = frame.borrow_mut();
            if frame.depth > 0 {
                frame.orphans.extend(orphan.take());
            }
        });
        if let (Ok(()) | Err(_), Some(orphan)) = (kept, orphan) {
            orphan(Reason::unanswered());
        }
    }
}

type Orphan = Box<dyn FnOnce(Reason)>;

/// Tokens dropped while a process runs on this thread wait here until it is known whether the process survives, so that
/// their callers learn the true reason.
struct Frame {
    depth: u32,
    orphans: Vec<Orphan>,
}

thread_local! {
    static FRAME: RefCell<Frame> = const { RefCell::new(Frame { depth: 0, orphans: Vec::new() }) };
}

/// Marks the begin of a process's turn (or of a job) on this thread.
pub(crate) struct TurnFrame {
    mark: usize,
}

impl TurnFrame {
    pub(crate) fn enter() -> TurnFrame {
        FRAME.with(|frame| {
            let mut frame = frame.borrow_mut();
            frame.depth += 1;
            TurnFrame {
                mark: frame.orphans.len(),
            }
        })
    }

    /// Ends the turn; the tokens dropped in it fail with `reason`, or as unanswered.
    pub(crate) fn leave(self, reason: Option<&Reason>) {
        let orphans = FRAME.with(|frame| {
            let mut frame = frame.borrow_mut();
            frame.depth -= 1;
            if frame.orphans.len() > self.mark {
                frame.orphans.split_off(self.mark)
            } else {
                Vec::new()
            }
        });
        for orphan in orphans {
            orphan(reason.cloned().unwrap_or_else(Reason::unanswered));
        }
    }
}

/// Whether the current thread is inside a process's turn.
pub(crate) fn in_turn() -> bool {
    FRAME.try_with(|frame| frame.borrow().depth > 0).unwrap_or(false)
}

/// The future of an answer, without a deadline of its own; from [`ReplyTo::pair`].
pub struct Answer<R> {
    rx: oneshot::Receiver<Result<R, Reason>>,
}

impl<R: Send + 'static> Answer<R> {
    /// Waits for the answer at most `deadline`.
    ///
    /// # Errors
    /// [`CallError::Died`] when the token was dropped, [`CallError::Timeout`] at the deadline.
    pub async fn within(self, deadline: Duration) -> Result<R, CallError> {
        Pending::new(self, deadline).await
    }

    /// Waits without a deadline, for answerers inside this module that always answer or drop.
    pub(crate) async fn wait(self) -> Result<R, Reason> {
        self.rx.await.unwrap_or_else(|_| Err(Reason::unanswered()))
    }

    fn poll_answer(&mut self, cx: &mut Context<'_>) -> Poll<Result<R, CallError>> {
        Pin::new(&mut self.rx).poll(cx).map(|received| match received {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(reason)) => Err(CallError::Died(reason)),
            Err(_) => Err(CallError::Died(Reason::unanswered())),
        })
    }
}

/// An answer being waited for, with its deadline.
///
/// The timer is armed only at the second poll: a peer on the same thread has answered by then, and arming a timer costs
/// more than the whole exchange. So the deadline counts from the caller's next turn.
pub(crate) struct Pending<R> {
    answer: Answer<R>,
    deadline: Duration,
    yielded: bool,
    sleep: Option<Pin<Box<Sleep>>>,
}

impl<R> Pending<R> {
    pub(crate) fn new(answer: Answer<R>, deadline: Duration) -> Pending<R> {
        Pending {
            answer,
            deadline,
            yielded: false,
            sleep: None,
        }
    }
}

impl<R: Send + 'static> Future for Pending<R> {
    type Output = Result<R, CallError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        if let Poll::Ready(answer) = this.answer.poll_answer(cx) {
            return Poll::Ready(answer);
        }
        if !this.yielded {
            this.yielded = true;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let deadline = this.deadline;
        let sleep = this
            .sleep
            .get_or_insert_with(|| Box::pin(tokio::time::sleep(deadline)));
        sleep.as_mut().poll(cx).map(|()| Err(CallError::Timeout))
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs a future on a plain thread until it is ready or the deadline has passed.
pub(crate) fn block_on_until<F: Future>(future: F, deadline: Duration) -> Option<F::Output> {
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut cx = Context::from_waker(&waker);
    #[expect(
        clippy::disallowed_methods,
        reason = "a thread outside the system waits in real time"
    )]
    let started = Instant::now();
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut cx) {
            return Some(output);
        }
        let left = deadline
            .checked_sub(started.elapsed())
            .filter(|left| !left.is_zero())?;
        thread::park_timeout(left);
    }
}

impl<R: Send + 'static> Answer<R> {
    /// The same as [`Answer::within`], on a plain thread.
    ///
    /// # Errors
    /// As [`Answer::within`].
    pub fn within_blocking(mut self, deadline: Duration) -> Result<R, CallError> {
        let answer = std::future::poll_fn(|cx| self.poll_answer(cx));
        block_on_until(answer, deadline).unwrap_or(Err(CallError::Timeout))
    }
}
