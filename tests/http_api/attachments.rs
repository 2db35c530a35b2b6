//! Attachments over HTTP: standalone, inline, and as multipart in both directions.

use crate::client::{Headers, Reply};
use crate::server::Server;
use serde_json::json;

const TEXT: (&str, &str) = ("Content-Type", "text/plain");
const BINARY: (&str, &str) = ("Content-Type", "application/octet-stream");

fn multipart(server: &Server, path: &str, data: &str) -> Reply {
    let json = "{\"_attachments\":{\"f\":{\"follows\":true,\"content_type\":\"text/plain\",\"length\":4}}}";
    let body =
        format!("--abc\r\nContent-Type: application/json\r\n\r\n{json}\r\n--abc\r\n\r\n{data}\r\n--abc--");
    let headers: Headers<'_> = &[("Content-Type", "multipart/related;boundary=\"abc\"")];
    server.admin.send("PUT", path, headers, Some(body.as_bytes()))
}

#[test]
fn a_standalone_attachment_is_stored_and_cut() {
    let server = Server::with_db();
    let put = server
        .admin
        .send("PUT", "/db/d/a/b", &[BINARY], Some(b"0123456789"));
    assert_eq!(put.status, 201);
    assert!(
        put.header("location")
            .is_some_and(|to| to.ends_with("/db/d/a%2Fb"))
    );
    let get = server.admin.get("/db/d/a%2Fb");
    assert_eq!((get.status, get.text().as_str()), (200, "0123456789"));
    assert_eq!(get.header("accept-ranges"), Some("bytes"));
    assert_eq!(get.header("content-security-policy"), Some("sandbox"));
    let etag = get.header("etag").expect("an ETag").to_owned();
    assert_eq!(
        server
            .admin
            .send("GET", "/db/d/a/b", &[("If-None-Match", &etag)], None)
            .status,
        304
    );
    let range = |range: &str| server.admin.send("GET", "/db/d/a/b", &[("Range", range)], None);
    let part = range("bytes=2-4");
    assert_eq!((part.status, part.text().as_str()), (206, "234"));
    assert_eq!(part.header("content-range"), Some("bytes 2-4/10"));
    assert_eq!(range("bytes=-3").text(), "789");
    assert_eq!(range("bytes=0-").status, 200);
    let beyond = range("bytes=10-");
    assert_eq!(
        (beyond.status, &beyond.json()["error"]),
        (416, &json!("requested_range_not_satisfiable"))
    );
    let two = range("bytes=0-1,3-4");
    assert_eq!(two.status, 206);
    assert!(
        two.text().contains("Content-Range: bytes 3-4/10\r\n\r\n34\r\n--"),
        "{}",
        two.text()
    );
    let head = server.admin.send("HEAD", "/db/d/a/b", &[], None);
    assert_eq!(head.header("content-length"), Some("10"));
    assert_eq!(
        server.admin.get("/db/d/none").json()["reason"],
        "Document is missing attachment"
    );
}

#[test]
fn writes_of_attachments_need_the_right_revision() {
    let server = Server::with_db();
    let rev = server.admin.send("PUT", "/db/d/a", &[TEXT], Some(b"x")).json()["rev"]
        .as_str()
        .expect("rev")
        .to_owned();
    let put = |query: &str| {
        server
            .admin
            .send("PUT", &format!("/db/d/a{query}"), &[TEXT], Some(b"y"))
            .status
    };
    assert_eq!((put("?rev=1-abc"), put("")), (409, 409));
    assert_eq!(server.admin.delete("/db/d/a?rev=1-abc").status, 409);
    assert_eq!(server.admin.delete(&format!("/db/d/none?rev={rev}")).status, 404);
    assert_eq!(server.admin.delete("/db/d/a").status, 409);
    let underscore = server.admin.send("PUT", "/db/d/_a", &[TEXT], Some(b"y"));
    assert_eq!(
        underscore.json()["reason"],
        "Attachment name '_a' starts with prohibited character '_'"
    );
    let coding = server
        .admin
        .send("PUT", "/db/e/a", &[TEXT, ("Content-Encoding", "br")], Some(b"y"));
    assert_eq!(coding.status, 415);
    assert_eq!(server.admin.delete(&format!("/db/d/a?rev={rev}")).status, 200);
    assert_eq!(server.admin.get("/db/d").json().get("_attachments"), None);
}

