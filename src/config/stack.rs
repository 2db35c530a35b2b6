//! The layers of settings: loading them, changing a key, reading them again.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::dialect::{MalformedLine, Sections};
use super::layers::{self, Kind, LOCAL_INI, Layer};
use super::settings::{ConfigError, Settings};
use super::source::LayerSource;
use super::table::ConfigTable;
use super::unknown::{UnknownKey, unknown_keys};
use super::writeback;

/// The most bytes that a section or a key may have when it is set at run time.
const MAX_NAME_BYTES: usize = 1024;
/// The most bytes that a value may have when it is set at run time.
const MAX_VALUE_BYTES: usize = 256 * 1024;
/// Where the weakest layer comes from.
#[derive(Debug, Clone, Default)]
pub enum DefaultIni {
    /// The text built into the program.
    #[default]
    Embedded,
    /// A file, and the `*.ini` files of the folder `default.d` beside it.
    File(PathBuf),
}

/// What to load.
#[derive(Clone, Default)]
pub struct LoadOptions {
    /// The weakest layer.
    pub default_ini: DefaultIni,
    /// Files, or folders of `*.ini` files, in the order of the command line; each must exist.
    pub ini_files: Vec<PathBuf>,
    /// Where `local.ini` and `local.d` are and changes are written to. Without one, nothing can be written.
    pub data_dir: Option<PathBuf>,
    /// The environment. `SETTEE_SECTION__KEY` sets a key (both in lower case); `COUCHDB_USER` with
    /// `COUCHDB_PASSWORD` an admin and `COUCHDB_SECRET` the cookie secret, as CouchDB's container image does.
    pub env: Vec<(String, String)>,
    /// `SECTION/KEY=VALUE`, from the command line.
    pub sets: Vec<String>,
}

impl fmt::Debug for LoadOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The environment and the arguments may hold secrets.
        f.debug_struct("LoadOptions")
            .field("default_ini", &self.default_ini)
            .field("ini_files", &self.ini_files)
            .field("data_dir", &self.data_dir)
            .finish_non_exhaustive()
    }
}

/// Why the settings cannot be loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// A file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file or folder.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// An argument that is not `SECTION/KEY=VALUE`; here up to its equals sign, for the rest may be a secret.
    #[error("{0:?} does not begin a SECTION/KEY=VALUE")]
    BadSet(String),
    /// Values that are not accepted, all of them.
    #[error("{}", lines(.0))]
    Invalid(Vec<ConfigError>),
    /// The layers could not be merged.
    #[error("cannot merge the settings: {0}")]
    Merge(#[from] ::config::ConfigError),
}

/// Why a key cannot be changed.
#[derive(Debug, thiserror::Error)]
pub enum ChangeError {
    /// The section is empty, too long, or has brackets or control characters.
    #[error("invalid configuration section")]
    Section,
    /// The key is empty, too long, or has brackets or control characters.
    #[error("invalid configuration key")]
    Key,
    /// The value is too long or has control characters.
    #[error("invalid configuration value")]
    Value,
    /// The dialect has no way to write this, for example a value with ` ;`, which begins a comment.
    #[error(
        "invalid configuration value: it cannot be written to an ini file so that it reads back the same"
    )]
    NotRepresentable,
    /// The settings as a whole would not be accepted.
    #[error("invalid configuration value: {}", lines(.0))]
    Invalid(Vec<ConfigError>),
    /// There is no such key.
    #[error("unknown config value")]
    Unknown,
    /// There is no data directory to write to.
    #[error("the configuration has no data directory to be written to")]
    NoDataDir,
    /// The file cannot be written; nothing changed.
    #[error("cannot write {}: {source}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The layers could not be merged.
    #[error("cannot merge the settings: {0}")]
    Merge(#[from] ::config::ConfigError),
}

fn lines(errors: &[ConfigError]) -> String {
    errors
        .iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join("\n")
}

/// Whether a change is to outlive the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Persist {
    /// Written to the data directory.
    Yes,
    /// In memory only, until the next reload.
    No,
}

