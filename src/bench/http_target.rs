//! A server at an address, over HTTP/1.1 with one connection that is kept.

#![expect(clippy::disallowed_methods, reason = "a benchmark lives in real time")]

use super::documents::DocBatch;
use super::report::Environment;
use super::target::{Figures, Target, TargetError, WriteOutcome};
use base64::Engine as _;
use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use serde::Deserialize;
use serde_json::Value;
use std::io::Read;
use std::time::Duration;
use ureq::http::Response;
use ureq::{Agent, Body};

/// Bytes read at once from a stream of rows.
const READ_BYTES: usize = 64 << 10;

/// Longest answer that is kept in memory, in bytes: lists of databases, answers to bulk writes.
const ANSWER_BYTES_MAX: u64 = 256 << 20;

/// Longest time for making the connection. Phases themselves may take as long as they take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Keeps a setting from being written to the server's configuration file.
const NOT_PERSISTENT: (&str, &str) = ("X-Couch-Persist", "false");

/// A server at an address. Calls block the thread.
#[derive(Debug)]
pub struct HttpTarget {
    agent: Agent,
    base: String,
    authorization: Option<String>,
    buffer: Vec<u8>,
    /// Settings made for the time of the run.
    settings: Vec<String>,
}

/// One entry of the answer to a bulk write.
#[derive(Deserialize)]
struct BulkEntry {
    #[serde(default)]
    ok: bool,
    #[serde(default)]
    reason: Option<String>,
}

impl HttpTarget {
    /// A server at `http://user:password@host:port`. Nothing is sent yet.
    ///
    /// # Errors
    /// When the address is of another form.
    pub fn new(url: &str) -> Result<Self, TargetError> {
        let unexpected = || {
            TargetError::Unexpected("the address must be of form http://user:password@host:port".to_owned())
        };
        let rest = url.strip_prefix("http://").ok_or_else(unexpected)?;
        let (credentials, host) = match rest.rsplit_once('@') {
            Some((credentials, host)) => (Some(credentials), host),
            None => (None, rest),
        };
        let host = host.trim_end_matches('/');
        if host.is_empty() {
            return Err(unexpected());
        }
        let authorization = match credentials {
            None => None,
            Some(credentials) => {
                let (user, password) = credentials.split_once(':').ok_or_else(unexpected)?;
                let plain: Vec<u8> = percent_decode_str(user)
                    .chain([b':'])
                    .chain(percent_decode_str(password))
                    .collect();
                Some(format!(
                    "Basic {}",
                    base64::engine::general_purpose::STANDARD.encode(plain)
                ))
            }
        };
        // Statuses are looked at here.
        let agent = Agent::config_builder()
            .http_status_as_error(false)
            .timeout_connect(Some(CONNECT_TIMEOUT))
            .build()
            .into();
        Ok(Self {
            agent,
            base: format!("http://{host}"),
            authorization,
            buffer: Vec::new(),
            settings: Vec::new(),
        })
    }

