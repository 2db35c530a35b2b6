//! `_all_docs` and `_changes` over HTTP: exact separators, waiting feeds, and what ends them.

use crate::client::Client;
use crate::server::Server;
use serde_json::json;

/// Revision of an empty first edit.
const EMPTY_REV: &str = "1-967a00dff5e02add41819138abb3284d";

fn fill(client: &Client, ids: &[&str]) {
    let docs: Vec<_> = ids.iter().map(|id| json!({"_id": id})).collect();
    assert_eq!(
        client
            .post("/db/_bulk_docs", &json!({"docs": docs}).to_string())
            .status,
        201
    );
}

fn ids(client: &Client, query: &str) -> String {
    let rows = client.get(&format!("/db/_all_docs?{query}")).json()["rows"].clone();
    rows.as_array()
        .expect("rows")
        .iter()
        .map(|row| row["id"].as_str().unwrap_or("-"))
        .collect()
}

#[test]
fn rows_have_exact_separators() {
    let server = Server::with_db();
    assert_eq!(
        server.admin.get("/db/_all_docs").text(),
        "{\"total_rows\":0,\"offset\":0,\"rows\":[\r\n\r\n]}\n"
    );
    fill(&server.admin, &["b", "a"]);
    let row =
        |id: &str| format!("{{\"id\":\"{id}\",\"key\":\"{id}\",\"value\":{{\"rev\":\"{EMPTY_REV}\"}}}}");
    let reply = server.admin.get("/db/_all_docs");
    let expected = format!(
        "{{\"total_rows\":2,\"offset\":0,\"rows\":[\r\n{},\r\n{}\r\n]}}\n",
        row("a"),
        row("b")
    );
    assert_eq!(reply.text(), expected);
    assert_eq!(reply.header("transfer-encoding"), Some("chunked"));
    assert_eq!(reply.header("etag"), None);
    let queries = server.admin.post(
        "/db/_all_docs/queries",
        "{\"queries\":[{\"keys\":[\"b\"]},{\"limit\":0}]}",
    );
    let expected = format!(
        "{{\"results\":[\r\n{{\"total_rows\":2,\"offset\":null,\"rows\":[\r\n{}\r\n]}},\r\n\
         {{\"total_rows\":2,\"offset\":0,\"rows\":[\r\n\r\n]}}\r\n]}}\n",
        row("b")
    );
    assert_eq!(queries.text(), expected);
    let head = server.admin.send("HEAD", "/db/_all_docs", &[], None);
    assert_eq!((head.status, head.header("content-length")), (200, Some("0")));
}

#[test]
fn ranges_and_keys_choose_rows() {
    let server = Server::with_db();
    fill(&server.admin, &["a", "b", "c", "d"]);
    let table = [
        ("", "abcd"),
        ("startkey=%22b%22&endkey=%22c%22", "bc"),
        ("startkey=%22b%22&endkey=%22d%22&inclusive_end=false", "bc"),
        ("descending=true", "dcba"),
        ("descending=true&startkey=%22c%22&limit=2", "cb"),
        ("skip=1&limit=2", "bc"),
        ("key=%22c%22", "c"),
        ("startkey=%22c%22&endkey=%22a%22", ""),
        ("startkey={}", "abcd"),
        ("endkey={}", ""),
        ("limit=0", ""),
    ];
    for (query, expected) in table {
        assert_eq!(ids(&server.admin, query), expected, "{query}");
    }
    let keys = server
        .admin
        .post("/db/_all_docs", "{\"keys\":[\"d\",2,\"x\",\"d\"]}")
        .json();
    assert_eq!(keys["rows"][0]["id"], "d");
    assert_eq!(keys["rows"][1], json!({"key": 2, "error": "not_found"}));
    assert_eq!(keys["rows"][2], json!({"key": "x", "error": "not_found"}));
    assert_eq!(keys["rows"][3]["id"], "d");
    assert_eq!(server.admin.post("/db/_all_docs", "{\"keys\":\"d\"}").status, 400);
    let bad = server.admin.get("/db/_all_docs?limit=-1");
    assert_eq!(bad.json()["error"], "query_parse_error");
    assert_eq!(
        server.admin.get("/nodb/_all_docs?limit=-1").json()["reason"],
        "Database does not exist."
    );
    server.admin.put("/db/_design/x", "{}");
    assert_eq!(
        server.admin.get("/db/_design_docs").json()["rows"][0]["id"],
        "_design/x"
    );
}

