//! The trees against a model: random histories, both directions, reductions, groups, damage, waiting, caches.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeMap;
use std::io;
use std::ops::{Bound, ControlFlow};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use proptest::prelude::*;
use settee_engine::codec::compress::Compression;
use settee_engine::codec::term::{Reader, write};
use settee_engine::storage::btree::{
    Cursor, CursorOptions, Direction, FoldOptions, Group, NodeSource, ReduceError, Root, Tree, TreeKind,
    modify,
};
use settee_engine::storage::vfs::{DirEntry, MemoryVfs, OpenMode, Vfs, VfsFile, Wait};
use settee_engine::storage::{Appender, CouchFile, FileOptions, NodeCache};

/// Keys are binaries, values are integers, the reduction is `{Count, Sum}`.
#[derive(Clone, Copy, Debug)]
struct Sums;

impl Sums {
    fn write(out: &mut Vec<u8>, count: i64, sum: i64) {
        write::tuple(out, 2);
        write::int(out, count);
        write::int(out, sum);
    }

    fn read(raw: &[u8]) -> Result<(i64, i64), ReduceError> {
        let bad = |_| ReduceError::Shape("sum");
        let mut reader = Reader::new(raw);
        reader.expect_tuple(2).map_err(bad)?;
        Ok((reader.read_i64().map_err(bad)?, reader.read_i64().map_err(bad)?))
    }
}

impl TreeKind for Sums {
    fn reduce(
        &self,
        entries: &mut dyn Iterator<Item = (&[u8], &[u8])>,
        out: &mut Vec<u8>,
    ) -> Result<(), ReduceError> {
        let (mut count, mut sum) = (0_i64, 0_i64);
        for (_, value) in entries {
            let value = Reader::new(value)
                .read_i64()
                .map_err(|_| ReduceError::Shape("value"))?;
            count += 1;
            sum = sum.wrapping_add(value);
        }
        Self::write(out, count, sum);
        Ok(())
    }

    fn rereduce(
        &self,
        reductions: &mut dyn Iterator<Item = &[u8]>,
        out: &mut Vec<u8>,
    ) -> Result<(), ReduceError> {
        let (mut count, mut sum) = (0_i64, 0_i64);
        for reduction in reductions {
            let (c, s) = Self::read(reduction)?;
            count = count.wrapping_add(c);
            sum = sum.wrapping_add(s);
        }
        Self::write(out, count, sum);
        Ok(())
    }
}

fn key(id: u16, length: usize) -> Vec<u8> {
    let mut text = format!("{id:05}").into_bytes();
    text.resize(5 + length, b'k');
    let mut out = Vec::new();
    write::binary(&mut out, &text);
    out
}

fn value(value: i64) -> Vec<u8> {
    let mut out = Vec::new();
    write::int(&mut out, value);
    out
}

fn number(raw: &[u8]) -> i64 {
    Reader::new(raw).read_i64().unwrap()
}

type Model = BTreeMap<Vec<u8>, i64>;

fn reduction_of(entries: impl Iterator<Item = i64>) -> (i64, i64) {
    entries.fold((0, 0), |(count, sum), value| (count + 1, sum + value))
}

fn create(vfs: &dyn Vfs, chunk: usize, compression: Compression, cache: Option<Arc<NodeCache>>) -> Appender {
    let options = FileOptions {
        btree_chunk_size: chunk,
        compression,
        ..FileOptions::default()
    };
    Appender::new(Arc::new(
        CouchFile::create(vfs, Path::new("/d/t.couch"), options, cache, true).unwrap(),
    ))
}

#[derive(Clone, Debug)]
struct Batch {
    inserts: Vec<(u16, i64)>,
    removes: Vec<u16>,
}

fn batches() -> impl Strategy<Value = Vec<Batch>> {
    let batch = |keys: u16, len: usize| {
        (
            prop::collection::vec((0..keys, -1000_i64..1_000_000), 0..len),
            prop::collection::vec(0..keys, 0..len / 2 + 1),
        )
            .prop_map(|(inserts, removes)| Batch { inserts, removes })
    };
    prop::collection::vec(prop_oneof![batch(40, 6), batch(400, 60), batch(2000, 250)], 1..12)
}

