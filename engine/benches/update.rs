//! Update batches of 100, 1,000 and 10,000 documents into one file in memory: the cost of a document must not grow with
//! its batch.

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use settee_engine::db::{self, Batch, DbOptions, DbWriter, PrepareOptions, Preparer};
use settee_engine::doc::{DocLimits, EditOptions, IdSource, parse_edit};
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

criterion_group!(benches, batches);
criterion_main!(benches);
