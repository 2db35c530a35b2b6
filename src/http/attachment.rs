//! Standalone attachments: `/db/{id}/{name}`.

use std::io::Write;
use std::sync::Arc;

use actix_web::HttpResponse;
use actix_web::http::header::{CACHE_CONTROL, CONTENT_ENCODING, CONTENT_RANGE, HeaderValue};
use bytes::Bytes;
use futures_util::{Stream, StreamExt, stream};
use settee_actors::coordinator::{OpenDoc, OpenRevs, OpenedDoc};
use settee_engine::doc::stream::Announced;
use settee_engine::doc::{Attachment, DocEdit, DocError, EditAttachment, Encoding, RevPath};
use settee_engine::ids::{DbName, DocId};

use super::error::HttpError;
use super::multipart::fresh_boundary;
use super::range::{self, Wanted};
use super::reply::{self, Handled};
use super::request::{Request, Verb};
use super::{App, body, doc_reply, document, upload, users};

/// Handles `/db/{id}/{name}`.
pub async fn handle(request: &Request, db: &DbName, raw_id: &[u8], raw_name: &[u8]) -> Handled {
    let name = std::str::from_utf8(raw_name).map_err(|_| HttpError::from(DocError::AttachmentNameNotUtf8))?;
    match request.verb {
        Verb::Get | Verb::Head => get(request, db, &document::readable_id(raw_id)?, name).await,
        Verb::Put => put(request, db, &document::writable_id(request, raw_id)?, name).await,
        Verb::Delete => delete(request, db, &document::readable_id(raw_id)?, name).await,
        _ => Err(HttpError::method_not_allowed("DELETE,GET,HEAD,PUT")),
    }
}

fn no_attachment() -> HttpError {
    HttpError::not_found("Document is missing attachment")
}

/// What the reply to a read is made of.
struct Opened {
    app: Arc<App>,
    db: DbName,
    doc: Arc<OpenedDoc>,
    index: usize,
}

impl Opened {
    fn attachment(&self) -> Option<&Attachment> {
        self.doc.doc.atts.get(self.index)
    }

    /// Stored bytes within a range.
    async fn stored(
        &self,
        from: u64,
        to: u64,
    ) -> Result<impl Stream<Item = Result<Bytes, HttpError>> + 'static + use<>, HttpError> {
        let stream = self
            .app
            .coordinator
            .attachment_range(&self.db, &self.doc, self.index, from..to)
            .await?;
        Ok(stream.map(|chunk| chunk.map_err(HttpError::from)))
    }
}

async fn get(request: &Request, db: &DbName, id: &DocId, name: &str) -> Handled {
    users::check_read(request, db, id)?;
    let rev = request.query.get("rev").map(document::parse_rev).transpose()?;
    let options = OpenDoc {
        rev,
        deleted: request.query.is_true("deleted"),
        ..OpenDoc::default()
    };
    let opened = request.app.coordinator.open_doc(db, id, &options).await?;
    let index = opened
        .doc
        .atts
        .iter()
        .position(|att| att.name == name)
        .ok_or_else(no_attachment)?;
    let opened = Opened {
        app: request.app.clone(),
        db: db.clone(),
        doc: Arc::new(opened),
        index,
    };
    let att = opened.attachment().ok_or_else(no_attachment)?;
    let etag = etag(&opened, att);
    if request.etag_matches(&etag) {
        return Ok(reply::not_modified(&etag));
    }
    let mut response = match att.encoding {
        Encoding::Identity => identity(request, &opened, att).await?,
        Encoding::Gzip => gzip(request, &opened, att).await?,
    };
    reply::set_etag(&mut response, &etag);
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("must-revalidate"));
    reply::set(headers, "content-security-policy", "sandbox");
    Ok(response)
}

fn etag(opened: &Opened, att: &Attachment) -> String {
    use base64::Engine;
    if att.md5.is_empty() {
        let rev = opened
            .doc
            .doc
            .rev()
            .map(|rev| document::rev_text(&rev))
            .unwrap_or_default();
        return format!("\"{rev}\"");
    }
    format!(
        "\"{}\"",
        base64::engine::general_purpose::STANDARD.encode(&att.md5)
    )
}