fn chunk_sizes() -> impl Strategy<Value = usize> {
    prop_oneof![
        Just(1_usize),
        Just(30),
        Just(100),
        Just(300),
        Just(1279),
        Just(4096)
    ]
}

/// Applies a batch to both; a key that is removed and inserted is present, and the first of equal insertions counts.
fn apply(
    appender: &mut Appender,
    root: Option<&Root>,
    model: &mut Model,
    batch: &Batch,
    length: usize,
) -> Option<Root> {
    let inserts: Vec<_> = batch
        .inserts
        .iter()
        .map(|(id, v)| (key(*id, length), value(*v)))
        .collect();
    let removes: Vec<_> = batch.removes.iter().map(|id| key(*id, length)).collect();
    let insert_refs: Vec<(&[u8], &[u8])> = inserts
        .iter()
        .map(|(k, v)| (k.as_slice(), v.as_slice()))
        .collect();
    let remove_refs: Vec<&[u8]> = removes.iter().map(Vec::as_slice).collect();
    let lookups: Vec<&[u8]> = remove_refs
        .iter()
        .copied()
        .chain(insert_refs.iter().map(|(k, _)| *k))
        .collect();
    let (root, found) = modify(&Sums, appender, root, &insert_refs, &remove_refs, &lookups).unwrap();
    for (asked, found) in lookups.iter().zip(found) {
        let expected = model.get(*asked).map(|v| (asked.to_vec(), value(*v)));
        assert_eq!(found, expected);
    }
    for key in removes {
        model.remove(&key);
    }
    for (key, value) in inserts.into_iter().rev() {
        model.insert(key, number(&value));
    }
    root
}

/// Everything that can be asked of a tree, against the model.
fn check<S: NodeSource>(source: &S, root: Option<&Root>, model: &Model, bounds: (u16, u16), length: usize) {
    let tree = Tree::new(&Sums, source, root);
    let mut out = Vec::new();
    tree.full_reduce(&mut out).unwrap();
    assert_eq!(Sums::read(&out).unwrap(), reduction_of(model.values().copied()));
    let (a, b) = (
        key(bounds.0.min(bounds.1), length),
        key(bounds.0.max(bounds.1), length),
    );
    for direction in [Direction::Forward, Direction::Reverse] {
        for start in [None, Some(&a), Some(&b)] {
            for end in [
                Bound::Unbounded,
                Bound::Included(&a),
                Bound::Excluded(&a),
                Bound::Included(&b),
                Bound::Excluded(&b),
            ] {
                check_fold(&tree, model, direction, start, end);
            }
        }
    }
    check_lookup(&tree, model, &[&a, &b]);
    for at in [&a, &b] {
        tree.reduce_before(at, Wait::Yes, &mut out).unwrap();
        let below = model.range::<Vec<u8>, _>(..at).map(|(_, v)| *v);
        assert_eq!(Sums::read(&out).unwrap(), reduction_of(below));
        tree.reduce_after(at, Wait::Yes, &mut out).unwrap();
        let above = model
            .range::<Vec<u8>, _>((Bound::Excluded(at), Bound::Unbounded))
            .map(|(_, v)| *v);
        assert_eq!(Sums::read(&out).unwrap(), reduction_of(above));
    }
    let levels = tree.levels(Wait::Yes).unwrap();
    assert_eq!(levels.len(), tree.depth(Wait::Yes).unwrap());
    assert_eq!(levels.last().map_or(0, |level| level.entries), model.len() as u64);
}

fn selected<'m>(
    model: &'m Model,
    direction: Direction,
    start: Option<&Vec<u8>>,
    end: Bound<&Vec<u8>>,
) -> Vec<(&'m Vec<u8>, i64)> {
    let inside = |key: &Vec<u8>| {
        let after_start = start.is_none_or(|s| {
            if direction == Direction::Forward {
                key >= s
            } else {
                key <= s
            }
        });
        let before_end = match (end, direction) {
            (Bound::Unbounded, _) => true,
            (Bound::Included(e), Direction::Forward) => key <= e,
            (Bound::Excluded(e), Direction::Forward) => key < e,
            (Bound::Included(e), Direction::Reverse) => key >= e,
            (Bound::Excluded(e), Direction::Reverse) => key > e,
        };
        after_start && before_end
    };
    let mut entries: Vec<_> = model
        .iter()
        .filter(|(k, _)| inside(k))
        .map(|(k, v)| (k, *v))
        .collect();
    if direction == Direction::Reverse {
        entries.reverse();
    }
    entries
}

