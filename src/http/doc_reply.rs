//! Replies that carry documents with their attachments: inline in JSON, or behind it as parts of a multipart body.

use std::sync::Arc;

use actix_web::HttpResponse;
use actix_web::http::header::{CONTENT_TYPE, HeaderValue};
use bytes::Bytes;
use futures_util::{Stream, StreamExt, stream};
use settee_actors::coordinator::OpenedDoc;
use settee_engine::doc::{AttachmentData, Encoding};
use settee_engine::ids::DbName;

use super::App;
use super::body::{self, Shape, Wanted};
use super::document::parse_rev;
use super::error::HttpError;
use super::multipart::fresh_boundary;
use super::reply::{self, Handled};
use super::request::Request;

/// A piece of a reply: bytes at hand, or an attachment that is still to be read.
pub enum Piece {
    /// Ready bytes.
    Bytes(Vec<u8>),
    /// The stored bytes of one attachment of a document.
    Attachment(Arc<OpenedDoc>, usize),
}

/// Which attachments the query wants in full.
///
/// # Errors
/// 400 for a bad list of revisions.
pub fn wanted(request: &Request) -> Result<Wanted, HttpError> {
    if let Some(text) = request.query.get("atts_since") {
        let value: serde_json::Value = serde_json::from_str(text).map_err(|_| HttpError::invalid_json())?;
        return revs_of(&value).map(Wanted::Since);
    }
    Ok(if request.query.is_true("attachments") {
        Wanted::All
    } else {
        Wanted::Stubs
    })
}

/// Reads a JSON list of revisions.
///
/// # Errors
/// 400.
pub fn revs_of(value: &serde_json::Value) -> Result<Vec<settee_engine::ids::Rev>, HttpError> {
    let list = value
        .as_array()
        .ok_or_else(|| HttpError::bad_request("att_since value must be array of revs."))?;
    list.iter()
        .map(|rev| parse_rev(rev.as_str().unwrap_or_default()))
        .collect()
}

/// Answers with one document.
///
/// # Errors
/// What reading attachments met.
pub async fn one(request: &Request, db: &DbName, opened: OpenedDoc) -> Handled {
    let shape = if request.query.is_empty() {
        Shape::default()
    } else {
        Shape::of(request)
    };
    let wanted = if request.query.is_empty() {
        Wanted::Stubs
    } else {
        wanted(request)?
    };
    if opened.doc.atts.is_empty() || matches!(wanted, Wanted::Stubs) {
        let mut out = Vec::with_capacity(opened.doc.body.len() + 128);
        body::write_stubs(&opened, shape, &mut out)?;
        out.push(b'\n');
        return Ok(reply::json(200, out));
    }
    Box::pin(with_data(request, db, opened, shape, &wanted)).await
}

/// Answers with one document and the data of its attachments.
async fn with_data(
    request: &Request,
    db: &DbName,
    opened: OpenedDoc,
    shape: Shape,
    wanted: &Wanted,
) -> Handled {
    let chosen = wanted.choose(&opened.doc);
    if request.accepts("application/json") {
        let inline = body::inline(request, db, &opened, &chosen).await?;
        let mut out = Vec::new();
        body::write_inline(&opened, shape, &inline, &mut out)?;
        out.push(b'\n');
        return Ok(reply::json(200, out));
    }
    let boundary = fresh_boundary();
    let part = with_attachments(Arc::new(opened), shape, &chosen, &boundary)?;
    let mut response = reply::bare(200, Bytes::new());
    response = response.set_body(reply::sized_body(
        part.length,
        read_pieces(request.app.clone(), db.clone(), part.pieces),
    ));
    set_content_type(&mut response, &part.content_type);
    Ok(response)
}

/// Sets a content type that may carry a boundary.
pub fn set_content_type(response: &mut HttpResponse, content_type: &str) {
    let fallback = || HeaderValue::from_static("application/octet-stream");
    let value = HeaderValue::try_from(content_type).unwrap_or_else(|_| fallback());
    response.headers_mut().insert(CONTENT_TYPE, value);
}

/// A document with the attachments behind it.
pub struct DocumentPart {
    /// `application/json` when there is nothing behind it, otherwise `multipart/related` with its boundary.
    pub content_type: String,
    /// Length of all pieces in bytes.
    pub length: u64,
    /// What is sent.
    pub pieces: Vec<Piece>,
}

/// Frames a document and its chosen attachments.
///
/// # Errors
/// 500 for damaged bytes.
pub fn with_attachments(
    opened: Arc<OpenedDoc>,
    shape: Shape,
    chosen: &[bool],
    boundary: &str,
) -> Result<DocumentPart, HttpError> {
    let shape = Shape {
        att_encoding_info: true,
        ..shape
    };
    let mut json = Vec::new();
    body::write(&opened, shape, &mut json, |index, _| match chosen.get(index) {
        Some(true) => AttachmentData::Follows,
        _ => AttachmentData::Stub,
    })?;
    if !chosen.contains(&true) {
        let content_type = "application/json".to_owned();
        return Ok(DocumentPart {
            content_type,
            length: json.len() as u64,
            pieces: vec![Piece::Bytes(json)],
        });
    }
    let mut out = format!("--{boundary}\r\nContent-Type: application/json\r\n\r\n").into_bytes();
    out.extend_from_slice(&json);
    let mut pieces = Vec::new();
    let mut length = 0;
    for (index, att) in opened.doc.atts.iter().enumerate() {
        if chosen.get(index) != Some(&true) {
            continue;
        }
        let encoding = if att.encoding == Encoding::Gzip {
            "\r\nContent-Encoding: gzip"
        } else {
            ""
        };
        let head = format!(
            "\r\n--{boundary}\r\nContent-Disposition: attachment; filename=\"{}\"\r\nContent-Type: {}\r\nContent-Length: {}{encoding}\r\n\r\n",
            header_text(&att.name),
            header_text(&att.content_type),
            att.att_len,
        );
        out.extend_from_slice(head.as_bytes());
        length += out.len() as u64 + att.att_len;
        pieces.push(Piece::Bytes(std::mem::take(&mut out)));
        pieces.push(Piece::Attachment(opened.clone(), index));
    }
    out.extend_from_slice(format!("\r\n--{boundary}--").as_bytes());
    length += out.len() as u64;
    pieces.push(Piece::Bytes(out));
    Ok(DocumentPart {
        content_type: format!("multipart/related; boundary=\"{boundary}\""),
        length,
        pieces,
    })
}

/// Text of a document that goes into a header of a part: it may not end the line or the quotes.
pub fn header_text(text: &str) -> String {
    text.chars()
        .filter(|character| !matches!(character, '\r' | '\n' | '"'))
        .collect()
}

/// The bytes of pieces, attachments read as the client takes them.
pub fn read_pieces(
    app: Arc<App>,
    db: DbName,
    pieces: Vec<Piece>,
) -> impl Stream<Item = Result<Bytes, HttpError>> + 'static {
    stream::iter(pieces)
        .then(move |piece| {
            let (app, db) = (app.clone(), db.clone());
            async move {
                match piece {
                    Piece::Bytes(bytes) => stream::iter([Ok(Bytes::from(bytes))]).left_stream(),
                    Piece::Attachment(opened, index) => {
                        match app.coordinator.attachment(&db, &opened, index).await {
                            Ok(chunks) => chunks.map(|chunk| chunk.map_err(HttpError::from)).right_stream(),
                            Err(error) => stream::iter([Err(HttpError::from(error))]).left_stream(),
                        }
                    }
                }
            }
        })
        .flatten()
}
