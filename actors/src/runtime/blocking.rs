//! Blocking pools: threads for work that may block, fed by bounded crossbeam channels.

use std::collections::VecDeque;
use std::fmt;
use std::hash::Hash;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::thread;

use ahash::{AHashMap, RandomState};
use crossbeam_channel::{Receiver, Sender, TrySendError, bounded, select_biased};
use parking_lot::Mutex;
use thiserror::Error;

use super::call::{ReplyTo, TurnFrame};
use super::exit::{Reason, guard};

/// Jobs a lane runs in one go before other work gets its thread.
const LANE_QUANTUM: usize = 16;

/// How a pool is made.
#[derive(Clone, Copy, Debug)]
pub struct PoolOptions {
    /// Threads. Zero runs each job at once on the thread that submits it: for simulations, where other threads would
    /// spoil the order of things.
    pub threads: usize,
    /// Jobs that may wait, for the pool and again for each lane; at least 1.
    pub queue: usize,
}

impl Default for PoolOptions {
    fn default() -> Self {
        PoolOptions {
            threads: 4,
            queue: 1024,
        }
    }
}

impl PoolOptions {
    /// A pool without threads, see [`PoolOptions::threads`].
    pub fn inline() -> PoolOptions {
        PoolOptions {
            threads: 0,
            ..PoolOptions::default()
        }
    }

    /// A pool with that many threads.
    pub fn threads(threads: usize) -> PoolOptions {
        PoolOptions {
            threads,
            ..PoolOptions::default()
        }
    }
}

/// Why a job has no result.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PoolError {
    /// The queue is at its limit; the job was not taken.
    #[error("blocking pool is full")]
    Full,
    /// The pool has stopped; the job was not run.
    #[error("blocking pool has stopped")]
    Stopped,
    /// The job panicked; the pool goes on.
    #[error("job failed: {0}")]
    Panicked(Reason),
}

/// What a pool is doing, see [`BlockingPool::stats`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolStats {
    /// Threads of the pool.
    pub threads: usize,
    /// Jobs that wait, those of the lanes included.
    pub queued: usize,
    /// Jobs that run now.
    pub busy: usize,
    /// Jobs that ended well.
    pub done: u64,
    /// Jobs that panicked.
    pub panicked: u64,
    /// Jobs that were refused because of a full queue.
    pub refused: u64,
}

type Job = Box<dyn FnOnce() + Send>;

enum Work {
    Job(Job),
    Lane(Arc<LaneInner>),
}

/// A pool of threads for blocking work. Clones are handles of the same pool.
#[derive(Clone)]
pub struct BlockingPool {
    shared: Arc<Shared>,
}

struct Shared {
    name: Arc<str>,
    threads: usize,
    queue: usize,
    work: Sender<Work>,
    /// Dropping the sender is the order to stop.
    stop: Mutex<Option<Sender<()>>>,
    stopped: AtomicBool,
    lanes: Mutex<AHashMap<u64, Weak<LaneInner>>>,
    hasher: RandomState,
    counters: Counters,
}

#[derive(Default)]
struct Counters {
    queued: AtomicUsize,
    busy: AtomicUsize,
    done: AtomicU64,
    panicked: AtomicU64,
    refused: AtomicU64,
}

impl fmt::Debug for BlockingPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BlockingPool({:?}, {:?})", self.shared.name, self.stats())
    }
}

impl BlockingPool {
    /// Starts a pool's threads. One that cannot be made is logged and missing; a pool with none of its threads runs its
    /// jobs inline.
    pub fn new(name: &str, options: PoolOptions) -> BlockingPool {
        let queue = options.queue.max(1);
        let (work, jobs) = bounded(queue);
        let (stop, stopping) = bounded(0);
        let start = |shared: &Arc<Shared>, index: usize| {
            let (shared, jobs, stopping) = (Arc::clone(shared), jobs.clone(), stopping.clone());
            let thread_name = format!("{}-{index}", shared.name);
            let made = thread::Builder::new()
                .name(thread_name)
                .spawn(move || work_loop(&shared, &jobs, &stopping));
            if let Err(error) = &made {
                tracing::error!(pool = name, %error, "thread of a blocking pool not started");
            }
            made.is_ok()
        };
        let shared = Arc::new(Shared {
            name: name.into(),
            threads: options.threads,
            queue,
            work,
            stop: Mutex::new(Some(stop)),
            stopped: AtomicBool::new(false),
            lanes: Mutex::new(AHashMap::new()),
            hasher: RandomState::with_seeds(1, 2, 3, 4),
            counters: Counters::default(),
        });
        let started = (0..options.threads)
            .filter(|index| start(&shared, *index))
            .count();
        if started == 0 && options.threads > 0 {
            return BlockingPool::new(
                name,
                PoolOptions {
                    threads: 0,
                    ..options
                },
            );
        }
        BlockingPool { shared }
    }

