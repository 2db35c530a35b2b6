//! The supervision tree of a node: one line per child, in start order. Whoever stands later may call whoever stands
//! earlier; they stop in reverse order.

use crate::cache_cleaner::{CacheCleaner, CleanerArgs};
use crate::coordinator::{Coordinator, DbError};
use crate::open_db::DbTable;
use crate::options::NodeOptions;
use crate::runtime::{
    ChildSpec, Name, Placement, Policy, PoolOptions, SpawnOptions, Strategy, Supervisor, SupervisorSpec,
    System, SystemOptions,
};
use crate::server::{Server, ServerArgs, ServerShared};
use crate::stats::Counters;
use settee_engine::storage::NodeCache;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;
use thiserror::Error;

/// Name under which the supervisor of an embedding program's own processes is registered.
pub const USER_SUPERVISOR: &str = "user_sup";
/// A cached node is at the most this many times as large as the size at which nodes are split.
const CACHED_TERM_CHUNKS: usize = 4;
/// Restarts of a supervisor's children within [`PERIOD`] after which it gives up.
const INTENSITY: u32 = 10;
/// The period of [`INTENSITY`].
const PERIOD: Duration = Duration::from_secs(10);
/// Requests that a registry process takes before callers have to wait.
const SERVER_MAILBOX: usize = 16_384;
/// Jobs that wait for a thread at the most.
const POOL_QUEUE: usize = 65_536;
/// Name of the pool for work on files.
const POOL: &str = "storage";

/// The tree: children in start order. Whoever stands later may call whoever stands earlier.
fn root(cleaners: &[CleanerArgs], servers: &ServerArgs, server_count: usize) -> SupervisorSpec {
    let supervisor = |strategy| SupervisorSpec::new(strategy).intensity(INTENSITY, PERIOD);
    let mut cleaner_sup = supervisor(Strategy::OneForOne);
    for args in cleaners {
        let id = format!("cache_cleaner_{}", args.shard + 1);
        let options = SpawnOptions::default()
            .named(id.as_str())
            .on(Placement::Arbiter(args.shard));
        cleaner_sup = cleaner_sup.child(ChildSpec::worker::<CacheCleaner>(id, args.clone(), options));
    }
    let mut server_sup = supervisor(Strategy::OneForOne);
    for index in 0..server_count {
        let name = server_name(index);
        let options = SpawnOptions::default()
            .named(name.as_str())
            .capacity(SERVER_MAILBOX)
            .policy(Policy::Wait)
            .on(Placement::Arbiter(index));
        server_sup = server_sup.child(ChildSpec::worker::<Server>(name, servers.clone(), options));
    }
    let user_sup = supervisor(Strategy::OneForOne);
    let named = |name: &str| SpawnOptions::default().named(name);
    supervisor(Strategy::RestForOne)
        .child(ChildSpec::supervisor(
            "cache_cleaner_sup",
            cleaner_sup,
            named("cache_cleaner_sup"),
        ))
        .child(ChildSpec::supervisor(
            "server_sup",
            server_sup,
            named("server_sup"),
        ))
        .child(ChildSpec::supervisor(
            USER_SUPERVISOR,
            user_sup,
            named(USER_SUPERVISOR),
        ))
}

/// Name of a registry process, counted from zero.
fn server_name(index: usize) -> String {
    format!("couch_server_{}", index + 1)
}

/// Why a node did not start.
#[derive(Debug, Error)]
pub enum StartError {
    /// A process did not start.
    #[error("a process did not start: {0}")]
    Process(String),
    /// A database that the node needs could not be opened or created.
    #[error("a database that the node needs: {0}")]
    Database(#[from] DbError),
}

/// What can be changed while the node runs.
#[derive(Clone, Debug)]
pub struct Tunables {
    cache: Arc<NodeCache>,
    leave_percent: Arc<AtomicU8>,
}

impl Tunables {
    /// `[bt_engine_cache] max_size` in bytes.
    pub fn set_cache_bytes(&self, bytes: usize) {
        self.cache.set_max_size(bytes);
    }

