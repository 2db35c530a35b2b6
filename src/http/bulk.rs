//! `_bulk_docs`: documents go from the request's text straight into edits, without a tree of values between.

use bytes::Bytes;
use serde_json::json;
use settee_actors::coordinator::{DocRefusal, RawDocs, UpdateDocs};
use settee_engine::codec::json::{JsonError, JsonReader, Kind};
use settee_engine::doc::DocEdit;
use settee_engine::ids::DbName;

use super::access::{self, Need};
use super::error::{HttpError, write_json_string};
use super::reply::{self, Handled};
use super::request::Request;
use super::{body, document, users};
use std::ops::Range;

/// A parsed request.
struct Bulk {
    edits: Vec<DocEdit>,
    new_edits: bool,
    all_or_nothing: bool,
}

/// Refuses whoever is no admin of the database.
///
/// # Errors
/// 401 or 403.
pub async fn require_database_admin(request: &Request, db: &DbName) -> Result<(), HttpError> {
    if request.user.is_server_admin() {
        return Ok(());
    }
    let security = access::read_security(&request.app.coordinator.security(db).await?);
    access::check_database(Need::DatabaseAdmin, &request.user, &security)
}

/// Handles `/db/_bulk_docs`.
pub async fn handle(request: &Request, db: &DbName) -> Handled {
    request.allow("POST")?;
    request.require_json()?;
    request.app.counters.bulk();
    let json = request.body().await?;
    let json = users::before_bulk(request, db, json).await?;
    let bulk = parse(request, &json).await?;
    if bulk.all_or_nothing {
        return Ok(all_or_nothing(&bulk));
    }
    let options = UpdateDocs {
        new_edits: bulk.new_edits,
        ..document::update_options(request)
    };
    let refused_ddocs = if bulk.edits.iter().any(|edit| edit.id.is_design()) {
        require_database_admin(request, db).await.err()
    } else {
        None
    };
    write(request, db, bulk, options, refused_ddocs).await
}

async fn write(
    request: &Request,
    db: &DbName,
    bulk: Bulk,
    options: UpdateDocs,
    refused_ddocs: Option<HttpError>,
) -> Handled {
    let ids: Vec<_> = bulk.edits.iter().map(|edit| edit.id.clone()).collect();
    let refused: Vec<bool> = ids
        .iter()
        .map(|id| refused_ddocs.is_some() && id.is_design())
        .collect();
    // A replicated edit that fails is named with its own revision.
    let revs: Vec<_> = if options.new_edits {
        Vec::new()
    } else {
        bulk.edits.iter().map(DocEdit::rev).collect()
    };
    let mut kept = bulk.edits;
    if refused_ddocs.is_some() {
        let mut keep = refused.iter().map(|refused| !refused);
        kept.retain(|_| keep.next().unwrap_or(true));
    }
    let mut results = request
        .app
        .coordinator
        .update_docs(db, kept, options)
        .await?
        .into_iter();
    let mut out = Vec::with_capacity(ids.len() * 96);
    let mut accepted = false;
    let mut written = 0;
    out.push(b'[');
    for (index, id) in ids.iter().enumerate() {
        let outcome = if refused[index] {
            Err(refused_ddocs.clone().unwrap_or_else(HttpError::conflict))
        } else {
            let result = results
                .next()
                .ok_or_else(|| HttpError::internal("an answer is missing"))?;
            result.map_err(|refusal: DocRefusal| HttpError::from(refusal))
        };
        let rev = revs.get(index).cloned().flatten();
        match outcome {
            Ok(updated) => {
                accepted |= updated.accepted;
                if !options.new_edits {
                    continue;
                }
                separate(&mut out, &mut written);
                out.extend_from_slice(b"{\"ok\":true,\"id\":");
                write_json_string(&mut out, id.as_str());
                out.extend_from_slice(b",\"rev\":\"");
                updated.rev.write_text(&mut out);
                out.extend_from_slice(b"\"}");
            }
            Err(error) => {
                separate(&mut out, &mut written);
                out.extend_from_slice(b"{\"id\":");
                write_json_string(&mut out, id.as_str());
                if let Some(rev) = rev {
                    out.extend_from_slice(b",\"rev\":");
                    write_json_string(&mut out, &document::rev_text(&rev));
                }
                out.extend_from_slice(b",\"error\":");
                write_json_string(&mut out, &error.error);
                out.extend_from_slice(b",\"reason\":");
                write_json_string(&mut out, error.reason.as_deref().unwrap_or_default());
                out.push(b'}');
            }
        }
    }
    out.extend_from_slice(b"]\n");
    Ok(reply::json(if accepted { 202 } else { 201 }, Bytes::from(out)))
}

