//! `_changes`: normal, longpoll, continuous and eventsource feeds, byte for byte as CouchDB frames them.

use std::time::Duration;

use actix_web::http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use bytes::Bytes;
use futures_util::{Stream, stream};
use serde_json::{Map, Value};

use settee_actors::coordinator::{ChangesArgs, ChangesEvent, ChangesStream, ChangesStyle, Feed, Rows, Since};
use settee_engine::ids::DbName;

use super::error::{HttpError, write_json_string};
use super::params::{Integer, Query, integer};
use super::reply::{self, Handled};
use super::request::{Request, Verb};
use super::stats::ChangesClient;
use super::{Stopping, database};

/// Heartbeat of `heartbeat=true`.
const HEARTBEAT_DEFAULT: Duration = Duration::from_secs(60);

/// How rows are framed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Framing {
    /// One JSON object around all rows, for normal and longpoll feeds.
    Results,
    /// A line per row.
    Lines,
    /// Server-sent events.
    Events,
}

/// A parsed request.
#[derive(Debug)]
struct Wanted {
    args: ChangesArgs,
    framing: Framing,
}

/// Handles `/db/_changes`.
pub async fn handle(request: &Request, db: &DbName) -> Handled {
    request.allow("GET,POST,HEAD")?;
    let body = if request.verb == Verb::Post {
        request.require_json()?;
        Some(request.body_object().await?)
    } else {
        None
    };
    let wanted = read(
        &request.query,
        body.as_ref(),
        request.header("last-event-id"),
        Duration::from_millis(request.settings.chttpd.changes_timeout),
    )?;
    let etag = if wanted.args.feed == Feed::Normal {
        let etag = info_etag(request, db).await?;
        if request.etag_matches(&etag) {
            return Ok(reply::not_modified(&etag));
        }
        Some(etag)
    } else {
        None
    };
    let waits = wanted.args.feed != Feed::Normal;
    let mut changes = request.app.coordinator.changes(db, wanted.args).await?;
    // A feed that does not wait is looked into before the status line, so that an early error gets its status.
    let first = if waits {
        None
    } else {
        changes.next().await.transpose()?
    };
    let client = waits.then(|| request.app.counters.changes_client());
    let feed = OpenFeed {
        changes,
        first,
        framing: wanted.framing,
        started: false,
        any: false,
        ended: false,
        stopping: request.app.stopping(),
        _client: client,
    };
    let mut response = reply::json_stream(200, feed.into_body());
    if wanted.framing == Framing::Events {
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    }
    if let Some(etag) = etag {
        reply::set_etag(&mut response, &etag);
    }
    Ok(response)
}

/// The ETag of a normal feed: it changes with everything that the database's info shows.
async fn info_etag(request: &Request, db: &DbName) -> Result<String, HttpError> {
    use md5::{Digest, Md5};
    let info = request.app.coordinator.db_info(db).await?;
    let mut text = Vec::new();
    database::write_db_info(&mut text, &info);
    let digest = Md5::digest(&text);
    let number = digest
        .iter()
        .fold(0u128, |number, byte| number << 8 | u128::from(*byte));
    Ok(format!("\"{number:032X}\""))
}

/// Reads query and body.
fn read(
    query: &Query,
    body: Option<&Map<String, Value>>,
    last_event_id: Option<&str>,
    timeout_default: Duration,
) -> Result<Wanted, HttpError> {
    let (feed, framing) = match query.get("feed").unwrap_or("normal") {
        "normal" => (Feed::Normal, Framing::Results),
        "longpoll" => (Feed::Longpoll, Framing::Results),
        "continuous" | "live" => (Feed::Continuous, Framing::Lines),
        "eventsource" => (Feed::Continuous, Framing::Events),
        _ => {
            return Err(HttpError::bad_request(
                "Supported `feed` types: normal, continuous, live, longpoll, eventsource",
            ));
        }
    };
    let mut args = ChangesArgs {
        feed,
        timeout: timeout_default,
        ..ChangesArgs::default()
    };
    for (name, value) in query.iter() {
        parameter(&mut args, name, value)?;
    }
    if let (Framing::Events, Some(id)) = (framing, last_event_id) {
        args.since = since(id)?;
    }
    if let Some(filter) = query.get("filter") {
        apply_filter(&mut args, filter, query, body)?;
    }
    Ok(Wanted { args, framing })
}

