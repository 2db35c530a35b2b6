//! Revision trees: CouchDB's vectors, a naive model over random histories, hostile bytes.

use proptest::prelude::*;
use settee_engine::codec::term::{Term, write};
use settee_engine::doc::revtree::{
    CHUNK_LEN_UNKNOWN, Leaf, MergeOutcome, RevPath, RevStatus, RevTree, RevTreeError, Sizes, leaves_of_raw,
    winner_of_raw,
};
use settee_engine::ids::{Rev, RevId};
use std::collections::{BTreeMap, BTreeSet};

/// A path from text such as `2:b-c`: the position of the first id, ids from old to new.
fn path(text: &str) -> RevPath {
    let (first, ids) = text.split_once(':').unwrap_or(("1", text));
    let ids: Vec<&str> = ids.split('-').collect();
    let first: u64 = first.parse().expect("a position");
    RevPath {
        start: first + ids.len() as u64 - 1,
        ids: ids.iter().rev().map(|id| RevId::new(id.as_bytes())).collect(),
    }
}

fn rev(text: &str) -> Rev {
    text.parse().expect("a revision")
}

fn leaf(ptr: u64) -> Leaf {
    Leaf {
        ptr,
        seq: ptr,
        ..Leaf::default()
    }
}

fn deleted(ptr: u64) -> Leaf {
    Leaf {
        deleted: true,
        ..leaf(ptr)
    }
}

fn raw(tree: &RevTree) -> Vec<u8> {
    let mut out = Vec::new();
    tree.encode(&mut out);
    out
}

/// The tree as text: `1:a-(b|c)`, roots separated by a space.
fn show(tree: &RevTree) -> String {
    fn node(term: &Term) -> String {
        let parts = term.as_tuple().expect("a node");
        let children: Vec<String> = parts[2].as_list().expect("children").iter().map(node).collect();
        let id = parts[0].as_str().expect("an id").to_owned();
        match children.as_slice() {
            [] => id,
            [only] => format!("{id}-{only}"),
            many => format!("{id}-({})", many.join("|")),
        }
    }
    let term = Term::decode(&raw(tree)).expect("a term");
    let roots = term.as_list().expect("roots").iter().map(|root| {
        let parts = root.as_tuple().expect("a root");
        format!("{}:{}", parts[0].as_i64().expect("a position"), node(&parts[1]))
    });
    roots.collect::<Vec<_>>().join(" ")
}

fn tree(paths: &[&str]) -> RevTree {
    let mut tree = RevTree::new();
    for (index, text) in paths.iter().enumerate() {
        tree.merge(&path(text), Some(leaf(index as u64 + 1)));
    }
    tree
}

#[test]
fn merging_gives_couchdbs_outcomes() {
    let mut tree = RevTree::new();
    let steps = [
        ("a", MergeOutcome::NewLeaf, "1:a"),
        ("a-b", MergeOutcome::NewLeaf, "1:a-b"),
        ("a-c", MergeOutcome::NewBranch, "1:a-(b|c)"),
        ("a-b", MergeOutcome::InternalNode, "1:a-(b|c)"),
        ("4:d-e", MergeOutcome::NewBranch, "1:a-(b|c) 4:d-e"),
        ("2:c-x", MergeOutcome::NewLeaf, "1:a-(b|c-x) 4:d-e"),
        ("3:w-d-f", MergeOutcome::NewBranch, "1:a-(b|c-x) 3:w-d-(e|f)"),
        ("a-bb", MergeOutcome::NewBranch, "1:a-(b|bb|c-x) 3:w-d-(e|f)"),
        ("z", MergeOutcome::NewBranch, "1:a-(b|bb|c-x) 1:z 3:w-d-(e|f)"),
        (
            "4:d",
            MergeOutcome::InternalNode,
            "1:a-(b|bb|c-x) 1:z 3:w-d-(e|f)",
        ),
        (
            "2:c-w",
            MergeOutcome::NewBranch,
            "1:a-(b|bb|c-(w|x)) 1:z 3:w-d-(e|f)",
        ),
    ];
    for (text, outcome, shape) in steps {
        assert_eq!(tree.merge(&path(text), Some(leaf(1))), outcome, "{text}");
        assert_eq!(show(&tree), shape, "after {text}");
        assert_eq!(RevTree::decode(&raw(&tree)).as_ref(), Ok(&tree));
    }
    assert_eq!(tree.merge(&RevPath::default(), None), MergeOutcome::InternalNode);
}

