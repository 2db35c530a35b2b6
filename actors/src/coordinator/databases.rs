//! Databases as a whole: create, delete, list, info, security, limits.

use super::maps::{DBS, Maps, NODES};
use super::{Coordinator, CreateDb, DbError, DbInfo, call_failed, read_failed};
use crate::db::{DbFailure, DbMsg, Setting};
use crate::open_db::DbLease;
use crate::server::ServerMsg;
use futures_util::future::{join_all, try_join_all};
use settee_engine::cluster::{
    Candidate, ClusterInfo, DbInfoMerge, HashKind, InfoStep, ShardInfo, ShardMap, ShardMapOptions, ShardSeq,
    choose_shards, shard_suffix,
};
use settee_engine::codec::json::{ejson_size, json_to_term, term_to_json};
use settee_engine::codec::term::write;
use settee_engine::db::{self, Batch, DISK_VERSION, Preparer, UpdateOutcome};
use settee_engine::doc::{DocEdit, RevPath};
use settee_engine::ids::{DbName, DocId, NodeName, Rev};
use settee_engine::storage::vfs::Wait;
use std::sync::Arc;

/// Most shards of a database.
pub const Q_MAX: u32 = 256;

/// Drops the map of a database from memory at the end of its scope, however that is left.
struct ForgetMap<'a>(&'a Maps, &'a DbName);

impl Drop for ForgetMap<'_> {
    fn drop(&mut self) {
        self.0.remove(self.1);
    }
}

impl Coordinator {
    /// Creates a database: its shards first, then the document in `_dbs` that makes it known.
    ///
    /// # Errors
    /// [`DbError::DatabaseExists`], a bad `q`, or what writing met.
    pub async fn create_db(&self, name: &DbName, options: CreateDb) -> Result<(), DbError> {
        let q = options.q.unwrap_or(self.inner.shared.options.q);
        if q == 0 || q > Q_MAX {
            return Err(DbError::BadRequest(
                "The `q` value should be a positive integer.".to_owned(),
            ));
        }
        if matches!(name.as_str(), DBS | NODES) {
            return Err(DbError::DatabaseExists(name.as_str().to_owned()));
        }
        let _order = self.inner.maps.lock(name).lock().await;
        if self.read_map(name).await?.is_some() {
            return Err(DbError::DatabaseExists(name.as_str().to_owned()));
        }
        let map = self.new_map(name, q, options)?;
        let props = props_of(&map);
        let created = map
            .shards()
            .iter()
            .map(|shard| self.create_shard(shard.name(), Some(props.clone())));
        for created in join_all(created).await {
            created?;
        }
        self.write_map(name, &map).await?;
        self.inner.maps.insert(name.clone(), Arc::new(map));
        tracing::info!(db = name.as_str(), q, "database created");
        Ok(())
    }

    fn new_map(&self, name: &DbName, q: u32, options: CreateDb) -> Result<ShardMap, DbError> {
        let internal = |error: &dyn std::fmt::Display| DbError::Internal(error.to_string());
        let candidates = [Candidate {
            node: self.node_name().clone(),
            zone: None,
        }];
        let n = options.n.unwrap_or(self.inner.shared.options.n) as usize;
        let shards = choose_shards(&candidates, q, n, None, |below| {
            self.inner.shared.options.entropy.below(below)
        })
        .map_err(|error| internal(&error))?;
        let now = self.inner.system.clock().now_unix_micros() / 1_000_000;
        let hash = if options.partitioned {
            HashKind::Partition
        } else {
            HashKind::Crc32
        };
        let options = ShardMapOptions {
            partitioned: options.partitioned,
            hash,
            engine: None,
        };
        ShardMap::new(name.clone(), shard_suffix(now), shards, options).map_err(|error| internal(&error))
    }

    async fn create_shard(&self, shard: &Arc<str>, props: Option<Vec<u8>>) -> Result<DbLease, DbError> {
        let name = Arc::clone(shard);
        let created = self
            .server(shard)
            .call(self.deadline(), |reply| ServerMsg::Create(name, props, reply))
            .await;
        created
            .map_err(call_failed)?
            .map_err(|failure| self.server_failed(shard, failure))
    }

    /// Creates a node-local database when it is missing.
    ///
    /// # Errors
    /// What opening or writing met.
    pub async fn ensure_local(&self, name: &str) -> Result<(), DbError> {
        let shard: Arc<str> = Arc::from(name);
        match self.lease(&shard).await {
            Ok(_) => Ok(()),
            Err(DbError::DatabaseDoesNotExist(_)) => self.create_shard(&shard, None).await.map(drop),
            Err(error) => Err(error),
        }
    }

