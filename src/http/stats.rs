//! `_node/{name}/_stats` and `_system`: counters under CouchDB's names.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use serde_json::{Map, Value, json};

use super::error::HttpError;
use super::outside;
use super::reply::{self, Handled};
use super::request::{Request, Verb};
use super::router::Segments;

/// Status codes that are counted, with the description of each counter.
const STATUS_CODES: &[(u16, &str)] = &[
    (200, "number of HTTP 200 OK responses"),
    (201, "number of HTTP 201 Created responses"),
    (202, "number of HTTP 202 Accepted responses"),
    (204, "number of HTTP 204 No Content responses"),
    (206, "number of HTTP 206 Partial Content"),
    (301, "number of HTTP 301 Moved Permanently responses"),
    (302, "number of HTTP 302 Found responses"),
    (304, "number of HTTP 304 Not Modified responses"),
    (400, "number of HTTP 400 Bad Request responses"),
    (401, "number of HTTP 401 Unauthorized responses"),
    (403, "number of HTTP 403 Forbidden responses"),
    (404, "number of HTTP 404 Not Found responses"),
    (405, "number of HTTP 405 Method Not Allowed responses"),
    (406, "number of HTTP 406 Not Acceptable responses"),
    (409, "number of HTTP 409 Conflict responses"),
    (412, "number of HTTP 412 Precondition Failed responses"),
    (413, "number of HTTP 413 Request Entity Too Long responses"),
    (414, "number of HTTP 414 Request URI Too Long responses"),
    (415, "number of HTTP 415 Unsupported Media Type responses"),
    (
        416,
        "number of HTTP 416 Requested Range Not Satisfiable responses",
    ),
    (417, "number of HTTP 417 Expectation Failed responses"),
    (500, "number of HTTP 500 Internal Server Error responses"),
    (501, "number of HTTP 501 Not Implemented responses"),
    (503, "number of HTTP 503 Service unavailable responses"),
];

/// Methods that are counted, in the order of their slots.
const METHODS: &[&str] = &["COPY", "DELETE", "GET", "HEAD", "OPTIONS", "POST", "PUT"];

/// What the HTTP layer counts.
#[derive(Debug)]
pub struct HttpCounters {
    started: Instant,
    requests: AtomicU64,
    bulk_requests: AtomicU64,
    changes_clients: AtomicU64,
    methods: [AtomicU64; METHODS.len()],
    statuses: [AtomicU64; STATUS_CODES.len()],
    /// Milliseconds of the slowest request so far.
    slowest_ms: AtomicU64,
}

impl Default for HttpCounters {
    fn default() -> Self {
        Self {
            started: outside::now(),
            requests: AtomicU64::new(0),
            bulk_requests: AtomicU64::new(0),
            changes_clients: AtomicU64::new(0),
            methods: Default::default(),
            statuses: Default::default(),
            slowest_ms: AtomicU64::new(0),
        }
    }
}

