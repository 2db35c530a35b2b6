//! `_bulk_get`: many documents or revisions in one request, as JSON or as multipart.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::{Stream, StreamExt, stream};
use serde_json::Value;
use settee_actors::coordinator::{DbError, Missing, OpenRevs, OpenedDoc};
use settee_engine::ids::{DbName, DocId, Rev};

use super::body::{self, Shape, Wanted};
use super::doc_reply::{self, Piece, read_pieces, with_attachments};
use super::document::rev_text;
use super::error::{HttpError, write_json_string};
use super::multipart::fresh_boundary;
use super::reply::{self, Handled};
use super::request::Request;
use super::users;

/// Query parameters that make no sense for many documents.
const UNACCEPTABLE: &[&str] = &["rev", "open_revs", "new_edits", "w", "atts_since"];
/// Documents that are read at once.
const BATCH: usize = 64;

/// One entry of the request.
struct Entry {
    /// The id as given; `None` for one that has none.
    id: Option<String>,
    what: Result<(DocId, OpenRevs, Wanted), Problem>,
}

/// Why an entry has no document.
struct Problem {
    rev: Option<String>,
    error: &'static str,
    reason: String,
}

/// One entry of the reply.
struct Answer {
    id: Option<String>,
    wanted: Wanted,
    docs: Result<Vec<Result<OpenedDoc, Rev>>, Problem>,
}

/// Handles `/db/_bulk_get`.
pub async fn handle(request: &Request, db: &DbName) -> Handled {
    request.allow("POST")?;
    request.require_json()?;
    request.app.counters.bulk();
    let body = request.body_object().await?;
    let docs = body
        .get("docs")
        .ok_or_else(|| HttpError::bad_request("Missing JSON list of 'docs'."))?;
    let docs = docs
        .as_array()
        .ok_or_else(|| HttpError::bad_request("`docs` parameter must be an array."))?;
    if let Some(name) = UNACCEPTABLE.iter().find(|name| request.query.get(name).is_some()) {
        return Err(HttpError::bad_request(format!(
            "\"{name}\" query parameter is not acceptable"
        )));
    }
    let default = if request.query.is_true("attachments") {
        Wanted::All
    } else {
        Wanted::Stubs
    };
    let mut entries: Vec<Entry> = docs.iter().map(|entry| parse(entry, &default)).collect();
    for entry in &mut entries {
        if let Ok((id, ..)) = &entry.what
            && users::check_read(request, db, id).is_err()
        {
            entry.what = Err(Problem {
                rev: None,
                error: "not_found",
                reason: "missing".to_owned(),
            });
        }
    }
    let multipart = !request.accepts("application/json") && request.accepts("multipart/");
    if multipart {
        self::multipart(request, db, entries).await
    } else {
        json(request, db, entries).await
    }
}

fn parse(entry: &Value, default: &Wanted) -> Entry {
    let problem = |id: Option<String>, rev: Option<String>, error, reason: &str| Entry {
        id,
        what: Err(Problem {
            rev,
            error,
            reason: reason.to_owned(),
        }),
    };
    let Some(members) = entry.as_object().filter(|members| !members.is_empty()) else {
        return problem(None, None, "bad_request", "document must be a JSON object");
    };
    let Some(id) = members.get("id") else {
        return problem(None, None, "bad_request", "document id missed");
    };
    let Some(id) = id.as_str() else {
        return problem(None, None, "illegal_docid", "Document id must be a string");
    };
    let doc_id = match DocId::new(id) {
        Ok(doc_id) => doc_id,
        Err(error) => {
            let error = HttpError::from(error);
            let reason = error.reason.unwrap_or_default();
            return problem(Some(id.to_owned()), None, "illegal_docid", &reason);
        }
    };
    let bad_rev = |rev: &Value| {
        let text = rev.as_str().map_or_else(|| rev.to_string(), str::to_owned);
        problem(
            Some(id.to_owned()),
            Some(text),
            "bad_request",
            "Invalid rev format",
        )
    };
    let which = match members.get("rev") {
        None => OpenRevs::All,
        Some(rev) => match rev.as_str().map(|text| Rev::parse_bytes(text.as_bytes())) {
            Some(Ok(rev)) => OpenRevs::List(vec![rev]),
            _ => return bad_rev(rev),
        },
    };
    let wanted = match members.get("atts_since") {
        None => default.clone(),
        Some(Value::Array(revs)) if revs.is_empty() => default.clone(),
        Some(since) => match doc_reply::revs_of(since) {
            Ok(revs) => Wanted::Since(revs),
            Err(error) => {
                let reason = error.reason.unwrap_or_default();
                return problem(
                    Some(id.to_owned()),
                    Some(since.to_string()),
                    "bad_request",
                    &reason,
                );
            }
        },
    };
    Entry {
        id: Some(id.to_owned()),
        what: Ok((doc_id, which, wanted)),
    }
}

