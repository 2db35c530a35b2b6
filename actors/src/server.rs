//! The registry of open shards, in the manner of `couch_server`: several processes, each for its share of the names.
//!
//! A name that is being opened, created, closed or deleted is *busy*: whatever arrives for it waits in order and is
//! handled anew when that is done. Reading the table of open shards needs no message. Called by: the coordinator, and
//! by the last user of a shard when room is wanted. Calls: database processes.

use crate::db::{Db, DbArgs, DbFailure, DbMsg};
use crate::open_db::{DbLease, DbTable, OpenDb};
use crate::options::{DefaultSecurity, NodeOptions};
use crate::runtime::{
    BlockingPool, Ctx, Info, Lane, Next, Policy, PoolError, Process, Reason, ReplyTo,
    Snapshot as ProcessSnapshot, SpawnOptions,
};
use crate::stats::Counters;
use ahash::AHashMap;
use settee_engine::db::{self, DbOptions, DbWriter, PrepareOptions};
use settee_engine::storage::{FileOptions, NodeCache};
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// How long the closing of a shard may take: it has to finish the commits that wait.
const CLOSE_DEADLINE: Duration = Duration::from_secs(60);

/// Folder, below the data directory, into which files are moved before they are removed.
const DELETE_DIR: &str = ".delete";

/// Requests that a database process takes before it says that it is full.
const DB_MAILBOX: usize = 4096;

/// Why a shard could not be opened, created or deleted.
#[derive(Clone, Debug)]
pub enum ServerFailure {
    /// There is no such file.
    NotFound,
    /// There is such a file already.
    Exists,
    /// The file could not be read or written.
    Db(DbFailure),
    /// The blocking pool takes no work, so the node is stopping.
    Stopping,
}

/// Messages of a registry process.
#[derive(Debug)]
pub enum ServerMsg {
    /// Open a shard that exists, or take the one that is open.
    Open(Arc<str>, ReplyTo<Result<DbLease, ServerFailure>>),
    /// Create a shard; the raw term of its props, or none for a node-local database.
    Create(Arc<str>, Option<Vec<u8>>, ReplyTo<Result<DbLease, ServerFailure>>),
    /// Delete a shard and its file.
    Delete(Arc<str>, ReplyTo<Result<(), ServerFailure>>),
    /// From the lane: a file is open.
    Opened(Arc<str>, Box<Result<DbWriter, ServerFailure>>),
    /// From the lane: a file is gone, or was not there.
    Deleted(Arc<str>, Result<(), ServerFailure>),
    /// A database process has finished and stopped.
    Closed(Arc<str>),
    /// A shard that had users has none.
    Freed,
}

/// What the registry processes of a node share.
pub struct ServerShared {
    /// The open shards of all registry processes.
    pub table: DbTable,
    /// The options of the node.
    pub options: NodeOptions,
    /// How edits are made ready.
    pub prepare: Arc<PrepareOptions>,
    /// The node cache.
    pub cache: Arc<NodeCache>,
    /// The pool for files.
    pub pool: BlockingPool,
    /// Counters of the node.
    pub counters: Arc<Counters>,
}

impl std::fmt::Debug for ServerShared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServerShared")
            .field("open", &self.table.len())
            .finish_non_exhaustive()
    }
}

impl ServerShared {
    /// The file of a shard.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.options.data_dir.join(format!("{name}.couch"))
    }

    /// The serial lane on which everything happens to one file, one after the other.
    fn lane(&self, name: &str) -> Lane {
        self.pool.lane(name)
    }

    fn db_options(&self, name: &str) -> DbOptions {
        let everyone = match self.options.default_security {
            DefaultSecurity::AdminOnly => false,
            DefaultSecurity::Everyone => true,
            DefaultSecurity::AdminLocal => !name.starts_with("shards/"),
        };
        DbOptions {
            file: FileOptions {
                checksum: self.options.checksum,
                compression: self.options.compression,
                btree_chunk_size: self.options.btree_chunk_size,
                header_read_count: self.options.header_read_count,
                cache_depth: self.options.cache_depth,
                sync: self.options.sync,
                ..FileOptions::default()
            },
            prepare: PrepareOptions::clone(&self.prepare),
            node: self.options.name.to_string(),
            everyone,
        }
    }
}

