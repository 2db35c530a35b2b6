//! Query parameters, with CouchDB's own messages for bad ones.

use std::borrow::Cow;

use serde_json::Value;

use super::error::HttpError;
use super::router::percent_decode;

/// Most parameters one query string may have.
const PARAMETERS_MAX: usize = 4096;

/// Rows that a view-like query gives when no limit is set.
pub const LIMIT_DEFAULT: u64 = 1 << 28;

/// A decoded query string, in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Query {
    pairs: Vec<(String, String)>,
}

impl Query {
    /// Splits and decodes a raw query string.
    ///
    /// # Errors
    /// 400 `invalid_url_encoding` for a broken percent escape, 414 for too many parameters.
    pub fn parse(raw: &str) -> Result<Self, HttpError> {
        if raw.is_empty() {
            return Ok(Self::default());
        }
        let mut pairs = Vec::new();
        for part in raw.split(['&', ';']).filter(|part| !part.is_empty()) {
            if pairs.len() == PARAMETERS_MAX {
                return Err(HttpError::new(414, "too_long", "URI is too long"));
            }
            let (key, value) = part.split_once('=').unwrap_or((part, ""));
            pairs.push((decode(key)?, decode(value)?));
        }
        Ok(Self { pairs })
    }

    /// The last value of a parameter.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.pairs
            .iter()
            .rev()
            .find(|(key, _)| key == name)
            .map(|(_, value)| value.as_str())
    }

    /// Whether a parameter is exactly `true`, which is what switches of documents ask for.
    pub fn is_true(&self, name: &str) -> bool {
        self.get(name) == Some("true")
    }

    /// Whether there is no parameter at all.
    pub fn is_empty(&self) -> bool {
        self.pairs.is_empty()
    }

    /// All pairs in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.pairs
            .iter()
            .map(|(key, value)| (key.as_str(), value.as_str()))
    }
}

fn decode(part: &str) -> Result<String, HttpError> {
    let bytes = percent_decode(part.as_bytes(), true)?;
    Ok(match bytes {
        Cow::Borrowed(_) => part.to_owned(),
        Cow::Owned(bytes) => String::from_utf8(bytes)
            .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()),
    })
}

/// A parameter's value as it came: text of the query string, or a member of a JSON body.
#[derive(Debug, Clone, Copy)]
pub enum Given<'a> {
    /// From the query string.
    Text(&'a str),
    /// From a request body.
    Json(&'a Value),
}

impl Given<'_> {
    /// How the value looks in an error message.
    fn shown(&self) -> String {
        match self {
            Self::Text(text) => format!("\"{text}\""),
            Self::Json(value) => value.to_string(),
        }
    }

    /// The value as JSON: text is parsed.
    ///
    /// # Errors
    /// 400 `invalid UTF-8 JSON`.
    pub fn json(&self) -> Result<Value, HttpError> {
        match self {
            Self::Text(text) => serde_json::from_str(text).map_err(|_| HttpError::invalid_json()),
            Self::Json(value) => Ok((*value).clone()),
        }
    }

    /// A boolean in any case.
    ///
    /// # Errors
    /// 400 `query_parse_error`.
    pub fn boolean(&self) -> Result<bool, HttpError> {
        let text = match self {
            Self::Text(text) => *text,
            Self::Json(Value::Bool(value)) => return Ok(*value),
            Self::Json(Value::String(text)) => text,
            Self::Json(_) => "",
        };
        if text.eq_ignore_ascii_case("true") {
            Ok(true)
        } else if text.eq_ignore_ascii_case("false") {
            Ok(false)
        } else {
            Err(HttpError::query_parse(format!(
                "Invalid boolean parameter: {}",
                self.shown()
            )))
        }
    }

    /// An integer of zero or more; bigger ones than fit are cut to the greatest.
    ///
    /// # Errors
    /// 400 `query_parse_error`, with one sentence for no integer and another for a negative one.
    pub fn count(&self) -> Result<u64, HttpError> {
        let number = match self {
            Self::Text(text) => integer(text),
            Self::Json(Value::Number(number)) => integer(&number.to_string()),
            Self::Json(_) => None,
        };
        match number {
            None => Err(HttpError::query_parse(format!(
                "Invalid value for integer: {}",
                self.shown()
            ))),
            Some(Integer::Negative) => Err(HttpError::query_parse(format!(
                "Invalid value for positive integer: {}",
                self.shown()
            ))),
            Some(Integer::Count(count)) => Ok(count),
        }
    }
}

/// A whole number of any size, as far as it matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Integer {
    /// Below zero.
    Negative,
    /// Zero or more, cut to `u64::MAX`.
    Count(u64),
}