fn check_fold<S: NodeSource>(
    tree: &Tree<'_, Sums, S>,
    model: &Model,
    direction: Direction,
    start: Option<&Vec<u8>>,
    end: Bound<&Vec<u8>>,
) {
    let expected = selected(model, direction, start, end);
    let options = FoldOptions {
        start: start.map(Vec::as_slice),
        end: end.map(Vec::as_slice),
        direction,
        wait: Wait::Yes,
    };
    let mut seen = Vec::new();
    let mut before = Vec::new();
    tree.fold(options, |key, value, position| {
        if seen.len() % 17 == 0 {
            position.reduction_before(&mut before).unwrap();
            let passed: Vec<i64> = match direction {
                Direction::Forward => model
                    .range::<[u8], _>((Bound::Unbounded, Bound::Excluded(key)))
                    .map(|e| *e.1)
                    .collect(),
                Direction::Reverse => model
                    .range::<[u8], _>((Bound::Excluded(key), Bound::Unbounded))
                    .map(|e| *e.1)
                    .collect(),
            };
            assert_eq!(Sums::read(&before).unwrap(), reduction_of(passed.into_iter()));
        }
        seen.push((key.to_vec(), number(value)));
        ControlFlow::Continue(())
    })
    .unwrap();
    assert!(
        seen.iter().map(|(k, v)| (k, *v)).eq(expected.iter().copied()),
        "{direction:?} {start:?} {end:?}"
    );
    let tenth = |key: &[u8]| key.get(5..9).map(<[u8]>::to_vec);
    let by = |a: &[u8], b: &[u8]| tenth(a) == tenth(b);
    for group in [Group::All, Group::Exact, Group::By(&by)] {
        let same = |a: &[u8], b: &[u8]| match group {
            Group::All => true,
            Group::Exact => a == b,
            Group::By(_) => by(a, b),
        };
        let mut groups: Vec<(Vec<u8>, (i64, i64))> = Vec::new();
        for (key, value) in &expected {
            match groups.last_mut() {
                Some((first, (count, sum))) if same(first, key) => {
                    *count += 1;
                    *sum += value;
                }
                _ => groups.push(((*key).clone(), (1, *value))),
            }
        }
        let mut found = Vec::new();
        tree.fold_reduce(options, group, |first, reduction| {
            found.push((first.to_vec(), Sums::read(reduction).unwrap()));
            ControlFlow::Continue(())
        })
        .unwrap();
        assert_eq!(found, groups, "{direction:?} {start:?} {end:?}");
    }
}