fn parameter(args: &mut ChangesArgs, name: &str, value: &str) -> Result<(), HttpError> {
    match name {
        "since" | "last-event-id" => args.since = since(value)?,
        "limit" => args.limit = count(value, "limit")?,
        "descending" => args.descending = value == "true",
        "include_docs" => args.include_docs = value == "true",
        "conflicts" => args.conflicts = value == "true",
        "attachments" => args.attachments = value == "true",
        "att_encoding_info" => args.att_encoding_info = value == "true",
        "timeout" => args.timeout = Duration::from_millis(count(value, "timeout")?),
        "heartbeat" => args.heartbeat = heartbeat(value)?,
        "style" => {
            args.style = match value {
                "main_only" => ChangesStyle::MainOnly,
                "all_docs" => ChangesStyle::AllDocs,
                _ => {
                    return Err(HttpError::bad_request(
                        "Supported `style` types: main_only, all_docs",
                    ));
                }
            }
        }
        "seq_interval" => {
            args.seq_interval = match integer(value) {
                Some(Integer::Count(interval)) if interval > 0 => interval,
                _ => return Err(HttpError::bad_request("invalid_seq_interval")),
            }
        }
        _ => {}
    }
    Ok(())
}

fn count(value: &str, name: &str) -> Result<u64, HttpError> {
    match integer(value) {
        Some(Integer::Count(count)) => Ok(count),
        Some(Integer::Negative) => Err(HttpError::bad_request(format!(
            "The {name} value should be a non-negative integer"
        ))),
        None => Err(HttpError::bad_request(format!(
            "The {name} parameter should be a non-negative integer"
        ))),
    }
}

fn heartbeat(value: &str) -> Result<Option<Duration>, HttpError> {
    match (value, integer(value)) {
        ("true", _) => Ok(Some(HEARTBEAT_DEFAULT)),
        ("false", _) => Ok(None),
        (_, Some(Integer::Count(millis))) if millis > 0 => Ok(Some(Duration::from_millis(millis))),
        (_, Some(_)) => Err(HttpError::bad_request(
            "The heartbeat value should be a positive integer (in milliseconds).",
        )),
        (_, None) => Err(HttpError::bad_request(
            "Invalid heartbeat value. Expecting a positive integer value (in milliseconds).",
        )),
    }
}

fn since(value: &str) -> Result<Since, HttpError> {
    let quoted = value.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    match quoted.unwrap_or(value) {
        "0" => Ok(Since::Zero),
        "now" => Ok(Since::Now),
        // A number alone is what CouchDB 1 used; no node can say which shard's sequence it is.
        plain if plain.is_empty() || plain.bytes().all(|byte| byte.is_ascii_digit()) => {
            Err(malformed_since())
        }
        packed => Ok(Since::Seq(packed.to_owned())),
    }
}

/// What a `since` that is no sequence gets.
pub fn malformed_since() -> HttpError {
    HttpError::bad_request("Malformed sequence supplied in 'since' parameter.")
}

fn apply_filter(
    args: &mut ChangesArgs,
    filter: &str,
    query: &Query,
    body: Option<&Map<String, Value>>,
) -> Result<(), HttpError> {
    match filter {
        "_doc_ids" => args.doc_ids = Some(doc_ids(query, body)?),
        "_design" => args.filter_design = true,
        "_selector" if body.is_none_or(|body| !body.contains_key("selector")) => {
            return Err(HttpError::bad_request(
                "Selector must be specified in POST payload",
            ));
        }
        "_selector" => {
            return Err(HttpError::not_implemented(
                "the _selector filter is not implemented",
            ));
        }
        "_view" if query.get("view").is_none() => {
            return Err(HttpError::bad_request("`view` filter parameter is not provided."));
        }
        "_view" => return Err(HttpError::not_implemented("the _view filter is not implemented")),
        builtin if builtin.starts_with('_') => {
            return Err(HttpError::bad_request("unknown builtin filter name"));
        }
        named => {
            let parts: Vec<&str> = named.split('/').collect();
            return Err(match parts.as_slice() {
                [ddoc, function] if !ddoc.is_empty() && !function.is_empty() => {
                    HttpError::not_implemented("filter functions are not implemented")
                }
                _ => HttpError::bad_request("`filter` must be of the form `designname/filtername`"),
            });
        }
    }
    Ok(())
}

fn doc_ids(query: &Query, body: Option<&Map<String, Value>>) -> Result<Vec<String>, HttpError> {
    let wrong = || HttpError::bad_request("`doc_ids` filter parameter is not a list of doc ids.");
    let given = match body {
        Some(body) => body.get("doc_ids").cloned(),
        None => match query.get("doc_ids") {
            Some(text) => Some(serde_json::from_str(text).map_err(|_| HttpError::invalid_json())?),
            None => None,
        },
    };
    match given {
        None => Err(HttpError::bad_request("`doc_ids` parameter is not provided.")),
        Some(Value::Array(ids)) => ids
            .into_iter()
            .map(|id| id.as_str().map(str::to_owned).ok_or_else(wrong))
            .collect(),
        Some(_) => Err(wrong()),
    }
}