/// What a registry process is made from.
#[derive(Clone, Debug)]
pub struct ServerArgs {
    /// What all of them share.
    pub shared: Arc<ServerShared>,
    /// Shards that this one keeps open at the most, system databases left out.
    pub open_max: usize,
}

/// A registry process.
pub struct Server {
    args: ServerArgs,
    open: AHashMap<Arc<str>, Entry>,
    busy: AHashMap<Arc<str>, VecDeque<ServerMsg>>,
    waiting_for_room: VecDeque<ServerMsg>,
}

struct Entry {
    db: Arc<OpenDb>,
    system: bool,
}

impl Process for Server {
    type Args = ServerArgs;
    type Msg = ServerMsg;
    const NAME: &'static str = "server";

    fn init(args: ServerArgs, ctx: &mut Ctx<Self>) -> Result<Self, Reason> {
        // Database processes are linked: they end with their registry, and their ends are told to it.
        ctx.trap_exit(true);
        Ok(Self {
            args,
            open: AHashMap::new(),
            busy: AHashMap::new(),
            waiting_for_room: VecDeque::new(),
        })
    }

    fn handle(&mut self, msg: ServerMsg, ctx: &mut Ctx<Self>) -> Next {
        match msg {
            ServerMsg::Open(..) | ServerMsg::Create(..) | ServerMsg::Delete(..) => self.request(msg, ctx),
            ServerMsg::Opened(name, writer) => self.opened(name, *writer, ctx),
            ServerMsg::Deleted(name, done) => self.deleted(&name, done, ctx),
            ServerMsg::Closed(name) => self.closed(&name, ctx),
            ServerMsg::Freed => self.retry_waiting(ctx),
        }
        Next::Continue
    }

    fn handle_info(&mut self, info: Info, ctx: &mut Ctx<Self>) -> Next {
        if let Info::Exit { from, reason } = info {
            let died = self
                .open
                .iter()
                .find(|(_, entry)| entry.db.process().is_some_and(|db| db.pid() == from));
            if let Some(name) = died.map(|(name, _)| Arc::clone(name)) {
                if !matches!(reason, Reason::Normal | Reason::Shutdown) {
                    tracing::error!(shard = &*name, %reason, "database process died; the shard is opened anew when used");
                }
                self.forget(&name);
                // Its slot is free.
                self.retry_waiting(ctx);
            }
        }
        Next::Continue
    }

    fn snapshot(&self) -> ProcessSnapshot {
        ProcessSnapshot::default()
            .with("open", self.open.len())
            .with("busy", self.busy.len())
            .with("waiting_for_room", self.waiting_for_room.len())
    }
}

impl Server {
    fn request(&mut self, msg: ServerMsg, ctx: &mut Ctx<Self>) {
        let Some(name) = msg.name() else { return };
        if let Some(queue) = self.busy.get_mut(&name) {
            queue.push_back(msg);
            return;
        }
        match msg {
            ServerMsg::Delete(..) => self.begin_delete(&name, msg, ctx),
            ServerMsg::Open(_, reply) => match self.args.shared.table.lease(&name) {
                Some(lease) => reply.reply(Ok(lease)),
                None => self.begin_open(&name, ServerMsg::Open(Arc::clone(&name), reply), ctx),
            },
            ServerMsg::Create(_, props, reply) => match self.open.contains_key(&name) {
                true => reply.reply(Err(ServerFailure::Exists)),
                false => self.begin_open(&name, ServerMsg::Create(Arc::clone(&name), props, reply), ctx),
            },
            ServerMsg::Opened(..) | ServerMsg::Deleted(..) | ServerMsg::Closed(_) | ServerMsg::Freed => {}
        }
    }

