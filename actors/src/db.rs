//! One process per open shard: it serialises updates, and all that waits goes into one commit.
//!
//! The process itself never blocks. It puts what arrives into a queue; a job on the shard's serial lane of the blocking
//! pool takes everything that waits, commits it at once, publishes the new snapshot, answers the callers directly,
//! and looks again before it ends. Called by: the coordinator, by way of [`DbLease`](crate::open_db::DbLease).

use crate::open_db::OpenDb;
use crate::runtime::{Ctx, Lane, Next, Process, Reason, Ref, ReplyTo, Snapshot as ProcessSnapshot};
use crate::stats::Counters;
use parking_lot::Mutex;
use settee_engine::db::{self, Batch, BatchAnswer, DbWriter};
use std::collections::VecDeque;
use std::sync::Arc;

/// Edits that one commit takes at the most; what waits beyond goes into the next.
const COMMIT_DOCS_MAX: usize = 20_000;

/// Why a shard could not do what it was asked. Cloned to everyone who shared the commit.
pub type DbFailure = Arc<db::DbError>;

/// Messages of the database process.
#[derive(Debug)]
pub enum DbMsg {
    /// Apply and commit a batch.
    Update(Batch, ReplyTo<Result<BatchAnswer, DbFailure>>),
    /// Change something in the header.
    Set(Setting, ReplyTo<Result<(), DbFailure>>),
    /// Append one chunk of an attachment; answers offset and length.
    AppendAttachment(bytes::Bytes, ReplyTo<Result<(u64, u64), DbFailure>>),
    /// Finish what waits, then stop.
    Close(ReplyTo<()>),
    /// From the lane: everything that waited at `Close` is done.
    Closed,
    /// From the lane: a job panicked, or a write or sync failed. The writer cannot be trusted any more: the process
    /// ends, and the registry opens and verifies the file anew for the next user.
    Broken(String),
}

/// What can be set in a header.
#[derive(Debug)]
pub enum Setting {
    /// Raw term of the security members.
    Security(Vec<u8>),
    /// Revisions remembered of each document.
    RevsLimit(u64),
    /// Purge requests remembered.
    PurgeInfosLimit(u64),
}

/// What a database process is made from. A writer cannot be made twice from one file, so these processes are temporary:
/// after a crash the registry opens the file anew.
pub struct DbArgs {
    /// The shard, as everyone shares it.
    pub open: Arc<OpenDb>,
    /// The one writer of its file.
    pub writer: DbWriter,
    /// The serial lane of its jobs.
    pub lane: Lane,
    /// Counters of the node.
    pub counters: Arc<Counters>,
}

/// The process.
pub struct Db {
    shared: Arc<Shared>,
    lane: Lane,
    closing: Option<ReplyTo<()>>,
}

/// What the process and its lane share.
struct Shared {
    open: Arc<OpenDb>,
    counters: Arc<Counters>,
    me: Ref<DbMsg>,
    queue: Mutex<Queue>,
    /// Only the lane locks it, so there is never a wait.
    writer: Mutex<Option<DbWriter>>,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Job>,
    /// Whether a job on the lane looks after the queue.
    running: bool,
}

enum Job {
    Update(Batch, ReplyTo<Result<BatchAnswer, DbFailure>>),
    Set(Setting, ReplyTo<Result<(), DbFailure>>),
    AppendAttachment(bytes::Bytes, ReplyTo<Result<(u64, u64), DbFailure>>),
    Close,
}

impl Process for Db {
    type Args = DbArgs;
    type Msg = DbMsg;
    const NAME: &'static str = "db";

    fn init(args: DbArgs, ctx: &mut Ctx<Self>) -> Result<Self, Reason> {
        let shared = Shared {
            open: args.open,
            counters: args.counters,
            me: ctx.me(),
            queue: Mutex::default(),
            writer: Mutex::new(Some(args.writer)),
        };
        Ok(Self {
            shared: Arc::new(shared),
            lane: args.lane,
            closing: None,
        })
    }

    fn handle(&mut self, msg: DbMsg, _ctx: &mut Ctx<Self>) -> Next {
        match msg {
            DbMsg::Update(batch, reply) => self.enqueue(Job::Update(batch, reply)),
            DbMsg::Set(setting, reply) => self.enqueue(Job::Set(setting, reply)),
            DbMsg::AppendAttachment(data, reply) => self.enqueue(Job::AppendAttachment(data, reply)),
            DbMsg::Close(reply) => {
                self.closing = Some(reply);
                self.enqueue(Job::Close);
            }
            DbMsg::Closed => {
                if let Some(reply) = self.closing.take() {
                    reply.reply(());
                }
                return Next::Stop(Reason::Normal);
            }
            DbMsg::Broken(why) => return Next::Stop(Reason::error(why)),
        }
        Next::Continue
    }

    fn terminate(&mut self, reason: &Reason, _ctx: &mut Ctx<Self>) {
        // A node that stops does not ask each shard to close. After an error the writer is not to be trusted.
        if *reason == Reason::Shutdown {
            self.enqueue(Job::Close);
        }
    }

    fn snapshot(&self) -> ProcessSnapshot {
        let queue = self.shared.queue.lock();
        ProcessSnapshot::default()
            .with("shard", self.shared.open.name())
            .with("waiting", queue.waiting.len())
            .with("committing", queue.running)
    }
}