/// Reads the documents of some entries.
async fn answer(
    app: &super::App,
    db: &DbName,
    entries: Vec<Entry>,
    latest: bool,
) -> Result<Vec<Answer>, HttpError> {
    let requests: Vec<(DocId, OpenRevs)> = entries
        .iter()
        .filter_map(|entry| {
            entry
                .what
                .as_ref()
                .ok()
                .map(|(id, which, _)| (id.clone(), which.clone()))
        })
        .collect();
    let mut found = app.coordinator.bulk_get(db, requests, latest).await?.into_iter();
    let mut answers = Vec::with_capacity(entries.len());
    for entry in entries {
        let (docs, wanted) = match entry.what {
            Err(problem) => (Err(problem), Wanted::Stubs),
            Ok((_, which, wanted)) => {
                let result = found
                    .next()
                    .ok_or_else(|| HttpError::internal("an answer is missing"))?;
                (documents(result, &which), wanted)
            }
        };
        answers.push(Answer {
            id: entry.id,
            wanted,
            docs,
        });
    }
    Ok(answers)
}

fn documents(
    result: Result<Vec<Result<OpenedDoc, Rev>>, DbError>,
    which: &OpenRevs,
) -> Result<Vec<Result<OpenedDoc, Rev>>, Problem> {
    let asked = match which {
        OpenRevs::All => "undefined".to_owned(),
        OpenRevs::List(revs) => revs.first().map(rev_text).unwrap_or_default(),
    };
    let missing = || Problem {
        rev: Some(asked.clone()),
        error: "not_found",
        reason: "missing".to_owned(),
    };
    match result {
        Ok(docs) if docs.is_empty() => Err(missing()),
        Ok(docs) => Ok(docs),
        Err(DbError::NotFound(Missing::Missing | Missing::Deleted)) => Err(missing()),
        Err(error) => {
            let error = HttpError::from(error);
            let reason = error.reason.unwrap_or_default().into_owned();
            Err(Problem {
                rev: Some(asked),
                error: "internal_server_error",
                reason,
            })
        }
    }
}

/// Everything that a reply is made with.
#[derive(Clone)]
struct Job {
    app: Arc<super::App>,
    db: DbName,
    shape: Shape,
    latest: bool,
}

impl Job {
    fn of(request: &Request, db: &DbName) -> Self {
        Self {
            app: request.app.clone(),
            db: db.clone(),
            shape: Shape::of(request),
            latest: request.query.is_true("latest"),
        }
    }
}

/// Answers batch by batch, as the client takes them. The first batch is read before the status line.
async fn batches(
    job: Job,
    entries: Vec<Entry>,
) -> Result<impl Stream<Item = Result<Vec<Answer>, HttpError>> + 'static, HttpError> {
    let mut entries = entries.into_iter();
    let first: Vec<Entry> = entries.by_ref().take(BATCH).collect();
    let first = answer(&job.app, &job.db, first, job.latest).await?;
    let rest = stream::try_unfold((job, entries), |(job, mut entries)| async move {
        let batch: Vec<Entry> = entries.by_ref().take(BATCH).collect();
        if batch.is_empty() {
            return Ok(None);
        }
        let answers = answer(&job.app, &job.db, batch, job.latest).await?;
        Ok(Some((answers, (job, entries))))
    });
    Ok(stream::iter([Ok(first)]).chain(rest))
}

