//! The runtime beside bare actix: cast, call, spawn, and the memory of an idle process.
//!
//! Each pair does the same work on one thread. The bare actix side uses `do_send` and `send`, its cheapest ways, with
//! none of the runtime's guarantees: no bound, no deadline, no panic isolation, no links, no table.
#![expect(
    clippy::disallowed_methods,
    reason = "real time is measured, beside what actix does without bounds"
)]
#![expect(clippy::unwrap_used, reason = "a benchmark stops at the first surprise")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use actix::{Actor, Context, Handler, Message};
use criterion::{Criterion, criterion_group, criterion_main};
use settee_actors::runtime::{
    Ctx, Next, Process, RealClock, Reason, Ref, ReplyTo, SpawnOptions, System, SystemOptions,
};
use tokio::runtime::{Builder, Runtime};
use tokio::task::LocalSet;

/// Messages that a producer sends before it waits until they are handled.
const BATCH: u64 = 8192;

/// Idle processes whose memory is measured.
const IDLE: usize = 100_000;

const DEADLINE: Duration = Duration::from_secs(30);

struct Counter(u64);

enum Msg {
    Add(u64),
    Sum(ReplyTo<u64>),
}

impl Process for Counter {
    type Args = ();
    type Msg = Msg;
    const NAME: &'static str = "counter";

    fn init((): (), _: &mut Ctx<Self>) -> Result<Self, Reason> {
        Ok(Counter(0))
    }

    fn handle(&mut self, msg: Msg, _: &mut Ctx<Self>) -> Next {
        match msg {
            Msg::Add(number) => self.0 = self.0.wrapping_add(number),
            Msg::Sum(reply_to) => reply_to.reply(self.0),
        }
        Next::Continue
    }
}

struct Bare(u64);

impl Actor for Bare {
    type Context = Context<Self>;
}

#[derive(Message)]
#[rtype(result = "()")]
struct Add(u64);

#[derive(Message)]
#[rtype(result = "u64")]
struct Sum;

impl Handler<Add> for Bare {
    type Result = ();

    fn handle(&mut self, msg: Add, _: &mut Context<Self>) {
        self.0 = self.0.wrapping_add(msg.0);
    }
}

impl Handler<Sum> for Bare {
    type Result = u64;

    fn handle(&mut self, _: Sum, _: &mut Context<Self>) -> u64 {
        self.0
    }
}

/// One thread's event loop with a system on it, torn down in order.
struct Stage {
    runtime: Runtime,
    local: LocalSet,
    system: System,
}

impl Stage {
    fn new() -> Stage {
        let runtime = Builder::new_current_thread().enable_time().build().unwrap();
        let local = LocalSet::new();
        let options = SystemOptions::default().clock(Arc::new(RealClock::new()));
        let system = local.block_on(&runtime, async { System::local(options) });
        Stage {
            runtime,
            local,
            system,
        }
    }

    /// Runs as a spawned task, as processes themselves do; the body of a `LocalSet` is polled more seldom.
    fn run<T: 'static>(&self, work: impl Future<Output = T> + 'static) -> T {
        self.local.block_on(&self.runtime, async {
            tokio::task::spawn_local(work).await.unwrap()
        })
    }

    fn counter(&self) -> Ref<Msg> {
        let options = SpawnOptions::default().capacity(usize::try_from(BATCH).unwrap() + 1);
        self.local.block_on(&self.runtime, async {
            self.system.spawn::<Counter>((), options).unwrap()
        })
    }

    fn end(self) {
        self.local.block_on(&self.runtime, self.system.stop(DEADLINE));
    }
}

/// Time per message, when a producer sends a batch and waits for its end.
fn cast(c: &mut Criterion) {
    let mut group = c.benchmark_group("cast");
    let stage = Stage::new();
    let process = stage.counter();
    group.bench_function("process", |b| {
        b.iter_custom(|messages| {
            let process = process.clone();
            stage.run(async move {
                let started = Instant::now();
                let mut left = messages;
                while left > 0 {
                    let batch = left.min(BATCH);
                    for number in 0..batch {
                        process.cast(Msg::Add(number)).unwrap();
                    }
                    process.call(DEADLINE, Msg::Sum).await.unwrap();
                    left -= batch;
                }
                started.elapsed()
            })
        });
    });
    let bare = stage.local.block_on(&stage.runtime, async { Bare(0).start() });
    group.bench_function("bare actix", |b| {
        b.iter_custom(|messages| {
            let bare = bare.clone();
            stage.run(async move {
                let started = Instant::now();
                let mut left = messages;
                while left > 0 {
                    let batch = left.min(BATCH);
                    for number in 0..batch {
                        bare.do_send(Add(number));
                    }
                    bare.send(Sum).await.unwrap();
                    left -= batch;
                }
                started.elapsed()
            })
        });
    });
    group.finish();
    stage.end();
}

