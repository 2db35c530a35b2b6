//! The blocking face: the same calls for a thread that does not run an event loop.
//!
//! Each thread that uses it has a small event loop of its own, so that a read which the cache can answer never leaves
//! the thread.

use crate::database::Database;
use crate::node::{Node, NodeConfig, OpenError};
use settee_actors::coordinator::{DbError, DbInfo, UpdateResult};
use settee_engine::ids::Rev;
use std::cell::OnceCell;
use std::future::Future;
use tokio::runtime::{Builder, Runtime};
use tokio::task::LocalSet;

thread_local! {
    static RUNTIME: OnceCell<std::io::Result<Runtime>> = const { OnceCell::new() };
}

/// Runs a future to its end on this thread.
///
/// # Panics
/// When called from within an event loop, which would stand still, or when the operating system refuses an event loop.
pub fn wait<F: Future>(future: F) -> F::Output {
    RUNTIME.with(|cell| {
        let runtime = cell.get_or_init(|| Builder::new_current_thread().enable_time().build());
        let runtime = runtime
            .as_ref()
            .expect("the operating system gives an event loop");
        LocalSet::new().block_on(runtime, future)
    })
}

/// [`Node`], blocking.
#[derive(Debug)]
pub struct BlockingNode {
    node: Node,
}

impl BlockingNode {
    /// [`Node::open`].
    ///
    /// # Errors
    /// As there.
    pub fn open(config: NodeConfig) -> Result<Self, OpenError> {
        Ok(Self {
            node: wait(Node::open(config))?,
        })
    }

    /// The node, for everything else.
    #[must_use]
    pub fn node(&self) -> &Node {
        &self.node
    }

    /// [`Node::database`].
    ///
    /// # Errors
    /// As there.
    pub fn database(&self, name: &str) -> Result<BlockingDatabase, DbError> {
        wait(self.node.database(name)).map(BlockingDatabase::new)
    }

    /// [`Node::create_database`].
    ///
    /// # Errors
    /// As there.
    pub fn create_database(&self, name: &str) -> Result<BlockingDatabase, DbError> {
        wait(self.node.create_database(name)).map(BlockingDatabase::new)
    }

    /// [`Node::ensure_database`].
    ///
    /// # Errors
    /// As there.
    pub fn ensure_database(&self, name: &str) -> Result<BlockingDatabase, DbError> {
        wait(self.node.ensure_database(name)).map(BlockingDatabase::new)
    }

    /// [`Node::delete_database`].
    ///
    /// # Errors
    /// As there.
    pub fn delete_database(&self, name: &str) -> Result<(), DbError> {
        wait(self.node.delete_database(name))
    }

    /// [`Node::shutdown`].
    pub fn shutdown(self) {
        wait(self.node.shutdown());
    }
}

/// [`Database`], blocking.
#[derive(Clone, Debug)]
pub struct BlockingDatabase {
    database: Database,
}

impl BlockingDatabase {
    pub(crate) fn new(database: Database) -> Self {
        Self { database }
    }

    /// [`Database::put`].
    ///
    /// # Errors
    /// As there.
    pub fn put(&self, id: &str, json: &[u8]) -> Result<Rev, DbError> {
        wait(self.database.put(id, json))
    }

    /// [`Database::get`].
    ///
    /// # Errors
    /// As there.
    pub fn get(&self, id: &str) -> Result<Vec<u8>, DbError> {
        wait(self.database.get(id))
    }

    /// [`Database::delete`].
    ///
    /// # Errors
    /// As there.
    pub fn delete(&self, id: &str, rev: &Rev) -> Result<Rev, DbError> {
        wait(self.database.delete(id, rev))
    }

    /// [`Database::bulk`].
    ///
    /// # Errors
    /// As there.
    pub fn bulk<'a>(&self, docs: impl IntoIterator<Item = &'a [u8]>) -> Result<Vec<UpdateResult>, DbError> {
        wait(self.database.bulk(docs))
    }

    /// [`Database::info`].
    ///
    /// # Errors
    /// As there.
    pub fn info(&self) -> Result<DbInfo, DbError> {
        wait(self.database.info())
    }
}
