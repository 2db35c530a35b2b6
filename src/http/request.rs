//! One request on its way through: method, decoded path and query, user, body.

use std::cell::{Cell, RefCell};
use std::io::Read;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use actix_web::http::Method;
use actix_web::http::header::{CONTENT_LENGTH, HeaderName, TRANSFER_ENCODING};
use actix_web::{HttpRequest, web};
use bytes::{Bytes, BytesMut};
use futures_util::{Stream, StreamExt};

use crate::auth::UserCtx;
use crate::config::Settings;

use super::App;
use super::error::HttpError;
use super::outside;
use super::params::Query;
use super::reply::RequestId;

/// Room that is set aside before the first byte of a body has come, in bytes.
const BODY_CAPACITY_FIRST: u64 = 64 * 1024;

/// A request method, after `X-HTTP-Method-Override`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    /// GET
    Get,
    /// HEAD: handled as GET, the body is dropped.
    Head,
    /// POST
    Post,
    /// PUT
    Put,
    /// DELETE
    Delete,
    /// COPY
    Copy,
    /// OPTIONS
    Options,
    /// Anything else.
    Other,
}

impl Verb {
    /// The verb of a request. The override counts on POST only.
    pub fn of(method: &Method, instead: Option<&str>) -> Self {
        let real = Self::named(method.as_str());
        match (real, instead.map(Self::named)) {
            (Self::Post, Some(verb)) if !matches!(verb, Self::Other | Self::Options) => verb,
            _ => real,
        }
    }

    fn named(name: &str) -> Self {
        match name {
            "GET" => Self::Get,
            "HEAD" => Self::Head,
            "POST" => Self::Post,
            "PUT" => Self::Put,
            "DELETE" => Self::Delete,
            "COPY" => Self::Copy,
            "OPTIONS" => Self::Options,
            // nano sends COPY in lower case, which its HTTP client leaves as it is.
            other if other.eq_ignore_ascii_case("COPY") => Self::Copy,
            _ => Self::Other,
        }
    }

    /// GET or HEAD.
    pub fn reads(self) -> bool {
        matches!(self, Self::Get | Self::Head)
    }
}

/// Everything about one request that handlers need.
pub struct Request {
    /// What the server shares between requests.
    pub app: Arc<App>,
    /// The settings as they were when the request came.
    pub settings: Arc<Settings>,
    /// Headers, peer and raw URI.
    pub http: HttpRequest,
    /// The method.
    pub verb: Verb,
    /// Decoded query parameters.
    pub query: Query,
    /// Who asks.
    pub user: UserCtx,
    /// How that was found out, as `_session` names it.
    pub handler: Option<&'static str>,
    /// Names the request in the log and in the reply.
    pub id: RequestId,
    /// The body until somebody takes it.
    pub payload: RefCell<Option<web::Payload>>,
    /// How long reading the body took.
    pub body_time: Rc<Cell<Duration>>,
}

impl Request {
    /// The body, when nobody has taken it.
    pub fn take_payload(&self) -> Option<web::Payload> {
        self.payload.borrow_mut().take()
    }

    /// A header as text.
    pub fn header(&self, name: &str) -> Option<&str> {
        header(&self.http, name)
    }

    /// Refuses other methods than those of `allowed`, which is also what the reply lists.
    ///
    /// # Errors
    /// 405.
    pub fn allow(&self, allowed: &'static str) -> Result<(), HttpError> {
        let name = match self.verb {
            Verb::Get => "GET",
            Verb::Head => "HEAD",
            Verb::Post => "POST",
            Verb::Put => "PUT",
            Verb::Delete => "DELETE",
            Verb::Copy => "COPY",
            Verb::Options | Verb::Other => "",
        };
        if allowed.split(',').any(|method| method == name) {
            Ok(())
        } else {
            Err(HttpError::method_not_allowed(allowed))
        }
    }