    /// Opens or creates a file on its lane; the name is busy meanwhile.
    fn begin_open(&mut self, name: &Arc<str>, msg: ServerMsg, ctx: &mut Ctx<Self>) {
        if !is_system(name) && !self.has_room(ctx) {
            self.waiting_for_room.push_back(msg);
            return;
        }
        let props = match &msg {
            ServerMsg::Create(_, props, _) => Some(props.clone()),
            _ => None,
        };
        self.busy.insert(Arc::clone(name), VecDeque::from([msg]));
        let shared = Arc::clone(&self.args.shared);
        let (job_name, answer_name) = (Arc::clone(name), Arc::clone(name));
        let lane = self.args.shared.lane(name);
        let opening = async move { lane.run(move || open_file(&shared, &job_name, props)).await };
        ctx.spawn_future(opening, move |opened: Result<_, PoolError>| {
            let writer = opened.unwrap_or(Err(ServerFailure::Stopping));
            ServerMsg::Opened(answer_name, Box::new(writer))
        });
    }

    fn opened(&mut self, name: Arc<str>, writer: Result<DbWriter, ServerFailure>, ctx: &mut Ctx<Self>) {
        let lease = writer.and_then(|writer| self.start_db(&name, writer, ctx));
        let queue = self.busy.remove(&name).unwrap_or_default();
        let mut later = Vec::new();
        let mut first = true;
        for msg in queue {
            match msg {
                ServerMsg::Open(_, reply) => reply.reply(lease.clone()),
                ServerMsg::Create(_, _, reply) if first => reply.reply(lease.clone()),
                other => later.push(other),
            }
            first = false;
        }
        for msg in later {
            self.request(msg, ctx);
        }
        if lease.is_err() {
            self.retry_waiting(ctx);
        }
    }

    fn start_db(
        &mut self,
        name: &Arc<str>,
        writer: DbWriter,
        ctx: &mut Ctx<Self>,
    ) -> Result<DbLease, ServerFailure> {
        let shared = &self.args.shared;
        let me = ctx.me();
        let freed = move |name: &str| {
            if me.cast(ServerMsg::Freed).is_err() {
                tracing::debug!(shard = name, "freed after its registry had gone");
            }
        };
        let open = Arc::new(OpenDb::new(Arc::clone(name), writer.snapshot(), Box::new(freed)));
        let args = DbArgs {
            open: Arc::clone(&open),
            writer,
            lane: shared.lane(name),
            counters: Arc::clone(&shared.counters),
        };
        let process = ctx
            .spawn_link::<Db>(
                args,
                SpawnOptions::default().capacity(DB_MAILBOX).policy(Policy::Wait),
            )
            .map_err(|error| {
                tracing::error!(shard = &**name, %error, "database process did not start");
                ServerFailure::Stopping
            })?;
        open.set_process(process);
        let lease = DbLease::new(&open).ok_or(ServerFailure::NotFound)?;
        let system = is_system(name);
        if !system {
            shared.counters.open_databases.up();
        }
        shared.table.insert(Arc::clone(&open));
        self.open.insert(Arc::clone(name), Entry { db: open, system });
        Ok(lease)
    }

    /// Whether one more shard may be opened; closes the one that was idle longest otherwise.
    fn has_room(&mut self, ctx: &mut Ctx<Self>) -> bool {
        let counted = self.open.values().filter(|entry| !entry.system).count();
        let opening = self.busy.keys().filter(|name| !is_system(name)).count();
        if counted + opening < self.args.open_max {
            return true;
        }
        let mut idle: Vec<&Entry> = self.open.values().filter(|entry| !entry.system).collect();
        idle.sort_by_key(|entry| entry.db.last_used());
        let counters = &self.args.shared.counters;
        let mut closing = None;
        for entry in idle {
            if entry.db.begin_close() {
                closing = Some(Arc::clone(&entry.db));
                break;
            }
            counters.lru_skip.increment();
            entry.db.want_room(true);
            // The last user may have gone between the count and the wish.
            if entry.db.begin_close() {
                closing = Some(Arc::clone(&entry.db));
                break;
            }
        }
        match closing {
            Some(db) => {
                counters.lru_closed.increment();
                self.begin_close(&db, ctx);
            }
            None => counters.all_dbs_active.increment(),
        }
        false
    }