/// One key that changed.
#[derive(Clone, PartialEq, Eq)]
pub struct Change {
    /// The section.
    pub section: String,
    /// The key.
    pub key: String,
    /// The value before, if there was one.
    pub old: Option<String>,
    /// The value now, if there is one. After a deletion it may be that of an earlier layer.
    pub new: Option<String>,
}

impl fmt::Debug for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |value: &Option<String>| match value {
            Some(_) if is_sensitive(&self.section, &self.key) => Some("****".to_owned()),
            shown => shown.clone(),
        };
        f.debug_struct("Change")
            .field("section", &self.section)
            .field("key", &self.key)
            .field("old", &shown(&self.old))
            .field("new", &shown(&self.new))
            .finish()
    }
}

/// Something odd in the settings that does not keep the server from starting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Warning {
    /// A key that nothing reads.
    Unknown(UnknownKey),
    /// A line that makes no sense.
    Malformed {
        /// The file.
        path: String,
        /// The line and the reason.
        line: MalformedLine,
    },
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(key) => key.fmt(f),
            Self::Malformed { path, line } => write!(f, "{path}, line {}: {}", line.number, line.reason),
        }
    }
}

/// Whether the value of a key is a secret, which logs must not show.
pub fn is_sensitive(section: &str, key: &str) -> bool {
    section == "admins"
        || section == "jwt_keys"
        || (matches!(section, "chttpd_auth" | "couch_httpd_auth") && key == "secret")
        || (section == "replicator" && key == "password")
        || (section == "ssl" && key == "password")
}

/// Whether CouchDB refuses to change the section over HTTP, because its values name code to run.
pub fn is_protected(section: &str) -> bool {
    matches!(
        section,
        "daemons"
            | "external"
            | "httpd_design_handlers"
            | "httpd_db_handlers"
            | "httpd_global_handlers"
            | "native_query_servers"
            | "os_daemons"
            | "query_servers"
            | "feature_flags"
    )
}

/// All layers, with the table and the typed settings that they give together.
pub struct ConfigStack {
    options: LoadOptions,
    layers: Vec<Layer>,
    table: Arc<ConfigTable>,
    settings: Arc<Settings>,
    warnings: Vec<Warning>,
}

impl fmt::Debug for ConfigStack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConfigStack")
            .field("options", &self.options)
            .field("table", &self.table)
            .field("warnings", &self.warnings)
            .finish_non_exhaustive()
    }
}

impl ConfigStack {
    /// Loads and checks all layers.
    ///
    /// # Errors
    ///
    /// A file that cannot be read, a bad argument, or every value that is not accepted.
    pub fn load(options: LoadOptions) -> Result<Self, LoadError> {
        let mut malformed = Vec::new();
        let mut layers = layers::file_layers(&options, &mut malformed)?;
        layers.push(Layer::new(
            Kind::Override,
            "environment",
            layers::from_env(&options.env),
        ));
        layers.push(Layer::new(
            Kind::Override,
            "command line",
            layers::from_sets(&options.sets)?,
        ));
        layers.push(Layer::new(Kind::Runtime, "runtime", Sections::new()));
        let table = merge(&layers)?;
        let settings = Settings::from_table(&table).map_err(LoadError::Invalid)?;
        Ok(Self {
            options,
            layers,
            warnings: warnings(&table, malformed),
            table: Arc::new(table),
            settings: Arc::new(settings),
        })
    }

    /// The merged table. It never changes; a change makes a new one.
    pub fn table(&self) -> Arc<ConfigTable> {
        self.table.clone()
    }

    /// The typed settings of the table.
    pub fn settings(&self) -> Arc<Settings> {
        self.settings.clone()
    }

    /// What was odd at the last load or reload; for the log.
    pub fn warnings(&self) -> &[Warning] {
        &self.warnings
    }

