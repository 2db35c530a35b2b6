//! The only file that names actix: contexts that host processes, and arbiters that run them.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::mpsc;
use std::task::{Context as TaskContext, Poll};
use std::thread::{self, ThreadId};

use actix::fut::ActorFuture;
use actix::{Actor, ActorContext, Arbiter, ArbiterHandle, AsyncContext, Context};
use tokio::sync::{mpsc as queue, oneshot};

use super::process::{Process, Runner};

/// The actor that hosts one process. actix gives it a context and a place on an arbiter; mailbox, turns, panics and exit
/// are the runner's.
struct Proc<P: Process> {
    runner: Runner<P>,
}

impl<P: Process> Actor for Proc<P> {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        ctx.spawn(Turns);
    }
}

/// The one future in a process's context: it takes turns until the process ends.
struct Turns;

impl<P: Process> ActorFuture<Proc<P>> for Turns {
    type Output = ();

    fn poll(
        self: Pin<&mut Self>,
        actor: &mut Proc<P>,
        ctx: &mut Context<Proc<P>>,
        task: &mut TaskContext<'_>,
    ) -> Poll<()> {
        let polled = actor.runner.poll(task);
        if polled.is_ready() {
            ctx.stop();
        }
        polled
    }
}

/// Hosts a process on the current thread, which must run a `LocalSet`.
pub(crate) fn host<P: Process>(runner: Runner<P>) {
    // The address is not kept: processes are reached by their own mailbox, and the context lives by its future.
    drop(Proc { runner }.start());
}

type Task = Box<dyn FnOnce() + Send>;

/// A thread that runs processes.
pub(crate) struct Executor {
    thread: ThreadId,
    way: Way,
}

enum Way {
    /// The thread that made the system; the queue is for spawns from other threads.
    Local(queue::UnboundedSender<Task>),
    Arbiter(ArbiterHandle),
}

impl Executor {
    /// The current thread, inside its `LocalSet`.
    ///
    /// # Panics
    /// Panics outside a `LocalSet`.
    pub(crate) fn local() -> Executor {
        let (tx, mut rx) = queue::unbounded_channel::<Task>();
        tokio::task::spawn_local(async move {
            while let Some(task) = rx.recv().await {
                task();
            }
        });
        Executor {
            thread: thread::current().id(),
            way: Way::Local(tx),
        }
    }

    /// Whether the caller is on this executor's thread.
    pub(crate) fn is_here(&self) -> bool {
        self.thread == thread::current().id()
    }

    /// Runs a function on the executor's thread; false if that has ended.
    pub(crate) fn execute(&self, task: Task) -> bool {
        match &self.way {
            Way::Local(tx) => tx.send(task).is_ok(),
            Way::Arbiter(handle) => handle.spawn_fn(task),
        }
    }
}

/// Runs a future on the current thread's `LocalSet`.
pub(crate) fn spawn_here(future: impl Future<Output = ()> + 'static) {
    drop(tokio::task::spawn_local(future));
}

/// The arbiters of one system, and the thread that keeps their actix system.
pub(crate) struct Threads {
    stop: Option<oneshot::Sender<()>>,
    ended: Option<oneshot::Receiver<()>>,
}

impl Threads {
    /// Starts `count` arbiters (at least one).
    ///
    /// # Errors
    /// When a thread or its event loop cannot be made.
    pub(crate) fn start(count: usize, name: &str) -> io::Result<(Threads, Vec<Executor>)> {
        let (ready_tx, ready_rx) = mpsc::channel();
        let (stop_tx, stop_rx) = oneshot::channel();
        let (ended_tx, ended_rx) = oneshot::channel();
        thread::Builder::new()
            .name(format!("{name}-arbiters"))
            .spawn(move || {
                actix::System::new().block_on(async move {
                    let arbiters: Vec<Arbiter> = (0..count.max(1)).map(|_| Arbiter::new()).collect();
                    // Both ends of these channels stay within `start` and this thread; a failed send means that the
                    // starter has gone, and then there is nobody to serve.
                    let _ = ready_tx.send(arbiters.iter().map(executor_of).collect::<Option<Vec<_>>>());
                    let _ = stop_rx.await;
                    for arbiter in &arbiters {
                        arbiter.stop();
                    }
                    for arbiter in arbiters {
                        let _ = arbiter.join();
                    }
                });
                let _ = ended_tx.send(());
            })?;
        let executors = ready_rx.recv().ok().flatten();
        let executors = executors.ok_or_else(|| io::Error::other("arbiters did not start"))?;
        Ok((
            Threads {
                stop: Some(stop_tx),
                ended: Some(ended_rx),
            },
            executors,
        ))
    }

    /// Orders the end; the returned future is ready when every arbiter's thread has ended.
    pub(crate) fn stop(mut self) -> impl Future<Output = ()> {
        let ended = self.ended.take();
        drop(self);
        async move {
            if let Some(ended) = ended {
                let _ = ended.await;
            }
        }
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
    }
}

fn executor_of(arbiter: &Arbiter) -> Option<Executor> {
    let (tx, rx) = mpsc::channel();
    arbiter.spawn_fn(move || {
        let _ = tx.send(thread::current().id());
    });
    let thread = rx.recv().ok()?;
    Some(Executor {
        thread,
        way: Way::Arbiter(arbiter.handle()),
    })
}
