//! Documents as clients write and read them: special members, attachments, limits, error texts, round trips.

use proptest::prelude::*;
use settee_engine::codec::json::{ejson_size, json_to_term, term_to_json};
use settee_engine::doc::revtree::{RevPath, RevStatus};
use settee_engine::doc::{
    AttData, Attachment, AttachmentData, Doc, DocEdit, DocError, DocLimits, EditOptions, Encoding, IdSource,
    JsonOptions, parse_edit, parse_edit_from,
};
use settee_engine::ids::{DocId, Rev};

fn options() -> EditOptions<'static> {
    EditOptions {
        id: IdSource::BodyOr(&new_id),
        new_edits: true,
        limits: DocLimits::default(),
    }
}

fn new_id() -> DocId {
    DocId::new("made").expect("an id")
}

fn parse(json: &str) -> Result<DocEdit, DocError> {
    parse_edit(json.as_bytes(), &options())
}

fn body(edit: &DocEdit) -> String {
    let mut json = Vec::new();
    term_to_json(&edit.body, &mut json).expect("a body");
    String::from_utf8(json).expect("utf-8")
}

fn rev(text: &str) -> Rev {
    text.parse().expect("a revision")
}

/// Error and reason as the client sees them.
fn refusal(json: &str) -> (String, String) {
    let error = parse(json).expect_err(json);
    let (word, reason) = error.error_and_reason();
    (word.to_owned(), reason.into_owned())
}

#[test]
fn special_members_are_routed_and_the_rest_is_the_body() {
    let json = r#"{"_id":"x","b":{"_nested":1},"_rev":"2-abc","_deleted":true,"_revs_info":[1,{"a":2}],"a":[1,2],
        "_local_seq":5,"_conflicts":[],"_deleted_conflicts":[],"_replication_id":"r","_access":[]}"#;
    let edit = parse(json).expect("a document");
    assert_eq!(edit.id.as_str(), "x");
    assert_eq!(edit.rev(), Some(rev("2-abc")));
    assert!(edit.deleted);
    assert_eq!(
        body(&edit),
        r#"{"b":{"_nested":1},"a":[1,2],"_replication_id":"r","_access":[]}"#
    );
    assert_eq!(edit.external_size, ejson_size(&edit.body));
    let empty = parse("{}").expect("a document");
    assert_eq!(
        (empty.id.as_str(), body(&empty).as_str(), empty.revs),
        ("made", "{}", RevPath::default())
    );
}

