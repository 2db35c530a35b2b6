//! From a raw request path to the part of the API that is meant.
//!
//! CouchDB's paths do not fit a pattern router: segments are split before they are decoded, empty ones vanish, and a
//! database name or document id may contain encoded slashes. So the raw path is split here, by hand.

use std::borrow::Cow;

use super::error::HttpError;

/// Most segments a path may have; the rest of an attachment name keeps its slashes in one segment each.
const SEGMENTS_MAX: usize = 1024;

/// The decoded segments of a path, empty ones dropped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segments<'a> {
    parts: Vec<Cow<'a, [u8]>>,
}

impl<'a> Segments<'a> {
    /// Splits and decodes. `plus_is_space` is `[chttpd] decode_plus_to_space`.
    ///
    /// # Errors
    /// 400 `invalid_url_encoding` for a broken percent escape, 414 for too many segments.
    pub fn parse(path: &'a str, plus_is_space: bool) -> Result<Self, HttpError> {
        let mut parts = Vec::with_capacity(4);
        for part in path
            .as_bytes()
            .split(|byte| *byte == b'/')
            .filter(|part| !part.is_empty())
        {
            if parts.len() == SEGMENTS_MAX {
                return Err(HttpError::new(414, "too_long", "URI is too long"));
            }
            parts.push(percent_decode(part, plus_is_space)?);
        }
        Ok(Self { parts })
    }

    /// How many segments there are.
    pub fn len(&self) -> usize {
        self.parts.len()
    }

    /// Whether the path is `/`.
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// The bytes of one segment.
    pub fn bytes(&self, index: usize) -> Option<&[u8]> {
        self.parts.get(index).map(AsRef::as_ref)
    }

    /// One segment as text; `None` when it is absent or not UTF-8.
    pub fn text(&self, index: usize) -> Option<&str> {
        std::str::from_utf8(self.bytes(index)?).ok()
    }

    /// All segments from `index` on, joined by slashes.
    pub fn join_from(&self, index: usize) -> Vec<u8> {
        self.parts.get(index..).unwrap_or_default().join(&b'/')
    }
}

/// Decodes one percent-encoded part of a URL.
///
/// # Errors
/// 400 `invalid_url_encoding` for a broken escape.
pub fn percent_decode(part: &[u8], plus_is_space: bool) -> Result<Cow<'_, [u8]>, HttpError> {
    let special = |byte: &u8| *byte == b'%' || (plus_is_space && *byte == b'+');
    if !part.iter().any(special) {
        return Ok(Cow::Borrowed(part));
    }
    let mut out = Vec::with_capacity(part.len());
    let mut at = 0;
    while at < part.len() {
        match part[at] {
            b'%' => {
                let digits = part.get(at + 1..at + 3).ok_or_else(invalid_encoding)?;
                let (high, low) = (hex_value(digits[0])?, hex_value(digits[1])?);
                out.push(high << 4 | low);
                at += 3;
            }
            b'+' if plus_is_space => {
                out.push(b' ');
                at += 1;
            }
            byte => {
                out.push(byte);
                at += 1;
            }
        }
    }
    Ok(Cow::Owned(out))
}

fn invalid_encoding() -> HttpError {
    HttpError::bad_request("invalid_url_encoding")
}

fn hex_value(digit: u8) -> Result<u8, HttpError> {
    match digit {
        b'0'..=b'9' => Ok(digit - b'0'),
        b'a'..=b'f' => Ok(digit - b'a' + 10),
        b'A'..=b'F' => Ok(digit - b'A' + 10),
        _ => Err(invalid_encoding()),
    }
}

