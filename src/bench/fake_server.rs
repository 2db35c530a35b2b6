//! As much of a CouchDB as the benchmark talks to, for tests: one connection after the other, documents in memory.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// Databases, their documents, and what was asked for besides.
#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) dbs: BTreeMap<String, BTreeMap<String, serde_json::Value>>,
    pub(super) settings: Vec<String>,
    pub(super) connections: usize,
    pub(super) authorization: Option<String>,
}

/// Starts a server and returns its host and port and what it holds. It ends with the test's process.
pub(super) fn start() -> (String, Arc<Mutex<State>>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("an address").to_string();
    let state = Arc::new(Mutex::new(State::default()));
    let shared = Arc::clone(&state);
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            shared.lock().expect("no panic").connections += 1;
            let shared = Arc::clone(&shared);
            std::thread::spawn(move || serve(stream, &shared));
        }
    });
    (address, state)
}

fn serve(stream: TcpStream, state: &Mutex<State>) {
    let mut reader = BufReader::new(stream.try_clone().expect("a second handle"));
    let mut stream = stream;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).unwrap_or(0) == 0 {
            return;
        }
        let mut words = line.split_whitespace();
        let (method, path) = (
            words.next().expect("a method").to_owned(),
            words.next().expect("a path").to_owned(),
        );
        let mut length = 0;
        loop {
            let mut header = String::new();
            reader.read_line(&mut header).expect("a header");
            let Some((name, value)) = header.trim_end().split_once(": ") else {
                break;
            };
            match name.to_ascii_lowercase().as_str() {
                "content-length" => length = value.parse().expect("a length"),
                "authorization" => state.lock().expect("no panic").authorization = Some(value.to_owned()),
                _ => {}
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).expect("a body");
        let (status, answer) = answer(&mut state.lock().expect("no panic"), &method, &path, &body);
        // In one piece, so that no acknowledgement is waited for.
        let whole = format!(
            "HTTP/1.1 {status} X\r\nContent-Length: {}\r\nContent-Type: application/json\r\n\r\n{answer}",
            answer.len()
        );
        if stream.write_all(whole.as_bytes()).is_err() {
            return;
        }
    }
}

fn answer(state: &mut State, method: &str, path: &str, body: &[u8]) -> (u16, String) {
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    let parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
    let ok = || "{\"ok\":true}\n".to_owned();
    match (method, parts.as_slice()) {
        ("GET", [""]) => (
            200,
            r#"{"couchdb":"Welcome","version":"9.9","git_sha":"abc","vendor":{"name":"fake"}}"#.to_owned(),
        ),
        ("GET", ["_all_dbs"]) => {
            let names: Vec<&String> = state.dbs.keys().collect();
            (200, serde_json::to_string(&names).expect("json"))
        }
        ("GET", ["_membership"]) => (200, r#"{"all_nodes":["n@h"],"cluster_nodes":["n@h"]}"#.to_owned()),
        ("PUT" | "DELETE", ["_node", "n@h", "_config", section, key]) => {
            state.settings.push(format!("{method} {section} {key}"));
            (200, "\"\"".to_owned())
        }
        (_, ["_node", ..]) => (404, r#"{"error":"not_found","reason":"missing"}"#.to_owned()),
        ("PUT", [db]) => {
            state.dbs.insert((*db).to_owned(), BTreeMap::new());
            (201, ok())
        }
        ("DELETE", [db]) => {
            state.dbs.remove(*db);
            (200, ok())
        }
        (_, [db, rest @ ..]) => match state.dbs.get_mut(*db) {
            Some(docs) => of_db(docs, method, rest, query, body),
            None => (
                404,
                r#"{"error":"not_found","reason":"Database does not exist."}"#.to_owned(),
            ),
        },
        _ => (405, "{}".to_owned()),
    }
}

fn of_db(
    docs: &mut BTreeMap<String, serde_json::Value>,
    method: &str,
    path: &[&str],
    query: &str,
    body: &[u8],
) -> (u16, String) {
    let parsed = || serde_json::from_slice::<serde_json::Value>(body).expect("json");
    match (method, path) {
        ("GET", []) => {
            let count = docs.len();
            (
                200,
                format!(r#"{{"doc_count":{count},"instance_start_time":"17","cluster":{{"q":2,"n":1}}}}"#),
            )
        }
        ("GET", ["_shards"]) => (200, r#"{"shards":{"00000000-ffffffff":["n@h"]}}"#.to_owned()),
        ("POST", ["_bulk_docs"]) => {
            let mut answers = Vec::new();
            for doc in parsed()["docs"].as_array().expect("a list") {
                let id = doc["_id"].as_str().expect("an id").to_owned();
                // The second document of an id is in conflict.
                answers.push(match docs.contains_key(&id) {
                    true => serde_json::json!({"id": id, "error": "conflict", "reason": "Document update conflict."}),
                    false => serde_json::json!({"ok": true, "id": id, "rev": "1-a"}),
                });
                docs.insert(id, doc.clone());
            }
            (201, serde_json::to_string(&answers).expect("json"))
        }
        ("GET", ["_all_docs"]) => {
            let with_docs = query == "include_docs=true";
            let row = |(id, doc): (&String, &serde_json::Value)| match with_docs {
                true => format!("{{\"id\":\"{id}\",\"key\":\"{id}\",\"value\":{{}},\"doc\":{doc}}}"),
                false => format!("{{\"id\":\"{id}\",\"key\":\"{id}\",\"value\":{{}}}}"),
            };
            let rows: Vec<String> = docs.iter().map(row).collect();
            (
                200,
                format!(
                    "{{\"total_rows\":{},\"offset\":0,\"rows\":[\r\n{}\r\n]}}\n",
                    rows.len(),
                    rows.join(",\r\n")
                ),
            )
        }
        ("GET", ["_changes"]) => {
            let rows: Vec<String> = docs
                .keys()
                .map(|id| format!("{{\"seq\":\"1-g\",\"id\":\"{id}\"}}"))
                .collect();
            (
                200,
                format!(
                    "{{\"results\":[\n{}\n],\n\"last_seq\":\"1-g\",\"pending\":0}}\n",
                    rows.join(",\n")
                ),
            )
        }
        ("GET", [id]) => match docs.get(*id) {
            Some(doc) => (200, doc.to_string()),
            None => (404, r#"{"error":"not_found","reason":"missing"}"#.to_owned()),
        },
        ("PUT", [id]) => {
            assert_eq!(parsed()["_id"], *id);
            docs.insert((*id).to_owned(), parsed());
            (201, "{\"ok\":true}".to_owned())
        }
        _ => (405, "{}".to_owned()),
    }
}