fn check_lookup<S: NodeSource>(tree: &Tree<'_, Sums, S>, model: &Model, others: &[&Vec<u8>]) {
    let mut asked: Vec<&[u8]> = model.keys().map(Vec::as_slice).step_by(3).collect();
    asked.extend(others.iter().map(|k| k.as_slice()));
    asked.extend(model.keys().rev().map(Vec::as_slice).step_by(7));
    asked.push(&[109, 0, 0, 0, 0]);
    asked.push(&[109, 0, 0, 0, 1, 255]);
    let mut answers = vec![0; asked.len()];
    tree.lookup(&asked, Wait::Yes, |index, value| {
        answers[index] += 1;
        assert_eq!(value.map(number), model.get(asked[index]).copied());
    })
    .unwrap();
    assert!(answers.iter().all(|count| *count == 1));
    for key in asked.iter().rev().take(20) {
        let found = tree
            .lookup_one(key, Wait::Yes, |value| value.map(number))
            .unwrap();
        assert_eq!(found, model.get(*key).copied());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn random_histories_match_the_model(
        batches in batches(),
        chunk in chunk_sizes(),
        length in prop_oneof![Just(0_usize), Just(3), Just(60)],
        bounds in (0_u16..2000, 0_u16..2000),
        plain in any::<bool>(),
        cache_bytes in prop_oneof![Just(None), Just(Some(300_usize)), Just(Some(1 << 20))],
    ) {
        let compression = if plain { Compression::None } else { Compression::Snappy };
        let cache = cache_bytes.map(|bytes| Arc::new(NodeCache::with_shards(bytes, 16_384, 2)));
        let vfs = MemoryVfs::new();
        let mut appender = create(&vfs, chunk, compression, cache);
        let mut model = Model::new();
        let mut root = None;
        let mut snapshots = Vec::new();
        for batch in &batches {
            root = apply(&mut appender, root.as_ref(), &mut model, batch, length);
            prop_assert_eq!(root.is_none(), model.is_empty());
            snapshots.push((root.clone(), model.clone()));
        }
        check(&appender, root.as_ref(), &model, bounds, length);
        appender.flush().unwrap();
        check(appender.file(), root.as_ref(), &model, bounds, length);
        // Older roots still show the older trees.
        let (old_root, old_model) = &snapshots[snapshots.len() / 2];
        check(appender.file(), old_root.as_ref(), old_model, bounds, length);
    }

    #[test]
    fn damaged_nodes_are_errors(
        seed in any::<u64>(),
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        which in any::<prop::sample::Index>(),
    ) {
        let vfs = MemoryVfs::new();
        let mut appender = create(&vfs, 200, Compression::None, None);
        let mut model = Model::new();
        let ids: Vec<_> = (0..300_u16).map(|id| (id, i64::from(id) + i64::try_from(seed % 1000).unwrap())).collect();
        let batch = Batch { inserts: ids, removes: vec![] };
        let root = apply(&mut appender, None, &mut model, &batch, 3).unwrap();
        // Any node, damaged and given a good checksum again, as the root of a tree.
        let mut positions = vec![root.pos];
        let mut at = 0;
        while at < appender.eof() {
            let mut out = Vec::new();
            positions.push(at);
            appender.read_chunk(at, &mut out).unwrap();
            let head = if at.is_multiple_of(4096) { 21 } else { 20 };
            let mut end = at + head + out.len() as u64;
            if at / 4096 != (end - 1) / 4096 { end += 1; }
            if end.is_multiple_of(4096) { end += 1; }
            at = end;
        }
        let mut node = Vec::new();
        let result = appender.read_chunk(*which.get(&positions), &mut node);
        prop_assume!(result.is_ok());
        for (index, byte) in &flips {
            let at = index.index(node.len());
            node[at] = *byte;
        }
        let pos = appender.append_chunk(&node).unwrap().pos;
        let damaged = Root { pos, ..root };
        let tree = Tree::new(&Sums, &appender, Some(&damaged));
        let keys: Vec<Vec<u8>> = (0..300).step_by(13).map(|id| key(id, 3)).collect();
        let refs: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        let mut out = Vec::new();
        let _ = tree.lookup(&refs, Wait::Yes, |_, _| ());
        let _ = tree.lookup_one(refs[5], Wait::Yes, |_| ());
        let _ = tree.levels(Wait::Yes);
        let _ = tree.reduce_before(refs[9], Wait::Yes, &mut out);
        for direction in [Direction::Forward, Direction::Reverse] {
            let options = FoldOptions { start: Some(refs[7]), direction, ..FoldOptions::default() };
            let _ = tree.fold(options, |_, _, position| {
                let _ = position.reduction_before(&mut Vec::new());
                ControlFlow::Continue(())
            });
            let _ = tree.fold_reduce(options, Group::Exact, |_, _| ControlFlow::Continue(()));
        }
        let value = value(5);
        let inserts: Vec<(&[u8], &[u8])> = refs.iter().map(|k| (*k, value.as_slice())).collect();
        let _ = modify(&Sums, &mut appender, Some(&damaged), &inserts, &refs[..5], &refs);
    }
}

/// A pointer node with one child at `pos`.
fn pointer_node(pos: u64, count: u32) -> Vec<u8> {
    let mut node = vec![131];
    write::tuple(&mut node, 2);
    write::atom(&mut node, "kp_node");
    node.push(108);
    node.extend_from_slice(&count.to_be_bytes());
    write::tuple(&mut node, 2);
    write::binary(&mut node, b"zzz");
    write::tuple(&mut node, 3);
    write::uint(&mut node, pos);
    Sums::write(&mut node, 1, 1);
    write::uint(&mut node, 100);
    write::nil(&mut node);
    node
}

#[test]
fn cycles_and_lying_counts_are_named() {
    let vfs = MemoryVfs::new();
    let mut appender = create(&vfs, 4096, Compression::None, None);
    appender.append_chunk(b"padding").unwrap();
    let own = appender.eof();
    let cases = [
        (pointer_node(own, 1), "child behind its parent"),
        (pointer_node(u64::MAX, 1), "child behind its parent"),
        (pointer_node(0, 0x7fff_ffff), "ends early"),
        (b"\x83nonsense".to_vec(), "no tree node"),
        (b"\x05".to_vec(), "compression"),
    ];
    for (node, what) in cases {
        appender.truncate(0).unwrap();
        appender.append_chunk(b"padding").unwrap();
        let pos = appender.append_chunk(&node).unwrap().pos;
        assert_eq!(pos, own);
        let root = Root {
            pos,
            reduction: vec![106],
            size: None,
        };
        let tree = Tree::new(&Sums, &appender, Some(&root));
        let error = tree
            .lookup_one(&key(1, 0), Wait::Yes, |_| ())
            .unwrap_err()
            .to_string();
        assert!(
            error.contains(what) && error.contains(&format!("/d/t.couch at {pos}")),
            "{error}"
        );
    }
    // The padding is no node: an error at its position, not the parent's.
    appender.truncate(0).unwrap();
    appender.append_chunk(b"padding").unwrap();
    let pos = appender.append_chunk(&pointer_node(0, 1)).unwrap().pos;
    let root = Root {
        pos,
        reduction: vec![106],
        size: None,
    };
    let error = Tree::new(&Sums, &appender, Some(&root))
        .levels(Wait::Yes)
        .unwrap_err()
        .to_string();
    assert!(error.contains("at 0"), "{error}");
}

#[test]
fn a_chain_of_pointer_nodes_is_cut() {
    let vfs = MemoryVfs::new();
    let mut appender = create(&vfs, 4096, Compression::None, None);
    let mut pos = appender.append_chunk(b"\x83h\x02d\x00\x07kv_nodej").unwrap().pos;
    for _ in 0..70 {
        pos = appender.append_chunk(&pointer_node(pos, 1)).unwrap().pos;
    }
    let root = Root {
        pos,
        reduction: vec![106],
        size: None,
    };
    let error = Tree::new(&Sums, &appender, Some(&root))
        .levels(Wait::Yes)
        .unwrap_err()
        .to_string();
    assert!(error.contains("too deep"), "{error}");
}

#[test]
fn roots_survive_their_terms() {
    let mut reduction = Vec::new();
    Sums::write(&mut reduction, 3, 4);
    let root = Root {
        pos: 1 << 40,
        reduction: reduction.clone(),
        size: Some(77),
    };
    let mut raw = Vec::new();
    Root::write(Some(&root), &mut raw);
    assert_eq!(Root::decode(&raw).unwrap(), Some(root));
    raw.clear();
    Root::write(None, &mut raw);
    assert_eq!(Root::decode(&raw).unwrap(), None);
    // The form from before CouchDB 1.2 has no size.
    raw.clear();
    write::tuple(&mut raw, 2);
    write::uint(&mut raw, 9);
    raw.extend_from_slice(&reduction);
    assert_eq!(
        Root::decode(&raw).unwrap(),
        Some(Root {
            pos: 9,
            reduction,
            size: None
        })
    );
    assert!(Root::decode(&[97, 1]).is_err());
}

fn build(appender: &mut Appender, count: u16) -> (Option<Root>, Model) {
    let mut model = Model::new();
    let inserts = (0..count).map(|id| (id, i64::from(id))).collect();
    let root = apply(
        appender,
        None,
        &mut model,
        &Batch {
            inserts,
            removes: vec![],
        },
        20,
    );
    (root, model)
}

#[test]
fn pointer_nodes_are_cached_and_leaves_are_not() {
    let cache = Arc::new(NodeCache::new(1 << 20, 16_384, 2));
    let vfs = MemoryVfs::new();
    let mut appender = create(&vfs, 300, Compression::Snappy, Some(Arc::clone(&cache)));
    let (root, model) = build(&mut appender, 3000);
    appender.flush().unwrap();
    let file = Arc::clone(appender.file());
    let tree = Tree::new(&Sums, &*file, root.as_ref());
    let levels = tree.levels(Wait::Yes).unwrap();
    let pointers: u64 = levels.iter().take(3).map(|level| level.nodes).sum();
    assert_eq!(cache.info().size as u64, pointers.min(cache.info().size as u64));
    assert!(cache.info().size > 1 && levels.len() >= 3);
    let reads = file.stats().reads.load(Ordering::Relaxed);
    for key in model.keys().step_by(100) {
        tree.lookup_one(key, Wait::Yes, |value| assert!(value.is_some()))
            .unwrap();
    }
    let per_lookup = (file.stats().reads.load(Ordering::Relaxed) - reads) / 30;
    assert_eq!(
        per_lookup,
        levels.len().saturating_sub(3).max(1) as u64,
        "only what is too deep is read"
    );
    let id = file.id();
    assert!(cache.entries_of(id) > 0);
    file.close();
    assert_eq!(cache.entries_of(id), 0);
    check_lookup(&tree, &model, &[]);
    assert_eq!(cache.info().size, 0, "a closed file reads and caches nothing");
}

#[test]
fn a_file_rebuilt_in_place_never_shows_old_nodes() {
    let cache = Arc::new(NodeCache::new(1 << 20, 16_384, 2));
    let vfs = MemoryVfs::new();
    let mut appender = create(&vfs, 300, Compression::None, Some(Arc::clone(&cache)));
    for round in 0..5_i64 {
        appender.truncate(0).unwrap();
        let mut model = Model::new();
        // The same sizes at the same positions each time, with other keys.
        let inserts = (0..500_u16)
            .map(|id| (id * 5 + u16::try_from(round).unwrap(), i64::from(id) + 1000))
            .collect();
        let root = apply(
            &mut appender,
            None,
            &mut model,
            &Batch {
                inserts,
                removes: vec![],
            },
            20,
        );
        appender.flush().unwrap();
        check(appender.file(), root.as_ref(), &model, (100, 900), 20);
    }
    let file = appender.file().id();
    drop(appender);
    assert_eq!(
        (cache.entries_of(file), cache.info().size),
        (0, 0),
        "dropping the last handle closes it"
    );
}

/// A file system whose reads would block every second time.
#[derive(Debug, Default)]
struct Hesitant(MemoryVfs);

#[derive(Debug)]
struct HesitantFile(Arc<dyn VfsFile>, AtomicBool);

impl VfsFile for HesitantFile {
    fn read_at(&self, buf: &mut [u8], offset: u64, wait: Wait) -> io::Result<usize> {
        if wait == Wait::No && self.1.fetch_xor(true, Ordering::Relaxed) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        self.0.read_at(buf, offset, wait)
    }

    fn write_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        self.0.write_at(data, offset)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }
}