fn add(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

impl HttpCounters {
    /// Counts one finished request.
    pub fn request(&self, verb: Verb, status: u16, millis: u64) {
        add(&self.requests);
        let name = match verb {
            Verb::Copy => "COPY",
            Verb::Delete => "DELETE",
            Verb::Get => "GET",
            Verb::Head => "HEAD",
            Verb::Options => "OPTIONS",
            Verb::Post => "POST",
            Verb::Put => "PUT",
            Verb::Other => "",
        };
        if let Some(counter) = METHODS
            .iter()
            .position(|method| *method == name)
            .and_then(|at| self.methods.get(at))
        {
            add(counter);
        }
        let at = STATUS_CODES.iter().position(|(code, _)| *code == status);
        if let Some(counter) = at.and_then(|at| self.statuses.get(at)) {
            add(counter);
        }
        self.slowest_ms.fetch_max(millis, Ordering::Relaxed);
    }

    /// Counts one `_bulk_docs` request.
    pub fn bulk(&self) {
        add(&self.bulk_requests);
    }

    /// Counts a client of a waiting changes feed until the answer is dropped.
    pub fn changes_client(self: &std::sync::Arc<Self>) -> ChangesClient {
        add(&self.changes_clients);
        ChangesClient(self.clone())
    }

    fn write(&self, tree: &mut Map<String, Value>) {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        put(
            tree,
            &["couchdb", "httpd", "requests"],
            "counter",
            read(&self.requests),
            "number of HTTP requests",
        );
        let bulk = read(&self.bulk_requests);
        put(
            tree,
            &["couchdb", "httpd", "bulk_requests"],
            "counter",
            bulk,
            "number of bulk requests",
        );
        let clients = read(&self.changes_clients);
        let text = "number of clients for continuous _changes";
        put(
            tree,
            &["couchdb", "httpd", "clients_requesting_changes"],
            "counter",
            clients,
            text,
        );
        for (method, counter) in METHODS.iter().zip(&self.methods) {
            let text = format!("number of HTTP {method} requests");
            put(
                tree,
                &["couchdb", "httpd_request_methods", method],
                "counter",
                read(counter),
                &text,
            );
        }
        for ((code, text), counter) in STATUS_CODES.iter().zip(&self.statuses) {
            put(
                tree,
                &["couchdb", "httpd_status_codes", &code.to_string()],
                "counter",
                read(counter),
                text,
            );
        }
        let slowest = read(&self.slowest_ms);
        put(
            tree,
            &["settee", "slowest_request"],
            "gauge",
            slowest,
            "milliseconds of the slowest HTTP request",
        );
    }
}

/// One client of a waiting changes feed.
#[derive(Debug)]
pub struct ChangesClient(std::sync::Arc<HttpCounters>);

impl Drop for ChangesClient {
    fn drop(&mut self) {
        self.0.changes_clients.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Puts one number into the tree of names.
fn put(tree: &mut Map<String, Value>, path: &[&str], kind: &str, value: u64, description: &str) {
    let Some((last, parents)) = path.split_last() else {
        return;
    };
    let mut at = tree;
    for name in parents {
        let next = at
            .entry((*name).to_owned())
            .or_insert_with(|| Value::Object(Map::new()));
        match next {
            Value::Object(members) => at = members,
            _ => return,
        }
    }
    at.insert(
        (*last).to_owned(),
        json!({"value": value, "type": kind, "desc": description}),
    );
}

/// Handles `_node/{name}/_stats` and the paths below it.
pub fn stats(request: &Request, segments: &Segments<'_>) -> Handled {
    request.allow("GET,HEAD")?;
    let mut tree = Map::new();
    for stat in request.app.coordinator.stats() {
        put(&mut tree, stat.path, stat.kind, stat.value, stat.description);
    }
    let cache = request.app.coordinator.cache().info();
    let path = |name| ["couchdb", "bt_engine_cache", name];
    put(
        &mut tree,
        &path("hits"),
        "counter",
        cache.hits,
        "number of bt_engine cache hits",
    );
    put(
        &mut tree,
        &path("misses"),
        "counter",
        cache.misses,
        "number of bt_engine cache misses",
    );
    put(
        &mut tree,
        &path("full"),
        "counter",
        cache.full,
        "number of times bt_engine cache was full",
    );
    request.app.counters.write(&mut tree);
    let mut value = &Value::Object(tree);
    for index in 3..segments.len() {
        let name = segments
            .text(index)
            .ok_or_else(|| HttpError::not_found("missing"))?;
        value = value.get(name).unwrap_or(&Value::Null);
    }
    Ok(reply::json_value(200, value))
}

/// Handles `_node/{name}/_system`.
pub fn system(request: &Request) -> Handled {
    request.allow("GET,HEAD")?;
    let cache = request.app.coordinator.cache().info();
    Ok(reply::json_value(
        200,
        &json!({
            "uptime": request.app.counters.started.elapsed().as_secs(),
            "memory": {"bt_engine_cache": cache.memory},
            "bt_engine_cache": {
                "memory": cache.memory,
                "max_memory": cache.max_memory,
                "size": cache.size,
                "full": cache.full,
                "hits": cache.hits,
                "misses": cache.misses,
                "shard_count": cache.shard_count,
            },
        }),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_make_a_tree_of_names() {
        let counters = std::sync::Arc::new(HttpCounters::default());
        counters.request(Verb::Get, 200, 3);
        counters.request(Verb::Get, 404, 1);
        let client = counters.changes_client();
        let mut tree = Map::new();
        counters.write(&mut tree);
        let tree = Value::Object(tree);
        assert_eq!(tree["couchdb"]["httpd"]["requests"]["value"], 2);
        assert_eq!(tree["couchdb"]["httpd_request_methods"]["GET"]["value"], 2);
        assert_eq!(tree["couchdb"]["httpd_status_codes"]["404"]["value"], 1);
        assert_eq!(tree["couchdb"]["httpd"]["clients_requesting_changes"]["value"], 1);
        drop(client);
        assert_eq!(counters.changes_clients.load(Ordering::Relaxed), 0);
    }
}