fn separate(out: &mut Vec<u8>, written: &mut usize) {
    if *written > 0 {
        out.push(b',');
    }
    *written += 1;
}

fn all_or_nothing(bulk: &Bulk) -> actix_web::HttpResponse {
    let refuse = |edit: &DocEdit| {
        json!({
            "id": edit.id.as_str(),
            "rev": "0-",
            "error": "not_implemented",
            "reason": "all_or_nothing is not supported",
        })
    };
    reply::json_value(417, &bulk.edits.iter().map(refuse).collect())
}

fn syntax<E>(_: E) -> HttpError {
    HttpError::invalid_json()
}

/// The members of a request's body; documents are only found in it.
struct Members {
    docs: Option<Vec<Range<usize>>>,
    new_edits: bool,
    all_or_nothing: bool,
}

async fn parse(request: &Request, json: &Bytes) -> Result<Bulk, HttpError> {
    let members = members(json)?;
    let docs = members
        .docs
        .ok_or_else(|| HttpError::bad_request("POST body must include `docs` parameter."))?;
    let raw = RawDocs {
        text: json.clone(),
        docs,
    };
    let options = body::parse_options(request, members.new_edits);
    Ok(Bulk {
        edits: request.app.coordinator.parse_docs(raw, options).await?,
        new_edits: members.new_edits,
        all_or_nothing: members.all_or_nothing,
    })
}

fn members(json: &[u8]) -> Result<Members, HttpError> {
    let mut reader = JsonReader::new(json).map_err(syntax)?;
    if reader.peek_kind().map_err(syntax)? != Kind::Object {
        reader.skip_value().and_then(|_| reader.end()).map_err(syntax)?;
        return Err(HttpError::bad_request("Request body must be a JSON object"));
    }
    let mut members = Members {
        docs: None,
        new_edits: true,
        all_or_nothing: false,
    };
    // A fault of the request as a whole is told only when the text is good up to its end.
    let mut fault = None;
    reader.begin_object().map_err(syntax)?;
    while let Some(name) = reader.next_member().map_err(syntax)? {
        let kind = reader.peek_kind().map_err(syntax)?;
        match (&*name, kind) {
            ("docs", Kind::Array) => members.docs = Some(elements(&mut reader).map_err(syntax)?),
            ("docs", _) => {
                reader.skip_value().map_err(syntax)?;
                fault = Some("`docs` parameter must be an array.");
            }
            ("new_edits", Kind::Bool) => members.new_edits = reader.read_bool().map_err(syntax)?,
            ("new_edits", _) => {
                reader.skip_value().map_err(syntax)?;
                fault = Some("`new_edits` parameter must be a boolean.");
            }
            ("all_or_nothing", Kind::Bool) => members.all_or_nothing = reader.read_bool().map_err(syntax)?,
            _ => {
                reader.skip_value().map_err(syntax)?;
            }
        }
    }
    reader.end().map_err(syntax)?;
    match fault {
        Some(fault) => Err(HttpError::bad_request(fault)),
        None => Ok(members),
    }
}

/// Where the elements of an array stand.
fn elements(reader: &mut JsonReader<'_>) -> Result<Vec<Range<usize>>, JsonError> {
    let mut elements = Vec::new();
    reader.begin_array()?;
    while reader.next_element()? {
        let length = reader.skip_value()?.len();
        elements.push(reader.position() - length..reader.position());
    }
    Ok(elements)
}
