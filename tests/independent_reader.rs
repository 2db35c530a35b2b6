//! Files that the engine wrote, read by the reader in Python that shares no code with it.
//!
//! A seeded history of updates goes into a file and into a plain model; then the reader must find every document with the
//! model's revision, body and attachments, and nothing to object to: checksums on all chunks, order of keys, reductions,
//! sizes, attachment digests, and trees that agree.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::{Value, json};
use settee_engine::codec::checksum::ChecksumKind;
use settee_engine::codec::compress::Compression;
use settee_engine::db::{self, Batch, DbOptions, DbWriter, PrepareOptions, Preparer, UpdateOutcome};
use settee_engine::doc::{EditOptions, IdSource, parse_edit};
use settee_engine::storage::vfs::{RealVfs, Vfs, Wait};
use settee_engine::storage::{FileOptions, SyncOptions};

/// Commits of one history.
const BATCHES: usize = 40;
/// Most edits of one commit.
const BATCH_MAX: usize = 30;

/// What the model knows of a document: the winning revision and its JSON.
type Model = BTreeMap<String, (String, Value)>;

struct File {
    vfs: Arc<dyn Vfs>,
    path: std::path::PathBuf,
    options: DbOptions,
    writer: DbWriter,
}

impl File {
    fn create(path: &Path, file: FileOptions) -> Self {
        let vfs: Arc<dyn Vfs> = Arc::new(RealVfs);
        let prepare = PrepareOptions {
            compression: file.compression,
            ..PrepareOptions::default()
        };
        let options = DbOptions {
            file,
            prepare,
            node: "n@h".to_owned(),
            everyone: false,
        };
        let empty_list = [106];
        let writer =
            db::create(&vfs, path, &options, Some(&empty_list), "0".repeat(32), None).expect("created");
        Self {
            vfs,
            path: path.to_owned(),
            options,
            writer,
        }
    }

    fn reopen(self) -> Self {
        let Self {
            vfs,
            path,
            options,
            writer,
        } = self;
        drop(writer);
        let writer = db::open(&vfs, &path, &options, "1".repeat(32), None).expect("opened");
        Self {
            vfs,
            path,
            options,
            writer,
        }
    }

    fn write(&mut self, docs: &[Value], new_edits: bool) -> Vec<UpdateOutcome> {
        let edit_options = EditOptions {
            id: IdSource::Body,
            new_edits,
            limits: Default::default(),
        };
        let prepare = self.options.prepare.clone();
        let mut preparer = Preparer::new(&prepare);
        let snapshot = self.writer.snapshot();
        let mut batch = Batch::default();
        for doc in docs {
            let edit = parse_edit(doc.to_string().as_bytes(), &edit_options).expect("a document");
            batch.docs.push(
                preparer
                    .prepare(&snapshot, edit, !new_edits, Wait::Yes)
                    .expect("prepared"),
            );
        }
        self.writer.update(batch).expect("committed").docs
    }
}

/// A body with values from all corners of the term format.
fn body(random: &mut StdRng, id: &str, step: usize) -> Value {
    let filler = "lorem ipsum ".repeat(random.random_range(0..200));
    json!({
        "_id": id, "step": step, "text": filler, "é😀": "\u{1}\u{7f}\"\\",
        "numbers": [0, 255, 256, -1, 2_147_483_648_i64, i64::MIN, u64::MAX, 1.5, 1e300],
        "bytes": [1, 2, 3], "deep": [[[{"a": {"b": [null, true, false, {}, []]}}]]],
        "random": random.random_range(0..u64::MAX),
    })
}

/// One commit: new documents, updates, deletions, now and then with an attachment.
fn one_batch(file: &mut File, model: &mut Model, random: &mut StdRng, step: usize) {
    let mut docs: BTreeMap<String, Value> = BTreeMap::new();
    for _ in 0..random.random_range(1..=BATCH_MAX) {
        let id = format!("doc-{:03}", random.random_range(0..400));
        let mut doc = body(random, &id, step);
        if let Some((rev, known)) = model.get(&id) {
            let is_deleted = known["_deleted"] == json!(true);
            if !is_deleted {
                doc["_rev"] = json!(rev);
                if random.random_bool(0.2) {
                    doc["_deleted"] = json!(true);
                }
            }
        }
        if random.random_bool(0.1) {
            let size = random.random_range(0..20_000);
            let kind = if random.random_bool(0.5) {
                "text/plain"
            } else {
                "application/octet-stream"
            };
            doc["_attachments"] = json!({"a": {"content_type": kind, "data": "QUJD".repeat(size / 3)}});
        }
        docs.insert(id, doc);
    }
    let batch: Vec<Value> = docs.into_values().collect();
    for (doc, outcome) in batch.iter().zip(file.write(&batch, true)) {
        let UpdateOutcome::Written(rev) = outcome else {
            panic!("{doc}: {outcome:?}")
        };
        let id = doc["_id"].as_str().expect("a text").to_owned();
        model.insert(id, (rev.to_string(), doc.clone()));
    }
}

