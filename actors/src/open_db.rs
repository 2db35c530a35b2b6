//! An open shard as everyone shares it: its newest snapshot, its process, and who is using it.
//!
//! A shard is used through a [`DbLease`]. The registry closes a shard only when nobody holds one; closing and leasing
//! meet in two flags: a user counts itself first and then looks whether the shard is closing, the registry sets
//! `closing` first and then looks at the count. Both use sequentially consistent order, so at least one sees the other.

use crate::db::DbMsg;
use crate::runtime::Ref;
use arc_swap::ArcSwap;
use settee_engine::db::Snapshot;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use tokio::sync::watch;

/// What a feed that waits for updates is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpdateEvent {
    /// The shard is at this sequence.
    Updated(u64),
    /// The database has been deleted.
    Deleted,
}

type Freed = Box<dyn Fn(&str) + Send + Sync>;

/// An open shard.
pub struct OpenDb {
    name: Arc<str>,
    snapshot: ArcSwap<Snapshot>,
    updates: watch::Sender<UpdateEvent>,
    process: OnceLock<Ref<DbMsg>>,
    users: AtomicUsize,
    closing: AtomicBool,
    room_wanted: AtomicBool,
    last_used: AtomicU64,
    /// Called when the last user of a shard goes while room is wanted.
    freed: Freed,
}

impl std::fmt::Debug for OpenDb {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OpenDb")
            .field("name", &self.name)
            .field("users", &self.users)
            .finish_non_exhaustive()
    }
}

impl OpenDb {
    /// A shard whose process is set next, by [`OpenDb::set_process`].
    #[must_use]
    pub fn new(name: Arc<str>, snapshot: Snapshot, freed: Freed) -> Self {
        let (updates, _) = watch::channel(UpdateEvent::Updated(snapshot.header().update_seq));
        Self {
            name,
            snapshot: ArcSwap::from_pointee(snapshot),
            updates,
            process: OnceLock::new(),
            users: AtomicUsize::new(0),
            closing: AtomicBool::new(false),
            room_wanted: AtomicBool::new(false),
            last_used: AtomicU64::new(0),
            freed,
        }
    }

    /// Names the process; done once, before anyone else sees the shard.
    pub fn set_process(&self, process: Ref<DbMsg>) {
        let first = self.process.set(process).is_ok();
        debug_assert!(first, "a shard has one process");
    }

    /// Name of the shard, such as `shards/00000000-7fffffff/db.1700000000`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The process that writes; none only while the shard is being opened.
    #[must_use]
    pub fn process(&self) -> Option<&Ref<DbMsg>> {
        self.process.get()
    }

    /// What the last commit left.
    #[must_use]
    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.snapshot.load_full()
    }

    /// Called by the shard's lane after each commit.
    pub fn publish(&self, snapshot: Snapshot) {
        let seq = snapshot.header().update_seq;
        self.snapshot.store(Arc::new(snapshot));
        self.updates.send_if_modified(|event| {
            let changed = *event != UpdateEvent::Updated(seq) && *event != UpdateEvent::Deleted;
            if changed {
                *event = UpdateEvent::Updated(seq);
            }
            changed
        });
    }

    /// Told of every commit from now on.
    #[must_use]
    pub fn subscribe(&self) -> watch::Receiver<UpdateEvent> {
        self.updates.subscribe()
    }

    /// Ends the feeds that wait.
    pub fn mark_deleted(&self) {
        self.updates.send_replace(UpdateEvent::Deleted);
    }

    /// Number of leases now.
    #[must_use]
    pub fn users(&self) -> usize {
        self.users.load(Ordering::SeqCst)
    }

    /// When it was last leased, in leases of the node.
    #[must_use]
    pub fn last_used(&self) -> u64 {
        self.last_used.load(Ordering::Relaxed)
    }

    /// Whether room is wanted: the last user then tells the registry.
    pub fn want_room(&self, wanted: bool) {
        self.room_wanted.store(wanted, Ordering::SeqCst);
    }

    /// Refuses further leases if nobody holds one; the registry may close the shard then.
    #[must_use]
    pub fn begin_close(&self) -> bool {
        self.closing.store(true, Ordering::SeqCst);
        if self.users.load(Ordering::SeqCst) == 0 {
            return true;
        }
        self.closing.store(false, Ordering::SeqCst);
        false
    }

    /// Refuses further leases whoever holds one, because the database goes away.
    pub fn force_close(&self) {
        self.closing.store(true, Ordering::SeqCst);
    }
}

/// The right to use an open shard; it stays open while one exists.
#[derive(Debug)]
pub struct DbLease {
    db: Arc<OpenDb>,
}

impl DbLease {
    /// A lease, unless the shard is closing.
    #[must_use]
    pub fn new(db: &Arc<OpenDb>) -> Option<Self> {
        db.users.fetch_add(1, Ordering::SeqCst);
        let lease = Self { db: Arc::clone(db) };
        // The partner of `begin_close`: counted first, looked second.
        (!db.closing.load(Ordering::SeqCst)).then_some(lease)
    }
}

impl Clone for DbLease {
    fn clone(&self) -> Self {
        self.db.users.fetch_add(1, Ordering::SeqCst);
        Self {
            db: Arc::clone(&self.db),
        }
    }
}

impl Drop for DbLease {
    fn drop(&mut self) {
        let last = self.db.users.fetch_sub(1, Ordering::SeqCst) == 1;
        if last && self.db.room_wanted.load(Ordering::SeqCst) {
            (self.db.freed)(&self.db.name);
        }
    }
}

impl Deref for DbLease {
    type Target = OpenDb;

    fn deref(&self) -> &OpenDb {
        &self.db
    }
}

/// The open shards by name, read without a message to anyone.
#[derive(Debug, Default)]
pub struct DbTable {
    leases: AtomicU64,
    open: papaya::HashMap<Arc<str>, Arc<OpenDb>, ahash::RandomState>,
}

impl DbTable {
    /// A lease of an open shard.
    #[must_use]
    pub fn lease(&self, name: &str) -> Option<DbLease> {
        let open = self.open.pin();
        let lease = DbLease::new(open.get(name)?)?;
        lease
            .db
            .last_used
            .store(self.leases.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
        Some(lease)
    }

    /// Puts a shard in.
    pub fn insert(&self, db: Arc<OpenDb>) {
        self.open.pin().insert(Arc::clone(&db.name), db);
    }

    /// Takes a shard out.
    pub fn remove(&self, name: &str) {
        self.open.pin().remove(name);
    }

    /// Number of open shards.
    #[must_use]
    pub fn len(&self) -> usize {
        self.open.len()
    }

    /// Whether none is open.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.open.is_empty()
    }
}
