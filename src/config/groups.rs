//! The settings themselves, section by section, under CouchDB's names.

use std::path::PathBuf;

use super::kinds::{
    Bound, DefaultSecurity, FileCompression, FromSetting, FsyncOptions, HashAlgorithm, LogLevel,
    MaintenanceMode, ReduceLimit, SameSite, Secret, UuidAlgorithm,
};
use super::settings::{ConfigError, Group, Setting, group, groups, read_one, within};
use super::table::ConfigTable;

/// The most shards that a database may be cut into.
const MAX_Q: u32 = 256;
/// The most copies of a shard.
const MAX_N: u32 = 64;
/// The most a B-tree node may be asked to hold, in bytes.
const MAX_CHUNK_SIZE: u32 = 1 << 20;
/// The most iterations of a password hash that may be asked for; more would take minutes.
const MAX_ITERATIONS: u32 = 1_000_000_000;

group! {
    /// `[couchdb]`: databases and documents.
    Couchdb, "couchdb", fallback None;
    uuid: Option<String> = "", "", "The identity of this server, made at the first start.";
    database_dir: Option<PathBuf> = "", "", "Where database files are; unset, the data directory.";
    view_index_dir: Option<PathBuf> = "", "", "Where view index files are; unset, the same as database_dir.";
    single_node: bool = "false", "", "Create _users and _replicator at start.";
    maintenance_mode: MaintenanceMode = "false", "", "Take the node out of the cluster's work.";
    file_compression: FileCompression = "snappy", "", "How everything but attachments is compressed in files.";
    btree_chunk_size: u32 = "4096", "bytes", "The size at which a B-tree node is split; 1279 in CouchDB.", |n| within(n, 256, MAX_CHUNK_SIZE);
    attachment_stream_buffer_size: u32 = "4096", "bytes", "How much of an attachment is gathered before it is written.", |n| within(n, 1, 1 << 26);
    max_dbs_open: u32 = "500", "databases", "How many database shards may be open at once.", |n| within(n, 1, 10_000_000);
    max_couch_server_shards: u32 = "16", "processes", "How many processes keep the open databases, at most one per core.", |n| within(n, 1, 1024);
    max_document_size: u64 = "8000000", "bytes", "The largest document body, as JSON.";
    max_attachment_size: Bound = "1073741824", "bytes", "The largest attachment.";
    max_document_id_length: Bound = "infinity", "bytes", "The longest document id.";
    max_partition_size: u64 = "10737418240", "bytes", "The largest partition; 0 means no bound.";
    default_security: DefaultSecurity = "admin_only", "", "Who may use a database without a security object.";
    users_db_suffix: String = "_users", "", "The end of the names of databases that are treated like _users.";
    users_db_security_editable: bool = "false", "", "Let the security object of _users be changed.";
    stem_interactive_updates: bool = "true", "", "Cut revision trees to the revision limit at every update.";
    write_xxhash_checksums: bool = "true", "", "Write checksums with xxHash and not MD5.";
    find_header_read_count: u32 = "1024", "blocks", "How many blocks are searched in one read when looking for the last header.", |n| within(n, 1, 1 << 20);
    prohibit_downgrade: bool = "true", "", "Refuse files whose header is newer than known.";
    fsync_options: FsyncOptions = "[after_header]", "", "With before_header, sync twice for each commit as CouchDB does.";
    changes_doc_ids_optimization_threshold: u64 = "1000", "ids", "Up to so many ids, _changes with _doc_ids looks documents up one by one.";
    enable_database_recovery: bool = "false", "", "Rename the files of a deleted database and keep them.";
    delete_after_rename: bool = "true", "", "Delete the files of a deleted database at once; else they stay in .delete.";
}

group! {
    /// `[bt_engine_cache]`: the cache of B-tree nodes.
    BtEngineCache, "bt_engine_cache", fallback None;
    max_size: u64 = "67108864", "bytes", "How much the cache of B-tree nodes may hold.", |n| within(n, 0, 1 << 46);
    leave_percent: u32 = "30", "percent", "Below this fill, even unused nodes stay.", |n| within(n, 0, 100);
    db_btree_cache_depth: u32 = "3", "levels", "How many levels of database B-trees are cached, counted from the root; 0 for none.", |n| within(n, 0, 64);
    view_btree_cache_depth: u32 = "3", "levels", "How many levels of view B-trees are cached, counted from the root; 0 for none.", |n| within(n, 0, 64);
}

