//! The shard maps of the databases, read from `_dbs` once and kept.

use super::{Coordinator, DbError};
use settee_engine::cluster::ShardMap;
use settee_engine::db::{DocLookup, ReadDoc};
use settee_engine::ids::{DbName, DocId};
use std::sync::Arc;
use tokio::sync::Mutex;

/// The node-local database of shard maps.
pub const DBS: &str = "_dbs";
/// The node-local database of nodes.
pub const NODES: &str = "_nodes";

/// Creations and deletions of one name happen one after the other; names share this many locks.
const LOCKS: usize = 64;

/// Shard maps by database name.
pub struct Maps {
    by_name: papaya::HashMap<DbName, Arc<ShardMap>, ahash::RandomState>,
    locks: Vec<Mutex<()>>,
    hash: ahash::RandomState,
}

impl Default for Maps {
    fn default() -> Self {
        Self {
            by_name: papaya::HashMap::default(),
            locks: (0..LOCKS).map(|_| Mutex::default()).collect(),
            hash: ahash::RandomState::new(),
        }
    }
}

impl Maps {
    pub fn get(&self, name: &DbName) -> Option<Arc<ShardMap>> {
        self.by_name.pin().get(name).cloned()
    }

    pub fn insert(&self, name: DbName, map: Arc<ShardMap>) {
        self.by_name.pin().insert(name, map);
    }

    pub fn remove(&self, name: &DbName) {
        self.by_name.pin().remove(name);
    }

    /// The lock of a name.
    pub fn lock(&self, name: &DbName) -> &Mutex<()> {
        let index = usize::try_from(self.hash.hash_one(name) % LOCKS as u64).unwrap_or(0);
        &self.locks[index]
    }
}

impl Coordinator {
    /// The shard map of a database.
    ///
    /// # Errors
    /// [`DbError::DatabaseDoesNotExist`], or what reading `_dbs` met.
    pub async fn shards(&self, name: &DbName) -> Result<Arc<ShardMap>, DbError> {
        if let Some(map) = self.inner.maps.get(name) {
            return Ok(map);
        }
        if matches!(name.as_str(), DBS | NODES) {
            let map = Arc::new(ShardMap::local(name.clone(), self.node_name().clone()));
            self.inner.maps.insert(name.clone(), Arc::clone(&map));
            return Ok(map);
        }
        // Under the lock of the name, so that a map read before a deletion is not kept after it.
        let _order = self.inner.maps.lock(name).lock().await;
        let map = Arc::new(
            self.read_map(name)
                .await?
                .ok_or_else(|| DbError::DatabaseDoesNotExist(name.as_str().to_owned()))?,
        );
        self.inner.maps.insert(name.clone(), Arc::clone(&map));
        Ok(map)
    }

    /// The shard map as `_dbs` says it now.
    pub(super) async fn read_map(&self, name: &DbName) -> Result<Option<ShardMap>, DbError> {
        let dbs = self.lease(&Arc::from(DBS)).await?;
        let id = DocId::from_stored(name.as_str().as_bytes())
            .map_err(|error| DbError::Internal(error.to_string()))?;
        let snapshot = dbs.snapshot();
        let found = self
            .read(move |wait| snapshot.open_doc(&id, &ReadDoc::default(), wait))
            .await?;
        match found {
            DocLookup::Found(found) if !found.doc.deleted => {
                let map =
                    ShardMap::from_term(name.clone(), &found.doc.body).map_err(|error| DbError::Corrupt {
                        id: Some(name.as_str().to_owned()),
                        detail: format!("_dbs: {error}"),
                    })?;
                Ok(Some(map))
            }
            _ => Ok(None),
        }
    }
}