    /// `[bt_engine_cache] leave_percent`.
    pub fn set_cache_leave_percent(&self, percent: u8) {
        self.leave_percent.store(percent, Ordering::Relaxed);
    }
}

/// The running processes of a node.
pub struct NodeTree {
    system: System,
    coordinator: Coordinator,
    tunables: Tunables,
}

impl std::fmt::Debug for NodeTree {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NodeTree")
            .field("coordinator", &self.coordinator)
            .finish_non_exhaustive()
    }
}

impl NodeTree {
    /// Starts all processes, and opens or creates the node-local databases. `uuid` names the server to clients.
    ///
    /// # Errors
    /// [`StartError`]; what was started is stopped then.
    pub async fn start(options: NodeOptions, uuid: Option<String>) -> Result<Self, StartError> {
        let system = System::threaded(options.arbiters, SystemOptions::default())
            .map_err(|error| StartError::Process(error.to_string()))?;
        Self::start_in(system, options, uuid).await
    }

    /// The same in a system of the caller's, such as [`System::local`] in a simulation.
    ///
    /// # Errors
    /// As [`NodeTree::start`].
    pub async fn start_in(
        system: System,
        options: NodeOptions,
        uuid: Option<String>,
    ) -> Result<Self, StartError> {
        let pool_options = PoolOptions {
            threads: options.blocking_threads,
            queue: POOL_QUEUE,
        };
        let pool = system.add_pool(POOL, pool_options);
        let max_term = options.btree_chunk_size.saturating_mul(CACHED_TERM_CHUNKS);
        let cache = Arc::new(NodeCache::new(options.cache_bytes, max_term, options.arbiters));
        let leave_percent = Arc::new(AtomicU8::new(options.cache_leave_percent));
        let server_count = options.server_shards.max(1);
        let open_max = (options.max_dbs_open / server_count).max(1);
        let shared = Arc::new(ServerShared {
            table: DbTable::default(),
            cache: Arc::clone(&cache),
            pool,
            counters: Arc::new(Counters::default()),
            prepare: Arc::new(options.prepare_options()),
            options,
        });
        let cleaners: Vec<CleanerArgs> = (0..cache.shards().len())
            .map(|shard| CleanerArgs {
                cache: Arc::clone(&cache),
                shard,
                leave_percent: Arc::clone(&leave_percent),
            })
            .collect();
        let spec = root(
            &cleaners,
            &ServerArgs {
                shared: Arc::clone(&shared),
                open_max,
            },
            server_count,
        );
        let failed = |error: &dyn std::fmt::Display| StartError::Process(error.to_string());
        let root = system
            .spawn::<Supervisor>(spec, SpawnOptions::default().named("settee_sup"))
            .map_err(|error| failed(&error))?;
        system
            .wait_started(root.pid())
            .await
            .map_err(|reason| failed(&reason))?;
        let servers = (0..server_count)
            .map(|index| Name::new(&system, server_name(index)))
            .collect();
        let uuid = uuid.unwrap_or_else(|| shared.options.entropy.uuid());
        let coordinator = Coordinator::new(&system, shared, servers, uuid);
        let tree = Self {
            system,
            coordinator,
            tunables: Tunables { cache, leave_percent },
        };
        if let Err(error) = tree.coordinator.ensure_node_databases().await {
            tree.stop(PERIOD).await;
            return Err(error.into());
        }
        Ok(tree)
    }

    /// The actor system.
    #[must_use]
    pub fn system(&self) -> &System {
        &self.system
    }

    /// Everything that is asked of databases.
    #[must_use]
    pub fn coordinator(&self) -> &Coordinator {
        &self.coordinator
    }

    /// What can be changed while the node runs.
    #[must_use]
    pub fn tunables(&self) -> Tunables {
        self.tunables.clone()
    }

    /// Stops all processes, the last started first. Commits that are under way are finished.
    pub async fn stop(self, deadline: Duration) {
        let Self {
            system, coordinator, ..
        } = self;
        drop(coordinator);
        let left = system.stop(deadline).await;
        if left > 0 {
            tracing::warn!(processes = left, "processes had to be killed at the stop");
        }
    }
}