async fn identity(request: &Request, opened: &Opened, att: &Attachment) -> Handled {
    let length = att.att_len;
    let mut response = match range::parse(request.header("range"), length) {
        Wanted::All => {
            let bytes = opened.stored(0, u64::MAX).await?;
            with_body(200, att, reply::sized_body(length, bytes))
        }
        Wanted::Unsatisfiable => {
            let error = HttpError::new(
                416,
                "requested_range_not_satisfiable",
                "Requested range not satisfiable",
            );
            return Err(error.with_header("Content-Range", format!("bytes */{length}")));
        }
        Wanted::Some(ranges) => match ranges.as_slice() {
            [(from, to)] => {
                let bytes = opened.stored(*from, to.saturating_add(1)).await?;
                let mut response = with_body(206, att, reply::sized_body(to - from + 1, bytes));
                let value = format!("bytes {from}-{to}/{length}");
                if let Ok(value) = HeaderValue::try_from(value) {
                    response.headers_mut().insert(CONTENT_RANGE, value);
                }
                response
            }
            _ => many_ranges(opened, att, ranges),
        },
    };
    reply::set_accept_ranges(&mut response, "bytes");
    Ok(response)
}

fn with_body(code: u16, att: &Attachment, body: actix_web::body::BoxBody) -> HttpResponse {
    let mut response = reply::bare(code, Bytes::new()).set_body(body);
    doc_reply::set_content_type(&mut response, &att.content_type);
    response
}

/// Several ranges, each as a part.
fn many_ranges(opened: &Opened, att: &Attachment, ranges: Vec<(u64, u64)>) -> HttpResponse {
    let boundary = fresh_boundary();
    let content_type = format!("multipart/byteranges; boundary=\"{boundary}\"");
    let kind = doc_reply::header_text(&att.content_type);
    let length = att.att_len;
    let source = Opened {
        app: opened.app.clone(),
        db: opened.db.clone(),
        doc: opened.doc.clone(),
        index: opened.index,
    };
    let source = Arc::new(source);
    let opening = stream::iter([Ok(Bytes::from(format!("--{boundary}")))]);
    let parts = stream::iter(ranges).then(move |(from, to)| {
        let (source, kind, boundary) = (source.clone(), kind.clone(), boundary.clone());
        async move {
            let head =
                format!("\r\nContent-Type: {kind}\r\nContent-Range: bytes {from}-{to}/{length}\r\n\r\n");
            match source.stored(from, to.saturating_add(1)).await {
                Ok(bytes) => stream::iter([Ok(Bytes::from(head))])
                    .chain(bytes)
                    .chain(stream::iter([Ok(Bytes::from(format!("\r\n--{boundary}")))]))
                    .left_stream(),
                Err(error) => stream::iter([Err(error)]).right_stream(),
            }
        }
    });
    let closing = stream::iter([Ok(Bytes::from_static(b"--"))]);
    let body = reply::stream_body(opening.chain(parts.flatten()).chain(closing));
    let mut response = reply::bare(206, Bytes::new()).set_body(body);
    doc_reply::set_content_type(&mut response, &content_type);
    response
}

/// Whether the client takes gzip.
fn accepts_gzip(request: &Request) -> bool {
    let Some(accepted) = request.header("accept-encoding") else {
        return false;
    };
    accepted.split(',').any(|coding| {
        let mut parts = coding.split(';');
        let named = parts
            .next()
            .is_some_and(|name| name.trim().eq_ignore_ascii_case("gzip"));
        let refused = parts.any(|part| matches!(part.trim(), "q=0" | "q=0.0" | "q=0.00" | "q=0.000"));
        named && !refused
    })
}

async fn gzip(request: &Request, opened: &Opened, att: &Attachment) -> Handled {
    let stored = opened.stored(0, u64::MAX).await?;
    let mut response = if accepts_gzip(request) {
        let mut response = with_body(200, att, reply::sized_body(att.att_len, stored));
        response
            .headers_mut()
            .insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        response
    } else if att.disk_len != att.att_len {
        with_body(200, att, reply::sized_body(att.disk_len, unpack(stored)))
    } else {
        // A client stored these bytes packed, so nobody knows how long they are.
        with_body(200, att, reply::stream_body(unpack(stored)))
    };
    reply::set_accept_ranges(&mut response, "none");
    Ok(response)
}

/// Unpacks a gzip stream chunk by chunk.
fn unpack(
    stored: impl Stream<Item = Result<Bytes, HttpError>> + 'static,
) -> impl Stream<Item = Result<Bytes, HttpError>> + 'static {
    let damaged = |_| HttpError::new(500, "corrupt_data", "the attachment's gzip stream is damaged");
    let decoder = flate2::write::MultiGzDecoder::new(Vec::new());
    stream::try_unfold(
        (Box::pin(stored), Some(decoder)),
        move |(mut stored, decoder)| async move {
            let Some(mut decoder) = decoder else {
                return Ok(None);
            };
            match stored.next().await.transpose()? {
                Some(chunk) => {
                    decoder.write_all(&chunk).map_err(damaged)?;
                    let ready = Bytes::from(std::mem::take(decoder.get_mut()));
                    Ok(Some((ready, (stored, Some(decoder)))))
                }
                None => {
                    decoder.try_finish().map_err(damaged)?;
                    let rest = Bytes::from(std::mem::take(decoder.get_mut()));
                    Ok(Some((rest, (stored, None))))
                }
            }
        },
    )
}

