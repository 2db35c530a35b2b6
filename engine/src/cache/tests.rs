//! Tests of the cache.

use super::*;

impl Weight for Arc<[u8]> {
    fn weight(&self) -> usize {
        self.len()
    }
}

type BytesCache = Cache<Arc<[u8]>>;

fn key(file: FileId, offset: u64) -> Key {
    Key { file, offset }
}

fn value(bytes: usize) -> Arc<[u8]> {
    vec![7; bytes].into()
}

fn open(cache: &BytesCache) -> FileId {
    let file = FileId::fresh();
    cache.register(file);
    file
}

#[test]
fn hits_misses_and_info_are_counted() {
    let cache = BytesCache::new(1 << 20, 5116, 2);
    let file = open(&cache);
    assert!(cache.lookup(key(file, 1)).is_none());
    assert!(cache.insert(key(file, 1), value(10), 3));
    assert!(
        !cache.insert(key(file, 1), value(20), 3),
        "a value that is there is not replaced"
    );
    assert_eq!(cache.lookup(key(file, 1)).map(|v| v.len()), Some(10));
    let info = cache.info();
    assert_eq!((info.size, info.hits, info.misses, info.full), (1, 1, 1, 0));
    assert_eq!(
        (info.shard_count, info.max_memory, info.max_term),
        (16, 1 << 20, 5116)
    );
    assert!(info.memory >= 10);
}

#[test]
fn values_above_max_term_are_refused_and_counted_full() {
    let cache = BytesCache::new(1 << 20, 5116, 2);
    let file = open(&cache);
    assert!(cache.insert(key(file, 1), value(5116), 1));
    assert!(!cache.insert(key(file, 2), value(5117), 1));
    assert_eq!(cache.info().full, 1);
}

#[test]
fn unused_entries_go_when_memory_is_above_the_mark() {
    let cache = BytesCache::with_shards(10_000, 5116, 1);
    let file = open(&cache);
    assert!(cache.insert(key(file, 1), value(2000), 7));
    assert!(cache.insert(key(file, 2), value(2000), 1));
    let shard = &cache.shards()[0];
    assert_eq!(shard.clean(30), Some(0), "both are in use");
    shard.decay();
    assert_eq!(shard.clean(30), Some(1), "1 >> 1 is unused");
    assert!(
        cache.lookup(key(file, 1)).is_some(),
        "7 is 3 after a decay, and 4 after this hit"
    );
    for _ in 0..3 {
        shard.decay();
    }
    assert_eq!(shard.clean(30), None, "below the mark nothing is removed");
    assert_eq!(shard.clean(0), Some(1));
    assert_eq!((cache.info().size, cache.info().memory), (0, 0));
}

#[test]
fn a_reset_entry_stays_readable_until_it_is_cleaned() {
    let cache = BytesCache::with_shards(10_000, 5116, 1);
    let file = open(&cache);
    cache.insert(key(file, 1), value(100), 7);
    cache.reset(key(file, 1));
    cache.reset(key(file, 2));
    assert_eq!(cache.info().size, 1, "a reset makes no entry");
    assert_eq!(cache.shards()[0].clean(0), Some(1));
}

#[test]
fn a_closed_file_has_no_entries_and_gets_none() {
    let cache = BytesCache::new(1 << 20, 5116, 2);
    let (file, other) = (open(&cache), open(&cache));
    for offset in 0..100 {
        assert!(cache.insert(key(file, offset), value(10), 1));
        assert!(cache.insert(key(other, offset), value(10), 1));
    }
    cache.unregister(file);
    assert_eq!((cache.entries_of(file), cache.entries_of(other)), (0, 100));
    assert!(!cache.insert(key(file, 1), value(10), 1));
    assert!(cache.lookup(key(file, 1)).is_none());
    let removed: usize = cache.shards().iter().map(|s| s.remove_dead(|f| f != other)).sum();
    assert_eq!((removed, cache.info().memory), (100, 0));
}

#[test]
fn a_full_cache_evicts_the_least_used() {
    let cache = BytesCache::with_shards(10 * 1096, 1000, 1);
    let file = open(&cache);
    for offset in 0..10 {
        assert!(cache.insert(key(file, offset), value(1000), 1));
    }
    for _ in 0..100 {
        for offset in 0..5 {
            assert!(cache.lookup(key(file, offset)).is_some());
        }
    }
    for offset in 10..1000 {
        assert!(cache.insert(key(file, offset), value(1000), 1));
        assert!(cache.info().memory <= 10 * 1096);
    }
    assert_eq!(cache.info().size, 10);
    assert!(
        (0..5).filter(|o| cache.lookup(key(file, *o)).is_some()).count() >= 3,
        "hot entries mostly stay"
    );
    assert!(cache.info().full > 0 && cache.info().evicted == 990);
}

#[test]
fn a_cache_of_one_entry_and_one_of_none_work() {
    let one = BytesCache::with_shards(200, 100, 1);
    let file = open(&one);
    for offset in 0..50 {
        assert!(one.insert(key(file, offset), value(100), 7));
        assert!(one.lookup(key(file, offset)).is_some());
        assert_eq!(one.info().size, 1);
    }
    let none = BytesCache::new(0, 100, 1);
    let file = open(&none);
    assert!(!none.insert(key(file, 1), value(1), 7));
    assert!(none.lookup(key(file, 1)).is_none());
    for shard in none.shards() {
        shard.decay();
        shard.clean(200);
    }
}

#[test]
fn the_budget_can_change_while_in_use() {
    let cache = BytesCache::new(1 << 20, 5116, 2);
    let file = open(&cache);
    for offset in 0..500 {
        assert!(cache.insert(key(file, offset), value(1000), 3));
    }
    cache.set_max_size(100_000);
    assert!(cache.info().memory <= 100_000);
    assert!(cache.info().size > 80);
    cache.set_max_size(1 << 20);
    for offset in 500..1000 {
        cache.insert(key(file, offset), value(1000), 3);
    }
    assert!(cache.info().size >= 500);
}

#[test]
fn threads_never_see_a_wrong_or_dead_value() {
    let cache = Arc::new(BytesCache::new(64 * 1024, 1000, 2));
    let workers: Vec<_> = (0..4_u64)
        .map(|seed| {
            let cache = Arc::clone(&cache);
            std::thread::spawn(move || {
                for round in 0..40_u64 {
                    let file = FileId::fresh();
                    cache.register(file);
                    for i in 0..500_u64 {
                        let offset = (i * 7 + seed * 13 + round) % 97;
                        match cache.lookup(key(file, offset)) {
                            Some(v) => assert_eq!(&v[..8], &(offset ^ file.get()).to_le_bytes()),
                            None => {
                                let mut bytes = vec![0; 300];
                                bytes[..8].copy_from_slice(&(offset ^ file.get()).to_le_bytes());
                                cache.insert(key(file, offset), bytes.into(), 2);
                            }
                        }
                    }
                    cache.shards()[usize::try_from(round).expect("small") % 16].decay();
                    cache.shards()[usize::try_from(seed).expect("small") % 16].clean(10);
                    cache.unregister(file);
                    assert_eq!(cache.entries_of(file), 0);
                }
            })
        })
        .collect();
    for worker in workers {
        worker.join().expect("no assertion failed");
    }
    assert_eq!((cache.info().size, cache.info().memory), (0, 0));
}
