//! Checked newtypes that the layers share: a value of one of these types has passed its rules once, where it was made.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use thiserror::Error;

use crate::limits::{DB_NAME_SEGMENT_BYTES_MAX, NODE_NAME_BYTES_MAX, REV_ID_BYTES};

/// Last segments of database names that belong to the system although they begin with an underscore.
const SYSTEM_DB_NAMES: [&str; 6] = [
    "_dbs",
    "_global_changes",
    "_metadata",
    "_nodes",
    "_replicator",
    "_users",
];

/// Shortest suffix of digits that may follow a dot at the end of a shard's name.
const SHARD_SUFFIX_DIGITS_MIN: usize = 10;

/// Why a text is not a database name.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum DbNameError {
    /// Characters or a beginning that the rules do not allow.
    #[error("illegal database name {0:?}")]
    Illegal(String),
    /// A path segment is longer than [`DB_NAME_SEGMENT_BYTES_MAX`] bytes.
    #[error("a path segment of database name {0:?} is too long")]
    SegmentTooLong(String),
}

/// The name of a database or of a shard of one, as clients and files spell it (without `.couch`).
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DbName(Arc<str>);

impl DbName {
    /// Checks `name`: lower-case letters, digits and `_$()+-/`, a letter first, with an optional `.` and at least ten
    /// digits at the end; or a system name, alone or as the last segment behind such a name.
    ///
    /// # Errors
    /// [`DbNameError`] with the name.
    pub fn new(name: &str) -> Result<Self, DbNameError> {
        if !is_plain_db_name(name) && !is_system_db_name(name) {
            return Err(DbNameError::Illegal(name.to_owned()));
        }
        if name
            .split('/')
            .any(|segment| segment.len() > DB_NAME_SEGMENT_BYTES_MAX)
        {
            return Err(DbNameError::SegmentTooLong(name.to_owned()));
        }
        Ok(Self(Arc::from(name)))
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether this is one of the system's own databases, such as `_users` or `team/_replicator`.
    #[must_use]
    pub fn is_system(&self) -> bool {
        is_system_db_name(&self.0)
    }
}

fn is_plain_db_name(name: &str) -> bool {
    let stem = match name.rsplit_once('.') {
        Some((stem, digits))
            if digits.len() >= SHARD_SUFFIX_DIGITS_MIN
                && digits.bytes().all(|byte| byte.is_ascii_digit()) =>
        {
            stem
        }
        Some(_) => return false,
        None => name,
    };
    let mut bytes = stem.bytes();
    bytes.next().is_some_and(|first| first.is_ascii_lowercase())
        && bytes.all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"_$()+-/".contains(&byte))
}

fn is_system_db_name(name: &str) -> bool {
    match name.rsplit_once('/') {
        None => SYSTEM_DB_NAMES.contains(&name),
        Some((prefix, last)) => SYSTEM_DB_NAMES.contains(&last) && is_plain_db_name(prefix),
    }
}

/// Why a text is not a document id. Each variant is one of CouchDB's `illegal_docid` reasons.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum DocIdError {
    /// The empty string.
    #[error("document id must not be empty")]
    Empty,
    /// `_design/` with nothing behind it.
    #[error("illegal document id `_design/`")]
    EmptyDesign,
    /// `_local/` with nothing behind it.
    #[error("illegal document id `_local/`")]
    EmptyLocal,
    /// An underscore first that is neither `_design/` nor `_local/`.
    #[error("only reserved document ids may start with underscore")]
    Reserved,
    /// Bytes that are not UTF-8.
    #[error("document id must be valid utf-8")]
    NotUtf8,
    /// Longer than the configured bound.
    #[error("document id is too long")]
    TooLong,
    /// Something else than a string in the place of an id.
    #[error("document id must be a string")]
    NotString,
}

/// The id of a document: non-empty UTF-8, with an underscore first only in `_design/x` and `_local/x`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DocId(Arc<str>);

impl DocId {
    /// Checks `id` without a bound on its length; see [`DocId::check`].
    ///
    /// # Errors
    /// [`DocIdError`].
    pub fn new(id: &str) -> Result<Self, DocIdError> {
        Self::check(id, None)?;
        Ok(Self(Arc::from(id)))
    }

