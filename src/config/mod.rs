//! Layered ini configuration in the dialect of CouchDB.
//!
//! From weak to strong: the built-in `default.ini` (or a file with its `default.d` beside it), the files given with
//! `--ini`, `local.ini` and `local.d/*.ini` of the data directory, the environment, `--set SECTION/KEY=VALUE`, and what
//! was changed at run time without being written. The layers are sources of the `config` crate; what comes out is a
//! [`ConfigTable`] of texts and, checked as a whole, the typed [`Settings`]. [`ConfigStack`] is the value that a
//! configuration process owns: it loads the layers, and makes new tables when a key is set or deleted.
//!
//! ```
//! use settee::config::{ConfigStack, LoadOptions, Persist};
//!
//! let folder = tempfile::tempdir()?;
//! let mut stack = ConfigStack::load(LoadOptions {
//!     data_dir: Some(folder.path().into()),
//!     sets: vec!["cluster/q=8".into()],
//!     ..LoadOptions::default()
//! })?;
//! assert_eq!(stack.settings().cluster.q, 8);
//! let change = stack.set("log", "level", "debug", Persist::Yes)?;
//! assert_eq!(change.old, None);
//! assert_eq!(stack.table().get("log", "level"), Some("debug"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod dialect;
mod groups;
mod kinds;
mod layers;
mod settings;
mod source;
mod stack;
mod table;
mod unknown;
mod writeback;

pub use dialect::{MAX_INI_BYTES, MalformedLine, Sections, parse};
pub use groups::{
    Attachments, BtEngineCache, Chttpd, ChttpdAuth, Cluster, Cors, CouchPasswordsCache, Couchdb, Fabric, Log,
    Uuids,
};
pub use kinds::{
    Bound, DefaultSecurity, FileCompression, FromSetting, FsyncOptions, HashAlgorithm, LogLevel,
    MaintenanceMode, ReduceLimit, SameSite, Secret, UuidAlgorithm,
};
pub use settings::{ConfigError, GROUPS, Group, Setting, Settings, default_ini, registry};
pub use source::{IniDialect, LayerSource};
pub use stack::{
    Change, ChangeError, ConfigStack, DefaultIni, LoadError, LoadOptions, Persist, Warning, is_protected,
    is_sensitive,
};
pub use table::{ConfigTable, Entry};
pub use unknown::{UnknownKey, unknown_keys};

/// The built-in `default.ini`.
pub const DEFAULT_INI: &str = include_str!("../../config/default.ini");
