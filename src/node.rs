//! A node as a value: open it, use its databases, put processes of your own into its tree, shut it down.

use crate::config::{
    ConfigStack, DefaultSecurity as SecuritySetting, FileCompression, LoadError, LoadOptions, Settings,
    Warning,
};
use crate::config_server::{ConfigHandle, ConfigServer};
use crate::database::Database;
use settee_actors::coordinator::{Coordinator, CreateDb, DbError};
use settee_actors::options::{DefaultSecurity, NodeOptions};
use settee_actors::runtime::{ChildSpec, Pid, Ref, SupervisorError, SupervisorMsg, System};
use settee_actors::tree::{NodeTree, StartError, USER_SUPERVISOR};
use settee_engine::codec::checksum::ChecksumKind;
use settee_engine::codec::compress::Compression;
use settee_engine::db;
use settee_engine::ids::{DbName, NodeName};
use settee_engine::storage::vfs::{RealVfs, Vfs, Wait};
use settee_engine::storage::{DirLock, SyncOptions};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use thiserror::Error;

/// Name of a node that nobody has named.
const DEFAULT_NAME: &str = "settee@127.0.0.1";
/// How long a shutdown waits for commits and feeds.
const STOP_DEADLINE: Duration = Duration::from_secs(30);

/// Why a node could not be opened.
#[derive(Debug, Error)]
pub enum OpenError {
    /// The settings.
    #[error(transparent)]
    Config(#[from] LoadError),
    /// A name that no node can have.
    #[error("{0:?} is no name for a node; it has to be name@host")]
    Name(String),
    /// The data directory cannot be made or read.
    #[error("data directory {path}: {error}", path = path.display())]
    DataDir {
        /// The directory.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// Another process has the data directory open.
    #[error("data directory {} is in use by another process", .0.display())]
    InUse(PathBuf),
    /// A setting that cannot be applied.
    #[error("{0}")]
    Setting(String),
    /// The processes did not start.
    #[error(transparent)]
    Start(#[from] StartError),
}

/// What a node is opened with.
#[derive(Debug, Clone, Default)]
pub struct NodeConfig {
    /// Directory of databases and of `local.ini`.
    pub data_dir: PathBuf,
    /// Name of the node; else the one that `_nodes` of the data directory knows.
    pub name: Option<String>,
    /// Ini files, weakest first.
    pub ini_files: Vec<PathBuf>,
    /// `SECTION/KEY=VALUE`, strongest.
    pub sets: Vec<String>,
    /// Variables of the environment to take settings from; none unless given.
    pub env: Vec<(String, String)>,
}

impl NodeConfig {
    /// Defaults over this directory.
    #[must_use]
    pub fn new(data_dir: impl Into<PathBuf>) -> Self {
        Self {
            data_dir: data_dir.into(),
            ..Self::default()
        }
    }

    /// Sets `section/key`.
    #[must_use]
    pub fn set(mut self, section: &str, key: &str, value: &str) -> Self {
        self.sets.push(format!("{section}/{key}={value}"));
        self
    }

    /// Adds an ini file.
    #[must_use]
    pub fn ini(mut self, file: impl Into<PathBuf>) -> Self {
        self.ini_files.push(file.into());
        self
    }
}

/// A running node. Dropping it without [`Node::shutdown`] stops its processes without waiting for them.
pub struct Node {
    tree: NodeTree,
    config: ConfigHandle,
    warnings: Vec<Warning>,
    /// Held as long as the node lives, so that no second process writes the same files.
    _lock: DirLock,
}

impl std::fmt::Debug for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Node")
            .field("name", self.coordinator().node_name())
            .finish_non_exhaustive()
    }
}

impl Node {
    /// Opens a node over a directory, which is made when it is missing. A directory of CouchDB is opened under the name
    /// that its `_nodes` knows.
    ///
    /// # Errors
    /// [`OpenError`], with every setting that is not accepted.
    pub async fn open(config: NodeConfig) -> Result<Self, OpenError> {
        let stack = ConfigStack::load(LoadOptions {
            ini_files: config.ini_files,
            data_dir: Some(config.data_dir.clone()),
            env: config.env,
            sets: config.sets,
            ..LoadOptions::default()
        })?;
        Self::open_with(stack, &config.data_dir, config.name.as_deref()).await
    }

