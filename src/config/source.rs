//! CouchDB's dialect as a format and a source of the `config` crate.
//!
//! The crate reads the keys of a source's outermost table as paths, so that a section `vhosts.example.com` would become
//! three nested tables; keys further in are taken as they are. So [`LayerSource`] puts all sections one table deeper,
//! and readers walk the merged table and never ask by path.

use std::error::Error;

use ::config::{ConfigError, Format, Map, Source, Value, ValueKind};

use super::dialect::{self, Sections};

/// The one key of the outermost table, under which all sections are.
const ROOT: &str = "ini";

/// The format: text in CouchDB's dialect to tables of strings.
#[derive(Debug, Clone, Copy)]
pub struct IniDialect;

impl Format for IniDialect {
    fn parse(
        &self,
        uri: Option<&String>,
        text: &str,
    ) -> Result<Map<String, Value>, Box<dyn Error + Send + Sync>> {
        Ok(tables(uri, &dialect::parse(text).0))
    }
}

fn tables(origin: Option<&String>, sections: &Sections) -> Map<String, Value> {
    let table = |pairs: &std::collections::BTreeMap<String, String>| -> Map<String, Value> {
        pairs
            .iter()
            .map(|(key, value)| (key.clone(), Value::new(origin, ValueKind::String(value.clone()))))
            .collect()
    };
    sections
        .iter()
        .map(|(section, pairs)| {
            (
                section.clone(),
                Value::new(origin, ValueKind::Table(table(pairs))),
            )
        })
        .collect()
}

/// One layer of settings. Each of its values carries the layer's name as its origin.
#[derive(Debug, Clone)]
pub struct LayerSource {
    origin: String,
    sections: Sections,
}

impl LayerSource {
    /// A layer called `origin` (a path, `environment`, `command line`).
    pub fn new(origin: impl Into<String>, sections: Sections) -> Self {
        Self {
            origin: origin.into(),
            sections,
        }
    }
}

impl Source for LayerSource {
    fn clone_into_box(&self) -> Box<dyn Source + Send + Sync> {
        Box::new(self.clone())
    }

    fn collect(&self) -> Result<Map<String, Value>, ConfigError> {
        let sections = tables(Some(&self.origin), &self.sections);
        Ok(Map::from_iter([(
            ROOT.to_owned(),
            Value::new(Some(&self.origin), ValueKind::Table(sections)),
        )]))
    }
}

/// The tables of all sections in what the `config` crate has merged.
///
/// # Errors
///
/// When a source other than [`LayerSource`] took part.
pub(super) fn merged_sections(root: Value) -> Result<Map<String, Value>, ConfigError> {
    match root.into_table()?.remove(ROOT) {
        Some(sections) => sections.into_table(),
        None => Ok(Map::new()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_layers_win_key_by_key_and_dots_do_not_nest() -> Result<(), ConfigError> {
        let layer = |name: &str, text: &str| LayerSource::new(name, dialect::parse(text).0);
        let merged = ::config::Config::builder()
            .add_source(layer("one", "[smoosh.ratio_dbs]\na = 1\nb = 1\n[x[0]\nk = v"))
            .add_source(layer("two", "[smoosh.ratio_dbs]\nb = 2"))
            .build()?;
        let root = merged_sections(merged.cache)?;
        let section = root["smoosh.ratio_dbs"].clone().into_table()?;
        assert!(root.contains_key("x[0"));
        assert_eq!(section["a"].origin(), Some("one"));
        assert_eq!(section["b"].origin(), Some("two"));
        assert_eq!(section["b"].clone().into_string()?, "2");
        Ok(())
    }

    #[test]
    fn the_format_keeps_case_and_strips_comments() -> Result<(), Box<dyn Error + Send + Sync>> {
        let parsed = IniDialect.parse(Some(&"f".to_owned()), "[admins]\nAdm = x ; y")?;
        let admins = parsed["admins"].clone().into_table()?;
        assert_eq!(admins["Adm"].clone().into_string()?, "x");
        Ok(())
    }
}
