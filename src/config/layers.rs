//! Where the layers of settings come from: files, the environment, the command line.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::DEFAULT_INI;
use super::dialect::{self, Sections};
use super::stack::{DefaultIni, LoadError, LoadOptions, Warning, check_names};
use super::writeback;

/// The name of the file in the data directory that changes are written to.
pub(super) const LOCAL_INI: &str = "local.ini";
/// Variables of the environment that begin like this set a key: `SETTEE_CHTTPD__PORT`.
const ENV_PREFIX: &str = "SETTEE_";

/// What a layer is, from weak to strong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    /// Defaults and `--ini` files: never written.
    Fixed,
    /// `local.ini` of the data directory.
    Local,
    /// A file of `local.d` of the data directory.
    LocalD,
    /// The environment and the command line.
    Override,
    /// Set at run time and not written.
    Runtime,
}

#[derive(Clone)]
pub(super) struct Layer {
    pub(super) kind: Kind,
    /// The path, for files; else a word.
    pub(super) name: PathBuf,
    pub(super) sections: Sections,
}

impl Layer {
    pub(super) fn new(kind: Kind, name: impl Into<PathBuf>, sections: Sections) -> Self {
        Self {
            kind,
            name: name.into(),
            sections,
        }
    }

    pub(super) fn holds(&self, section: &str, key: &str) -> bool {
        self.sections
            .get(section)
            .is_some_and(|pairs| pairs.contains_key(key))
    }

    pub(super) fn put(&mut self, section: &str, key: &str, value: &str) {
        self.sections
            .entry(section.to_owned())
            .or_default()
            .insert(key.to_owned(), value.to_owned());
    }

    pub(super) fn remove(&mut self, section: &str, key: &str) {
        if let Some(pairs) = self.sections.get_mut(section) {
            pairs.remove(key);
        }
    }
}

/// The layers that are files, weakest first.
pub(super) fn file_layers(
    options: &LoadOptions,
    malformed: &mut Vec<Warning>,
) -> Result<Vec<Layer>, LoadError> {
    let mut layers = Vec::new();
    match &options.default_ini {
        DefaultIni::Embedded => {
            layers.push(Layer::new(Kind::Fixed, "built in", dialect::parse(DEFAULT_INI).0))
        }
        DefaultIni::File(path) => {
            layers.push(required(Kind::Fixed, path, malformed)?);
            for path in ini_files(&path.with_file_name("default.d"))? {
                layers.push(required(Kind::Fixed, &path, malformed)?);
            }
        }
    }
    for path in &options.ini_files {
        if path.is_dir() {
            for path in ini_files(path)? {
                layers.push(required(Kind::Fixed, &path, malformed)?);
            }
        } else {
            layers.push(required(Kind::Fixed, path, malformed)?);
        }
    }
    if let Some(folder) = &options.data_dir {
        let local = folder.join(LOCAL_INI);
        let layer = read_layer(Kind::Local, &local, malformed)?;
        layers.push(layer.unwrap_or_else(|| Layer::new(Kind::Local, local, Sections::new())));
        for path in ini_files(&folder.join("local.d"))? {
            layers.push(required(Kind::LocalD, &path, malformed)?);
        }
    }
    Ok(layers)
}

fn required(kind: Kind, path: &Path, malformed: &mut Vec<Warning>) -> Result<Layer, LoadError> {
    read_layer(kind, path, malformed)?.ok_or_else(|| LoadError::Read {
        path: path.to_owned(),
        source: io::ErrorKind::NotFound.into(),
    })
}

fn read_layer(kind: Kind, path: &Path, malformed: &mut Vec<Warning>) -> Result<Option<Layer>, LoadError> {
    let text = writeback::read(path).map_err(|source| LoadError::Read {
        path: path.to_owned(),
        source,
    })?;
    Ok(text.map(|text| {
        let (sections, bad) = dialect::parse(&text);
        malformed.extend(bad.into_iter().map(|line| Warning::Malformed {
            path: path.display().to_string(),
            line,
        }));
        Layer::new(kind, path, sections)
    }))
}

/// The `*.ini` files of a folder in byte order of their names; none when there is no such folder.
fn ini_files(folder: &Path) -> Result<Vec<PathBuf>, LoadError> {
    let failed = |source| LoadError::Read {
        path: folder.to_owned(),
        source,
    };
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(failed(error)),
    };
    let mut paths = Vec::new();
    for entry in entries {
        let path = entry.map_err(failed)?.path();
        if path.extension().is_some_and(|extension| extension == "ini") && path.is_file() {
            paths.push(path);
        }
    }
    paths.sort();
    Ok(paths)
}

pub(super) fn from_env(env: &[(String, String)]) -> Sections {
    let mut layer = Layer::new(Kind::Override, "", Sections::new());
    let find = |name: &str| {
        let found = env
            .iter()
            .find(|(key, value)| key == name && !value.trim().is_empty());
        found.map(|(_, value)| value.trim())
    };
    if let (Some(user), Some(password)) = (find("COUCHDB_USER"), find("COUCHDB_PASSWORD")) {
        layer.put("admins", user, password);
    }
    if let Some(secret) = find("COUCHDB_SECRET") {
        layer.put("chttpd_auth", "secret", secret);
    }
    for (name, value) in env {
        let names = name
            .strip_prefix(ENV_PREFIX)
            .and_then(|rest| rest.split_once("__"));
        if let (Some((section, key)), value @ [_, ..]) = (names, value.trim().as_bytes()) {
            let value = String::from_utf8_lossy(value);
            layer.put(&section.to_lowercase(), &key.to_lowercase(), &value);
        }
    }
    layer.sections
}

pub(super) fn from_sets(sets: &[String]) -> Result<Sections, LoadError> {
    let mut layer = Layer::new(Kind::Override, "", Sections::new());
    for set in sets {
        // The section may hold slashes (`cors:http://host`), the key may not.
        let parts = set
            .split_once('=')
            .and_then(|(names, value)| Some((names.rsplit_once('/')?, value.trim())));
        match parts {
            Some(((section, key), value)) if check_names(section, key).is_ok() && !value.is_empty() => {
                layer.put(section, key, value);
            }
            _ => {
                let shown = set.split('=').next().unwrap_or_default();
                return Err(LoadError::BadSet(shown.to_owned()));
            }
        }
    }
    Ok(layer.sections)
}
