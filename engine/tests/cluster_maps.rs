//! Shard maps and packed sequences against CouchDB's own bytes.
#![expect(clippy::unwrap_used, reason = "tests")]

use proptest::prelude::*;
use settee_engine::cluster::ring::{self, RING_END};
use settee_engine::cluster::*;
use settee_engine::ids::{DbName, NodeName, ShardRange};

fn node(name: &str) -> NodeName {
    NodeName::new(name).unwrap()
}

fn map_of(q: u32, nodes: &[&str]) -> ShardMap {
    let nodes: Vec<NodeName> = nodes.iter().map(|name| node(name)).collect();
    let shards = ring::ranges(q)
        .unwrap()
        .into_iter()
        .map(|range| (range, nodes.clone()))
        .collect();
    ShardMap::new(
        DbName::new("mydb").unwrap(),
        shard_suffix(1_684_269_710),
        shards,
        ShardMapOptions::default(),
    )
    .unwrap()
}

#[test]
fn names_of_shards() {
    let map = map_of(2, &["n@h"]);
    assert_eq!(
        &**map.shards()[0].name(),
        "shards/00000000-7fffffff/mydb.1684269710"
    );
    assert_eq!(map.instance_start_time(), "1684269710");
    let table = [
        ("shards/00000000-7fffffff/mydb.1684269710", "mydb"),
        ("shards/00000000-7fffffff/a/b.c.1684269710", "a/b.c"),
        ("shards/00000000-7fffffff/mydb.x", "mydb"),
        ("shards/00000000-7fffffff/my.d/b", "my.d/b"),
        ("shards/00000000-7fffffff/mydb", "mydb"),
        ("_dbs", "_dbs"),
        ("shards/", "shards/"),
        ("", ""),
    ];
    for (shard, db) in table {
        assert_eq!(db_name_of_shard(shard), db, "{shard}");
    }
    assert_eq!(
        range_of_shard(map.shards()[1].name()),
        Some(map.shards()[1].range())
    );
    assert_eq!(range_of_shard("shards/0000"), None);
    assert_eq!(range_of_shard("_dbs"), None);
}

#[test]
fn documents_fall_into_their_range() {
    for q in [1, 2, 3, 5, 7, 8, 16, 100, 255] {
        let map = map_of(q, &["n@h"]);
        for number in 0..2_000_u32 {
            let id = format!("doc-{number}");
            let shard = map.for_doc(id.as_bytes()).unwrap();
            assert!(
                map.shards()[shard]
                    .range()
                    .contains(crc32fast::hash(id.as_bytes())),
                "q={q} {id}"
            );
            assert_eq!(
                map.all_for_doc(id.as_bytes()).unwrap().collect::<Vec<_>>(),
                [shard]
            );
        }
    }
}

#[test]
fn a_map_after_a_split_on_one_node() {
    let (low, high) = (
        ShardRange::new(0, 9).unwrap(),
        ShardRange::new(10, RING_END).unwrap(),
    );
    let whole = ShardRange::new(0, RING_END).unwrap();
    let shards = vec![
        (high, vec![node("a@h")]),
        (whole, vec![node("b@h")]),
        (low, vec![node("a@h")]),
    ];
    let db = DbName::new("mydb").unwrap();
    let map = ShardMap::new(db.clone(), shard_suffix(1), shards, ShardMapOptions::default()).unwrap();
    let ranges: Vec<ShardRange> = map.shards().iter().map(ShardCopies::range).collect();
    assert_eq!(ranges, [whole, low, high]);
    assert_eq!(map.all_for_doc(b"").unwrap().collect::<Vec<_>>(), [0, 1]);
    assert_eq!(map.all_for_doc(b"foo").unwrap().collect::<Vec<_>>(), [0, 2]);
    assert_eq!(map.n(), 2);
    let gap = ShardMap::new(
        db,
        shard_suffix(1),
        vec![(high, vec![node("a@h")])],
        ShardMapOptions::default(),
    );
    assert_eq!(gap, Err(ShardMapError::Incomplete));
}

