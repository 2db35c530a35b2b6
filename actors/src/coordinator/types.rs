//! What callers of the coordinator give and get.

use bytes::Bytes;
use settee_engine::doc::revtree::RevStatus;
use settee_engine::doc::{Doc, DocError};
use settee_engine::ids::{DocId, Rev};
use std::time::Duration;
use thiserror::Error;

/// Why a document is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    /// It, or the revision asked for, has never been there.
    Missing,
    /// Its winning revision is a deletion.
    Deleted,
}

/// The one error of all calls on databases.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum DbError {
    /// No such database.
    #[error("database {0} does not exist")]
    DatabaseDoesNotExist(String),
    /// Creation of a database that is there.
    #[error("database {0} exists already")]
    DatabaseExists(String),
    /// A name that no database can have.
    #[error("{0:?} is no name for a database")]
    IllegalDatabaseName(String),
    /// No such document or revision.
    #[error("document is {}", match .0 { Missing::Missing => "missing", Missing::Deleted => "deleted" })]
    NotFound(Missing),
    /// A single update that lost.
    #[error("update of {id} conflicts with another")]
    Conflict {
        /// The document.
        id: String,
    },
    /// A document, id, revision or attachment that breaks the rules.
    #[error(transparent)]
    Doc(#[from] DocError),
    /// An id that has no place in the database, such as one without a partition in a partitioned database.
    #[error("{0}")]
    IllegalDocId(String),
    /// Arguments that make no sense; the text is for the client.
    #[error("{0}")]
    BadRequest(String),
    /// A `since` that is no sequence.
    #[error("malformed sequence")]
    MalformedSeq,
    /// Bytes on disk that are not what was written.
    #[error("{detail}")]
    Corrupt {
        /// The document they belong to, when known.
        id: Option<String>,
        /// File, offset and what is wrong.
        detail: String,
    },
    /// A failing disk, or a shard that refuses writes after one.
    #[error("{0}")]
    Storage(String),
    /// No space left.
    #[error("{0}")]
    StorageFull(String),
    /// A deadline passed.
    #[error("{0} took too long")]
    Timeout(String),
    /// The node is stopping.
    #[error("the node is shutting down")]
    ShuttingDown,
    /// A broken invariant.
    #[error("{0}")]
    Internal(String),
}

/// How a database is laid out.
#[derive(Clone, Copy, Debug, Default)]
pub struct CreateDb {
    /// Number of shards, 1 to 256; `[cluster] q` when absent.
    pub q: Option<u32>,
    /// Copies of each shard, capped to the number of nodes; `[cluster] n` when absent.
    pub n: Option<u32>,
    /// Documents with ids `partition:rest` are kept together by partition.
    pub partitioned: bool,
}

/// `GET /db`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DbInfo {
    /// Name of the database.
    pub db_name: String,
    /// Creation time in unix seconds, as text.
    pub instance_start_time: String,
    /// Packed update sequence.
    pub update_seq: String,
    /// Packed purge sequence.
    pub purge_seq: String,
    /// Documents that are not deleted.
    pub doc_count: u64,
    /// Deleted documents.
    pub doc_del_count: u64,
    /// Bytes of all files.
    pub sizes_file: u64,
    /// Bytes of the documents as JSON, and of their attachments.
    pub sizes_external: u64,
    /// Bytes that compaction would keep.
    pub sizes_active: u64,
    /// Newest disk version of the files.
    pub disk_format_version: u64,
    /// Whether a compaction runs.
    pub compact_running: bool,
    /// Whether documents are kept together by partition.
    pub partitioned: bool,
    /// Number of ranges.
    pub q: u32,
    /// Copies of each range.
    pub n: u32,
    /// Write quorum.
    pub w: u32,
    /// Read quorum.
    pub r: u32,
}

