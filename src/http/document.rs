//! Documents: GET, HEAD, PUT, DELETE, POST of design, local and ordinary documents.

use std::sync::Arc;

use actix_web::HttpResponse;
use bytes::Bytes;
use serde_json::{Value, json};
use settee_actors::coordinator::{OpenDoc, OpenRevs, OpenedDoc, UpdateDocs, Updated};
use settee_engine::cluster::ShardMap;
use settee_engine::doc::{DocEdit, RevPath};
use settee_engine::ids::{DbName, DocId, DocIdError, Rev};

use super::body::{self, Shape};
use super::error::HttpError;
use super::reply::{self, Handled};
use super::request::{Request, Verb};
use super::router::{Segments, percent_encode};
use super::{copy, doc_reply, open_revs, upload, users};

/// Handles `/db/{id}`.
pub async fn handle(request: &Request, db: &DbName, raw_id: &[u8]) -> Handled {
    match request.verb {
        Verb::Get | Verb::Head => get(request, db, raw_id).await,
        Verb::Put => Box::pin(put(request, db, &writable_id(request, raw_id)?)).await,
        Verb::Delete => Box::pin(delete(request, db, &readable_id(raw_id)?)).await,
        Verb::Copy => Box::pin(copy::handle(request, db, &readable_id(raw_id)?)).await,
        Verb::Post => Err(form_upload(request)),
        _ => Err(HttpError::method_not_allowed("DELETE,GET,HEAD,POST,PUT,COPY")),
    }
}

/// Handles `/db/_design%2Fx`.
pub async fn joined_design(
    request: &Request,
    db: &DbName,
    raw_id: &[u8],
    segments: &Segments<'_>,
) -> Handled {
    if !request.verb.reads() {
        return handle(request, db, raw_id).await;
    }
    let name = raw_id.strip_prefix(b"_design/").unwrap_or(raw_id);
    let db_name = percent_encode(segments.bytes(0).unwrap_or_default());
    let mut location = format!("{}/{db_name}/_design/{}", request.origin(), percent_encode(name));
    if let Some(query) = request.http.uri().query() {
        location.push('?');
        location.push_str(query);
    }
    let mut response = reply::bare(301, Bytes::new());
    reply::set_location(&mut response, &location);
    Ok(response)
}

/// An id that is only looked up: one that no document can have is missing.
///
/// # Errors
/// 404, or 400 when it is not UTF-8.
pub fn readable_id(raw: &[u8]) -> Result<DocId, HttpError> {
    match DocId::from_bytes(raw) {
        Ok(id) => Ok(id),
        Err(error @ DocIdError::NotUtf8) => Err(error.into()),
        Err(_) => Err(HttpError::not_found("missing")),
    }
}

/// An id that is written.
///
/// # Errors
/// 400 for an id that no document can have.
pub fn writable_id(request: &Request, raw: &[u8]) -> Result<DocId, HttpError> {
    let id = DocId::from_bytes(raw)?;
    let max = request.settings.couchdb.max_document_id_length.get();
    if id.as_str().len() as u64 > max {
        return Err(DocIdError::TooLong.into());
    }
    Ok(id)
}

/// What text that is no revision gets.
pub fn invalid_rev() -> HttpError {
    HttpError::bad_request("Invalid rev format")
}

/// Reads a revision.
///
/// # Errors
/// 400.
pub fn parse_rev(text: &str) -> Result<Rev, HttpError> {
    Rev::parse_bytes(text.as_bytes()).map_err(|_| invalid_rev())
}

/// The text of a revision.
pub fn rev_text(rev: &Rev) -> String {
    let mut out = Vec::with_capacity(48);
    rev.write_text(&mut out);
    // The bytes of a revision come from clients, through URLs and JSON, as text.
    String::from_utf8(out).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

/// Appends a JSON list of revisions.
pub fn write_revs(out: &mut Vec<u8>, revs: &[Rev]) {
    out.push(b'[');
    for (index, rev) in revs.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        super::error::write_json_string(out, &rev_text(rev));
    }
    out.push(b']');
}

