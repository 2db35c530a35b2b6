//! The quorum machines against tables of events: what happens, and what they must do then.
#![expect(clippy::unwrap_used, reason = "tests")]

use settee_engine::cluster::*;
use settee_engine::ids::NodeName;
use std::fmt::Write as _;

fn node(name: &str) -> NodeName {
    NodeName::new(&format!("{name}@h")).unwrap()
}

/// A revision written as its path, newest first, with `!` for a deletion: `ba` is revision 2-b after 1-a.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Leaf {
    path: Vec<char>,
    position: u64,
    deleted: bool,
}

impl Revision for Leaf {
    type Id = char;

    fn position(&self) -> u64 {
        self.position
    }

    fn path(&self) -> &[char] {
        &self.path
    }

    fn deleted(&self) -> bool {
        self.deleted
    }
}

fn leaf(text: &str) -> Leaf {
    let path: Vec<char> = text.trim_end_matches('!').chars().collect();
    Leaf {
        position: path.len() as u64,
        path,
        deleted: text.ends_with('!'),
    }
}

fn show_leaf(leaf: &Leaf) -> String {
    let mut text: String = leaf.path.iter().collect();
    text.push_str(if leaf.deleted { "!" } else { "" });
    text
}

// ---------------------------------------------------------------------------------------------------- open_doc

fn open_reply(text: &str) -> OpenReply<Leaf, String> {
    match text {
        "missing" => OpenReply::NotFound(NotFound::Missing),
        "gone" => OpenReply::NotFound(NotFound::Deleted),
        _ => match text.strip_prefix('?') {
            Some(error) => OpenReply::Error(error.to_owned()),
            None => OpenReply::Found(leaf(text)),
        },
    }
}

fn show_open(done: &OpenDone<Leaf, String>) -> String {
    let mut text = match &done.result {
        OpenResult::Found(doc) => show_leaf(doc),
        OpenResult::NotFound(NotFound::Missing) => "missing".to_owned(),
        OpenResult::NotFound(NotFound::Deleted) => "gone".to_owned(),
        OpenResult::Error(error) => format!("?{error}"),
        OpenResult::ReadFailure => "read_failure".to_owned(),
        OpenResult::Timeout => "timeout".to_owned(),
    };
    if let Some(repair) = &done.repair {
        let docs: Vec<String> = repair.docs.iter().map(show_leaf).collect();
        let _ = write!(
            text,
            " {} {}",
            if repair.blocking { "blocking" } else { "repair" },
            docs.join(",")
        );
    }
    if !done.kill.is_empty() {
        let _ = write!(text, " kill {:?}", done.kill);
    }
    text
}

/// Copies are on nodes a, b, c. An event is `COPY:REPLY`, `COPY:exit`, `NODE down` or `timeout`.
fn open(r: usize, copies: usize, options: &str, events: &str) -> String {
    let nodes = ["a", "b", "c"][..copies].iter().map(|name| node(name)).collect();
    let options = OpenDocOptions {
        r,
        deleted: options.contains('d'),
        repair: !options.contains('l'),
    };
    let mut machine: OpenDoc<Leaf, String> = OpenDoc::new(nodes, options);
    for (number, event) in events.split(' ').enumerate() {
        let done = match event.split_once(':') {
            Some((copy, "exit")) => machine.exit(copy.parse().unwrap()),
            Some((copy, "down")) => machine.node_down(&node(copy)),
            Some((copy, reply)) => machine.reply(copy.parse().unwrap(), open_reply(reply)),
            None => Some(machine.timeout()),
        };
        if let Some(done) = done {
            let rest = events.split(' ').count() - number - 1;
            assert_eq!(rest, 0, "decided before the end of {events}");
            return show_open(&done);
        }
    }
    "waits".to_owned()
}

