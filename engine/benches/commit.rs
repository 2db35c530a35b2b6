//! Commits of one document, each synced, beside a bare loop of appends of 4 KiB with a data sync, on the same disk.
//!
//! The disk's speed changes from second to second, so all variants take turns in short rounds, and the median over the
//! rounds of each one's ratio to the bare loop is what counts. The folder is `SETTEE_BENCH_DIR`, or the system's for
//! temporary files, which must not be in memory.

use settee_engine::db::{self, Batch, DbOptions, DbWriter, PrepareOptions, Preparer};
use settee_engine::doc::{DocLimits, EditOptions, IdSource, parse_edit};
use settee_engine::storage::vfs::{OpenMode, RealVfs, Vfs, VfsFile, Wait};
use settee_engine::storage::{FileOptions, SyncOptions};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

/// Rounds that are measured.
const ROUNDS: usize = 15;
/// Commits of each variant in a round.
const COMMITS: u64 = 300;

/// The bare loop: appends to a new file.
fn bare(vfs: &dyn Vfs, path: &Path, zeros_ahead: u64) {
    let file = vfs.open(path, OpenMode::Create).expect("a new file");
    let page = [7; 4096];
    let mut allocated = 0;
    for n in 0..COMMITS {
        let end = (n + 1) * 4096;
        append(&*file, &page, end - 4096);
        if end > allocated && zeros_ahead > 0 {
            allocated = end + zeros_ahead;
            append(
                &*file,
                &vec![0; usize::try_from(zeros_ahead).unwrap_or_default()],
                end,
            );
        }
        file.sync_data().expect("synced");
    }
    vfs.remove_file(path).expect("removed");
}

fn append(file: &dyn VfsFile, data: &[u8], pos: u64) {
    file.write_at(data, pos).expect("written");
}

fn writer(vfs: &Arc<dyn Vfs>, path: &Path, file: FileOptions) -> DbWriter {
    let options = DbOptions {
        file,
        prepare: PrepareOptions::default(),
        node: "bench@127.0.0.1".to_owned(),
        everyone: true,
    };
    db::create(vfs, path, &options, None, "0".repeat(32), None).expect("created")
}

fn updates(writer: &mut DbWriter, next: &mut u64, count: u64) {
    let options = EditOptions {
        id: IdSource::Body,
        new_edits: true,
        limits: DocLimits::default(),
    };
    let prepare = PrepareOptions::default();
    for _ in 0..count {
        *next += 1;
        let json = format!(
            r#"{{"_id":"{:016x}","text":"{}"}}"#,
            next.wrapping_mul(0x9e37_79b9_7f4a_7c15),
            "x".repeat(250)
        );
        let edit = parse_edit(json.as_bytes(), &options).expect("a document");
        let docs = Preparer::new(&prepare)
            .prepare_all(&writer.snapshot(), vec![edit], false, Wait::Yes)
            .expect("prepared");
        let batch = Batch {
            docs,
            locals: Vec::new(),
        };
        writer.update(batch).expect("committed");
    }
}

#[expect(clippy::disallowed_methods, reason = "a benchmark looks at the real clock")]
fn rate(work: impl FnOnce()) -> f64 {
    let begun = Instant::now();
    work();
    COMMITS as f64 / begun.elapsed().as_secs_f64()
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

#[expect(clippy::print_stdout, reason = "a benchmark shows what it found")]
fn main() {
    let folder = match std::env::var_os("SETTEE_BENCH_DIR") {
        Some(folder) => tempfile::tempdir_in(folder),
        None => tempfile::tempdir(),
    }
    .expect("a folder");
    let vfs: Arc<dyn Vfs> = Arc::new(RealVfs);
    let with = |space_ahead, before_header| FileOptions {
        space_ahead,
        sync: SyncOptions {
            before_header,
            ..SyncOptions::default()
        },
        ..FileOptions::default()
    };
    let variants = [
        ("two syncs", with(false, true)),
        ("one sync", with(false, false)),
        ("one sync, space ahead", with(true, false)),
    ];
    let mut writers: Vec<(DbWriter, u64)> = variants
        .iter()
        .enumerate()
        .map(|(n, (_, options))| {
            (
                writer(&vfs, &folder.path().join(format!("{n}.couch")), options.clone()),
                0,
            )
        })
        .collect();
    let mut rates = vec![Vec::new(); variants.len() + 2];
    for round in 0..=ROUNDS {
        let mut found = vec![
            rate(|| bare(&*vfs, &folder.path().join("bare"), 0)),
            rate(|| bare(&*vfs, &folder.path().join("bare"), 64 * 1024)),
        ];
        for (writer, next) in &mut writers {
            found.push(rate(|| updates(writer, next, COMMITS)));
        }
        // The first round makes the files long enough for what is measured.
        if round > 0 {
            for (rates, rate) in rates.iter_mut().zip(found) {
                rates.push(rate);
            }
        }
    }
    let names = ["bare loop", "bare loop, space ahead"]
        .into_iter()
        .chain(variants.iter().map(|(name, _)| *name));
    for (name, own) in names.zip(&rates) {
        let ratios = own.iter().zip(&rates[0]).map(|(own, bare)| own / bare);
        println!(
            "{name:24} {:6.0} per second, {:.2} of the bare loop",
            median(own.clone()),
            median(ratios.collect())
        );
    }
}