    /// Opens a node with settings that are loaded already.
    ///
    /// # Errors
    /// As [`Node::open`].
    pub async fn open_with(
        stack: ConfigStack,
        data_dir: &Path,
        name: Option<&str>,
    ) -> Result<Self, OpenError> {
        let settings = stack.settings();
        let database_dir = settings
            .couchdb
            .database_dir
            .clone()
            .unwrap_or_else(|| data_dir.to_owned());
        let vfs: Arc<dyn Vfs> = Arc::new(RealVfs);
        let unusable = |error| OpenError::DataDir {
            path: database_dir.clone(),
            error,
        };
        vfs.create_dir_all(&database_dir).map_err(unusable)?;
        let lock = DirLock::take(&database_dir).map_err(|error| match error.kind() {
            std::io::ErrorKind::WouldBlock => OpenError::InUse(database_dir.clone()),
            _ => unusable(error),
        })?;
        let name = match name {
            Some(name) => name.to_owned(),
            None => known_name(&vfs, &database_dir).unwrap_or_else(|| DEFAULT_NAME.to_owned()),
        };
        let name = NodeName::new(&name).map_err(|_| OpenError::Name(name))?;
        let options = node_options(name, database_dir, Arc::clone(&vfs), &settings)?;
        let warnings = stack.warnings().to_vec();
        let uuid = settings.couchdb.uuid.clone();
        let tree = NodeTree::start(options, uuid).await?;
        let config = ConfigServer::start(tree.system(), stack, tree.tunables())
            .map_err(|error| OpenError::Setting(error.to_string()))?;
        let node = Self {
            tree,
            config,
            warnings,
            _lock: lock,
        };
        node.ensure_system_databases().await?;
        Ok(node)
    }

    async fn ensure_system_databases(&self) -> Result<(), OpenError> {
        for name in ["_users", "_replicator"] {
            let name = DbName::new(name).map_err(|error| OpenError::Setting(error.to_string()))?;
            match self.coordinator().create_db(&name, CreateDb::default()).await {
                Ok(()) | Err(DbError::DatabaseExists(_)) => {}
                Err(error) => return Err(OpenError::Start(StartError::Database(error))),
            }
        }
        Ok(())
    }

    /// What was odd in the settings; for a log.
    #[must_use]
    pub fn warnings(&self) -> &[Warning] {
        &self.warnings
    }

    /// The settings process.
    #[must_use]
    pub fn config(&self) -> &ConfigHandle {
        &self.config
    }

    /// Every call on databases; HTTP uses the same.
    #[must_use]
    pub fn coordinator(&self) -> &Coordinator {
        self.tree.coordinator()
    }

    /// The actor system: spawn, monitor and supervise processes of your own in it.
    #[must_use]
    pub fn system(&self) -> &System {
        self.tree.system()
    }

    /// The processes of the node.
    #[must_use]
    pub fn tree(&self) -> &NodeTree {
        &self.tree
    }

    /// Starts a process of your own under the node's supervisor for them, and restarts it as its specification says.
    ///
    /// # Errors
    /// When it does not start, or another child has its id.
    pub async fn supervise(&self, child: ChildSpec) -> Result<Pid, SupervisorError> {
        let supervisor: Option<Ref<SupervisorMsg>> = self.system().find(USER_SUPERVISOR);
        let Some(supervisor) = supervisor else {
            return Err(SupervisorError::Stopping);
        };
        let start = |reply| SupervisorMsg::StartChild(child, reply);
        supervisor
            .call(STOP_DEADLINE, start)
            .await
            .unwrap_or(Err(SupervisorError::Stopping))
    }

    /// A database that exists.
    ///
    /// # Errors
    /// [`DbError::DatabaseDoesNotExist`], or a name that no database can have.
    pub async fn database(&self, name: &str) -> Result<Database, DbError> {
        let name = db_name(name)?;
        self.coordinator().shards(&name).await?;
        Ok(Database::new(self.coordinator().clone(), name))
    }

    /// Creates a database with the default number of shards.
    ///
    /// # Errors
    /// [`DbError::DatabaseExists`], or a name that no database can have.
    pub async fn create_database(&self, name: &str) -> Result<Database, DbError> {
        let name = db_name(name)?;
        self.coordinator().create_db(&name, CreateDb::default()).await?;
        Ok(Database::new(self.coordinator().clone(), name))
    }