#[test]
fn reads_of_one_document() {
    // r, copies, options (d: deleted wanted, l: no repair), events, outcome
    let table: &[(usize, usize, &str, &str, &str)] = &[
        (1, 1, "", "0:ba", "ba"),
        (2, 1, "", "0:ba", "ba"),
        (1, 1, "", "0:ba!", "gone"),
        (1, 1, "d", "0:ba!", "ba!"),
        (1, 1, "", "0:missing", "missing"),
        (1, 1, "", "0:exit", "read_failure"),
        (1, 1, "", "a:down", "read_failure"),
        (2, 3, "", "0:ba", "waits"),
        (2, 3, "", "0:ba 0:ba", "waits"),
        (2, 3, "", "0:ba 1:ba", "ba kill [2]"),
        // The third copy is behind: repaired in the background.
        (2, 3, "", "2:a 0:ba 1:ba", "ba repair a,ba"),
        (2, 3, "", "2:missing 0:ba 1:ba", "ba repair ba"),
        (2, 3, "l", "2:a 0:ba 1:ba", "ba"),
        // Two copies agree on what is old: the winner of all is returned, after the repair.
        (2, 3, "", "2:ba 0:a 1:a", "ba blocking ba,a"),
        (2, 3, "", "0:missing 1:ba 2:missing", "ba blocking ba"),
        // A conflict: the quorum's revision is not the winner.
        (2, 3, "", "2:ca 0:ba 1:ba", "ca blocking ca,ba"),
        // A deletion loses against a live revision of any length.
        (2, 3, "", "0:cba! 1:da 2:ea", "ea blocking cba!,da,ea"),
        (2, 3, "", "0:ba 1:exit 2:exit", "ba blocking ba"),
        (2, 3, "", "0:ba 1:exit c:down", "ba blocking ba"),
        (2, 3, "", "0:missing 1:exit c:down", "missing"),
        (2, 3, "", "0:?e2 1:?e1 2:exit", "?e1"),
        (2, 3, "", "0:?e2 1:missing 2:exit", "missing"),
        (2, 3, "", "0:?e2 1:?e2", "?e2 kill [2]"),
        (2, 3, "", "0:exit 1:exit 2:exit", "read_failure"),
        (2, 3, "", "0:ba timeout", "timeout kill [1, 2]"),
        (3, 2, "", "0:ba 1:ba", "ba"),
    ];
    for (r, copies, options, events, expected) in table {
        assert_eq!(
            open(*r, *copies, options, events),
            *expected,
            "r={r} copies={copies} {options} {events}"
        );
    }
}

// --------------------------------------------------------------------------------------------------- open_revs

fn open_revs(r: usize, tree: bool, events: &str) -> String {
    let nodes = ["a", "b", "c"].iter().map(|name| node(name)).collect();
    let mut machine: OpenRevs<Leaf> = OpenRevs::new(
        nodes,
        OpenRevsOptions {
            r,
            tree,
            repair: true,
        },
    );
    let parse = |text: &str| match text.strip_prefix('-') {
        // Missing 2-b is written -2b.
        Some(missing) => RevReply::Missing(
            missing[..1].parse().unwrap(),
            missing[1..].chars().next().unwrap(),
        ),
        None => RevReply::Found(leaf(text)),
    };
    let mut done = None;
    for event in events.split(' ') {
        assert!(done.is_none(), "decided before the end of {events}");
        done = match event.split_once(':') {
            Some((copy, "exit")) => machine.exit(copy.parse().unwrap()),
            Some((copy, "down")) => machine.node_down(&node(copy)),
            Some((copy, replies)) => {
                let replies = replies
                    .split(',')
                    .filter(|text| !text.is_empty())
                    .map(parse)
                    .collect();
                machine.reply(copy.parse().unwrap(), replies)
            }
            None => Some(machine.timeout()),
        };
    }
    let Some(done) = done else {
        return "waits".to_owned();
    };
    let revs = match done.result {
        OpenRevsResult::Revs(revs) => revs,
        OpenRevsResult::AllWorkersDied => return "all_workers_died".to_owned(),
        OpenRevsResult::Timeout => return "timeout".to_owned(),
    };
    let shown = revs.iter().map(|rev| match rev {
        RevReply::Found(doc) => show_leaf(doc),
        RevReply::Missing(position, id) => format!("-{position}{id}"),
    });
    let mut text = shown.collect::<Vec<_>>().join(",");
    if let Some(repair) = done.repair {
        let docs: Vec<String> = repair.docs.iter().map(show_leaf).collect();
        let _ = write!(text, " repair {}", docs.join(","));
    }
    text
}