#[test]
fn of_members_with_the_same_name_the_last_stays_in_its_place() {
    let edit = parse(
        r#"{"a":1,"_id":7,"b":2,"a":3,"_rev":"bad","_rev":"1-x","_deleted":0,"_deleted":false,"_id":"y"}"#,
    );
    let edit = edit.expect("a document");
    assert_eq!(body(&edit), r#"{"b":2,"a":3}"#);
    assert_eq!(
        (edit.id.as_str(), edit.rev(), edit.deleted),
        ("y", Some(rev("1-x")), false)
    );
    let atts =
        r#"{"_attachments":{"a":{"data":"eA=="},"b":{"stub":true},"a":{"data":"eQ==","data":"eg=="}}}"#;
    let edit = parse(atts).expect("a document");
    let names: Vec<&str> = edit.atts.iter().map(|att| att.name.as_str()).collect();
    assert_eq!(names, ["b", "a"]);
    assert_eq!(edit.atts[1].data, AttData::Inline(b"z".to_vec()));
    let many: Vec<String> = (0..40)
        .map(|n| format!(r#""n{}":{{"stub":true}}"#, n % 30))
        .collect();
    let edit = parse(&format!(r#"{{"_attachments":{{{}}}}}"#, many.join(","))).expect("a document");
    assert_eq!(
        (
            edit.atts.len(),
            edit.atts[0].name.as_str(),
            edit.atts[29].name.as_str()
        ),
        (30, "n10", "n9")
    );
}

#[test]
fn revisions_win_over_rev() {
    let json = r#"{"_rev":"9-zzz","_revisions":{"start":3,"ids":["967a00dff5e02add41819138abb3284d","b"]}}"#;
    let edit = parse(json).expect("a document");
    assert_eq!(edit.rev(), Some(rev("3-967a00dff5e02add41819138abb3284d")));
    assert_eq!(edit.revs.ids.len(), 2);
    let none = parse(r#"{"_rev":"9-zzz","_revisions":{"ids":[],"start":0}}"#).expect("a document");
    assert_eq!(none.rev(), Some(rev("9-zzz")));
    let local = parse(r#"{"_id":"_local/x","_rev":"0-12"}"#).expect("a document");
    assert_eq!(local.rev().map(|rev| rev.to_string()), Some("0-12".to_owned()));
}

#[test]
fn refusals_have_couchdbs_words() {
    let validation = "doc_validation";
    let cases = [
        ("", "bad_request", "invalid UTF-8 JSON"),
        ("{", "bad_request", "invalid UTF-8 JSON"),
        ("{} x", "bad_request", "invalid UTF-8 JSON"),
        (r#"{"_foo":1,"a":}"#, "bad_request", "invalid UTF-8 JSON"),
        (r#"{"a":1e400}"#, "bad_request", "invalid UTF-8 JSON"),
        (
            r#"{"_revisions":{"start":1e400,"ids":[]}}"#,
            "bad_request",
            "invalid UTF-8 JSON",
        ),
        (
            r#"{"_attachments":{"a":{"revpos":01}}}"#,
            "bad_request",
            "invalid UTF-8 JSON",
        ),
        ("[]", "bad_request", "Document must be a JSON object"),
        ("null", "bad_request", "Document must be a JSON object"),
        ("[1", "bad_request", "invalid UTF-8 JSON"),
        (r#"{"_foo":1}"#, validation, "Bad special document member: _foo"),
        (r#"{"_":1}"#, validation, "Bad special document member: _"),
        (
            r#"{"_deleted":1}"#,
            validation,
            "Bad special document member: _deleted",
        ),
        (
            r#"{"_attachments":[]}"#,
            validation,
            "Bad special document member: _attachments",
        ),
        (
            r#"{"_revisions":null}"#,
            validation,
            "Bad special document member: _revisions",
        ),
        (
            r#"{"_revisions":{"ids":[]}}"#,
            validation,
            "_revisions.start isn't an integer.",
        ),
        (
            r#"{"_revisions":{"start":1.0,"ids":[]}}"#,
            validation,
            "_revisions.start isn't an integer.",
        ),
        (
            r#"{"_revisions":{"start":1,"ids":{}}}"#,
            validation,
            "_revisions.ids isn't a array.",
        ),
        (
            r#"{"_revisions":{"start":1,"ids":[1]}}"#,
            validation,
            "RevId isn't a string",
        ),
        (
            r#"{"_revisions":{"start":1,"ids":["z67a00dff5e02add41819138abb3284d"]}}"#,
            validation,
            "RevId isn't a valid hexadecimal",
        ),
        (
            r#"{"_revisions":{"start":1,"ids":["a","b"]}}"#,
            validation,
            "_revisions.ids doesn't fit _revisions.start",
        ),
        (
            r#"{"_revisions":{"start":-1,"ids":["a"]}}"#,
            validation,
            "_revisions.ids doesn't fit _revisions.start",
        ),
        (r#"{"_rev":1}"#, "bad_request", "Invalid rev format"),
        (r#"{"_rev":"abc"}"#, "bad_request", "Invalid rev format"),
        (
            r#"{"_rev":"1-z67a00dff5e02add41819138abb3284d"}"#,
            "bad_request",
            "Invalid rev format",
        ),
        (r#"{"_id":1}"#, "illegal_docid", "Document id must be a string"),
        (r#"{"_id":""}"#, "illegal_docid", "Document id must not be empty"),
        (
            r#"{"_id":"_x"}"#,
            "illegal_docid",
            "Only reserved document ids may start with underscore.",
        ),
        (
            r#"{"_id":"_local/"}"#,
            "illegal_docid",
            "Illegal document id `_local/`",
        ),
        (
            r#"{"_attachments":{"n":{}}}"#,
            "bad_request",
            "Invalid attachment data for n",
        ),
        (
            r#"{"_attachments":{"n":{"data":"a"}}}"#,
            "bad_request",
            "Invalid attachment data for n",
        ),
        (
            r#"{"_attachments":{"n":{"data":5,"stub":1}}}"#,
            "bad_request",
            "Invalid attachment data for n",
        ),
        (
            r#"{"_attachments":{"_n":{"data":""}}}"#,
            "bad_request",
            "Attachment name '_n' starts with prohibited character '_'",
        ),
        (
            r#"{"_id":"_local/x","_attachments":{"n":{"data":""}}}"#,
            "bad_request",
            "_local documents do not accept attachments.",
        ),
    ];
    for (json, error, reason) in cases {
        assert_eq!(refusal(json), (error.to_owned(), reason.to_owned()), "{json}");
    }
}

#[test]
fn limits_name_what_is_too_large() {
    let limits = DocLimits {
        document_bytes_max: 20,
        attachment_bytes_max: Some(3),
        doc_id_bytes_max: Some(4),
    };
    let options = EditOptions { limits, ..options() };
    let parse = |json: &str| parse_edit(json.as_bytes(), &options);
    let too_large = |id: &str| Err(DocError::DocumentTooLarge { id: id.to_owned() });
    assert_eq!(parse(r#"{"_id":"x","a":"12345678901234567890"}"#), too_large("x"));
    assert_eq!(parse(r#"{"a":"12345678901234567890"}"#), too_large(""));
    // What does not count: special members and white space.
    assert!(parse(r#"{  "_id" : "x",  "_conflicts" : "12345678901234567890", "a": "1" }"#).is_ok());
    assert!(matches!(
        parse(r#"{"_id":"12345"}"#),
        Err(DocError::IllegalDocId(_))
    ));
    let name = |result: Result<DocEdit, DocError>| match result {
        Err(DocError::AttachmentTooLarge { name }) => name,
        other => format!("{other:?}"),
    };
    assert_eq!(name(parse(r#"{"_attachments":{"n":{"data":"eHh4eA=="}}}"#)), "n");
    assert_eq!(
        name(parse(r#"{"_attachments":{"f":{"follows":true,"length":4}}}"#)),
        "f"
    );
    assert!(parse(r#"{"_attachments":{"n":{"data":"eHh4"},"s":{"stub":true,"length":9}}}"#).is_ok());
}

#[test]
fn replicated_documents_must_name_their_revision() {
    let options = EditOptions {
        new_edits: false,
        id: IdSource::Body,
        ..options()
    };
    assert_eq!(parse_edit(br#"{"_id":"x"}"#, &options), Err(DocError::MissingRev));
    assert_eq!(
        parse_edit(br#"{"_rev":"1-a"}"#, &options),
        Err(DocError::MissingId)
    );
    assert!(parse_edit(br#"{"_id":"x","_rev":"1-a"}"#, &options).is_ok());
    let url = DocId::new("url").expect("an id");
    let options = EditOptions {
        id: IdSource::Url(&url),
        ..options
    };
    let edit = parse_edit(br#"{"_id":"x","_rev":"1-a"}"#, &options).expect("a document");
    assert_eq!(edit.id, url);
}

#[test]
fn elements_of_an_array_are_parsed_in_place() {
    let json = br#"[{"_id":"a","n":1}, {"n":[2]} ,3]"#;
    let mut reader = settee_engine::codec::json::JsonReader::new(json).expect("json");
    reader.begin_array().expect("an array");
    let mut results = Vec::new();
    while reader.next_element().expect("an element") {
        match parse_edit_from(&mut reader, &options()) {
            Ok(edit) => results.push(format!("{} {}", edit.id, body(&edit))),
            Err(error) => {
                results.push(error.to_string());
                break;
            }
        }
    }
    assert_eq!(
        results,
        [r#"a {"n":1}"#, r#"made {"n":[2]}"#, "document is not an object"]
    );
}

#[test]
fn attachments_of_all_kinds_are_read() {
    let json = r#"{"_attachments":{
        "i":{"content_type":"text/plain","data":"aGVs\n bG8=","digest":"md5-AAAAAAAAAAAAAAAAAAAAAA==","revpos":4},
        "s":{"stub":true,"revpos":2,"length":10},
        "t":{"stub":true},
        "f":{"follows":true,"length":10,"encoding":"gzip","encoded_length":7,"digest":"md5-XUFAKrxLKna5cZ2REBfFkg=="},
        "ignored":5,
        "g":{"follows":true,"stub":false,"length":3,"digest":"sha-1"}}}"#;
    let edit = parse(json).expect("a document");
    let names: Vec<&str> = edit.atts.iter().map(|att| att.name.as_str()).collect();
    assert_eq!(names, ["i", "s", "t", "f", "g"]);
    let [inline, stub, bare, follows, plain] = edit.atts.as_slice() else {
        panic!("five attachments")
    };
    assert_eq!(
        (&inline.data, inline.digest, inline.revpos),
        (&AttData::Inline(b"hello".to_vec()), None, Some(4))
    );
    assert_eq!(
        (&stub.data, stub.revpos, bare.revpos),
        (&AttData::Stub, Some(2), None)
    );
    assert_eq!(bare.content_type, "application/octet-stream");
    assert_eq!(
        (&follows.data, follows.encoding),
        (&AttData::Follows { length: Some(7) }, Encoding::Gzip)
    );
    assert_eq!(
        (follows.disk_len, follows.digest.map(|digest| digest[0])),
        (Some(10), Some(0x5d))
    );
    assert_eq!(
        (&plain.data, plain.digest),
        (&AttData::Follows { length: Some(3) }, None)
    );
}

fn stored(name: &str, revpos: u64) -> Attachment {
    Attachment {
        name: name.to_owned(),
        revpos,
        att_len: 3,
        disk_len: 5,
        md5: vec![1; 16],
        ..Attachment::default()
    }
}

#[test]
fn stubs_are_taken_over_from_the_previous_revision() {
    let json = r#"{"_id":"d","_rev":"4-x","_attachments":{"a":{"stub":true},"b":{"stub":true,"revpos":2},"n":{"data":""}}}"#;
    let edit = parse(json).expect("a document");
    assert!(edit.has_stubs());
    let mut merged = edit.clone();
    assert_eq!(
        merged.merge_stubs(Some(&[stored("b", 2), stored("a", 1)])),
        Ok(())
    );
    assert!(!merged.has_stubs() && merged.stored_atts().is_none());
    let revpos: Vec<Option<u64>> = merged.atts.iter().map(|att| att.revpos).collect();
    assert_eq!(revpos, [Some(1), Some(2), None]);
    let missing =
        |previous: Option<&[Attachment]>| edit.clone().merge_stubs(previous).expect_err("a missing stub");
    let words = |error: DocError| error.error_and_reason().1.into_owned();
    assert_eq!(words(missing(None)), "Previous revision missing for document d");
    assert_eq!(
        words(missing(Some(&[stored("b", 2)]))),
        "Invalid attachment stub in d for a"
    );
    assert_eq!(
        words(missing(Some(&[stored("a", 2), stored("b", 3)]))),
        "Invalid attachment stub in d for b"
    );
}

fn doc(body_json: &str) -> Doc {
    let mut body = Vec::new();
    json_to_term(body_json.as_bytes(), &mut body).expect("json");
    let revs = RevPath {
        start: 2,
        ids: ["967a00dff5e02add41819138abb3284d", "b"]
            .iter()
            .map(|id| id_of(id))
            .collect(),
    };
    let id = DocId::new("a\"b").expect("an id");
    Doc {
        id,
        revs,
        deleted: false,
        body,
        atts: Vec::new(),
        local_seq: 9,
    }
}

fn id_of(text: &str) -> settee_engine::ids::RevId {
    settee_engine::ids::RevId::parse(1, text.as_bytes()).expect("a revision id")
}

fn json(doc: &Doc, options: &JsonOptions<'_>) -> String {
    let mut out = Vec::new();
    doc.write_json(&mut out, options).expect("json");
    String::from_utf8(out).expect("utf-8")
}

#[test]
fn members_are_written_in_couchdbs_order() {
    let mut doc = doc(r#"{"x":1.0,"y":[1,2]}"#);
    doc.deleted = true;
    let (one, two) = (rev("1-a"), rev("1-\"q\""));
    doc.atts = vec![Attachment {
        encoding: Encoding::Gzip,
        content_type: "text/plain".into(),
        ..stored("n", 1)
    }];
    let revs_info = [
        (rev("2-z"), RevStatus::Available),
        (rev("1-y"), RevStatus::Missing),
    ];
    let options = JsonOptions {
        revs: true,
        revs_info: Some(&revs_info),
        conflicts: &[one.clone(), two],
        deleted_conflicts: &[one],
        local_seq: Some("9"),
        att_encoding_info: true,
    };
    let expected = concat!(
        r#"{"_id":"a\"b","_rev":"2-967a00dff5e02add41819138abb3284d","x":1.0,"y":[1,2],"_deleted":true,"#,
        r#""_revisions":{"start":2,"ids":["967a00dff5e02add41819138abb3284d","b"]},"#,
        r#""_revs_info":[{"rev":"2-z","status":"available"},{"rev":"1-y","status":"missing"}],"_local_seq":9,"#,
        r#""_conflicts":["1-a","1-\"q\""],"_deleted_conflicts":["1-a"],"#,
        r#""_attachments":{"n":{"content_type":"text/plain","revpos":1,"digest":"md5-AQEBAQEBAQEBAQEBAQEBAQ==","#,
        r#""length":5,"stub":true,"encoding":"gzip","encoded_length":3}}}"#,
    );
    assert_eq!(json(&doc, &options), expected);
    let mut out = Vec::new();
    let show = |_, _: &Attachment| AttachmentData::Inline(b"hello".into());
    doc.write_json_with(&mut out, &JsonOptions::default(), show)
        .expect("json");
    assert!(out.ends_with(br#""digest":"md5-AQEBAQEBAQEBAQEBAQEBAQ==","data":"aGVsbG8="}}}"#));
    out.clear();
    doc.write_json_with(&mut out, &JsonOptions::default(), |_, _| AttachmentData::Follows)
        .expect("json");
    assert!(out.ends_with(br#""length":5,"follows":true}}}"#));
    doc.body = b"\x6a".to_vec();
    out.truncate(3);
    assert!(doc.write_json(&mut out, &options).is_err() && out.len() == 3);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// What is printed is parsed again to the same document.
    #[test]
    fn documents_survive_printing_and_parsing(
        id in "[^_][\\PC\\x00-\\x1f]{0,8}",
        members in prop::collection::vec(("[a-z\"\\\\é]{0,4}", "[\\PC\\n\"]{0,6}", any::<i64>()), 0..6),
        start in 1..9_u64,
        revs in prop::collection::vec("[!-~]{1,20}", 1..9),
        deleted in any::<bool>(),
    ) {
        let mut term = Vec::new();
        let mut object = settee_engine::codec::json::ObjectBuilder::begin(&mut term);
        for (name, text, number) in &members {
            object.name(&mut term, name.as_bytes());
            settee_engine::codec::term::write::tuple(&mut term, 1);
            settee_engine::codec::term::write::list(&mut term, 1);
            settee_engine::codec::term::write::tuple(&mut term, 2);
            settee_engine::codec::term::write::binary(&mut term, text.as_bytes());
            settee_engine::codec::term::write::int(&mut term, *number);
            settee_engine::codec::term::write::nil(&mut term);
        }
        object.finish(&mut term);
        let start = start.max(revs.len() as u64);
        let ids = revs.iter().map(|text| settee_engine::ids::RevId::new(text.as_bytes())).collect();
        let doc = Doc {
            id: DocId::new(&id).expect("an id"),
            revs: RevPath { start, ids },
            deleted,
            body: term,
            atts: Vec::new(),
            local_seq: 0,
        };
        let text = json(&doc, &JsonOptions { revs: true, ..JsonOptions::default() });
        let options = EditOptions { id: IdSource::Body, new_edits: false, limits: DocLimits::default() };
        let edit = parse_edit(text.as_bytes(), &options).expect("own json");
        prop_assert_eq!((&edit.id, &edit.revs, edit.deleted, &edit.body), (&doc.id, &doc.revs, deleted, &doc.body));
    }

    #[test]
    fn damaged_json_is_survived(
        cut in any::<prop::sample::Index>(), at in any::<prop::sample::Index>(), byte in any::<u8>(),
    ) {
        let mut json = br#"{"_id":"a","_rev":"1-x","_revisions":{"start":2,"ids":["a","b"]},"n":[1,{"x":null}],
            "_attachments":{"i":{"data":"aGVsbG8=","revpos":3},"s":{"stub":true,"length":7}},"_deleted":true}"#.to_vec();
        let at = at.index(json.len());
        json[at] = byte;
        let _ = parse_edit(&json, &options());
        let cut = cut.index(json.len());
        let is_invalid = matches!(parse_edit(&json[..cut], &options()), Err(DocError::InvalidJson(_)));
        prop_assert!(is_invalid);
    }
}