async fn json(request: &Request, db: &DbName, entries: Vec<Entry>) -> Handled {
    let job = Job::of(request, db);
    let batches = batches(job.clone(), entries).await?;
    let mut first = true;
    let rows = batches.then(move |answers| {
        let job = job.clone();
        let opening = std::mem::take(&mut first);
        async move {
            let mut out = Vec::new();
            for (index, answer) in answers?.into_iter().enumerate() {
                if index > 0 || !opening {
                    out.push(b',');
                }
                write_json(&job, answer, &mut out).await?;
            }
            Ok(Bytes::from(out))
        }
    });
    let opening = stream::iter([Ok(Bytes::from_static(b"{\"results\":["))]);
    let closing = stream::iter([Ok(Bytes::from_static(b"]}\n"))]);
    Ok(reply::json_stream(200, opening.chain(rows).chain(closing)))
}

async fn write_json(job: &Job, answer: Answer, out: &mut Vec<u8>) -> Result<(), HttpError> {
    out.extend_from_slice(b"{\"id\":");
    write_id(out, answer.id.as_deref());
    out.extend_from_slice(b",\"docs\":[");
    match answer.docs {
        Err(problem) => {
            out.extend_from_slice(b"{\"error\":");
            write_problem(out, answer.id.as_deref(), &problem);
            out.push(b'}');
        }
        Ok(docs) => {
            for (index, doc) in docs.into_iter().enumerate() {
                if index > 0 {
                    out.push(b',');
                }
                match doc {
                    Ok(opened) => {
                        out.extend_from_slice(b"{\"ok\":");
                        let chosen = answer.wanted.choose(&opened.doc);
                        let inline = body::inline_of(&job.app, &job.db, &opened, &chosen).await?;
                        body::write_inline(&opened, job.shape, &inline, out)?;
                    }
                    Err(rev) => {
                        out.extend_from_slice(b"{\"error\":");
                        let problem = Problem {
                            rev: Some(rev_text(&rev)),
                            error: "not_found",
                            reason: "missing".to_owned(),
                        };
                        write_problem(out, answer.id.as_deref(), &problem);
                    }
                }
                out.push(b'}');
            }
        }
    }
    out.extend_from_slice(b"]}");
    Ok(())
}

fn write_id(out: &mut Vec<u8>, id: Option<&str>) {
    match id {
        Some(id) => write_json_string(out, id),
        None => out.extend_from_slice(b"null"),
    }
}

fn write_problem(out: &mut Vec<u8>, id: Option<&str>, problem: &Problem) {
    out.extend_from_slice(b"{\"rev\":");
    write_id(out, problem.rev.as_deref());
    out.extend_from_slice(b",\"reason\":");
    write_json_string(out, &problem.reason);
    out.extend_from_slice(b",\"id\":");
    write_id(out, id);
    out.extend_from_slice(b",\"error\":");
    write_json_string(out, problem.error);
    out.push(b'}');
}

async fn multipart(request: &Request, db: &DbName, entries: Vec<Entry>) -> Handled {
    let kind = if request.accepts("multipart/mixed") {
        "multipart/mixed"
    } else {
        "multipart/related"
    };
    let outer = fresh_boundary();
    let job = Job::of(request, db);
    let any = !entries.is_empty();
    let batches = batches(job.clone(), entries).await?;
    let boundary = outer.clone();
    let parts = batches.map(move |answers| -> Result<Vec<Piece>, HttpError> {
        let mut pieces = Vec::new();
        for answer in answers? {
            write_parts(job.shape, answer, &boundary, &mut pieces)?;
        }
        Ok(pieces)
    });
    let (app, of) = (request.app.clone(), db.clone());
    let bytes = parts.flat_map(move |pieces| match pieces {
        Ok(pieces) => read_pieces(app.clone(), of.clone(), pieces).boxed_local(),
        Err(error) => stream::iter([Err(error)]).boxed_local(),
    });
    let end = if any {
        format!("\r\n--{outer}--\r\n")
    } else {
        String::new()
    };
    let mut response = reply::bare(200, Bytes::new());
    response = response.set_body(reply::stream_body(
        bytes.chain(stream::iter([Ok(Bytes::from(end))])),
    ));
    doc_reply::set_content_type(&mut response, &format!("{kind}; boundary=\"{outer}\""));
    Ok(response)
}

