//! Merging rows of eight shards, and stamping changes with the vector of eight shards.

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use settee_engine::cluster::{
    AllDocsMerge, AllDocsOptions, ChangeBatch, ChangeRef, ChangeRows, ChangesMerge, ChangesOptions,
    MergeState, PackedSeq, RowBatch, RowRef, SeqEntry, ShardMeta, ShardSeq, ring,
};
use settee_engine::ids::NodeName;

const SHARDS: u32 = 8;
const ROWS: u32 = 200_000;
const BATCH_ROWS: usize = 500;
const SEPARATOR: &[u8] = b",\r\n";

fn place(bytes: &[u8]) -> u32 {
    u32::try_from(bytes.len()).expect("a batch is small")
}

/// The rows of each shard in batches, as workers send them.
fn row_batches() -> Vec<Vec<RowBatch>> {
    let mut ids: Vec<Vec<String>> = vec![Vec::new(); SHARDS as usize];
    for number in 0..ROWS {
        let id = format!("{number:016}");
        let shard = crc32fast::hash(id.as_bytes()) / (u32::MAX / SHARDS + 1);
        ids[shard as usize].push(id);
    }
    let batch = |ids: &[String]| {
        let mut batch = RowBatch::default();
        let mut texts = Vec::new();
        for id in ids {
            if !batch.bytes.is_empty() {
                batch.bytes.extend_from_slice(SEPARATOR);
            }
            let start = place(&batch.bytes);
            let row = format!(
                "{{\"id\":\"{id}\",\"key\":\"{id}\",\"value\":{{\"rev\":\"1-967a00dff5e02add41819138abb3284d\"}}}}"
            );
            batch.bytes.extend_from_slice(row.as_bytes());
            texts.push(start..place(&batch.bytes));
        }
        for (id, json) in ids.iter().zip(texts) {
            let start = place(&batch.bytes);
            batch.bytes.extend_from_slice(id.as_bytes());
            batch.rows.push(RowRef {
                key: start..place(&batch.bytes),
                json,
            });
        }
        batch
    };
    ids.iter()
        .map(|ids| ids.chunks(BATCH_ROWS).map(batch).collect())
        .collect()
}

fn merge_all(batches: Vec<Vec<RowBatch>>, out: &mut Vec<u8>) -> usize {
    let options = AllDocsOptions {
        descending: false,
        skip: 0,
        limit: u64::MAX,
    };
    let mut merge = AllDocsMerge::new(batches.len(), options);
    let mut sources: Vec<_> = batches.into_iter().map(Vec::into_iter).collect();
    for (worker, source) in sources.iter_mut().enumerate() {
        merge.meta(worker, ShardMeta::default());
        source
            .by_ref()
            .take(2)
            .for_each(|batch| merge.push(worker, batch));
    }
    let mut rows = 0;
    loop {
        out.clear();
        let drained = merge.drain(out, SEPARATOR, 64 << 10);
        rows += drained.rows;
        if drained.state == MergeState::Done {
            return rows;
        }
        for (worker, source) in sources.iter_mut().enumerate() {
            while merge.needs(worker) && merge.buffered_batches(worker) < 2 {
                match source.next() {
                    Some(batch) => merge.push(worker, batch),
                    None => merge.complete(worker),
                }
            }
        }
    }
}

fn all_docs(criterion: &mut Criterion) {
    let batches = row_batches();
    let mut group = criterion.benchmark_group("all_docs");
    group
        .throughput(Throughput::Elements(u64::from(ROWS)))
        .sample_size(20);
    group.bench_function("merge of 8 shards", |bencher| {
        let mut out = Vec::with_capacity(128 << 10);
        bencher.iter_batched(
            || batches.clone(),
            |batches| assert_eq!(merge_all(batches, &mut out), ROWS as usize),
            BatchSize::LargeInput,
        );
    });
    group.finish();
}

fn changes(criterion: &mut Criterion) {
    let node = NodeName::new("settee@127.0.0.1").expect("a node name");
    let entries = ring::ranges(SHARDS)
        .expect("a ring")
        .into_iter()
        .map(|range| SeqEntry {
            node: node.clone(),
            range,
            seq: ShardSeq::epoch(100_000, b"0123456789abcdef", Some(&node)),
        });
    let vector = PackedSeq {
        entries: entries.collect(),
    };
    let mut batch = ChangeBatch::default();
    for seq in 0..1_000_u32 {
        let start = place(&batch.bytes);
        let row = format!(
            "\"id\":\"{seq:016}\",\"changes\":[{{\"rev\":\"1-967a00dff5e02add41819138abb3284d\"}}]}}"
        );
        batch.bytes.extend_from_slice(row.as_bytes());
        let json = Some(start..place(&batch.bytes));
        batch.rows.push(ChangeRef {
            seq: 100_000 + u64::from(seq),
            pending: 0,
            json,
        });
    }
    let mut group = criterion.benchmark_group("changes");
    group.throughput(Throughput::Elements(1_000)).sample_size(20);
    group.bench_function("stamp with 8 shards", |bencher| {
        let mut merge = ChangesMerge::new(
            vector.clone(),
            ChangesOptions {
                limit: u64::MAX,
                seq_interval: 1,
            },
        );
        let mut out = ChangeRows::default();
        let mut worker = 0;
        bencher.iter(|| {
            out.bytes.clear();
            out.rows.clear();
            worker = (worker + 1) % 8;
            merge.push(worker, &batch, SEPARATOR, &mut out)
        });
    });
    group.finish();
}

criterion_group!(benches, all_docs, changes);
criterion_main!(benches);