    /// The file that new keys are written to.
    pub fn local_ini(&self) -> Option<PathBuf> {
        self.options
            .data_dir
            .as_ref()
            .map(|folder| folder.join(LOCAL_INI))
    }

    /// The value that the files of the data directory hold for a key, whatever a stronger layer says.
    pub fn persisted(&self, section: &str, key: &str) -> Option<&str> {
        self.layers
            .iter()
            .rev()
            .filter(|layer| matches!(layer.kind, Kind::Local | Kind::LocalD))
            .find_map(|layer| layer.sections.get(section)?.get(key))
            .map(String::as_str)
    }

    /// Sets a key: everything is checked, then written, then seen. An empty value deletes the key.
    ///
    /// A persistent change goes to the file of `local.d` that holds the key, else to `local.ini`, and until the next
    /// start it also wins over the environment and the command line. Surrounding blanks of the value are cut off.
    ///
    /// # Errors
    ///
    /// When a name or the value cannot be written, when the settings with the change are not accepted, or when the file
    /// cannot be written. Nothing has changed then.
    pub fn set(
        &mut self,
        section: &str,
        key: &str,
        value: &str,
        persist: Persist,
    ) -> Result<Change, ChangeError> {
        let value = value.trim();
        check_names(section, key)?;
        if value.len() > MAX_VALUE_BYTES || !printable(value) {
            return Err(ChangeError::Value);
        }
        if value.is_empty() {
            return match self.delete(section, key, persist) {
                Err(ChangeError::Unknown) => Ok(self.change(section, key, None)),
                result => result,
            };
        }
        writeback::edit("", section, key, Some(value)).map_err(|_| ChangeError::NotRepresentable)?;
        let mut layers = self.layers.clone();
        let at = match persist {
            Persist::Yes => self.write_layer(section, key).ok_or(ChangeError::NoDataDir)?,
            Persist::No => layers.len() - 1,
        };
        layers[at].put(section, key, value);
        for layer in &mut layers[at + 1..] {
            layer.remove(section, key);
        }
        let files = match persist {
            Persist::Yes => vec![at],
            Persist::No => vec![],
        };
        self.apply(layers, &files, section, key)
    }

    /// Deletes a key from the data directory (when `persist` says so) and from all stronger layers. The value of a
    /// weaker layer, if one has it, is seen again.
    ///
    /// # Errors
    ///
    /// [`ChangeError::Unknown`] when no layer has the key; else as [`set`](Self::set).
    pub fn delete(&mut self, section: &str, key: &str, persist: Persist) -> Result<Change, ChangeError> {
        check_names(section, key)?;
        if self.table.get(section, key).is_none() {
            return Err(ChangeError::Unknown);
        }
        let mut layers = self.layers.clone();
        let mut files = Vec::new();
        for (at, layer) in layers.iter_mut().enumerate() {
            if layer.kind > Kind::Fixed && layer.holds(section, key) {
                layer.remove(section, key);
                if persist == Persist::Yes && matches!(layer.kind, Kind::Local | Kind::LocalD) {
                    files.push(at);
                }
            }
        }
        self.apply(layers, &files, section, key)
    }

    /// Reads all files again and forgets what was set in memory only.
    ///
    /// # Errors
    ///
    /// As [`load`](Self::load); the old settings stay then.
    pub fn reload(&mut self) -> Result<Vec<Change>, LoadError> {
        let mut malformed = Vec::new();
        let mut layers = layers::file_layers(&self.options, &mut malformed)?;
        layers.extend(
            self.layers
                .iter()
                .filter(|layer| layer.kind == Kind::Override)
                .cloned(),
        );
        layers.push(Layer::new(Kind::Runtime, "runtime", Sections::new()));
        let table = merge(&layers)?;
        let settings = Settings::from_table(&table).map_err(LoadError::Invalid)?;
        let changes = differences(&self.table, &table);
        self.layers = layers;
        self.warnings = warnings(&table, malformed);
        self.table = Arc::new(table);
        self.settings = Arc::new(settings);
        Ok(changes)
    }

