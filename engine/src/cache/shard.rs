//! One shard of the cache: a lock-free table, its counters, and the ring of keys that eviction samples.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;

use super::{Budget, FileId, Info, Key, LEAVE_PERCENT_MAX, Priority, Weight};

/// Usage stops growing here. It is far above what a cleaner's period can add, and lets a hit be one load and one store.
const USAGE_MAX: u32 = 1 << 30;
/// How many entries an insertion into a full cache looks at for each one that it evicts.
const SAMPLE: usize = 8;
/// How many entries one insertion evicts at most before it gives up.
const EVICTIONS_PER_INSERT: usize = 16;
/// Bytes of table, counters and ring that an entry costs beside its value.
const ENTRY_OVERHEAD: usize = 96;

#[derive(Debug)]
struct Entry<V> {
    value: V,
    usage: AtomicU32,
    weight: usize,
}

/// Where a full shard looks for something to evict.
#[derive(Debug, Default)]
struct Ring {
    /// Every key of the table, in no order. Keys that the table lost some other way are dropped when met.
    keys: Vec<Key>,
    /// State of the generator that picks samples; quality does not matter.
    seed: u64,
}

/// One shard.
#[derive(Debug)]
pub struct Shard<V> {
    table: papaya::HashMap<Key, Entry<V>, ahash::RandomState>,
    ring: Mutex<Ring>,
    budget: Arc<Budget>,
    memory: AtomicUsize,
    hits: AtomicU64,
    misses: AtomicU64,
    full: AtomicU64,
    evicted: AtomicU64,
}

impl<V: Weight + Clone + Send + Sync> Shard<V> {
    pub(super) fn new(budget: Arc<Budget>) -> Self {
        Self {
            table: papaya::HashMap::builder()
                .hasher(ahash::RandomState::new())
                .build(),
            ring: Mutex::default(),
            budget,
            memory: AtomicUsize::new(0),
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
            full: AtomicU64::new(0),
            evicted: AtomicU64::new(0),
        }
    }

    #[inline]
    pub(super) fn lookup(&self, key: Key) -> Option<V> {
        let table = self.table.pin();
        if let Some(entry) = table.get(&key) {
            entry.bump();
            self.hits.fetch_add(1, Ordering::Relaxed);
            Some(entry.value.clone())
        } else {
            self.misses.fetch_add(1, Ordering::Relaxed);
            None
        }
    }

    pub(super) fn insert(&self, key: Key, value: V, priority: Priority) -> bool {
        if value.term_size() > self.budget.max_term.load(Ordering::Relaxed) {
            self.full.fetch_add(1, Ordering::Relaxed);
            return false;
        }
        let table = self.table.pin();
        if let Some(entry) = table.get(&key) {
            entry.bump();
            return false;
        }
        let weight = value.weight().saturating_add(ENTRY_OVERHEAD);
        // Held until the entry is in both places, so that a key in the table is always in the ring as well.
        let mut ring = self.ring.lock();
        if !self.budget.fits(weight) {
            self.full.fetch_add(1, Ordering::Relaxed);
            if !self.make_room(&mut ring, weight) {
                return false;
            }
        }
        let entry = Entry {
            value,
            usage: AtomicU32::new(u32::from(priority)),
            weight,
        };
        match table.try_insert(key, entry) {
            Ok(_) => {
                self.memory.fetch_add(weight, Ordering::Relaxed);
                self.budget.memory.fetch_add(weight, Ordering::Relaxed);
                ring.keys.push(key);
                true
            }
            Err(refused) => {
                refused.current.bump();
                false
            }
        }
    }

    pub(super) fn reset(&self, key: Key) {
        if let Some(entry) = self.table.pin().get(&key) {
            entry.usage.store(0, Ordering::Relaxed);
        }
    }

    /// Halves the usage of every entry.
    pub fn decay(&self) {
        for (_, entry) in &self.table.pin() {
            let usage = entry.usage.load(Ordering::Relaxed);
            if usage > 0 {
                // A bump between the load and the store may be lost; usage is an estimate.
                entry.usage.store(usage >> 1, Ordering::Relaxed);
            }
        }
    }

    /// If the cache uses at least `leave_percent` (0 to 90) of its budget, removes every unused entry of this shard.
    ///
    /// Returns the number removed, or `None` when memory was below the mark and nothing was looked at.
    pub fn clean(&self, leave_percent: u8) -> Option<usize> {
        let percent = usize::from(leave_percent.min(LEAVE_PERCENT_MAX));
        let max = self.budget.max_memory.load(Ordering::Relaxed);
        let mark = max / 100 * percent + max % 100 * percent / 100;
        if self.budget.memory.load(Ordering::Relaxed) < mark {
            return None;
        }
        Some(self.remove_if(|_, entry| entry.usage.load(Ordering::Relaxed) == 0))
    }