#[test]
fn reads_of_several_revisions() {
    let table: &[(usize, bool, &str, &str)] = &[
        (2, true, "0:ba", "waits"),
        (2, true, "0:ba 1:ba", "ba"),
        (2, true, "0:ba,ca 1:ba,ca", "ba,ca"),
        (2, true, "0:ba 1:ba,ca 2:ba,ca", "ba,ca repair ba,ca"),
        (2, true, "0:a 1:ba", "ba repair ba"),
        (2, true, "0:a 1:exit 2:ba", "ba repair ba"),
        (2, true, "0:-2b 1:-2b", "-2b"),
        (2, true, "0:-2b 1:ba", "ba"),
        (2, true, "0:ba 1:-2b", "ba repair ba"),
        (2, true, "0:exit 1:exit c:down", "all_workers_died"),
        (2, true, "0:ba 1:exit timeout", "timeout"),
        (2, true, "0:ba,-2x 1:ba,-2x", "ba,-2x"),
        (2, false, "0:ba 1:ba", "ba"),
        (2, false, "0:ba,ca 1:ba 2:ca", "ba,ca repair ba,ca"),
        (2, false, "0:-2b 1:ba 2:ba", "ba repair ba"),
        (2, false, "0:-2b 1:-2b", "-2b"),
        (2, false, "0:exit 1:exit 2:ba", "ba repair ba"),
        (2, false, "0:exit b:down 2:exit", "all_workers_died"),
        (4, false, "0:ba 1:ba 2:ba", "ba"),
    ];
    for (r, tree, events, expected) in table {
        assert_eq!(
            open_revs(*r, *tree, events),
            *expected,
            "r={r} tree={tree} {events}"
        );
    }
}

#[test]
fn the_longer_history_of_the_same_revision_is_kept() {
    let stemmed = Leaf {
        path: vec!['c'],
        position: 3,
        deleted: false,
    };
    let nodes = || vec![node("a"), node("b")];
    for tree in [false, true] {
        let mut machine = OpenRevs::new(
            nodes(),
            OpenRevsOptions {
                r: 3,
                tree,
                repair: false,
            },
        );
        assert!(machine.reply(0, vec![RevReply::Found(stemmed.clone())]).is_none());
        let done = machine.reply(1, vec![RevReply::Found(leaf("cba"))]).unwrap();
        let OpenRevsResult::Revs(revs) = done.result else {
            panic!("answered")
        };
        assert_eq!(revs.len(), 1, "tree={tree}");
        if !tree {
            assert_eq!(revs, [RevReply::Found(leaf("cba"))]);
        }
    }
}

// ------------------------------------------------------------------------------------------------- update_docs

type Update = UpdateDocs<u8, char>;

fn update_reply(token: &str) -> UpdateReply<u8, char> {
    let last = token.chars().next_back().unwrap();
    match token.chars().next().unwrap() {
        'o' => UpdateReply::Ok(u8::try_from(last).unwrap() - b'0'),
        'n' => UpdateReply::NoReply,
        'c' => UpdateReply::Conflict,
        'f' => UpdateReply::Forbidden(last),
        _ => UpdateReply::Error(last),
    }
}

fn show_step(step: &UpdateStep<u8, char>) -> String {
    let mut parts: Vec<String> = step
        .start
        .iter()
        .map(|start| {
            let tags: Vec<String> = start.tags.iter().map(ToString::to_string).collect();
            format!("+{}({})", start.worker, tags.join(","))
        })
        .collect();
    if let Some(done) = &step.done {
        let results = done.results.iter().map(|result| match result {
            UpdateResult::Ok(rev) => format!("o{rev}"),
            UpdateResult::Accepted(rev) => format!("a{rev}"),
            UpdateResult::NoReply => "n".to_owned(),
            UpdateResult::Conflict => "c".to_owned(),
            UpdateResult::Error(error) => error.to_string(),
            UpdateResult::InternalServerError => "ise".to_owned(),
        });
        let health = match done.health {
            Health::Ok => "ok",
            Health::Accepted => "accepted",
            Health::Error => "error",
        };
        parts.push(format!("{health}[{}]", results.collect::<Vec<_>>().join(" ")));
    }
    parts.join(" ")
}

