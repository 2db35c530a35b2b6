//! Everything a node is started with, as values: files, clock, sizes and limits.

use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{Rng, RngExt, SeedableRng};
use settee_engine::codec::checksum::ChecksumKind;
use settee_engine::codec::compress::Compression;
use settee_engine::db::PrepareOptions;
use settee_engine::doc::stream::StreamOptions;
use settee_engine::ids::NodeName;
use settee_engine::storage::SyncOptions;
use settee_engine::storage::vfs::{RealVfs, Vfs};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// `[couchdb] default_security`: who may use a database that nobody has set up yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DefaultSecurity {
    /// Only administrators.
    #[default]
    AdminOnly,
    /// Everyone.
    Everyone,
    /// Only administrators for node-local databases, everyone for sharded ones.
    AdminLocal,
}

/// Where a node takes its randomness from: the operating system, or a seed in a simulation.
#[derive(Debug)]
pub struct Entropy {
    generator: Mutex<StdRng>,
}

impl Entropy {
    /// Seeded by the operating system.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "this is where randomness comes in")]
    pub fn from_system() -> Self {
        Self::from_seed(rand::random())
    }

    /// The same sequence for the same seed.
    #[must_use]
    pub fn from_seed(seed: u64) -> Self {
        Self {
            generator: Mutex::new(StdRng::seed_from_u64(seed)),
        }
    }

    /// 32 lower-case hex digits.
    #[must_use]
    pub fn uuid(&self) -> String {
        let mut bytes = [0; 16];
        self.generator.lock().fill_bytes(&mut bytes);
        format!("{:032x}", u128::from_be_bytes(bytes))
    }

    /// A number below `below`, which is at least 1.
    #[must_use]
    pub fn below(&self, below: usize) -> usize {
        self.generator.lock().random_range(0..below.max(1))
    }
}

/// Options of a node's actor tree; every field has CouchDB's default.
#[derive(Clone, Debug)]
pub struct NodeOptions {
    /// Name of the node, `name@host`.
    pub name: NodeName,
    /// Directory that holds `_dbs.couch`, `_nodes.couch` and `shards/`.
    pub data_dir: PathBuf,
    /// The file system.
    pub vfs: Arc<dyn Vfs>,
    /// Where randomness comes from.
    pub entropy: Arc<Entropy>,
    /// Event loops; the number of cores by default.
    pub arbiters: usize,
    /// Threads for work that blocks or is long: commits, cold reads, folds.
    pub blocking_threads: usize,
    /// `[couchdb] file_compression`.
    pub compression: Compression,
    /// `[couchdb] write_xxhash_checksums`: xxHash or MD5.
    pub checksum: ChecksumKind,
    /// `[couchdb] btree_chunk_size` in bytes.
    pub btree_chunk_size: usize,
    /// `[couchdb] attachment_stream_buffer_size` in bytes.
    pub stream_buffer: usize,
    /// `[attachments] compression_level`.
    pub attachment_level: u32,
    /// `[attachments] compressible_types`.
    pub compressible_types: String,
    /// `[couchdb] find_header_read_count`, in blocks.
    pub header_read_count: usize,
    /// `[couchdb] fsync_options`.
    pub sync: SyncOptions,
    /// `[couchdb] max_dbs_open`.
    pub max_dbs_open: usize,
    /// `[couchdb] max_couch_server_shards`, capped by the number of cores.
    pub server_shards: usize,
    /// `[couchdb] default_security`.
    pub default_security: DefaultSecurity,
    /// `[bt_engine_cache] max_size` in bytes.
    pub cache_bytes: usize,
    /// `[bt_engine_cache] leave_percent`.
    pub cache_leave_percent: u8,
    /// `[bt_engine_cache] db_btree_cache_depth`.
    pub cache_depth: u8,
    /// `[cluster] q`.
    pub q: u32,
    /// `[cluster] n`.
    pub n: u32,
    /// `[fabric] request_timeout`.
    pub request_timeout: Duration,
    /// `[couchdb] changes_doc_ids_optimization_threshold`.
    pub doc_ids_threshold: usize,
}

impl NodeOptions {
    /// How edits are made ready.
    #[must_use]
    pub fn prepare_options(&self) -> PrepareOptions {
        PrepareOptions {
            compression: self.compression,
            streams: StreamOptions {
                buffer_bytes: self.stream_buffer,
                compression_level: self.attachment_level,
                compressible_types: self.compressible_types.clone(),
            },
        }
    }

    /// Defaults for a node of this name over this directory.
    #[must_use]
    pub fn new(name: NodeName, data_dir: impl Into<PathBuf>) -> Self {
        let cores = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
        Self {
            name,
            data_dir: data_dir.into(),
            vfs: Arc::new(RealVfs),
            entropy: Arc::new(Entropy::from_system()),
            arbiters: cores,
            blocking_threads: (cores * 4).clamp(8, 64),
            compression: Compression::default(),
            checksum: ChecksumKind::Xxh3,
            btree_chunk_size: 4096,
            stream_buffer: 4096,
            attachment_level: 8,
            compressible_types: "text/*, application/javascript, application/json, application/xml"
                .to_owned(),
            header_read_count: 1024,
            sync: SyncOptions::default(),
            max_dbs_open: 500,
            server_shards: cores.min(16),
            default_security: DefaultSecurity::AdminOnly,
            cache_bytes: 64 << 20,
            cache_leave_percent: 30,
            cache_depth: 3,
            q: 2,
            n: 3,
            request_timeout: Duration::from_secs(60),
            doc_ids_threshold: 1000,
        }
    }
}