group! {
    /// `[attachments]`: compression of attachments.
    Attachments, "attachments", fallback None;
    compression_level: u32 = "8", "", "How hard attachments are compressed, 0 (not) to 9 (most).", |n| within(n, 0, 9);
    compressible_types: Vec<String> = "text/*, application/javascript, application/json, application/xml", "", "The media types worth compressing.";
}

group! {
    /// `[purge]`: bounds of purging.
    Purge, "purge", fallback None;
    max_revisions_number: Bound = "infinity", "revisions", "How many revisions one purge request may name.";
    index_lag_warn_seconds: u64 = "86400", "s", "How long an index may lag behind before its purge checkpoint is reported.";
}

group! {
    /// `[database_compaction]`: rewriting database files.
    DatabaseCompaction, "database_compaction", fallback None;
    doc_buffer_size: u64 = "524288", "bytes", "How much is copied between two writes.", |n| within(n, 1, 1 << 30);
    checkpoint_after: u64 = "5242880", "bytes", "How much is copied between two headers.", |n| within(n, 1, 1 << 40);
}

group! {
    /// `[view_compaction]`: rewriting view index files.
    ViewCompaction, "view_compaction", fallback None;
    keyvalue_buffer_size: u64 = "2097152", "bytes", "How much is copied between two writes.", |n| within(n, 1, 1 << 30);
}

group! {
    /// `[view_updater]`: building view indexes.
    ViewUpdater, "view_updater", fallback None;
    queue_memory_cap: u64 = "10485760", "bytes", "How much may wait between two stages of an index update.", |n| within(n, 1, 1 << 40);
    queue_item_cap: u64 = "500", "batches", "How many batches may wait between two stages of an index update.", |n| within(n, 1, 1 << 32);
    min_writer_items: u64 = "100", "documents", "How many documents are gathered before an index is written.", |n| within(n, 1, 1 << 32);
    min_writer_size: u64 = "16777216", "bytes", "How much is gathered before an index is written.", |n| within(n, 1, 1 << 40);
}

group! {
    /// `[query_server_config]`: JavaScript and reductions.
    QueryServerConfig, "query_server_config", fallback None;
    os_process_limit: u32 = "100", "engines", "How many JavaScript engines may run at once.", |n| within(n, 1, 100_000);
    commit_freq: u64 = "5", "s", "How long an index header waits at least after the last one.";
    reduce_limit: ReduceLimit = "true", "", "What happens to a reduce function whose result does not shrink.";
    reduce_limit_threshold: u64 = "5000", "bytes", "Results below this size are never complained about.";
    reduce_limit_ratio: f64 = "2.0", "", "How much smaller than its input a result has to be.", |n| within(n, 0.0, 1e9);
    query_limit: Bound = "infinity", "rows", "The most rows a view query may ask for.";
    partition_query_limit: Bound = "infinity", "rows", "The most rows a view query of one partition may ask for.";
}

group! {
    /// `[mango]`: `_find` and its indexes.
    Mango, "mango", fallback None;
    default_limit: u64 = "25", "documents", "How many documents _find answers when no limit is given.";
    index_scan_warning_threshold: u64 = "10", "", "How many documents read for each one answered make _find warn; 0 for never.";
}

group! {
    /// `[cluster]`: how databases are spread.
    Cluster, "cluster", fallback None;
    q: u32 = "2", "shards", "How many shards a new database has.", |n| within(n, 1, MAX_Q);
    n: u32 = "3", "copies", "How many copies of each shard a new database has, at most one per node.", |n| within(n, 1, MAX_N);
    placement: Option<String> = "", "", "How many copies each zone gets, as zone:copies with commas.";
    seedlist: Vec<String> = "", "", "The nodes to join at start.";
    reconnect_interval_sec: u64 = "37", "s", "How long between two attempts to reach lost nodes.", |n| within(n, 1, 86_400);
}