#[test]
fn text_is_packed_on_disk_and_unpacked_for_clients() {
    let server = Server::with_db();
    let text = "hello ".repeat(5000);
    server
        .admin
        .send("PUT", "/db/d/t", &[TEXT], Some(text.as_bytes()));
    let plain = server.admin.get("/db/d/t");
    assert_eq!(plain.text(), text);
    assert_eq!(plain.header("content-length"), Some("30000"));
    assert_eq!(plain.header("accept-ranges"), Some("none"));
    let packed = server
        .admin
        .send("GET", "/db/d/t", &[("Accept-Encoding", "deflate, gzip")], None);
    assert_eq!(packed.header("content-encoding"), Some("gzip"));
    assert!(packed.body.starts_with(&[0x1f, 0x8b]) && packed.body.len() < 1000);
    let info = server.admin.get("/db/d?att_encoding_info=true").json();
    assert_eq!(info["_attachments"]["t"]["encoding"], "gzip");
    assert_eq!(info["_attachments"]["t"]["length"], 30000);
}

#[test]
fn inline_attachments_and_stubs() {
    let server = Server::with_db();
    let body = "{\"_attachments\":{\"t\":{\"content_type\":\"text/plain\",\"data\":\"aGVsbG8=\"}}}";
    let first = server.admin.put("/db/d", body).json()["rev"]
        .as_str()
        .expect("rev")
        .to_owned();
    let stub = json!({"x": 1, "_rev": first, "_attachments": {"t": {"stub": true}}});
    let second = server.admin.put("/db/d", &stub.to_string()).json()["rev"]
        .as_str()
        .expect("rev")
        .to_owned();
    let read = server.admin.get_json("/db/d?attachments=true").json();
    assert_eq!(read["_attachments"]["t"]["data"], "aGVsbG8=");
    assert_eq!(read["_attachments"]["t"]["revpos"], 1);
    let related = server.admin.get("/db/d?attachments=true");
    assert!(
        related
            .header("content-type")
            .is_some_and(|kind| kind.starts_with("multipart/related; boundary=\""))
    );
    let length = related.header("content-length").map(str::to_owned);
    assert_eq!(length, Some(related.body.len().to_string()));
    assert!(related.text().contains("\"follows\":true"));
    let known = format!("/db/d?atts_since=%5B%22{first}%22%5D");
    assert_eq!(
        server.admin.get_json(&known).json()["_attachments"]["t"]["stub"],
        true
    );

    let wanted = json!({"docs": [{"id": "d", "rev": second, "atts_since": [first]}]}).to_string();
    let headers: Headers<'_> = &[
        ("Content-Type", "application/json"),
        ("Accept", "multipart/related"),
    ];
    let bulk = server.admin.send(
        "POST",
        "/db/_bulk_get?revs=true&attachments=true",
        headers,
        Some(wanted.as_bytes()),
    );
    assert!(
        bulk.text()
            .contains("\r\nContent-Type: application/json\r\n\r\n{\"_id\":\"d\""),
        "{}",
        bulk.text()
    );
    assert!(bulk.text().contains("\"stub\":true"));

    let unknown = server
        .admin
        .put("/db/e", "{\"_attachments\":{\"t\":{\"stub\":true}}}");
    assert_eq!(
        (unknown.status, &unknown.json()["error"]),
        (412, &json!("missing_stub"))
    );
    let bad = server
        .admin
        .put("/db/e", "{\"_attachments\":{\"t\":{\"data\":\"!\"}}}");
    assert_eq!(bad.json()["reason"], "Invalid attachment data for t");
}