    /// The database, created when it is missing.
    ///
    /// # Errors
    /// As [`Node::create_database`].
    pub async fn ensure_database(&self, name: &str) -> Result<Database, DbError> {
        match self.create_database(name).await {
            Err(DbError::DatabaseExists(_)) => self.database(name).await,
            done => done,
        }
    }

    /// Deletes a database.
    ///
    /// # Errors
    /// [`DbError::DatabaseDoesNotExist`], or what deleting met.
    pub async fn delete_database(&self, name: &str) -> Result<(), DbError> {
        self.coordinator().delete_db(&db_name(name)?).await
    }

    /// Stops the processes in reverse order of their start; commits that wait are finished first.
    pub async fn shutdown(self) {
        self.tree.stop(STOP_DEADLINE).await;
    }
}

/// A checked database name.
fn db_name(name: &str) -> Result<DbName, DbError> {
    DbName::new(name).map_err(|_| DbError::IllegalDatabaseName(name.to_owned()))
}

/// The one node that `_nodes` of a data directory knows, when it knows exactly one.
fn known_name(vfs: &Arc<dyn Vfs>, data_dir: &Path) -> Option<String> {
    let path = data_dir.join("_nodes.couch");
    if !matches!(vfs.exists(&path), Ok(true)) {
        return None;
    }
    match db::peek(vfs, &path).and_then(|snapshot| snapshot.live_ids(Wait::Yes)) {
        Ok(mut names) if names.len() == 1 => names.pop(),
        Ok(names) => {
            tracing::warn!(
                count = names.len(),
                "_nodes does not know exactly one node; name this one with --name"
            );
            None
        }
        Err(error) => {
            tracing::warn!(%error, "_nodes could not be read");
            None
        }
    }
}

/// The settings that the engine and the actors take.
fn node_options(
    name: NodeName,
    data_dir: PathBuf,
    vfs: Arc<dyn Vfs>,
    settings: &Settings,
) -> Result<NodeOptions, OpenError> {
    let defaults = NodeOptions::new(name, data_dir);
    let couchdb = &settings.couchdb;
    let cache = &settings.bt_engine_cache;
    let compression = match couchdb.file_compression {
        FileCompression::None => Compression::None,
        FileCompression::Snappy => Compression::Snappy,
        FileCompression::Deflate(level) => Compression::Deflate(level),
        FileCompression::Zstd(level) => Compression::Zstd(level.into()),
    };
    let size = |value: u64| usize::try_from(value).unwrap_or(usize::MAX);
    Ok(NodeOptions {
        vfs,
        compression,
        checksum: if couchdb.write_xxhash_checksums {
            ChecksumKind::Xxh3
        } else {
            ChecksumKind::Md5
        },
        btree_chunk_size: size(couchdb.btree_chunk_size.into()),
        stream_buffer: size(couchdb.attachment_stream_buffer_size.into()),
        attachment_level: settings.attachments.compression_level,
        compressible_types: settings.attachments.compressible_types.join(", "),
        header_read_count: size(couchdb.find_header_read_count.into()),
        sync: SyncOptions {
            before_header: couchdb.fsync_options.before_header,
            after_header: couchdb.fsync_options.after_header,
            on_open: couchdb.fsync_options.on_file_open,
        },
        max_dbs_open: size(couchdb.max_dbs_open.into()),
        server_shards: size(couchdb.max_couch_server_shards.into())
            .min(defaults.arbiters)
            .max(1),
        default_security: match couchdb.default_security {
            SecuritySetting::AdminOnly => DefaultSecurity::AdminOnly,
            SecuritySetting::Everyone => DefaultSecurity::Everyone,
            SecuritySetting::AdminLocal => DefaultSecurity::AdminLocal,
        },
        cache_bytes: size(cache.max_size),
        cache_leave_percent: u8::try_from(cache.leave_percent).unwrap_or(u8::MAX),
        cache_depth: u8::try_from(cache.db_btree_cache_depth).unwrap_or(u8::MAX),
        q: settings.cluster.q,
        n: settings.cluster.n,
        request_timeout: settings
            .fabric
            .request_timeout
            .millis()
            .unwrap_or(Duration::from_secs(3600)),
        doc_ids_threshold: size(couchdb.changes_doc_ids_optimization_threshold),
        ..defaults
    })
}