    /// Lets a database process finish and stop; the name is busy meanwhile.
    fn begin_close(&mut self, db: &Arc<OpenDb>, ctx: &mut Ctx<Self>) {
        let name: Arc<str> = Arc::from(db.name());
        self.busy.entry(Arc::clone(&name)).or_default();
        self.args.shared.table.remove(&name);
        let Some(process) = db.process().cloned() else {
            return;
        };
        let done = async move { process.call(CLOSE_DEADLINE, DbMsg::Close).await };
        ctx.spawn_future(done, move |closed| {
            if let Err(error) = closed {
                tracing::warn!(shard = &*name, %error, "database process did not close in order");
            }
            ServerMsg::Closed(name)
        });
    }

    fn closed(&mut self, name: &Arc<str>, ctx: &mut Ctx<Self>) {
        self.forget(name);
        match self.busy.get(name).and_then(VecDeque::front) {
            Some(ServerMsg::Delete(..)) => self.delete_file(name, ctx),
            _ => {
                self.no_longer_busy(name, ctx);
                self.retry_waiting(ctx);
            }
        }
    }

    fn forget(&mut self, name: &Arc<str>) {
        self.args.shared.table.remove(name);
        if self.open.remove(name).is_some_and(|entry| !entry.system) {
            self.args.shared.counters.open_databases.down();
        }
    }

    fn begin_delete(&mut self, name: &Arc<str>, msg: ServerMsg, ctx: &mut Ctx<Self>) {
        self.busy.insert(Arc::clone(name), VecDeque::from([msg]));
        match self.open.get(name).map(|entry| Arc::clone(&entry.db)) {
            Some(db) => {
                db.force_close();
                db.mark_deleted();
                self.begin_close(&db, ctx);
            }
            None => self.delete_file(name, ctx),
        }
    }

    fn delete_file(&mut self, name: &Arc<str>, ctx: &mut Ctx<Self>) {
        let shared = Arc::clone(&self.args.shared);
        let (job_name, answer_name) = (Arc::clone(name), Arc::clone(name));
        let lane = self.args.shared.lane(name);
        let deleting = async move { lane.run(move || delete_file(&shared, &job_name)).await };
        ctx.spawn_future(deleting, move |deleted: Result<_, PoolError>| {
            ServerMsg::Deleted(answer_name, deleted.unwrap_or(Err(ServerFailure::Stopping)))
        });
    }

    fn deleted(&mut self, name: &Arc<str>, done: Result<(), ServerFailure>, ctx: &mut Ctx<Self>) {
        let first = self.busy.get_mut(name).and_then(VecDeque::pop_front);
        if let Some(ServerMsg::Delete(_, reply)) = first {
            reply.reply(done);
        }
        self.no_longer_busy(name, ctx);
        self.retry_waiting(ctx);
    }

    /// Handles anew what arrived while the name was busy.
    fn no_longer_busy(&mut self, name: &Arc<str>, ctx: &mut Ctx<Self>) {
        for msg in self.busy.remove(name).unwrap_or_default() {
            self.request(msg, ctx);
        }
    }

    /// Handles anew what waited for room.
    fn retry_waiting(&mut self, ctx: &mut Ctx<Self>) {
        let waiting = std::mem::take(&mut self.waiting_for_room);
        let nobody_waits = waiting.is_empty();
        for msg in waiting {
            self.request(msg, ctx);
        }
        if nobody_waits {
            for entry in self.open.values() {
                entry.db.want_room(false);
            }
        }
    }
}

impl ServerMsg {
    /// The shard that a request is about.
    fn name(&self) -> Option<Arc<str>> {
        match self {
            Self::Open(name, _) | Self::Create(name, _, _) | Self::Delete(name, _) => Some(Arc::clone(name)),
            Self::Opened(..) | Self::Deleted(..) | Self::Closed(_) | Self::Freed => None,
        }
    }
}

