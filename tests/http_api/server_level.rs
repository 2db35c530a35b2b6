//! The server level over HTTP: databases, logins, permissions, cross-origin requests, methods.

use crate::client::Headers;
use crate::server::Server;
use serde_json::json;
use std::sync::Arc;
use tokio::sync::SetOnce;

#[test]
fn the_welcome_names_couchdb() {
    let server = Server::start();
    let reply = server.anonymous.get("/");
    assert_eq!((reply.status, &reply.json()["couchdb"]), (200, &json!("Welcome")));
    assert_eq!(reply.json()["uuid"].as_str().map(str::len), Some(32));
    assert_eq!(
        server.anonymous.get("/_up").text(),
        "{\"seeds\":{},\"status\":\"ok\"}\n"
    );
    let uuids = server.anonymous.get("/_uuids?count=3");
    assert_eq!(uuids.json()["uuids"].as_array().map(Vec::len), Some(3));
    assert_eq!(
        (uuids.header("x-couch-request-id"), uuids.header("pragma")),
        (None, Some("no-cache"))
    );
    assert_eq!(
        server.anonymous.get("/_uuids?count=1001").json()["reason"],
        "count parameter too large"
    );
    assert_eq!(
        server.anonymous.get("/_uuids?count=-1").json()["reason"],
        "count must be a positive integer"
    );
    let post = server.anonymous.post("/", "{}");
    assert_eq!((post.status, post.header("allow")), (405, Some("GET,HEAD")));
    assert_eq!(server.anonymous.get("/_utils/x").status, 404);
    assert_eq!(server.admin.get("/_all_dbs/x").status, 404);
    assert_eq!(server.admin.get("/_active_tasks").text(), "[]\n");
    let node = server.admin.get("/_membership").json()["all_nodes"][0].clone();
    assert_eq!(server.admin.get("/_node/_local").json(), json!({"name": node}));
    assert_eq!(
        server.admin.get("/_node/nobody").json()["reason"],
        "no such node: nobody"
    );
    let hits = server
        .admin
        .get("/_node/_local/_stats/couchdb/bt_engine_cache/hits")
        .json();
    assert_eq!(hits["type"], "counter");
    assert_eq!(server.admin.get("/_node/_local/_stats/no/such").text(), "null\n");
    assert_eq!(
        server.admin.get("/db").json()["reason"],
        "Database does not exist."
    );
    assert_eq!(server.admin.get("/_replicate").status, 501);
}

#[test]
fn databases_come_and_go() {
    let server = Server::start();
    let created = server.admin.put("/a%2Fb?q=3", "");
    assert_eq!(
        (created.status, created.text().as_str()),
        (201, "{\"ok\":true}\n")
    );
    assert!(
        created
            .header("location")
            .is_some_and(|to| to.ends_with("/a%2Fb"))
    );
    let again = server.admin.put("/a%2Fb", "");
    assert_eq!(again.status, 412);
    assert_eq!(
        again.text(),
        "{\"error\":\"file_exists\",\"reason\":\"The database could not be created, the file already exists.\"}\n"
    );
    assert_eq!(
        server.admin.get("/_all_dbs").json(),
        json!(["_replicator", "_users", "a/b"])
    );
    assert_eq!(server.admin.get("/a%2Fb/").json()["cluster"]["q"], 3);
    assert_eq!(
        server.admin.get("/a%2Fb/_shards").json()["shards"]
            .as_object()
            .map(serde_json::Map::len),
        Some(3)
    );
    let infos = server
        .admin
        .post("/_dbs_info", "{\"keys\":[\"a/b\",\"no\"]}")
        .json();
    assert_eq!(infos[0]["info"]["db_name"], "a/b");
    assert_eq!(infos[1], json!({"key": "no", "error": "not_found"}));
    assert_eq!(server.admin.delete("/a%2Fb?rev=1-a").status, 400);
    assert_eq!(server.admin.delete("/a%2Fb").status, 200);
    assert_eq!(server.admin.delete("/a%2Fb").status, 404);
    assert_eq!(
        server.admin.put("/A", "").json()["error"],
        "illegal_database_name"
    );
    assert_eq!(
        server.admin.put("/d?q=0", "").json()["reason"],
        "The `q` value should be a positive integer."
    );
    let full = server.admin.post("/_users/_ensure_full_commit", "");
    assert_eq!(
        (full.status, full.json()["instance_start_time"].is_string()),
        (201, true)
    );
    assert_eq!(server.admin.get("/_users/_revs_limit").text(), "1000\n");
    for (body, status) in [("0", 400), ("\"a\"", 400), ("7", 200)] {
        assert_eq!(
            server.admin.put("/_users/_revs_limit", body).status,
            status,
            "{body}"
        );
    }
    assert_eq!(server.admin.get("/_users/_revs_limit").text(), "7\n");
}

