//! The files that the rules look at, and what a rule says when it finds something.

use std::fmt;
use std::fs;
use std::path::Path;

use walkdir::WalkDir;

/// Folders that hold nothing of ours.
const SKIPPED: [&str; 7] = [
    "target",
    "node_modules",
    ".git",
    ".cargo",
    "data",
    "__pycache__",
    "canaries",
];

/// Endings of the text files that are read.
const ENDINGS: [&str; 12] = [
    ".rs",
    ".toml",
    ".md",
    ".py",
    ".js",
    ".mjs",
    ".json",
    ".ini",
    ".sh",
    "tests/all",
    ".ci/run",
    ".npmrc",
];

/// One text file of the repository.
pub struct SourceFile {
    /// Path from the repository's top, with forward slashes.
    pub path: String,
    /// The whole text.
    pub text: String,
}

impl SourceFile {
    /// The parsed file where it is Rust; a file that does not parse is a finding.
    pub fn parse(&self, findings: &mut Vec<Finding>) -> Option<syn::File> {
        if !self.is_rust() {
            return None;
        }
        match syn::parse_file(&self.text) {
            Ok(parsed) => Some(parsed),
            Err(error) => {
                findings.push(self.finding("parses", error.to_string()));
                None
            }
        }
    }

    /// Whether the file is Rust source.
    pub fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    /// Whether all of the file is test code.
    pub fn is_test(&self) -> bool {
        let mut parts: Vec<&str> = self.path.split('/').collect();
        let name = parts.pop().unwrap_or_default();
        parts.contains(&"tests") || name == "tests.rs" || name.ends_with("_tests.rs")
    }

    /// A finding in this file.
    pub fn finding(&self, rule: &'static str, what: impl Into<String>) -> Finding {
        Finding {
            rule,
            path: self.path.clone(),
            what: what.into(),
        }
    }
}

/// Something that a rule does not allow.
#[derive(Debug)]
pub struct Finding {
    /// The rule's name.
    pub rule: &'static str,
    path: String,
    what: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} [{}]", self.path, self.what, self.rule)
    }
}

/// All text files below `top`, in order of their paths.
pub fn tree(top: &Path) -> Vec<SourceFile> {
    let mut files: Vec<SourceFile> = WalkDir::new(top)
        .into_iter()
        .filter_entry(|entry| entry.depth() == 0 || !SKIPPED.iter().any(|name| entry.file_name() == *name))
        .filter_map(Result::ok)
        .filter(|entry| entry.file_type().is_file())
        .filter_map(|entry| {
            let path = entry.path().strip_prefix(top).ok()?.to_str()?.replace('\\', "/");
            ENDINGS
                .iter()
                .any(|ending| path.ends_with(ending))
                .then_some(())?;
            let text = fs::read_to_string(entry.path()).ok()?;
            Some(SourceFile { path, text })
        })
        .collect();
    files.sort_by(|a, b| a.path.cmp(&b.path));
    files
}

/// A small text that must be flagged by the rule that its name begins with (or, for `clean`, by none).
pub struct Canary {
    /// The file's own name.
    pub name: String,
    /// The rule that must catch it.
    pub rule: String,
    /// The text, as if it stood at the path that its first line names.
    pub file: SourceFile,
}

/// All canaries: `RULE--WHAT.txt`, whose first line is the path at which the rest is supposed to stand. An `@@` in the
/// text counts for nothing; it keeps other tools from finding there what they look for.
pub fn canaries(folder: &Path) -> Vec<Canary> {
    let entries = fs::read_dir(folder).expect("the folder of canaries exists");
    entries
        .map(|entry| {
            let path = entry.expect("the folder can be read").path();
            let name = path
                .file_name()
                .expect("a file has a name")
                .to_string_lossy()
                .into_owned();
            let rule = name.split("--").next().unwrap_or_default().to_owned();
            let whole = fs::read_to_string(&path).expect("a canary is text");
            let (at, text) = whole.split_once('\n').expect("a canary begins with a path");
            Canary {
                name,
                rule,
                file: SourceFile {
                    path: at.to_owned(),
                    text: text.replace("@@", ""),
                },
            }
        })
        .collect()
}
