//! Changing one key of an ini file and leaving every other byte of it as it was.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use super::dialect::{self, Line, MAX_INI_BYTES};

/// Why the text of a file cannot take a value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EditError {
    /// The dialect has no way to write this so that it reads back the same, for example a value with ` ;` in it.
    #[error("cannot be written to an ini file so that it reads back the same")]
    NotRepresentable,
}

/// `text` with `key` of `section` set to `value`, or without it when `value` is `None`.
///
/// The last line that sets the key is replaced, its indentation and its comment kept; a new key goes behind the last
/// key of its section; a new section goes to the end.
///
/// # Errors
///
/// [`EditError::NotRepresentable`] when reading the new text would not give exactly the old settings with this one
/// change.
pub fn edit(text: &str, section: &str, key: &str, value: Option<&str>) -> Result<String, EditError> {
    let mut wanted = dialect::parse(text).0;
    let edited = match value {
        Some(value) => {
            wanted
                .entry(section.to_owned())
                .or_default()
                .insert(key.to_owned(), value.to_owned());
            with_value(text, section, key, value)
        }
        None => {
            if let Some(pairs) = wanted.get_mut(section) {
                pairs.remove(key);
            }
            without_key(text, section, key)
        }
    };
    wanted.retain(|_, pairs| !pairs.is_empty());
    if dialect::parse(&edited).0 == wanted {
        Ok(edited)
    } else {
        Err(EditError::NotRepresentable)
    }
}

/// Where in a text a key is, or where it would go.
struct Place {
    /// The bytes of the last line that sets the key, without its line end.
    line: Option<(usize, usize)>,
    /// Behind the last key of the last part of the section, line end included.
    insert_at: Option<usize>,
}

fn find(text: &str, section: &str, key: &str) -> Place {
    let mut place = Place {
        line: None,
        insert_at: None,
    };
    let mut inside = false;
    let mut start = if text.starts_with('\u{feff}') {
        '\u{feff}'.len_utf8()
    } else {
        0
    };
    for (line, end) in dialect::lines(&text[start..]) {
        let next = start + line.len() + end.len();
        match dialect::classify(line) {
            Line::Section(name) => {
                inside = name == section;
                if inside {
                    place.insert_at = Some(next);
                }
            }
            Line::Pair { key: found, .. } | Line::Unset(found) if inside => {
                place.insert_at = Some(next);
                if found == key {
                    place.line = Some((start, start + line.len()));
                }
            }
            _ => {}
        }
        start = next;
    }
    place
}

fn with_value(text: &str, section: &str, key: &str, value: &str) -> String {
    let newline = if text.contains("\r\n") { "\r\n" } else { "\n" };
    let place = find(text, section, key);
    if let Some((start, end)) = place.line {
        let line = &text[start..end];
        let indent = &line[..line.len() - line.trim_start().len()];
        let comment = dialect::split_comment(line).1;
        return format!(
            "{}{indent}{key} = {value}{comment}{}",
            &text[..start],
            &text[end..]
        );
    }
    if let Some(at) = place.insert_at {
        let (before, after) = text.split_at(at);
        let gap = if before.ends_with(['\n', '\r', '\u{1a}']) {
            ""
        } else {
            newline
        };
        return format!("{before}{gap}{key} = {value}{newline}{after}");
    }
    let body = text.trim_end_matches(['\n', '\r']);
    let gap = if body.trim().is_empty() {
        String::new()
    } else {
        newline.repeat(2)
    };
    format!("{body}{gap}[{section}]{newline}{key} = {value}{newline}")
}

fn without_key(text: &str, section: &str, key: &str) -> String {
    let (mark, body) = match text.strip_prefix('\u{feff}') {
        Some(body) => ("\u{feff}", body),
        None => ("", text),
    };
    let mut kept = String::with_capacity(text.len());
    kept.push_str(mark);
    let mut inside = false;
    for (line, end) in dialect::lines(body) {
        match dialect::classify(line) {
            Line::Section(name) => inside = name == section,
            Line::Pair { key: found, .. } | Line::Unset(found) if inside && found == key => continue,
            _ => {}
        }
        kept.push_str(line);
        kept.push_str(end);
    }
    kept
}

/// Reads an ini file; a missing one gives `None`.
///
/// # Errors
///
/// Those of reading; `InvalidData` when it is longer than [`MAX_INI_BYTES`] or not UTF-8.
pub(crate) fn read(path: &Path) -> io::Result<Option<String>> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut text = String::new();
    file.take(MAX_INI_BYTES + 1).read_to_string(&mut text)?;
    if text.len() as u64 > MAX_INI_BYTES {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "the file is too long for an ini file",
        ));
    }
    Ok(Some(text))
}

