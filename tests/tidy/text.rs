//! What plain text must have (a module doc) and must not have (markers, paths of one machine, download addresses).

use crate::source::{Finding, SourceFile};

/// Names of the rules in this file.
pub const RULES: [&str; 4] = [
    "module-doc",
    "no-leftover-marker",
    "no-machine-path",
    "no-download-address",
];

// Put together from pieces, so that this file does not hold what it looks for.
const MARKERS: [&str; 2] = [concat!("FIX", "ME"), concat!("XX", "X")];
const NUMBERED_MARKER: &str = concat!("TO", "DO");
const MACHINE_FOLDERS: [&str; 3] = [
    concat!("/wo", "rk/"),
    concat!("/ro", "ot/"),
    concat!("/fa", "rm/"),
];
const ADDRESS_KEY: &str = concat!("\"resol", "ved\"");

/// Findings in the text of one file.
pub fn check(file: &SourceFile) -> Vec<Finding> {
    let mut findings = Vec::new();
    if file.is_rust() && !file.text.trim_start().starts_with("//!") {
        findings.push(file.finding("module-doc", "begins without a module doc"));
    }
    let is_lock = file.path.ends_with("package-lock.json");
    let is_prose = file.path.ends_with(".md");
    for (number, line) in file.text.lines().enumerate() {
        let mut add = |rule, what: String| {
            findings.push(file.finding(rule, format!("line {}: {what}", number + 1)));
        };
        if let Some(marker) = leftover(line).filter(|_| !is_lock && !is_prose) {
            add("no-leftover-marker", format!("{marker} is left over"));
        }
        if let Some(folder) = MACHINE_FOLDERS.iter().find(|folder| names_folder(line, folder)) {
            add("no-machine-path", format!("{folder} is a folder of one machine"));
        }
        if is_lock && line.contains(ADDRESS_KEY) {
            add(
                "no-download-address",
                "a lock file with download addresses".to_owned(),
            );
        }
    }
    findings
}

/// The marker that a line leaves behind; one that cites an issue, as in `(#12)`, may stay.
fn leftover(line: &str) -> Option<&'static str> {
    let whole_word = |marker: &str| {
        line.match_indices(marker).any(|(at, _)| {
            let is_word = |c: char| c.is_alphanumeric() || c == '_';
            !line[..at].ends_with(is_word) && !line[at + marker.len()..].starts_with(is_word)
        })
    };
    if let Some(marker) = MARKERS.into_iter().find(|marker| whole_word(marker)) {
        return Some(marker);
    }
    let is_numbered = line.split(NUMBERED_MARKER).skip(1).all(|rest| {
        rest.strip_prefix("(#")
            .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    });
    (whole_word(NUMBERED_MARKER) && !is_numbered).then_some(NUMBERED_MARKER)
}

/// Whether a line names a folder at the root of a file system, and not one below another name.
fn names_folder(line: &str, folder: &str) -> bool {
    line.match_indices(folder).any(|(at, _)| {
        !line[..at]
            .ends_with(|c: char| c.is_alphanumeric() || matches!(c, '.' | '}' | '-' | '_' | '~' | '*' | ')'))
    })
}
