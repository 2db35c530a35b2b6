//! Replies: status, headers and bodies as CouchDB sends them.

use std::time::Duration;

use actix_web::HttpResponse;
use actix_web::body::{BodySize, BoxBody, MessageBody, SizedStream};
use actix_web::http::StatusCode;
use actix_web::http::header::{
    ACCEPT_RANGES, CACHE_CONTROL, CONTENT_TYPE, ETAG, HeaderMap, HeaderName, HeaderValue, LOCATION, SERVER,
};
use bytes::Bytes;
use futures_util::Stream;

use super::error::HttpError;
use super::outside;

/// The CouchDB release whose API this is.
pub const COUCHDB_VERSION: &str = "3.5.2";

/// Value of `Server` with `[chttpd] server_header_versions=true`.
const SERVER_WITH_VERSIONS: &str = concat!("CouchDB/3.5.2 (settee/", env!("CARGO_PKG_VERSION"), ")");

/// Length of a request id, in hex digits.
const REQUEST_ID_LEN: usize = 10;
/// Longest request id that a client may choose.
const REQUEST_ID_MAX: usize = 36;

/// Media type of all JSON replies.
pub const JSON: HeaderValue = HeaderValue::from_static("application/json");
const MUST_REVALIDATE: HeaderValue = HeaderValue::from_static("must-revalidate");
/// Names the request, in both directions.
pub const X_COUCH_REQUEST_ID: HeaderName = HeaderName::from_static("x-couch-request-id");
const X_COUCHDB_BODY_TIME: HeaderName = HeaderName::from_static("x-couchdb-body-time");

/// What a handler gives back.
pub type Handled = Result<HttpResponse, HttpError>;

/// The id of one request, in its log lines and in `X-Couch-Request-Id`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestId(String);

impl RequestId {
    /// The client's own id when it is a usable one, otherwise a fresh one.
    pub fn choose(sent: Option<&HeaderValue>) -> Self {
        if let Some(text) = sent.and_then(|value| value.to_str().ok()) {
            let usable = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
            if !text.is_empty() && text.len() <= REQUEST_ID_MAX && text.bytes().all(usable) {
                return Self(text.to_owned());
            }
        }
        let number = outside::random_bits() as u64;
        Self(format!(
            "{:0width$x}",
            number & ((1 << (4 * REQUEST_ID_LEN)) - 1),
            width = REQUEST_ID_LEN
        ))
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

fn status(code: u16) -> StatusCode {
    StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
}

/// A reply without any header.
pub fn bare(code: u16, body: impl Into<Bytes>) -> HttpResponse {
    let mut response = HttpResponse::with_body(status(code), BoxBody::new(body.into()));
    let reason = match code {
        404 => Some("Object Not Found"),
        302 => Some("Moved Temporarily"),
        _ => None,
    };
    let head = response.head_mut();
    head.reason = reason;
    head.set_camel_case_headers(true);
    response
}

/// A JSON reply; `body` already ends in its line feed.
pub fn json(code: u16, body: impl Into<Bytes>) -> HttpResponse {
    let mut response = bare(code, body);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, JSON);
    headers.insert(CACHE_CONTROL, MUST_REVALIDATE);
    response
}

/// A JSON reply made of a small value.
pub fn json_value(code: u16, value: &serde_json::Value) -> HttpResponse {
    let mut body = value.to_string().into_bytes();
    body.push(b'\n');
    json(code, body)
}

/// `{"ok":true}`
pub fn ok(code: u16) -> HttpResponse {
    json(code, Bytes::from_static(b"{\"ok\":true}\n"))
}

/// A streamed JSON reply.
pub fn json_stream<S>(code: u16, stream: S) -> HttpResponse
where
    S: Stream<Item = Result<Bytes, HttpError>> + 'static,
{
    let mut response = bare(code, Bytes::new()).set_body(stream_body(stream));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, JSON);
    headers.insert(CACHE_CONTROL, MUST_REVALIDATE);
    response
}

/// A reply body of unknown length.
pub fn stream_body<S>(stream: S) -> BoxBody
where
    S: Stream<Item = Result<Bytes, HttpError>> + 'static,
{
    use actix_web::body::BodyStream;
    use futures_util::TryStreamExt;
    BoxBody::new(BodyStream::new(Box::pin(stream.map_err(StreamFailure))))
}

/// A reply body of known length.
pub fn sized_body<S>(length: u64, stream: S) -> BoxBody
where
    S: Stream<Item = Result<Bytes, HttpError>> + 'static,
{
    use futures_util::TryStreamExt;
    BoxBody::new(SizedStream::new(length, Box::pin(stream.map_err(StreamFailure))))
}

/// An error behind the status line: the connection is closed without the end of the body, which is all that can be
/// told then.
#[derive(Debug)]
struct StreamFailure(HttpError);

impl std::fmt::Display for StreamFailure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{}: {}",
            self.0.error,
            self.0.reason.as_deref().unwrap_or_default()
        )
    }
}

