//! The coordinator: everything that is asked of a database, whatever shards it touches.
//!
//! HTTP and the embedding API know only this. It finds the shard map, leases the shards, feeds their answers into the
//! state machines of `settee_engine::cluster`, and does what those decide. Point reads run in the calling task, against
//! the newest snapshot and the shared cache; a stream of rows is a process of its own (see [`crate::request`]). Calls:
//! registry processes, database processes, the blocking pool.

mod attachments;
mod databases;
mod documents;
mod maps;
mod parse;
mod streams;
mod types;
mod updates;

pub use attachments::{AttachmentSink, AttachmentStream};
pub use parse::{ParseDocs, RawDocs};
pub use streams::{ChangesStream, RowStream};
pub use types::{
    AllDocsArgs, ChangesArgs, ChangesEvent, ChangesStyle, CreateDb, DbError, DbInfo, DocRefusal, Feed,
    KeyArg, Missing, MissingRevs, Namespace, OpenDoc, OpenRevs, OpenedDoc, Rows, Since, UpdateDocs,
    UpdateResult, Updated,
};

use crate::open_db::DbLease;
use crate::runtime::{CallError, Name, PoolError, System};
use crate::server::{ServerFailure, ServerMsg, ServerShared};
use crate::stats::Stat;
use settee_engine::cluster::ShardMap;
use settee_engine::db;
use settee_engine::ids::NodeName;
use settee_engine::storage::vfs::Wait;
use std::sync::Arc;
use std::time::Duration;

/// A handle on the databases of a node. Cloning is cheap.
#[derive(Clone)]
pub struct Coordinator {
    inner: Arc<Inner>,
}

struct Inner {
    system: System,
    shared: Arc<ServerShared>,
    servers: Vec<Name<ServerMsg>>,
    server_hash: ahash::RandomState,
    maps: maps::Maps,
    uuid: String,
}

impl std::fmt::Debug for Coordinator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Coordinator")
            .field("node", self.node_name())
            .finish_non_exhaustive()
    }
}

impl Coordinator {
    /// A coordinator over these registry processes. `uuid` names the server to clients.
    #[must_use]
    pub fn new(
        system: &System,
        shared: Arc<ServerShared>,
        servers: Vec<Name<ServerMsg>>,
        uuid: String,
    ) -> Self {
        let inner = Inner {
            system: system.uncounted(),
            shared,
            servers,
            server_hash: ahash::RandomState::new(),
            maps: maps::Maps::default(),
            uuid,
        };
        Self {
            inner: Arc::new(inner),
        }
    }

    /// Name of this node.
    #[must_use]
    pub fn node_name(&self) -> &NodeName {
        &self.inner.shared.options.name
    }

    /// UUID of the server, 32 hex digits.
    #[must_use]
    pub fn uuid(&self) -> &str {
        &self.inner.uuid
    }

    /// The actor system that the node's processes live in.
    #[must_use]
    pub fn system(&self) -> &System {
        &self.inner.system
    }

    /// Counters of the node.
    #[must_use]
    pub fn stats(&self) -> Vec<Stat> {
        self.inner.shared.counters.list()
    }

    /// The node cache, for its numbers.
    #[must_use]
    pub fn cache(&self) -> &Arc<settee_engine::storage::NodeCache> {
        &self.inner.shared.cache
    }

    pub(crate) fn shared(&self) -> &Arc<ServerShared> {
        &self.inner.shared
    }

    fn deadline(&self) -> Duration {
        self.inner.shared.options.request_timeout
    }

    fn server(&self, shard: &str) -> &Name<ServerMsg> {
        let hash = self.inner.server_hash.hash_one(shard);
        let count = self.inner.servers.len() as u64;
        let index = usize::try_from(hash % count).unwrap_or(0);
        &self.inner.servers[index]
    }

    /// The right to use an open shard; opens it first when it is closed.
    ///
    /// # Errors
    /// [`DbError::DatabaseDoesNotExist`], or what opening met.
    pub async fn lease(&self, shard: &Arc<str>) -> Result<DbLease, DbError> {
        if let Some(lease) = self.inner.shared.table.lease(shard) {
            return Ok(lease);
        }
        let name = Arc::clone(shard);
        let opened = self
            .server(shard)
            .call(self.deadline(), |reply| ServerMsg::Open(name, reply))
            .await;
        opened
            .map_err(call_failed)?
            .map_err(|failure| self.server_failed(shard, failure))
    }

    /// Leases of all shards of a database, in the order of the map.
    pub(crate) async fn leases(&self, map: &ShardMap) -> Result<Vec<DbLease>, DbError> {
        let mut leases = Vec::with_capacity(map.shards().len());
        for shard in map.shards() {
            leases.push(self.lease(shard.name()).await?);
        }
        Ok(leases)
    }

    fn server_failed(&self, shard: &str, failure: ServerFailure) -> DbError {
        match failure {
            ServerFailure::NotFound => DbError::DatabaseDoesNotExist(db_of(shard)),
            ServerFailure::Exists => DbError::DatabaseExists(db_of(shard)),
            ServerFailure::Db(error) => read_failed(&error),
            ServerFailure::Stopping => DbError::ShuttingDown,
        }
    }

    /// Reads in place when the page cache can answer, and on the blocking pool otherwise.
    pub(crate) async fn read<T, F>(&self, read: F) -> Result<T, DbError>
    where
        T: Send + 'static,
        F: Fn(Wait) -> Result<T, db::DbError> + Send + 'static,
    {
        match read(Wait::No) {
            Err(db::DbError::WouldBlock) => {}
            done => return done.map_err(|error| self.read_failed(&error)),
        }
        self.inner.shared.counters.blocked_reads.increment();
        let done = self.inner.shared.pool.run(move || read(Wait::Yes)).await;
        done.map_err(pool_failed)?
            .map_err(|error| self.read_failed(&error))
    }

    fn read_failed(&self, error: &db::DbError) -> DbError {
        if let db::DbError::Damaged(damage) = error {
            self.inner.shared.counters.damaged_documents.increment();
            tracing::error!(id = damage.id.as_ref().map(|id| id.as_str()), %damage, "damaged document");
        }
        read_failed(error)
    }
}

/// The database that a shard belongs to.
fn db_of(shard: &str) -> String {
    settee_engine::cluster::db_name_of_shard(shard).to_owned()
}

fn call_failed(error: CallError) -> DbError {
    match error {
        CallError::Timeout => DbError::Timeout("a database process".to_owned()),
        other => {
            tracing::warn!(error = %other, "a database process did not answer");
            DbError::Internal(other.to_string())
        }
    }
}

fn pool_failed(error: PoolError) -> DbError {
    tracing::error!(%error, "the blocking pool did not finish a job");
    DbError::Internal(error.to_string())
}

/// What a failing file means to the caller.
pub(crate) fn read_failed(error: &db::DbError) -> DbError {
    match error {
        db::DbError::Damaged(damage) => DbError::Corrupt {
            id: damage.id.as_ref().map(|id| id.as_str().to_owned()),
            detail: damage.to_string(),
        },
        db::DbError::Doc(error) => DbError::Doc(error.clone()),
        db::DbError::WouldBlock => DbError::Internal("a read was not finished".to_owned()),
        other if other.is_storage_full() => DbError::StorageFull(other.to_string()),
        other => DbError::Storage(other.to_string()),
    }
}