    /// The layer that a persistent change of the key goes to.
    fn write_layer(&self, section: &str, key: &str) -> Option<usize> {
        let holder = self
            .layers
            .iter()
            .rposition(|layer| layer.kind == Kind::LocalD && layer.holds(section, key));
        holder.or_else(|| self.layers.iter().position(|layer| layer.kind == Kind::Local))
    }

    /// Checks `layers`, writes those at `files`, and makes them current.
    fn apply(
        &mut self,
        layers: Vec<Layer>,
        files: &[usize],
        section: &str,
        key: &str,
    ) -> Result<Change, ChangeError> {
        let table = merge(&layers)?;
        let settings = Settings::from_table(&table).map_err(ChangeError::Invalid)?;
        for at in files {
            let layer = &layers[*at];
            let value = layer.sections.get(section).and_then(|pairs| pairs.get(key));
            write(&layer.name, section, key, value.map(String::as_str))?;
        }
        let old = self.table.get(section, key).map(str::to_owned);
        self.layers = layers;
        self.table = Arc::new(table);
        self.settings = Arc::new(settings);
        Ok(self.change(section, key, old))
    }

    fn change(&self, section: &str, key: &str, old: Option<String>) -> Change {
        Change {
            section: section.to_owned(),
            key: key.to_owned(),
            old,
            new: self.table.get(section, key).map(str::to_owned),
        }
    }
}

fn write(path: &Path, section: &str, key: &str, value: Option<&str>) -> Result<(), ChangeError> {
    let failed = |source| ChangeError::Write {
        path: path.to_owned(),
        source,
    };
    // The file is read anew, so that what somebody wrote there meanwhile is kept; it is seen at the next reload.
    let text = writeback::read(path).map_err(failed)?.unwrap_or_default();
    let edited = writeback::edit(&text, section, key, value).map_err(|_| ChangeError::NotRepresentable)?;
    if edited == text {
        return Ok(());
    }
    writeback::replace(path, &edited).map_err(failed)
}

fn merge(layers: &[Layer]) -> Result<ConfigTable, ::config::ConfigError> {
    ConfigTable::merge(
        layers
            .iter()
            .map(|layer| LayerSource::new(layer.name.to_string_lossy(), layer.sections.clone())),
    )
}

fn warnings(table: &ConfigTable, malformed: Vec<Warning>) -> Vec<Warning> {
    malformed
        .into_iter()
        .chain(unknown_keys(table).into_iter().map(Warning::Unknown))
        .collect()
}

/// The keys whose values differ between two tables.
fn differences(old: &ConfigTable, new: &ConfigTable) -> Vec<Change> {
    let change = |section: &str, key: &str| Change {
        section: section.to_owned(),
        key: key.to_owned(),
        old: old.get(section, key).map(str::to_owned),
        new: new.get(section, key).map(str::to_owned),
    };
    let gone = old
        .iter()
        .filter(|(section, key, _)| new.get(section, key).is_none());
    let set = new
        .iter()
        .filter(|(section, key, entry)| old.get(section, key) != Some(entry.value.as_str()));
    gone.chain(set)
        .map(|(section, key, _)| change(section, key))
        .collect()
}

pub(super) fn check_names(section: &str, key: &str) -> Result<(), ChangeError> {
    let good = |name: &str| {
        !name.is_empty()
            && name.len() <= MAX_NAME_BYTES
            && name.trim() == name
            && printable(name)
            && !name.contains(['[', ']'])
    };
    if !good(section) {
        return Err(ChangeError::Section);
    }
    if !good(key) {
        return Err(ChangeError::Key);
    }
    Ok(())
}