/// Groups are `SHARD NODE TAGS`, for instance `0a01 0b01 1a2`.
fn update(groups: &str, w: usize, serialize: bool, events: &str) -> String {
    let groups: Vec<UpdateGroup> = groups
        .split(' ')
        .filter(|group| !group.is_empty())
        .map(|group| UpdateGroup {
            shard: group[..1].parse().unwrap(),
            node: node(&group[1..2]),
            tags: group[2..].chars().map(|tag| tag.to_digit(10).unwrap()).collect(),
        })
        .collect();
    let documents = groups
        .iter()
        .flat_map(|group| &group.tags)
        .max()
        .map_or(0, |tag| *tag as usize + 1);
    let (mut machine, step) = Update::new(documents, groups, UpdateOptions { w, serialize });
    let mut shown = vec![show_step(&step)];
    for event in events.split(' ').filter(|event| !event.is_empty()) {
        let step = match event.split_once(':') {
            Some((copy, "exit")) => machine.exit(copy.parse().unwrap()),
            Some((copy, "down")) => machine.node_down(&node(copy)),
            Some((copy, "nofile")) => machine.reply_for_all(copy.parse().unwrap(), UpdateReply::Error('F')),
            Some((copy, replies)) => {
                let replies = replies
                    .split(',')
                    .filter(|token| !token.is_empty())
                    .map(update_reply)
                    .collect();
                machine.reply(copy.parse().unwrap(), replies)
            }
            None => UpdateStep {
                start: Vec::new(),
                done: Some(machine.timeout()),
            },
        };
        shown.push(show_step(&step));
    }
    shown.join("; ")
}