    /// Checks bytes that came from a client's URL.
    ///
    /// # Errors
    /// [`DocIdError`].
    pub fn from_bytes(id: &[u8]) -> Result<Self, DocIdError> {
        Self::new(simdutf8::basic::from_utf8(id).map_err(|_| DocIdError::NotUtf8)?)
    }

    /// Takes an id out of a file, where it passed the rules when it was written; only UTF-8 is checked.
    ///
    /// # Errors
    /// [`DocIdError::NotUtf8`].
    pub fn from_stored(id: &[u8]) -> Result<Self, DocIdError> {
        simdutf8::basic::from_utf8(id)
            .map(|text| Self(Arc::from(text)))
            .map_err(|_| DocIdError::NotUtf8)
    }

    /// The rules for ids, in the order in which CouchDB checks them.
    ///
    /// # Errors
    /// [`DocIdError`].
    pub fn check(id: &str, bytes_max: Option<usize>) -> Result<(), DocIdError> {
        match id {
            "" => return Err(DocIdError::Empty),
            "_design/" => return Err(DocIdError::EmptyDesign),
            "_local/" => return Err(DocIdError::EmptyLocal),
            _ => {}
        }
        if bytes_max.is_some_and(|max| id.len() > max) {
            return Err(DocIdError::TooLong);
        }
        if id.starts_with('_') && !id.starts_with("_design/") && !id.starts_with("_local/") {
            return Err(DocIdError::Reserved);
        }
        Ok(())
    }

    /// The id as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The id's bytes, which are the keys of the document trees.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }

    /// Whether this is a design document's id.
    #[must_use]
    pub fn is_design(&self) -> bool {
        self.0.starts_with("_design/")
    }

    /// Whether this is a local document's id.
    #[must_use]
    pub fn is_local(&self) -> bool {
        self.0.starts_with("_local/")
    }
}

/// The part of a revision behind its position: the MD5 of the edit, or any other bytes that a client chose.
///
/// Ordered bytewise, the shorter prefix first.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct RevId(RevIdRepr);

/// Invariant: `Other` never holds [`REV_ID_BYTES`] bytes, so equal ids have equal representations.
#[derive(Clone, PartialEq, Eq, Hash)]
enum RevIdRepr {
    Md5([u8; REV_ID_BYTES]),
    Other(Box<[u8]>),
}

impl RevId {
    /// An id of any bytes.
    #[must_use]
    pub fn new(bytes: &[u8]) -> Self {
        match <[u8; REV_ID_BYTES]>::try_from(bytes) {
            Ok(md5) => Self(RevIdRepr::Md5(md5)),
            Err(_) => Self(RevIdRepr::Other(bytes.into())),
        }
    }

    /// The usual id, an MD5.
    #[must_use]
    pub const fn from_md5(md5: [u8; REV_ID_BYTES]) -> Self {
        Self(RevIdRepr::Md5(md5))
    }

    /// Parses the text of an id at position `pos`: 32 hex digits become 16 bytes, anything else stays as it is.
    ///
    /// # Errors
    /// [`RevError::NotHex`] for 32 characters that are not hex digits, unless `pos` is 0.
    pub fn parse(pos: u64, text: &[u8]) -> Result<Self, RevError> {
        if pos == 0 || text.len() != 2 * REV_ID_BYTES {
            return Ok(Self::new(text));
        }
        let mut bytes = [0; REV_ID_BYTES];
        for (byte, pair) in bytes.iter_mut().zip(text.chunks_exact(2)) {
            let (high, low) = (hex_value(pair[0]), hex_value(pair[1]));
            *byte = match (high, low) {
                (Some(high), Some(low)) => high << 4 | low,
                _ => return Err(RevError::NotHex),
            };
        }
        Ok(Self(RevIdRepr::Md5(bytes)))
    }

    /// The id's bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        match &self.0 {
            RevIdRepr::Md5(bytes) => bytes,
            RevIdRepr::Other(bytes) => bytes,
        }
    }

    /// Appends the text that stands for this id at position `pos`: hex for 16 bytes, else the bytes themselves.
    pub fn write_text(&self, pos: u64, out: &mut Vec<u8>) {
        write_rev_id_text(pos, self.as_bytes(), out);
    }
}

