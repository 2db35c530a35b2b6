//! `settee depth`: depth, nodes and bytes per level of every tree, as upstream's `couch_debug` shows them.

use super::Failure;
use super::args::DepthArgs;
use comfy_table::{CellAlignment, Table};
use settee_engine::cluster::ShardMap;
use settee_engine::db::{self, DocLookup, ReadDoc, Snapshot};
use settee_engine::ids::{DbName, DocId};
use settee_engine::storage::vfs::{RealVfs, Vfs, Wait};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Prints a table for the file, or for every shard of the database.
///
/// # Errors
/// When there is neither such a file nor such a database, or a tree cannot be read.
pub fn run(args: &DepthArgs) -> Result<(), Failure> {
    let vfs: Arc<dyn Vfs> = Arc::new(RealVfs);
    let target = Path::new(&args.target);
    let files = if vfs.exists(target)? {
        vec![target.to_owned()]
    } else {
        shard_files(&vfs, args)?
    };
    let mut table = Table::new();
    table.set_header(["file", "tree", "depth", "level", "nodes", "entries", "bytes"]);
    for file in &files {
        let snapshot = db::peek(&vfs, file)?;
        add_rows(&mut table, file, &snapshot)?;
    }
    for column in 2..7 {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    writeln!(std::io::stdout(), "{table}")?;
    Ok(())
}

fn add_rows(table: &mut Table, file: &Path, snapshot: &Snapshot) -> Result<(), Failure> {
    let name = file.display().to_string();
    for (tree, levels) in snapshot.tree_levels(Wait::Yes)? {
        let depth = levels.len().to_string();
        if levels.is_empty() {
            table.add_row([name.as_str(), tree, "0", "-", "0", "0", "0"]);
        }
        for (index, level) in levels.iter().enumerate() {
            table.add_row([
                name.clone(),
                tree.to_owned(),
                depth.clone(),
                (index + 1).to_string(),
                level.nodes.to_string(),
                level.entries.to_string(),
                level.bytes.to_string(),
            ]);
        }
    }
    Ok(())
}

/// The files of a database's shards, as `_dbs` of the data directory names them.
fn shard_files(vfs: &Arc<dyn Vfs>, args: &DepthArgs) -> Result<Vec<PathBuf>, Failure> {
    let missing = || {
        format!(
            "{} is neither a file nor a database in {}",
            args.target,
            args.data.display()
        )
    };
    let dbs = args.data.join("_dbs.couch");
    let name = DbName::new(&args.target).map_err(|_| missing())?;
    if !vfs.exists(&dbs)? {
        return Err(missing().into());
    }
    let id = DocId::from_stored(args.target.as_bytes())?;
    let found = db::peek(vfs, &dbs)?.open_doc(&id, &ReadDoc::default(), Wait::Yes)?;
    let DocLookup::Found(found) = found else {
        return Err(missing().into());
    };
    if found.doc.deleted {
        return Err(missing().into());
    }
    let map = ShardMap::from_term(name, &found.doc.body)?;
    Ok(map
        .shards()
        .iter()
        .map(|shard| args.data.join(format!("{}.couch", shard.name())))
        .collect())
}