    /// Removes the entries of every file that `alive` denies; returns their number.
    ///
    /// Closing a file removes its entries already; this is for handles that died in some other way.
    pub fn remove_dead(&self, mut alive: impl FnMut(FileId) -> bool) -> usize {
        self.remove_if(|key, _| !alive(key.file))
    }

    /// Removes everything, as a restarted cleaner does.
    pub fn clear(&self) -> usize {
        self.remove_if(|_, _| true)
    }

    /// Bytes that this shard's entries use.
    #[must_use]
    pub fn memory(&self) -> usize {
        self.memory.load(Ordering::Relaxed)
    }

    /// Number of entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// True when nothing is cached here.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    pub(super) fn remove_file(&self, file: FileId) {
        if !self.is_empty() {
            self.remove_if(|key, _| key.file == file);
        }
    }

    pub(super) fn remove(&self, key: Key) {
        let mut ring = self.ring.lock();
        self.take_out(key);
        ring.keys.retain(|k| *k != key);
    }

    /// Evicts until the whole cache is within its budget or this shard is empty.
    pub(super) fn shrink(&self) {
        let mut ring = self.ring.lock();
        while self.budget.is_over() && self.evict_one(&mut ring) {}
    }

    pub(super) fn add_to(&self, info: &mut Info) {
        info.size += self.table.len();
        info.full += self.full.load(Ordering::Relaxed);
        info.hits += self.hits.load(Ordering::Relaxed);
        info.misses += self.misses.load(Ordering::Relaxed);
        info.evicted += self.evicted.load(Ordering::Relaxed);
    }

    pub(super) fn entries_of(&self, file: FileId) -> usize {
        self.table
            .pin()
            .iter()
            .filter(|(key, _)| key.file == file)
            .count()
    }

    fn remove_if(&self, mut doomed: impl FnMut(Key, &Entry<V>) -> bool) -> usize {
        let mut ring = self.ring.lock();
        let table = self.table.pin();
        let before = ring.keys.len();
        ring.keys.retain(|key| match table.get(key) {
            Some(entry) if doomed(*key, entry) => {
                self.take_out(*key);
                false
            }
            Some(_) => true,
            None => false,
        });
        before - ring.keys.len()
    }

    /// Removes an entry from the table and gives its memory back. The ring's lock is held.
    fn take_out(&self, key: Key) {
        if let Some(entry) = self.table.pin().remove(&key) {
            self.memory.fetch_sub(entry.weight, Ordering::Relaxed);
            self.budget.memory.fetch_sub(entry.weight, Ordering::Relaxed);
        }
    }

    fn make_room(&self, ring: &mut Ring, weight: usize) -> bool {
        if weight > self.budget.max_memory.load(Ordering::Relaxed) {
            return false;
        }
        for _ in 0..EVICTIONS_PER_INSERT {
            if self.budget.fits(weight) {
                return true;
            }
            if !self.evict_one(ring) {
                return false;
            }
        }
        self.budget.fits(weight)
    }

    /// Evicts the least used of a sample; false when the shard is empty.
    fn evict_one(&self, ring: &mut Ring) -> bool {
        let table = self.table.pin();
        let mut least: Option<(u32, usize)> = None;
        for _ in 0..SAMPLE {
            let Some(index) = ring.pick() else { break };
            let usage = table
                .get(&ring.keys[index])
                .map_or(0, |entry| entry.usage.load(Ordering::Relaxed));
            if least.is_none_or(|(lowest, _)| usage < lowest) {
                least = Some((usage, index));
            }
        }
        let Some((_, index)) = least else { return false };
        self.take_out(ring.keys.swap_remove(index));
        self.evicted.fetch_add(1, Ordering::Relaxed);
        true
    }
}

impl<V> Entry<V> {
    /// One more use. Two at once may count as one; that costs nothing and saves a locked instruction.
    #[inline]
    fn bump(&self) {
        let usage = self.usage.load(Ordering::Relaxed);
        if usage < USAGE_MAX {
            self.usage.store(usage + 1, Ordering::Relaxed);
        }
    }
}

impl Ring {
    /// The index of some key, or `None` when there is none.
    fn pick(&mut self) -> Option<usize> {
        // Knuth's MMIX constants; the high bits are the random ones.
        self.seed = self
            .seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.seed >> 33)
            .unwrap_or_default()
            .checked_rem(self.keys.len())
    }
}