    /// Opens or creates `_dbs` and `_nodes`, and makes this node known in the latter.
    pub(crate) async fn ensure_node_databases(&self) -> Result<(), DbError> {
        self.ensure_local(DBS).await?;
        self.ensure_local(NODES).await?;
        let lease = self.lease(&Arc::from(NODES)).await?;
        let snapshot = lease.snapshot();
        let names = self.read(move |wait| snapshot.live_ids(wait)).await?;
        if names.iter().any(|name| name == self.node_name().as_str()) {
            return Ok(());
        }
        let mut body = Vec::new();
        write::tuple(&mut body, 1);
        write::nil(&mut body);
        let id = DocId::from_stored(self.node_name().as_str().as_bytes());
        let id = id.map_err(|error| DbError::Internal(error.to_string()))?;
        let revs = RevPath::default();
        let external_size = ejson_size(&body);
        self.write_local_db(
            NODES,
            DocEdit {
                id,
                revs,
                deleted: false,
                body,
                external_size,
                atts: Vec::new(),
            },
        )
        .await
    }

    async fn write_map(&self, name: &DbName, map: &ShardMap) -> Result<(), DbError> {
        let edit = DocEdit {
            id: dbs_id(name)?,
            revs: RevPath::default(),
            deleted: false,
            external_size: ejson_size(&map.to_term()),
            body: map.to_term(),
            atts: Vec::new(),
        };
        self.write_local_db(DBS, edit).await
    }

    /// Puts one document into a node-local database.
    ///
    /// # Errors
    /// [`DbError::Conflict`], or what writing met.
    pub async fn write_local_db(&self, database: &str, edit: DocEdit) -> Result<(), DbError> {
        let lease = self.lease(&Arc::from(database)).await?;
        let id = edit.id.as_str().to_owned();
        let prepared = Preparer::new(&self.inner.shared.prepare)
            .prepare(&lease.snapshot(), edit, false, Wait::Yes)
            .map_err(|error| read_failed(&error))?;
        let batch = Batch {
            docs: vec![prepared],
            locals: Vec::new(),
        };
        let answer = self.tell(&lease, |reply| DbMsg::Update(batch, reply)).await?;
        match answer.docs.first() {
            Some(UpdateOutcome::Written(_) | UpdateOutcome::Known(_)) => Ok(()),
            _ => Err(DbError::Conflict { id }),
        }
    }