    /// Refuses a body that is not declared as JSON.
    ///
    /// # Errors
    /// 415.
    pub fn require_json(&self) -> Result<(), HttpError> {
        if self.media_type().eq_ignore_ascii_case("application/json") {
            Ok(())
        } else {
            Err(HttpError::not_json())
        }
    }

    /// The content type without its parameters.
    pub fn media_type(&self) -> &str {
        let value = self.header("content-type").unwrap_or_default();
        value.split(';').next().unwrap_or_default().trim()
    }

    /// Whether `Accept` names `wanted` in so many letters.
    pub fn accepts(&self, wanted: &str) -> bool {
        self.header("accept")
            .is_some_and(|accept| accept.contains(wanted))
    }

    /// The declared length of the body, if any.
    ///
    /// # Errors
    /// 400 for a length that is no number.
    pub fn content_length(&self) -> Result<Option<u64>, HttpError> {
        match self.http.headers().get(CONTENT_LENGTH) {
            None => Ok(None),
            Some(value) => {
                let number = value.to_str().ok().and_then(|text| text.trim().parse().ok());
                number
                    .map(Some)
                    .ok_or_else(|| HttpError::bad_request("Invalid Content-Length"))
            }
        }
    }

    /// Whether the request has a body at all, be it an empty one.
    pub fn has_body(&self) -> bool {
        let headers = self.http.headers();
        headers.contains_key(CONTENT_LENGTH) || headers.contains_key(TRANSFER_ENCODING)
    }

    /// The whole body, unpacked when it is gzip.
    ///
    /// # Errors
    /// 400 without a body or with bad gzip, 413 over `[chttpd] max_http_request_size`, 415 for other codings.
    pub async fn body(&self) -> Result<Bytes, HttpError> {
        let limit = self.settings.chttpd.max_http_request_size;
        if !self.has_body() {
            return Err(HttpError::bad_request("Missing request body"));
        }
        let length = self.content_length()?;
        if length.is_some_and(|length| length > limit) {
            return Err(HttpError::request_too_large());
        }
        let started = outside::now();
        let mut chunks = self.body_stream();
        let first = chunks.next().await.transpose()?;
        let body = match (first, length) {
            (None, _) => Bytes::new(),
            // The usual small body: it came in one piece and needs no copy.
            (Some(first), Some(length)) if first.len() as u64 == length => first,
            (Some(first), length) => {
                let capacity = length
                    .unwrap_or(0)
                    .clamp(first.len() as u64, BODY_CAPACITY_FIRST.max(first.len() as u64));
                let mut body = BytesMut::with_capacity(capacity as usize);
                body.extend_from_slice(&first);
                while let Some(chunk) = chunks.next().await {
                    let chunk = chunk?;
                    if (body.len() + chunk.len()) as u64 > limit {
                        return Err(HttpError::request_too_large());
                    }
                    body.extend_from_slice(&chunk);
                }
                body.freeze()
            }
        };
        self.body_time.set(self.body_time.get() + started.elapsed());
        match self.header("content-encoding") {
            None => Ok(body),
            Some(coding) if coding.eq_ignore_ascii_case("identity") => Ok(body),
            Some(coding) if coding.eq_ignore_ascii_case("gzip") => gunzip(body, limit).await,
            Some(coding) => {
                let reason = format!("{coding} is not a supported content encoding.");
                Err(HttpError::new(415, "bad_content_type", reason))
            }
        }
    }

    /// The body as a small JSON object.
    ///
    /// # Errors
    /// As [`Request::body`], and 400 for anything that is no JSON object.
    pub async fn body_object(&self) -> Result<serde_json::Map<String, serde_json::Value>, HttpError> {
        match self.body_json().await? {
            serde_json::Value::Object(members) => Ok(members),
            _ => Err(HttpError::bad_request("Request body must be a JSON object")),
        }
    }

    /// The body as a small JSON value.
    ///
    /// # Errors
    /// As [`Request::body`], and 400 for bad JSON.
    pub async fn body_json(&self) -> Result<serde_json::Value, HttpError> {
        let body = self.body().await?;
        serde_json::from_slice(&body).map_err(|_| HttpError::invalid_json())
    }