/// Branches beside each other, as replication brings them.
fn conflicts(file: &mut File) {
    let hash = |letter: &str| letter.repeat(32);
    let branch = |letter: &str, value: Value| {
        let mut doc =
            json!({"_id": "conflict", "_revisions": {"start": 2, "ids": [hash(letter), hash("0")]}});
        doc.as_object_mut()
            .expect("an object")
            .extend(value.as_object().expect("an object").clone());
        doc
    };
    let docs = [
        branch("a", json!({"v": 1})),
        branch("b", json!({"v": 2})),
        branch("c", json!({"_deleted": true})),
    ];
    let outcomes = file.write(&docs, false);
    assert!(
        outcomes
            .iter()
            .all(|outcome| matches!(outcome, UpdateOutcome::Written(_))),
        "{outcomes:?}"
    );
}

fn read(path: &Path) -> Value {
    let reader = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/reader/couchfile.py");
    let output = Command::new("python3")
        .arg(reader)
        .args(["--bodies", "--all-checked"])
        .arg(path)
        .output()
        .expect("python3 is on this machine");
    let text = String::from_utf8(output.stdout).expect("utf-8");
    assert!(!text.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_str(&text).expect("one JSON object")
}

/// The document's members that are stored in the body.
fn stored(doc: &Value) -> Value {
    let members = doc
        .as_object()
        .expect("an object")
        .iter()
        .filter(|(name, _)| !name.starts_with('_'));
    Value::Object(
        members
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect(),
    )
}

fn check_document(told: &Value, rev: &str, doc: &Value) {
    let leafs = told["leafs"].as_array().expect("leaves");
    assert_eq!(leafs.len(), 1, "{told}");
    let leaf = &leafs[0]["leaf"];
    assert_eq!(leafs[0]["path"][0], json!(rev), "{told}");
    assert_eq!(leaf["body"], stored(doc), "{}", doc["_id"]);
    assert_eq!(leaf["deleted"], json!(doc["_deleted"] == json!(true)), "{told}");
    let attachments = leaf["attachments"].as_array().expect("attachments");
    assert_eq!(
        attachments.len(),
        usize::from(doc["_attachments"].is_object()),
        "{told}"
    );
    for attachment in attachments {
        let data = doc["_attachments"]["a"]["data"].as_str().expect("base64");
        assert_eq!(attachment["length"], json!(data.len() / 4 * 3), "{told}");
    }
}

fn history(seed: u64, options: FileOptions) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("history.couch");
    let mut random = StdRng::seed_from_u64(seed);
    let mut model = Model::new();
    let compression = options.compression;
    let sealed = !options.sync.before_header;
    let mut file = File::create(&path, options);
    for step in 0..BATCHES {
        one_batch(&mut file, &mut model, &mut random, step);
        if random.random_bool(0.1) {
            file = file.reopen();
        }
    }
    conflicts(&mut file);
    drop(file);
    let told = read(&path);
    assert_eq!(told["problems"], json!([]), "seed {seed}, {compression:?}");
    assert_eq!(
        (&told["header_sealed"], &told["headers_skipped"]),
        (&json!(sealed), &json!(0))
    );
    let docs = told["docs"].as_array().expect("documents");
    assert_eq!(docs.len(), model.len() + 1);
    for doc in docs {
        let id = doc["id"].as_str().expect("an id");
        if id == "conflict" {
            assert_eq!(doc["leafs"].as_array().expect("leaves").len(), 3);
            continue;
        }
        let (rev, expected) = &model[id];
        check_document(doc, rev, expected);
    }
    let deleted = model
        .values()
        .filter(|(_, doc)| doc["_deleted"] == json!(true))
        .count();
    assert_eq!(told["del_doc_count"], json!(deleted));
    assert_eq!(told["doc_count"], json!(model.len() + 1 - deleted));
}

#[test]
fn a_history_is_read_back_by_the_other_reader() {
    history(1, FileOptions::default());
}

#[test]
fn with_every_compression_that_the_reader_knows_and_couchdbs_node_size() {
    for (seed, compression) in [
        (2, Compression::None),
        (3, Compression::Deflate(6)),
        (4, Compression::Snappy),
    ] {
        history(
            seed,
            FileOptions {
                compression,
                btree_chunk_size: 1279,
                ..FileOptions::default()
            },
        );
    }
}

#[test]
fn with_md5_checksums_and_tiny_nodes() {
    history(
        5,
        FileOptions {
            checksum: ChecksumKind::Md5,
            btree_chunk_size: 1,
            ..FileOptions::default()
        },
    );
}

#[test]
fn with_the_order_of_two_syncs() {
    history(
        6,
        FileOptions {
            sync: SyncOptions {
                before_header: true,
                ..SyncOptions::default()
            },
            ..FileOptions::default()
        },
    );
}
