//! The process table: sharded slabs, looked up by pid.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use parking_lot::RwLock;
use slab::Slab;

use super::mailbox::AnyProcess;
use super::pid::Pid;

/// Shards of the table; a power of two.
const SHARDS: u32 = 16;
const SHARD_BITS: u32 = SHARDS.trailing_zeros();

struct Entry {
    pid: Pid,
    process: Arc<dyn AnyProcess>,
}

/// All living processes of a system.
pub(crate) struct Table {
    shards: Vec<RwLock<Slab<Entry>>>,
    next: AtomicU32,
    len: AtomicUsize,
}

impl Table {
    pub(crate) fn new() -> Table {
        let shards = (0..SHARDS).map(|_| RwLock::new(Slab::new())).collect();
        Table {
            shards,
            next: AtomicU32::new(0),
            len: AtomicUsize::new(0),
        }
    }

    /// Adds what `make` builds for a fresh pid. `None` if the table is full (2^28 processes in a shard).
    pub(crate) fn insert<T: AnyProcess>(&self, make: impl FnOnce(Pid) -> T) -> Option<Arc<T>> {
        let shard = self.next.fetch_add(1, Ordering::Relaxed) % SHARDS;
        let mut slab = self.shards[shard as usize].write();
        let vacant = slab.vacant_entry();
        let slot = u32::try_from(vacant.key())
            .ok()
            .filter(|slot| slot >> (32 - SHARD_BITS) == 0)?;
        let pid = Pid::fresh(slot << SHARD_BITS | shard);
        let process = Arc::new(make(pid));
        vacant.insert(Entry {
            pid,
            process: Arc::clone(&process) as Arc<dyn AnyProcess>,
        });
        self.len.fetch_add(1, Ordering::Relaxed);
        Some(process)
    }

    fn place(pid: Pid) -> (usize, usize) {
        (
            (pid.index() % SHARDS) as usize,
            (pid.index() >> SHARD_BITS) as usize,
        )
    }

    pub(crate) fn get(&self, pid: Pid) -> Option<Arc<dyn AnyProcess>> {
        let (shard, slot) = Table::place(pid);
        let slab = self.shards[shard].read();
        slab.get(slot)
            .filter(|entry| entry.pid == pid)
            .map(|entry| Arc::clone(&entry.process))
    }

    pub(crate) fn remove(&self, pid: Pid) -> bool {
        let (shard, slot) = Table::place(pid);
        let mut slab = self.shards[shard].write();
        let removed = slab
            .get(slot)
            .is_some_and(|entry| entry.pid == pid)
            .then(|| slab.remove(slot));
        drop(slab);
        if removed.is_some() {
            self.len.fetch_sub(1, Ordering::Relaxed);
        }
        removed.is_some()
    }

    pub(crate) fn len(&self) -> usize {
        self.len.load(Ordering::Relaxed)
    }

    /// All processes in the order of their starts.
    pub(crate) fn all(&self) -> Vec<Arc<dyn AnyProcess>> {
        let mut all = Vec::with_capacity(self.len());
        for shard in &self.shards {
            all.extend(shard.read().iter().map(|(_, entry)| Arc::clone(&entry.process)));
        }
        all.sort_unstable_by_key(|process| process.core().pid.generation());
        all
    }
}