/// A feed on its way to a client. Dropping it stops the workers.
struct OpenFeed {
    changes: ChangesStream,
    /// The first event, when it was fetched before the status line.
    first: Option<ChangesEvent>,
    framing: Framing,
    started: bool,
    any: bool,
    ended: bool,
    stopping: Stopping,
    _client: Option<ChangesClient>,
}

impl OpenFeed {
    fn into_body(self) -> impl Stream<Item = Result<Bytes, HttpError>> + 'static {
        stream::try_unfold(self, |mut feed| async move {
            let piece = feed.next().await?;
            Ok(piece.map(|piece| (piece, feed)))
        })
    }

    /// The next bytes; `None` at the end.
    async fn next(&mut self) -> Result<Option<Bytes>, HttpError> {
        if self.ended {
            return Ok(None);
        }
        if !self.started {
            self.started = true;
            let mut out = match self.framing {
                Framing::Results => b"{\"results\":[\n".to_vec(),
                Framing::Lines => Vec::new(),
                Framing::Events => b"\n".to_vec(),
            };
            if let Some(event) = self.first.take() {
                self.write(&mut out, event);
            }
            if !out.is_empty() {
                return Ok(Some(Bytes::from(out)));
            }
        }
        loop {
            let event = tokio::select! {
                event = self.changes.next() => event,
                () = self.stopping.wait() => None,
            };
            let Some(event) = event.transpose()? else {
                self.ended = true;
                return match self.framing {
                    // Without its trailer the object is not whole: the client has to see that.
                    Framing::Results => {
                        Err(HttpError::new(503, "service unavailable", "the feed was cut off"))
                    }
                    Framing::Lines | Framing::Events => Ok(None),
                };
            };
            // Rows of a plain feed go out as they are, without a copy.
            if let (Framing::Results, false, ChangesEvent::Rows(rows)) = (self.framing, self.any, &event)
                && !rows.is_empty()
            {
                self.any = true;
                return Ok(Some(rows.bytes.clone()));
            }
            let mut out = Vec::new();
            self.write(&mut out, event);
            if !out.is_empty() {
                return Ok(Some(Bytes::from(out)));
            }
        }
    }

    fn write(&mut self, out: &mut Vec<u8>, event: ChangesEvent) {
        match event {
            ChangesEvent::Rows(rows) => {
                write_rows(out, &rows, self.framing, self.any);
                self.any |= !rows.is_empty();
            }
            ChangesEvent::Heartbeat => out.extend_from_slice(match self.framing {
                Framing::Results | Framing::Lines => b"\n",
                Framing::Events => b"event: heartbeat\ndata: \n\n",
            }),
            ChangesEvent::Waiting => {}
            ChangesEvent::End { last_seq, pending } => {
                self.ended = true;
                write_end(out, self.framing, &last_seq, pending);
            }
        }
    }
}

fn write_rows(out: &mut Vec<u8>, rows: &Rows, framing: Framing, any_before: bool) {
    match framing {
        Framing::Results => {
            if any_before && !rows.is_empty() {
                out.extend_from_slice(b",\r\n");
            }
            out.extend_from_slice(&rows.bytes);
        }
        Framing::Lines => {
            for row in rows.iter() {
                out.extend_from_slice(row);
                out.push(b'\n');
            }
        }
        Framing::Events => {
            for row in rows.iter() {
                out.extend_from_slice(b"data: ");
                out.extend_from_slice(row);
                out.extend_from_slice(b"\nid: ");
                out.extend_from_slice(seq_of(row));
                out.extend_from_slice(b"\n\n");
            }
        }
    }
}

/// The JSON of a row's sequence, which is its first member.
fn seq_of(row: &[u8]) -> &[u8] {
    let rest = row.strip_prefix(b"{\"seq\":").unwrap_or_default();
    if rest.first() == Some(&b'"') {
        let end = rest
            .iter()
            .skip(1)
            .position(|byte| *byte == b'"')
            .map_or(0, |at| at + 2);
        return &rest[..end];
    }
    rest.split(|byte| *byte == b',').next().unwrap_or_default()
}