/// Replaces `path` by `text` so that a crash leaves either the old file or the new one: a new file beside it is
/// written, synced and renamed, and the folder synced. A file that did not exist is readable by its owner only, for it
/// will hold secrets.
///
/// # Errors
///
/// Those of the file system.
pub(crate) fn replace(path: &Path, text: &str) -> io::Result<()> {
    // A link stays a link: what is replaced is the file that it names.
    let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let folder = match target.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder.to_owned(),
        _ => PathBuf::from("."),
    };
    fs::create_dir_all(&folder)?;
    let mut name = target.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.new", std::process::id()));
    let fresh = folder.join(name);
    let written = write_new(&fresh, &target, text).and_then(|()| fs::rename(&fresh, &target));
    if let Err(error) = written {
        // Best effort: the error that matters is the first one.
        let _ = fs::remove_file(&fresh);
        return Err(error);
    }
    File::open(&folder)?.sync_all()
}

fn write_new(fresh: &Path, target: &Path, text: &str) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(fresh)?;
    if let Ok(old) = fs::metadata(target) {
        file.set_permissions(old.permissions())?;
    }
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TEXT: &str = "; top\n[a]\n  k = old ; why\n;x = 1\n\n[b.c]\nk = 2\n";

    #[test]
    fn a_replaced_line_keeps_its_comment_and_its_neighbours() {
        assert_eq!(
            edit(TEXT, "a", "k", Some("new=%s")).unwrap(),
            "; top\n[a]\n  k = new=%s ; why\n;x = 1\n\n[b.c]\nk = 2\n"
        );
    }

    #[test]
    fn new_keys_and_sections() {
        assert_eq!(
            edit(TEXT, "a", "n", Some("1")).unwrap(),
            "; top\n[a]\n  k = old ; why\nn = 1\n;x = 1\n\n[b.c]\nk = 2\n"
        );
        assert_eq!(edit("[a]", "a", "n", Some("1")).unwrap(), "[a]\nn = 1\n");
        assert_eq!(edit("", "a", "n", Some("1")).unwrap(), "[a]\nn = 1\n");
        assert_eq!(
            edit("; c\n\n", "a", "n", Some("1")).unwrap(),
            "; c\n\n[a]\nn = 1\n"
        );
        assert_eq!(
            edit("[b]\r\nx=1", "a", "n", Some("1")).unwrap(),
            "[b]\r\nx=1\r\n\r\n[a]\r\nn = 1\r\n"
        );
    }

    #[test]
    fn the_last_of_two_lines_counts_and_both_are_deleted() {
        let text = "[a]\nk = 1\n[b]\nk = 0\n[a]\nk = 2\n";
        assert_eq!(
            edit(text, "a", "k", Some("3")).unwrap(),
            "[a]\nk = 1\n[b]\nk = 0\n[a]\nk = 3\n"
        );
        assert_eq!(edit(text, "a", "k", None).unwrap(), "[a]\n[b]\nk = 0\n[a]\n");
        assert_eq!(edit(text, "a", "none", None).unwrap(), text);
    }

    #[test]
    fn what_would_not_read_back_is_refused() {
        for (key, value) in [
            ("b", "x ; y"),
            ("b", "x\t; y"),
            (";semi", "v"),
            ("b", ";v"),
            ("a = b", "v"),
            ("[k", "v"),
            ("k", "a\nb = c"),
        ] {
            assert_eq!(
                edit(TEXT, "zz", key, Some(value)),
                Err(EditError::NotRepresentable),
                "{key} {value:?}"
            );
        }
        for (key, value) in [("a", "x;y"), ("k=v", "val"), ("k", "a = b"), ("k", "[x]")] {
            let text = edit(TEXT, "zz", key, Some(value)).unwrap();
            assert_eq!(dialect::parse(&text).0["zz"][key], value);
        }
    }

    #[test]
    fn replacing_a_file_leaves_no_other() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sub/local.ini");
        replace(&path, "one").unwrap();
        replace(&path, "two").unwrap();
        assert_eq!(read(&path).unwrap().as_deref(), Some("two"));
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
        assert_eq!(read(&folder.path().join("none")).unwrap(), None);
    }

    proptest! {
        #[test]
        fn any_text_takes_an_edit_or_refuses_it(
            text in "([a-c;= \\[\\]\\t\\r\\n]|\\[a\\]\\n|k = v\\n){0,40}",
            key in "[a-c;= \\[]{1,4}",
            value in "[a-c;= \\t]{1,6}",
        ) {
            if let Ok(edited) = edit(&text, "a", key.trim(), Some(value.trim())) {
                let sections = dialect::parse(&edited).0;
                prop_assert_eq!(&sections["a"][key.trim()], value.trim());
                let back = edit(&edited, "a", key.trim(), None);
                prop_assert!(back.is_ok());
            }
        }
    }
}
