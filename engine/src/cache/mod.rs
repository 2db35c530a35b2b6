//! The shared cache: lock-free tables that are read in the caller's thread, with usage counters that decay.
//!
//! The contract is that of CouchDB's `couch_bt_engine_cache`: shards, entries keyed by (file, offset), usage bumped at a
//! hit and halved by a cleaner, unused entries removed while memory is above `leave_percent` of the budget, largest
//! value bounded. Three things are better here. The shards share one budget, so that a heavy entry never fails because
//! its own shard is small. A full cache evicts the least used of a sample instead of refusing. And a file that is
//! closed or truncated loses its entries at once: file ids are never used twice, so nothing stale can be read.
//!
//! No clock and no thread live here: the cleaner process of each shard calls [`Shard::decay`], [`Shard::clean`] and
//! [`Shard::remove_dead`] when it thinks fit.

mod shard;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence};

pub use shard::Shard;

/// Default budget of the whole cache, in bytes (`[bt_engine_cache] max_size`).
pub const DEFAULT_MAX_SIZE: usize = 64 * 1024 * 1024;
/// Default share of the budget that the cleaner leaves alone, in percent (`[bt_engine_cache] leave_percent`).
pub const DEFAULT_LEAVE_PERCENT: u8 = 30;
/// Greatest `leave_percent` that is taken; more is read as this.
pub const LEAVE_PERCENT_MAX: u8 = 90;
/// Fewest shards, as in CouchDB.
pub const SHARDS_MIN: usize = 16;
/// Most shards; more would only thin out each one's sample for eviction.
pub const SHARDS_MAX: usize = 1024;
/// Usage that a value may begin with.
pub type Priority = u8;

/// Names a file for as long as this process runs.
///
/// Every handle has its own, and a truncated file gets a new one, so that an id and an offset always mean the same bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileId(u64);

impl FileId {
    /// An id that was never given out before.
    #[must_use]
    pub fn fresh() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }

    /// The id that [`get`](Self::get) gave.
    pub(crate) const fn from_raw(id: u64) -> Self {
        Self(id)
    }

    /// The id as a number, for logs.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }
}

/// What a value costs.
pub trait Weight {
    /// Bytes that the value occupies in memory.
    fn weight(&self) -> usize;

    /// Bytes of the term that the value was made from: what `max_term` bounds.
    fn term_size(&self) -> usize {
        self.weight()
    }
}

/// Where a cached value came from: a file and a byte offset in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    /// The file.
    pub file: FileId,
    /// The byte offset of the chunk.
    pub offset: u64,
}

/// What the whole cache did and holds; the members of `bt_engine_cache` in `/_node/{node}/_system`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Info {
    /// Entries.
    pub size: usize,
    /// Bytes in use.
    pub memory: usize,
    /// Bytes allowed.
    pub max_memory: usize,
    /// Largest value taken, in bytes.
    pub max_term: usize,
    /// Insertions that met a full cache or a value above `max_term`.
    pub full: u64,
    /// Lookups answered.
    pub hits: u64,
    /// Lookups not answered.
    pub misses: u64,
    /// Entries pushed out by an insertion.
    pub evicted: u64,
    /// Number of shards.
    pub shard_count: usize,
}

/// What all shards share.
#[derive(Debug)]
pub(crate) struct Budget {
    max_memory: AtomicUsize,
    max_term: AtomicUsize,
    memory: AtomicUsize,
}

/// The cache. Values are cheap to clone (an `Arc` or an enum of `Arc`s).
#[derive(Debug)]
pub struct Cache<V> {
    shards: Box<[Arc<Shard<V>>]>,
    budget: Arc<Budget>,
    /// Open files. An insertion for a file that is not here is taken back.
    live: papaya::HashMap<FileId, (), ahash::RandomState>,
    hasher: ahash::RandomState,
}

impl<V: Weight + Clone + Send + Sync> Cache<V> {
    /// An empty cache of `max_size` bytes that takes values up to `max_term` bytes, in `max(16, threads)` shards.
    #[must_use]
    pub fn new(max_size: usize, max_term: usize, threads: usize) -> Self {
        Self::with_shards(max_size, max_term, threads.max(SHARDS_MIN))
    }

