//! Tests of the trees: shapes recorded from CouchDB.

use std::path::Path;
use std::sync::Arc;

use super::*;
use crate::codec::compress::Compression;
use crate::codec::term::write;
use crate::storage::vfs::{MemoryVfs, Wait};
use crate::storage::{Appender, FileOptions};

/// CouchDB's chunks have no checksum in B-tree nodes and ours have one; so much longer is each of ours.
const CHECKSUM: u64 = 16;

fn int(value: i64) -> Vec<u8> {
    let mut out = Vec::new();
    write::int(&mut out, value);
    out
}

fn appender(compression: Compression) -> Appender {
    let options = FileOptions {
        btree_chunk_size: 1279,
        compression,
        ..FileOptions::default()
    };
    let file = CouchFile::create(&MemoryVfs::new(), Path::new("/t/a.couch"), options, None, false);
    Appender::new(Arc::new(file.expect("memory takes any file")))
}

fn change(
    appender: &mut Appender,
    root: Option<&Root>,
    inserts: &[Vec<u8>],
    removes: &[Vec<u8>],
) -> Option<Root> {
    let inserts: Vec<(&[u8], &[u8])> = inserts
        .iter()
        .map(|key| (key.as_slice(), key.as_slice()))
        .collect();
    let removes: Vec<&[u8]> = removes.iter().map(Vec::as_slice).collect();
    modify(&CountReduce, appender, root, &inserts, &removes, &[])
        .expect("a healthy tree")
        .0
}

fn ints(range: std::ops::RangeInclusive<i64>) -> Vec<Vec<u8>> {
    range.map(int).collect()
}

/// Entries of each leaf, left to right, and the number of nodes.
fn leaves(appender: &Appender, root: Option<&Root>) -> (Vec<usize>, u64) {
    let mut cursor = Cursor::new(CountReduce, appender, root, CursorOptions::default());
    let mut leaves = Vec::new();
    while let Some(view) = cursor.next_leaf().expect("a healthy tree") {
        leaves.push(view.len());
    }
    let levels = Tree::new(&CountReduce, appender, root)
        .levels(Wait::Yes)
        .expect("a healthy tree");
    (leaves, levels.iter().map(|level| level.nodes).sum())
}

fn count(root: &Root) -> i64 {
    term::Reader::new(&root.reduction).read_i64().expect("a count")
}

fn depth(appender: &Appender, root: Option<&Root>) -> usize {
    Tree::new(&CountReduce, appender, root)
        .depth(Wait::Yes)
        .expect("a healthy tree")
}

#[test]
fn shapes_are_those_of_couchdb() {
    let mut file = appender(Compression::None);
    let root = change(&mut file, None, &ints(1..=10), &[]).expect("not empty");
    assert_eq!((root.pos, count(&root), root.size), (0, 10, Some(84 + CHECKSUM)));
    assert_eq!(leaves(&file, Some(&root)), (vec![10], 1));

    let root = change(&mut file, None, &ints(1..=1000), &[]).expect("not empty");
    let mut expected = vec![167, 131, 90, 90, 90, 90, 90, 90, 90, 72];
    assert_eq!(leaves(&file, Some(&root)), (expected.clone(), 11));
    assert_eq!((depth(&file, Some(&root)), count(&root)), (2, 1000));

    let mut float = Vec::new();
    write::float(&mut float, 500.5);
    let root = change(&mut file, Some(&root), &[float.clone()], &[]).expect("not empty");
    expected[4] = 91;
    assert_eq!((leaves(&file, Some(&root)).0, count(&root)), (expected, 1001));

    let mut removed = ints(1..=990);
    removed.push(float);
    let root = change(&mut file, Some(&root), &[], &removed).expect("not empty");
    assert_eq!((leaves(&file, Some(&root)), count(&root)), ((vec![10], 2), 10));
    assert_eq!(depth(&file, Some(&root)), 2, "height never shrinks");
    assert_eq!(change(&mut file, Some(&root), &[], &ints(991..=1000)), None);
}

#[test]
fn removing_all_but_the_last_keys_keeps_the_pointer_node() {
    let mut file = appender(Compression::None);
    let root = change(&mut file, None, &ints(1..=1000), &[]);
    let mut float = Vec::new();
    write::float(&mut float, 500.5);
    let root = change(&mut file, root.as_ref(), &[float], &[]);
    let root = change(&mut file, root.as_ref(), &[], &ints(1..=990)).expect("not empty");
    assert_eq!((leaves(&file, Some(&root)), count(&root)), ((vec![1, 10], 3), 11));
}

#[test]
fn four_hundred_at_once() {
    let mut file = appender(Compression::None);
    let root = change(&mut file, None, &ints(1..=400), &[]).expect("not empty");
    assert_eq!(leaves(&file, Some(&root)), (vec![157, 130, 85, 28], 5));
    assert_eq!(
        (root.pos, root.size),
        (3363 + 4 * CHECKSUM, Some(3464 + 5 * CHECKSUM))
    );
}

#[test]
fn three_hundred_one_by_one() {
    let mut file = appender(Compression::None);
    let mut root = None;
    for i in 1..=300 {
        root = change(&mut file, root.as_ref(), &[int(i)], &[]);
    }
    let root = root.expect("not empty");
    assert_eq!(leaves(&file, Some(&root)), (vec![92, 92, 82, 34], 5));
    assert_eq!((count(&root), root.size), (300, Some(2263 + 5 * CHECKSUM)));
}

#[test]
fn documents_in_snappy() {
    let mut file = appender(Compression::Snappy);
    let entries: Vec<(Vec<u8>, Vec<u8>)> = (1..=500_i64)
        .map(|i| {
            let mut key = Vec::new();
            write::binary(&mut key, format!("doc{i:05}").as_bytes());
            let mut value = Vec::new();
            write::tuple(&mut value, 2);
            write::int(&mut value, i);
            write::binary(&mut value, b"v");
            (key, value)
        })
        .collect();
    let inserts: Vec<(&[u8], &[u8])> = entries
        .iter()
        .map(|(k, v)| (k.as_slice(), v.as_slice()))
        .collect();
    let (root, _) = modify(&CountReduce, &mut file, None, &inserts, &[], &[]).expect("a healthy tree");
    let mut expected = vec![47; 5];
    expected.push(44);
    expected.extend([42; 5]);
    expected.push(11);
    assert_eq!(leaves(&file, root.as_ref()), (expected, 13));
}
