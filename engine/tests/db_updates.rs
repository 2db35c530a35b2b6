//! One database file from the outside: what goes in comes out, after a reopening too.

use settee_engine::codec::json::json_to_term;
use settee_engine::db::{
    self, Batch, ChangesCursor, ChangesOptions, DbOptions, DbWriter, DocLookup, FoldCursor, FoldOptions,
    PrepareOptions, Preparer, ReadDoc, Rendering, UpdateOutcome, prepare_local,
};
use settee_engine::doc::{DocEdit, EditOptions, IdSource, JsonOptions, parse_edit};
use settee_engine::ids::{DocId, Rev};
use settee_engine::storage::FileOptions;
use settee_engine::storage::vfs::{MemoryVfs, Vfs, Wait};
use std::path::Path;
use std::sync::Arc;

const PATH: &str = "/data/db.couch";

fn options(node: &str) -> DbOptions {
    DbOptions {
        file: FileOptions::default(),
        prepare: PrepareOptions::default(),
        node: node.to_owned(),
        everyone: true,
    }
}

struct Db {
    vfs: Arc<dyn Vfs>,
    writer: DbWriter,
}

impl Db {
    fn create() -> Self {
        let vfs: Arc<dyn Vfs> = Arc::new(MemoryVfs::new());
        let uuid = "0".repeat(32);
        let writer =
            db::create(&vfs, Path::new(PATH), &options("a@h"), Some(&[106]), uuid, None).expect("created");
        Self { vfs, writer }
    }

    fn reopen(self) -> Self {
        let Self { vfs, writer } = self;
        drop(writer);
        let writer = db::open(&vfs, Path::new(PATH), &options("a@h"), "1".repeat(32), None).expect("opened");
        Self { vfs, writer }
    }

    fn write(&mut self, jsons: &[&str], new_edits: bool) -> Vec<UpdateOutcome> {
        let edit_options = EditOptions {
            id: IdSource::Body,
            new_edits,
            limits: Default::default(),
        };
        let options = PrepareOptions::default();
        let mut preparer = Preparer::new(&options);
        let snapshot = self.writer.snapshot();
        let mut batch = Batch::default();
        for json in jsons {
            let edit = parse_edit(json.as_bytes(), &edit_options).expect("a document");
            batch.docs.push(
                preparer
                    .prepare(&snapshot, edit, !new_edits, Wait::Yes)
                    .expect("prepared"),
            );
        }
        self.writer.update(batch).expect("committed").docs
    }

    fn one(&mut self, json: &str) -> UpdateOutcome {
        self.write(&[json], true).remove(0)
    }

    fn rev(&mut self, json: &str) -> Rev {
        match self.one(json) {
            UpdateOutcome::Written(rev) => rev,
            other => panic!("{json}: {other:?}"),
        }
    }

    fn get(&self, id: &str, what: &ReadDoc) -> Option<String> {
        let id = DocId::new(id).expect("an id");
        match self
            .writer
            .snapshot()
            .open_doc(&id, what, Wait::Yes)
            .expect("read")
        {
            DocLookup::Missing => None,
            DocLookup::Found(found) => {
                let mut json = Vec::new();
                let options = JsonOptions {
                    conflicts: &found.conflicts,
                    deleted_conflicts: &found.deleted_conflicts,
                    ..JsonOptions::default()
                };
                found.doc.write_json(&mut json, &options).expect("json");
                Some(String::from_utf8(json).expect("utf-8"))
            }
        }
    }

    fn rows(&self, options: &FoldOptions) -> Vec<String> {
        let mut cursor = FoldCursor::new(Arc::new(self.writer.snapshot()), options);
        let mut rows = Vec::new();
        while let Some(batch) = cursor.next_batch(3).expect("rows") {
            for row in &batch.rows {
                let json = &batch.bytes[row.json.start as usize..row.json.end as usize];
                rows.push(String::from_utf8(json.to_vec()).expect("utf-8"));
            }
        }
        rows
    }
}