    /// Calls a database process that answers with its own kind of failure.
    pub(super) async fn tell<T: Send + 'static>(
        &self,
        lease: &DbLease,
        make: impl FnOnce(crate::runtime::ReplyTo<Result<T, DbFailure>>) -> DbMsg,
    ) -> Result<T, DbError> {
        let process = lease.process().ok_or(DbError::ShuttingDown)?;
        process
            .call(self.deadline(), make)
            .await
            .map_err(call_failed)?
            .map_err(|error| read_failed(&error))
    }

    /// Deletes a database: first the document in `_dbs`, then the files.
    ///
    /// # Errors
    /// [`DbError::DatabaseDoesNotExist`], or what writing met.
    pub async fn delete_db(&self, name: &DbName) -> Result<(), DbError> {
        if matches!(name.as_str(), DBS | NODES) {
            return Err(DbError::BadRequest(format!(
                "{name} belongs to the node and is not deleted"
            )));
        }
        let _order = self.inner.maps.lock(name).lock().await;
        let Some(map) = self.read_map(name).await? else {
            return Err(DbError::DatabaseDoesNotExist(name.as_str().to_owned()));
        };
        // Also when the caller goes away, or the commit takes too long: from here on the map may be wrong.
        let forget = ForgetMap(&self.inner.maps, name);
        self.delete_map(name).await?;
        drop(forget);
        let deletions = map.shards().iter().map(|shard| {
            let shard = Arc::clone(shard.name());
            async move {
                let name = Arc::clone(&shard);
                let deleted = self
                    .server(&shard)
                    .call(self.deadline(), |reply| ServerMsg::Delete(name, reply))
                    .await;
                match deleted {
                    Ok(Ok(())) => {}
                    Ok(Err(failure)) => {
                        tracing::warn!(%shard, ?failure, "file of a deleted database was not removed")
                    }
                    Err(error) => {
                        tracing::warn!(%shard, %error, "file of a deleted database was not removed")
                    }
                }
            }
        });
        join_all(deletions).await;
        tracing::info!(db = name.as_str(), "database deleted");
        Ok(())
    }

    /// Deletes every live leaf of the document in `_dbs`.
    async fn delete_map(&self, name: &DbName) -> Result<(), DbError> {
        let id = dbs_id(name)?;
        let lease = self.lease(&Arc::from(DBS)).await?;
        let snapshot = lease.snapshot();
        let doc_id = id.clone();
        let info = self.read(move |wait| snapshot.full_info(&doc_id, wait)).await?;
        let live = info
            .iter()
            .flat_map(|info| info.tree.leaves_sorted())
            .filter(|leaf| !leaf.is_deleted());
        let live: Vec<Rev> = live.map(|leaf| leaf.rev()).collect();
        for rev in live {
            let mut body = Vec::new();
            write::tuple(&mut body, 1);
            write::nil(&mut body);
            let edit = DocEdit {
                id: id.clone(),
                revs: RevPath::single(rev),
                deleted: true,
                external_size: ejson_size(&body),
                body,
                atts: Vec::new(),
            };
            self.write_local_db(DBS, edit).await?;
        }
        Ok(())
    }

    /// Names of all databases, in byte order.
    ///
    /// # Errors
    /// What reading `_dbs` met.
    pub async fn all_dbs(&self) -> Result<Vec<String>, DbError> {
        let lease = self.lease(&Arc::from(DBS)).await?;
        let snapshot = lease.snapshot();
        self.read(move |wait| snapshot.live_ids(wait)).await
    }

    /// Whether there is such a database.
    ///
    /// # Errors
    /// What reading `_dbs` met.
    pub async fn db_exists(&self, name: &DbName) -> Result<bool, DbError> {
        match self.shards(name).await {
            Ok(_) => Ok(true),
            Err(DbError::DatabaseDoesNotExist(_)) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Numbers of a database, summed over its shards.
    ///
    /// # Errors
    /// As [`Coordinator::shards`], or what reading met.
    pub async fn db_info(&self, name: &DbName) -> Result<DbInfo, DbError> {
        let map = self.shards(name).await?;
        let copies = (0..map.shards().len())
            .map(|shard| (shard, self.node_name().clone()))
            .collect();
        let mut merge = DbInfoMerge::new(&map, copies);
        for (worker, lease) in self.leases(&map).await?.into_iter().enumerate() {
            let snapshot = lease.snapshot();
            let info = self.read(move |wait| snapshot.info(wait)).await?;
            if let InfoStep::Done(whole, _) = merge.reply(worker, self.shard_info(info)) {
                return Ok(db_info(name, &map, *whole));
            }
        }
        Err(DbError::Internal("the shards do not cover the ring".to_owned()))
    }

    fn shard_info(&self, info: db::ShardInfo) -> ShardInfo {
        let epoch = info.epochs.first().and_then(|(node, _)| NodeName::new(node).ok());
        let epoch = epoch.as_ref().unwrap_or(self.node_name());
        ShardInfo {
            doc_count: info.doc_count,
            doc_del_count: info.doc_del_count,
            sizes_file: info.file_bytes,
            sizes_external: info.external_bytes,
            sizes_active: info.active_bytes,
            disk_format_version: DISK_VERSION,
            compact_running: false,
            update_seq: ShardSeq::epoch(info.update_seq, info.uuid.as_bytes(), Some(epoch)),
            purge_seq: info.purge_seq,
        }
    }

    /// The security object, as JSON.
    ///
    /// # Errors
    /// As [`Coordinator::shards`], or what reading met.
    pub async fn security(&self, name: &DbName) -> Result<Vec<u8>, DbError> {
        let lease = self.any_shard(name).await?;
        let snapshot = lease.snapshot();
        let members = self.read(move |wait| snapshot.security(wait)).await?;
        let mut object = Vec::with_capacity(members.len() + 2);
        write::tuple(&mut object, 1);
        object.extend_from_slice(&members);
        let mut json = Vec::new();
        term_to_json(&object, &mut json).map_err(|error| DbError::Corrupt {
            id: None,
            detail: format!("security object of {name}: {error}"),
        })?;
        Ok(json)
    }

    /// Replaces the security object on every shard.
    ///
    /// # Errors
    /// When `json` is no object, or what writing met.
    pub async fn set_security(&self, name: &DbName, json: &[u8]) -> Result<(), DbError> {
        let mut object = Vec::with_capacity(json.len());
        json_to_term(json, &mut object).map_err(|error| DbError::BadRequest(error.to_string()))?;
        // An object is a tuple of one list; the list alone is stored.
        let members = match object.split_at_checked(2) {
            Some(([104, 1], members)) => members.to_vec(),
            _ => {
                return Err(DbError::BadRequest(
                    "Request body must be a JSON object".to_owned(),
                ));
            }
        };
        self.set_all(name, || Setting::Security(members.clone())).await
    }

    /// Revisions remembered of each document.
    ///
    /// # Errors
    /// As [`Coordinator::shards`], or what opening met.
    pub async fn revs_limit(&self, name: &DbName) -> Result<u64, DbError> {
        Ok(self.any_shard(name).await?.snapshot().header().revs_limit)
    }

    /// Sets how many revisions are remembered of each document, at least one.
    ///
    /// # Errors
    /// When `limit` is 0, or what writing met.
    pub async fn set_revs_limit(&self, name: &DbName, limit: u64) -> Result<(), DbError> {
        if limit == 0 {
            return Err(DbError::BadRequest(
                "`revs_limit` must be positive integer".to_owned(),
            ));
        }
        self.set_all(name, || Setting::RevsLimit(limit)).await
    }

    /// Purge requests remembered.
    ///
    /// # Errors
    /// As [`Coordinator::shards`], or what opening met.
    pub async fn purged_infos_limit(&self, name: &DbName) -> Result<u64, DbError> {
        Ok(self.any_shard(name).await?.snapshot().header().purge_infos_limit)
    }

    /// Sets how many purge requests are remembered, at least one.
    ///
    /// # Errors
    /// When `limit` is 0, or what writing met.
    pub async fn set_purged_infos_limit(&self, name: &DbName, limit: u64) -> Result<(), DbError> {
        if limit == 0 {
            return Err(DbError::BadRequest(
                "`purged_infos_limit` must be positive integer".to_owned(),
            ));
        }
        self.set_all(name, || Setting::PurgeInfosLimit(limit)).await
    }

    async fn set_all(&self, name: &DbName, setting: impl Fn() -> Setting) -> Result<(), DbError> {
        let map = self.shards(name).await?;
        let leases = self.leases(&map).await?;
        let settings = leases.iter().map(|lease| {
            let setting = setting();
            self.tell(lease, |reply| DbMsg::Set(setting, reply))
        });
        try_join_all(settings).await.map(drop)
    }

    /// A shard that answers for what all shards have alike.
    async fn any_shard(&self, name: &DbName) -> Result<DbLease, DbError> {
        let map = self.shards(name).await?;
        let shard = map
            .shards()
            .first()
            .ok_or_else(|| DbError::Internal("a map without shards".to_owned()))?;
        self.lease(shard.name()).await
    }
}

fn db_info(name: &DbName, map: &ShardMap, whole: ClusterInfo) -> DbInfo {
    let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    DbInfo {
        db_name: name.as_str().to_owned(),
        instance_start_time: map.instance_start_time().to_owned(),
        update_seq: whole.update_seq,
        purge_seq: whole.purge_seq,
        doc_count: whole.sums.doc_count,
        doc_del_count: whole.sums.doc_del_count,
        sizes_file: whole.sums.sizes_file,
        sizes_external: whole.sums.sizes_external,
        sizes_active: whole.sums.sizes_active.unwrap_or(0),
        disk_format_version: whole.sums.disk_format_version,
        compact_running: whole.sums.compact_running,
        partitioned: map.partitioned(),
        q: count(whole.q),
        n: count(whole.n),
        w: count(whole.quorum),
        r: count(whole.quorum),
    }
}

fn dbs_id(name: &DbName) -> Result<DocId, DbError> {
    DocId::from_stored(name.as_str().as_bytes()).map_err(|error| DbError::Internal(error.to_string()))
}

/// The props term of a shard file: a list of properties.
fn props_of(map: &ShardMap) -> Vec<u8> {
    let mut out = Vec::new();
    if !map.partitioned() {
        write::nil(&mut out);
        return out;
    }
    write::list(&mut out, 2);
    write::tuple(&mut out, 2);
    write::atom(&mut out, "partitioned");
    write::atom(&mut out, "true");
    write::tuple(&mut out, 2);
    write::atom(&mut out, "hash");
    write::list(&mut out, 3);
    write::atom(&mut out, "couch_partition");
    write::atom(&mut out, "hash");
    write::nil(&mut out);
    write::nil(&mut out);
    write::nil(&mut out);
    out
}