/// Whether a shard belongs to a system database, which is neither counted nor closed for room.
fn is_system(shard: &str) -> bool {
    let name = match shard.strip_prefix("shards/") {
        None => shard,
        Some(rest) => rest.split_once('/').map_or(rest, |(_, name)| name),
    };
    let name = match name.rsplit_once('.') {
        Some((name, suffix)) if suffix.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => name,
    };
    let base = name.rsplit_once('/').map_or(name, |(_, base)| base);
    matches!(name, "_dbs" | "_nodes") || matches!(base, "_replicator" | "_users")
}

fn failure(error: db::DbError) -> ServerFailure {
    ServerFailure::Db(Arc::new(error))
}

/// Opens the file of a shard, or creates it with these props.
fn open_file(
    shared: &ServerShared,
    name: &str,
    create: Option<Option<Vec<u8>>>,
) -> Result<DbWriter, ServerFailure> {
    let path = shared.path(name);
    let vfs = &shared.options.vfs;
    let options = shared.db_options(name);
    let cache = Some(Arc::clone(&shared.cache));
    let exists = vfs
        .exists(&path)
        .map_err(|error| failure(db::DbError::from_io(&path, "looking for", error)))?;
    match create {
        Some(_) if exists => Err(ServerFailure::Exists),
        None if !exists => Err(ServerFailure::NotFound),
        None => {
            let writer =
                db::open(vfs, &path, &options, shared.options.entropy.uuid(), cache).map_err(failure)?;
            if let Some(refused) = writer.refused_header() {
                shared.counters.refused_headers.increment();
                tracing::warn!(file = %path.display(), "{refused}; the one before it is taken");
            }
            Ok(writer)
        }
        Some(props) => {
            let writer = db::create(
                vfs,
                &path,
                &options,
                props.as_deref(),
                shared.options.entropy.uuid(),
                cache,
            )
            .map_err(failure)?;
            // A file whose name is not on disk is as lost as one without bytes.
            sync_parents(shared, &path)
                .map_err(|error| failure(db::DbError::from_io(&path, "syncing", error)))?;
            Ok(writer)
        }
    }
}

/// Syncs the folders above the one of a new file, which is synced already, up to the data folder.
fn sync_parents(shared: &ServerShared, path: &Path) -> std::io::Result<()> {
    let mut folder = path.parent();
    while let Some(below) = folder.filter(|folder| *folder != shared.options.data_dir) {
        folder = below.parent();
        if let Some(folder) = folder {
            shared.options.vfs.sync_dir(folder)?;
        }
    }
    Ok(())
}

/// Moves the file of a shard away and removes it.
fn delete_file(shared: &ServerShared, name: &str) -> Result<(), ServerFailure> {
    let vfs = &shared.options.vfs;
    let path = shared.path(name);
    let exists = vfs
        .exists(&path)
        .map_err(|error| failure(db::DbError::from_io(&path, "looking for", error)))?;
    if !exists {
        return Err(ServerFailure::NotFound);
    }
    let trash = shared.options.data_dir.join(DELETE_DIR);
    let moved = trash.join(format!("{}.couch", shared.options.entropy.uuid()));
    let deleted = vfs
        .create_dir_all(&trash)
        .and_then(|()| vfs.rename(&path, &moved))
        .and_then(|()| path.parent().map_or(Ok(()), |folder| vfs.sync_dir(folder)))
        .and_then(|()| vfs.remove_file(&moved));
    deleted.map_err(|error| failure(db::DbError::from_io(&path, "deletion", error)))
}

#[cfg(test)]
mod tests {
    use super::is_system;

    #[test]
    fn system_databases_are_told_by_the_last_part_of_their_name() {
        for name in [
            "_dbs",
            "_nodes",
            "shards/00000000-ffffffff/_users.1700000000",
            "shards/00000000-7fffffff/a/_replicator.1700000000",
        ] {
            assert!(is_system(name), "{name}");
        }
        for name in [
            "shards/00000000-ffffffff/my_users.1700000000",
            "shards/00000000-ffffffff/a/b_replicator.1700000000",
            "shards/00000000-ffffffff/_users/a.1700000000",
        ] {
            assert!(!is_system(name), "{name}");
        }
    }
}
