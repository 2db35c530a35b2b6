//! The table of what CouchDB has and this server does not yet have: each answers 501 with a sentence that says so.

/// Names of the server level.
pub const SERVER: &[(&str, &str)] = &[
    (
        "_cluster_setup",
        "cluster setup over HTTP is not implemented; settings are read from ini files",
    ),
    ("_db_updates", "the feed of database updates is not implemented"),
    ("_replicate", "the replicator is not implemented"),
    ("_scheduler", "the replicator is not implemented"),
    ("_reshard", "resharding is not implemented"),
    ("_search_analyze", "full text search is not implemented"),
    ("_nouveau_analyze", "full text search is not implemented"),
    (
        "_reload_query_servers",
        "JavaScript query servers are not implemented",
    ),
];

/// Names below `_node/{name}`.
pub const NODE: &[(&str, &str)] = &[
    (
        "_prometheus",
        "the Prometheus format is not implemented; use _stats",
    ),
    ("_smoosh", "automatic compaction is not implemented"),
    ("_restart", "restarting over HTTP is not implemented"),
];

/// Names of the database level.
pub const DATABASE: &[(&str, &str)] = &[
    ("_find", "Mango queries are not implemented"),
    ("_explain", "Mango queries are not implemented"),
    ("_index", "Mango indexes are not implemented"),
    ("_purge", "purging is not implemented"),
    ("_purged_infos", "purging is not implemented"),
    ("_auto_purge", "purging is not implemented"),
    ("_compact", "compaction over HTTP is not implemented"),
    ("_view_cleanup", "views are not implemented"),
    ("_search_cleanup", "full text search is not implemented"),
    ("_nouveau_cleanup", "full text search is not implemented"),
    ("_time_seq", "finding sequences by time is not implemented"),
    ("_partition", "queries of one partition are not implemented"),
    ("_sync_shards", "the internal replicator is not implemented"),
];

/// Functions of design documents.
pub const DESIGN: &[(&str, &str)] = &[
    ("_info", "views are not implemented"),
    ("_view", "views are not implemented"),
    ("_show", "show functions are not implemented"),
    ("_list", "list functions are not implemented"),
    ("_update", "update functions are not implemented"),
    ("_rewrite", "rewriting is not implemented"),
    ("_search", "full text search is not implemented"),
    ("_search_info", "full text search is not implemented"),
    ("_search_disk_size", "full text search is not implemented"),
    ("_nouveau", "full text search is not implemented"),
    ("_nouveau_info", "full text search is not implemented"),
];

fn look_up(table: &[(&str, &'static str)], name: &str) -> Option<&'static str> {
    table
        .iter()
        .find(|(known, _)| *known == name)
        .map(|(_, reason)| *reason)
}

/// Why a name of the server level is not there.
pub fn server(name: &str) -> Option<&'static str> {
    look_up(SERVER, name)
}

/// Why a name below `_node/{name}` is not there.
pub fn node(name: &str) -> Option<&'static str> {
    look_up(NODE, name)
}

/// Why a name of the database level is not there.
pub fn database(name: &str) -> Option<&'static str> {
    look_up(DATABASE, name)
}

/// Why a function of a design document is not there.
pub fn design(name: &str) -> Option<&'static str> {
    look_up(DESIGN, name)
}
