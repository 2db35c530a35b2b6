//! CouchDB's ini dialect, line by line.
//!
//! The rules, which differ from every common ini reader: a `;` begins a comment at the start of a line or after a space
//! or a tab; the first ` = ` splits a line, and only without one the first `=`, so that keys may hold `=`; values keep
//! their case, `%` and quotes; a line with an empty value counts for nothing; a section name is everything between `[`
//! and the first `]`, dots, colons and blanks included. There are no continuation lines and no escapes.

use std::collections::BTreeMap;

/// The most bytes that one ini file may have.
pub const MAX_INI_BYTES: u64 = 4 * 1024 * 1024;

/// Section name to key to value, as one file or one other layer gives them.
pub type Sections = BTreeMap<String, BTreeMap<String, String>>;

/// What one line of an ini file is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Line<'a> {
    /// Nothing but blanks, or a comment.
    Blank,
    /// The header of a section.
    Section(&'a str),
    /// A key and its value, neither of them empty.
    Pair {
        /// The key, trimmed.
        key: &'a str,
        /// The value, trimmed and without its comment.
        value: &'a str,
    },
    /// A key without a value, which CouchDB passes over: the value of an earlier file stays visible.
    Unset(&'a str),
    /// Something that is neither a header nor a pair.
    Malformed,
}

/// A line that the reader passed over because it makes no sense.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MalformedLine {
    /// The number of the line, from 1.
    pub number: usize,
    /// Why it counts for nothing.
    pub reason: &'static str,
}

/// The end of `line` without its comment, in bytes, and the comment from the blank before its `;` on.
pub(crate) fn split_comment(line: &str) -> (&str, &str) {
    if line.trim_start().starts_with(';') {
        return ("", line);
    }
    // A `;` first in the trimmed line was handled above, so the blank found here lies behind some text.
    let start = line.len() - line.trim_start().len();
    let body = &line[start..];
    match (body.find(" ;"), body.find("\t;")) {
        (None, None) => (line, ""),
        (space, tab) => {
            let cut = start + space.unwrap_or(usize::MAX).min(tab.unwrap_or(usize::MAX));
            (&line[..cut], &line[cut..])
        }
    }
}

/// Tells what `line` (without its line end) is.
pub fn classify(line: &str) -> Line<'_> {
    let text = split_comment(line).0.trim();
    if text.is_empty() {
        return Line::Blank;
    }
    if let Some(rest) = text.strip_prefix('[') {
        return match rest.split_once(']') {
            Some((name, "")) if !name.is_empty() => Line::Section(name),
            _ => Line::Malformed,
        };
    }
    let halves = match text.split_once(" = ") {
        Some(halves) => Some(halves),
        None => text.split_once('='),
    };
    match halves {
        Some((key, value)) => match (key.trim(), value.trim()) {
            ("", _) => Line::Malformed,
            (key, "") => Line::Unset(key),
            (key, value) => Line::Pair { key, value },
        },
        None => Line::Malformed,
    }
}

/// Cuts `text` into lines with their line ends. CouchDB ends a line at CR LF, LF, CR or SUB.
pub(crate) fn lines(text: &str) -> impl Iterator<Item = (&str, &str)> {
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let (line, end, next) = match rest.find(['\n', '\r', '\u{1a}']) {
            None => (rest, "", ""),
            Some(at) => {
                let width = if rest[at..].starts_with("\r\n") { 2 } else { 1 };
                (&rest[..at], &rest[at..at + width], &rest[at + width..])
            }
        };
        rest = next;
        Some((line, end))
    })
}

