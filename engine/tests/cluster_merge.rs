//! Merging rows and changes from the shards.
#![expect(clippy::unwrap_used, reason = "tests")]

use proptest::prelude::*;
use settee_engine::cluster::ring;
use settee_engine::cluster::*;
use settee_engine::ids::NodeName;
use std::collections::BTreeSet;

const SEPARATOR: &[u8] = b",\r\n";

fn node(name: &str) -> NodeName {
    NodeName::new(name).unwrap()
}

/// A batch of rows whose JSON is the id in quotes; joined by the separator or with something else between.
fn batch(ids: &[&str], joined: bool) -> RowBatch {
    let mut batch = RowBatch::default();
    let place = |bytes: &[u8]| u32::try_from(bytes.len()).unwrap();
    let mut texts = Vec::new();
    for id in ids {
        if !batch.bytes.is_empty() {
            batch
                .bytes
                .extend_from_slice(if joined { SEPARATOR } else { b"#" });
        }
        let start = place(&batch.bytes);
        batch.bytes.extend_from_slice(format!("\"{id}\"").as_bytes());
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
}

fn merge(workers: usize, descending: bool, skip: u64, limit: u64) -> AllDocsMerge {
    AllDocsMerge::new(
        workers,
        AllDocsOptions {
            descending,
            skip,
            limit,
        },
    )
}

fn with_meta(mut merge: AllDocsMerge, workers: usize) -> AllDocsMerge {
    for worker in 0..workers {
        merge.meta(
            worker,
            ShardMeta {
                total: Some(3),
                offset: Some(1),
                update_seq: None,
            },
        );
    }
    merge
}

fn drain(merge: &mut AllDocsMerge) -> (String, MergeState) {
    let mut out = Vec::new();
    let drained = merge.drain(&mut out, SEPARATOR, usize::MAX);
    let text = String::from_utf8(out)
        .unwrap()
        .replace(",\r\n", " ")
        .replace('"', "");
    assert_eq!(drained.rows, text.split(' ').filter(|id| !id.is_empty()).count());
    (text, drained.state)
}

#[test]
fn rows_wait_for_every_shard() {
    let mut merge = merge(3, false, 0, 100);
    merge.push(0, batch(&["a", "d"], true));
    assert_eq!(drain(&mut merge), (String::new(), MergeState::Starved));
    let mut merge = with_meta(merge, 3);
    merge.push(1, batch(&["b", "c", "e"], true));
    assert_eq!(drain(&mut merge), (String::new(), MergeState::Starved));
    merge.complete(2);
    // Shard 0 may still send what comes before e.
    assert_eq!(drain(&mut merge), ("a b c d".to_owned(), MergeState::Starved));
    assert_eq!(merge.buffered_batches(0), 0);
    merge.push(0, batch(&["da"], false));
    assert_eq!(drain(&mut merge), ("da".to_owned(), MergeState::Starved));
    assert!(merge.needs(0) && !merge.needs(2));
    merge.complete(0);
    assert_eq!(drain(&mut merge), ("e".to_owned(), MergeState::Starved));
    merge.complete(1);
    assert_eq!(drain(&mut merge), (String::new(), MergeState::Done));
    assert_eq!(merge.buffered_rows(), 0);
}

#[test]
fn skip_limit_and_direction() {
    let table = [
        (false, 0, 3, "a b c"),
        (false, 1, 2, "b c"),
        (false, 2, 100, "c d e f"),
        (false, 6, 1, ""),
        (false, 0, 0, ""),
        (true, 0, 100, "f e d c b a"),
        (true, 2, 2, "d c"),
    ];
    for (descending, skip, limit, expected) in table {
        let mut ids = [vec!["a", "d", "e"], vec!["b", "c", "f"]];
        let mut merge = with_meta(merge(2, descending, skip, limit), 2);
        for (worker, ids) in ids.iter_mut().enumerate() {
            if descending {
                ids.reverse();
            }
            merge.push(worker, batch(ids, true));
            merge.complete(worker);
        }
        assert_eq!(
            drain(&mut merge),
            (expected.to_owned(), MergeState::Done),
            "{descending} {skip} {limit}"
        );
    }
}

#[test]
fn the_limit_ends_the_merge_while_others_still_run() {
    let mut merge = with_meta(merge(2, false, 0, 2), 2);
    merge.push(0, batch(&["a", "b", "c"], true));
    merge.push(1, batch(&["z"], true));
    assert_eq!(drain(&mut merge), ("a b".to_owned(), MergeState::Done));
}

#[test]
fn output_comes_in_pieces_of_the_size_asked_for() {
    let mut merge = with_meta(merge(1, false, 0, 100), 1);
    merge.push(0, batch(&["a", "b", "c", "d"], true));
    merge.complete(0);
    let mut out = Vec::new();
    let drained = merge.drain(&mut out, SEPARATOR, 7);
    assert_eq!(drained.state, MergeState::Full);
    assert_eq!(drained.rows, 2);
    assert_eq!(out, b"\"a\",\r\n\"b\"");
    assert_eq!(drain(&mut merge), ("c d".to_owned(), MergeState::Done));
}

#[test]
fn the_meta_is_summed() {
    let entry = |index: usize, seq| SeqEntry {
        node: node("n@h"),
        range: ring::ranges(2).unwrap()[index],
        seq: ShardSeq::Int(seq),
    };
    let meta = |total, offset, update_seq| ShardMeta {
        total,
        offset,
        update_seq,
    };
    let mut two = merge(2, false, 3, 10);
    assert_eq!(two.meta(1, meta(Some(10), Some(2), Some(entry(1, 5)))), None);
    assert_eq!(two.meta(1, meta(Some(10), Some(2), None)), None);
    let sum = two.meta(0, meta(Some(4), Some(1), Some(entry(0, 7)))).unwrap();
    assert_eq!((sum.total_rows, sum.offset), (Some(14), Some(6)));
    assert!(sum.update_seq.unwrap().starts_with("12-"));
    let mut one = merge(1, false, 30, 10);
    let sum = one.meta(0, meta(Some(4), Some(1), None)).unwrap();
    assert_eq!(
        sum,
        AllDocsMeta {
            total_rows: Some(4),
            offset: Some(4),
            update_seq: None
        }
    );
    let mut unknown = merge(1, false, 0, 10);
    assert_eq!(
        unknown.meta(0, meta(None, Some(1), None)),
        Some(AllDocsMeta::default())
    );
}

proptest! {
    #[test]
    fn a_merge_is_a_sort(
        ids in proptest::collection::btree_set("[a-c]{1,4}", 0..60),
        owners in proptest::collection::vec(0_usize..9, 60),
        workers in 1_usize..9,
        cuts in proptest::collection::vec(1_usize..6, 60),
        descending: bool,
        joined: bool,
        skip in 0_u64..10,
        limit in 0_u64..70,
        bytes_max in 1_usize..200,
    ) {
        let mut of_worker: Vec<Vec<&str>> = vec![Vec::new(); workers];
        let ordered: Vec<&str> = if descending { ids.iter().rev().map(String::as_str).collect() } else { ids.iter().map(String::as_str).collect() };
        for (id, owner) in ordered.iter().zip(&owners) {
            of_worker[owner % workers].push(id);
        }
        let mut merge = with_meta(merge(workers, descending, skip, limit), workers);
        let mut sent = vec![0_usize; workers];
        let mut cuts = cuts.iter().cycle();
        let mut text: Vec<String> = Vec::new();
        loop {
            for worker in 0..workers {
                let rest = &of_worker[worker][sent[worker]..];
                if rest.is_empty() {
                    merge.complete(worker);
                } else {
                    let count = rest.len().min(*cuts.next().unwrap());
                    merge.push(worker, batch(&rest[..count], joined));
                    sent[worker] += count;
                }
            }
            let mut out = Vec::new();
            let drained = merge.drain(&mut out, SEPARATOR, bytes_max);
            let piece = String::from_utf8(out).unwrap();
            let rows: Vec<String> = piece.split(",\r\n").filter(|row| !row.is_empty()).map(|row| row.replace('"', "")).collect();
            prop_assert_eq!(rows.len(), drained.rows);
            text.extend(rows);
            if drained.state == MergeState::Done {
                break;
            }
        }
        let expected: Vec<&str> = ordered.into_iter().skip(skip as usize).take(limit as usize).collect();
        prop_assert_eq!(text, expected);
    }
}

// ----------------------------------------------------------------------------------------------------- changes

fn vector(q: u32) -> PackedSeq {
    let entries = ring::ranges(q).unwrap().into_iter().map(|range| SeqEntry {
        node: node("n@h"),
        range,
        seq: ShardSeq::epoch(0, b"0123456789", Some(&node("n@h"))),
    });
    PackedSeq {
        entries: entries.collect(),
    }
}

/// Rows are `SEQ/PENDING`, with `~` in front when a filter kept them back.
fn changes(rows: &str) -> ChangeBatch {
    let mut batch = ChangeBatch::default();
    for row in rows.split(' ').filter(|row| !row.is_empty()) {
        let (seq, pending) = row.trim_start_matches('~').split_once('/').unwrap();
        let start = u32::try_from(batch.bytes.len()).unwrap();
        batch
            .bytes
            .extend_from_slice(format!("\"id\":\"{seq}\",\"changes\":[]}}").as_bytes());
        let json = (!row.starts_with('~')).then(|| start..u32::try_from(batch.bytes.len()).unwrap());
        batch.rows.push(ChangeRef {
            seq: seq.parse().unwrap(),
            pending: pending.parse().unwrap(),
            json,
        });
    }
    batch
}

fn seqs(merge: &ChangesMerge) -> Vec<u64> {
    merge
        .vector()
        .entries
        .iter()
        .map(|entry| entry.seq.seq())
        .collect()
}

#[test]
fn every_row_carries_the_vector_after_it() {
    let mut merge = ChangesMerge::new(
        vector(2),
        ChangesOptions {
            limit: 100,
            seq_interval: 1,
        },
    );
    let mut out = ChangeRows::default();
    assert_eq!(
        merge.push(0, &changes("3/2 ~4/1 9/0"), b"\n", &mut out),
        ChangesState::More
    );
    assert_eq!(
        merge.push(1, &changes("2/5"), b"\n", &mut out),
        ChangesState::More
    );
    assert_eq!(out.rows.len(), 3);
    let expected = [[3, 0], [9, 0], [9, 2]];
    for (range, expected) in out.rows.iter().zip(expected) {
        let row = std::str::from_utf8(&out.bytes[range.start as usize..range.end as usize]).unwrap();
        let packed = row.strip_prefix("{\"seq\":\"").unwrap().split_once('"').unwrap();
        let found: Vec<u64> = PackedSeq::parse(packed.0)
            .unwrap()
            .entries
            .iter()
            .map(|entry| entry.seq.seq())
            .collect();
        assert_eq!(found, expected, "{row}");
        assert!(packed.1.starts_with(",\"id\":\""), "{row}");
    }
    assert_eq!(merge.pending(), Some(5));
    assert_eq!(
        merge.complete(0, &ShardSeq::epoch(11, b"0123456789", Some(&node("n@h"))), 0),
        ChangesState::More
    );
    let end = merge.complete(1, &ShardSeq::epoch(8, b"0123456789", Some(&node("n@h"))), 0);
    assert_eq!(end, ChangesState::Done);
    let end = merge.end();
    assert_eq!(end.pending, Some(0));
    assert_eq!(PackedSeq::parse(&end.last_seq), Ok(merge.vector()));
    assert_eq!(seqs(&merge), [11, 8]);
}

#[test]
fn behind_the_limit_every_worker_is_heard_once() {
    let mut merge = ChangesMerge::new(
        vector(3),
        ChangesOptions {
            limit: 2,
            seq_interval: 1,
        },
    );
    let mut out = ChangeRows::default();
    assert_eq!(
        merge.push(0, &changes("1/9 2/8 3/7 ~4/6"), b"\n", &mut out),
        ChangesState::More
    );
    assert_eq!((out.rows.len(), merge.limit_left()), (2, 0));
    // Row 3 was left out, so neither it nor what came behind it moves the vector.
    assert_eq!(seqs(&merge), [2, 0, 0]);
    assert_eq!(merge.pending(), None);
    // Filtered rows move the vector until one has to be left out, which counts as pending.
    assert_eq!(
        merge.push(1, &changes("~5/4 6/3"), b"\n", &mut out),
        ChangesState::More
    );
    assert_eq!(seqs(&merge), [2, 5, 0]);
    assert_eq!(merge.complete(2, &ShardSeq::Int(7), 1), ChangesState::Done);
    assert_eq!(out.rows.len(), 2);
    assert_eq!(merge.pending(), Some(8 + 4 + 1));
    assert_eq!(seqs(&merge), [2, 5, 0]);
}

#[test]
fn a_limit_of_zero_sends_nothing_and_tells_what_is_pending() {
    let mut merge = ChangesMerge::new(
        vector(1),
        ChangesOptions {
            limit: 0,
            seq_interval: 1,
        },
    );
    let mut out = ChangeRows::default();
    assert_eq!(
        merge.push(0, &changes("1/9"), b"\n", &mut out),
        ChangesState::Done
    );
    assert_eq!((out.rows.len(), merge.pending()), (0, Some(10)));
}

#[test]
fn sequences_may_be_left_out_and_forms_may_change() {
    let mut merge = ChangesMerge::new(
        vector(1),
        ChangesOptions {
            limit: 4,
            seq_interval: 3,
        },
    );
    let mut out = ChangeRows::default();
    let mut batch = changes("1/3 2/2 3/1");
    batch.form = Some(ShardSeq::epoch(0, b"abcdefghijk", None));
    merge.push(0, &batch, b"\n", &mut out);
    let text = String::from_utf8(out.bytes).unwrap();
    let with: BTreeSet<usize> = text
        .lines()
        .enumerate()
        .filter(|(_, row)| !row.starts_with("{\"seq\":null,"))
        .map(|(place, _)| place)
        .collect();
    // Four, three and two rows left.
    assert_eq!(with, BTreeSet::from([1]));
    assert_eq!(
        merge.vector().entries[0].seq,
        ShardSeq::epoch(3, b"abcdefg", None)
    );
}

#[test]
fn the_info_of_a_database_is_summed_over_a_ring() {
    let shards = ring::ranges(2)
        .unwrap()
        .into_iter()
        .map(|range| (range, vec![node("a@h"), node("b@h")]))
        .collect();
    let db = settee_engine::ids::DbName::new("db").unwrap();
    let map = ShardMap::new(db, shard_suffix(1), shards, ShardMapOptions::default()).unwrap();
    let copies: Vec<(usize, NodeName)> = map.copies().map(|(shard, node)| (shard, node.clone())).collect();
    let info = |doc_count, compact_running, active| ShardInfo {
        doc_count,
        doc_del_count: 1,
        sizes_file: 100,
        sizes_external: 10,
        sizes_active: active,
        disk_format_version: 8,
        compact_running,
        update_seq: ShardSeq::epoch(doc_count, b"0123456789", Some(&node("a@h"))),
        purge_seq: 2,
    };
    let mut merge = DbInfoMerge::new(&map, copies.clone());
    assert_eq!(merge.reply(1, info(5, false, Some(50))), InfoStep::Wait);
    assert_eq!(merge.reply(0, info(6, true, Some(50))), InfoStep::Wait);
    let InfoStep::Done(sum, kill) = merge.reply(2, info(7, true, None)) else {
        panic!("complete")
    };
    // The earliest answer of each range counts.
    assert_eq!(
        (
            sum.sums.doc_count,
            sum.sums.sizes_active,
            sum.sums.compact_running
        ),
        (12, None, true)
    );
    assert_eq!((sum.q, sum.n, sum.quorum, kill), (2, 2, 2, vec![0, 3]));
    assert!(sum.update_seq.starts_with("12-") && sum.purge_seq.starts_with("4-"));
    let mut merge = DbInfoMerge::new(&map, copies);
    assert_eq!(merge.exit(0), InfoStep::Wait);
    assert_eq!(merge.node_down(&node("b@h")), InfoStep::NoRing);
}
