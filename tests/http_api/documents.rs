//! Documents, revisions and bulk endpoints over HTTP, against a node in this process.

use crate::server::Server;
use serde_json::json;

/// Revision of an empty first edit, the same on every CouchDB.
const EMPTY_REV: &str = "1-967a00dff5e02add41819138abb3284d";

#[test]
fn a_document_is_written_read_and_deleted() {
    let server = Server::with_db();
    let put = server
        .admin
        .put("/db/a%2Fb", r#"{"x":1.0,"y":1e3,"_deleted":false}"#);
    assert_eq!((put.status, put.reason.as_str()), (201, "Created"));
    let rev = put.json()["rev"].as_str().expect("a revision").to_owned();
    assert_eq!(
        put.text(),
        format!("{{\"ok\":true,\"id\":\"a/b\",\"rev\":\"{rev}\"}}\n")
    );
    assert_eq!(put.header("etag"), Some(format!("\"{rev}\"").as_str()));
    assert!(
        put.header("location")
            .is_some_and(|to| to.starts_with("http://127.0.0.1:") && to.ends_with("/db/a%2Fb"))
    );

    let get = server.admin.get("//db//a%2Fb/");
    assert_eq!(
        get.text(),
        format!("{{\"_id\":\"a/b\",\"_rev\":\"{rev}\",\"x\":1.0,\"y\":1.0e3}}\n")
    );
    assert_eq!(get.header("content-type"), Some("application/json"));
    assert_eq!(get.header("cache-control"), Some("must-revalidate"));
    assert!(
        get.header("server")
            .is_some_and(|name| name.starts_with("CouchDB/3.5.2 ("))
    );
    assert_eq!(get.header("x-couch-request-id").map(str::len), Some(10));
    let etag = get.header("etag").expect("an ETag").to_owned();
    let again = server
        .admin
        .send("GET", "/db/a%2Fb", &[("If-None-Match", &etag)], None);
    assert_eq!((again.status, again.header("content-length")), (304, Some("0")));
    assert_eq!(
        server
            .admin
            .send("GET", "/db/a%2Fb", &[("If-None-Match", "*")], None)
            .status,
        304
    );
    let head = server.admin.send("HEAD", "/db/a%2Fb", &[], None);
    assert_eq!(
        head.header("content-length"),
        Some(get.body.len().to_string().as_str())
    );

    assert_eq!(server.admin.delete("/db/a%2Fb").status, 409);
    assert_eq!(
        server.admin.delete("/db/a%2Fb?rev=x").json()["reason"],
        "Invalid rev format"
    );
    let delete = server.admin.delete(&format!("/db/a%2Fb?rev={rev}"));
    assert_eq!((delete.status, &delete.json()["ok"]), (200, &json!(true)));
    let gone = server.admin.get("/db/a%2Fb");
    assert_eq!((gone.status, gone.reason.as_str()), (404, "Object Not Found"));
    assert_eq!(gone.text(), "{\"error\":\"not_found\",\"reason\":\"deleted\"}\n");
    assert_eq!(server.admin.delete("/db/a%2Fb").json()["reason"], "deleted");
    assert_eq!(server.admin.get("/db/never").json()["reason"], "missing");
    assert_eq!(server.admin.delete("/db/never").status, 404);
}

#[test]
fn revisions_of_body_query_and_header_must_agree() {
    let server = Server::with_db();
    assert_eq!(server.admin.put("/db/d", "{}").json()["rev"], EMPTY_REV);
    let body = format!("{{\"_rev\":\"{EMPTY_REV}\"}}");
    let differs = server.admin.put("/db/d?rev=1-aa", &body);
    assert_eq!(
        differs.json()["reason"],
        "Document rev from request body and query string have different values"
    );
    let differs = server
        .admin
        .send("PUT", "/db/d", &[("If-Match", "\"1-aa\"")], Some(body.as_bytes()));
    assert_eq!(
        differs.json()["reason"],
        "Document rev and etag have different values"
    );
    let agrees = server.admin.send(
        "PUT",
        "/db/d",
        &[("If-Match", &format!("\"{EMPTY_REV}\""))],
        Some(b"{}"),
    );
    assert_eq!(agrees.status, 201);
    let deleted = server.admin.put(
        &format!("/db/d?rev={}", agrees.json()["rev"].as_str().expect("rev")),
        "{\"_deleted\":true}",
    );
    assert_eq!(deleted.status, 200);
}

#[test]
fn bad_documents_are_refused_with_couchdbs_words() {
    let server = Server::with_db();
    let table = [
        ("/db/d", "", 400, "bad_request", "invalid UTF-8 JSON"),
        (
            "/db/d",
            "[]",
            400,
            "bad_request",
            "Document must be a JSON object",
        ),
        (
            "/db/d",
            "{\"_foo\":1}",
            400,
            "doc_validation",
            "Bad special document member: _foo",
        ),
        (
            "/db/d",
            "{\"_rev\":\"x\"}",
            400,
            "bad_request",
            "Invalid rev format",
        ),
        (
            "/db/_bad",
            "{}",
            400,
            "illegal_docid",
            "Only reserved document ids may start with underscore.",
        ),
        (
            "/db/_local/",
            "{}",
            400,
            "bad_request",
            "Invalid _local document id.",
        ),
        (
            "/db/_local/x",
            "{\"_rev\":\"0-abc\"}",
            400,
            "bad_request",
            "Invalid rev format",
        ),
        (
            "/db/%ff",
            "{}",
            400,
            "illegal_docid",
            "Document id must be valid UTF-8",
        ),
        ("/db/%zz", "{}", 400, "bad_request", "invalid_url_encoding"),
        ("/nodb/d", "{}", 404, "not_found", "Database does not exist."),
        ("/nodb/d", "junk", 404, "not_found", "Database does not exist."),
    ];
    for (path, body, status, error, reason) in table {
        let reply = server.admin.put(path, body);
        assert_eq!(reply.status, status, "{path} {body}");
        assert_eq!(
            reply.text(),
            format!("{{\"error\":\"{error}\",\"reason\":\"{reason}\"}}\n"),
            "{path} {body}"
        );
    }
    let none = server.admin.send("PUT", "/db/d", &[], None);
    assert_eq!(none.json()["reason"], "Missing request body");
    let large = Server::with(&[("couchdb", "max_document_size", "20")]);
    large.admin.put("/db", "");
    let reply = large.admin.put("/db/d", "{\"text\":\"01234567890123456789\"}");
    assert_eq!(
        (reply.status, reply.text().as_str()),
        (413, "{\"error\":\"document_too_large\",\"reason\":\"\"}\n")
    );
    let reply = large.admin.post(
        "/db/_bulk_docs",
        "{\"docs\":[{\"_id\":\"d\",\"text\":\"01234567890123456789\"}]}",
    );
    assert_eq!(
        (reply.status, reply.text().as_str()),
        (413, "{\"error\":\"document_too_large\",\"reason\":\"d\"}\n")
    );
}

#[test]
fn bulk_documents_are_answered_in_their_order() {
    let server = Server::with_db();
    let reply = server.admin.post(
        "/db/_bulk_docs",
        r#"{"docs":[{"_id":"d","v":1},{"_id":"d","v":2},{"_id":"e"},{}]}"#,
    );
    assert_eq!(reply.status, 201);
    let answers = reply.json();
    assert_eq!(answers[0]["ok"], true);
    assert_eq!(
        answers[1],
        json!({"id": "d", "error": "conflict", "reason": "Document update conflict."})
    );
    assert_eq!(answers[2]["rev"], EMPTY_REV);
    assert_eq!(answers[3]["id"].as_str().map(str::len), Some(32));

    let replicated =
        r#"{"new_edits":false,"docs":[{"_id":"f","_rev":"2-b","_revisions":{"start":2,"ids":["b","a"]}}]}"#;
    let reply = server.admin.post("/db/_bulk_docs", replicated);
    assert_eq!((reply.status, reply.text().as_str()), (201, "[]\n"));
    let reply = server
        .admin
        .post("/db/_bulk_docs", r#"{"new_edits":false,"docs":[{"_id":"fish"}]}"#);
    assert_eq!(reply.status, 400);
    let reason = reply.json()["reason"].as_str().unwrap_or_default().to_owned();
    assert_eq!(
        reason,
        "When `new_edits: false`, the document needs `_rev` or `_revisions` specified"
    );
    for (body, reason) in [
        ("{}", "POST body must include `docs` parameter."),
        ("{\"docs\":1}", "`docs` parameter must be an array."),
        (
            "{\"docs\":[],\"new_edits\":1}",
            "`new_edits` parameter must be a boolean.",
        ),
        ("[]", "Request body must be a JSON object"),
        ("{\"docs\":[1]}", "Document must be a JSON object"),
        ("{\"docs\":[]", "invalid UTF-8 JSON"),
    ] {
        let reply = server.admin.post("/db/_bulk_docs", body);
        assert_eq!(
            (reply.status, &reply.json()["reason"]),
            (400, &json!(reason)),
            "{body}"
        );
    }
    let refused = server.admin.post(
        "/db/_bulk_docs",
        "{\"docs\":[{\"_id\":\"x\"}],\"all_or_nothing\":true}",
    );
    assert_eq!(
        (refused.status, &refused.json()[0]["error"]),
        (417, &json!("not_implemented"))
    );
    assert_eq!(
        server
            .admin
            .send("POST", "/db/_bulk_docs", &[], Some(b"{}"))
            .status,
        415
    );
}

#[test]
fn conflicting_revisions_can_be_seen_and_fetched() {
    let server = Server::with_db();
    server.admin.put("/db/d", "{}");
    let id = &EMPTY_REV[2..];
    let body = json!({"new_edits": false, "docs": [
        {"_id": "d", "v": 2, "_rev": "2-b", "_revisions": {"start": 2, "ids": ["b", id]}},
        {"_id": "d", "v": 3, "_rev": "2-c", "_revisions": {"start": 2, "ids": ["c", id]}},
    ]});
    assert_eq!(
        server.admin.post("/db/_bulk_docs", &body.to_string()).text(),
        "[]\n"
    );
    let winner = server.admin.get("/db/d?conflicts=true");
    assert_eq!(
        winner.text(),
        "{\"_id\":\"d\",\"_rev\":\"2-c\",\"v\":3,\"_conflicts\":[\"2-b\"]}\n"
    );
    assert_eq!(winner.header("etag"), None);
    let latest = server.admin.get(&format!("/db/d?rev={EMPTY_REV}&latest=true"));
    assert_eq!(latest.json()["_rev"], "2-c");
    let revs = format!("/db/d?latest=true&open_revs=%5B%22{EMPTY_REV}%22,%229-x%22%5D");
    let open = server.admin.get_json(&revs).json();
    let found: Vec<_> = open
        .as_array()
        .expect("a list")
        .iter()
        .map(|one| one["ok"]["_rev"].as_str())
        .collect();
    assert!(
        found.contains(&Some("2-b")) && found.contains(&Some("2-c")),
        "{open}"
    );
    let mixed = server.admin.get("/db/d?open_revs=%5B%229-x%22%5D");
    assert!(
        mixed
            .header("content-type")
            .is_some_and(|kind| kind.starts_with("multipart/mixed; boundary=\""))
    );
    assert!(
        mixed
            .text()
            .contains("Content-Type: application/json; error=\"true\"\r\n\r\n{\"missing\":\"9-x\"}")
    );
    // A made-up revision says nothing about the content, so its ETag proves nothing.
    assert_eq!(
        server
            .admin
            .send("GET", "/db/d?rev=2-c", &[("If-None-Match", "\"2-c\"")], None)
            .status,
        200
    );

    let diff = server.admin.post(
        "/db/_revs_diff",
        "{\"d\":[\"2-b\",\"3-z\"],\"e\":[\"1-a\"],\"f\":[]}",
    );
    assert_eq!(diff.json()["d"]["missing"], json!(["3-z"]));
    assert_eq!(diff.json()["e"], json!({"missing": ["1-a"]}));
    assert_eq!(diff.json().get("f"), None);
    let missing = server
        .admin
        .post("/db/_missing_revs", "{\"d\":[\"2-b\",\"3-z\"]}");
    assert_eq!(missing.text(), "{\"missing_revs\":{\"d\":[\"3-z\"]}}\n");

    let bulk = server.admin.post(
        "/db/_bulk_get?revs=true",
        "{\"docs\":[{\"id\":\"d\",\"rev\":\"2-b\"},{\"id\":\"no\"},{}]}",
    );
    let results = bulk.json();
    assert_eq!(results["results"][0]["docs"][0]["ok"]["_revisions"]["start"], 2);
    assert_eq!(
        results["results"][1]["docs"][0]["error"],
        json!({"rev": "undefined", "reason": "missing", "id": "no", "error": "not_found"})
    );
    assert_eq!(results["results"][2]["id"], json!(null));
    let all = server
        .admin
        .post("/db/_bulk_get", "{\"docs\":[{\"id\":\"d\"}]}")
        .json();
    assert_eq!(all["results"][0]["docs"].as_array().map(Vec::len), Some(2));
    assert_eq!(server.admin.post("/db/_bulk_get", "{\"docs\":1}").status, 400);
    let parameter = server.admin.post("/db/_bulk_get?rev=1-a", "{\"docs\":[]}");
    assert_eq!(
        parameter.json()["reason"],
        "\"rev\" query parameter is not acceptable"
    );
}

#[test]
fn local_documents_count_their_writes() {
    let server = Server::with_db();
    assert_eq!(
        server
            .admin
            .put("/db/_local/r", "{\"_rev\":\"0-1234567890123455\"}")
            .json()["rev"],
        "0-1234567890123456"
    );
    assert_eq!(
        server.admin.get("/db/_local/r").json()["_rev"],
        "0-1234567890123456"
    );
    assert_eq!(server.admin.get("/db/_local%2Fr").status, 200);
    assert_eq!(server.admin.put("/db/_local/r", "{}").json()["rev"], "0-1");
    let listed = server.admin.get("/db/_local_docs");
    assert_eq!(
        listed.text(),
        "{\"total_rows\":null,\"offset\":null,\"rows\":[\r\n{\"id\":\"_local/r\",\"key\":\"_local/r\",\"value\":{\"rev\":\"0-1\"}}\r\n]}\n"
    );
    assert_eq!(server.admin.delete("/db/_local/r").json()["rev"], "0-0");
    assert_eq!(server.admin.get("/db/_local/r").status, 404);
    let attachment = server.admin.send("PUT", "/db/_local/r/a", &[], Some(b"x"));
    assert_eq!(
        attachment.json()["reason"],
        "_local documents do not accept attachments."
    );
}

#[test]
fn copies_need_a_relative_destination() {
    let server = Server::with_db();
    server.admin.put("/db/a", "{\"v\":1}");
    let copy = |to: &str| server.admin.send("COPY", "/db/a", &[("Destination", to)], None);
    let made = copy("b%2Fc");
    assert_eq!((made.status, &made.json()["id"]), (201, &json!("b/c")));
    assert_eq!(server.admin.get("/db/b%2Fc").json()["v"], 1);
    assert_eq!(copy("b%2Fc").status, 409);
    let rev = made.json()["rev"].as_str().expect("rev").to_owned();
    assert_eq!(copy(&format!("b%2Fc?rev={rev}")).status, 201);
    assert_eq!(copy("_bad").json()["error"], "illegal_docid");
    assert_eq!(
        copy("http://host/db/x").json()["reason"],
        "Destination URL must be relative."
    );
    let without = server.admin.send("COPY", "/db/a", &[], None);
    assert_eq!(
        without.json()["reason"],
        "Destination header is mandatory for COPY."
    );
}