/// Percent-encodes everything but unreserved characters, as CouchDB does in `Location` and `Content-Disposition`.
pub fn percent_encode(text: &[u8]) -> String {
    let mut out = String::with_capacity(text.len());
    for &byte in text {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~') {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

/// What one path means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// `/`
    Welcome,
    /// A name of the server level, such as `_up`; the segments tell the rest.
    Server(&'static str),
    /// A database, not yet known to exist: its decoded name and what is wanted of it.
    Database(Vec<u8>, DatabasePart),
}

/// What is wanted inside a database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DatabasePart {
    /// The database itself.
    Root,
    /// An endpoint such as `_all_docs`; the segments tell the rest.
    Endpoint(&'static str),
    /// A function of a design document, such as `_view`.
    DesignFunction(&'static str),
    /// A document by its id.
    Document(Vec<u8>),
    /// `_design%2Fx` in one segment: GET is redirected to `/db/_design/x`, the other methods mean the document.
    JoinedDesign(Vec<u8>),
    /// A `_local/` document.
    Local(Vec<u8>),
    /// `_local` without a name.
    LocalWithoutName,
    /// Something below a `_local/` document.
    LocalAttachment,
    /// An attachment: document id and name.
    Attachment(Vec<u8>, Vec<u8>),
}

/// The names of the server level.
pub const SERVER_NAMES: &[&str] = &[
    "favicon.ico",
    "_utils",
    "_up",
    "_uuids",
    "_session",
    "_all_dbs",
    "_dbs_info",
    "_active_tasks",
    "_membership",
    "_cluster_setup",
    "_db_updates",
    "_replicate",
    "_scheduler",
    "_reshard",
    "_search_analyze",
    "_nouveau_analyze",
    "_reload_query_servers",
    "_node",
];

/// The names of the database level.
pub const DATABASE_NAMES: &[&str] = &[
    "_all_docs",
    "_design_docs",
    "_local_docs",
    "_bulk_docs",
    "_bulk_get",
    "_changes",
    "_revs_diff",
    "_missing_revs",
    "_security",
    "_revs_limit",
    "_purged_infos_limit",
    "_purged_infos",
    "_purge",
    "_compact",
    "_view_cleanup",
    "_ensure_full_commit",
    "_sync_shards",
    "_shards",
    "_auto_purge",
    "_time_seq",
    "_partition",
    "_find",
    "_explain",
    "_index",
    "_temp_view",
    "_search_cleanup",
    "_nouveau_cleanup",
];

/// The names below a design document that are functions, not attachments.
pub const DESIGN_NAMES: &[&str] = &[
    "_info",
    "_view",
    "_show",
    "_list",
    "_update",
    "_rewrite",
    "_search",
    "_search_info",
    "_nouveau",
    "_nouveau_info",
    "_search_disk_size",
];

fn known(names: &'static [&'static str], name: &[u8]) -> Option<&'static str> {
    names.iter().find(|known| known.as_bytes() == name).copied()
}

/// Says what a path means.
pub fn route(segments: &Segments<'_>) -> Target {
    if segments.is_empty() {
        return Target::Welcome;
    }
    let first = segments.bytes(0).unwrap_or_default();
    if let Some(name) = known(SERVER_NAMES, first) {
        return Target::Server(name);
    }
    Target::Database(first.to_vec(), database_part(segments))
}

fn database_part(segments: &Segments<'_>) -> DatabasePart {
    let Some(second) = segments.bytes(1) else {
        return DatabasePart::Root;
    };
    if !second.starts_with(b"_") {
        return document_or_attachment(second.to_vec(), segments, 2);
    }
    if let Some(name) = known(DATABASE_NAMES, second) {
        return DatabasePart::Endpoint(name);
    }
    match second {
        b"_local" => match segments.len() {
            2 => DatabasePart::LocalWithoutName,
            3 => DatabasePart::Local([b"_local/", segments.bytes(2).unwrap_or_default()].concat()),
            _ => DatabasePart::LocalAttachment,
        },
        b"_design" => design_part(segments),
        _ if second == b"_local/" => DatabasePart::LocalWithoutName,
        _ if second.starts_with(b"_local/") && segments.len() == 2 => DatabasePart::Local(second.to_vec()),
        _ if second.starts_with(b"_local/") => DatabasePart::LocalAttachment,
        _ if second.starts_with(b"_design/") && segments.len() == 2 => {
            DatabasePart::JoinedDesign(second.to_vec())
        }
        _ => document_or_attachment(second.to_vec(), segments, 2),
    }
}

fn design_part(segments: &Segments<'_>) -> DatabasePart {
    let Some(name) = segments.bytes(2) else {
        return DatabasePart::Document(b"_design".to_vec());
    };
    if let Some(function) = segments
        .bytes(3)
        .and_then(|function| known(DESIGN_NAMES, function))
    {
        return DatabasePart::DesignFunction(function);
    }
    document_or_attachment([b"_design/", name].concat(), segments, 3)
}

fn document_or_attachment(id: Vec<u8>, segments: &Segments<'_>, rest: usize) -> DatabasePart {
    if segments.len() > rest {
        DatabasePart::Attachment(id, segments.join_from(rest))
    } else {
        DatabasePart::Document(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(path: &str) -> Target {
        route(&Segments::parse(path, true).expect("a good path"))
    }

    fn part(path: &str) -> DatabasePart {
        match target(path) {
            Target::Database(_, part) => part,
            other => panic!("{path} is no database path: {other:?}"),
        }
    }

    #[test]
    fn empty_segments_vanish_and_slashes_can_be_encoded() {
        assert_eq!(target("/"), Target::Welcome);
        assert_eq!(target("//"), Target::Welcome);
        assert_eq!(
            target("//db//"),
            Target::Database(b"db".to_vec(), DatabasePart::Root)
        );
        assert_eq!(
            target("/a%2Fb/"),
            Target::Database(b"a/b".to_vec(), DatabasePart::Root)
        );
        assert_eq!(part("/db//doc/"), DatabasePart::Document(b"doc".to_vec()));
        assert_eq!(part("/db/a%2fb"), DatabasePart::Document(b"a/b".to_vec()));
        assert_eq!(part("/db/a+b%2Bc"), DatabasePart::Document(b"a b+c".to_vec()));
        assert_eq!(
            part("/db/a/x/y%2Fz"),
            DatabasePart::Attachment(b"a".to_vec(), b"x/y/z".to_vec())
        );
        assert_eq!(part("/db/%ff"), DatabasePart::Document(vec![0xff]));
    }

    #[test]
    fn broken_escapes_are_refused() {
        for path in ["/%", "/db/%4", "/db/%zz", "/db/a%2"] {
            let error = Segments::parse(path, true).expect_err("broken");
            assert_eq!(error, HttpError::bad_request("invalid_url_encoding"));
        }
        assert_eq!(Segments::parse("/a+b", false).expect("fine").text(0), Some("a+b"));
    }

    #[test]
    fn local_and_design_documents_have_two_spellings() {
        assert_eq!(part("/db/_local/x"), DatabasePart::Local(b"_local/x".to_vec()));
        assert_eq!(
            part("/db/_local/a%2Fb"),
            DatabasePart::Local(b"_local/a/b".to_vec())
        );
        assert_eq!(part("/db/_local%2Fx"), DatabasePart::Local(b"_local/x".to_vec()));
        assert_eq!(part("/db/_local"), DatabasePart::LocalWithoutName);
        assert_eq!(part("/db/_local/"), DatabasePart::LocalWithoutName);
        assert_eq!(part("/db/_local/x/y"), DatabasePart::LocalAttachment);
        assert_eq!(
            part("/db/_design/x"),
            DatabasePart::Document(b"_design/x".to_vec())
        );
        assert_eq!(
            part("/db/_design%2Fx"),
            DatabasePart::JoinedDesign(b"_design/x".to_vec())
        );
        assert_eq!(
            part("/db/_design%2Fx/a"),
            DatabasePart::Attachment(b"_design/x".to_vec(), b"a".to_vec())
        );
        assert_eq!(
            part("/db/_design/x/a/b"),
            DatabasePart::Attachment(b"_design/x".to_vec(), b"a/b".to_vec())
        );
        assert_eq!(
            part("/db/_design/x/_view/y"),
            DatabasePart::DesignFunction("_view")
        );
        assert_eq!(part("/db/_design"), DatabasePart::Document(b"_design".to_vec()));
    }

    #[test]
    fn names_of_both_levels_are_found() {
        assert_eq!(target("/_up"), Target::Server("_up"));
        assert_eq!(target("/_node/_local/_stats"), Target::Server("_node"));
        assert_eq!(part("/db/_all_docs"), DatabasePart::Endpoint("_all_docs"));
        assert_eq!(part("/db/_foo"), DatabasePart::Document(b"_foo".to_vec()));
        assert_eq!(
            target("/_stats"),
            Target::Database(b"_stats".to_vec(), DatabasePart::Root)
        );
    }

    #[test]
    fn encoding_keeps_unreserved_characters() {
        assert_eq!(percent_encode("a/b c-é".as_bytes()), "a%2Fb%20c-%C3%A9");
    }
}
