//! `multipart/related` uploads: the document first, then its attachments, which go to the file as they arrive.

use bytes::Bytes;
use futures_util::Stream;
use settee_actors::coordinator::UpdateDocs;
use settee_actors::open_db::DbLease;
use settee_engine::doc::{AttData, Attachment, DocEdit, DocError, EditAttachment};
use settee_engine::ids::{DbName, DocId};

use super::error::HttpError;
use super::multipart::{MultipartReader, boundary};
use super::reply::Handled;
use super::request::Request;
use super::{body, document, users};

/// Checks the name of an attachment from a URL.
///
/// # Errors
/// 400 for one that begins with an underscore.
pub fn check_name(name: &str) -> Result<(), HttpError> {
    if name.starts_with('_') {
        return Err(DocError::AttachmentNameUnderscore {
            name: name.to_owned(),
        }
        .into());
    }
    Ok(())
}

/// Handles PUT of a document with `multipart/related`.
pub async fn put_multipart(request: &Request, db: &DbName, id: &DocId, options: UpdateDocs) -> Handled {
    let boundary = boundary(request.header("content-type").unwrap_or_default())?;
    let limit = request.settings.chttpd.max_http_request_size;
    if request.content_length()?.is_some_and(|length| length > limit) {
        return Err(HttpError::request_too_large());
    }
    let mut reader = MultipartReader::new(request.body_stream(), &boundary);
    let outcome = receive(request, db, id, options, &mut reader).await;
    let (edit, _until_written) = match outcome {
        Ok(received) => received,
        Err(mut error) => {
            // The rest of the body is still on its way; nobody can tell where the next request would begin.
            error.close = true;
            return Err(error);
        }
    };
    document::finish_put(request, db, id, edit, options).await
}

async fn receive<S>(
    request: &Request,
    db: &DbName,
    id: &DocId,
    options: UpdateDocs,
    reader: &mut MultipartReader<S>,
) -> Result<(DocEdit, Vec<DbLease>), HttpError>
where
    S: Stream<Item = Result<Bytes, HttpError>> + Unpin,
{
    let missing = || HttpError::bad_request("malformed multipart body: no document in it");
    if !reader.next_part().await? {
        return Err(missing());
    }
    let json = Bytes::from(
        reader
            .part_bytes(request.settings.chttpd.max_http_request_size)
            .await?,
    );
    let json = users::before_write(request, db, id, json).await?;
    let mut edit = body::parse_at(request, &json, id)?;
    document::settle_rev(request, &mut edit)?;
    if !options.new_edits {
        body::require_revs(&edit)?;
    }
    // A replicated attachment keeps the position of the revision that brought it.
    let new_revpos = edit.revs.start.saturating_add(1);
    let mut leases = Vec::new();
    for att in &mut edit.atts {
        if matches!(att.data, AttData::Follows { .. }) {
            let (stored, lease) = attachment(request, db, id, att, reader).await?;
            let revpos = if options.new_edits {
                new_revpos
            } else {
                att.revpos.unwrap_or(new_revpos)
            };
            *att = EditAttachment::stored(Attachment { revpos, ..stored });
            leases.push(lease);
        }
    }
    while reader.next_part().await? {}
    reader.drain().await?;
    Ok((edit, leases))
}

/// Takes the next part as the bytes of an attachment.
async fn attachment<S>(
    request: &Request,
    db: &DbName,
    id: &DocId,
    att: &EditAttachment,
    reader: &mut MultipartReader<S>,
) -> Result<(Attachment, DbLease), HttpError>
where
    S: Stream<Item = Result<Bytes, HttpError>> + Unpin,
{
    if !reader.next_part().await? {
        return Err(HttpError::bad_request(format!(
            "malformed multipart body: attachment {} is missing",
            att.name
        )));
    }
    let announced = att.announced();
    let expected = announced.att_len;
    let mut sink = request
        .app
        .coordinator
        .attachment_sink(db, id, &att.name, &att.content_type, announced)
        .await?;
    let max = request.settings.couchdb.max_attachment_size.get();
    while let Some(chunk) = reader.part_chunk().await? {
        let taken = sink.len().saturating_add(chunk.len() as u64);
        // Known before the end, so that nobody has to send the rest.
        if expected.is_some_and(|length| taken > length) {
            return Err(DocError::AttachmentLonger.into());
        }
        if taken > max {
            return Err(HttpError::attachment_too_large(att.name.clone()));
        }
        sink.write(&chunk).await?;
    }
    Ok(sink.finish().await?)
}