fn write_parts(shape: Shape, answer: Answer, outer: &str, pieces: &mut Vec<Piece>) -> Result<(), HttpError> {
    let docs = match answer.docs {
        Ok(docs) => docs,
        Err(problem) => {
            let mut out = format!("\r\n--{outer}\r\nContent-Type: application/json; error=\"true\"\r\n\r\n")
                .into_bytes();
            write_problem(&mut out, answer.id.as_deref(), &problem);
            pieces.push(Piece::Bytes(out));
            return Ok(());
        }
    };
    // Documents travel with their attachments here, unless the client says which it has.
    let wanted = match answer.wanted {
        Wanted::Stubs => Wanted::All,
        other => other,
    };
    for doc in docs {
        match doc {
            Ok(opened) => {
                let chosen = wanted.choose(&opened.doc);
                let id = doc_reply::header_text(opened.doc.id.as_str());
                let rev = opened.doc.rev().map(|rev| rev_text(&rev)).unwrap_or_default();
                let part = with_attachments(Arc::new(opened), shape, &chosen, &fresh_boundary())?;
                let named = if part.pieces.len() > 1 {
                    format!("X-Doc-Id: {id}\r\nX-Rev-Id: {rev}\r\n")
                } else {
                    String::new()
                };
                let head = format!(
                    "\r\n--{outer}\r\n{named}Content-Type: {}\r\n\r\n",
                    part.content_type
                );
                pieces.push(Piece::Bytes(head.into_bytes()));
                pieces.extend(part.pieces);
            }
            Err(rev) => {
                let mut out = format!(
                    "\r\n--{outer}\r\nContent-Type: application/json; error=\"true\"\r\n\r\n{{\"rev\":"
                )
                .into_bytes();
                write_json_string(&mut out, &rev_text(&rev));
                out.extend_from_slice(b",\"error\":\"not_found\",\"reason\":\"missing\"}");
                pieces.push(Piece::Bytes(out));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(text: &str) -> String {
        let value: Value = serde_json::from_str(text).expect("JSON");
        let entry = parse(&value, &Wanted::Stubs);
        let Err(problem) = entry.what else {
            panic!("{text} is good")
        };
        let mut out = Vec::new();
        write_problem(&mut out, entry.id.as_deref(), &problem);
        String::from_utf8(out).expect("UTF-8")
    }

    #[test]
    fn bad_entries_have_couchdbs_errors() {
        assert_eq!(
            problem("[]"),
            "{\"rev\":null,\"reason\":\"document must be a JSON object\",\"id\":null,\"error\":\"bad_request\"}"
        );
        assert_eq!(
            problem("{\"rev\":\"1-a\"}"),
            "{\"rev\":null,\"reason\":\"document id missed\",\"id\":null,\"error\":\"bad_request\"}"
        );
        assert_eq!(
            problem("{\"id\":\"a\",\"rev\":\"x\"}"),
            "{\"rev\":\"x\",\"reason\":\"Invalid rev format\",\"id\":\"a\",\"error\":\"bad_request\"}"
        );
    }

    #[test]
    fn a_missing_document_without_a_revision_is_undefined() {
        let Err(problem) = documents(Ok(Vec::new()), &OpenRevs::All) else {
            panic!("documents")
        };
        assert_eq!(
            (problem.rev.as_deref(), problem.error),
            (Some("undefined"), "not_found")
        );
    }
}