group! {
    /// `[chttpd]`: the HTTP server.
    Chttpd, "chttpd", fallback Some("httpd");
    port: u16 = "5984", "", "The port to listen on; 0 for any free one.";
    bind_address: String = "127.0.0.1", "", "The address to listen on, or `any` for all.";
    backlog: u32 = "512", "connections", "How many connections may wait to be accepted.", |n| within(n, 1, 65_535);
    max_http_request_size: u64 = "4294967296", "bytes", "The largest request body, attachments aside.";
    require_valid_user: bool = "false", "", "Refuse requests without a user.";
    require_valid_user_except_for_up: bool = "true", "", "Leave /_up open all the same; false in CouchDB.";
    admin_only_all_dbs: bool = "true", "", "Only server admins may list databases.";
    enable_cors: bool = "false", "", "Answer requests from pages of other sites, as the section cors says.";
    changes_timeout: u64 = "60000", "ms", "How long a waiting _changes request waits when it does not say.", |n| within(n, 1, 1 << 40);
    max_db_number_for_dbs_info_req: u64 = "100", "databases", "How many databases _dbs_info may ask for.";
    server_header_versions: bool = "true", "", "Tell versions in the Server header.";
    decode_plus_to_space: bool = "true", "", "Read + as a blank in database names and document ids of a path.";
    max_uri_length: Bound = "infinity", "bytes", "The longest request line.";
    buffer_response: bool = "false", "", "Begin no answer before its end is known.";
}

group! {
    /// `[cors]`: requests from other sites' pages.
    Cors, "cors", fallback None;
    origins: Vec<String> = "", "", "The sites that may, as scheme://host:port with commas, or *.";
    credentials: bool = "false", "", "Allow cookies and passwords.";
    methods: Vec<String> = "", "", "The methods that may be used; unset, all.";
    headers: Vec<String> = "", "", "Request headers that may be sent besides the usual ones.";
    exposed_headers: Vec<String> = "", "", "Answer headers that may be read besides the usual ones.";
    max_age: u64 = "600", "s", "How long browsers may remember an answer.";
}

group! {
    /// `[chttpd_auth]`: sessions and password hashes.
    ChttpdAuth, "chttpd_auth", fallback Some("couch_httpd_auth");
    secret: Option<Secret> = "", "", "The key of session cookies, made at the first start.";
    timeout: u64 = "600", "s", "How long a session lives without a request.", |n| within(n, 1, 1 << 32);
    allow_persistent_cookies: bool = "true", "", "Let browsers keep the session cookie when they close.";
    cookie_domain: Option<String> = "", "", "The domain that the session cookie is for.";
    same_site: Option<SameSite> = "", "", "When browsers send the session cookie with requests started by other sites.";
    hash_algorithms: Vec<HashAlgorithm> = "sha256, sha", "", "The hash functions of session cookies: the first signs, any verifies.";
    authentication_db: String = "_users", "", "The database of users.";
    authentication_redirect: String = "/_utils/session.html", "", "Where browsers without a login are sent.";
    pbkdf2_prf: HashAlgorithm = "sha256", "", "The hash function of new password hashes.";
    iterations: u32 = "600000", "rounds", "How much work a new password hash takes.", |n| within(n, 1, MAX_ITERATIONS);
    min_iterations: u32 = "1", "rounds", "Password hashes with fewer are refused.", |n| within(n, 1, MAX_ITERATIONS);
    max_iterations: u32 = "10000000", "rounds", "Password hashes with more are refused, for each costs that much work; 1000000000 in CouchDB.", |n| within(n, 1, MAX_ITERATIONS);
    upgrade_hash_on_auth: bool = "true", "", "Hash a password anew at login when its stored hash is weaker.";
}

group! {
    /// `[couch_passwords_cache]`: passwords verified lately.
    CouchPasswordsCache, "couch_passwords_cache", fallback None;
    enable: bool = "true", "", "Remember verified passwords, so that not every request costs a password hash.";
    max_objects: u64 = "10000", "passwords", "How many are remembered.", |n| within(n, 1, 10_000_000);
    max_idle: u64 = "600000", "ms", "How long an unused one is remembered.", |n| within(n, 1, 1 << 40);
}

group! {
    /// `[uuids]`: new document ids.
    Uuids, "uuids", fallback None;
    algorithm: UuidAlgorithm = "uuid_v7", "", "How new document ids are made.";
    utc_id_suffix: String = "", "", "The end of ids made with utc_id.";
    max_count: u64 = "1000", "ids", "How many ids /_uuids gives at once.", |n| within(n, 1, 1_000_000);
}

group! {
    /// `[log]`: the log.
    Log, "log", fallback None;
    level: LogLevel = "info", "", "The least severe messages that are logged.";
    file: Option<PathBuf> = "", "", "The file to log to; unset, standard error.";
}

