//! What the tests share: a system for one test, and a process that can do everything on order.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use settee_actors::runtime::{
    Ctx, Info, Next, Process, Reason, Ref, ReplyTo, Snapshot, SpawnOptions, System, SystemOptions,
};
use tokio::task::LocalSet;

/// Longer than anything in these tests takes.
pub const SOON: Duration = Duration::from_secs(5);

/// Runs a test with a local system inside a plain `LocalSet`, and stops the system afterwards.
pub async fn with_system(test: impl AsyncFnOnce(&System)) {
    LocalSet::new()
        .run_until(async {
            let system = System::local(SystemOptions::default());
            test(&system).await;
            system.stop(SOON).await;
            assert_eq!(system.process_count(), 0, "processes are left after stop");
        })
        .await;
}

/// A log that several processes write into.
#[derive(Clone, Default)]
pub struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    pub fn add(&self, line: impl Into<String>) {
        self.0.lock().unwrap().push(line.into());
    }

    pub fn lines(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }

    pub fn clear(&self) {
        self.0.lock().unwrap().clear();
    }
}

type Job = Box<dyn FnOnce(&mut Worker, &mut Ctx<Worker>) -> Next + Send>;

/// The messages of a [`Worker`].
pub enum Order {
    /// Adds one to the count.
    Add,
    /// Asks for the count.
    Count(ReplyTo<u64>),
    /// Writes a line into the log.
    Note(String),
    /// Keeps the token and never answers.
    Keep(ReplyTo<u64>),
    /// Drops the token.
    Ignore(ReplyTo<u64>),
    /// Panics while it holds the token.
    PanicHolding(ReplyTo<u64>),
    /// Runs a function inside the process.
    Do(Job),
    /// Panics.
    Panic,
    /// Ends with this reason.
    Stop(Reason),
}

/// How a [`Worker`] is made.
#[derive(Clone, Default)]
pub struct Setup {
    pub id: &'static str,
    pub log: Log,
    pub trap: bool,
}

/// A process that does what it is told and logs its life.
pub struct Worker {
    pub id: &'static str,
    pub log: Log,
    pub count: u64,
    pub kept: Vec<ReplyTo<u64>>,
}

impl Process for Worker {
    type Args = Setup;
    type Msg = Order;
    const NAME: &'static str = "worker";

    fn init(args: Setup, ctx: &mut Ctx<Self>) -> Result<Self, Reason> {
        ctx.trap_exit(args.trap);
        args.log.add(format!("start {}", args.id));
        Ok(Worker {
            id: args.id,
            log: args.log,
            count: 0,
            kept: Vec::new(),
        })
    }

    fn handle(&mut self, msg: Order, ctx: &mut Ctx<Self>) -> Next {
        match msg {
            Order::Add => self.count += 1,
            Order::Count(reply_to) => reply_to.reply(self.count),
            Order::Note(line) => self.log.add(line),
            Order::Keep(reply_to) => self.kept.push(reply_to),
            Order::Ignore(reply_to) => drop(reply_to),
            Order::PanicHolding(_reply_to) => panic!("ordered panic"),
            Order::Do(job) => return job(self, ctx),
            Order::Panic => panic!("ordered panic"),
            Order::Stop(reason) => return Next::Stop(reason),
        }
        Next::Continue
    }

    fn handle_info(&mut self, info: Info, _ctx: &mut Ctx<Self>) -> Next {
        self.log.add(match info {
            Info::Exit { reason, .. } => format!("exit {reason}"),
            Info::Down { reason, .. } => format!("down {reason}"),
            Info::Timer(token) => format!("timer {token}"),
            Info::Started { .. } => "started".to_owned(),
        });
        Next::Continue
    }

    fn terminate(&mut self, reason: &Reason, _ctx: &mut Ctx<Self>) {
        self.log.add(format!("end {} {}", self.id, short(reason)));
    }

    fn snapshot(&self) -> Snapshot {
        Snapshot::default().with("count", self.count)
    }
}

/// A reason without the parts that vary.
pub fn short(reason: &Reason) -> String {
    match reason {
        Reason::Panic { .. } => "panic".to_owned(),
        Reason::Linked { reason, .. } => format!("linked {}", short(reason)),
        other => other.to_string(),
    }
}

/// Starts a worker with a log.
pub fn worker(system: &System, id: &'static str, log: &Log) -> Ref<Order> {
    let setup = Setup {
        id,
        log: log.clone(),
        trap: false,
    };
    system.spawn::<Worker>(setup, SpawnOptions::default()).unwrap()
}

/// The same, trapping exits.
pub fn trapper(system: &System, id: &'static str, log: &Log) -> Ref<Order> {
    let setup = Setup {
        id,
        log: log.clone(),
        trap: true,
    };
    system.spawn::<Worker>(setup, SpawnOptions::default()).unwrap()
}

/// Runs `job` inside a process and waits until it has.
pub async fn inside<R: Send + 'static>(
    process: &Ref<Order>,
    job: impl FnOnce(&mut Worker, &mut Ctx<Worker>) -> R + Send + 'static,
) -> R {
    process
        .call(SOON, |reply_to: ReplyTo<R>| {
            Order::Do(Box::new(move |worker, ctx| {
                reply_to.reply(job(worker, ctx));
                Next::Continue
            }))
        })
        .await
        .unwrap()
}

/// Waits until a process has handled everything that was sent before.
pub async fn settle(process: &Ref<Order>) -> u64 {
    process.call(SOON, Order::Count).await.unwrap()
}

/// Lets so much simulated time pass: these tests run with a paused clock, which jumps when nothing is left to do.
pub async fn pass(time: Duration) {
    tokio::time::sleep_until(tokio::time::Instant::now() + time).await;
}
