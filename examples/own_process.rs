//! A process of our own in the node's tree: it follows the changes of a database, and survives its own panic.
//!
//! Run with `cargo run --example own_process`.

use settee::actors::coordinator::{
    ChangesArgs, ChangesEvent, ChangesStream, Coordinator, DbError, Feed, Since,
};
use settee::actors::runtime::{ChildSpec, Ctx, Next, Process, Reason, Ref, ReplyTo, SpawnOptions};
use settee::engine::ids::DbName;
use settee::{Node, NodeConfig};
use std::error::Error;
use std::io::Write;
use std::time::Duration;

const DEADLINE: Duration = Duration::from_secs(10);
const NAME: &str = "counter";

/// Counts the changes of a database since it was started.
struct Counter {
    changes: u64,
    waiting: Vec<(u64, ReplyTo<u64>)>,
}

enum Msg {
    /// From itself: what the feed told, and the feed to go on with.
    Told(Option<Result<ChangesEvent, DbError>>, ChangesStream),
    /// Answer when so many changes have been seen.
    WaitFor(u64, ReplyTo<u64>),
    /// A fault, to show what it does.
    Crash,
}

/// A message with a stream in it moves between callbacks of one process only, so the feed is opened in the process.
async fn open(coordinator: Coordinator, db: DbName) -> Result<ChangesStream, DbError> {
    let args = ChangesArgs {
        since: Since::Zero,
        feed: Feed::Continuous,
        heartbeat: Some(Duration::from_secs(60)),
        ..ChangesArgs::default()
    };
    coordinator.changes(&db, args).await
}

async fn follow(mut feed: ChangesStream) -> (Option<Result<ChangesEvent, DbError>>, ChangesStream) {
    (feed.next().await, feed)
}

impl Process for Counter {
    type Args = (Coordinator, DbName);
    type Msg = Msg;
    const NAME: &'static str = "counter";

    fn init((coordinator, db): Self::Args, ctx: &mut Ctx<Self>) -> Result<Self, Reason> {
        let first = async move {
            match open(coordinator, db).await {
                Ok(feed) => follow(feed).await,
                Err(error) => panic!("the feed did not open: {error}"),
            }
        };
        ctx.spawn_future(first, |(event, feed)| Msg::Told(event, feed));
        Ok(Self {
            changes: 0,
            waiting: Vec::new(),
        })
    }

    fn handle(&mut self, msg: Msg, ctx: &mut Ctx<Self>) -> Next {
        match msg {
            Msg::Told(Some(Ok(event)), feed) => {
                if let ChangesEvent::Rows(rows) = &event {
                    self.changes += rows.len() as u64;
                }
                ctx.spawn_future(follow(feed), |(event, feed)| Msg::Told(event, feed));
            }
            Msg::Told(Some(Err(error)), _) => return Next::Stop(Reason::error(error)),
            Msg::Told(None, _) => return Next::Stop(Reason::Normal),
            Msg::WaitFor(count, reply) => self.waiting.push((count, reply)),
            Msg::Crash => panic!("as asked"),
        }
        let reached = self.waiting.extract_if(.., |(count, _)| *count <= self.changes);
        for (_, reply) in reached {
            reply.reply(self.changes);
        }
        Next::Continue
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    settee::blocking::wait(run())
}

async fn run() -> Result<(), Box<dyn Error>> {
    let directory = tempfile::tempdir()?;
    let mut out = std::io::stdout();
    let node = Node::open(NodeConfig::new(directory.path())).await?;
    let notes = node.create_database("notes").await?;

    let args = (node.coordinator().clone(), notes.db_name().clone());
    let child = ChildSpec::worker::<Counter>("counter", args, SpawnOptions::default().named(NAME));
    let first = node.supervise(child).await?;
    for n in 0..10 {
        notes.put(&format!("n{n}"), br#"{"x":1}"#).await?;
    }
    let counter: Ref<Msg> = node.system().find(NAME).ok_or("it is registered")?;
    let seen = counter.call(DEADLINE, |reply| Msg::WaitFor(10, reply)).await?;
    writeln!(out, "{first} has seen {seen} changes")?;

    // It panics; its supervisor builds a fresh one under the same name, which follows the feed from the beginning.
    counter.cast(Msg::Crash).map_err(|_| "it is alive")?;
    writeln!(out, "{first} ended: {}", node.system().wait_exit(first).await)?;
    let again = loop {
        match node
            .system()
            .find::<Msg>(NAME)
            .filter(|again| again.pid() != first)
        {
            Some(again) => break again,
            None => tokio::task::yield_now().await,
        }
    };
    notes.put("n10", br#"{"x":1}"#).await?;
    let seen = again.call(DEADLINE, |reply| Msg::WaitFor(11, reply)).await?;
    writeln!(out, "{} has seen {seen} changes", again.pid())?;
    assert_eq!(seen, 11);

    node.shutdown().await;
    Ok(())
}
