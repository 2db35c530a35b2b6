//! Bulk add, lookup and fold of trees like a database's id tree, in memory so that no disk is measured.
#![expect(clippy::unwrap_used, reason = "a benchmark")]

use std::hint::black_box;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use settee_engine::codec::compress::Compression;
use settee_engine::codec::term::{Reader, write};
use settee_engine::storage::btree::{FoldOptions, ReduceError, Root, Tree, TreeKind, modify};
use settee_engine::storage::vfs::{RealVfs, Vfs, Wait};
use settee_engine::storage::{Appender, CouchFile, FileOptions, NodeCache};

/// Documents added at once to each file, as an 8-shard database sees batches of a thousand.
const BATCH: u64 = 125;
const DOCUMENTS: u64 = 100_000;

/// `{Id, {Seq, Deleted, {Active, External}, RevTree}}` with a reduction like an id tree's.
struct Ids;

impl TreeKind for Ids {
    fn reduce(
        &self,
        entries: &mut dyn Iterator<Item = (&[u8], &[u8])>,
        out: &mut Vec<u8>,
    ) -> Result<(), ReduceError> {
        let (mut count, mut bytes) = (0, 0);
        for (_, value) in entries {
            let mut reader = Reader::new(value);
            let bad = |_| ReduceError::Shape("value");
            reader.expect_tuple(4).map_err(bad)?;
            reader.read_u64().map_err(bad)?;
            reader.read_u64().map_err(bad)?;
            reader.expect_tuple(2).map_err(bad)?;
            bytes += reader.read_u64().map_err(bad)?;
            count += 1;
        }
        write::tuple(out, 2);
        write::uint(out, count);
        write::uint(out, bytes);
        Ok(())
    }

    fn rereduce(
        &self,
        reductions: &mut dyn Iterator<Item = &[u8]>,
        out: &mut Vec<u8>,
    ) -> Result<(), ReduceError> {
        let (mut count, mut bytes) = (0, 0);
        for reduction in reductions {
            let mut reader = Reader::new(reduction);
            reader
                .expect_tuple(2)
                .map_err(|_| ReduceError::Shape("reduction"))?;
            count += reader.read_u64().map_err(|_| ReduceError::Shape("reduction"))?;
            bytes += reader.read_u64().map_err(|_| ReduceError::Shape("reduction"))?;
        }
        write::tuple(out, 2);
        write::uint(out, count);
        write::uint(out, bytes);
        Ok(())
    }
}

fn entry(id: u64, seq: u64) -> (Vec<u8>, Vec<u8>) {
    let mut key = Vec::new();
    write::binary(&mut key, format!("{id:012}").as_bytes());
    let mut value = Vec::new();
    write::tuple(&mut value, 4);
    write::uint(&mut value, seq);
    write::uint(&mut value, 0);
    write::tuple(&mut value, 2);
    write::uint(&mut value, 340);
    write::uint(&mut value, 319);
    write::list(&mut value, 1);
    write::tuple(&mut value, 2);
    write::uint(&mut value, 1);
    write::tuple(&mut value, 3);
    // Revision ids do not compress.
    let rev = u128::from(id)
        .wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835)
        .to_be_bytes();
    write::binary(&mut value, &rev);
    write::tuple(&mut value, 5);
    write::uint(&mut value, 0);
    write::uint(&mut value, seq * 400);
    write::uint(&mut value, seq);
    write::tuple(&mut value, 2);
    write::uint(&mut value, 340);
    write::uint(&mut value, 319);
    write::nil(&mut value);
    write::nil(&mut value);
    write::nil(&mut value);
    (key, value)
}

fn create(vfs: &dyn Vfs, dir: &Path, compression: Compression) -> Appender {
    let cache = Arc::new(NodeCache::new(64 << 20, 16_384, 2));
    let options = FileOptions {
        compression,
        ..FileOptions::default()
    };
    let path = dir.join("bench.couch");
    Appender::new(Arc::new(
        CouchFile::create(vfs, &path, options, Some(cache), true).unwrap(),
    ))
}