#[test]
fn multipart_uploads_match_parts_by_order_and_length() {
    let server = Server::with_db();
    let short = multipart(&server, "/db/d1", "oha");
    assert_eq!(
        (short.status, &short.json()["reason"]),
        (400, &json!("attachment shorter than expected"))
    );
    let long = multipart(&server, "/db/d2", "ohaiX");
    assert_eq!(
        (long.status, &long.json()["reason"]),
        (400, &json!("attachment longer than expected"))
    );
    assert_eq!(multipart(&server, "/db/d3", "ohai").status, 201);
    assert_eq!(server.admin.get("/db/d3/f").text(), "ohai");
    assert_eq!(
        server.admin.get("/db/d3").json()["_attachments"]["f"]["revpos"],
        1
    );
    for body in ["", "junk", "--abc\r\n\r\n{}", "--abc\r\n\r\n[]\r\n--abc--"] {
        let headers: Headers<'_> = &[("Content-Type", "multipart/related;boundary=\"abc\"")];
        let reply = server.admin.send("PUT", "/db/m", headers, Some(body.as_bytes()));
        assert_eq!(
            (reply.status, &reply.json()["error"]),
            (400, &json!("bad_request")),
            "{body:?}"
        );
    }
}

#[test]
fn what_is_read_as_multipart_can_be_written_as_multipart() {
    let server = Server::with_db();
    server
        .admin
        .send("PUT", "/db/d/a.bin", &[BINARY], Some(&[0, 13, 10, 45, 45, 255]));
    let rev = server.admin.get("/db/d").json()["_rev"]
        .as_str()
        .expect("rev")
        .to_owned();
    server.admin.send(
        "PUT",
        &format!("/db/d/t.txt?rev={rev}"),
        &[TEXT],
        Some("text ".repeat(500).as_bytes()),
    );
    let read = server.admin.get("/db/d?attachments=true&revs=true");
    let kind = read.header("content-type").expect("a type").to_owned();
    assert_eq!(server.admin.put("/copy", "").status, 201);
    let written = server.admin.send(
        "PUT",
        "/copy/d?new_edits=false",
        &[("Content-Type", &kind)],
        Some(&read.body),
    );
    assert_eq!(written.status, 201, "{}", written.text());
    let (old, new) = (
        server.admin.get("/db/d?revs=true"),
        server.admin.get("/copy/d?revs=true"),
    );
    assert_eq!(old.text(), new.text());
    for name in ["a.bin", "t.txt"] {
        let (old, new) = (
            server.admin.get(&format!("/db/d/{name}")),
            server.admin.get(&format!("/copy/d/{name}")),
        );
        assert_eq!(old.body, new.body, "{name}");
        assert_eq!(old.header("etag"), new.header("etag"), "{name}");
    }
}

#[test]
fn a_copy_in_another_shard_has_its_attachments() {
    let server = Server::start();
    assert_eq!(server.admin.put("/db?q=8", "").status, 201);
    let body = "zipped text ".repeat(40);
    let sent: [(&str, &str, &[u8]); 2] = [
        ("plain", BINARY.1, b"0123456789"),
        ("text", TEXT.1, body.as_bytes()),
    ];
    let mut rev = String::new();
    for (name, content_type, data) in sent {
        let path = format!("/db/source/{name}{rev}");
        let put = server
            .admin
            .send("PUT", &path, &[("Content-Type", content_type)], Some(data));
        rev = format!("?rev={}", put.json()["rev"].as_str().expect("a revision"));
    }
    // Copies in every shard, whichever the source is in.
    for number in 0..32 {
        let destination = format!("copy{number}");
        let copied = server
            .admin
            .send("COPY", "/db/source", &[("Destination", &destination)], None);
        assert_eq!(copied.status, 201, "{}", copied.text());
        for (name, _, data) in sent {
            let got = server.admin.get(&format!("/db/{destination}/{name}"));
            assert_eq!(
                (got.status, got.body.as_slice()),
                (200, data),
                "{destination}/{name}"
            );
        }
    }
}