/// Reads a whole number as Erlang's `list_to_integer` does: a sign is allowed, blanks are not.
pub fn integer(text: &str) -> Option<Integer> {
    let (negative, digits) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    if digits.is_empty() || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let count = digits.parse::<u64>().unwrap_or(u64::MAX);
    if negative && count > 0 {
        Some(Integer::Negative)
    } else {
        Some(Integer::Count(count))
    }
}

/// A key of `_all_docs`: ids are strings, and every other JSON value orders below all of them.
#[derive(Debug, Clone, PartialEq)]
pub enum IdKey {
    /// A document id.
    Id(String),
    /// No string, so no document.
    Other(Value),
}

impl From<Value> for IdKey {
    fn from(value: Value) -> Self {
        match value {
            Value::String(id) => Self::Id(id),
            other => Self::Other(other),
        }
    }
}

/// The parameters of `_all_docs`, `_design_docs` and `_local_docs`.
#[derive(Debug, Clone, PartialEq)]
pub struct AllDocsQuery {
    /// First key in the direction of travel.
    pub start_key: Option<IdKey>,
    /// Last key in the direction of travel.
    pub end_key: Option<IdKey>,
    /// Whether `end_key` itself belongs to the range.
    pub inclusive_end: bool,
    /// Single keys instead of a range.
    pub keys: Option<Vec<IdKey>>,
    /// Backwards.
    pub descending: bool,
    /// Most rows.
    pub limit: u64,
    /// Rows to leave out first.
    pub skip: u64,
    /// `doc` in each row.
    pub include_docs: bool,
    /// `_conflicts` in each `doc`.
    pub conflicts: bool,
    /// `update_seq` before the rows.
    pub update_seq: bool,
    /// Attachments inline in each `doc`.
    pub attachments: bool,
    /// `encoding` and `encoded_length` of attachments.
    pub att_encoding_info: bool,
    /// Whether `total_rows` and `offset` are given.
    pub sorted: bool,
}

impl Default for AllDocsQuery {
    fn default() -> Self {
        Self {
            start_key: None,
            end_key: None,
            inclusive_end: true,
            keys: None,
            descending: false,
            limit: LIMIT_DEFAULT,
            skip: 0,
            include_docs: false,
            conflicts: false,
            update_seq: false,
            attachments: false,
            att_encoding_info: false,
            sorted: true,
        }
    }
}

impl AllDocsQuery {
    /// Reads the query string, and a request body below it: where both name a parameter the query string wins.
    ///
    /// # Errors
    /// 400 for every bad value.
    pub fn read(query: &Query, body: Option<&serde_json::Map<String, Value>>) -> Result<Self, HttpError> {
        let mut out = Self::default();
        for (name, value) in body.into_iter().flatten() {
            if name == "keys" && !value.is_array() {
                return Err(HttpError::bad_request("`keys` body member must be an array."));
            }
            out.set(name, Given::Json(value))?;
        }
        for (name, value) in query.iter() {
            out.set(name, Given::Text(value))?;
        }
        if out.keys.as_ref().is_some_and(|keys| !keys.is_empty())
            && (out.start_key.is_some() || out.end_key.is_some())
        {
            return Err(HttpError::query_parse(
                "`keys` is incompatible with `key`, `start_key` and `end_key`",
            ));
        }
        Ok(out)
    }

    fn set(&mut self, name: &str, value: Given<'_>) -> Result<(), HttpError> {
        match name {
            "key" => {
                let key = IdKey::from(value.json()?);
                self.start_key = Some(key.clone());
                self.end_key = Some(key);
            }
            "startkey" | "start_key" => self.start_key = Some(value.json()?.into()),
            "endkey" | "end_key" => self.end_key = Some(value.json()?.into()),
            "keys" => match value.json()? {
                Value::Array(keys) => self.keys = Some(keys.into_iter().map(IdKey::from).collect()),
                _ => return Err(HttpError::query_parse("`keys` parameter must be an array.")),
            },
            "limit" => self.limit = value.count()?,
            "skip" => self.skip = value.count()?,
            "descending" => self.descending = value.boolean()?,
            "inclusive_end" => self.inclusive_end = value.boolean()?,
            "include_docs" => self.include_docs = value.boolean()?,
            "conflicts" => self.conflicts = value.boolean()?,
            "update_seq" => self.update_seq = value.boolean()?,
            "attachments" => self.attachments = value.boolean()?,
            "att_encoding_info" => self.att_encoding_info = value.boolean()?,
            "sorted" => self.sorted = value.boolean()?,
            "stable" | "update" | "stale" => check_freshness(name, value)?,
            "reduce" | "group" | "group_level" => check_reduction(name, value)?,
            _ => {}
        }
        Ok(())
    }
}

