//! Settings: an ini file in CouchDB's dialect, a value of the program's own, and a change at run time.
//!
//! Run with `cargo run --example configure`.

use settee::config::Persist;
use settee::{Node, NodeConfig};
use std::error::Error;
use std::io::Write;

const INI: &str = "
[couchdb]
file_compression = zstd_3 ; comments may follow a value

[cluster]
q = 4
";

fn main() -> Result<(), Box<dyn Error>> {
    settee::blocking::wait(run())
}

async fn run() -> Result<(), Box<dyn Error>> {
    let directory = tempfile::tempdir()?;
    let mut out = std::io::stdout();
    let file = directory.path().join("my.ini");
    std::fs::write(&file, INI)?;
    let config =
        NodeConfig::new(directory.path().join("data"))
            .ini(&file)
            .set("couchdb", "max_dbs_open", "100");
    let node = Node::open(config).await?;

    let settings = node.config().settings();
    writeln!(
        out,
        "q = {}, max_dbs_open = {}",
        settings.cluster.q, settings.couchdb.max_dbs_open
    )?;
    let notes = node.create_database("notes").await?;
    assert_eq!(notes.info().await?.q, 4);

    // A change is checked, written to local.ini of the data directory, and then applied.
    let old = node
        .config()
        .set("bt_engine_cache", "max_size", "1048576", Persist::Yes)
        .await?;
    assert_eq!(old, None);
    assert_eq!(node.coordinator().cache().info().max_memory, 1_048_576);
    let refused = node.config().set("cluster", "q", "many", Persist::Yes).await;
    writeln!(
        out,
        "refused: {}",
        refused.err().map_or_else(String::new, |error| error.to_string())
    )?;
    assert_eq!(node.config().settings().cluster.q, 4);

    node.shutdown().await;
    Ok(())
}