#[test]
fn the_document_comes_back() {
    let partitioned = ShardMapOptions {
        partitioned: true,
        hash: HashKind::Partition,
        engine: Some("couch".to_owned()),
    };
    for options in [ShardMapOptions::default(), partitioned] {
        let nodes = vec![node("b@h"), node("a@h")];
        let shards = ring::ranges(3)
            .unwrap()
            .into_iter()
            .map(|range| (range, nodes.clone()))
            .collect();
        let db = DbName::new("mydb").unwrap();
        let map = ShardMap::new(db.clone(), shard_suffix(1_684_269_710), shards, options).unwrap();
        let body = map.to_term();
        assert_eq!(ShardMap::from_term(db.clone(), &body), Ok(map.clone()));
        for cut in 0..body.len() {
            assert!(
                ShardMap::from_term(db.clone(), &body[..cut]).is_err(),
                "cut at {cut}"
            );
        }
    }
}

/// A document in the form that CouchDB writes, with the suffix as character codes.
const DOCUMENT: &str = r#"{"_id":"mydb","_rev":"1-a",
    "shard_suffix":[46,49,54,56,52,50,54,57,55,49,48],
    "changelog":[["add","00000000-7fffffff","a@h"],["add","00000000-7fffffff","b@h"],["add","80000000-ffffffff","a@h"]],
    "by_node":{"a@h":["00000000-7fffffff","80000000-ffffffff"],"b@h":["00000000-7fffffff"]},
    "by_range":{"00000000-7fffffff":["b@h","a@h"],"80000000-ffffffff":["a@h"]},
    "props":{"auto_purge":{"deleted_document_ttl":9}},"unknown":[1,2.5,null]}"#;