#[test]
fn nobody_is_an_admin_by_default() {
    let server = Server::with_db();
    let refused = |reply: crate::client::Reply, status: u16, reason: &str| {
        let error = if status == 401 {
            "unauthorized"
        } else {
            "forbidden"
        };
        assert_eq!(reply.status, status);
        assert_eq!(
            reply.text(),
            format!("{{\"error\":\"{error}\",\"reason\":\"{reason}\"}}\n")
        );
    };
    refused(
        server.anonymous.get("/db"),
        401,
        "You are not authorized to access this db.",
    );
    refused(server.anonymous.put("/x", ""), 401, "You are not a server admin.");
    refused(
        server.anonymous.get("/_all_dbs"),
        401,
        "You are not a server admin.",
    );
    refused(
        server.anonymous.post("/_replicate", "{}"),
        401,
        "You are not an authenticated user",
    );
    let wrong = server.anonymous.with_basic("adm", "no");
    refused(wrong.get("/"), 401, "Name or password is incorrect.");
    refused(
        server.anonymous.with_basic("who", "no").get("/"),
        401,
        "Name or password is incorrect.",
    );
    for header in ["Basic x", "Basic XX=", "Basic !!!"] {
        assert_eq!(
            server
                .anonymous
                .send("GET", "/db", &[("Authorization", header)], None)
                .status,
            400,
            "{header}"
        );
    }
}

#[test]
fn who_logs_in_waits_until_the_admins_are_known_and_others_do_not() {
    let ready = Arc::new(SetOnce::new());
    let server = Server::held_until(&[], Some(Arc::clone(&ready)));
    let late = server.anonymous.with_basic("late", "pass");
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| late.get("/_all_dbs").status);
        let writer = scope.spawn(|| late.put("/db", "").status);
        for _ in 0..20 {
            assert_eq!(server.anonymous.get("/_up").status, 200);
        }
        server.set("admins", "late", "pass");
        ready.set(()).expect("set once");
        assert_eq!(reader.join().expect("no panic"), 200);
        assert_eq!(writer.join().expect("no panic"), 201);
    });
}

