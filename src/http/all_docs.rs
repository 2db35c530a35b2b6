//! `_all_docs`, `_design_docs`, `_local_docs` and their `/queries`: streamed rows with CouchDB's exact separators.

use bytes::Bytes;
use futures_util::{Stream, stream};
use serde_json::{Map, Value};

use settee_actors::coordinator::{AllDocsArgs, Coordinator, DbError, KeyArg, Namespace, RowStream, Rows};
use settee_engine::ids::DbName;

use super::error::{HttpError, write_json_string};
use super::params::{AllDocsQuery, IdKey, Query};
use super::reply::{self, Handled};
use super::request::{Request, Verb};
use super::router::Segments;

/// Most entries of one `/queries` request.
const QUERIES_MAX: usize = 10_000;

/// Which documents are listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Listing {
    /// `_all_docs`
    All,
    /// `_design_docs`
    Design,
    /// `_local_docs`
    Local,
}

/// Handles `/db/_all_docs`, `/db/_design_docs`, `/db/_local_docs`, and `/queries` below them.
pub async fn handle(request: &Request, db: &DbName, listing: Listing, segments: &Segments<'_>) -> Handled {
    if segments.len() == 3 && segments.bytes(2) == Some(b"queries") {
        return queries(request, db, listing).await;
    }
    if segments.len() > 2 {
        return Err(HttpError::not_found("missing"));
    }
    request.allow("GET,HEAD,POST")?;
    let query = if request.verb == Verb::Post {
        request.require_json()?;
        let body = request.body_object().await?;
        AllDocsQuery::read(&request.query, Some(&body))?
    } else {
        AllDocsQuery::read(&request.query, None)?
    };
    let opened = OpenedRows::open(&request.app.coordinator, db, listing, &query).await?;
    Ok(reply::json_stream(200, opened.into_body(b"\n")))
}

async fn queries(request: &Request, db: &DbName, listing: Listing) -> Handled {
    request.allow("POST")?;
    request.require_json()?;
    let body = request.body_object().await?;
    let wanted = match body.get("queries") {
        Some(Value::Array(wanted)) if wanted.len() <= QUERIES_MAX => wanted,
        Some(Value::Array(_)) => return Err(HttpError::bad_request("too many queries")),
        Some(_) => return Err(HttpError::bad_request("`queries` body member must be an array.")),
        None => {
            return Err(HttpError::bad_request(
                "POST body must include `queries` parameter.",
            ));
        }
    };
    // All are read before the first is run, so that a bad one gets its status.
    let mut parsed = Vec::with_capacity(wanted.len());
    for query in wanted {
        let members: &Map<String, Value> = query
            .as_object()
            .ok_or_else(|| HttpError::bad_request("`queries` must be a list of JSON objects"))?;
        parsed.push(AllDocsQuery::read(&Query::default(), Some(members))?);
    }
    let state = QueriesState {
        coordinator: request.app.coordinator.clone(),
        db: db.clone(),
        listing,
        left: parsed.into_iter(),
        started: false,
        current: None,
    };
    Ok(reply::json_stream(
        200,
        stream::try_unfold(Some(state), QueriesState::step),
    ))
}

struct QueriesState {
    coordinator: Coordinator,
    db: DbName,
    listing: Listing,
    left: std::vec::IntoIter<AllDocsQuery>,
    started: bool,
    current: Option<OpenedRows>,
}

impl QueriesState {
    /// The next piece of a `/queries` reply.
    async fn step(state: Option<Self>) -> Result<Option<(Bytes, Option<Self>)>, HttpError> {
        let Some(mut state) = state else { return Ok(None) };
        if let Some(current) = &mut state.current {
            if let Some(piece) = current.next(b"").await? {
                return Ok(Some((piece, Some(state))));
            }
            state.current = None;
        }
        let Some(query) = state.left.next() else {
            let end: &[u8] = if state.started {
                b"\r\n]}\n"
            } else {
                b"{\"results\":[\r\n\r\n]}\n"
            };
            return Ok(Some((Bytes::from_static(end), None)));
        };
        let separator: &[u8] = if state.started {
            b",\r\n"
        } else {
            b"{\"results\":[\r\n"
        };
        state.started = true;
        state.current = Some(OpenedRows::open(&state.coordinator, &state.db, state.listing, &query).await?);
        Ok(Some((Bytes::from_static(separator), Some(state))))
    }
}

/// What a parsed query means to the coordinator.
///
/// Ids are strings and all other values order below them: such a bound lets everything through on one side and nothing
/// on the other.
pub fn arguments(query: &AllDocsQuery, namespace: Namespace) -> AllDocsArgs {
    let mut args = AllDocsArgs {
        start_key: None,
        end_key: None,
        inclusive_end: query.inclusive_end,
        keys: query.keys.as_ref().map(|keys| {
            keys.iter()
                .map(|key| match key {
                    IdKey::Id(id) => KeyArg::Id(id.clone()),
                    IdKey::Other(value) => KeyArg::Other(value.to_string()),
                })
                .collect()
        }),
        descending: query.descending,
        limit: query.limit,
        skip: query.skip,
        include_docs: query.include_docs,
        conflicts: query.conflicts,
        update_seq: query.update_seq,
        attachments: query.attachments,
        att_encoding_info: query.att_encoding_info,
        namespace,
    };
    match &query.start_key {
        Some(IdKey::Id(id)) => args.start_key = Some(id.clone()),
        Some(IdKey::Other(_)) if query.descending => args.start_key = Some(String::new()),
        Some(IdKey::Other(_)) | None => {}
    }
    match &query.end_key {
        Some(IdKey::Id(id)) => args.end_key = Some(id.clone()),
        Some(IdKey::Other(_)) if !query.descending => {
            args.end_key = Some(String::new());
            args.inclusive_end = false;
        }
        Some(IdKey::Other(_)) | None => {}
    }
    args
}

