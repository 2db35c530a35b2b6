//! The merged table of settings: a value that never changes once built.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use ::config::{Config, ConfigError as SourceError, ValueKind};

use super::source::{LayerSource, merged_sections};
use super::stack::is_sensitive;

/// A value and where it came from.
#[derive(Clone, PartialEq, Eq)]
pub struct Entry {
    /// The value, trimmed, never empty.
    pub value: String,
    /// The layer it came from: the path of a file, `environment`, `command line` or `runtime`.
    pub origin: Arc<str>,
}

/// All settings, merged. Share it as `Arc<ConfigTable>`; a change makes a new table.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct ConfigTable {
    sections: BTreeMap<String, BTreeMap<String, Entry>>,
}

impl fmt::Debug for ConfigTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = self.iter().map(|(section, key, entry)| {
            let secret = is_sensitive(section, key);
            let value = if secret { "****" } else { entry.value.as_str() };
            ((section, key), value)
        });
        f.debug_map().entries(shown).finish()
    }
}

impl ConfigTable {
    /// Merges `layers`, of which later ones win key by key.
    ///
    /// # Errors
    ///
    /// When the `config` crate refuses a source; ours never make it do so.
    pub(crate) fn merge(layers: impl IntoIterator<Item = LayerSource>) -> Result<Self, SourceError> {
        let mut builder = Config::builder();
        for layer in layers {
            builder = builder.add_source(layer);
        }
        let mut origins: BTreeMap<String, Arc<str>> = BTreeMap::new();
        let mut sections = BTreeMap::new();
        for (section, value) in merged_sections(builder.build()?.cache)? {
            let ValueKind::Table(pairs) = value.kind else {
                continue;
            };
            let mut entries = BTreeMap::new();
            for (key, value) in pairs {
                let name = value.origin().unwrap_or_default();
                let origin = match origins.get(name) {
                    Some(origin) => origin.clone(),
                    None => {
                        let origin: Arc<str> = name.into();
                        origins.insert(name.to_owned(), origin.clone());
                        origin
                    }
                };
                let value = value.into_string()?;
                entries.insert(key, Entry { value, origin });
            }
            if !entries.is_empty() {
                sections.insert(section, entries);
            }
        }
        Ok(Self { sections })
    }

    /// A table of the given values, for embedding and for tests; its origin is `embedded`.
    ///
    /// ```
    /// let table = settee::config::ConfigTable::from_pairs([("cluster", "q", "8")]);
    /// assert_eq!(table.get("cluster", "q"), Some("8"));
    /// ```
    pub fn from_pairs<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str, &'a str)>) -> Self {
        let mut table = Self::default();
        let origin: Arc<str> = "embedded".into();
        for (section, key, value) in pairs {
            table.sections.entry(section.to_owned()).or_default().insert(
                key.to_owned(),
                Entry {
                    value: value.to_owned(),
                    origin: origin.clone(),
                },
            );
        }
        table
    }

    /// The value of `key` in `section`, if one is set. Defaults are not in the table: see
    /// [`Settings`](super::Settings).
    pub fn get(&self, section: &str, key: &str) -> Option<&str> {
        self.entry(section, key).map(|entry| entry.value.as_str())
    }

    /// The value of `key` in `section` with its origin.
    pub fn entry(&self, section: &str, key: &str) -> Option<&Entry> {
        self.sections.get(section)?.get(key)
    }

    /// The keys and values of `section` in byte order of the keys; none for an unknown section.
    pub fn section(&self, section: &str) -> impl Iterator<Item = (&str, &str)> {
        self.sections
            .get(section)
            .into_iter()
            .flatten()
            .map(|(key, entry)| (key.as_str(), entry.value.as_str()))
    }

    /// The names of all sections that have at least one key, in byte order.
    pub fn sections(&self) -> impl Iterator<Item = &str> {
        self.sections.keys().map(String::as_str)
    }

    /// Everything: section, key, value and origin, in byte order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str, &Entry)> {
        self.sections.iter().flat_map(|(section, pairs)| {
            pairs
                .iter()
                .map(move |(key, entry)| (section.as_str(), key.as_str(), entry))
        })
    }
}