impl Db {
    fn enqueue(&self, job: Job) {
        let mut queue = self.shared.queue.lock();
        queue.waiting.push_back(job);
        if queue.running {
            return;
        }
        queue.running = true;
        drop(queue);
        let shared = Arc::clone(&self.shared);
        if let Err(refused) = self.lane.submit(move || drain(&shared)) {
            // Dropping the jobs tells their callers at once.
            let mut queue = self.shared.queue.lock();
            queue.running = false;
            queue.waiting.clear();
            tracing::error!(shard = self.shared.open.name(), %refused, "updates refused: the blocking pool takes no work");
        }
    }
}

/// Tells the process when a job panics; the writer may be half way through anything then.
struct PanicGuard<'a> {
    shared: &'a Shared,
    armed: bool,
}

impl Drop for PanicGuard<'_> {
    fn drop(&mut self) {
        if self.armed {
            let lost = std::mem::take(&mut self.shared.queue.lock().waiting);
            let why = format!(
                "a commit of {} panicked; {} requests were refused",
                self.shared.open.name(),
                lost.len()
            );
            if self.shared.me.cast(DbMsg::Broken(why)).is_err() {
                tracing::error!(
                    shard = self.shared.open.name(),
                    "a commit panicked and its process was gone"
                );
            }
        }
    }
}

/// The lane's job: takes what waits until nothing does.
fn drain(shared: &Shared) {
    let mut guard = PanicGuard { shared, armed: true };
    let mut writer = shared.writer.lock();
    // The process is told once; until it is gone, what still arrives gets the writer's own refusal.
    let mut latched = writer.as_ref().is_some_and(|writer| writer.latched().is_some());
    loop {
        let job = {
            let mut queue = shared.queue.lock();
            match queue.waiting.pop_front() {
                Some(job) => job,
                None => {
                    queue.running = false;
                    break;
                }
            }
        };
        let Some(open_writer) = writer.as_mut() else {
            // Closed: dropping the job tells its caller, who opens the shard anew.
            continue;
        };
        match job {
            Job::Update(batch, reply) => commit_group(shared, open_writer, batch, reply),
            Job::Set(setting, reply) => {
                let done = match setting {
                    Setting::Security(raw) => open_writer.set_security(&raw),
                    Setting::RevsLimit(limit) => open_writer.set_revs_limit(limit),
                    Setting::PurgeInfosLimit(limit) => open_writer.set_purge_infos_limit(limit),
                };
                if done.is_ok() {
                    shared.publish(open_writer);
                }
                reply.reply(done.map_err(Arc::new));
            }
            Job::AppendAttachment(data, reply) => {
                reply.reply(open_writer.append_attachment(&data).map_err(Arc::new));
            }
            Job::Close => {
                if let Some(writer) = writer.take() {
                    writer.close();
                }
                if shared.me.cast(DbMsg::Closed).is_err() {
                    tracing::debug!(shard = shared.open.name(), "closed after its process had gone");
                }
            }
        }
        let failure = writer.as_ref().and_then(DbWriter::latched);
        if let Some(failure) = failure.filter(|_| !latched) {
            latched = true;
            let why = format!("writing failed, so the file has to be verified: {failure}");
            if shared.me.cast(DbMsg::Broken(why)).is_err() {
                tracing::warn!(
                    shard = shared.open.name(),
                    "a write failed and its process was gone"
                );
            }
        }
    }
    guard.armed = false;
}

/// Commits a batch together with all further batches that wait behind it.
fn commit_group(
    shared: &Shared,
    writer: &mut DbWriter,
    first: Batch,
    reply: ReplyTo<Result<BatchAnswer, DbFailure>>,
) {
    let mut group = first;
    let mut members = vec![(group.docs.len(), group.locals.len(), reply)];
    {
        let mut queue = shared.queue.lock();
        while group.docs.len() < COMMIT_DOCS_MAX {
            match queue.waiting.pop_front() {
                Some(Job::Update(mut batch, reply)) => {
                    members.push((batch.docs.len(), batch.locals.len(), reply));
                    group.docs.append(&mut batch.docs);
                    group.locals.append(&mut batch.locals);
                }
                Some(other) => {
                    queue.waiting.push_front(other);
                    break;
                }
                None => break,
            }
        }
    }
    shared.counters.coalesced_updates.add(members.len() as u64 - 1);
    match writer.update(group) {
        Ok(answer) => {
            shared.counters.commits.increment();
            shared.counters.document_inserts.add(answer.counts.inserts);
            shared.counters.document_writes.add(answer.counts.writes);
            shared
                .counters
                .local_document_writes
                .add(answer.counts.local_writes);
            shared.publish(writer);
            let mut docs = answer.docs.into_iter();
            let mut locals = answer.locals.into_iter();
            for (doc_count, local_count, reply) in members {
                reply.reply(Ok(BatchAnswer {
                    docs: docs.by_ref().take(doc_count).collect(),
                    locals: locals.by_ref().take(local_count).collect(),
                    counts: answer.counts,
                }));
            }
        }
        Err(error) => {
            tracing::error!(shard = shared.open.name(), %error, "a commit failed; its {} requests are told", members.len());
            let error = Arc::new(error);
            for (_, _, reply) in members {
                reply.reply(Err(Arc::clone(&error)));
            }
        }
    }
}

impl Shared {
    fn publish(&self, writer: &DbWriter) {
        self.open.publish(writer.snapshot());
    }
}