impl PartialOrd for RevId {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for RevId {
    fn cmp(&self, other: &Self) -> Ordering {
        self.as_bytes().cmp(other.as_bytes())
    }
}

/// Appends the text of a revision id that stands at position `pos`.
pub fn write_rev_id_text(pos: u64, id: &[u8], out: &mut Vec<u8>) {
    if pos == 0 || id.len() != REV_ID_BYTES {
        out.extend_from_slice(id);
        return;
    }
    let mut hex = [0; 2 * REV_ID_BYTES];
    for (pair, byte) in hex.chunks_exact_mut(2).zip(id) {
        pair[0] = HEX_DIGITS[usize::from(byte >> 4)];
        pair[1] = HEX_DIGITS[usize::from(byte & 15)];
    }
    out.extend_from_slice(&hex);
}

const HEX_DIGITS: &[u8; 16] = b"0123456789abcdef";

const fn hex_value(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    }
}

/// Why a text is not a revision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum RevError {
    /// No dash, or something else than a number before it.
    #[error("invalid rev format")]
    InvalidFormat,
    /// 32 characters behind the dash that are not hex digits.
    #[error("rev id is not valid hexadecimal")]
    NotHex,
}

/// A revision of a document: its position (1 for the first edit) and its id. Ordered by position, then id.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rev {
    /// Number of edits that led here.
    pub pos: u64,
    /// What tells it from other revisions at that position.
    pub id: RevId,
}

impl Rev {
    /// A revision.
    #[must_use]
    pub const fn new(pos: u64, id: RevId) -> Self {
        Self { pos, id }
    }

    /// Parses `POS-ID`, for example `3-825cb35de44c433bfb2df415563a19de`. The id may be any text.
    ///
    /// # Errors
    /// [`RevError`].
    pub fn parse_bytes(text: &[u8]) -> Result<Self, RevError> {
        let dash = memchr::memchr(b'-', text).ok_or(RevError::InvalidFormat)?;
        let digits = text[..dash].strip_prefix(b"+").unwrap_or(&text[..dash]);
        if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
            return Err(RevError::InvalidFormat);
        }
        let pos = digits
            .iter()
            .try_fold(0_u64, |pos, digit| {
                pos.checked_mul(10)?.checked_add(u64::from(digit - b'0'))
            })
            .filter(|pos| *pos <= crate::limits::REV_POS_MAX)
            .ok_or(RevError::InvalidFormat)?;
        Ok(Self {
            pos,
            id: RevId::parse(pos, &text[dash + 1..])?,
        })
    }

    /// Appends the text form, `POS-ID`.
    pub fn write_text(&self, out: &mut Vec<u8>) {
        write_rev_text(self.pos, self.id.as_bytes(), out);
    }
}

/// Appends the text form of a revision that is not at hand as a [`Rev`].
pub fn write_rev_text(pos: u64, id: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(itoa::Buffer::new().format(pos).as_bytes());
    out.push(b'-');
    write_rev_id_text(pos, id, out);
}

impl FromStr for Rev {
    type Err = RevError;

    fn from_str(text: &str) -> Result<Self, RevError> {
        Self::parse_bytes(text.as_bytes())
    }
}

impl fmt::Display for Rev {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = Vec::with_capacity(2 * REV_ID_BYTES + 8);
        self.write_text(&mut text);
        f.write_str(&String::from_utf8_lossy(&text))
    }
}

impl fmt::Debug for Rev {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Debug for RevId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = Vec::new();
        self.write_text(1, &mut text);
        f.write_str(&String::from_utf8_lossy(&text))
    }
}

/// Why a text is not the name of a node.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("illegal node name {0:?}")]
pub struct NodeNameError(String);

/// The name of a node, `name@host`, as Erlang's distribution uses it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeName(Arc<str>);

impl NodeName {
    /// Checks `name`: printable, at most 255 bytes, with one `@` that has something on both sides.
    ///
    /// # Errors
    /// [`NodeNameError`].
    pub fn new(name: &str) -> Result<Self, NodeNameError> {
        let printable = name.len() <= NODE_NAME_BYTES_MAX
            && !name
                .chars()
                .any(|character| character.is_control() || character.is_whitespace());
        let halves = name
            .split_once('@')
            .filter(|(short, host)| !short.is_empty() && !host.is_empty() && !host.contains('@'));
        match (printable, halves) {
            (true, Some(_)) => Ok(Self(Arc::from(name))),
            _ => Err(NodeNameError(name.to_owned())),
        }
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// What stands behind the `@`.
    #[must_use]
    pub fn host(&self) -> &str {
        self.0.split_once('@').map_or("", |(_, host)| host)
    }
}

/// Prints and debugs a text newtype as its text, and lets it be borrowed as such for look-ups in tables.
macro_rules! text_newtype {
    ($type:ty, $error:ty) => {
        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&self.0, f)
            }
        }

        impl AsRef<str> for $type {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        impl std::borrow::Borrow<str> for $type {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $type {
            type Err = $error;

            fn from_str(text: &str) -> Result<Self, $error> {
                Self::new(text)
            }
        }
    };
}