/// Time per request and answer, one at a time; the process's calls have a deadline.
fn call(c: &mut Criterion) {
    let mut group = c.benchmark_group("call");
    let stage = Stage::new();
    let process = stage.counter();
    group.bench_function("process", |b| {
        b.iter_custom(|calls| {
            let process = process.clone();
            stage.run(async move {
                let started = Instant::now();
                for _ in 0..calls {
                    process.call(DEADLINE, Msg::Sum).await.unwrap();
                }
                started.elapsed()
            })
        });
    });
    let bare = stage.local.block_on(&stage.runtime, async { Bare(0).start() });
    group.bench_function("bare actix", |b| {
        b.iter_custom(|calls| {
            let bare = bare.clone();
            stage.run(async move {
                let started = Instant::now();
                for _ in 0..calls {
                    bare.send(Sum).await.unwrap();
                }
                started.elapsed()
            })
        });
    });
    group.finish();
    stage.end();
}

/// Time per start, the first turn included; the ends are not counted.
fn spawn(c: &mut Criterion) {
    let mut group = c.benchmark_group("spawn");
    let stage = Stage::new();
    group.bench_function("process", |b| {
        b.iter_custom(|count| {
            let system = stage.system.uncounted();
            stage.run(async move {
                let mut took = Duration::ZERO;
                let mut left = count;
                while left > 0 {
                    let batch = left.min(BATCH);
                    let started = Instant::now();
                    let processes: Vec<_> = (0..batch)
                        .map(|_| system.spawn::<Counter>((), SpawnOptions::default()).unwrap())
                        .collect();
                    processes.last().unwrap().call(DEADLINE, Msg::Sum).await.unwrap();
                    took += started.elapsed();
                    for process in &processes {
                        system.exit(process.pid(), Reason::Killed);
                    }
                    system.wait_exit(processes.last().unwrap().pid()).await;
                    left -= batch;
                }
                took
            })
        });
    });
    group.bench_function("bare actix", |b| {
        b.iter_custom(|count| {
            stage.run(async move {
                let mut took = Duration::ZERO;
                let mut left = count;
                while left > 0 {
                    let batch = left.min(BATCH);
                    let started = Instant::now();
                    let actors: Vec<_> = (0..batch).map(|_| Bare(0).start()).collect();
                    actors.last().unwrap().send(Sum).await.unwrap();
                    took += started.elapsed();
                    drop(actors);
                    tokio::task::yield_now().await;
                    left -= batch;
                }
                took
            })
        });
    });
    group.finish();
    stage.end();
}

/// Resident bytes of this program, from the kernel; zero where it does not tell.
fn resident() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: usize = text
        .split_whitespace()
        .nth(1)
        .and_then(|pages| pages.parse().ok())
        .unwrap_or(0);
    pages * 4096
}

/// Prints the resident memory per idle process, after its first turn.
#[expect(
    clippy::print_stdout,
    reason = "this is a figure for the reader, beside criterion's own"
)]
fn memory(_: &mut Criterion) {
    let stage = Stage::new();
    let before = resident();
    let system = stage.system.uncounted();
    let kept = stage.run(async move {
        let kept: Vec<Ref<Msg>> = (0..IDLE)
            .map(|_| system.spawn::<Counter>((), SpawnOptions::default()).unwrap())
            .collect();
        kept.last().unwrap().call(DEADLINE, Msg::Sum).await.unwrap();
        kept
    });
    let bytes = resident().saturating_sub(before) / IDLE;
    println!("memory: {bytes} bytes resident for each of {IDLE} idle processes");
    drop(kept);
    stage.end();
}

criterion_group! {
    name = benches;
    config = Criterion::default().measurement_time(Duration::from_secs(3)).warm_up_time(Duration::from_secs(1));
    targets = memory, cast, call, spawn
}
criterion_main!(benches);