#[test]
fn users_are_members_by_the_security_object() {
    let server = Server::with_db();
    let joe = json!({"type": "user", "name": "joe", "roles": ["team"], "password": "secret"});
    assert_eq!(
        server
            .admin
            .put("/_users/org.couchdb.user:joe", &joe.to_string())
            .status,
        201
    );
    let stored = server.admin.get("/_users/org.couchdb.user:joe").json();
    assert_eq!(
        (stored.get("password"), &stored["password_scheme"]),
        (None, &json!("pbkdf2"))
    );
    let joe = server.anonymous.with_basic("joe", "secret");
    let get = joe.get("/db");
    assert_eq!(
        (get.status, &get.json()["reason"]),
        (403, &json!("You are not allowed to access this db."))
    );
    assert_eq!(joe.get("/_users/org.couchdb.user:joe").status, 403);
    assert_eq!(joe.get("/_all_dbs").status, 401);
    let security = json!({"members": {"roles": ["team"]}, "admins": {"names": ["ann"]}});
    assert_eq!(
        server.admin.put("/db/_security", &security.to_string()).status,
        200
    );
    assert_eq!(server.admin.get("/db/_security").json(), security);
    assert_eq!(
        server
            .admin
            .put("/db/_security", "{\"admins\":{\"names\":1}}")
            .status,
        400
    );
    assert_eq!(joe.put("/db/d", "{}").status, 201);
    let ddoc = joe.put("/db/_design/x", "{}");
    assert_eq!(
        (ddoc.status, &ddoc.json()["reason"]),
        (403, &json!("You are not a db or server admin."))
    );
    let bulk = joe
        .post(
            "/db/_bulk_docs",
            "{\"docs\":[{\"_id\":\"_design/x\"},{\"_id\":\"e\"}]}",
        )
        .json();
    assert_eq!(
        (&bulk[0]["error"], &bulk[1]["ok"]),
        (&json!("forbidden"), &json!(true))
    );
    assert_eq!(joe.put("/db/_revs_limit", "5").status, 403);
    assert_eq!(joe.put("/db/_security", "{}").status, 403);
    assert_eq!(joe.post("/db/_compact", "").status, 401);
}

#[test]
fn sessions_begin_and_end_with_a_cookie() {
    let server = Server::start();
    let form: Headers<'_> = &[("Content-Type", "application/x-www-form-urlencoded")];
    let login = server
        .anonymous
        .send("POST", "/_session", form, Some(b"name=adm&password=pass"));
    assert_eq!(
        login.text(),
        "{\"ok\":true,\"name\":\"adm\",\"roles\":[\"_admin\"]}\n"
    );
    let cookie = login
        .header("set-cookie")
        .expect("a cookie")
        .split(';')
        .next()
        .expect("a pair")
        .to_owned();
    let who = server
        .anonymous
        .send("GET", "/_session", &[("Cookie", &cookie)], None)
        .json();
    assert_eq!(who["userCtx"], json!({"name": "adm", "roles": ["_admin"]}));
    assert_eq!(who["info"]["authenticated"], "cookie");
    let nobody = server.anonymous.get("/_session").json();
    assert_eq!(nobody["userCtx"], json!({"name": null, "roles": []}));
    assert_eq!(nobody["info"].get("authenticated"), None);
    let wrong = server
        .anonymous
        .post("/_session", "{\"name\":\"adm\",\"password\":\"x\"}");
    assert_eq!(
        (wrong.status, &wrong.json()["reason"]),
        (401, &json!("Name or password is incorrect."))
    );
    assert!(
        wrong
            .header("set-cookie")
            .is_some_and(|cookie| cookie.starts_with("AuthSession=;"))
    );
    let malformed = server
        .anonymous
        .send("GET", "/_session", &[("Cookie", "AuthSession=%%%")], None);
    assert_eq!(malformed.status, 400);
    let out = server.anonymous.send("DELETE", "/_session", &[], None);
    assert_eq!(out.text(), "{\"ok\":true}\n");
    assert_eq!(
        server.anonymous.get("/_session?basic=true").json()["reason"],
        "Please login."
    );
}

#[test]
fn five_wrong_passwords_lock_an_account() {
    let server = Server::start();
    let wrong = server.anonymous.with_basic("adm", "no");
    for _ in 0..5 {
        assert_eq!(wrong.get("/").status, 401);
    }
    let locked = server.admin.get("/");
    assert_eq!(locked.status, 403);
    assert_eq!(
        locked.json()["reason"],
        "Account is temporarily locked due to multiple authentication failures"
    );
}