/// What to read of a document beside its body.
#[derive(Clone, Debug, Default)]
pub struct OpenDoc {
    /// This revision instead of the winner.
    pub rev: Option<Rev>,
    /// Give a deleted winner instead of `NotFound(Deleted)`.
    pub deleted: bool,
    /// Status of every revision of the branch.
    pub revs_info: bool,
    /// Live leaves beside the winner.
    pub conflicts: bool,
    /// Deleted leaves beside the winner.
    pub deleted_conflicts: bool,
    /// Sequence of the document in its shard.
    pub local_seq: bool,
}

/// A document as read.
#[derive(Clone, Debug)]
pub struct OpenedDoc {
    /// Id, revisions, body and attachments.
    pub doc: Doc,
    /// When asked for: the branch, newest first.
    pub revs_info: Option<Vec<(Rev, RevStatus)>>,
    /// When asked for: live leaves beside this revision.
    pub conflicts: Vec<Rev>,
    /// When asked for: deleted leaves beside this revision.
    pub deleted_conflicts: Vec<Rev>,
    /// When asked for: the sequence of the document in its shard.
    pub local_seq: Option<u64>,
    /// Index of the shard that it was read from.
    pub shard: usize,
}

/// Which revisions `open_revs` gives.
#[derive(Clone, Debug)]
pub enum OpenRevs {
    /// Every leaf.
    All,
    /// These.
    List(Vec<Rev>),
}

/// How a batch of edits is applied.
#[derive(Clone, Copy, Debug)]
pub struct UpdateDocs {
    /// `true`: each edit makes a new revision on its parent, which must be a leaf. `false`: revisions are stored as
    /// they are, as the replicator does.
    pub new_edits: bool,
    /// Copies that must answer; the quorum when absent.
    pub w: Option<u32>,
}

impl Default for UpdateDocs {
    fn default() -> Self {
        Self {
            new_edits: true,
            w: None,
        }
    }
}

/// A write that succeeded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Updated {
    /// The new revision.
    pub rev: Rev,
    /// Written, but by fewer copies than the quorum.
    pub accepted: bool,
}

/// Why one document of a batch was not written.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum DocRefusal {
    /// Another update came first.
    #[error("document update conflict")]
    Conflict,
    /// The document breaks the rules.
    #[error(transparent)]
    Doc(#[from] DocError),
    /// Not allowed.
    #[error("{0}")]
    Forbidden(String),
    /// The shard could not write.
    #[error("{0}")]
    Storage(String),
    /// The shard's disk is full.
    #[error("{0}")]
    StorageFull(String),
}

/// Answer for one document of a batch.
pub type UpdateResult = Result<Updated, DocRefusal>;

/// Revisions that the database lacks.
#[derive(Clone, Debug)]
pub struct MissingRevs {
    /// The document.
    pub id: DocId,
    /// What is missing of what was asked, in the order asked.
    pub missing: Vec<Rev>,
    /// Leaves that may be ancestors of the missing ones.
    pub possible_ancestors: Vec<Rev>,
}

/// Which ids `_all_docs` walks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Namespace {
    /// All but `_local/`.
    #[default]
    All,
    /// Only `_design/`.
    Design,
}

/// One of the `keys` of `_all_docs`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyArg {
    /// An id.
    Id(String),
    /// Any other JSON value, which no document has as its id; its text is echoed.
    Other(String),
}

/// Arguments of `_all_docs`.
#[derive(Clone, Debug)]
pub struct AllDocsArgs {
    /// First id, in the direction of travel.
    pub start_key: Option<String>,
    /// Last id, in the direction of travel.
    pub end_key: Option<String>,
    /// Whether `end_key` itself is given.
    pub inclusive_end: bool,
    /// Only these, in this order.
    pub keys: Option<Vec<KeyArg>>,
    /// From the greatest id down.
    pub descending: bool,
    /// Rows at the most.
    pub limit: u64,
    /// Rows to pass over first.
    pub skip: u64,
    /// Put the document into each row.
    pub include_docs: bool,
    /// With `_conflicts`.
    pub conflicts: bool,
    /// Give the packed update sequence.
    pub update_seq: bool,
    /// With attachment bodies, base64.
    pub attachments: bool,
    /// With `encoding` and `encoded_length`.
    pub att_encoding_info: bool,
    /// Which ids.
    pub namespace: Namespace,
}