group! {
    /// `[fabric]`: requests spread over the cluster.
    Fabric, "fabric", fallback None;
    request_timeout: Bound = "60000", "ms", "How long point reads, updates and the start of streams may take.";
    all_docs_timeout: Bound = "10000", "ms", "How long _all_docs with keys may take.";
    all_docs_view_permsg_timeout: Bound = "5000", "ms", "How long _all_docs waits for its next row.";
    attachments_timeout: Bound = "600000", "ms", "How long an attachment may take.";
    view_timeout: Bound = "infinity", "ms", "How long a view query may take.";
    view_permsg_timeout: Bound = "3600000", "ms", "How long a view query waits for its next row.";
    partition_view_timeout: Bound = "infinity", "ms", "How long a view query of one partition may take.";
    all_docs_concurrency: u32 = "10", "reads", "How many of the keys of _all_docs are read at once.", |n| within(n, 1, 10_000);
    uuid_prefix_len: u32 = "7", "characters", "How much of a shard's uuid is kept in update sequences.", |n| within(n, 1, 32);
    serialize_worker_startup: bool = "true", "", "Send an update to one copy first, so that copies agree on conflicts.";
    shard_timeout_factor: u32 = "2", "", "By how much each attempt to open a shard waits longer than the last.", |n| within(n, 1, 100);
    shard_timeout_min_msec: u64 = "100", "ms", "How long the first attempt to open a shard waits.", |n| within(n, 1, 3_600_000);
}

group! {
    /// `[mem3]`: shard maps and the internal replicator.
    Mem3, "mem3", fallback None;
    nodes_db: String = "_nodes", "", "The database of nodes.";
    shards_db: String = "_dbs", "", "The database of shard maps.";
    sync_concurrency: u32 = "10", "jobs", "How many shards are pushed at once.", |n| within(n, 1, 10_000);
    sync_delay: u64 = "5000", "ms", "How long after an update its shard is pushed to the other copies.";
    sync_batch_size: u32 = "500", "revisions", "How many revisions are pushed at once.", |n| within(n, 1, 1_000_000);
    sync_batch_count: u32 = "5", "batches", "After so many batches a job lets others go first.", |n| within(n, 1, 1_000_000);
}

group! {
    /// `[rexi]`: messages between coordinators and workers.
    Rexi, "rexi", fallback None;
    buffer_count: u32 = "2000", "messages", "How many messages to a slow node are kept.", |n| within(n, 1, 10_000_000);
    stream_limit: u32 = "5", "messages", "How many rows a worker sends ahead of its coordinator.", |n| within(n, 1, 10_000);
}

group! {
    /// `[replicator]`: replications with other servers.
    Replicator, "replicator", fallback None;
    max_jobs: u32 = "500", "replications", "How many run at once.", |n| within(n, 1, 100_000);
    interval: u64 = "60000", "ms", "How long between two looks at which should run.", |n| within(n, 1, 1 << 40);
    worker_processes: u32 = "4", "processes", "How many workers one replication has.", |n| within(n, 1, 1000);
    worker_batch_size: u32 = "500", "changes", "How many changes a worker takes at once.", |n| within(n, 1, 1_000_000);
    http_connections: u32 = "20", "connections", "How many connections one replication holds.", |n| within(n, 1, 10_000);
    connection_timeout: u64 = "30000", "ms", "How long an answer may take.", |n| within(n, 1, 1 << 40);
    retries_per_request: u32 = "5", "attempts", "How often a request is tried again.", |n| within(n, 0, 1000);
    use_checkpoints: bool = "true", "", "Remember how far a replication got.";
    checkpoint_interval: u64 = "30000", "ms", "How often a replication remembers how far it got.", |n| within(n, 1, 1 << 40);
    use_bulk_get: bool = "true", "", "Fetch documents with _bulk_get where the source knows it.";
    verify_ssl_certificates: bool = "false", "", "Refuse servers whose certificate cannot be verified.";
}

group! {
    /// `[smoosh]`: automatic compaction.
    Smoosh, "smoosh", fallback None;
    staleness: u64 = "5", "minutes", "How long between two looks at the same file.", |n| within(n, 0, 1_000_000);
    db_channels: Vec<String> = "upgrade_dbs, ratio_dbs, slack_dbs", "", "The queues that databases can enter.";
    view_channels: Vec<String> = "upgrade_views, ratio_views, slack_views", "", "The queues that view indexes can enter.";
}