#[test]
fn cross_origin_requests_follow_the_settings() {
    let server = Server::with(&[
        ("chttpd", "enable_cors", "true"),
        ("chttpd", "require_valid_user", "true"),
        ("cors", "origins", "app://obsidian.md, http://localhost"),
        ("cors", "credentials", "true"),
    ]);
    let preflight = |headers: &str| {
        let headers: Headers<'_> = &[
            ("Origin", "app://obsidian.md"),
            ("Access-Control-Request-Method", "PUT"),
            ("Access-Control-Request-Headers", headers),
        ];
        server.anonymous.send("OPTIONS", "/no/such", headers, None)
    };
    let granted = preflight("authorization,content-type");
    assert_eq!(granted.status, 204);
    assert_eq!(
        granted.header("access-control-allow-origin"),
        Some("app://obsidian.md")
    );
    assert_eq!(granted.header("access-control-allow-credentials"), Some("true"));
    assert_eq!(
        granted.header("access-control-allow-headers"),
        Some("authorization,content-type")
    );
    let refused = preflight("x-unlisted");
    assert_eq!(
        (refused.status, refused.header("access-control-allow-origin")),
        (204, None)
    );
    let error = server
        .anonymous
        .send("GET", "/", &[("Origin", "http://localhost")], None);
    assert_eq!(
        (error.status, error.header("access-control-allow-origin")),
        (401, Some("http://localhost"))
    );
    assert_eq!(error.header("www-authenticate"), Some("Basic realm=\"server\""));
    assert_eq!(error.json()["reason"], "Authentication required.");
    assert_eq!(server.anonymous.get("/_up").status, 200);
    let other = server
        .admin
        .send("GET", "/", &[("Origin", "http://elsewhere")], None);
    assert_eq!(other.header("access-control-allow-origin"), None);
}

#[test]
fn settings_can_be_read_and_changed() {
    let server = Server::start();
    assert_eq!(
        server
            .admin
            .put("/_node/_local/_config/cors/max_age", "\"7\"")
            .text(),
        "\"\"\n"
    );
    assert_eq!(
        server.admin.get("/_node/_local/_config/cors/max_age").text(),
        "\"7\"\n"
    );
    assert_eq!(
        server.admin.put("/_node/_local/_config/cors/max_age", "7").json()["reason"],
        "a JSON string expected"
    );
    assert_eq!(
        server
            .admin
            .put("/_node/_local/_config/chttpd/port", "\"x\"")
            .status,
        400
    );
    assert_eq!(
        server.admin.get("/_node/_local/_config/no/such").json()["reason"],
        "unknown_config_value"
    );
    let hidden = server.admin.put("/_node/_local/_config/query_servers/x", "\"y\"");
    assert_eq!(hidden.status, 403);
    assert_eq!(
        server
            .admin
            .put("/_node/_local/_config/admins/ann", "\"word\"")
            .status,
        200
    );
    let hash = server.admin.get("/_node/_local/_config/admins/ann").json();
    assert!(
        hash.as_str()
            .is_some_and(|hash| hash.starts_with("-pbkdf2:sha256-")),
        "{hash}"
    );
    assert_eq!(
        server.anonymous.with_basic("ann", "word").get("/_all_dbs").status,
        200
    );
    assert_eq!(
        server.admin.delete("/_node/_local/_config/cors/max_age").text(),
        "\"7\"\n"
    );
    assert_eq!(server.anonymous.get("/_node/_local/_config").status, 401);
}

