//! Update batches of 100, 1,000 and 10,000 documents into one file in memory: the cost of a document must not grow with
//! its batch. And revision ids, a part of that cost.

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use settee_engine::db::{self, Batch, DbOptions, DbWriter, PrepareOptions, Preparer};
use settee_engine::doc::{DocLimits, EditOptions, IdSource, RevContent, new_rev_id, new_rev_ids, parse_edit};
use settee_engine::storage::FileOptions;
use settee_engine::storage::vfs::{MemoryVfs, Vfs, Wait};
use std::path::Path;
use std::sync::Arc;

fn writer() -> DbWriter {
    let vfs: Arc<dyn Vfs> = Arc::new(MemoryVfs::new());
    let options = DbOptions {
        file: FileOptions::default(),
        prepare: PrepareOptions::default(),
        node: "bench@127.0.0.1".to_owned(),
        everyone: true,
    };
    db::create(
        &vfs,
        Path::new("/bench.couch"),
        &options,
        None,
        "0".repeat(32),
        None,
    )
    .expect("created in memory")
}

fn update(writer: &mut DbWriter, jsons: &[Vec<u8>]) -> u64 {
    let options = EditOptions {
        id: IdSource::Body,
        new_edits: true,
        limits: DocLimits::default(),
    };
    let prepare = PrepareOptions::default();
    let edits = jsons
        .iter()
        .map(|json| parse_edit(json, &options).expect("a document"));
    let docs = Preparer::new(&prepare)
        .prepare_all(&writer.snapshot(), edits.collect(), false, Wait::Yes)
        .expect("prepared");
    let batch = Batch {
        docs,
        locals: Vec::new(),
    };
    writer.update(batch).expect("committed").counts.writes
}

fn batches(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("update");
    for size in [100u64, 1_000, 10_000] {
        let jsons: Vec<Vec<u8>> = (0..size)
            .map(|n| {
                let filler = "x".repeat(250);
                format!(r#"{{"_id":"{:08}","n":{n},"text":"{filler}"}}"#, size - n).into_bytes()
            })
            .collect();
        group.throughput(Throughput::Elements(size));
        group.sample_size(10);
        group.bench_function(format!("{size} documents"), |bencher| {
            bencher.iter_batched_ref(writer, |writer| update(writer, &jsons), BatchSize::PerIteration);
        });
    }
    group.finish();
}

/// The ids of 1,000 revisions, one after the other and eight at a time.
fn rev_ids(criterion: &mut Criterion) {
    let bodies: Vec<Vec<u8>> = (0..1_000).map(|n| format!("{n:0334}").into_bytes()).collect();
    let contents: Vec<RevContent<'_>> = bodies
        .iter()
        .map(|body| RevContent {
            deleted: false,
            parent: None,
            body,
            atts: Default::default(),
        })
        .collect();
    let mut group = criterion.benchmark_group("revision ids");
    group.throughput(Throughput::Elements(contents.len() as u64));
    group.bench_function("alone", |bencher| {
        bencher.iter(|| contents.iter().map(new_rev_id).collect::<Vec<_>>());
    });
    group.bench_function("together", |bencher| bencher.iter(|| new_rev_ids(&contents)));
    group.finish();
}

criterion_group!(benches, batches, rev_ids);
criterion_main!(benches);