#[test]
fn a_path_that_reaches_further_back_gives_a_root_its_ancestors() {
    let mut grown = tree(&["3:c-d"]);
    assert_eq!(
        grown.merge(&path("2:b-c-e"), Some(leaf(2))),
        MergeOutcome::NewBranch
    );
    assert_eq!(show(&grown), "2:b-c-(d|e)");
    // The roots change places when one of them grows backwards past another.
    let mut two = tree(&["4:u", "2:b"]);
    assert_eq!(two.merge(&path("1:r-s-t-u"), None), MergeOutcome::InternalNode);
    assert_eq!(show(&two), "1:r-s-t-u 2:b");
}

#[test]
fn what_is_stored_stays_and_what_is_missing_is_filled() {
    let mut tree = RevTree::new();
    tree.merge(&path("a-b"), Some(leaf(7)));
    assert_eq!(tree.find(&rev("1-a")).and_then(|node| node.leaf()), None);
    assert_eq!(tree.merge(&path("a"), Some(leaf(8))), MergeOutcome::InternalNode);
    assert_eq!(
        tree.find(&rev("1-a"))
            .and_then(|node| node.leaf())
            .map(|leaf| leaf.ptr),
        Some(8)
    );
    tree.merge(&path("a-b"), Some(leaf(9)));
    assert_eq!(
        tree.find(&rev("2-b"))
            .and_then(|node| node.leaf())
            .map(|leaf| leaf.ptr),
        Some(7)
    );
}

#[test]
fn stemming_keeps_the_newest_revisions_of_each_branch() {
    let cases = [
        ("a-b-c-d a-x", 2, "1:a-x 3:c-d"),
        ("a-b-c-d", 1, "4:d"),
        ("a-b-c-d", 4, "1:a-b-c-d"),
        ("a-b-c a-b-d", 1, "3:c 3:d"),
        ("a-b-c a-b-d", 2, "2:b-(c|d)"),
        ("a-b-c-d-e a-b-x 7:m-n-o", 2, "2:b-x 4:d-e 8:n-o"),
        ("a", 0, "1:a"),
    ];
    for (paths, limit, expected) in cases {
        let mut tree = tree(&paths.split(' ').collect::<Vec<_>>());
        tree.stem(limit);
        assert_eq!(show(&tree), expected, "{paths} with {limit}");
    }
}

#[test]
fn a_tree_with_a_repeated_id_is_taken_apart_and_merged_anew() {
    // The same revision in two roots, as an old release could leave it.
    let mut out = Vec::new();
    write::list(&mut out, 2);
    for (start, ids) in [(1, ["a", "b"]), (2, ["b", "c"])] {
        write::tuple(&mut out, 2);
        write::uint(&mut out, start);
        for (index, id) in ids.iter().enumerate() {
            write::tuple(&mut out, 3);
            write::binary(&mut out, id.as_bytes());
            write::nil(&mut out);
            if index == 0 {
                write::list(&mut out, 1);
            } else {
                write::nil(&mut out);
            }
        }
        write::nil(&mut out);
    }
    write::nil(&mut out);
    let mut damaged = RevTree::decode(&out).expect("a tree");
    assert_eq!(show(&damaged), "1:a-b 2:b-c");
    damaged.stem(1000);
    assert_eq!(show(&damaged), "1:a-b-c");
}

