//! COPY of a document.

use futures_util::StreamExt;
use settee_actors::coordinator::{OpenDoc, OpenedDoc, UpdateDocs};
use settee_actors::open_db::DbLease;
use settee_engine::doc::stream::Announced;
use settee_engine::doc::{EditAttachment, RevPath};
use settee_engine::ids::{DbName, DocId, Rev};

use super::error::HttpError;
use super::reply::Handled;
use super::request::Request;
use super::router::percent_decode;
use super::{body, bulk, document, users};

/// Handles COPY `/db/{id}`.
pub async fn handle(request: &Request, db: &DbName, source: &DocId) -> Handled {
    let rev = document::request_rev(request)?;
    let (target, target_rev) = destination(request)?;
    if target.is_design() {
        bulk::require_database_admin(request, db).await?;
    }
    let options = OpenDoc {
        rev,
        ..OpenDoc::default()
    };
    users::check_read(request, db, source)?;
    // An old revision of the own document may hold roles that were taken away.
    if users::is_users_db(request, db) && !request.user.is_server_admin() {
        return Err(HttpError::forbidden(
            "Only server admins may copy user documents.",
        ));
    }
    let opened = request.app.coordinator.open_doc(db, source, &options).await?;
    let copies = attachments(request, db, &opened, &target).await?;
    let mut edit = body::edit_of(opened.doc);
    let _until_written: Vec<DbLease>;
    (edit.atts, _until_written) = copies.into_iter().unzip();
    edit.id = target.clone();
    edit.revs = target_rev.map(RevPath::single).unwrap_or_default();
    let updated = document::write_one(request, db, edit, UpdateDocs::default()).await?;
    let code = if updated.accepted { 202 } else { 201 };
    Ok(document::written(
        request,
        code,
        &target,
        &updated.rev,
        Some(&[db.as_str().as_bytes(), target.as_bytes()]),
    ))
}

/// Stores the attachments of a document again, in the shard of the copy: where they lie is true in one file only.
async fn attachments(
    request: &Request,
    db: &DbName,
    opened: &OpenedDoc,
    target: &DocId,
) -> Result<Vec<(EditAttachment, DbLease)>, HttpError> {
    let coordinator = &request.app.coordinator;
    let mut copies = Vec::with_capacity(opened.doc.atts.len());
    for (index, att) in opened.doc.atts.iter().enumerate() {
        let announced = Announced {
            encoding: att.encoding,
            att_len: Some(att.att_len),
            disk_len: Some(att.disk_len),
            ..Announced::default()
        };
        let mut sink = coordinator
            .attachment_sink(db, target, &att.name, &att.content_type, announced)
            .await?;
        let mut bytes = coordinator.attachment(db, opened, index).await?;
        while let Some(chunk) = bytes.next().await {
            sink.write(&chunk?).await?;
        }
        let (stored, lease) = sink.finish().await?;
        copies.push((EditAttachment::stored(stored), lease));
    }
    Ok(copies)
}

/// Reads `Destination: id[?rev=…]`.
fn destination(request: &Request) -> Result<(DocId, Option<Rev>), HttpError> {
    let value = request
        .header("destination")
        .ok_or_else(|| HttpError::bad_request("Destination header is mandatory for COPY."))?;
    let (id, query) = split(value)?;
    let rev = match query.split('&').find_map(|pair| pair.strip_prefix("rev=")) {
        Some(rev) => Some(document::parse_rev(rev)?),
        None => None,
    };
    let id = percent_decode(id.as_bytes(), true)?;
    Ok((document::writable_id(request, &id)?, rev))
}

/// Splits a destination into path and query.
fn split(value: &str) -> Result<(&str, &str), HttpError> {
    let scheme = value.split_once("://").map(|(scheme, _)| scheme);
    if scheme.is_some_and(|scheme| scheme.bytes().all(|byte| byte.is_ascii_alphabetic())) {
        return Err(HttpError::bad_request("Destination URL must be relative."));
    }
    Ok(value.split_once('?').unwrap_or((value, "")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn destinations_are_relative() {
        assert_eq!(split("new?rev=1-a").expect("good"), ("new", "rev=1-a"));
        assert_eq!(split("a%2Fb").expect("good"), ("a%2Fb", ""));
        let error = split("http://host/db/new").expect_err("absolute");
        assert_eq!(error, HttpError::bad_request("Destination URL must be relative."));
    }
}