groups! {
    /// `[couchdb]`.
    couchdb: Couchdb,
    /// `[bt_engine_cache]`.
    bt_engine_cache: BtEngineCache,
    /// `[attachments]`.
    attachments: Attachments,
    /// `[purge]`.
    purge: Purge,
    /// `[database_compaction]`.
    database_compaction: DatabaseCompaction,
    /// `[view_compaction]`.
    view_compaction: ViewCompaction,
    /// `[view_updater]`.
    view_updater: ViewUpdater,
    /// `[query_server_config]`.
    query_server_config: QueryServerConfig,
    /// `[mango]`.
    mango: Mango,
    /// `[cluster]`.
    cluster: Cluster,
    /// `[fabric]`.
    fabric: Fabric,
    /// `[mem3]`.
    mem3: Mem3,
    /// `[rexi]`.
    rexi: Rexi,
    /// `[replicator]`.
    replicator: Replicator,
    /// `[smoosh]`.
    smoosh: Smoosh,
    /// `[chttpd]`.
    chttpd: Chttpd,
    /// `[cors]`.
    cors: Cors,
    /// `[chttpd_auth]`.
    chttpd_auth: ChttpdAuth,
    /// `[couch_passwords_cache]`.
    couch_passwords_cache: CouchPasswordsCache,
    /// `[uuids]`.
    uuids: Uuids,
    /// `[log]`.
    log: Log,
}

impl Settings {
    /// Rules that tie two settings together.
    fn check_together(&self, table: &ConfigTable, errors: &mut Vec<ConfigError>) {
        let auth = &self.chttpd_auth;
        let mut refuse = |key: &'static str, value: u32, reason: &str| {
            let entry = table.entry("chttpd_auth", key);
            errors.push(ConfigError {
                section: "chttpd_auth",
                key,
                value: value.to_string(),
                origin: entry.map_or_else(|| "default".into(), |entry| entry.origin.clone()),
                reason: reason.to_owned(),
            });
        };
        if auth.min_iterations > auth.max_iterations {
            refuse(
                "min_iterations",
                auth.min_iterations,
                "must not exceed max_iterations",
            );
        } else if auth.iterations < auth.min_iterations || auth.iterations > auth.max_iterations {
            refuse(
                "iterations",
                auth.iterations,
                "must be from min_iterations to max_iterations",
            );
        }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self::from_table(&ConfigTable::default()).expect("a test proves that all defaults are accepted")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_accepted() {
        let settings = Settings::default();
        assert_eq!(settings.chttpd.port, 5984);
        assert_eq!(settings.couchdb.max_document_id_length, Bound::Infinity);
        assert_eq!(settings.uuids.algorithm, UuidAlgorithm::UuidV7);
        for group in GROUPS {
            for setting in group.settings {
                assert_eq!(
                    (setting.validate)(setting.default),
                    Ok(()),
                    "{}/{}",
                    group.name,
                    setting.key
                );
            }
        }
    }

    #[test]
    fn all_errors_are_found() {
        let table = ConfigTable::from_pairs([
            ("chttpd", "port", "70000"),
            ("chttpd", "enable_cors", "yes"),
            ("cluster", "q", "0"),
            ("log", "level", "info"),
        ]);
        let errors = Settings::from_table(&table).expect_err("three are bad");
        let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(
            texts,
            [
                "[cluster] q = 0 (from embedded) must be from 1 to 256",
                "[chttpd] port = 70000 (from embedded) must be a whole number from 0 to 65535",
                "[chttpd] enable_cors = yes (from embedded) must be true or false",
            ]
        );
    }

    #[test]
    fn older_sections_are_a_fallback() -> Result<(), Vec<ConfigError>> {
        let table = ConfigTable::from_pairs([
            ("httpd", "enable_cors", "true"),
            ("couch_httpd_auth", "timeout", "5"),
            ("chttpd_auth", "timeout", "7"),
        ]);
        let settings = Settings::from_table(&table)?;
        assert!(settings.chttpd.enable_cors);
        assert_eq!(settings.chttpd_auth.timeout, 7);
        Ok(())
    }

    #[test]
    fn iterations_must_fit_their_bounds() {
        let table = ConfigTable::from_pairs([("chttpd_auth", "max_iterations", "10")]);
        let errors = Settings::from_table(&table).expect_err("600000 is more than 10");
        assert_eq!(errors[0].key, "iterations");
    }
}