#[test]
fn writes_by_the_decision_table() {
    let three = "0a0 0b0 0c0";
    // groups, w, serialized, events, what is done at the start and after each event
    let table: &[(&str, usize, bool, &str, &str)] = &[
        ("", 1, true, "", "ok[]"),
        ("0a0", 1, true, "0:o1", "+0(0); ok[o1]"),
        ("0a0", 1, true, "0:c", "+0(0); ok[c]"),
        ("0a0", 1, true, "0:e1", "+0(0); ok[1]"),
        ("0a0", 1, true, "0:exit", "+0(0); error[ise]"),
        ("0a0", 1, true, "0:nofile", "+0(0); ok[F]"),
        ("0a0", 1, true, "timeout", "+0(0); error[ise]"),
        // w beyond the copies can never be met.
        ("0a0", 2, true, "0:o1", "+0(0); accepted[a1]"),
        // Serialized: one copy after the other; when the quorum is met the rest is started and not waited for.
        (three, 2, true, "0:o1 1:o1 2:o1", "+0(0); +1(0); +2(0) ok[o1]; "),
        (three, 2, false, "0:o1 1:o1", "+0(0) +1(0) +2(0); ; ok[o1]"),
        // The owner's conflict is final, and other copies never get the document.
        (three, 2, true, "0:c", "+0(0); ok[c]"),
        // In parallel a conflict needs everybody.
        (three, 2, false, "0:c 1:c 2:c", "+0(0) +1(0) +2(0); ; ; ok[c]"),
        (three, 2, false, "0:c 1:o1 2:o1", "+0(0) +1(0) +2(0); ; ; ok[o1]"),
        (
            three,
            2,
            false,
            "0:c 1:c 2:o1",
            "+0(0) +1(0) +2(0); ; ; accepted[a1]",
        ),
        (
            three,
            2,
            false,
            "0:c 1:e1 2:e1",
            "+0(0) +1(0) +2(0); ; ; error[c]",
        ),
        // A conflict at a later copy is final as well once the owner is gone.
        (three, 2, true, "0:exit 1:c", "+0(0); +1(0); ok[c]"),
        // One node down: still two of three. Two down: accepted. All down: error.
        (three, 2, true, "a:down 1:o1 2:o1", "+0(0); +1(0); +2(0); ok[o1]"),
        (
            three,
            2,
            true,
            "a:down b:down 2:o1",
            "+0(0); +1(0); +2(0); accepted[a1]",
        ),
        (
            three,
            2,
            true,
            "a:down b:down c:down",
            "+0(0); +1(0); +2(0); error[ise]",
        ),
        (
            three,
            2,
            true,
            "c:down 0:o1 b:down",
            "+0(0); ; +1(0); accepted[a1]",
        ),
        (
            three,
            2,
            false,
            "0:o1 timeout",
            "+0(0) +1(0) +2(0); ; accepted[a1]",
        ),
        // Different revisions do not count together.
        (three, 2, false, "0:o1 1:o2 2:o1", "+0(0) +1(0) +2(0); ; ; ok[o1]"),
        (
            three,
            2,
            false,
            "0:o1 1:o2 2:e1",
            "+0(0) +1(0) +2(0); ; ; accepted[a1]",
        ),
        // Replicated changes: silence is consent, also when answers are missing.
        (three, 2, false, "0:n 1:", "+0(0) +1(0) +2(0); ; ok[n]"),
        // One copy forbids, the others say nothing because the change does not extend their tree.
        (three, 3, false, "0:n 1:fX 2:n", "+0(0) +1(0) +2(0); ; ; ok[X]"),
        (three, 2, false, "1:fX 0:n 2:n", "+0(0) +1(0) +2(0); ; ; ok[X]"),
        (
            three,
            3,
            false,
            "0:n 1:fX 2:e1",
            "+0(0) +1(0) +2(0); ; ; error[n]",
        ),
        (three, 2, false, "0:fX 1:fX 2:fX", "+0(0) +1(0) +2(0); ; ; ok[X]"),
        // The same id twice in a batch: tags are told apart, and only the second is left out at later copies.
        ("0a01 0b01", 2, true, "0:o1,c 1:o1", "+0(0,1); +1(0); ok[o1 c]"),
        // Ranges run side by side; all documents have to be met.
        (
            "0a02 0b02 1b1 1a1",
            1,
            true,
            "0:o1,o3 2:o2",
            "+0(0,2) +2(1); +1(0,2); +3(1) ok[o1 o2 o3]",
        ),
        ("0a0 1b1", 1, true, "0:o1 b:down", "+0(0) +1(1); ; error[o1 ise]"),
        ("0a0 1a1", 2, true, "0:o1 1:e1", "+0(0) +1(1); ; accepted[a1 1]"),
        // Late and repeated answers change nothing.
        (
            three,
            2,
            true,
            "0:o1 0:o1 1:o1 1:o1",
            "+0(0); +1(0); ; +2(0) ok[o1]; ",
        ),
    ];
    for (groups, w, serialize, events, expected) in table {
        let found = update(groups, *w, *serialize, events);
        assert_eq!(
            found, *expected,
            "groups={groups} w={w} serialize={serialize} {events}"
        );
    }
}

// ------------------------------------------------------------------------------------------------ missing_revs

fn lacking(missing: &[u8]) -> Lacking<u8> {
    Lacking {
        missing: missing.to_vec(),
        possible_ancestors: Vec::new(),
    }
}

#[test]
fn one_answer_for_each_document_is_enough() {
    let asked = vec![vec![1, 2], vec![3]];
    let workers = || {
        vec![
            (node("a"), vec![0, 1]),
            (node("b"), vec![0]),
            (node("c"), vec![1]),
        ]
    };
    let mut machine = MissingRevs::new(asked.clone(), workers());
    assert!(machine.reply(1, vec![lacking(&[2])]).is_none());
    let done = machine.reply(2, vec![lacking(&[])]).unwrap();
    assert_eq!(done.result, MissingRevsResult::Missing(vec![(0, lacking(&[2]))]));
    assert_eq!(done.kill, [0]);

    // Copies that are lost are taken to lack everything.
    let mut machine = MissingRevs::new(asked.clone(), workers());
    assert!(machine.exit(0).is_none());
    assert!(machine.node_down(&node("b")).is_none());
    let done = machine.reply(2, vec![lacking(&[])]).unwrap();
    assert_eq!(
        done.result,
        MissingRevsResult::Missing(vec![(0, lacking(&[1, 2]))])
    );

    let mut machine = MissingRevs::new(asked, workers());
    assert_eq!(machine.timeout().result, MissingRevsResult::Timeout);
}