impl Default for AllDocsArgs {
    fn default() -> Self {
        Self {
            start_key: None,
            end_key: None,
            inclusive_end: true,
            keys: None,
            descending: false,
            limit: u64::MAX,
            skip: 0,
            include_docs: false,
            conflicts: false,
            update_seq: false,
            attachments: false,
            att_encoding_info: false,
            namespace: Namespace::All,
        }
    }
}

/// A run of rows: each is one JSON object, complete.
#[derive(Clone, Debug, Default)]
pub struct Rows {
    /// The rows joined by `,\r\n`, without one in front or behind. No row has these bytes within.
    pub bytes: Bytes,
    /// How many.
    pub count: usize,
}

impl Rows {
    /// How many.
    #[must_use]
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Each row's JSON.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let mut rest = (self.count > 0).then_some(&self.bytes[..]);
        std::iter::from_fn(move || {
            let bytes = rest?;
            // In JSON a line break is escaped within strings, so a bare one only stands between rows.
            let end = memchr::memchr(b'\r', bytes);
            let (row, behind) = match end {
                Some(end) => (&bytes[..end - 1], bytes.get(end + 2..)),
                None => (bytes, None),
            };
            rest = behind;
            Some(row)
        })
    }
}

/// Where a changes feed begins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Since {
    /// At the beginning.
    #[default]
    Zero,
    /// With what comes after the call.
    Now,
    /// Behind a packed sequence.
    Seq(String),
}

/// How a changes feed ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Feed {
    /// When all is told.
    #[default]
    Normal,
    /// Likewise, but waits for a first change.
    Longpoll,
    /// Not by itself.
    Continuous,
}

/// Which revisions a row of the changes feed lists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ChangesStyle {
    /// The winner.
    #[default]
    MainOnly,
    /// All leaves.
    AllDocs,
}

/// Arguments of `_changes`.
#[derive(Clone, Debug)]
pub struct ChangesArgs {
    /// Where to begin.
    pub since: Since,
    /// When to end.
    pub feed: Feed,
    /// Rows at the most.
    pub limit: u64,
    /// Newest first.
    pub descending: bool,
    /// Which revisions each row lists.
    pub style: ChangesStyle,
    /// Put the document into each row.
    pub include_docs: bool,
    /// With `_conflicts`.
    pub conflicts: bool,
    /// With attachment bodies, base64.
    pub attachments: bool,
    /// With `encoding` and `encoded_length`.
    pub att_encoding_info: bool,
    /// Only these documents.
    pub doc_ids: Option<Vec<String>>,
    /// Only design documents.
    pub filter_design: bool,
    /// How long a waiting feed waits when it has no heartbeat.
    pub timeout: Duration,
    /// How often a waiting feed says that it lives; then it waits without end.
    pub heartbeat: Option<Duration>,
    /// Only every n-th row carries a sequence; the others say `null`.
    pub seq_interval: u64,
}

impl Default for ChangesArgs {
    fn default() -> Self {
        Self {
            since: Since::Zero,
            feed: Feed::Normal,
            limit: u64::MAX,
            descending: false,
            style: ChangesStyle::MainOnly,
            include_docs: false,
            conflicts: false,
            attachments: false,
            att_encoding_info: false,
            doc_ids: None,
            filter_design: false,
            timeout: Duration::from_secs(60),
            heartbeat: None,
            seq_interval: 1,
        }
    }
}

/// What a changes feed tells.
#[derive(Clone, Debug)]
pub enum ChangesEvent {
    /// Rows.
    Rows(Rows),
    /// Still there.
    Heartbeat,
    /// All is told for now; more may come.
    Waiting,
    /// The end.
    End {
        /// Packed sequence behind the last row.
        last_seq: String,
        /// Changes that a limit has held back.
        pending: u64,
    },
}