#[test]
fn the_winner_is_live_then_high_then_great() {
    let mut tree = RevTree::new();
    assert!(tree.winner().is_none());
    tree.merge(&path("a-b"), Some(leaf(1)));
    tree.merge(&path("a-c-d"), Some(deleted(2)));
    assert_eq!(tree.winner().map(|node| node.rev()), Some(rev("2-b")));
    assert!(!tree.is_deleted());
    tree.merge(&path("a-bb"), Some(leaf(3)));
    assert_eq!(tree.winner().map(|node| node.rev()), Some(rev("2-bb")));
    let order: Vec<String> = tree
        .leaves_sorted()
        .iter()
        .map(|node| node.rev().to_string())
        .collect();
    assert_eq!(order, ["2-bb", "2-b", "3-d"]);
    let bytes = raw(&tree);
    let view = winner_of_raw(&bytes).expect("a tree");
    let (id, counts) = (view.id, (view.leaf_count, view.live_leaf_count));
    assert_eq!((view.pos, id, view.ptr, counts), (2, b"bb".as_slice(), 3, (3, 2)));
    assert!(view.has_conflicts());
    tree.merge(&path("a-b-x"), Some(deleted(4)));
    tree.merge(&path("a-bb-y"), Some(deleted(5)));
    assert!(tree.is_deleted());
    assert_eq!(tree.winner().map(|node| node.rev()), Some(rev("3-y")));
    let bytes = raw(&tree);
    assert!(!winner_of_raw(&bytes).expect("a tree").has_conflicts());
    assert_eq!(winner_of_raw(&[106]), Err(RevTreeError::NoLeaf));
}

#[test]
fn paths_ancestors_and_what_is_missing_are_told() {
    let mut tree = tree(&["a-b-c", "a-b-d-e", "7:m"]);
    tree.merge(&path("a-b-c-f"), Some(deleted(9)));
    assert_eq!(tree.path_of(&rev("4-e")), Some(path("a-b-d-e")));
    assert_eq!(tree.path_of(&rev("7-m")), Some(path("7:m")));
    assert_eq!(tree.path_of(&rev("2-e")), None);
    let latest = |of: &str| {
        tree.latest(&rev(of))
            .iter()
            .map(|node| node.rev().to_string())
            .collect::<Vec<_>>()
    };
    assert_eq!(latest("2-b"), ["4-f", "4-e"]);
    assert_eq!(latest("4-e"), ["4-e"]);
    assert!(latest("1-x").is_empty());
    let asked = ["9-z", "2-b", "1-b", "4-e", "4-q"].map(rev);
    assert_eq!(tree.missing(&asked), [rev("1-b"), rev("4-q"), rev("9-z")]);
    assert_eq!(
        tree.possible_ancestors(&[rev("5-q"), rev("2-q")]),
        [rev("4-e"), rev("4-f")]
    );
    assert!(tree.possible_ancestors(&[]).is_empty());
    let info = tree.find(&rev("4-f")).expect("a revision").revs_info();
    let status: Vec<RevStatus> = info.iter().map(|(_, status)| *status).collect();
    use RevStatus::{Available, Deleted, Missing};
    assert_eq!(status, [Deleted, Available, Missing, Missing]);
    assert!(tree.find_leaf(&rev("2-b")).is_none() && tree.find_leaf(&rev("7-m")).is_some());
}

#[test]
fn leaves_can_be_removed_with_what_only_they_need() {
    let mut tree = tree(&["a-b-c", "a-b-d", "5:m-n"]);
    assert_eq!(tree.remove_leafs(&[rev("2-b"), rev("9-x")]), []);
    assert_eq!(
        tree.remove_leafs(&[rev("3-c"), rev("6-n")]),
        [rev("3-c"), rev("6-n")]
    );
    assert_eq!(show(&tree), "1:a-b-d");
    assert_eq!(tree.remove_leafs(&[rev("3-d")]).len(), 1);
    assert!(tree.is_empty());
}

#[test]
fn sizes_count_a_shared_stream_once() {
    let with = |ptr, external, atts: &[(u64, u64)]| {
        let mut leaf = leaf(ptr);
        leaf.sizes = Sizes {
            active: 100,
            external,
        };
        leaf.set_atts(atts.iter().map(|(pos, len)| (vec![(*pos, *len)], *len)).collect());
        Some(leaf)
    };
    let mut tree = RevTree::new();
    tree.merge(&path("a"), with(1, 1, &[(0, 9)]));
    tree.merge(&path("a-b"), with(2, 10, &[(50, 5), (10, 7), (10, 7)]));
    tree.merge(&path("a-c"), with(3, 20, &[(10, 7)]));
    assert_eq!(
        tree.doc_sizes(),
        Sizes {
            active: 212,
            external: 42
        }
    );
    assert_eq!(RevTree::decode(&raw(&tree)), Ok(tree));
}

