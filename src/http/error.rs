//! The one table from what went wrong to CouchDB's status, `error` word and `reason`.
//!
//! Nothing below this folder knows HTTP. Whatever a coordinator call, a parser or a check reports becomes an
//! [`HttpError`] here, and an [`HttpError`] becomes exactly one reply body: `{"error":..,"reason":..}` and a line feed.

use std::borrow::Cow;
use std::hash::{Hash, Hasher};

/// A refused request: what the client is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpError {
    /// HTTP status code.
    pub status: u16,
    /// CouchDB's machine word.
    pub error: Cow<'static, str>,
    /// The sentence for people. `None` is printed as JSON `null`.
    pub reason: Option<Cow<'static, str>>,
    /// Extra response headers.
    pub headers: Vec<(&'static str, String)>,
    /// Whether the connection has to be closed after the reply because the request body was not read.
    pub close: bool,
}

impl HttpError {
    /// Any status, word and reason.
    pub fn new(
        status: u16,
        error: impl Into<Cow<'static, str>>,
        reason: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self {
            status,
            error: error.into(),
            reason: Some(reason.into()),
            headers: Vec::new(),
            close: false,
        }
    }

    /// 400 `bad_request`.
    pub fn bad_request(reason: impl Into<Cow<'static, str>>) -> Self {
        Self::new(400, "bad_request", reason)
    }

    /// 400 `query_parse_error`: a parameter of a view-like query.
    pub fn query_parse(reason: impl Into<Cow<'static, str>>) -> Self {
        Self::new(400, "query_parse_error", reason)
    }

    /// 400 with the one reason that every JSON syntax problem has.
    pub fn invalid_json() -> Self {
        Self::bad_request("invalid UTF-8 JSON")
    }

    /// 404 `not_found`.
    pub fn not_found(reason: impl Into<Cow<'static, str>>) -> Self {
        Self::new(404, "not_found", reason)
    }

    /// 404 `Database does not exist.`
    pub fn no_database() -> Self {
        Self::not_found("Database does not exist.")
    }

    /// 401 `unauthorized`.
    pub fn unauthorized(reason: impl Into<Cow<'static, str>>) -> Self {
        Self::new(401, "unauthorized", reason)
    }

    /// 403 `forbidden`.
    pub fn forbidden(reason: impl Into<Cow<'static, str>>) -> Self {
        Self::new(403, "forbidden", reason)
    }

    /// 405 with `Allow`; `allowed` is CouchDB's list in its own order.
    pub fn method_not_allowed(allowed: &'static str) -> Self {
        let mut error = Self::new(405, "method_not_allowed", format!("Only {allowed} allowed"));
        error.headers.push(("Allow", allowed.to_owned()));
        error
    }

    /// 409 `conflict`.
    pub fn conflict() -> Self {
        Self::new(409, "conflict", "Document update conflict.")
    }

    /// 413 for a request body over `[chttpd] max_http_request_size`; closes the connection.
    pub fn request_too_large() -> Self {
        let mut error = Self::new(413, "too_large", "the request entity is too large");
        error.close = true;
        error
    }

    /// 413 for an attachment over `[couchdb] max_attachment_size`; closes the connection.
    pub fn attachment_too_large(name: impl Into<Cow<'static, str>>) -> Self {
        let mut error = Self::new(413, "attachment_too_large", name);
        error.close = true;
        error
    }

    /// 415 for a body that is not declared as JSON.
    pub fn not_json() -> Self {
        Self::new(415, "bad_content_type", "Content-Type must be application/json")
    }

    /// 500 with a crash text.
    pub fn internal(reason: impl Into<Cow<'static, str>>) -> Self {
        Self::new(500, "internal_server_error", reason)
    }

    /// 501 for an endpoint of later work, saying what is not there.
    pub fn not_implemented(reason: impl Into<Cow<'static, str>>) -> Self {
        Self::new(501, "not_implemented", reason)
    }

    /// The same error with another reply header.
    pub fn with_header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    /// The `ref` member of a 500: the same number for the same cause, so that a client's report can be found in the log.
    pub fn reference(&self) -> Option<u32> {
        if self.status != 500 {
            return None;
        }
        let mut hasher = std::collections::hash_map::DefaultHasher::new();
        self.error.hash(&mut hasher);
        self.reason.hash(&mut hasher);
        Some(hasher.finish() as u32)
    }

    /// The reply body, with its line feed.
    pub fn body(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(64 + self.reason.as_deref().map_or(0, str::len));
        out.extend_from_slice(b"{\"error\":");
        write_json_string(&mut out, &self.error);
        out.extend_from_slice(b",\"reason\":");
        match &self.reason {
            Some(reason) => write_json_string(&mut out, reason),
            None => out.extend_from_slice(b"null"),
        }
        if let Some(number) = self.reference() {
            out.extend_from_slice(format!(",\"ref\":{number}").as_bytes());
        }
        out.extend_from_slice(b"}\n");
        out
    }
}

/// Appends `text` as a JSON string with CouchDB's escaping: only quotes, backslashes and control characters.
pub fn write_json_string(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    let bytes = text.as_bytes();
    let mut start = 0;
    for (at, &byte) in bytes.iter().enumerate() {
        let short: Option<&[u8]> = match byte {
            b'"' => Some(b"\\\""),
            b'\\' => Some(b"\\\\"),
            8 => Some(b"\\b"),
            12 => Some(b"\\f"),
            b'\n' => Some(b"\\n"),
            b'\r' => Some(b"\\r"),
            b'\t' => Some(b"\\t"),
            0..=0x1f => None,
            _ => continue,
        };
        out.extend_from_slice(&bytes[start..at]);
        match short {
            Some(escape) => out.extend_from_slice(escape),
            None => out.extend_from_slice(format!("\\u{byte:04X}").as_bytes()),
        }
        start = at + 1;
    }
    out.extend_from_slice(&bytes[start..]);
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(error: &HttpError) -> String {
        String::from_utf8(error.body()).expect("bodies are UTF-8")
    }

    #[test]
    fn bodies_are_error_and_reason_and_a_line_feed() {
        assert_eq!(
            text(&HttpError::not_found("missing")),
            "{\"error\":\"not_found\",\"reason\":\"missing\"}\n"
        );
        let empty = HttpError::new(413, "document_too_large", "");
        assert_eq!(
            text(&empty),
            "{\"error\":\"document_too_large\",\"reason\":\"\"}\n"
        );
        let method = HttpError::method_not_allowed("GET,HEAD");
        assert_eq!(method.headers, [("Allow", "GET,HEAD".to_owned())]);
        assert_eq!(
            text(&method),
            "{\"error\":\"method_not_allowed\",\"reason\":\"Only GET,HEAD allowed\"}\n"
        );
    }

    #[test]
    fn only_a_500_has_a_reference_and_it_is_stable() {
        let error = HttpError::internal("boom");
        assert_eq!(error.reference(), HttpError::internal("boom").reference());
        assert!(text(&error).contains(",\"ref\":"));
        assert_eq!(HttpError::conflict().reference(), None);
    }

    #[test]
    fn strings_are_escaped_as_jiffy_does() {
        let mut out = Vec::new();
        write_json_string(&mut out, "a\"\\\u{8}\u{c}\n\r\t\u{1f}/\u{2028}\u{7f}é");
        assert_eq!(
            String::from_utf8(out).expect("UTF-8"),
            "\"a\\\"\\\\\\b\\f\\n\\r\\t\\u001F/\u{2028}\u{7f}é\""
        );
    }
}