/// Rows on their way to a client: the opening, runs of rows, the closing.
struct OpenedRows {
    rows: RowStream,
    /// The opening, until it has been sent.
    opening: Option<Vec<u8>>,
    /// The first run, which was fetched before the status line so that an error gets its status.
    first: Option<Rows>,
    any: bool,
    ended: bool,
}

impl OpenedRows {
    async fn open(
        coordinator: &Coordinator,
        db: &DbName,
        listing: Listing,
        query: &AllDocsQuery,
    ) -> Result<Self, HttpError> {
        let mut rows = match listing {
            Listing::All => coordinator.all_docs(db, arguments(query, Namespace::All)).await?,
            Listing::Design => {
                coordinator
                    .all_docs(db, arguments(query, Namespace::Design))
                    .await?
            }
            Listing::Local => {
                coordinator
                    .local_docs(db, arguments(query, Namespace::All))
                    .await?
            }
        };
        let first = rows.next().await.transpose()?;
        let opening = opening(query, rows.update_seq(), rows.total_rows(), rows.offset());
        Ok(Self {
            rows,
            opening: Some(opening),
            first,
            any: false,
            ended: false,
        })
    }

    /// The next piece; `tail` follows the closing.
    async fn next(&mut self, tail: &[u8]) -> Result<Option<Bytes>, HttpError> {
        if self.ended {
            return Ok(None);
        }
        let opening = self.opening.take();
        let run = match (self.first.take(), opening.is_some()) {
            (Some(first), _) => Some(first),
            (None, true) => None,
            (None, false) => self
                .rows
                .next()
                .await
                .transpose()
                .map_err(|error: DbError| HttpError::from(error))?,
        };
        let mut out = opening.unwrap_or_default();
        match run {
            Some(run) if run.is_empty() => {}
            Some(run) => {
                if self.any {
                    out.extend_from_slice(b",\r\n");
                }
                self.any = true;
                if out.is_empty() {
                    return Ok(Some(run.bytes));
                }
                out.extend_from_slice(&run.bytes);
            }
            None => {
                self.ended = true;
                out.extend_from_slice(b"\r\n]}");
                out.extend_from_slice(tail);
            }
        }
        Ok(Some(Bytes::from(out)))
    }

    fn into_body(self, tail: &'static [u8]) -> impl Stream<Item = Result<Bytes, HttpError>> + 'static {
        stream::try_unfold(self, move |mut rows| async move {
            let piece = rows.next(tail).await?;
            Ok(piece.map(|piece| (piece, rows)))
        })
    }
}

/// `{"total_rows":3,"offset":0,"rows":[` and CRLF.
fn opening(
    query: &AllDocsQuery,
    update_seq: Option<&str>,
    total_rows: Option<u64>,
    offset: Option<u64>,
) -> Vec<u8> {
    let mut out = b"{".to_vec();
    if query.update_seq {
        out.extend_from_slice(b"\"update_seq\":");
        match update_seq {
            Some(seq) => write_json_string(&mut out, seq),
            None => out.extend_from_slice(b"null"),
        }
        out.push(b',');
    }
    if query.sorted {
        let show =
            |number: Option<u64>| number.map_or_else(|| "null".to_owned(), |number| number.to_string());
        out.extend_from_slice(
            format!("\"total_rows\":{},\"offset\":{},", show(total_rows), show(offset)).as_bytes(),
        );
    }
    out.extend_from_slice(b"\"rows\":[\r\n");
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query(raw: &str) -> AllDocsQuery {
        AllDocsQuery::read(&Query::parse(raw).expect("good"), None).expect("good")
    }

    #[test]
    fn openings_are_byte_exact() {
        let show = |raw: &str, seq, total, offset| {
            String::from_utf8(opening(&query(raw), seq, total, offset)).expect("UTF-8")
        };
        assert_eq!(
            show("", None, Some(3), Some(0)),
            "{\"total_rows\":3,\"offset\":0,\"rows\":[\r\n"
        );
        assert_eq!(
            show("", None, Some(3), None),
            "{\"total_rows\":3,\"offset\":null,\"rows\":[\r\n"
        );
        assert_eq!(show("sorted=false", None, Some(3), Some(0)), "{\"rows\":[\r\n");
        assert_eq!(
            show("update_seq=true", Some("3-x"), Some(3), Some(0)),
            "{\"update_seq\":\"3-x\",\"total_rows\":3,\"offset\":0,\"rows\":[\r\n"
        );
    }

    #[test]
    fn bounds_that_are_no_strings_order_below_all_ids() {
        let args = |raw: &str| arguments(&query(raw), Namespace::All);
        let all = args("startkey={}");
        assert_eq!((all.start_key, all.end_key), (None, None));
        let none = args("endkey=[1]");
        assert_eq!((none.end_key.as_deref(), none.inclusive_end), (Some(""), false));
        assert_eq!(args("descending=true&startkey=1").start_key.as_deref(), Some(""));
        assert_eq!(args("descending=true&endkey=1").end_key, None);
        let keys = args("keys=[%22a%22,2]").keys.expect("keys");
        assert_eq!(keys, [KeyArg::Id("a".to_owned()), KeyArg::Other("2".to_owned())]);
    }
}
