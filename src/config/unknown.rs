//! Keys that nothing reads, with the nearest key that something does.

use std::fmt;
use std::sync::Arc;

use super::settings::{self, Setting};
use super::table::ConfigTable;

/// Names longer than this, in characters, are not compared with the known ones.
const MAX_COMPARED: usize = 64;

/// Sections whose keys are the user's own.
const FREE_SECTIONS: &[&str] = &["admins"];

/// A key in the settings that nothing reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownKey {
    /// The section as written.
    pub section: String,
    /// The key as written.
    pub key: String,
    /// The layer that holds it.
    pub origin: Arc<str>,
    /// The known section and key that look most like it.
    pub nearest: Option<(&'static str, &'static str)>,
}

impl fmt::Display for UnknownKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "nothing reads [{}] {} (from {})",
            self.section, self.key, self.origin
        )?;
        match self.nearest {
            Some((section, key)) if section == self.section => write!(f, "; did you mean {key}?"),
            Some((section, key)) => write!(f, "; did you mean [{section}] {key}?"),
            None => Ok(()),
        }
    }
}

/// All keys of `table` that nothing reads.
pub fn unknown_keys(table: &ConfigTable) -> Vec<UnknownKey> {
    table
        .iter()
        .filter(|(section, key, _)| !is_known(section, key))
        .map(|(section, key, entry)| UnknownKey {
            section: section.to_owned(),
            key: key.to_owned(),
            origin: entry.origin.clone(),
            nearest: nearest(section, key),
        })
        .collect()
}

fn is_known(section: &str, key: &str) -> bool {
    FREE_SECTIONS.contains(&section)
        || settings::registry().any(|(group, setting)| {
            setting.key == key && (group.name == section || group.fallback_for(key) == Some(section))
        })
}

fn nearest(section: &str, key: &str) -> Option<(&'static str, &'static str)> {
    if section.chars().count() > MAX_COMPARED || key.chars().count() > MAX_COMPARED {
        return None;
    }
    // A third of the letters may be wrong, and a right key in a wrong section costs no more than two letters.
    let allowed = (key.chars().count() / 3).max(1);
    settings::registry()
        .map(|(_, setting)| (cost(section, key, setting), setting))
        .filter(|((letters, _), _)| *letters <= allowed)
        .min_by_key(|((letters, place), _)| letters + place)
        .map(|(_, setting)| (setting.section, setting.key))
}

fn cost(section: &str, key: &str, setting: &Setting) -> (usize, usize) {
    (
        edit_distance(key, setting.key),
        edit_distance(section, setting.section).min(2),
    )
}

/// The number of letters to insert, delete, replace or swap with their neighbour to make `b` of `a`.
fn edit_distance(a: &str, b: &str) -> usize {
    let a: Vec<char> = a.chars().collect();
    let b: Vec<char> = b.chars().collect();
    // Three rows of the table of distances between beginnings: the one before last, the last, this one.
    let mut rows = [
        vec![0; b.len() + 1],
        vec![0; b.len() + 1],
        (0..=b.len()).collect::<Vec<_>>(),
    ];
    for (i, x) in a.iter().enumerate() {
        rows.rotate_left(1);
        let [older, last, row] = &mut rows;
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let replaced = last[j] + usize::from(x != y);
            row[j + 1] = replaced.min(last[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && *x == b[j - 1] && a[i - 1] == *y {
                row[j + 1] = row[j + 1].min(older[j - 1] + 1);
            }
        }
    }
    rows[2][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances() {
        for (a, b, d) in [
            ("", "", 0),
            ("", "abc", 3),
            ("kitten", "sitting", 3),
            ("port", "prot", 1),
            ("ab", "ba", 1),
            ("abc", "", 3),
            ("ä", "a", 1),
        ] {
            assert_eq!(edit_distance(a, b), d, "{a} {b}");
            assert_eq!(edit_distance(b, a), d, "{b} {a}");
        }
    }

    #[test]
    fn suggestions() {
        let unknown = |section: &str, key: &str| {
            unknown_keys(&ConfigTable::from_pairs([(section, key, "1")]))
                .first()
                .map(ToString::to_string)
        };
        assert_eq!(unknown("chttpd", "port"), None);
        assert_eq!(unknown("admins", "anybody"), None);
        assert_eq!(unknown("httpd", "enable_cors"), None);
        assert_eq!(
            unknown("chttpd", "prot").as_deref(),
            Some("nothing reads [chttpd] prot (from embedded); did you mean port?")
        );
        assert_eq!(
            unknown("couchdb", "bind_adress").as_deref(),
            Some("nothing reads [couchdb] bind_adress (from embedded); did you mean [chttpd] bind_address?")
        );
        assert_eq!(
            unknown("zz", "somethingelse").as_deref(),
            Some("nothing reads [zz] somethingelse (from embedded)")
        );
        assert!(unknown("zz", &"x".repeat(100_000)).is_some());
    }
}