#[test]
fn a_normal_feed_is_one_object() {
    let server = Server::with_db();
    let empty = server.admin.get("/db/_changes").text();
    assert!(
        empty.starts_with("{\"results\":[\n\n],\n\"last_seq\":\"0-"),
        "{empty}"
    );
    assert!(empty.ends_with("\",\"pending\":0}\n\n"), "{empty}");
    fill(&server.admin, &["a", "b"]);
    let reply = server.admin.get("/db/_changes");
    let text = reply.text();
    assert_eq!(text.matches("},\r\n{").count(), 1, "{text}");
    let seqs = reply.json();
    assert!(
        seqs["results"][1]["seq"]
            .as_str()
            .is_some_and(|seq| seq.starts_with("2-")),
        "{text}"
    );
    let etag = reply.header("etag").expect("an ETag").to_owned();
    assert_eq!(
        server
            .admin
            .send("GET", "/db/_changes", &[("If-None-Match", &etag)], None)
            .status,
        304
    );
    let last = seqs["last_seq"].as_str().expect("a sequence");
    assert_eq!(
        server.admin.get(&format!("/db/_changes?since={last}")).json()["results"],
        json!([])
    );
    let limited = server.admin.get("/db/_changes?limit=1").json();
    assert_eq!(
        (limited["results"].as_array().map(Vec::len), &limited["pending"]),
        (Some(1), &json!(1))
    );
    let since = server.admin.get("/db/_changes?since=5");
    assert_eq!(
        since.json()["reason"],
        "Malformed sequence supplied in 'since' parameter."
    );
    let of = server
        .admin
        .post("/db/_changes?filter=_doc_ids", "{\"doc_ids\":[\"b\"]}")
        .json();
    assert_eq!(of["results"].as_array().map(Vec::len), Some(1));
    let docs = server.admin.get("/db/_changes?include_docs=true").json();
    assert_eq!(docs["results"][0]["doc"]["_rev"], EMPTY_REV);
}

#[test]
fn waiting_feeds_tell_of_a_change_when_it_happens() {
    let server = Server::with_db();
    let mut longpoll = server.admin.open(
        "GET",
        "/db/_changes?feed=longpoll&since=now&heartbeat=60000",
        &[],
        None,
    );
    assert_eq!(longpoll.chunk().as_deref(), Some(&b"{\"results\":[\n"[..]));
    let mut live = server.admin.open(
        "GET",
        "/db/_changes?feed=continuous&since=now&heartbeat=60000",
        &[],
        None,
    );
    fill(&server.admin, &["a"]);
    let rest = longpoll.finish().text();
    assert!(
        rest.contains("\"id\":\"a\"") && rest.contains("\n],\n\"last_seq\":\"1-"),
        "{rest}"
    );
    let line = String::from_utf8(live.chunk().expect("a row")).expect("UTF-8");
    assert!(
        line.starts_with("{\"seq\":\"1-") && line.ends_with("}\n"),
        "{line}"
    );
    fill(&server.admin, &["b"]);
    let line = String::from_utf8(live.chunk().expect("a row")).expect("UTF-8");
    assert!(line.contains("\"id\":\"b\""), "{line}");
}

#[test]
fn feeds_end_by_timeout_and_limit_and_beat_while_they_wait() {
    let server = Server::with_db();
    fill(&server.admin, &["a", "b"]);
    let timed = server
        .admin
        .get("/db/_changes?feed=continuous&timeout=100")
        .text();
    assert_eq!(timed.lines().count(), 3, "{timed}");
    assert!(timed.ends_with("\",\"pending\":0}\n"), "{timed}");
    let limited = server
        .admin
        .get("/db/_changes?feed=continuous&limit=1&heartbeat=60000")
        .text();
    assert_eq!(limited.lines().count(), 2, "{limited}");
    let descending = server
        .admin
        .get("/db/_changes?feed=continuous&descending=true&limit=100")
        .text();
    assert_eq!(descending.matches("\"id\"").count(), 2, "{descending}");
    let mut beating = server.admin.open(
        "GET",
        "/db/_changes?feed=continuous&since=now&heartbeat=20",
        &[],
        None,
    );
    assert_eq!(beating.chunk().as_deref(), Some(&b"\n"[..]));
    let mut events = server.admin.open(
        "GET",
        "/db/_changes?feed=eventsource&since=now&heartbeat=20",
        &[],
        None,
    );
    assert_eq!(events.reply.header("content-type"), Some("text/event-stream"));
    assert_eq!(events.chunk().as_deref(), Some(&b"\n"[..]));
    assert_eq!(
        events.chunk().as_deref(),
        Some(&b"event: heartbeat\ndata: \n\n"[..])
    );
}

#[test]
fn a_graceful_stop_ends_waiting_feeds() {
    let mut server = Server::with_db();
    let live = server.admin.open(
        "GET",
        "/db/_changes?feed=continuous&since=now&heartbeat=60000",
        &[],
        None,
    );
    server.stop_http();
    assert_eq!(live.finish().text(), "");
}

#[test]
fn a_client_that_goes_is_noticed() {
    let server = Server::with_db();
    let clients = || {
        let stats = server
            .admin
            .get("/_node/_local/_stats/couchdb/httpd/clients_requesting_changes")
            .json();
        stats["value"].as_u64().expect("a number")
    };
    let live = server.admin.open(
        "GET",
        "/db/_changes?feed=continuous&since=now&heartbeat=60000",
        &[],
        None,
    );
    assert_eq!(clients(), 1);
    drop(live);
    // Each look is a request of its own, so this is bounded by requests and not by time.
    assert!((0..10_000).any(|_| clients() == 0));
}