#[test]
fn the_document_is_read_as_couchdb_writes_it() {
    let db = || DbName::new("mydb").unwrap();
    let map = ShardMap::from_json(db(), DOCUMENT.as_bytes()).unwrap();
    assert_eq!(
        &**map.shards()[0].name(),
        "shards/00000000-7fffffff/mydb.1684269710"
    );
    assert_eq!(map.shards()[0].nodes(), [node("b@h"), node("a@h")]);
    // What this version does not know of the properties comes back.
    let mut json = Vec::new();
    settee_engine::codec::json::term_to_json(&map.to_term(), &mut json).unwrap();
    let json = String::from_utf8(json).unwrap();
    assert!(
        json.contains(r#""props":{"auto_purge":{"deleted_document_ttl":9}}"#),
        "{json}"
    );
    assert!(json.starts_with(r#"{"shard_suffix":[46,49,"#), "{json}");
    assert_eq!(ShardMap::from_json(db(), json.as_bytes()), Ok(map));

    let text = DOCUMENT.replace("[46,49,54,56,52,50,54,57,55,49,48]", "\".1684269710\"");
    assert_eq!(
        ShardMap::from_json(db(), text.as_bytes()).unwrap().suffix(),
        ".1684269710"
    );
    // Where the two members differ, by_node counts.
    let differs = DOCUMENT.replace(r#":["b@h","a@h"]"#, r#":["b@h"]"#);
    let map = ShardMap::from_json(db(), differs.as_bytes()).unwrap();
    assert_eq!(map.shards()[0].nodes(), [node("a@h"), node("b@h")]);
}

#[test]
fn documents_that_describe_no_database_are_refused() {
    let broken = [
        ("\"by_node\"", "\"by_nobody\""),
        ("\"00000000-7fffffff\"", "\"00000000-7ffffffe\""),
        ("\"00000000-7fffffff\"", "\"7fffffff-00000000\""),
        ("[46,49", "[47,49"),
        ("[46,49", "[460,49"),
        ("\"a@h\"", "\"nobody\""),
        ("{\"auto_purge\"", "{\"hash\":[\"m\",\"f\",[]],\"auto_purge\""),
        ("\"by_range\":{", "\"by_range\":[{"),
    ];
    for (from, to) in broken {
        let text = DOCUMENT.replace(from, to);
        assert!(
            ShardMap::from_json(DbName::new("mydb").unwrap(), text.as_bytes()).is_err(),
            "{from} as {to}"
        );
    }
}

/// Packed sequences that CouchDB has written, and their length as terms.
const PACKED: &[&str] = &[
    "1-g1AAAAF9eJzLYWBg4MhgTmHgz8tPSTV0MDQy1zMAQsMcoARTIkOS_P___7MSGXAqSVIAkkn2IFUZzIkMuUAee5pRqnGiuXkKA2dpXkpqWmZeagpu_Q4g_fGEbEkAqaqH2sIItsXAyMjM2NgUUwdOU_JYgCRDA5ACGjQfn30QlQsgKvcTVnkAovI-YZUPICpBvs0CAN1eY_c",
    "111-g1AAAABLeJzLYWBgYMxgTmHgz8tPSTV0MDQy1zMAQsMcoARTIkMeC8N_IMjKYE7MzwUKsZumWJgZGVhgasgCAKxaErg",
    "2-g1AAAAFReJzLYWBg4MhgTmHgzcvPy09JdcjLz8gvLskBCjMlMiTJ____PyuDOZEpFyjAnmJhkWaeaIquGIf2JAUgmWQPMiGRAZcaB5CaePxqEkBq6vGqyWMBkgwNQAqobD4hdQsg6vYTUncAou4-IXUPIOpA7ssCAIFHa60",
];

#[test]
fn what_couchdb_wrote_is_read_and_comes_back() {
    for text in PACKED {
        let parsed = PackedSeq::parse(text).unwrap();
        let number: u64 = text.split_once('-').unwrap().0.parse().unwrap();
        assert_eq!(parsed.sum(), number, "{text}");
        assert_eq!(PackedSeq::parse(&parsed.pack()), Ok(parsed.clone()));
        assert!(
            parsed.pack().len() <= text.len() + 12,
            "the compressed form is used where it is shorter"
        );
        let quoted = format!("\"{text}\"");
        assert_eq!(PackedSeq::parse(&quoted), Ok(parsed.clone()));
        assert_eq!(
            PackedSeq::parse(text.split_once('-').unwrap().1),
            Ok(parsed.clone())
        );
        let mut out = Vec::new();
        PackedSeqTemplate::new(parsed.clone()).write_into(&mut out);
        assert_eq!(PackedSeq::parse(std::str::from_utf8(&out).unwrap()), Ok(parsed));
    }
    let first = PackedSeq::parse(PACKED[0]).unwrap();
    assert_eq!(first.entries.len(), 8);
    let fresh = ShardSeq::epoch(0, b"f2e3a77d", None);
    assert_eq!(first.entries[0].seq.seq() + first.entries[1].seq.seq(), 0);
    assert!(matches!(
        fresh,
        ShardSeq::Epoch {
            node: EpochNode::Undefined,
            ..
        }
    ));
}

#[test]
fn the_vector_of_the_facts() {
    let entry = SeqEntry {
        node: node("n@h"),
        range: ring::FULL_RING,
        seq: ShardSeq::epoch(0, b"0123456789abcdef", Some(&node("n@h"))),
    };
    let packed = PackedSeq { entries: vec![entry] };
    let expected = "0-g2wAAAABaANkAANuQGhsAAAAAmEAbgQA_____2poA2EAbQAAAAcwMTIzNDU2ZAADbkBoag";
    assert_eq!(PackedSeq::parse(expected), Ok(packed.clone()));
    assert_eq!(PackedSeq::parse(&packed.pack()), Ok(packed));
}

#[test]
fn junk_is_refused() {
    let junk = [
        "",
        "\"\"",
        "now",
        "1234",
        "\"1234\"",
        "randomjunk",
        "0",
        "[23423,\"g1AAAA\"]",
        "1-g1AAAAF9eJzLYWBg",
        "1-g1_____w",
        "5-",
        "-",
        "g2o-",
        "5-g2sAAQE",
        "1-g1AAAAF9e",
        "\u{fc}-g2o",
    ];
    for text in junk {
        assert!(PackedSeq::parse(text).is_err(), "{text:?}");
    }
    assert_eq!(PackedSeq::parse("0-g2o"), Ok(PackedSeq::default()));
    let long = "g".repeat(2 << 20);
    assert_eq!(PackedSeq::parse(&long), Err(PackedSeqError::TooLarge));
    // A compressed term that claims 4 GB.
    assert_eq!(PackedSeq::parse("1-g1D_____eJw"), Err(PackedSeqError::TooLarge));
}

#[test]
fn a_copy_named_twice_keeps_the_larger_sequence() {
    let entry = |seq| SeqEntry {
        node: node("n@h"),
        range: ring::FULL_RING,
        seq: ShardSeq::Int(seq),
    };
    let twice = PackedSeq {
        entries: vec![entry(4), entry(9), entry(2)],
    };
    assert_eq!(
        PackedSeq::parse(&twice.pack()),
        Ok(PackedSeq {
            entries: vec![entry(9)]
        })
    );
}

fn start(packed: &ShardSeq, own: &str, epochs: &[(NodeName, u64)]) -> StartSeq {
    calculate_start_seq(&node(own), b"foo", epochs, &StartVector::Seq(packed.clone()))
}

#[test]
fn start_sequences_by_uuid_and_epoch() {
    let epochs = [(node("n2@h"), 10), (node("n1@h"), 1)];
    let old = |seq, uuid: &[u8]| ShardSeq::Epoch {
        seq,
        uuid: uuid.to_vec(),
        node: EpochNode::Unsaid,
    };
    let not_owner = StartSeq::Rewind(RewindReason::NotOwner);
    let table = [
        (
            old(15, b"baz"),
            "n2@h",
            StartSeq::Rewind(RewindReason::UuidMismatch),
        ),
        (old(15, b"foo"), "n2@h", StartSeq::At(15)),
        (old(15, b"foo"), "n3@h", not_owner.clone()),
        (ShardSeq::Int(13), "n1@h", StartSeq::At(13)),
        (old(2, b"foo"), "n1@h", StartSeq::At(2)),
        (old(10, b"foo"), "n2@h", StartSeq::At(10)),
        // Written on n1 after the file was copied to n2: the next epoch's beginning.
        (old(16, b"foo"), "n1@h", StartSeq::At(10)),
        (old(16, b"foo"), "n3@h", not_owner.clone()),
        (
            ShardSeq::epoch(16, b"foo", Some(&node("n1@h"))),
            "n3@h",
            StartSeq::At(10),
        ),
        (
            ShardSeq::Split {
                seq: 3,
                uuid: b"src".to_vec(),
                node: EpochNode::Node(node("n1@h")),
            },
            "n1@h",
            StartSeq::SplitTarget {
                node: node("n1@h"),
                uuid: b"src".to_vec(),
                seq: 3,
            },
        ),
        (
            ShardSeq::Split {
                seq: 3,
                uuid: b"src".to_vec(),
                node: EpochNode::Node(node("n2@h")),
            },
            "n1@h",
            not_owner,
        ),
    ];
    for (packed, own, expected) in table {
        assert_eq!(start(&packed, own, &epochs), expected, "{packed:?} on {own}");
    }
    assert_eq!(
        start(&ShardSeq::epoch(0, b"foo", None), "n1@h", &[]),
        StartSeq::At(0)
    );
    let replace = |uuid: &[u8], seq| StartVector::Replace {
        node: node("n1@h"),
        uuid: uuid.to_vec(),
        seq,
    };
    let calculate = |vector: StartVector| calculate_start_seq(&node("n2@h"), b"foo", &epochs, &vector);
    assert_eq!(calculate(replace(b"foo", 16)), StartSeq::At(10));
    assert_eq!(
        calculate(replace(b"bar", 7)),
        StartSeq::Source {
            node: node("n1@h"),
            uuid: b"bar".to_vec(),
            seq: 7
        }
    );
}

fn since(map: &ShardMap, on: &str, seqs: &[u64]) -> PackedSeq {
    let entries = map.shards().iter().zip(seqs).map(|(shard, seq)| SeqEntry {
        node: node(on),
        range: shard.range(),
        seq: ShardSeq::epoch(*seq, b"abcdefgh", Some(&node(on))),
    });
    PackedSeq {
        entries: entries.collect(),
    }
}

#[test]
fn workers_go_on_where_the_sequence_says() {
    let map = map_of(2, &["a@h", "b@h"]);
    let all = |_: &NodeName| true;
    let nowhere = |_: &[u8], _: ShardRange| None;
    let packed = since(&map, "b@h", &[5, 7]);
    let workers = plan_workers(&packed, &map, all, nowhere).unwrap();
    let found: Vec<_> = workers
        .iter()
        .map(|worker| (worker.shard, worker.node.as_str(), worker.seq.seq()))
        .collect();
    assert_eq!(found, [(0, "b@h", 5), (1, "b@h", 7)]);

    let without_b = |node: &NodeName| node.as_str() != "b@h";
    let workers = plan_workers(&packed, &map, without_b, nowhere).unwrap();
    assert!(workers.iter().all(|worker| worker.node.as_str() == "a@h"));
    let replace = StartVector::Replace {
        node: node("b@h"),
        uuid: b"abcdefg".to_vec(),
        seq: 5,
    };
    assert_eq!(workers[0].start, replace);

    let partial = PackedSeq {
        entries: packed.entries[1..].to_vec(),
    };
    let workers = plan_workers(&partial, &map, all, nowhere).unwrap();
    assert_eq!(workers[0].start, StartVector::ZERO);
    assert_eq!(workers[1].node, node("b@h"));
    assert_eq!(plan_workers(&packed, &map, |_| false, nowhere), Err(NoRing));

    let from_zero = workers_from_zero(&map, all, &node("b@h")).unwrap();
    assert!(
        from_zero
            .iter()
            .all(|worker| worker.node.as_str() == "b@h" && worker.start == StartVector::ZERO)
    );
}

#[test]
fn workers_follow_splits_and_moves() {
    let whole = map_of(1, &["a@h"]);
    let packed = since(&whole, "a@h", &[9]);
    let split = map_of(2, &["a@h"]);
    let workers = plan_workers(&packed, &split, |_| true, |_, _| None).unwrap();
    let marked = ShardSeq::Split {
        seq: 9,
        uuid: b"abcdefg".to_vec(),
        node: EpochNode::Node(node("a@h")),
    };
    assert!(
        workers
            .iter()
            .all(|worker| worker.start == StartVector::Seq(marked.clone()))
    );
    assert_eq!(workers.len(), 2);

    let moved = map_of(1, &["c@h"]);
    let to_c = |uuid: &[u8], _: ShardRange| (uuid == b"abcdefg").then(|| node("c@h"));
    let workers = plan_workers(&packed, &moved, |_| true, to_c).unwrap();
    assert_eq!(workers[0].node, node("c@h"));
    assert_eq!(workers[0].start, StartVector::Seq(packed.entries[0].seq.clone()));
}

proptest! {
    #[test]
    fn templates_say_what_was_set(
        q in 1_u32..10,
        updates in proptest::collection::vec((0_usize..10, prop_oneof![0..1_000_u64, 2_147_483_000..2_147_484_000_u64, Just(u64::MAX >> 8), Just((1 << 56) + 1), Just(u64::MAX / 16)]), 0..40),
    ) {
        let map = map_of(q, &["node1@127.0.0.1"]);
        let mut expected = since(&map, "node1@127.0.0.1", &vec![0; q as usize]);
        let mut template = PackedSeqTemplate::new(expected.clone());
        for (shard, seq) in updates {
            template.set(shard, seq);
            if let Some(entry) = expected.entries.get_mut(shard) {
                entry.seq = ShardSeq::epoch(seq, b"abcdefgh", Some(&entry.node));
            }
            let mut out = Vec::new();
            template.write_into(&mut out);
            let text = std::str::from_utf8(&out).unwrap();
            prop_assert_eq!(PackedSeq::parse(text).unwrap(), expected.clone());
            let prefix = format!("{}-g2w", expected.sum());
            prop_assert!(text.starts_with(&prefix));
            prop_assert!(out.len() <= template.encoded_len());
        }
        prop_assert_eq!(template.vector(), expected);
    }

    #[test]
    fn hostile_sequences_never_panic(text in "[0-9]{0,3}-?g[12][A-Za-z0-9_-]{0,80}", cut in 0_usize..200, byte in any::<u8>()) {
        let _ = PackedSeq::parse(&text);
        let mut damaged = PACKED[1].as_bytes().to_vec();
        let at = cut % damaged.len();
        damaged[at] = byte & 0x7f;
        let _ = PackedSeq::parse(&String::from_utf8_lossy(&damaged));
    }
}

/// CouchDB keeps the properties of a partitioned database as the atoms that it was created with.
#[test]
fn properties_may_be_atoms() {
    use settee_engine::codec::term::write;
    let map = ShardMap::new(
        DbName::new("part").expect("a name"),
        ".1796051630".to_owned(),
        vec![(
            "00000000-ffffffff".parse().expect("a range"),
            vec![NodeName::new("a@h").expect("a name")],
        )],
        ShardMapOptions {
            partitioned: true,
            hash: HashKind::Partition,
            engine: None,
        },
    )
    .expect("a map");
    let term = map.to_term();
    let mut binary = Vec::new();
    write::binary(&mut binary, b"partitioned");
    let mut atom = Vec::new();
    write::atom(&mut atom, "partitioned");
    let at = term
        .windows(binary.len())
        .position(|window| window == binary)
        .expect("the property");
    let with_atom = [&term[..at], &atom, &term[at + binary.len()..]].concat();
    let read = ShardMap::from_term(DbName::new("part").expect("a name"), &with_atom).expect("read");
    assert!(read.partitioned());
}