/// `{"shards":{range:[node,…],…}}`
pub fn shard_map_json(map: &ShardMap) -> Value {
    let shards: serde_json::Map<String, Value> = map
        .shards()
        .iter()
        .map(|shard| {
            (
                shard.range().to_string(),
                shard
                    .nodes()
                    .iter()
                    .map(|node| Value::from(node.as_str()))
                    .collect(),
            )
        })
        .collect();
    json!({"shards": shards})
}

/// `{"range":…,"nodes":[…]}`
pub fn shard_of_json(map: &ShardMap, id: &DocId) -> Value {
    let shard = map
        .for_doc(id.as_bytes())
        .ok()
        .and_then(|index| map.shards().get(index));
    match shard {
        Some(shard) => {
            let nodes: Vec<Value> = shard
                .nodes()
                .iter()
                .map(|node| Value::from(node.as_str()))
                .collect();
            json!({"range": shard.range().to_string(), "nodes": nodes})
        }
        None => Value::Null,
    }
}

/// The document as JSON without any extras, for the server's own use.
///
/// # Errors
/// 500 for damaged bytes.
pub fn plain_json(opened: &OpenedDoc) -> Result<Vec<u8>, HttpError> {
    let mut out = Vec::new();
    body::write_stubs(opened, Shape::default(), &mut out)?;
    Ok(out)
}

/// What a read asks for beside the document.
pub fn open_options(request: &Request) -> Result<OpenDoc, HttpError> {
    let query = &request.query;
    if query.is_empty() {
        return Ok(OpenDoc::default());
    }
    let meta = query.is_true("meta");
    Ok(OpenDoc {
        rev: query.get("rev").map(parse_rev).transpose()?,
        deleted: query.is_true("deleted"),
        revs_info: meta || query.is_true("revs_info"),
        conflicts: meta || query.is_true("conflicts"),
        deleted_conflicts: meta || query.is_true("deleted_conflicts"),
        local_seq: query.is_true("local_seq"),
    })
}

async fn get(request: &Request, db: &DbName, raw_id: &[u8]) -> Handled {
    let id = readable_id(raw_id)?;
    users::check_read(request, db, &id)?;
    if let Some(which) = request.query.get("open_revs") {
        return Box::pin(open_revs::handle(request, db, &id, which)).await;
    }
    let mut options = open_options(request)?;
    if request.query.is_true("latest")
        && let Some(rev) = options.rev.take()
    {
        options.rev = Some(Box::pin(latest_of(request, db, &id, rev)).await?);
    }
    let opened = request.app.coordinator.open_doc(db, &id, &options).await?;
    let plain = opened.revs_info.is_none()
        && opened.local_seq.is_none()
        && opened.conflicts.is_empty()
        && opened.deleted_conflicts.is_empty();
    let etag = plain.then(|| etag_of(&opened)).transpose()?;
    if let Some(etag) = &etag
        && request.etag_matches(etag)
        && body::rev_names_content(&opened.doc)
    {
        return Ok(reply::not_modified(etag));
    }
    let mut response = doc_reply::one(request, db, opened).await?;
    if let Some(etag) = &etag {
        reply::set_etag(&mut response, etag);
    }
    Ok(response)
}

/// The leaf below a revision: the winner among them when it has several.
async fn latest_of(request: &Request, db: &DbName, id: &DocId, rev: Rev) -> Result<Rev, HttpError> {
    let leaves = request
        .app
        .coordinator
        .open_revs(db, id, OpenRevs::List(vec![rev]), true)
        .await?;
    let leaves = leaves.into_iter().flatten();
    let best = leaves
        .filter_map(|leaf| Some((!leaf.doc.deleted, leaf.doc.rev()?)))
        .max();
    best.map(|(_, rev)| rev)
        .ok_or_else(|| HttpError::not_found("missing"))
}

/// The quoted ETag of a document: its revision. A local document's revision says little, so its bytes are hashed.
fn etag_of(opened: &OpenedDoc) -> Result<String, HttpError> {
    if opened.doc.id.is_local() {
        use md5::{Digest, Md5};
        let digest = Md5::digest(plain_json(opened)?);
        let number = digest
            .iter()
            .fold(0u128, |number, byte| number << 8 | u128::from(*byte));
        return Ok(format!("\"{number:032X}\""));
    }
    let mut out = Vec::with_capacity(48);
    out.push(b'"');
    if let Some(rev) = opened.doc.rev() {
        rev.write_text(&mut out);
    }
    out.push(b'"');
    Ok(String::from_utf8(out).unwrap_or_default())
}