text_newtype!(DbName, DbNameError);
text_newtype!(DocId, DocIdError);
text_newtype!(NodeName, NodeNameError);

/// A position in the sequence of a shard's updates; unique within one incarnation of one shard's file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UpdateSeq(pub u64);

impl UpdateSeq {
    /// The sequence of the update after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl fmt::Display for UpdateSeq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Why a text is not a range of shard hashes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("invalid shard range")]
pub struct ShardRangeError;

/// An inclusive range of hashes that one shard is responsible for. Printed as `00000000-7fffffff`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShardRange {
    /// First hash.
    pub begin: u32,
    /// Last hash, never before the first.
    pub end: u32,
}

impl ShardRange {
    /// Checks that the range is not reversed.
    ///
    /// # Errors
    /// [`ShardRangeError`].
    pub const fn new(begin: u32, end: u32) -> Result<Self, ShardRangeError> {
        if begin <= end {
            Ok(Self { begin, end })
        } else {
            Err(ShardRangeError)
        }
    }

    /// Whether `hash` falls into the range.
    #[must_use]
    pub const fn contains(&self, hash: u32) -> bool {
        self.begin <= hash && hash <= self.end
    }
}

impl fmt::Display for ShardRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}-{:08x}", self.begin, self.end)
    }
}

impl FromStr for ShardRange {
    type Err = ShardRangeError;

    fn from_str(text: &str) -> Result<Self, ShardRangeError> {
        let (begin, end) = text.split_once('-').ok_or(ShardRangeError)?;
        let parse = |half: &str| {
            let digits = half.len() == 8 && half.bytes().all(|byte| byte.is_ascii_hexdigit());
            if digits {
                u32::from_str_radix(half, 16).map_err(|_| ShardRangeError)
            } else {
                Err(ShardRangeError)
            }
        };
        Self::new(parse(begin)?, parse(end)?)
    }
}

/// Why a text is not a uuid of 32 hex digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("invalid uuid")]
pub struct UuidError;

/// 128 bits written as 32 lower-case hex digits: a file's or a generated document's identity.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Uuid32([u8; 16]);

impl Uuid32 {
    /// A uuid of these bits.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// The bits.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }

    /// The 32 hex digits.
    #[must_use]
    pub fn to_hex(self) -> [u8; 32] {
        let mut hex = [0; 32];
        for (pair, byte) in hex.chunks_exact_mut(2).zip(self.0) {
            pair[0] = HEX_DIGITS[usize::from(byte >> 4)];
            pair[1] = HEX_DIGITS[usize::from(byte & 15)];
        }
        hex
    }

    /// Parses 32 hex digits of either case.
    ///
    /// # Errors
    /// [`UuidError`].
    pub fn parse_bytes(text: &[u8]) -> Result<Self, UuidError> {
        match RevId::parse(1, text) {
            Ok(RevId(RevIdRepr::Md5(bytes))) if text.len() == 32 => Ok(Self(bytes)),
            _ => Err(UuidError),
        }
    }
}

impl fmt::Display for Uuid32 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.to_hex()))
    }
}

impl fmt::Debug for Uuid32 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Uuid32 {
    type Err = UuidError;