    fn send(
        &self,
        method: &str,
        path: &str,
        body: Option<&[u8]>,
        header: Option<(&str, &str)>,
    ) -> Result<Response<Body>, TargetError> {
        let mut request = ureq::http::Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.base));
        if let Some(authorization) = &self.authorization {
            request = request.header("Authorization", authorization);
        }
        if let Some((name, value)) = header {
            request = request.header(name, value);
        }
        let failed =
            |error: &dyn std::fmt::Display| TargetError::Transport(format!("{method} {path}: {error}"));
        let response = match body {
            Some(body) => {
                let request = request
                    .header("Content-Type", "application/json")
                    .body(body)
                    .map_err(|e| failed(&e))?;
                self.agent.run(request)
            }
            None => self.agent.run(request.body(()).map_err(|e| failed(&e))?),
        };
        let response = response.map_err(|error| failed(&error))?;
        if response.status().is_success() {
            return Ok(response);
        }
        let status = response.status().as_u16();
        let text = response
            .into_body()
            .into_with_config()
            .limit(ANSWER_BYTES_MAX)
            .read_to_string()
            .unwrap_or_default();
        let reason = serde_json::from_str::<Value>(&text)
            .ok()
            .and_then(|answer| answer["reason"].as_str().map(str::to_owned))
            .unwrap_or(text);
        Err(TargetError::Refused {
            what: format!("{method} {path}"),
            status,
            reason,
        })
    }

    fn get_json(&mut self, path: &str) -> Result<Value, TargetError> {
        let response = self.send("GET", path, None, None)?;
        self.read(response)?;
        parse(&self.buffer)
    }

    /// Reads an answer whole, so that the connection can be used again.
    fn read(&mut self, response: Response<Body>) -> Result<(), TargetError> {
        self.buffer.clear();
        let mut reader = response
            .into_body()
            .into_with_config()
            .limit(ANSWER_BYTES_MAX)
            .reader();
        reader
            .read_to_end(&mut self.buffer)
            .map_err(|error| TargetError::Transport(error.to_string()))?;
        Ok(())
    }

    /// Sends a request, reads the answer and says whether it was 202.
    fn write(&mut self, method: &str, path: &str, body: &[u8]) -> Result<WriteOutcome, TargetError> {
        let response = self.send(method, path, Some(body), None)?;
        let accepted = response.status().as_u16() == 202;
        self.read(response)?;
        Ok(if accepted {
            WriteOutcome::Accepted
        } else {
            WriteOutcome::Ok
        })
    }

    /// Counts the rows of a stream without keeping it.
    fn count_rows(&mut self, path: &str) -> Result<u64, TargetError> {
        let response = self.send("GET", path, None, None)?;
        let mut reader = response.into_body().into_reader();
        self.buffer.resize(READ_BYTES, 0);
        let mut counter = RowCounter::default();
        loop {
            match reader.read(&mut self.buffer) {
                Ok(0) => return Ok(counter.rows),
                Ok(count) => counter.count(self.buffer.get(..count).unwrap_or_default()),
                Err(error) => return Err(TargetError::Transport(format!("GET {path}: {error}"))),
            }
        }
    }
}

fn parse<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, TargetError> {
    serde_json::from_slice(bytes)
        .map_err(|error| TargetError::Unexpected(format!("answer is no such json: {error}")))
}

/// Counts rows: lines that begin with a brace, but not the first line, which opens the answer.
#[derive(Debug, Default)]
struct RowCounter {
    rows: u64,
    after_newline: bool,
}

impl RowCounter {
    fn count(&mut self, piece: &[u8]) {
        if self.after_newline && piece.first() == Some(&b'{') {
            self.rows += 1;
        }
        if let Some(last) = piece.last() {
            self.after_newline = *last == b'\n';
        }
        self.rows += piece.windows(2).filter(|pair| *pair == b"\n{").count() as u64;
    }
}

impl Target for HttpTarget {
    async fn environment(&mut self) -> Result<Environment, TargetError> {
        let welcome = self.get_json("/")?;
        let text = |value: &Value| value.as_str().unwrap_or("unknown").to_owned();
        let nodes = self.get_json("/_membership")?;
        let nodes = nodes["all_nodes"]
            .as_array()
            .into_iter()
            .flatten()
            .map(text)
            .collect();
        // Not every server tells what it runs on.
        let versions = self.get_json("/_node/_local/_versions").unwrap_or_default();
        let vm = match versions["erlang"]["version"].as_str() {
            Some(version) => format!("Erlang/OTP {version}"),
            None => text(&welcome["vendor"]["name"]),
        };
        Ok(Environment {
            nodes,
            os: Environment::this_os(),
            version: text(&welcome["version"]),
            git_sha: text(&welcome["git_sha"]),
            vm,
            ..Environment::default()
        })
    }

    async fn all_dbs(&mut self) -> Result<Vec<String>, TargetError> {
        let response = self.send("GET", "/_all_dbs", None, None)?;
        self.read(response)?;
        parse(&self.buffer)
    }

    async fn create_db(&mut self, db: &str, q: Option<u32>, n: Option<u32>) -> Result<(), TargetError> {
        let parameter = |name: &str, value: Option<u32>| value.map(|value| format!("{name}={value}"));
        let parameters: Vec<String> = [parameter("q", q), parameter("n", n)]
            .into_iter()
            .flatten()
            .collect();
        let path = match parameters.is_empty() {
            true => format!("/{db}"),
            false => format!("/{db}?{}", parameters.join("&")),
        };
        self.write("PUT", &path, b"").map(|_| ())
    }