/// The revision that `rev` or `If-Match` names.
///
/// # Errors
/// 400 when they differ, or one is no revision.
pub fn request_rev(request: &Request) -> Result<Option<Rev>, HttpError> {
    let explicit = request
        .query
        .get("rev")
        .filter(|rev| !rev.is_empty())
        .map(parse_rev)
        .transpose()?;
    with_if_match(request, explicit)
}

fn with_if_match(request: &Request, explicit: Option<Rev>) -> Result<Option<Rev>, HttpError> {
    let Some(sent) = request.header("if-match") else {
        return Ok(explicit);
    };
    let rev = parse_rev(sent.trim_matches('"'))?;
    match explicit {
        Some(explicit) if explicit != rev => Err(HttpError::bad_request(
            "Document rev and etag have different values",
        )),
        _ => Ok(Some(rev)),
    }
}

/// Makes the revision of body, query and `If-Match` one.
///
/// # Errors
/// 400 when they differ.
pub fn settle_rev(request: &Request, edit: &mut DocEdit) -> Result<(), HttpError> {
    let query = request
        .query
        .get("rev")
        .filter(|rev| !rev.is_empty())
        .map(parse_rev)
        .transpose()?;
    match (edit.rev(), query) {
        (Some(own), Some(query)) if own != query => Err(HttpError::bad_request(
            "Document rev from request body and query string have different values",
        )),
        (Some(own), _) => with_if_match(request, Some(own)).map(|_| ()),
        (None, query) => {
            if let Some(rev) = with_if_match(request, query)? {
                edit.revs = RevPath::single(rev);
            }
            Ok(())
        }
    }
}

/// How writes of this request are applied.
pub fn update_options(request: &Request) -> UpdateDocs {
    UpdateDocs {
        new_edits: request.query.get("new_edits") != Some("false"),
        w: request.query.get("w").and_then(|w| w.parse().ok()),
    }
}

/// Writes one document.
///
/// # Errors
/// What its shard refused.
pub async fn write_one(
    request: &Request,
    db: &DbName,
    edit: DocEdit,
    options: UpdateDocs,
) -> Result<Updated, HttpError> {
    users::check_owner(request, db, &edit.id)?;
    let results = request
        .app
        .coordinator
        .update_docs(db, vec![edit], options)
        .await?;
    let result = results
        .into_iter()
        .next()
        .ok_or_else(|| HttpError::internal("no answer for the document"))?;
    result.map_err(HttpError::from)
}

/// `{"ok":true,"id":…,"rev":…}` with ETag and, when there is a path, `Location`.
pub fn written(request: &Request, code: u16, id: &DocId, rev: &Rev, path: Option<&[&[u8]]>) -> HttpResponse {
    let text = rev_text(rev);
    let mut body = b"{\"ok\":true,\"id\":".to_vec();
    super::error::write_json_string(&mut body, id.as_str());
    body.extend_from_slice(b",\"rev\":");
    super::error::write_json_string(&mut body, &text);
    body.extend_from_slice(b"}\n");
    let mut response = reply::json(code, body);
    reply::set_etag(&mut response, &format!("\"{text}\""));
    if let Some(path) = path {
        set_location(request, &mut response, path);
    }
    response
}

fn set_location(request: &Request, response: &mut HttpResponse, path: &[&[u8]]) {
    let mut location = request.origin();
    for segment in path {
        location.push('/');
        location.push_str(&percent_encode(segment));
    }
    reply::set_location(response, &location);
}

async fn put(request: &Request, db: &DbName, id: &DocId) -> Handled {
    let options = update_options(request);
    if request.media_type().eq_ignore_ascii_case("multipart/related") {
        return upload::put_multipart(request, db, id, options).await;
    }
    let json = request.body().await?;
    let json = users::before_write(request, db, id, json).await?;
    let mut edit = body::parse_at(request, &json, id)?;
    settle_rev(request, &mut edit)?;
    if !options.new_edits {
        body::require_revs(&edit)?;
    }
    if request.query.get("batch") == Some("ok") {
        return Ok(write_later(request, db, edit, options));
    }
    finish_put(request, db, id, edit, options).await
}

