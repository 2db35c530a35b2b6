//! Counters of the node, under CouchDB's names.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

/// A number that only grows.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Counts one.
    pub fn increment(&self) {
        self.add(1);
    }

    /// Counts `amount`.
    pub fn add(&self, amount: u64) {
        self.0.fetch_add(amount, Ordering::Relaxed);
    }

    /// The count.
    #[must_use]
    pub fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A number that grows and shrinks.
#[derive(Debug, Default)]
pub struct Level(AtomicI64);

impl Level {
    /// One more.
    pub fn up(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// One less.
    pub fn down(&self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }

    /// The number; never below zero.
    #[must_use]
    pub fn value(&self) -> u64 {
        u64::try_from(self.0.load(Ordering::Relaxed)).unwrap_or(0)
    }
}

/// What the database's processes count. Names are those below `couchdb` in `_node/{node}/_stats`.
#[derive(Debug, Default)]
pub struct Counters {
    /// Documents read.
    pub database_reads: Counter,
    /// Calls that wrote documents.
    pub database_writes: Counter,
    /// Documents that were new.
    pub document_inserts: Counter,
    /// Documents written.
    pub document_writes: Counter,
    /// Local documents written.
    pub local_document_writes: Counter,
    /// Headers committed.
    pub commits: Counter,
    /// Update batches that shared a commit with another.
    pub coalesced_updates: Counter,
    /// Reads that had to go to the blocking pool.
    pub blocked_reads: Counter,
    /// Documents that could not be read, each with a log line that names it.
    pub damaged_documents: Counter,
    /// Files opened at an older header, since the seal of the newest did not fit; each with a log line that names it.
    pub refused_headers: Counter,
    /// Shard files open now, system databases left out.
    pub open_databases: Level,
    /// Idle shards closed to make room.
    pub lru_closed: Counter,
    /// Shards that were busy when room was needed.
    pub lru_skip: Counter,
    /// Openings that had to wait for room.
    pub all_dbs_active: Counter,
}

/// One number of `_stats`.
#[derive(Clone, Copy, Debug)]
pub struct Stat {
    /// Name parts below the root.
    pub path: &'static [&'static str],
    /// `counter` or `gauge`.
    pub kind: &'static str,
    /// The number.
    pub value: u64,
    /// What it says.
    pub description: &'static str,
}

impl Counters {
    /// All numbers, in the order of their names.
    #[must_use]
    pub fn list(&self) -> Vec<Stat> {
        let counter = |path, counter: &Counter, description| Stat {
            path,
            kind: "counter",
            value: counter.value(),
            description,
        };
        vec![
            counter(
                &["couchdb", "coalesced_updates", "interactive"],
                &self.coalesced_updates,
                "number of update batches that shared a commit",
            ),
            counter(
                &["couchdb", "commits"],
                &self.commits,
                "number of commits performed",
            ),
            counter(
                &["couchdb", "couch_server", "all_dbs_active"],
                &self.all_dbs_active,
                "number of times an opening had to wait for room",
            ),
            counter(
                &["couchdb", "couch_server", "lru_skip"],
                &self.lru_skip,
                "number of busy shards passed over",
            ),
            counter(
                &["couchdb", "database_reads"],
                &self.database_reads,
                "number of times a document was read from a database",
            ),
            counter(
                &["couchdb", "database_writes"],
                &self.database_writes,
                "number of times a database was changed",
            ),
            counter(
                &["couchdb", "document_inserts"],
                &self.document_inserts,
                "number of documents inserted",
            ),
            counter(
                &["couchdb", "document_writes"],
                &self.document_writes,
                "number of document write operations",
            ),
            counter(
                &["couchdb", "local_document_writes"],
                &self.local_document_writes,
                "number of _local document write operations",
            ),
            Stat {
                path: &["couchdb", "open_databases"],
                kind: "counter",
                value: self.open_databases.value(),
                description: "number of open databases",
            },
            counter(
                &["settee", "blocked_reads"],
                &self.blocked_reads,
                "number of reads that waited for the disk",
            ),
            counter(
                &["settee", "damaged_documents"],
                &self.damaged_documents,
                "number of reads that met a damaged document",
            ),
            counter(
                &["settee", "lru_closed"],
                &self.lru_closed,
                "number of idle shards closed to make room",
            ),
            counter(
                &["settee", "refused_headers"],
                &self.refused_headers,
                "number of files opened at an older header, since the newest had not been written whole",
            ),
        ]
    }
}