#[test]
fn pending_leaves_get_their_sequence_and_pointers() {
    let mut tree = tree(&["a"]);
    tree.merge(&path("a-b"), Some(Leaf::pending(false, 3)));
    tree.settle(17, |leaf| leaf.ptr += 1000);
    let stored = tree.find(&rev("2-b")).and_then(|node| node.leaf()).cloned();
    assert_eq!(
        stored,
        Some(Leaf {
            ptr: 1003,
            seq: 17,
            ..Leaf::default()
        })
    );
    assert_eq!(tree.max_seq(), 17);
    tree.forget_inner_bodies();
    assert_eq!(tree.find(&rev("1-a")).and_then(|node| node.leaf()), None);
    let mut visited = Vec::new();
    tree.for_each_stored(|leaf, is_leaf| visited.push((leaf.ptr, is_leaf)));
    assert_eq!(visited, [(1003, true)]);
}

/// A tree of one revision with `value`.
fn one_revision(value: &Term) -> Vec<u8> {
    let node = Term::tuple(vec![Term::binary(*b"a"), value.clone(), Term::nil()]);
    Term::list(vec![Term::tuple(vec![Term::uint(1), node])]).encode()
}

#[test]
fn values_of_all_releases_are_read() {
    let int = Term::uint;
    let pair = |a, b| Term::tuple(vec![int(a), int(b)]);
    let record = Term::tuple(vec![Term::atom("size_info"), int(30), int(20)]);
    let bare = Term::list(vec![Term::tuple(vec![
        Term::list(vec![int(40), int(300)]),
        int(9),
    ])]);
    let chunks = vec![(40, CHUNK_LEN_UNKNOWN), (300, CHUNK_LEN_UNKNOWN)];
    let cases = [
        (vec![int(1), int(5), int(6)], Sizes::default(), vec![]),
        (
            vec![int(1), int(5), int(6), int(30)],
            Sizes {
                active: 30,
                external: 0,
            },
            vec![],
        ),
        (
            vec![int(1), int(5), int(6), pair(30, 20)],
            Sizes {
                active: 30,
                external: 20,
            },
            vec![],
        ),
        (
            vec![int(1), int(5), int(6), record, Term::nil()],
            Sizes {
                active: 30,
                external: 20,
            },
            vec![],
        ),
        (
            vec![int(1), int(5), int(6), pair(1, 2), bare],
            Sizes {
                active: 1,
                external: 2,
            },
            vec![(chunks, 9)],
        ),
    ];
    for (value, sizes, atts) in cases {
        let tree = RevTree::decode(&one_revision(&Term::tuple(value))).expect("a tree");
        let stored = tree.winner().and_then(|node| node.leaf()).cloned();
        assert_eq!(
            stored,
            Some(Leaf {
                deleted: true,
                ptr: 5,
                seq: 6,
                sizes,
                atts
            })
        );
        assert_eq!(RevTree::decode(&raw(&tree)), Ok(tree));
    }
    let missing = RevTree::decode(&one_revision(&Term::nil())).expect("a tree");
    assert_eq!(missing.winner().and_then(|node| node.leaf()), None);
}

#[test]
fn the_bytes_of_a_tree_are_couchdbs() {
    let mut tree = RevTree::new();
    let mut new = leaf(4096);
    new.sizes = Sizes {
        active: 300,
        external: 2,
    };
    tree.merge(&RevPath::single(Rev::new(1, RevId::from_md5([7; 16]))), Some(new));
    let mut expected = b"\x6c\0\0\0\x01\x68\x02\x61\x01\x68\x03\x6d\0\0\0\x10".to_vec();
    expected.extend_from_slice(&[7; 16]);
    expected.extend_from_slice(b"\x68\x05\x61\0\x62\0\0\x10\0\x62\0\0\x10\0\x68\x02");
    expected.extend_from_slice(b"\x62\0\0\x01\x2c\x61\x02\x6a\x6a\x6a");
    assert_eq!(raw(&tree), expected);
}

