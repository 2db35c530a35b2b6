//! `GET /db/{id}?open_revs=…`

use std::sync::Arc;

use bytes::Bytes;
use serde_json::Value;
use settee_actors::coordinator::{OpenRevs, OpenedDoc};
use settee_engine::ids::{DbName, DocId, Rev};

use super::body::{self, Shape};
use super::doc_reply::{self, Piece, read_pieces, with_attachments};
use super::document::{parse_rev, rev_text};
use super::error::{HttpError, write_json_string};
use super::multipart::fresh_boundary;
use super::reply::{self, Handled};
use super::request::Request;

/// Handles a GET with `open_revs`.
pub async fn handle(request: &Request, db: &DbName, id: &DocId, which: &str) -> Handled {
    let which = read(which)?;
    let latest = request.query.is_true("latest");
    let found = request.app.coordinator.open_revs(db, id, which, latest).await?;
    if request.accepts("application/json") {
        json(request, db, found).await
    } else {
        multipart(request, db, found)
    }
}

fn read(text: &str) -> Result<OpenRevs, HttpError> {
    if text == "all" {
        return Ok(OpenRevs::All);
    }
    let value: Value = serde_json::from_str(text).map_err(|_| HttpError::invalid_json())?;
    let list = value
        .as_array()
        .ok_or_else(|| HttpError::bad_request("`open_revs` must be `all` or a list"))?;
    let revs: Result<_, _> = list
        .iter()
        .map(|rev| parse_rev(rev.as_str().unwrap_or_default()))
        .collect();
    revs.map(OpenRevs::List)
}

async fn json(request: &Request, db: &DbName, found: Vec<Result<OpenedDoc, Rev>>) -> Handled {
    let shape = Shape::of(request);
    let wanted = doc_reply::wanted(request)?;
    let mut out = b"[".to_vec();
    for (index, result) in found.into_iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        match result {
            Ok(opened) => {
                out.extend_from_slice(b"{\"ok\":");
                let chosen = wanted.choose(&opened.doc);
                let inline = body::inline(request, db, &opened, &chosen).await?;
                body::write_inline(&opened, shape, &inline, &mut out)?;
            }
            Err(rev) => {
                out.extend_from_slice(b"{\"missing\":");
                write_json_string(&mut out, &rev_text(&rev));
            }
        }
        out.push(b'}');
    }
    out.extend_from_slice(b"]\n");
    Ok(reply::json(200, out))
}

/// Every document is a part, with its attachments nested in it.
fn multipart(request: &Request, db: &DbName, found: Vec<Result<OpenedDoc, Rev>>) -> Handled {
    let shape = Shape::of(request);
    let wanted = match doc_reply::wanted(request)? {
        body::Wanted::Stubs => body::Wanted::All,
        other => other,
    };
    let (outer, inner) = (fresh_boundary(), fresh_boundary());
    let mut pieces = vec![Piece::Bytes(format!("--{outer}").into_bytes())];
    for result in found {
        match result {
            Ok(opened) => {
                let chosen = wanted.choose(&opened.doc);
                let part = with_attachments(Arc::new(opened), shape, &chosen, &inner)?;
                pieces.push(Piece::Bytes(
                    format!("\r\nContent-Type: {}\r\n\r\n", part.content_type).into_bytes(),
                ));
                pieces.extend(part.pieces);
            }
            Err(rev) => {
                let mut out =
                    b"\r\nContent-Type: application/json; error=\"true\"\r\n\r\n{\"missing\":".to_vec();
                write_json_string(&mut out, &rev_text(&rev));
                out.push(b'}');
                pieces.push(Piece::Bytes(out));
            }
        }
        pieces.push(Piece::Bytes(format!("\r\n--{outer}").into_bytes()));
    }
    pieces.push(Piece::Bytes(b"--".to_vec()));
    let mut response = reply::bare(200, Bytes::new());
    response = response.set_body(reply::stream_body(read_pieces(
        request.app.clone(),
        db.clone(),
        pieces,
    )));
    doc_reply::set_content_type(&mut response, &format!("multipart/mixed; boundary=\"{outer}\""));
    Ok(response)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn open_revs_is_all_or_a_list() {
        assert!(matches!(read("all"), Ok(OpenRevs::All)));
        assert!(matches!(read("[\"1-a\",\"2-b\"]"), Ok(OpenRevs::List(revs)) if revs.len() == 2));
        for bad in ["x", "{}", "[1]", "[\"a\"]"] {
            assert_eq!(
                read(bad).map(|_| ()).map_err(|error| error.status),
                Err(400),
                "{bad}"
            );
        }
    }
}
