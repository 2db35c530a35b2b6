//! The settings themselves, section by section, under CouchDB's names.

use std::path::PathBuf;

use super::kinds::{
    Bound, DefaultSecurity, FileCompression, FromSetting, FsyncOptions, HashAlgorithm, LogLevel,
    MaintenanceMode, SameSite, Secret, UuidAlgorithm,
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
    maintenance_mode: MaintenanceMode = "false", "", "Take the node out of the cluster's work.";
    file_compression: FileCompression = "snappy", "", "How everything but attachments is compressed in files.";
    btree_chunk_size: u32 = "4096", "bytes", "The size at which a B-tree node is split; 1279 in CouchDB.", |n| within(n, 256, MAX_CHUNK_SIZE);
    attachment_stream_buffer_size: u32 = "4096", "bytes", "How much of an attachment is gathered before it is written.", |n| within(n, 1, 1 << 26);
    max_dbs_open: u32 = "500", "databases", "How many database shards may be open at once.", |n| within(n, 1, 10_000_000);
    max_couch_server_shards: u32 = "16", "processes", "How many processes keep the open databases, at most one per core.", |n| within(n, 1, 1024);
    max_document_size: u64 = "8000000", "bytes", "The largest document body, as JSON.";
    max_attachment_size: Bound = "1073741824", "bytes", "The largest attachment.";
    max_document_id_length: Bound = "infinity", "bytes", "The longest document id.";
    default_security: DefaultSecurity = "admin_only", "", "Who may use a database without a security object.";
    users_db_security_editable: bool = "false", "", "Let the security object of _users be changed.";
    write_xxhash_checksums: bool = "true", "", "Write checksums with xxHash and not MD5.";
    fsync_options: FsyncOptions = "[after_header, on_file_open]", "", "When a database file is synced. With before_header, a commit is synced twice, as CouchDB does it; without it, once, and a seal in the header shows after a crash whether the commit is whole. Without after_header, a commit that was answered may be lost in a crash.";
    find_header_read_count: u32 = "1024", "blocks", "How many blocks are searched in one read when looking for the last header.", |n| within(n, 1, 1 << 20);
    changes_doc_ids_optimization_threshold: u64 = "1000", "ids", "Up to so many ids, _changes with _doc_ids looks documents up one by one.";
}

group! {
    /// `[bt_engine_cache]`: the cache of B-tree nodes.
    BtEngineCache, "bt_engine_cache", fallback None;
    max_size: u64 = "67108864", "bytes", "How much the cache of B-tree nodes may hold.", |n| within(n, 0, 1 << 46);
    leave_percent: u32 = "30", "percent", "Below this fill, even unused nodes stay.", |n| within(n, 0, 100);
    db_btree_cache_depth: u32 = "3", "levels", "How many levels of database B-trees are cached, counted from the root; 0 for none.", |n| within(n, 0, 64);
}

group! {
    /// `[attachments]`: compression of attachments.
    Attachments, "attachments", fallback None;
    compression_level: u32 = "8", "", "How hard attachments are compressed, 0 (not) to 9 (most).", |n| within(n, 0, 9);
    compressible_types: Vec<String> = "text/*, application/javascript, application/json, application/xml", "", "The media types worth compressing.";
}

group! {
    /// `[cluster]`: how databases are spread.
    Cluster, "cluster", fallback None;
    q: u32 = "2", "shards", "How many shards a new database has.", |n| within(n, 1, MAX_Q);
    n: u32 = "3", "copies", "How many copies of each shard a new database has, at most one per node.", |n| within(n, 1, MAX_N);
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
    pbkdf2_prf: HashAlgorithm = "sha256", "", "The hash function of new password hashes.";
    iterations: u32 = "600000", "rounds", "How much work a new password hash takes.", |n| within(n, 1, MAX_ITERATIONS);
    min_iterations: u32 = "1", "rounds", "Password hashes with fewer are refused.", |n| within(n, 1, MAX_ITERATIONS);
    max_iterations: u32 = "10000000", "rounds", "Password hashes with more are refused, for each costs that much work; 1000000000 in CouchDB.", |n| within(n, 1, MAX_ITERATIONS);
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
}

groups! {
    /// `[couchdb]`.
    couchdb: Couchdb,
    /// `[bt_engine_cache]`.
    bt_engine_cache: BtEngineCache,
    /// `[attachments]`.
    attachments: Attachments,
    /// `[cluster]`.
    cluster: Cluster,
    /// `[fabric]`.
    fabric: Fabric,
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