impl Vfs for Hesitant {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn VfsFile>> {
        Ok(Arc::new(HesitantFile(
            self.0.open(path, mode)?,
            AtomicBool::new(true),
        )))
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.0.remove_file(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.0.rename(from, to)
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.0.create_dir_all(path)
    }

    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        self.0.remove_dir_all(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.0.sync_dir(path)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.0.exists(path)
    }

    fn list_dir(&self, path: &Path) -> io::Result<Vec<DirEntry>> {
        self.0.list_dir(path)
    }
}

#[test]
fn a_cursor_goes_on_where_a_read_would_have_blocked() {
    let vfs = Hesitant::default();
    let mut appender = create(&vfs, 300, Compression::Snappy, None);
    let (root, model) = build(&mut appender, 1500);
    appender.flush().unwrap();
    for direction in [Direction::Forward, Direction::Reverse] {
        let start = key(700, 20);
        let options = CursorOptions {
            start: Some(start.clone()),
            direction,
            wait: Wait::No,
            ..CursorOptions::default()
        };
        let mut cursor = Cursor::new(Sums, Arc::clone(appender.file()), root.as_ref(), options);
        let (mut seen, mut blocked) = (Vec::new(), 0);
        loop {
            match cursor.next_leaf() {
                Ok(Some(view)) => seen.extend(view.entries().map(|(k, v)| (k.to_vec(), number(v)))),
                Ok(None) => break,
                Err(error) => {
                    assert!(error.is_would_block());
                    blocked += 1;
                }
            }
        }
        let expected = selected(&model, direction, Some(&start), Bound::Unbounded);
        assert!(seen.iter().map(|(k, v)| (k, *v)).eq(expected));
        assert!(blocked > 3);
        assert!(cursor.next_leaf().unwrap().is_none(), "the end stays the end");
    }
}

#[test]
fn a_cursor_can_move_to_another_thread() {
    let vfs = MemoryVfs::new();
    let mut appender = create(&vfs, 300, Compression::Snappy, None);
    let (root, model) = build(&mut appender, 500);
    appender.flush().unwrap();
    let mut cursor = Cursor::new(
        Sums,
        Arc::clone(appender.file()),
        root.as_ref(),
        CursorOptions::default(),
    );
    let first = cursor.next_leaf().unwrap().unwrap().len();
    let rest = std::thread::spawn(move || {
        let mut rest = 0;
        while let Some(view) = cursor.next_leaf().unwrap() {
            rest += view.len();
        }
        rest
    });
    assert_eq!(first + rest.join().unwrap(), model.len());
}

#[test]
fn a_change_that_changes_nothing_appends_nothing() {
    let vfs = MemoryVfs::new();
    let mut appender = create(&vfs, 300, Compression::Snappy, None);
    let (root, model) = build(&mut appender, 500);
    let eof = appender.eof();
    let same: Vec<(Vec<u8>, Vec<u8>)> = model.iter().map(|(k, v)| (k.clone(), value(*v))).collect();
    let refs: Vec<(&[u8], &[u8])> = same.iter().map(|(k, v)| (k.as_slice(), v.as_slice())).collect();
    let missing = key(60_000, 20);
    let (after, found) = modify(
        &Sums,
        &mut appender,
        root.as_ref(),
        &refs,
        &[&missing],
        &[&missing],
    )
    .unwrap();
    assert_eq!((after, found, appender.eof()), (root, vec![None], eof));
    let (none, _) = modify(&Sums, &mut appender, None, &[], &[&missing], &[]).unwrap();
    assert_eq!((none, appender.eof()), (None, eof));
}

#[test]
fn old_pointers_without_sizes_stay_readable() {
    let vfs = MemoryVfs::new();
    let mut appender = create(&vfs, 300, Compression::None, None);
    let (root, mut model) = build(&mut appender, 10);
    let leaf = root.unwrap();
    let mut node = vec![131];
    write::tuple(&mut node, 2);
    write::atom(&mut node, "kp_node");
    write::list(&mut node, 1);
    write::tuple(&mut node, 2);
    node.extend_from_slice(&key(9, 20));
    write::tuple(&mut node, 2);
    write::uint(&mut node, leaf.pos);
    node.extend_from_slice(&leaf.reduction);
    write::nil(&mut node);
    let pos = appender.append_term(&node).unwrap().pos;
    let root = Root {
        pos,
        reduction: leaf.reduction,
        size: None,
    };
    check(&appender, Some(&root), &model, (2, 8), 20);
    let batch = Batch {
        inserts: (100..400).map(|id| (id, 1)).collect(),
        removes: vec![3],
    };
    let root = apply(&mut appender, Some(&root), &mut model, &batch, 20);
    check(&appender, root.as_ref(), &model, (2, 300), 20);
}