/// Visible characters, blanks and tabs only.
fn printable(text: &str) -> bool {
    text.chars().all(|c| c == '\t' || !c.is_control())
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::fs;

    use super::*;

    fn stack(folder: &Path) -> ConfigStack {
        ConfigStack::load(LoadOptions {
            data_dir: Some(folder.into()),
            ..LoadOptions::default()
        })
        .unwrap()
    }

    #[test]
    fn every_layer_wins_over_the_one_before() {
        let folder = tempfile::tempdir().unwrap();
        let etc = folder.path().join("etc");
        let data = folder.path().join("data");
        for sub in [
            etc.join("default.d"),
            data.join("local.d"),
            folder.path().join("more"),
        ] {
            fs::create_dir_all(sub).unwrap();
        }
        let put = |path: &Path, name: &str, first: usize| {
            let keys: String = (first..10).map(|i| format!("k{i} = {name}\n")).collect();
            fs::write(path, format!("[s]\n{keys}")).unwrap();
        };
        put(&etc.join("default.ini"), "default", 0);
        put(&etc.join("default.d/a.ini"), "default.d/a", 1);
        put(&etc.join("default.d/b.ini"), "default.d/b", 2);
        put(&folder.path().join("more/x.ini"), "more", 3);
        put(&folder.path().join("one.ini"), "one", 4);
        put(&data.join("local.ini"), "local", 5);
        put(&data.join("local.d/10.ini"), "local.d", 6);
        fs::write(data.join("local.d/10.txt"), "[s]\nk6 = not read\n").unwrap();
        let stack = ConfigStack::load(LoadOptions {
            default_ini: DefaultIni::File(etc.join("default.ini")),
            ini_files: vec![folder.path().join("more"), folder.path().join("one.ini")],
            data_dir: Some(data.clone()),
            env: vec![
                ("SETTEE_S__K7".into(), "env".into()),
                ("SETTEE_S__K8".into(), "env".into()),
            ],
            sets: vec!["s/k8=a=b".into()],
        })
        .unwrap();
        let table = stack.table();
        let got: Vec<_> = (0..9)
            .map(|i| table.get("s", &format!("k{i}")).unwrap().to_owned())
            .collect();
        assert_eq!(
            got,
            [
                "default",
                "default.d/a",
                "default.d/b",
                "more",
                "one",
                "local",
                "local.d",
                "env",
                "a=b"
            ]
        );
        let origin = |key: &str| table.entry("s", key).unwrap().origin.to_string();
        assert_eq!(origin("k5"), data.join("local.ini").to_string_lossy());
        assert_eq!(origin("k7"), "environment");
        assert_eq!(origin("k8"), "command line");
        assert!(
            stack
                .warnings()
                .iter()
                .any(|warning| matches!(warning, Warning::Unknown(key) if key.key == "k0"))
        );
    }

    #[test]
    fn a_set_value_survives_and_a_deleted_one_is_gone() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(
            folder.path().join("local.ini"),
            "; mine\n[log]\nlevel = info ; quiet\n",
        )
        .unwrap();
        let mut config = stack(folder.path());
        let change = config.set("log", "level", " debug ", Persist::Yes).unwrap();
        assert_eq!(
            (change.old.as_deref(), change.new.as_deref()),
            (Some("info"), Some("debug"))
        );
        config
            .set("smoosh.ratio_dbs", "min_priority", "3.0", Persist::Yes)
            .unwrap();
        assert_eq!(
            fs::read_to_string(folder.path().join("local.ini")).unwrap(),
            "; mine\n[log]\nlevel = debug ; quiet\n\n[smoosh.ratio_dbs]\nmin_priority = 3.0\n"
        );
        let mut again = stack(folder.path());
        assert_eq!(again.table().get("smoosh.ratio_dbs", "min_priority"), Some("3.0"));
        let change = again.delete("log", "level", Persist::Yes).unwrap();
        assert_eq!((change.old.as_deref(), change.new), (Some("debug"), None));
        assert!(matches!(
            again.delete("log", "level", Persist::Yes),
            Err(ChangeError::Unknown)
        ));
        assert_eq!(stack(folder.path()).table().get("log", "level"), None);
    }

    #[test]
    fn bad_changes_change_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let mut config = stack(folder.path());
        let mut refused = |section: &str, key: &str, value: &str| {
            config
                .set(section, key, value, Persist::Yes)
                .unwrap_err()
                .to_string()
        };
        assert!(refused("zz", "b", "x ; y").contains("reads back the same"));
        assert!(refused("zz", ";semi", "v").contains("reads back the same"));
        assert_eq!(refused("z[z", "b", "v"), "invalid configuration section");
        assert_eq!(refused("zz", "b\n", "v"), "invalid configuration key");
        assert_eq!(refused("zz", "b", "v\r\nw"), "invalid configuration value");
        assert!(refused("chttpd", "port", "x").ends_with("must be a whole number from 0 to 65535"));
        assert!(!folder.path().join("local.ini").exists());
        assert_eq!(config.settings().chttpd.port, 5984);
    }

    #[test]
    fn a_change_wins_over_stronger_layers_and_volatile_ones_end_at_a_reload() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("local.d")).unwrap();
        let other = folder.path().join("local.d/9.ini");
        fs::write(&other, "[cluster]\nn = 1\n").unwrap();
        let mut config = ConfigStack::load(LoadOptions {
            data_dir: Some(folder.path().into()),
            sets: vec!["cluster/q=8".into()],
            ..LoadOptions::default()
        })
        .unwrap();
        config.set("cluster", "q", "4", Persist::Yes).unwrap();
        config.set("cluster", "n", "2", Persist::Yes).unwrap();
        assert_eq!(fs::read_to_string(&other).unwrap(), "[cluster]\nn = 2\n");
        config.set("log", "level", "debug", Persist::No).unwrap();
        assert_eq!(
            config.table().entry("log", "level").unwrap().origin.as_ref(),
            "runtime"
        );
        let changes = config.reload().unwrap();
        assert_eq!(changes.len(), 1);
        assert_eq!(
            (changes[0].key.as_str(), changes[0].new.as_deref()),
            ("level", None)
        );
        assert_eq!((config.settings().cluster.q, config.settings().cluster.n), (4, 2));
        assert_eq!(config.persisted("cluster", "q"), Some("4"));
    }

    #[test]
    fn containers_name_their_admin_in_the_environment() {
        let mut config = ConfigStack::load(LoadOptions {
            env: vec![
                ("COUCHDB_USER".into(), "Ada".into()),
                ("COUCHDB_PASSWORD".into(), "p%=".into()),
                ("COUCHDB_SECRET".into(), "s".into()),
            ],
            ..LoadOptions::default()
        })
        .unwrap();
        assert_eq!(config.table().get("admins", "Ada"), Some("p%="));
        assert_eq!(
            config.settings().chttpd_auth.secret.as_ref().unwrap().expose(),
            "s"
        );
        let shown = format!("{config:?} {:?}", config.settings());
        let change = config.set("admins", "Bo", "q%=", Persist::No).unwrap();
        assert!(!format!("{change:?}").contains("q%="));
        assert!(shown.contains("Ada") && !shown.contains("p%="), "{shown}");
        assert!(matches!(
            config.set("a", "b", "c", Persist::Yes),
            Err(ChangeError::NoDataDir)
        ));
    }

    #[test]
    fn what_is_wrong_is_told() {
        let load = |sets: &[&str]| {
            ConfigStack::load(LoadOptions {
                sets: sets.iter().map(|set| (*set).to_owned()).collect(),
                ..LoadOptions::default()
            })
        };
        assert!(matches!(load(&["port=1"]), Err(LoadError::BadSet(_))));
        assert!(matches!(load(&["chttpd/port"]), Err(LoadError::BadSet(_))));
        let error = load(&["chttpd/port=x", "cluster/q=x"]).unwrap_err();
        assert_eq!(error.to_string().lines().count(), 2);
        let missing = ConfigStack::load(LoadOptions {
            ini_files: vec!["/nonexistent/x.ini".into()],
            ..LoadOptions::default()
        });
        assert!(matches!(missing, Err(LoadError::Read { .. })));
    }
}
