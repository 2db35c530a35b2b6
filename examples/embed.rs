//! Embeds a node in a plain program: write, read, list, delete.
//!
//! Run with `cargo run --example embed`.

use settee::{BlockingNode, NodeConfig};
use std::error::Error;
use std::io::Write;

fn main() -> Result<(), Box<dyn Error>> {
    let directory = tempfile::tempdir()?;
    let mut out = std::io::stdout();
    let node = BlockingNode::open(NodeConfig::new(directory.path()))?;
    let notes = node.ensure_database("notes")?;

    let rev = notes.put("first", br#"{"text":"hello"}"#)?;
    let next = notes.put(
        "first",
        format!(r#"{{"_rev":"{rev}","text":"hello again"}}"#).as_bytes(),
    )?;
    writeln!(out, "{}", String::from_utf8(notes.get("first")?)?)?;

    // Many documents at once cost one commit for each shard.
    let docs: Vec<Vec<u8>> = (0..100)
        .map(|n| format!(r#"{{"_id":"n{n}","n":{n}}}"#).into_bytes())
        .collect();
    let results = notes.bulk(docs.iter().map(Vec::as_slice))?;
    assert!(results.iter().all(Result::is_ok));

    notes.delete("first", &next)?;
    assert!(notes.get("first").is_err());
    let info = notes.info()?;
    writeln!(
        out,
        "{} documents, {} deleted, update_seq {}",
        info.doc_count, info.doc_del_count, info.update_seq
    )?;
    assert_eq!((info.doc_count, info.doc_del_count), (100, 1));

    node.shutdown();
    Ok(())
}