impl std::error::Error for StreamFailure {}

/// The reply to a refused request.
pub fn error(error: &HttpError) -> HttpResponse {
    let mut response = json(error.status, error.body());
    for (name, value) in &error.headers {
        set(response.headers_mut(), name, value);
    }
    if let Some(number) = error.reference() {
        set(response.headers_mut(), "x-couch-stack-hash", &number.to_string());
    }
    if error.close {
        response
            .head_mut()
            .set_connection_type(actix_web::http::ConnectionType::Close);
    }
    response
}

/// 304 with an ETag (already quoted) and no body.
pub fn not_modified(etag: &str) -> HttpResponse {
    let mut response = bare(304, Bytes::new());
    set_etag(&mut response, etag);
    response.headers_mut().insert(
        actix_web::http::header::CONTENT_LENGTH,
        HeaderValue::from_static("0"),
    );
    response
}

/// Sets any header; a value that no header may carry is left out.
pub fn set(headers: &mut HeaderMap, name: &str, value: &str) {
    let name = HeaderName::try_from(name);
    let value = HeaderValue::try_from(value);
    if let (Ok(name), Ok(value)) = (name, value) {
        headers.insert(name, value);
    }
}

/// Sets `ETag` to an already quoted value.
pub fn set_etag(response: &mut HttpResponse, etag: &str) {
    if let Ok(value) = HeaderValue::try_from(etag) {
        response.headers_mut().insert(ETAG, value);
    }
}

/// Sets `Location`.
pub fn set_location(response: &mut HttpResponse, location: &str) {
    if let Ok(value) = HeaderValue::try_from(location) {
        response.headers_mut().insert(LOCATION, value);
    }
}

/// Sets `Accept-Ranges`.
pub fn set_accept_ranges(response: &mut HttpResponse, value: &'static str) {
    response
        .headers_mut()
        .insert(ACCEPT_RANGES, HeaderValue::from_static(value));
}

/// Adds what every reply carries.
pub fn finish(response: &mut HttpResponse, id: Option<&RequestId>, body_time: Duration, versions: bool) {
    let headers = response.headers_mut();
    headers.insert(
        SERVER,
        HeaderValue::from_static(if versions { SERVER_WITH_VERSIONS } else { "CouchDB" }),
    );
    if let Some(id) = id {
        if let Ok(value) = HeaderValue::try_from(id.as_str()) {
            headers.insert(X_COUCH_REQUEST_ID, value);
        }
        let value = match body_time.as_millis() {
            0 => HeaderValue::from_static("0"),
            ms => HeaderValue::from(u64::try_from(ms).unwrap_or(u64::MAX)),
        };
        headers.insert(X_COUCHDB_BODY_TIME, value);
    }
}

/// Headers that `Prefer: return=minimal` leaves.
const MINIMAL: &[&str] = &[
    "cache-control",
    "content-length",
    "content-range",
    "content-type",
    "etag",
    "server",
    "transfer-encoding",
    "vary",
];

/// Drops the headers that a client with `Prefer: return=minimal` does not want.
pub fn minimize(response: &mut HttpResponse) {
    response
        .headers_mut()
        .retain(|name, _| MINIMAL.contains(&name.as_str()));
}

/// For HEAD: a body of unknown length becomes an empty one, so that nothing is streamed for nobody.
pub fn for_head(response: HttpResponse) -> HttpResponse {
    match response.body().size() {
        BodySize::Stream => response.set_body(BoxBody::new(Bytes::new())),
        _ => response,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clients_request_id_is_kept_when_usable() {
        let choose = |text: &'static str| RequestId::choose(Some(&HeaderValue::from_static(text)));
        assert_eq!(choose("abc_D-9").as_str(), "abc_D-9");
        for bad in ["", "a b", "0123456789012345678901234567890123456"] {
            let id = choose(bad);
            assert_eq!(id.as_str().len(), REQUEST_ID_LEN);
            assert!(id.as_str().bytes().all(|digit| digit.is_ascii_hexdigit()));
        }
        assert_ne!(RequestId::choose(None), RequestId::choose(None));
    }

    #[test]
    fn errors_carry_their_headers() {
        let response = error(&HttpError::method_not_allowed("GET,HEAD"));
        assert_eq!(response.status().as_u16(), 405);
        assert_eq!(
            response.headers().get("allow").map(HeaderValue::as_bytes),
            Some(&b"GET,HEAD"[..])
        );
        assert_eq!(
            error(&HttpError::not_found("missing")).head().reason(),
            "Object Not Found"
        );
    }

    #[test]
    fn minimal_replies_keep_only_what_matters() {
        let mut response = ok(200);
        finish(
            &mut response,
            Some(&RequestId::choose(None)),
            Duration::ZERO,
            true,
        );
        minimize(&mut response);
        assert!(response.headers().get("x-couch-request-id").is_none());
        assert!(response.headers().get("server").is_some());
    }
}