/// The document that a write of one attachment changes: the revision that the request names, or a new one.
async fn base(
    request: &Request,
    db: &DbName,
    id: &DocId,
    deletes: Option<&str>,
) -> Result<DocEdit, HttpError> {
    let Some(rev) = document::request_rev(request)? else {
        if let Some(name) = deletes {
            let current = request
                .app
                .coordinator
                .open_doc(db, id, &OpenDoc::default())
                .await?;
            if !current.doc.atts.iter().any(|att| att.name == name) {
                return Err(no_attachment());
            }
        }
        let mut edit = body::parse_at(request, &Bytes::from_static(b"{}"), id)?;
        edit.revs = RevPath::default();
        return Ok(edit);
    };
    let found = request
        .app
        .coordinator
        .open_revs(db, id, OpenRevs::List(vec![rev]), false)
        .await?;
    match found.into_iter().next() {
        Some(Ok(opened)) => {
            if deletes.is_some_and(|name| !opened.doc.atts.iter().any(|att| att.name == name)) {
                return Err(no_attachment());
            }
            Ok(body::edit_of(opened.doc))
        }
        Some(Err(_)) | None => Err(HttpError::conflict()),
    }
}

async fn put(request: &Request, db: &DbName, id: &DocId, name: &str) -> Handled {
    upload::check_name(name)?;
    if id.is_local() {
        return Err(DocError::LocalAttachments.into());
    }
    let encoding = match request
        .header("content-encoding")
        .map(|coding| coding.trim().to_ascii_lowercase())
        .as_deref()
    {
        None | Some("identity") => Encoding::Identity,
        Some("gzip") => Encoding::Gzip,
        Some(_) => {
            let reason = "Only gzip and identity content-encodings are supported";
            return Err(HttpError::new(415, "bad_content_type", reason));
        }
    };
    let max = request.settings.couchdb.max_attachment_size.get();
    if request.content_length()?.is_some_and(|length| length > max) {
        return Err(HttpError::attachment_too_large(name.to_owned()));
    }
    let mut edit = base(request, db, id, None).await?;
    let content_type = request
        .header("content-type")
        .unwrap_or("application/octet-stream")
        .to_owned();
    let announced = Announced {
        encoding,
        att_len: request.content_length()?,
        ..Announced::default()
    };
    let mut sink = request
        .app
        .coordinator
        .attachment_sink(db, id, name, &content_type, announced)
        .await?;
    let mut chunks = request.body_stream();
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk?;
        if sink.len().saturating_add(chunk.len() as u64) > max {
            return Err(HttpError::attachment_too_large(name.to_owned()));
        }
        sink.write(&chunk).await?;
    }
    let (mut stored, _until_written) = sink.finish().await?;
    stored.revpos = edit.revs.start.saturating_add(1);
    edit.atts.retain(|att| att.name != name);
    edit.atts.insert(0, EditAttachment::stored(stored));
    let updated = document::write_one(request, db, edit, document::update_options(request)).await?;
    let code = if updated.accepted { 202 } else { 201 };
    let path: [&[u8]; 3] = [db.as_str().as_bytes(), id.as_bytes(), name.as_bytes()];
    Ok(document::written(request, code, id, &updated.rev, Some(&path)))
}

async fn delete(request: &Request, db: &DbName, id: &DocId, name: &str) -> Handled {
    let mut edit = base(request, db, id, Some(name)).await?;
    edit.atts.retain(|att| att.name != name);
    let updated = document::write_one(request, db, edit, document::update_options(request)).await?;
    Ok(document::written(request, 200, id, &updated.rev, None))
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    #[test]
    fn gzip_is_unpacked_chunk_by_chunk() {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        let text = b"hello ".repeat(1000);
        encoder.write_all(&text).expect("memory");
        let packed = encoder.finish().expect("memory");
        let chunks: Vec<_> = packed
            .chunks(7)
            .map(|chunk| Ok(Bytes::copy_from_slice(chunk)))
            .collect();
        let parts = unpack(stream::iter(chunks))
            .collect::<Vec<_>>()
            .now_or_never()
            .expect("ready");
        let whole: Vec<u8> = parts.into_iter().flat_map(|part| part.expect("good")).collect();
        assert_eq!(whole, text);
        let cut = vec![Ok(Bytes::copy_from_slice(&packed[..packed.len() / 2]))];
        let parts = unpack(stream::iter(cut))
            .collect::<Vec<_>>()
            .now_or_never()
            .expect("ready");
        assert!(parts.iter().any(Result::is_err));
    }
}