/// There is nothing to reduce or to group.
fn check_reduction(name: &str, value: Given<'_>) -> Result<(), HttpError> {
    let asked = if name == "group_level" {
        value.count()? > 0
    } else {
        value.boolean()?
    };
    match (asked, name) {
        (false, _) => Ok(()),
        (true, "reduce") => Err(HttpError::query_parse("Reduce is invalid for map-only views.")),
        (true, _) => Err(HttpError::query_parse("Invalid use of grouping on a map view.")),
    }
}

/// `stale`, `update` and `stable` mean nothing for documents, yet bad values are refused as for views.
fn check_freshness(name: &str, value: Given<'_>) -> Result<(), HttpError> {
    let text = match value {
        Given::Text(text) => text.to_owned(),
        Given::Json(Value::String(text)) => text.clone(),
        Given::Json(other) => other.to_string(),
    };
    let good: &[&str] = match name {
        "stale" => &["ok", "update_after"],
        "update" => &["true", "false", "lazy"],
        _ => &["true", "false"],
    };
    if good.contains(&text.as_str()) {
        Ok(())
    } else {
        Err(HttpError::query_parse(format!("Invalid value for `{name}`.")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(raw: &str) -> Result<AllDocsQuery, HttpError> {
        AllDocsQuery::read(&Query::parse(raw)?, None)
    }

    fn reason(raw: &str) -> String {
        let error = read(raw).expect_err("a bad query");
        assert_eq!(error.status, 400);
        format!("{}: {}", error.error, error.reason.unwrap_or_default())
    }

    #[test]
    fn values_are_decoded_and_the_last_one_counts() {
        let query = Query::parse("a=1&b=x%20y+z&a=2&c").expect("good");
        assert_eq!(query.get("a"), Some("2"));
        assert_eq!(query.get("b"), Some("x y z"));
        assert_eq!(query.get("c"), Some(""));
        assert!(Query::parse("a=%").is_err());
    }

    #[test]
    fn keys_are_json_and_booleans_have_any_case() {
        let args = read("startkey=%22a%22&end_key={}&descending=TRUE&limit=0&skip=3").expect("good");
        assert_eq!(args.start_key, Some(IdKey::Id("a".to_owned())));
        assert_eq!(args.end_key, Some(IdKey::Other(serde_json::json!({}))));
        assert!(args.descending);
        assert_eq!((args.limit, args.skip), (0, 3));
    }

    #[test]
    fn bad_values_have_couchdbs_sentences() {
        assert_eq!(
            reason("limit=-1"),
            "query_parse_error: Invalid value for positive integer: \"-1\""
        );
        assert_eq!(
            reason("skip=x"),
            "query_parse_error: Invalid value for integer: \"x\""
        );
        assert_eq!(
            reason("include_docs=x"),
            "query_parse_error: Invalid boolean parameter: \"x\""
        );
        assert_eq!(
            reason("keys=1"),
            "query_parse_error: `keys` parameter must be an array."
        );
        assert_eq!(reason("startkey=a"), "bad_request: invalid UTF-8 JSON");
        assert_eq!(reason("stale=x"), "query_parse_error: Invalid value for `stale`.");
        assert_eq!(
            reason("keys=[%22a%22]&key=%22a%22"),
            "query_parse_error: `keys` is incompatible with `key`, `start_key` and `end_key`"
        );
        assert_eq!(
            reason("group=true"),
            "query_parse_error: Invalid use of grouping on a map view."
        );
    }

    #[test]
    fn the_query_string_wins_over_the_body() {
        let body = serde_json::json!({"limit": 5, "skip": 1, "keys": ["a", 2]});
        let query = Query::parse("limit=7").expect("good");
        let args = AllDocsQuery::read(&query, body.as_object()).expect("good");
        assert_eq!((args.limit, args.skip), (7, 1));
        assert_eq!(
            args.keys,
            Some(vec![
                IdKey::Id("a".to_owned()),
                IdKey::Other(serde_json::json!(2))
            ])
        );
        let bad = serde_json::json!({"keys": "1"});
        let error = AllDocsQuery::read(&Query::default(), bad.as_object()).expect_err("no array");
        assert_eq!(
            error,
            HttpError::bad_request("`keys` body member must be an array.")
        );
    }

    #[test]
    fn integers_of_any_size() {
        assert_eq!(integer("99999999999999999999999"), Some(Integer::Count(u64::MAX)));
        assert_eq!(integer("-5"), Some(Integer::Negative));
        assert_eq!(integer("+5"), Some(Integer::Count(5)));
        assert_eq!(integer(""), None);
        assert_eq!(integer("5 "), None);
        assert_eq!(integer("-"), None);
    }
}