    /// The pool's name.
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    /// What the pool is doing.
    pub fn stats(&self) -> PoolStats {
        let Shared {
            threads, counters, ..
        } = &*self.shared;
        PoolStats {
            threads: *threads,
            queued: counters.queued.load(Ordering::Relaxed),
            busy: counters.busy.load(Ordering::Relaxed),
            done: counters.done.load(Ordering::Relaxed),
            panicked: counters.panicked.load(Ordering::Relaxed),
            refused: counters.refused.load(Ordering::Relaxed),
        }
    }

    /// Runs a job on one of the threads; it answers by a [`ReplyTo`] token it carries, if at all. A token in a job that
    /// panics, or that never runs, fails its caller at once.
    ///
    /// # Errors
    /// `Full` or `Stopped`; the job is then dropped.
    pub fn submit(&self, job: impl FnOnce() + Send + 'static) -> Result<(), PoolError> {
        let shared = &self.shared;
        if shared.stopped.load(Ordering::Acquire) {
            return Err(PoolError::Stopped);
        }
        if shared.threads == 0 {
            run_job(shared, Box::new(job));
            return Ok(());
        }
        shared.enqueue(Work::Job(Box::new(job)))
    }

    /// Runs a job and waits for its result.
    ///
    /// # Errors
    /// `Full` or `Stopped` if it was not run, `Panicked` if it did not end well.
    pub async fn run<R: Send + 'static>(
        &self,
        job: impl FnOnce() -> R + Send + 'static,
    ) -> Result<R, PoolError> {
        let (reply_to, answer) = ReplyTo::pair();
        self.submit(move || reply_to.reply(job()))?;
        answer.wait().await.map_err(PoolError::Panicked)
    }

    /// The serial lane of `key`: its jobs run one at a time, in order, on whichever thread is free. The same key gives the
    /// same lane as long as someone holds it or it has work.
    pub fn lane(&self, key: impl Hash) -> Lane {
        let key = self.shared.hasher.hash_one(key);
        let mut lanes = self.shared.lanes.lock();
        let lane = lanes.get(&key).and_then(Weak::upgrade).unwrap_or_else(|| {
            lanes.retain(|_, lane| lane.strong_count() > 0);
            let lane = Arc::new(LaneInner::default());
            lanes.insert(key, Arc::downgrade(&lane));
            lane
        });
        Lane {
            shared: Arc::clone(&self.shared),
            lane,
        }
    }

    /// Takes no more jobs; those that wait are still run, then the threads end.
    pub fn stop(&self) {
        self.shared.stopped.store(true, Ordering::Release);
        drop(self.shared.stop.lock().take());
    }
}

/// A serial lane of a pool, see [`BlockingPool::lane`].
#[derive(Clone)]
pub struct Lane {
    shared: Arc<Shared>,
    lane: Arc<LaneInner>,
}

#[derive(Default)]
struct LaneInner {
    state: Mutex<LaneState>,
}

#[derive(Default)]
struct LaneState {
    jobs: VecDeque<Job>,
    /// The lane is in the pool's queue or on a thread.
    scheduled: bool,
}

impl Lane {
    /// Runs a job after those that were submitted to this lane before. As [`BlockingPool::submit`].
    ///
    /// # Errors
    /// `Full` or `Stopped`; the job is then dropped.
    pub fn submit(&self, job: impl FnOnce() + Send + 'static) -> Result<(), PoolError> {
        let shared = &self.shared;
        if shared.stopped.load(Ordering::Acquire) {
            return Err(PoolError::Stopped);
        }
        {
            let mut state = self.lane.state.lock();
            if state.jobs.len() >= shared.queue {
                shared.counters.refused.fetch_add(1, Ordering::Relaxed);
                return Err(PoolError::Full);
            }
            state.jobs.push_back(Box::new(job));
            shared.counters.queued.fetch_add(1, Ordering::Relaxed);
            if state.scheduled {
                return Ok(());
            }
            state.scheduled = true;
        }
        if shared.threads == 0 {
            while !run_lane(shared, &self.lane) {}
            return Ok(());
        }
        match shared.enqueue(Work::Lane(Arc::clone(&self.lane))) {
            Ok(()) => Ok(()),
            Err(error) => {
                // The lane was idle, so what it holds came in since the mark was set: this job, and perhaps others that
                // relied on it. None of them can run now.
                let refused = {
                    let mut state = self.lane.state.lock();
                    state.scheduled = false;
                    std::mem::take(&mut state.jobs)
                };
                shared.counters.queued.fetch_sub(refused.len(), Ordering::Relaxed);
                Err(error)
            }
        }
    }

