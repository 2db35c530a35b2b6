//! Every bound of the engine, named, with its unit; relations between bounds are asserted at compile time.

/// Length of the usual revision id, an MD5, in bytes.
pub const REV_ID_BYTES: usize = 16;

/// Largest position of a revision. CouchDB knows none; ours leaves room for every sum of positions and lengths.
pub const REV_POS_MAX: u64 = 1 << 53;

/// Most revisions that one document's tree may hold when it is read from a file.
pub const REV_TREE_NODES_MAX: usize = 1 << 24;

/// Most revisions that a client may list in one `_revisions`.
pub const REVISIONS_MAX: usize = 1 << 20;

/// Default of `_revs_limit`: revisions kept per branch.
pub const REVS_LIMIT_DEFAULT: u64 = 1000;

/// Default of `[couchdb] max_document_size`: bytes of a body as JSON.
pub const DOCUMENT_BYTES_MAX_DEFAULT: u64 = 8_000_000;

/// Default of `[couchdb] max_attachment_size`, in bytes.
pub const ATTACHMENT_BYTES_MAX_DEFAULT: u64 = 1 << 30;

/// Default of `[couchdb] attachment_stream_buffer_size`: bytes gathered before a chunk is written.
pub const ATTACHMENT_BUFFER_BYTES_DEFAULT: usize = 4096;

/// Default of `[attachments] compression_level`.
pub const ATTACHMENT_COMPRESSION_LEVEL_DEFAULT: u32 = 8;

/// Longest segment of a database name, in bytes: file systems allow 255, of which suffixes take the rest.
pub const DB_NAME_SEGMENT_BYTES_MAX: usize = 238;

/// Longest name of a node, in bytes: the length of an atom.
pub const NODE_NAME_BYTES_MAX: usize = 255;

/// Most chunks of one attachment that are read from a file's terms.
pub const STREAM_CHUNKS_MAX: usize = 1 << 24;

const _: () = assert!(
    REVISIONS_MAX <= REV_TREE_NODES_MAX,
    "what a client may send must fit into a tree"
);
const _: () = assert!(
    REVS_LIMIT_DEFAULT as usize <= REVISIONS_MAX,
    "a whole default path can be replicated"
);
const _: () = assert!(
    REV_POS_MAX <= i64::MAX as u64,
    "a position is written as a signed integer"
);
const _: () = assert!(
    DB_NAME_SEGMENT_BYTES_MAX < 255,
    "a segment is a file name with a suffix"
);