    /// The body as chunks, as they come, in whatever coding. Empty when it has been taken already.
    pub fn body_stream(&self) -> impl Stream<Item = Result<Bytes, HttpError>> + Unpin + 'static + use<> {
        let payload = self.payload.borrow_mut().take();
        futures_util::stream::iter(payload).flatten().map(|chunk| {
            chunk.map_err(|error| {
                let mut error = HttpError::bad_request(format!("request body ended early: {error}"));
                error.close = true;
                error
            })
        })
    }

    /// Scheme and host as the client sees them.
    pub fn origin(&self) -> String {
        let host = self
            .header("x-forwarded-host")
            .or_else(|| self.header("host"))
            .unwrap_or("127.0.0.1");
        let secure = self.header("x-forwarded-ssl") == Some("on");
        let scheme = if secure {
            "https"
        } else {
            self.header("x-forwarded-proto").unwrap_or("http")
        };
        let scheme = if scheme == "https" { "https" } else { "http" };
        format!("{scheme}://{host}")
    }

    /// Whether `If-None-Match` names this (quoted) ETag, or any.
    pub fn etag_matches(&self, etag: &str) -> bool {
        let Some(sent) = self.header("if-none-match") else {
            return false;
        };
        sent.split(',')
            .map(str::trim)
            .any(|one| one == etag || one == "*" || one.strip_prefix("W/") == Some(etag))
    }
}

/// A header of a request as text.
pub fn header<'a>(http: &'a HttpRequest, name: &str) -> Option<&'a str> {
    http.headers().get(name).and_then(|value| value.to_str().ok())
}

/// A header of a request as text, by its constant name.
pub fn known_header(http: &HttpRequest, name: HeaderName) -> Option<&str> {
    http.headers().get(name).and_then(|value| value.to_str().ok())
}

/// Unpacks a gzip body on a blocking thread.
async fn gunzip(body: Bytes, limit: u64) -> Result<Bytes, HttpError> {
    web::block(move || {
        let mut out = Vec::new();
        let mut reader = flate2::read::MultiGzDecoder::new(&*body).take(limit.saturating_add(1));
        match reader.read_to_end(&mut out) {
            Ok(_) if out.len() as u64 > limit => Err(HttpError::request_too_large()),
            Ok(_) => Ok(Bytes::from(out)),
            Err(_) => Err(HttpError::bad_request("Request body is not properly gzipped.")),
        }
    })
    .await
    .unwrap_or_else(|_| Err(HttpError::internal("a blocking task was cancelled")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_method_override_counts_on_post_only() {
        assert_eq!(Verb::of(&Method::POST, Some("PUT")), Verb::Put);
        assert_eq!(Verb::of(&Method::POST, Some("COPY")), Verb::Copy);
        assert_eq!(Verb::of(&Method::GET, Some("DELETE")), Verb::Get);
        assert_eq!(Verb::of(&Method::POST, Some("PATCH")), Verb::Post);
        assert_eq!(Verb::of(&Method::POST, Some("OPTIONS")), Verb::Post);
        assert_eq!(
            Verb::of(&Method::from_bytes(b"COPY").expect("a method"), None),
            Verb::Copy
        );
        assert!(Verb::Head.reads() && !Verb::Post.reads());
    }

    #[actix_rt::test]
    async fn gzip_bodies_are_unpacked_within_the_limit() {
        use std::io::Write;
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        encoder.write_all(&[b'a'; 1000]).expect("memory");
        let packed = Bytes::from(encoder.finish().expect("memory"));
        assert_eq!(gunzip(packed.clone(), 1000).await.expect("good").len(), 1000);
        assert_eq!(gunzip(packed, 999).await.expect_err("too large").status, 413);
        let error = gunzip(Bytes::from_static(b"junk"), 10)
            .await
            .expect_err("no gzip");
        assert_eq!(
            error.reason.as_deref(),
            Some("Request body is not properly gzipped.")
        );
    }
}