fn write_end(out: &mut Vec<u8>, framing: Framing, last_seq: &str, pending: u64) {
    match framing {
        Framing::Results => out.extend_from_slice(b"\n],\n\"last_seq\":"),
        Framing::Lines => out.extend_from_slice(b"{\"last_seq\":"),
        Framing::Events => return,
    }
    write_json_string(out, last_seq);
    out.extend_from_slice(format!(",\"pending\":{pending}}}\n").as_bytes());
    if framing == Framing::Results {
        out.push(b'\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(raw: &str, body: Option<Value>) -> Result<Wanted, HttpError> {
        let query = Query::parse(raw)?;
        read(
            &query,
            body.as_ref().and_then(Value::as_object),
            None,
            Duration::from_secs(60),
        )
    }

    fn reason(raw: &str) -> String {
        let error = parse(raw, None).expect_err("a bad request");
        assert_eq!(error.status, 400, "{raw}");
        error.reason.unwrap_or_default().into_owned()
    }

    #[test]
    fn parameters_are_read() {
        let wanted = parse(
            "feed=live&since=%225-abc%22&limit=0&style=all_docs&heartbeat=true&x=y",
            None,
        )
        .expect("good");
        assert_eq!(wanted.framing, Framing::Lines);
        assert_eq!(wanted.args.feed, Feed::Continuous);
        assert_eq!(wanted.args.since, Since::Seq("5-abc".to_owned()));
        assert_eq!(wanted.args.limit, 0);
        assert_eq!(wanted.args.style, ChangesStyle::AllDocs);
        assert_eq!(wanted.args.heartbeat, Some(HEARTBEAT_DEFAULT));
    }

    #[test]
    fn bad_parameters_have_couchdbs_sentences() {
        assert_eq!(
            reason("feed=x"),
            "Supported `feed` types: normal, continuous, live, longpoll, eventsource"
        );
        assert_eq!(
            reason("since=5"),
            "Malformed sequence supplied in 'since' parameter."
        );
        assert_eq!(
            reason("limit=-1"),
            "The limit value should be a non-negative integer"
        );
        assert_eq!(
            reason("limit=x"),
            "The limit parameter should be a non-negative integer"
        );
        assert_eq!(
            reason("heartbeat=0"),
            "The heartbeat value should be a positive integer (in milliseconds)."
        );
        assert_eq!(reason("seq_interval=0"), "invalid_seq_interval");
        assert_eq!(
            reason("style=foo"),
            "Supported `style` types: main_only, all_docs"
        );
        assert_eq!(
            reason("filter=foo"),
            "`filter` must be of the form `designname/filtername`"
        );
        assert_eq!(reason("filter=_view"), "`view` filter parameter is not provided.");
        assert_eq!(
            reason("filter=_selector"),
            "Selector must be specified in POST payload"
        );
    }

    #[test]
    fn doc_ids_count_only_with_their_filter() {
        let body = serde_json::json!({"doc_ids": ["a", "b"]});
        assert_eq!(parse("", Some(body.clone())).expect("good").args.doc_ids, None);
        let wanted = parse("filter=_doc_ids", Some(body)).expect("good");
        assert_eq!(wanted.args.doc_ids, Some(vec!["a".to_owned(), "b".to_owned()]));
        let wanted = parse("filter=_doc_ids&doc_ids=[%22c%22]", None).expect("good");
        assert_eq!(wanted.args.doc_ids, Some(vec!["c".to_owned()]));
        assert_eq!(
            parse("filter=_doc_ids&doc_ids=[1]", None)
                .expect_err("numbers")
                .status,
            400
        );
    }

    fn rows(texts: &[&str]) -> Rows {
        Rows {
            bytes: Bytes::from(texts.join(",\r\n")),
            count: texts.len(),
        }
    }

    fn framed(framing: Framing) -> String {
        let mut out = Vec::new();
        write_rows(
            &mut out,
            &rows(&["{\"seq\":\"1-a\",\"id\":\"x\"}", "{\"seq\":null,\"id\":\"y\"}"]),
            framing,
            false,
        );
        write_rows(
            &mut out,
            &rows(&["{\"seq\":\"3-c\",\"id\":\"z\"}"]),
            framing,
            true,
        );
        write_end(&mut out, framing, "3-c", 7);
        String::from_utf8(out).expect("UTF-8")
    }

    #[test]
    fn frames_are_byte_exact() {
        assert_eq!(
            framed(Framing::Results),
            "{\"seq\":\"1-a\",\"id\":\"x\"},\r\n{\"seq\":null,\"id\":\"y\"},\r\n{\"seq\":\"3-c\",\"id\":\"z\"}\n],\n\
             \"last_seq\":\"3-c\",\"pending\":7}\n\n"
        );
        assert_eq!(
            framed(Framing::Lines),
            "{\"seq\":\"1-a\",\"id\":\"x\"}\n{\"seq\":null,\"id\":\"y\"}\n{\"seq\":\"3-c\",\"id\":\"z\"}\n\
             {\"last_seq\":\"3-c\",\"pending\":7}\n"
        );
        assert_eq!(
            framed(Framing::Events),
            "data: {\"seq\":\"1-a\",\"id\":\"x\"}\nid: \"1-a\"\n\ndata: {\"seq\":null,\"id\":\"y\"}\nid: null\n\n\
             data: {\"seq\":\"3-c\",\"id\":\"z\"}\nid: \"3-c\"\n\n"
        );
    }
}