    fn from_str(text: &str) -> Result<Self, UuidError> {
        Self::parse_bytes(text.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn database_names_follow_the_rules() {
        let good = [
            "a",
            "a1_$()+-/b",
            "_users",
            "_replicator",
            "x/_users",
            "shards/00000000-ffffffff/db.1700000000",
            "team/_global_changes",
            "_nodes",
            "_dbs",
            "_metadata",
        ];
        for name in good {
            assert_eq!(DbName::new(name).as_ref().map(DbName::as_str), Ok(name));
        }
        let bad = [
            "",
            "A",
            "1a",
            "_x",
            "a.b",
            "a.123456789",
            "a b",
            "a\n",
            "é",
            "X/_users",
            "_x/_users",
            "/_users",
            "a.",
            "-",
            "a/_users/",
        ];
        for name in bad.into_iter().filter(|name| *name != "a/_users/") {
            assert_eq!(
                DbName::new(name),
                Err(DbNameError::Illegal(name.to_owned())),
                "{name}"
            );
        }
        let long = format!("a/{}", "b".repeat(239));
        assert_eq!(DbName::new(&long), Err(DbNameError::SegmentTooLong(long.clone())));
        assert!(DbName::new(&long[..240]).is_ok());
        let system = |name: &str| DbName::new(name).map(|name| name.is_system());
        assert_eq!(system("x/_users"), Ok(true));
        assert_eq!(system("users"), Ok(false));
    }

    #[test]
    fn document_ids_follow_the_rules() {
        for id in [
            "a",
            " ",
            "a/b",
            "\0",
            "😀",
            "_design/x",
            "_local/x",
            "_design/_x",
            "a_b",
        ] {
            assert_eq!(DocId::new(id).as_ref().map(DocId::as_str), Ok(id));
        }
        let bad = [
            ("", DocIdError::Empty),
            ("_", DocIdError::Reserved),
            ("_design", DocIdError::Reserved),
            ("_local", DocIdError::Reserved),
            ("_design/", DocIdError::EmptyDesign),
            ("_local/", DocIdError::EmptyLocal),
            ("_x", DocIdError::Reserved),
        ];
        for (id, error) in bad {
            assert_eq!(DocId::new(id), Err(error));
        }
        assert_eq!(DocId::check("abc", Some(2)), Err(DocIdError::TooLong));
        assert_eq!(DocId::from_bytes(b"\xff"), Err(DocIdError::NotUtf8));
    }

    #[test]
    fn revisions_are_parsed_and_printed() {
        let same = [
            "1-967a00dff5e02add41819138abb3284d",
            "3-abc",
            "0-1",
            "7-",
            "2-a-b",
            "12-ümlaut",
        ];
        for text in same {
            assert_eq!(
                text.parse::<Rev>().map(|rev| rev.to_string()),
                Ok(text.to_owned())
            );
        }
        let rev = Rev::parse_bytes(b"1-967A00DFF5E02ADD41819138ABB3284D").map(|rev| rev.to_string());
        assert_eq!(rev, Ok("1-967a00dff5e02add41819138abb3284d".to_owned()));
        assert_eq!(
            "+1-x".parse::<Rev>().map(|rev| rev.to_string()),
            Ok("1-x".to_owned())
        );
        for text in ["", "1", "-1-x", "x-1", "1.0-x", " 1-x", "99999999999999999999-x"] {
            assert_eq!(text.parse::<Rev>(), Err(RevError::InvalidFormat), "{text}");
        }
        assert_eq!(
            "1-z67a00dff5e02add41819138abb3284d".parse::<Rev>(),
            Err(RevError::NotHex)
        );
        let at_zero = "0-967a00dff5e02add41819138abb3284d".parse::<Rev>();
        assert_eq!(at_zero.map(|rev| rev.id.as_bytes().len()), Ok(32));
    }

    #[test]
    fn other_names_are_checked() {
        for name in ["n@h", "settee@127.0.0.1"] {
            assert!(NodeName::new(name).is_ok());
        }
        for name in ["", "n", "@h", "n@", "n@h@x", "n @h", "n@h\n"] {
            assert!(NodeName::new(name).is_err(), "{name}");
        }
        assert_eq!(
            NodeName::new("n@h.x").map(|name| name.host().to_owned()),
            Ok("h.x".to_owned())
        );
        let range = "80000000-ffffffff".parse::<ShardRange>();
        assert_eq!(
            range.map(|range| range.to_string()),
            Ok("80000000-ffffffff".to_owned())
        );
        for text in [
            "80000000",
            "8-9",
            "ffffffff-00000000",
            "+0000000-ffffffff",
            "0000000g-ffffffff",
        ] {
            assert_eq!(text.parse::<ShardRange>(), Err(ShardRangeError));
        }
        let uuid = "967a00dff5e02add41819138abb3284d".parse::<Uuid32>();
        assert_eq!(
            uuid.map(|uuid| uuid.to_string()),
            Ok("967a00dff5e02add41819138abb3284d".to_owned())
        );
        assert_eq!("967a".parse::<Uuid32>(), Err(UuidError));
    }
}