    async fn delete_db(&mut self, db: &str) -> Result<(), TargetError> {
        for setting in std::mem::take(&mut self.settings) {
            let response = self.send("DELETE", &setting, None, Some(NOT_PERSISTENT))?;
            self.read(response)?;
        }
        let response = self.send("DELETE", &format!("/{db}"), None, None)?;
        self.read(response)
    }

    async fn disable_compaction(&mut self, db: &str) -> Result<(), TargetError> {
        let info = self.get_json(&format!("/{db}"))?;
        let created = info["instance_start_time"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        let shards = self.get_json(&format!("/{db}/_shards"))?;
        for (range, nodes) in shards["shards"].as_object().into_iter().flatten() {
            let shard = format!("shards/{range}/{db}.{created}");
            let shard = utf8_percent_encode(&shard, NON_ALPHANUMERIC);
            for node in nodes.as_array().into_iter().flatten().filter_map(Value::as_str) {
                let path = format!("/_node/{node}/_config/smoosh.ignore/{shard}");
                // A server without this setting compacts nothing by itself, or is measured as it is.
                if let Ok(response) = self.send("PUT", &path, Some(b"\"true\""), Some(NOT_PERSISTENT)) {
                    self.read(response)?;
                    self.settings.push(path);
                }
            }
        }
        Ok(())
    }

    async fn figures(&mut self, db: &str) -> Result<Figures, TargetError> {
        let info = self.get_json(&format!("/{db}"))?;
        let number = |value: &Value, name: &str| {
            value
                .as_u64()
                .ok_or_else(|| TargetError::Unexpected(format!("database info has no {name}")))
        };
        Ok(Figures {
            doc_count: number(&info["doc_count"], "doc_count")?,
            q: number(&info["cluster"]["q"], "cluster.q")?,
            n: number(&info["cluster"]["n"], "cluster.n")?,
        })
    }

    async fn backlog(&mut self) -> Result<Option<u64>, TargetError> {
        let members = self.get_json("/_membership")?;
        let nodes: Vec<&str> = members["all_nodes"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        if nodes.len() < 2 {
            return Ok(None);
        }
        let mut most = 0;
        for node in nodes {
            let system = self.get_json(&format!("/_node/{node}/_system"))?;
            most = most.max(system["internal_replication_jobs"].as_u64().unwrap_or(0));
        }
        Ok(Some(most))
    }

    async fn bulk_docs(&mut self, db: &str, batch: &DocBatch) -> Result<WriteOutcome, TargetError> {
        let outcome = self.write("POST", &format!("/{db}/_bulk_docs"), &batch.body)?;
        let entries: Vec<BulkEntry> = parse(&self.buffer)?;
        if let Some(refused) = entries.iter().find(|entry| !entry.ok) {
            let reason = refused.reason.as_deref().unwrap_or("no reason");
            return Err(TargetError::Unexpected(format!(
                "a document was not written: {reason}"
            )));
        }
        if entries.len() != batch.docs.len() {
            let (wanted, found) = (batch.docs.len(), entries.len());
            return Err(TargetError::Unexpected(format!(
                "{found} answers for {wanted} documents"
            )));
        }
        Ok(outcome)
    }

    async fn get(&mut self, db: &str, id: u64) -> Result<u64, TargetError> {
        let response = self.send("GET", &format!("/{db}/{id}"), None, None)?;
        self.read(response)?;
        Ok(self.buffer.len() as u64)
    }

    async fn all_docs(&mut self, db: &str, include_docs: bool) -> Result<u64, TargetError> {
        let parameter = if include_docs { "?include_docs=true" } else { "" };
        self.count_rows(&format!("/{db}/_all_docs{parameter}"))
    }

    async fn changes(&mut self, db: &str) -> Result<u64, TargetError> {
        self.count_rows(&format!("/{db}/_changes"))
    }

    async fn put_one(&mut self, db: &str, id: &str, doc: &[u8]) -> Result<WriteOutcome, TargetError> {
        self.write("PUT", &format!("/{db}/{id}"), doc)
    }

    async fn pause(&mut self, time: Duration) {
        std::thread::sleep(time);
    }
}

#[cfg(test)]
mod tests {
    use super::super::{DocGenerator, DocSize, Options, Output, Progress, fake_server, ready, run};
    use super::*;

    #[test]
    fn addresses() {
        let target = HttpTarget::new("http://ad%40min:p%3Ass@127.0.0.1:5984/").expect("an address");
        assert_eq!(target.base, "http://127.0.0.1:5984");
        // ad@min:p:ss
        assert_eq!(target.authorization.as_deref(), Some("Basic YWRAbWluOnA6c3M="));
        assert_eq!(
            HttpTarget::new("http://localhost:5984")
                .expect("an address")
                .authorization,
            None
        );
        for bad in [
            "",
            "https://a:b@h",
            "localhost:5984",
            "http://",
            "http://user@host",
        ] {
            assert!(HttpTarget::new(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn rows_are_counted_wherever_a_piece_ends() {
        let all_docs = "{\"total_rows\":3,\"offset\":0,\"rows\":[\r\n{\"id\":\"a{\"},\r\n{\"id\":\"b\"},\r\n{\"id\":\"c\"}\r\n]}\n";
        let changes = "{\"results\":[\n{\"seq\":1},\n{\"seq\":2}\n],\n\"last_seq\":2,\"pending\":0}\n";
        let empty = "{\"results\":[\n\n],\n\"last_seq\":2,\"pending\":0}\n";
        for (text, rows) in [(all_docs, 3), (changes, 2), (empty, 0)] {
            for size in 1..text.len() {
                let mut counter = RowCounter::default();
                text.as_bytes()
                    .chunks(size)
                    .for_each(|piece| counter.count(piece));
                assert_eq!(counter.rows, rows, "pieces of {size}");
            }
        }
    }

    #[test]
    fn a_whole_run_over_http() {
        let (address, state) = fake_server::start();
        let mut target = HttpTarget::new(&format!("http://admin:secret@{address}")).expect("an address");
        let options = Options {
            doc_size: DocSize::Small,
            docs: 25,
            batch_size: 10,
            individual_docs: 3,
            ..Options::default()
        };
        let output = Output {
            lines: None,
            progress: Progress::hidden(),
        };
        let outcome = ready(run(&mut target, &options, output)).expect("a run");
        let counts: Vec<u64> = outcome.rows.iter().map(|row| row.count).collect();
        assert_eq!(counts, [25, 25, 25, 25, 25, 3]);
        let environment = &outcome.environment;
        assert_eq!(
            (environment.q, environment.n, environment.version.as_str()),
            (2, 1, "9.9")
        );
        assert_eq!((environment.nodes.len(), environment.vm.as_str()), (1, "fake"));
        let state = state.lock().expect("no panic");
        assert!(state.dbs.is_empty(), "the database is deleted");
        assert_eq!(state.connections, 1, "one connection is kept");
        assert_eq!(state.authorization.as_deref(), Some("Basic YWRtaW46c2VjcmV0"));
        let settings: Vec<&str> = state
            .settings
            .iter()
            .filter_map(|setting| setting.split(' ').next())
            .collect();
        assert_eq!(settings, ["PUT", "DELETE"]);
        assert!(
            state.settings[0]
                .starts_with("PUT smoosh.ignore shards%2F00000000%2Dffffffff%2Ffabricbenchdb%2D")
        );
    }

    #[test]
    fn refusals_are_errors() {
        let (address, _) = fake_server::start();
        let mut target = HttpTarget::new(&format!("http://{address}")).expect("an address");
        let missing = ready(target.get("nodb", 1)).expect_err("no database");
        assert!(
            matches!(&missing, TargetError::Refused { status: 404, .. }),
            "{missing}"
        );
        assert!(
            missing.to_string().ends_with("Database does not exist."),
            "{missing}"
        );
        ready(target.create_db("db", Some(1), Some(1))).expect("created");
        let mut batch = DocBatch::default();
        DocGenerator::new(DocSize::Small, 1).fill([1, 2, 1].into_iter(), &mut batch);
        let conflict = ready(target.bulk_docs("db", &batch)).expect_err("a conflict");
        assert!(
            matches!(&conflict, TargetError::Unexpected(reason) if reason.contains("conflict")),
            "{conflict}"
        );
        let nobody = HttpTarget::new("http://127.0.0.1:1").expect("an address");
        assert!(matches!(
            nobody.send("GET", "/", None, None),
            Err(TargetError::Transport(_))
        ));
    }
}