fn add(appender: &mut Appender, root: Option<Root>, ids: &[u64], first_seq: u64) -> Option<Root> {
    let mut entries: Vec<_> = ids
        .iter()
        .zip(first_seq..)
        .map(|(id, seq)| entry(*id, seq))
        .collect();
    entries.sort();
    let refs: Vec<(&[u8], &[u8])> = entries
        .iter()
        .map(|(k, v)| (k.as_slice(), v.as_slice()))
        .collect();
    modify(&Ids, appender, root.as_ref(), &refs, &[], &[]).unwrap().0
}

/// The same numbers in another order.
fn shuffled(count: u64) -> Vec<u64> {
    let mut ids: Vec<u64> = (0..count).collect();
    let mut state = 1_u64;
    for i in (1..ids.len()).rev() {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        ids.swap(i, usize::try_from(state >> 33).unwrap() % (i + 1));
    }
    ids
}

fn bulk_add(c: &mut Criterion) {
    let mut group = c.benchmark_group("add, batches of 125 to 12500");
    group
        .throughput(Throughput::Elements(12_500))
        .sample_size(10)
        .measurement_time(Duration::from_secs(3));
    let orders = [
        ("ascending", (0..12_500).collect()),
        ("descending", (0..12_500).rev().collect()),
        ("random", shuffled(12_500)),
    ];
    for (name, ids) in orders {
        let ids: Vec<u64> = ids;
        group.bench_function(name, |b| {
            b.iter_batched(
                || tempfile::tempdir().unwrap(),
                |dir| {
                    let mut appender = create(&RealVfs, dir.path(), Compression::Snappy);
                    let mut root = None;
                    for (batch, seq) in ids
                        .chunks(usize::try_from(BATCH).unwrap())
                        .zip((1..).step_by(125))
                    {
                        root = add(&mut appender, root, batch, seq);
                        appender.flush().unwrap();
                    }
                    (dir, root)
                },
                BatchSize::PerIteration,
            );
        });
    }
    group.finish();
}

fn built(dir: &Path, compression: Compression) -> (Arc<CouchFile>, Root) {
    let mut appender = create(&RealVfs, dir, compression);
    let ids: Vec<u64> = (0..DOCUMENTS).collect();
    let root = add(&mut appender, None, &ids, 1);
    appender.flush().unwrap();
    (Arc::clone(appender.file()), root.unwrap())
}

fn reads(c: &mut Criterion) {
    let dir = tempfile::tempdir().unwrap();
    for (name, compression) in [("snappy", Compression::Snappy), ("none", Compression::None)] {
        let (file, root) = built(dir.path(), compression);
        let tree = Tree::new(&Ids, &*file, Some(&root));
        let ids = shuffled(DOCUMENTS);
        let keys: Vec<Vec<u8>> = ids.iter().map(|id| entry(*id, 1).0).collect();
        let mut group = c.benchmark_group(format!("read, {name}"));
        group
            .sample_size(10)
            .measurement_time(Duration::from_secs(2))
            .warm_up_time(Duration::from_secs(1));
        let mut next = 0;
        group.throughput(Throughput::Elements(1));
        group.bench_function("lookup one", |b| {
            b.iter(|| {
                next = (next + 1) % keys.len();
                tree.lookup_one(&keys[next], Wait::No, |value| black_box(value.map(<[u8]>::len)))
                    .unwrap()
            });
        });
        let neighbours: Vec<Vec<u8>> = (50_000..50_100).map(|id| entry(id, 1).0).collect();
        let refs: Vec<&[u8]> = neighbours.iter().map(Vec::as_slice).collect();
        group.throughput(Throughput::Elements(100));
        group.bench_function("lookup 100 neighbours", |b| {
            b.iter(|| {
                tree.lookup(&refs, Wait::No, |_, value| {
                    black_box(value.map(<[u8]>::len));
                })
                .unwrap();
            });
        });
        group.throughput(Throughput::Elements(DOCUMENTS));
        group.bench_function("fold", |b| {
            b.iter(|| {
                let mut bytes = 0;
                tree.fold(FoldOptions::default(), |key, value, _| {
                    bytes += key.len() + value.len();
                    ControlFlow::Continue(())
                })
                .unwrap();
                black_box(bytes)
            });
        });
        group.finish();
    }
}

criterion_group!(benches, bulk_add, reads);
criterion_main!(benches);