/// Writes the document of a PUT and answers.
pub async fn finish_put(
    request: &Request,
    db: &DbName,
    id: &DocId,
    edit: DocEdit,
    options: UpdateDocs,
) -> Handled {
    let deletes = edit.deleted;
    let updated = write_one(request, db, edit, options).await?;
    let code = match (updated.accepted, deletes) {
        (true, _) => 202,
        (false, true) => 200,
        (false, false) => 201,
    };
    Ok(written(
        request,
        code,
        id,
        &updated.rev,
        Some(&[db.as_str().as_bytes(), id.as_bytes()]),
    ))
}

/// `batch=ok`: answers at once; what goes wrong later is only logged.
fn write_later(request: &Request, db: &DbName, edit: DocEdit, options: UpdateDocs) -> HttpResponse {
    let mut body = b"{\"ok\":true,\"id\":".to_vec();
    super::error::write_json_string(&mut body, edit.id.as_str());
    body.extend_from_slice(b"}\n");
    let (app, db, request_id) = (
        Arc::clone(&request.app),
        db.clone(),
        request.id.as_str().to_owned(),
    );
    actix_rt::spawn(async move {
        let id = edit.id.clone();
        match app
            .coordinator
            .update_docs(&db, vec![edit], options)
            .await
            .map(|mut results| results.pop())
        {
            Ok(Some(Ok(_))) => {}
            Ok(Some(Err(error))) => {
                tracing::warn!(request = request_id, id = id.as_str(), %error, "a document of batch mode was refused");
            }
            Ok(None) => {}
            Err(error) => {
                tracing::error!(request = request_id, id = id.as_str(), %error, "a document of batch mode was not written");
            }
        }
    });
    reply::json(202, body)
}

async fn delete(request: &Request, db: &DbName, id: &DocId) -> Handled {
    // What is absent or deleted already is told before the revision is looked at.
    request
        .app
        .coordinator
        .open_doc(db, id, &OpenDoc::default())
        .await?;
    let mut edit = body::tombstone(request, id)?;
    settle_rev(request, &mut edit)?;
    let options = update_options(request);
    if request.query.get("batch") == Some("ok") {
        return Ok(write_later(request, db, edit, options));
    }
    let updated = write_one(request, db, edit, options).await?;
    Ok(written(
        request,
        if updated.accepted { 202 } else { 200 },
        id,
        &updated.rev,
        None,
    ))
}

/// POST to a document is an upload from a very old web form.
fn form_upload(request: &Request) -> HttpError {
    match request.header("referer") {
        None => HttpError::bad_request("Referer header required."),
        Some(referer) if !referer.starts_with(&request.origin()) => {
            HttpError::bad_request("Referer header must match host.")
        }
        Some(_) if !request.media_type().eq_ignore_ascii_case("multipart/form-data") => HttpError::new(
            415,
            "bad_content_type",
            "Content-Type must be multipart/form-data",
        ),
        Some(_) => HttpError::not_implemented("uploads from web forms are not implemented"),
    }
}

/// Handles POST `/db`.
pub async fn post(request: &Request, db: &DbName) -> Handled {
    request.require_json()?;
    let json = request.body().await?;
    let mut edit = body::parse_new(request, &json)?;
    let id = edit.id.clone();
    if id.is_design() {
        super::bulk::require_database_admin(request, db).await?;
    }
    if users::is_users_db(request, db) {
        let json = users::before_write(request, db, &id, json).await?;
        edit = body::parse_at(request, &json, &id)?;
    }
    let options = UpdateDocs {
        new_edits: true,
        ..update_options(request)
    };
    if request.query.get("batch") == Some("ok") {
        return Ok(write_later(request, db, edit, options));
    }
    let updated = write_one(request, db, edit, options).await?;
    let code = if updated.accepted { 202 } else { 201 };
    let path: [&[u8]; 2] = [db.as_str().as_bytes(), id.as_bytes()];
    let mut response = written(request, code, &id, &updated.rev, Some(&path));
    response.headers_mut().remove("etag");
    Ok(response)
}