#[test]
fn bodies_are_bounded_and_may_be_packed() {
    use std::io::Write;
    let server = Server::with(&[("chttpd", "max_http_request_size", "1000")]);
    server.admin.put("/db", "");
    let large = server
        .admin
        .put("/db/d", &format!("{{\"t\":\"{}\"}}", "x".repeat(1000)));
    assert_eq!((large.status, &large.json()["error"]), (413, &json!("too_large")));
    assert_eq!(large.header("connection"), Some("close"));
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(b"{\"v\":1}").expect("memory");
    let packed = encoder.finish().expect("memory");
    let gzip: Headers<'_> = &[("Content-Encoding", "gzip")];
    assert_eq!(server.admin.send("PUT", "/db/d", gzip, Some(&packed)).status, 201);
    assert_eq!(server.admin.get("/db/d").json()["v"], 1);
    let junk = server.admin.send("PUT", "/db/e", gzip, Some(b"junk"));
    assert_eq!(junk.json()["reason"], "Request body is not properly gzipped.");
    let other = server
        .admin
        .send("PUT", "/db/e", &[("Content-Encoding", "br")], Some(b"{}"));
    assert_eq!(other.json()["reason"], "br is not a supported content encoding.");
    let minimal = server
        .admin
        .send("GET", "/db/d", &[("Prefer", "return=minimal")], None);
    assert_eq!(
        (
            minimal.header("x-couch-request-id"),
            minimal.header("etag").is_some()
        ),
        (None, true)
    );
    let id: Headers<'_> = &[("X-Couch-Request-ID", "my-id_1")];
    assert_eq!(
        server
            .admin
            .send("GET", "/db/d", id, None)
            .header("x-couch-request-id"),
        Some("my-id_1")
    );
    let put: Headers<'_> = &[("X-HTTP-Method-Override", "PUT")];
    assert_eq!(server.admin.send("POST", "/db/f", put, Some(b"{}")).status, 201);
}

#[test]
fn users_reach_their_own_documents_only() {
    let server = Server::with(&[("couchdb", "users_db_security_editable", "true")]);
    let user = |name: &str| json!({"type": "user", "name": name, "roles": [], "password": "pw"}).to_string();
    for name in ["joe", "ann"] {
        let path = format!("/_users/org.couchdb.user:{name}");
        assert_eq!(server.admin.put(&path, &user(name)).status, 201);
    }
    // Opened to everybody who is logged in.
    let open = json!({"members": {"roles": []}, "admins": {"roles": ["_admin"]}}).to_string();
    assert_eq!(server.admin.put("/_users/_security", &open).status, 200);
    let joe = server.anonymous.with_basic("joe", "pw");
    let ann = server.admin.get("/_users/org.couchdb.user:ann").json();
    let rev = ann["_rev"].as_str().expect("a revision");
    let asked = json!({"docs": [{"id": "org.couchdb.user:ann"}, {"id": "org.couchdb.user:joe"}]}).to_string();
    let got = joe.post("/_users/_bulk_get", &asked).json();
    assert_eq!(
        got["results"][0]["docs"][0]["error"]["error"],
        json!("not_found"),
        "{got}"
    );
    assert_eq!(got["results"][1]["docs"][0]["ok"]["name"], json!("joe"), "{got}");
    assert_eq!(
        joe.delete(&format!("/_users/org.couchdb.user:ann?rev={rev}"))
            .status,
        403
    );
    let gone = json!({"docs": [{"_id": "org.couchdb.user:ann", "_rev": rev, "_deleted": true}]}).to_string();
    assert_eq!(joe.post("/_users/_bulk_docs", &gone).status, 403);
    let copy: Headers<'_> = &[("Destination", "org.couchdb.user:other")];
    let status = joe
        .send("COPY", "/_users/org.couchdb.user:joe", copy, None)
        .status;
    assert_eq!(status, 403);
    // What serde_json cannot read was stored without being looked at.
    let huge = format!(
        "{{\"type\":\"user\",\"name\":\"joe\",\"roles\":[\"editor\"],\"n\":{}}}",
        "9".repeat(400)
    );
    assert_eq!(joe.put("/_users/org.couchdb.user:joe", &huge).status, 400);
    assert_eq!(server.admin.get("/_users/org.couchdb.user:ann").status, 200);
}

#[test]
fn connect_is_refused_at_once() {
    let server = Server::start();
    assert_eq!(server.anonymous.send("CONNECT", "a:1", &[], None).status, 405);
}