    /// Runs a job in this lane and waits for its result.
    ///
    /// # Errors
    /// As [`BlockingPool::run`].
    pub async fn run<R: Send + 'static>(
        &self,
        job: impl FnOnce() -> R + Send + 'static,
    ) -> Result<R, PoolError> {
        let (reply_to, answer) = ReplyTo::pair();
        self.submit(move || reply_to.reply(job()))?;
        answer.wait().await.map_err(PoolError::Panicked)
    }

    /// Jobs of this lane that wait.
    pub fn queued(&self) -> usize {
        self.lane.state.lock().jobs.len()
    }
}

impl Shared {
    fn enqueue(&self, work: Work) -> Result<(), PoolError> {
        let is_job = matches!(work, Work::Job(_));
        if is_job {
            self.counters.queued.fetch_add(1, Ordering::Relaxed);
        }
        let error = match self.work.try_send(work) {
            Ok(()) => return Ok(()),
            Err(TrySendError::Full(_)) => {
                self.counters.refused.fetch_add(1, Ordering::Relaxed);
                PoolError::Full
            }
            Err(TrySendError::Disconnected(_)) => PoolError::Stopped,
        };
        if is_job {
            self.counters.queued.fetch_sub(1, Ordering::Relaxed);
        }
        Err(error)
    }
}

fn work_loop(shared: &Arc<Shared>, jobs: &Receiver<Work>, stopping: &Receiver<()>) {
    loop {
        select_biased! {
            recv(jobs) -> work => match work {
                Ok(work) => do_work(shared, work),
                Err(_) => return,
            },
            // Nobody ever sends: the channel only ends. Jobs come first in this choice, so the queue is empty by now.
            recv(stopping) -> _ => return,
        }
    }
}

fn do_work(shared: &Arc<Shared>, work: Work) {
    match work {
        Work::Job(job) => {
            shared.counters.queued.fetch_sub(1, Ordering::Relaxed);
            run_job(shared, job);
        }
        Work::Lane(lane) => {
            // A lane that has more goes to the end of the queue; if that is full, it keeps its thread: waiting for room
            // in a queue that only these threads empty would never end.
            let mut lane = lane;
            while !run_lane(shared, &lane) {
                match shared.work.try_send(Work::Lane(lane)) {
                    Ok(()) => return,
                    Err(
                        TrySendError::Full(Work::Lane(back)) | TrySendError::Disconnected(Work::Lane(back)),
                    ) => {
                        lane = back;
                    }
                    Err(_) => return,
                }
            }
        }
    }
}

/// Runs a quantum of a lane's jobs. Returns whether the lane is now idle.
fn run_lane(shared: &Shared, lane: &LaneInner) -> bool {
    for _ in 0..LANE_QUANTUM {
        let job = {
            let mut state = lane.state.lock();
            let job = state.jobs.pop_front();
            state.scheduled = job.is_some();
            job
        };
        let Some(job) = job else { return true };
        shared.counters.queued.fetch_sub(1, Ordering::Relaxed);
        run_job(shared, job);
    }
    false
}

/// Runs one job; a panic in it stays in it.
fn run_job(shared: &Shared, job: Job) {
    shared.counters.busy.fetch_add(1, Ordering::Relaxed);
    let frame = TurnFrame::enter();
    let result = guard(job);
    shared.counters.busy.fetch_sub(1, Ordering::Relaxed);
    match &result {
        Ok(()) => shared.counters.done.fetch_add(1, Ordering::Relaxed),
        Err(reason) => {
            tracing::error!(pool = %shared.name, %reason, "job of a blocking pool panicked");
            shared.counters.panicked.fetch_add(1, Ordering::Relaxed)
        }
    };
    // Counted before the tokens fail, so that whoever learns of the panic also sees it counted.
    frame.leave(result.as_ref().err());
}