#[test]
fn revisions_are_couchdbs_and_survive_a_reopening() {
    let mut db = Db::create();
    assert_eq!(
        db.rev(r#"{"_id":"a"}"#).to_string(),
        "1-967a00dff5e02add41819138abb3284d"
    );
    let second = db.rev(r#"{"_id":"a","_rev":"1-967a00dff5e02add41819138abb3284d","x":1}"#);
    assert_eq!(second.to_string(), "2-fedd31dc95d711d8c91924773772bb35");
    let third = db.rev(r#"{"_id":"a","_rev":"2-fedd31dc95d711d8c91924773772bb35","_deleted":true}"#);
    assert_eq!(third.to_string(), "3-29b51679a5827240c44f0b7ba06b764b");
    let db = db.reopen();
    let deleted = db.get("a", &ReadDoc::default()).expect("there");
    assert_eq!(
        deleted,
        r#"{"_id":"a","_rev":"3-29b51679a5827240c44f0b7ba06b764b","_deleted":true}"#
    );
    let old = db
        .get(
            "a",
            &ReadDoc {
                rev: Some(second),
                ..ReadDoc::default()
            },
        )
        .expect("the old body");
    assert_eq!(
        old,
        r#"{"_id":"a","_rev":"2-fedd31dc95d711d8c91924773772bb35","x":1}"#
    );
    let counts = db.writer.snapshot().counts().expect("counts");
    assert_eq!((counts.live, counts.deleted), (0, 1));
}

#[test]
fn the_second_of_two_edits_of_one_document_in_a_batch_conflicts() {
    let mut db = Db::create();
    let outcomes = db.write(
        &[r#"{"_id":"a","n":1}"#, r#"{"_id":"b"}"#, r#"{"_id":"a","n":2}"#],
        true,
    );
    assert!(matches!(outcomes[0], UpdateOutcome::Written(_)));
    assert!(matches!(outcomes[1], UpdateOutcome::Written(_)));
    assert_eq!(outcomes[2], UpdateOutcome::Conflict);
    assert!(
        db.get("a", &ReadDoc::default())
            .expect("there")
            .ends_with(r#""n":1}"#)
    );
}

#[test]
fn a_stale_parent_conflicts_and_changes_nothing() {
    let mut db = Db::create();
    let first = db.rev(r#"{"_id":"a"}"#);
    db.rev(&format!(r#"{{"_id":"a","_rev":"{first}","x":1}}"#));
    let seq = db.writer.snapshot().header().update_seq;
    assert_eq!(
        db.one(&format!(r#"{{"_id":"a","_rev":"{first}","x":2}}"#)),
        UpdateOutcome::Conflict
    );
    assert_eq!(db.one(r#"{"_id":"a","x":2}"#), UpdateOutcome::Conflict);
    assert_eq!(db.writer.snapshot().header().update_seq, seq);
}

#[test]
fn a_deleted_document_is_taken_up_again_on_top_of_its_deletion() {
    let mut db = Db::create();
    let first = db.rev(r#"{"_id":"a"}"#);
    let deleted = db.rev(&format!(r#"{{"_id":"a","_rev":"{first}","_deleted":true}}"#));
    assert_eq!(
        db.one(&format!(r#"{{"_id":"a","_rev":"{deleted}","x":1}}"#)),
        UpdateOutcome::Conflict
    );
    let again = db.rev(r#"{"_id":"a","x":1}"#);
    assert_eq!(again.pos, 3);
    assert_eq!(
        db.get("a", &ReadDoc::default()).expect("live"),
        format!(r#"{{"_id":"a","_rev":"{again}","x":1}}"#)
    );
}

#[test]
fn replicated_revisions_are_stored_as_they_are_and_conflicts_show() {
    let mut db = Db::create();
    let docs = [
        r#"{"_id":"a","_revisions":{"start":2,"ids":["bb","aa"]},"v":"b"}"#,
        r#"{"_id":"a","_revisions":{"start":2,"ids":["cc","aa"]},"v":"c"}"#,
        r#"{"_id":"a","_rev":"9-dd","_deleted":true}"#,
    ];
    let docs = docs.map(|doc| doc.replace("aa", &"a".repeat(32)).replace("bb", &"b".repeat(32)));
    let docs = docs.map(|doc| doc.replace("cc", &"c".repeat(32)).replace("dd", &"d".repeat(32)));
    let docs: Vec<&str> = docs.iter().map(String::as_str).collect();
    let outcomes = db.write(&docs, false);
    assert!(
        outcomes
            .iter()
            .all(|outcome| matches!(outcome, UpdateOutcome::Written(_))),
        "{outcomes:?}"
    );
    let again = db.write(&docs[..1], false);
    assert!(matches!(again[0], UpdateOutcome::Known(_)));
    let db = db.reopen();
    let json = db
        .get(
            "a",
            &ReadDoc {
                conflicts: true,
                ..ReadDoc::default()
            },
        )
        .expect("there");
    let (b, c, d) = ("b".repeat(32), "c".repeat(32), "d".repeat(32));
    let expected = format!(
        r#"{{"_id":"a","_rev":"2-{c}","v":"c","_conflicts":["2-{b}"],"_deleted_conflicts":["9-{d}"]}}"#
    );
    assert_eq!(json, expected);
}

#[test]
fn rows_come_in_the_order_of_ids_within_their_bounds() {
    let mut db = Db::create();
    let docs: Vec<String> = (0..200)
        .map(|n| format!(r#"{{"_id":"d{n:03}","n":{n}}}"#))
        .collect();
    let docs: Vec<&str> = docs.iter().map(String::as_str).collect();
    db.write(&docs, true);
    let rev = db.rev(r#"{"_id":"with \"quotes\""}"#);
    assert_eq!(db.rows(&FoldOptions::default()).len(), 201);
    let last = db.rows(&FoldOptions {
        descending: true,
        limit: 1,
        ..FoldOptions::default()
    });
    let expected = format!(r#"{{"id":"with \"quotes\"","key":"with \"quotes\"","value":{{"rev":"{rev}"}}}}"#);
    assert_eq!(last, [expected]);
    let bounds = FoldOptions {
        start: Some(b"d010".to_vec()),
        end: Some(b"d012".to_vec()),
        inclusive_end: false,
        rendering: Rendering {
            include_docs: true,
            ..Rendering::default()
        },
        ..FoldOptions::default()
    };
    let rows = db.rows(&bounds);
    assert_eq!(rows.len(), 2);
    assert!(
        rows[0].contains(r#""doc":{"_id":"d010","_rev":""#) && rows[0].ends_with(r#""n":10}}"#),
        "{}",
        rows[0]
    );
    assert_eq!(
        db.writer
            .snapshot()
            .count_docs_before(b"d010", Wait::Yes)
            .expect("counted"),
        10
    );
}

#[test]
fn changes_come_in_the_order_of_their_sequences_once_for_each_document() {
    let mut db = Db::create();
    let first = db.rev(r#"{"_id":"a"}"#);
    db.rev(r#"{"_id":"b"}"#);
    let deleted = db.rev(&format!(r#"{{"_id":"a","_rev":"{first}","_deleted":true}}"#));
    let options = ChangesOptions {
        since: 0,
        descending: false,
        limit: u64::MAX,
        all_leaves: false,
        only_design: false,
        only_ids: None,
        rendering: Rendering::default(),
    };
    let snapshot = Arc::new(db.writer.snapshot());
    let mut cursor = ChangesCursor::new(Arc::clone(&snapshot), options.clone(), Wait::Yes).expect("a cursor");
    assert_eq!(cursor.pending(), 2);
    let batch = cursor.next_batch(10).expect("read").expect("two changes");
    assert_eq!(
        batch
            .rows
            .iter()
            .map(|row| (row.seq, row.pending))
            .collect::<Vec<_>>(),
        [(2, 1), (3, 0)]
    );
    let json = batch.rows[1].json.clone().expect("a row");
    let row = &batch.bytes[json.start as usize..json.end as usize];
    let expected = format!(r#""id":"a","changes":[{{"rev":"{deleted}"}}],"deleted":true}}"#);
    assert_eq!(std::str::from_utf8(row).expect("utf-8"), expected);
    assert!(cursor.next_batch(10).expect("read").is_none());
    assert_eq!(snapshot.count_changes_since(2, Wait::Yes).expect("counted"), 1);
}

#[test]
fn attachments_are_stored_compressed_where_it_pays_and_taken_over_by_stubs() {
    let mut db = Db::create();
    let text = "aaaaaaaaaa".repeat(1000);
    let data = base64(text.as_bytes());
    let json = format!(
        r#"{{"_id":"a","_attachments":{{"t.txt":{{"content_type":"text/plain","data":"{data}"}},"e.bin":{{"data":""}}}}}}"#
    );
    let first = db.rev(&json);
    let mut db = db.reopen();
    let stub = format!(r#"{{"_id":"a","_rev":"{first}","x":1,"_attachments":{{"t.txt":{{"stub":true}}}}}}"#);
    db.rev(&stub);
    let id = DocId::new("a").expect("an id");
    let snapshot = db.writer.snapshot();
    let DocLookup::Found(found) = snapshot
        .open_doc(&id, &ReadDoc::default(), Wait::Yes)
        .expect("read")
    else {
        panic!("missing")
    };
    let [attachment] = found.doc.atts.as_slice() else {
        panic!("{:?}", found.doc.atts)
    };
    assert_eq!(
        (attachment.name.as_str(), attachment.revpos, attachment.disk_len),
        ("t.txt", 1, 10_000)
    );
    assert!(attachment.att_len < 200, "stored as gzip");
    assert_eq!(
        snapshot.attachment_bytes(attachment, Wait::Yes).expect("read"),
        text.as_bytes()
    );
}

fn base64(bytes: &[u8]) -> String {
    use ::base64::Engine;
    ::base64::engine::general_purpose::STANDARD.encode(bytes)
}

#[test]
fn local_documents_count_their_writes_and_never_conflict() {
    let mut db = Db::create();
    let put = |db: &mut Db, rev: &str, deleted: bool| {
        let mut body = Vec::new();
        json_to_term(br#"{"x":1}"#, &mut body).expect("json");
        let revs = if rev.is_empty() {
            Default::default()
        } else {
            parse_rev(rev)
        };
        let id = DocId::new("_local/a").expect("an id");
        let edit = DocEdit {
            id,
            revs,
            deleted,
            body,
            external_size: 0,
            atts: Vec::new(),
        };
        let batch = Batch {
            docs: Vec::new(),
            locals: vec![prepare_local(edit).expect("a revision")],
        };
        db.writer
            .update(batch)
            .expect("committed")
            .locals
            .remove(0)
            .to_string()
    };
    assert_eq!(put(&mut db, "", false), "0-1");
    assert_eq!(put(&mut db, "0-5", false), "0-6");
    assert_eq!(
        db.get("_local/a", &ReadDoc::default()).expect("there"),
        r#"{"_id":"_local/a","_rev":"0-6","x":1}"#
    );
    assert_eq!(put(&mut db, "", true), "0-0");
    assert_eq!(db.get("_local/a", &ReadDoc::default()), None);
    assert_eq!(
        db.writer.snapshot().header().update_seq,
        0,
        "local documents have no sequence"
    );
}

fn parse_rev(rev: &str) -> settee_engine::doc::RevPath {
    settee_engine::doc::RevPath::single(rev.parse().expect("a revision"))
}

#[test]
fn bytes_without_a_header_are_refused_and_left_alone() {
    let vfs: Arc<dyn Vfs> = Arc::new(MemoryVfs::new());
    let path = Path::new("/junk.couch");
    let file = vfs
        .open(path, settee_engine::storage::vfs::OpenMode::Create)
        .expect("a file");
    file.write_at(&[0x37; 5000], 0).expect("written");
    let error = db::open(&vfs, path, &options("a@h"), "1".repeat(32), None).expect_err("no header");
    assert!(
        error
            .to_string()
            .contains("/junk.couch has 5000 bytes but no valid header"),
        "{error}"
    );
    assert_eq!(file.len().expect("its length"), 5000);
}

/// One bad byte in a body costs that row its document, not the rows behind it, and the error names the document.
#[test]
fn a_damaged_body_is_an_error_in_its_row_and_the_others_still_come() {
    let mut db = Db::create();
    db.write(
        &[
            r#"{"_id":"a"}"#,
            r#"{"_id":"b","text":"to be hit"}"#,
            r#"{"_id":"c"}"#,
        ],
        true,
    );
    let snapshot = Arc::new(db.writer.snapshot());
    let id = DocId::new("b").expect("an id");
    let info = snapshot.full_info(&id, Wait::Yes).expect("read").expect("there");
    let ptr = info
        .tree
        .winner()
        .and_then(|winner| winner.leaf())
        .expect("a body")
        .ptr;
    let file = db
        .vfs
        .open(Path::new(PATH), settee_engine::storage::vfs::OpenMode::ReadWrite)
        .expect("the file");
    let mut byte = [0];
    file.read_at(&mut byte, ptr + 30, Wait::Yes).expect("read");
    file.write_at(&[byte[0] ^ 1], ptr + 30).expect("written");

    let rendering = Rendering {
        include_docs: true,
        ..Rendering::default()
    };
    let rows = db.rows(&FoldOptions {
        rendering,
        ..FoldOptions::default()
    });
    assert_eq!(rows.len(), 3);
    assert!(
        rows[1].contains(r#""doc":null,"error":"damaged","reason":"#),
        "{}",
        rows[1]
    );
    assert!(rows[2].contains(r#""doc":{"_id":"c""#), "{}", rows[2]);

    let options = ChangesOptions {
        since: 0,
        descending: false,
        limit: u64::MAX,
        all_leaves: false,
        only_design: false,
        only_ids: None,
        rendering,
    };
    let mut cursor = ChangesCursor::new(Arc::clone(&snapshot), options, Wait::Yes).expect("a cursor");
    assert_eq!(
        cursor.next_batch(10).expect("read").expect("changes").rows.len(),
        3
    );
    let damaged = cursor.take_damaged();
    assert_eq!(
        damaged.iter().map(|damage| damage.id.clone()).collect::<Vec<_>>(),
        [Some(id.clone())]
    );

    let error = snapshot
        .open_doc(&id, &ReadDoc::default(), Wait::Yes)
        .expect_err("damaged");
    assert!(error.to_string().contains("\"b\""), "{error}");
}

/// Commits of a file that has grown overwrite zeros ahead of its end; nobody sees them, and a close cuts them off.
#[test]
fn space_ahead_of_the_end_is_no_part_of_the_file() {
    let mut db = Db::create();
    let file = db
        .vfs
        .open(Path::new(PATH), settee_engine::storage::vfs::OpenMode::Read)
        .expect("the file");
    let length = || file.len().expect("its length");
    let said = |db: &Db| db.writer.snapshot().info(Wait::Yes).expect("numbers").file_bytes;
    db.one(r#"{"_id":"small"}"#);
    assert_eq!(length(), said(&db), "a small file has none");
    let text = "x".repeat(400);
    let mut lengths = std::collections::BTreeSet::new();
    for n in 0..200 {
        db.one(&format!(r#"{{"_id":"{n:03}","text":"{text}"}}"#));
        assert!(said(&db) <= length() && length() < said(&db) * 3 / 2 + 4096);
        if said(&db) > 300_000 {
            lengths.insert(length());
        }
    }
    assert!(said(&db) > 700_000, "{}", said(&db));
    assert!(lengths.len() < 10, "few commits change the length: {lengths:?}");

    let end = said(&db);
    assert!(length() > end);
    let mut db = db.reopen();
    assert_eq!(
        (said(&db), db.writer.refused_header()),
        (end, None),
        "told from data"
    );
    let peeked = db::peek(&db.vfs, Path::new(PATH)).expect("read");
    assert_eq!(peeked.info(Wait::Yes).expect("numbers").file_bytes, end);
    db.one(r#"{"_id":"more"}"#);
    assert!(db.get("more", &ReadDoc::default()).is_some() && db.get("199", &ReadDoc::default()).is_some());
    let end = said(&db);
    db.writer.close();
    assert_eq!(length(), end);
}