#[test]
fn a_very_deep_tree_takes_no_stack() {
    let ids = (0..200_000_u32).map(|id| RevId::new(&id.to_be_bytes())).collect();
    let mut tree = RevTree::single(&RevPath { start: 200_000, ids }, Some(leaf(1)));
    let bytes = raw(&tree);
    assert_eq!(RevTree::decode(&bytes).as_ref(), Ok(&tree));
    assert_eq!(winner_of_raw(&bytes).map(|view| view.pos), Ok(200_000));
    tree.stem(1000);
    assert_eq!(tree.len(), 1000);
}

/// A tree as the list of its leaves' paths, each from old to new with positions.
type Model = Vec<Vec<(u64, usize)>>;

/// Adds a path that begins at a root of the model.
fn model_add(model: &mut Model, path: Vec<(u64, usize)>) -> MergeOutcome {
    if model.iter().any(|other| other.starts_with(&path)) {
        return MergeOutcome::InternalNode;
    }
    if let Some(shorter) = model.iter_mut().find(|other| path.starts_with(other)) {
        *shorter = path;
        return MergeOutcome::NewLeaf;
    }
    model.push(path);
    MergeOutcome::NewBranch
}

fn model_merge(model: &mut Model, path: &[(u64, usize)]) -> MergeOutcome {
    let Some(first) = path.first().copied() else {
        return MergeOutcome::InternalNode;
    };
    let by_bytes = |(pos, node): (u64, usize)| (pos, id_of(node));
    let roots: BTreeMap<(u64, RevId), (u64, usize)> =
        model.iter().map(|path| (by_bytes(path[0]), path[0])).collect();
    for root in roots.into_values() {
        if let Some(offset) = path.iter().position(|node| *node == root) {
            let before = &path[..offset];
            for other in model.iter_mut().filter(|other| other[0] == root) {
                other.splice(0..0, before.iter().copied());
            }
            return model_add(model, path.to_vec());
        }
        let way = model.iter().filter(|other| other[0] == root).find_map(|other| {
            let at = other.iter().position(|node| *node == first)?;
            Some(other[..at].to_vec())
        });
        if let Some(mut way) = way {
            way.extend_from_slice(path);
            return model_add(model, way);
        }
    }
    model.push(path.to_vec());
    if model.len() == 1 {
        MergeOutcome::NewLeaf
    } else {
        MergeOutcome::NewBranch
    }
}

/// Whether a revision stands in two places, which merging can bring about: it stops at the first root that fits.
fn model_repeats(model: &Model) -> bool {
    let mut places: BTreeMap<(u64, usize), &[(u64, usize)]> = BTreeMap::new();
    model.iter().any(|path| {
        (0..path.len()).any(|index| *places.entry(path[index]).or_insert(&path[..=index]) != &path[..=index])
    })
}

fn model_stem(model: &mut Model, limit: usize) {
    if model_repeats(model) {
        let mut paths: Model = model
            .iter()
            .map(|path| path[path.len().saturating_sub(limit)..].to_vec())
            .collect();
        paths.sort_by_key(|path| {
            (
                path[0].0,
                path.iter()
                    .rev()
                    .map(|(_, node)| id_of(*node))
                    .collect::<Vec<_>>(),
            )
        });
        model.clear();
        for path in paths {
            model_merge(model, &path);
        }
        return;
    }
    let kept: BTreeSet<(u64, usize)> = model
        .iter()
        .flat_map(|path| path.iter().rev().take(limit))
        .copied()
        .collect();
    for path in model.iter_mut() {
        let from = path
            .iter()
            .rposition(|node| !kept.contains(node))
            .map_or(0, |last| last + 1);
        path.drain(..from);
    }
}

