//! Talks to the node's own processes: finds the process of a shard, looks at it, sends it a message, and watches it.
//!
//! Run with `cargo run --example send_messages`.

use settee::actors::db::{DbMsg, Setting};
use settee::actors::runtime::Reason;
use settee::{Node, NodeConfig};
use std::error::Error;
use std::io::Write;
use std::time::Duration;

const DEADLINE: Duration = Duration::from_secs(5);

fn main() -> Result<(), Box<dyn Error>> {
    settee::blocking::wait(run())
}

async fn run() -> Result<(), Box<dyn Error>> {
    let directory = tempfile::tempdir()?;
    let mut out = std::io::stdout();
    let node = Node::open(NodeConfig::new(directory.path())).await?;
    let notes = node.create_database("notes").await?;
    let rev = notes.put("first", br#"{"n":1}"#).await?;

    // Each shard of a database has a process; a lease keeps the shard open while we use it.
    let map = node.coordinator().shards(notes.db_name()).await?;
    for shard in map.shards() {
        let lease = node.coordinator().lease(shard.name()).await?;
        let process = lease.process().ok_or("an open shard has a process")?;
        let info = node.system().process_info(process.pid()).ok_or("it is alive")?;
        writeln!(
            out,
            "{} is {} with {} messages handled",
            shard.name(),
            process.pid(),
            info.handled
        )?;

        // A typed message with an answer, within a deadline.
        process
            .call(DEADLINE, |reply| DbMsg::Set(Setting::RevsLimit(500), reply))
            .await??;
        assert_eq!(lease.snapshot().header().revs_limit, 500);
    }

    // Whoever monitors a process learns of its end; the shard is opened anew by the next request.
    let lease = node.coordinator().lease(map.shards()[0].name()).await?;
    let pid = lease.process().ok_or("an open shard has a process")?.pid();
    drop(lease);
    node.system().exit(pid, Reason::Killed);
    writeln!(out, "{pid} ended: {}", node.system().wait_exit(pid).await)?;
    let json = notes.get("first").await?;
    assert_eq!(
        json,
        format!(r#"{{"_id":"first","_rev":"{rev}","n":1}}"#).into_bytes()
    );

    writeln!(out, "{}", node.system().tree())?;
    node.shutdown().await;
    Ok(())
}