    /// The same with a given number of shards, at least one.
    #[must_use]
    pub fn with_shards(max_size: usize, max_term: usize, shards: usize) -> Self {
        let budget = Arc::new(Budget {
            max_memory: AtomicUsize::new(max_size),
            max_term: AtomicUsize::new(max_term),
            memory: AtomicUsize::new(0),
        });
        let count = shards.clamp(1, SHARDS_MAX);
        let shards = (0..count)
            .map(|_| Arc::new(Shard::new(Arc::clone(&budget))))
            .collect();
        Self {
            shards,
            budget,
            live: papaya::HashMap::builder()
                .hasher(ahash::RandomState::new())
                .build(),
            hasher: ahash::RandomState::new(),
        }
    }

    /// The shards, for their cleaners.
    #[must_use]
    pub fn shards(&self) -> &[Arc<Shard<V>>] {
        &self.shards
    }

    /// Declares a file open: from now on values of it are taken.
    pub fn register(&self, file: FileId) {
        self.live.pin().insert(file, ());
    }

    /// Declares a file closed: its entries are gone when this returns, and none can come back.
    pub fn unregister(&self, file: FileId) {
        if self.live.pin().remove(&file).is_none() {
            return;
        }
        // Partner of the fence in `insert`: either the insertion sees the file gone, or this sweep sees the entry.
        fence(Ordering::SeqCst);
        for shard in &self.shards {
            shard.remove_file(file);
        }
    }

    /// True while the file is registered.
    #[must_use]
    pub fn is_live(&self, file: FileId) -> bool {
        self.live.pin().contains_key(&file)
    }

    /// The value, its usage bumped; `None` counts a miss.
    #[inline]
    #[must_use]
    pub fn lookup(&self, key: Key) -> Option<V> {
        let hash = self.hash(key);
        self.shard(hash).lookup(key)
    }

    /// Puts a value in if it is absent, with the usage `priority`; true when it went in.
    ///
    /// A value that is there stays, and its usage is bumped. A value above `max_term`, of a file that is not registered,
    /// or for which no room can be made, is refused.
    pub fn insert(&self, key: Key, value: V, priority: Priority) -> bool {
        if !self.is_live(key.file) {
            return false;
        }
        let hash = self.hash(key);
        let shard = self.shard(hash);
        let inserted = shard.insert(key, value, priority);
        if inserted {
            fence(Ordering::SeqCst);
            if !self.is_live(key.file) {
                shard.remove(key);
                return false;
            }
        }
        inserted
    }

    /// Sets the usage to zero if the value is there: it stays readable and goes at the next cleaning.
    pub fn reset(&self, key: Key) {
        let hash = self.hash(key);
        self.shard(hash).reset(key);
    }

    /// Changes the budget, in bytes. A smaller one makes every shard evict down to it at once.
    pub fn set_max_size(&self, max_size: usize) {
        self.budget.max_memory.store(max_size, Ordering::Relaxed);
        for shard in &self.shards {
            if !self.budget.is_over() {
                break;
            }
            shard.shrink();
        }
    }

    /// Changes the largest value taken, in bytes; larger ones already in stay until they decay.
    pub fn set_max_term(&self, max_term: usize) {
        self.budget.max_term.store(max_term, Ordering::Relaxed);
    }

    /// What the cache holds and did so far.
    #[must_use]
    pub fn info(&self) -> Info {
        let mut info = Info {
            memory: self.budget.memory.load(Ordering::Relaxed),
            max_memory: self.budget.max_memory.load(Ordering::Relaxed),
            max_term: self.budget.max_term.load(Ordering::Relaxed),
            shard_count: self.shards.len(),
            ..Info::default()
        };
        for shard in &self.shards {
            shard.add_to(&mut info);
        }
        info
    }

    /// Number of entries of one file; it walks every table, so it is for tests and diagnosis.
    #[must_use]
    pub fn entries_of(&self, file: FileId) -> usize {
        self.shards.iter().map(|shard| shard.entries_of(file)).sum()
    }

    #[inline]
    fn hash(&self, key: Key) -> u64 {
        self.hasher.hash_one((key.file.0, key.offset))
    }

    #[inline]
    fn shard(&self, hash: u64) -> &Shard<V> {
        // The high bits: the tables inside the shards use a hasher of their own, so any bits do.
        let index = usize::try_from(hash >> 33).unwrap_or_default() % self.shards.len();
        &self.shards[index]
    }
}

impl Budget {
    fn is_over(&self) -> bool {
        self.memory.load(Ordering::Relaxed) > self.max_memory.load(Ordering::Relaxed)
    }

    fn fits(&self, weight: usize) -> bool {
        self.memory.load(Ordering::Relaxed).saturating_add(weight) <= self.max_memory.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests;