fn id_of(node: usize) -> RevId {
    // Some ids are of the usual length; their order is not the order in which they were made.
    let byte = (node * 37 % 101) as u8;
    if node.is_multiple_of(3) {
        RevId::new(&[byte, 1])
    } else {
        RevId::from_md5([byte; 16])
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Random parts of a random history, merged in random order with stemming in between, give what the model gives.
    #[test]
    fn histories_equal_the_model(
        parents in prop::collection::vec(any::<prop::sample::Index>(), 1..24),
        steps in prop::collection::vec((any::<prop::sample::Index>(), 1..8_usize, 0..12_usize), 1..40),
    ) {
        let parent = |node: usize| {
            let choice = parents[node].index(node + 1);
            (choice < node).then_some(choice)
        };
        let (mut tree, mut model): (RevTree, Model) = (RevTree::new(), Model::new());
        let mut stored: BTreeMap<usize, u64> = BTreeMap::new();
        let mut repeated = false;
        for (newest, length, stem) in steps {
            let newest = newest.index(parents.len());
            let line: Vec<usize> = std::iter::successors(Some(newest), |node| parent(*node)).collect();
            let start = line.len() as u64;
            let path: Vec<(u64, usize)> =
                line.iter().zip(0..).map(|(node, back)| (start - back, *node)).take(length).collect();
            let rev_path = RevPath { start, ids: path.iter().map(|(_, node)| id_of(*node)).collect() };
            let path: Vec<(u64, usize)> = path.into_iter().rev().collect();
            let expected = model_merge(&mut model, &path);
            stored.entry(newest).or_insert(newest as u64 + 1);
            prop_assert_eq!(tree.merge(&rev_path, Some(leaf(newest as u64 + 1))), expected);
            // Which of two places keeps a body is not modelled.
            repeated |= model_repeats(&model);
            if (1..8).contains(&stem) {
                tree.stem(stem as u64);
                model_stem(&mut model, stem);
                let known: BTreeSet<usize> = model.iter().flatten().map(|(_, node)| *node).collect();
                stored.retain(|node, _| known.contains(node));
            }
            check_equal(&tree, &model, if repeated { None } else { Some(&stored) })?;
        }
    }

    /// Bytes that are nearly a tree give an error or a tree, never a panic.
    #[test]
    fn damaged_bytes_are_survived(
        ids in prop::collection::vec("[a-d](-[a-d]){0,4}", 1..6),
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        cut in any::<prop::sample::Index>(),
    ) {
        let paths: Vec<&str> = ids.iter().map(String::as_str).collect();
        let mut bytes = raw(&tree(&paths));
        for (at, byte) in flips {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        for bytes in [&bytes[..], &bytes[..cut.index(bytes.len())]] {
            if let Ok(mut tree) = RevTree::decode(bytes) {
                tree.merge(&path("a-b-c-d"), Some(leaf(1)));
                tree.stem(2);
                let _ = tree.doc_sizes();
                prop_assert!(RevTree::decode(&raw(&tree)).is_ok());
            }
            let _ = winner_of_raw(bytes);
        }
    }

    #[test]
    fn random_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        prop_assert_eq!(RevTree::decode(&bytes).is_ok(), leaves_of_raw(&bytes, |_| ()).is_ok());
    }
}

fn check_equal(
    tree: &RevTree,
    model: &Model,
    stored: Option<&BTreeMap<usize, u64>>,
) -> Result<(), TestCaseError> {
    let mut expected: Vec<RevPath> = model
        .iter()
        .map(|path| RevPath {
            start: path.last().map_or(0, |(pos, _)| *pos),
            ids: path.iter().rev().map(|(_, node)| id_of(*node)).collect(),
        })
        .collect();
    let mut found: Vec<RevPath> = tree.leaves().map(|node| node.path()).collect();
    let key = |path: &RevPath| (path.start, path.ids.to_vec());
    expected.sort_by_key(key);
    found.sort_by_key(key);
    prop_assert_eq!(found, expected);
    for (pos, node) in model.iter().flatten() {
        let found = tree
            .find(&Rev::new(*pos, id_of(*node)))
            .and_then(|node| node.leaf())
            .map(|leaf| leaf.ptr);
        if let Some(stored) = stored {
            prop_assert_eq!(found, stored.get(node).copied());
        }
    }
    let bytes = raw(tree);
    prop_assert_eq!(&RevTree::decode(&bytes).expect("own bytes"), tree);
    let term = Term::decode(&bytes).expect("a term");
    let roots = term.as_list().expect("roots");
    prop_assert!(
        roots.is_sorted_by(|a, b| a.order(b).is_le()),
        "roots in term order"
    );
    let winner = tree.winner().filter(|node| node.leaf().is_some());
    let view = winner_of_raw(&bytes).ok();
    prop_assert_eq!(
        view.map(|view| (view.pos, view.id)),
        winner.map(|node| (node.pos(), node.id().as_bytes()))
    );
    Ok(())
}