/// Reads `text`. Never fails: what makes no sense is passed over, as CouchDB does, and listed in the second half.
pub fn parse(text: &str) -> (Sections, Vec<MalformedLine>) {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut sections = Sections::new();
    let mut malformed = Vec::new();
    let mut section: Option<&str> = None;
    for (index, (line, _)) in lines(text).enumerate() {
        let mut complain = |reason| {
            malformed.push(MalformedLine {
                number: index + 1,
                reason,
            });
        };
        match (classify(line), section) {
            (Line::Blank, _) => {}
            (Line::Section(name), _) => section = Some(name),
            (Line::Malformed, _) => complain("neither a section header nor `key = value`"),
            (Line::Pair { .. } | Line::Unset(_), None) => complain("a key before the first section header"),
            (Line::Unset(_), Some(_)) => {}
            (Line::Pair { key, value }, Some(name)) => {
                sections
                    .entry(name.to_owned())
                    .or_default()
                    .insert(key.to_owned(), value.to_owned());
            }
        }
    }
    (sections, malformed)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    fn flat(text: &str) -> Vec<(String, String, String)> {
        parse(text)
            .0
            .into_iter()
            .flat_map(|(section, pairs)| pairs.into_iter().map(move |(k, v)| (section.clone(), k, v)))
            .collect()
    }

    fn one(text: &str) -> (String, String) {
        let all = flat(text);
        assert_eq!(all.len(), 1, "{text:?} gave {all:?}");
        let (section, key, value) = all.into_iter().next().unwrap();
        assert_eq!(section, "s");
        (key, value)
    }

    #[test]
    fn lines_that_count_for_nothing() {
        for text in [
            "",
            "k",
            "[s]",
            "[s ]",
            "k1\nk2",
            "=",
            "= =",
            " = ",
            ";;",
            "k = v",
            "[s]\n;k = v",
            "[s\nk=v",
            "s]\nk=v",
            "[s]\n\t;k = v",
            "[s]\nk ;=v",
            "[]\nk = v",
            "[s]\nk=",
            "[s]\nk = ;",
            "[s]\nk  =\t;",
            "[s]\nk = ;v",
            ";[s]\n ",
        ] {
            assert_eq!(flat(text), [], "{text:?}");
        }
    }

    #[test]
    fn splitting_at_equals_signs() {
        for (line, key, value) in [
            ("k=v", "k", "v"),
            ("k  =v", "k", "v"),
            ("k=  v  ", "k", "v"),
            ("k==v", "k", "=v"),
            ("k=v=", "k", "v="),
            ("k = =v", "k", "=v"),
            ("k= = v", "k=", "v"),
            ("==k== = v", "==k==", "v"),
            ("rsa:h2= = a=b = c", "rsa:h2=", "a=b = c"),
            ("fmt = %s 100%", "fmt", "%s 100%"),
        ] {
            assert_eq!(
                one(&format!("[s]\n{line}")),
                (key.into(), value.into()),
                "{line:?}"
            );
        }
    }

    #[test]
    fn comments_need_a_blank_before_them() {
        for (line, value) in [
            ("k = v ; c", "v"),
            ("k = v;", "v;"),
            ("k=;", ";"),
            ("k =;v;", ";v;"),
            ("k = v1;v2\t;x", "v1;v2"),
            ("k = v1;v2 ;c1; c2", "v1;v2"),
            ("file = /x ; comment", "/x"),
        ] {
            let (_, got) = one(&format!("[s]\n{line}"));
            assert_eq!(got, value, "{line:?}");
        }
    }

    #[test]
    fn sections_keep_dots_case_and_colons() {
        let (sections, bad) = parse(
            "\u{feff}[smoosh.ratio_dbs]\r\nA = 1\r[cors:http://e.com]\norigins = *\n[admins]\nAdm = x\nadm = y",
        );
        assert!(bad.is_empty());
        assert_eq!(sections["smoosh.ratio_dbs"]["A"], "1");
        assert_eq!(sections["cors:http://e.com"]["origins"], "*");
        assert_eq!(sections["admins"].len(), 2);
    }

    #[test]
    fn malformed_lines_are_listed() {
        let (_, bad) = parse("a = b\n[s\nk = v\n[t]\nword\n");
        assert_eq!(
            bad.iter().map(|line| line.number).collect::<Vec<_>>(),
            [1, 2, 3, 5]
        );
    }
}
