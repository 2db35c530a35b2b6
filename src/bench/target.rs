//! What a benchmark needs of a database.

use super::documents::DocBatch;
use super::report::Environment;
use thiserror::Error;

/// Why a target did not do what it was asked.
#[derive(Debug, Error)]
pub enum TargetError {
    /// The request could not be made, or its answer not be read.
    #[error("{0}")]
    Transport(String),
    /// The server answered with an error.
    #[error("{what} was answered with {status}: {reason}")]
    Refused {
        /// What was asked for.
        what: String,
        /// Status of HTTP, or that which it would be.
        status: u16,
        /// The server's reason.
        reason: String,
    },
    /// The answer is not what such an answer must be.
    #[error("{0}")]
    Unexpected(String),
}

/// How a write went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteOutcome {
    /// By enough copies: 201.
    Ok,
    /// By fewer: 202.
    Accepted,
}

/// What a database says of itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Documents.
    pub doc_count: u64,
    /// Shards.
    pub q: u64,
    /// Copies of each.
    pub n: u64,
}

/// A server, in this process or elsewhere. Every call ends when its answer has been read whole.
#[expect(
    async_fn_in_trait,
    reason = "the driver awaits on one thread, so that futures need not be Send"
)]
pub trait Target {
    /// What the server is; `n` and `q` are filled in by the driver.
    async fn environment(&mut self) -> Result<Environment, TargetError>;

    /// The names of all databases.
    async fn all_dbs(&mut self) -> Result<Vec<String>, TargetError>;

    /// Creates a database, with the server's defaults for what is not given.
    async fn create_db(&mut self, db: &str, q: Option<u32>, n: Option<u32>) -> Result<(), TargetError>;

    /// Deletes a database.
    async fn delete_db(&mut self, db: &str) -> Result<(), TargetError>;

    /// Keeps compaction away from a database while it is measured, where the server can do so.
    async fn disable_compaction(&mut self, db: &str) -> Result<(), TargetError>;

    /// What the database says of itself.
    async fn figures(&mut self, db: &str) -> Result<Figures, TargetError>;

    /// The largest backlog of internal replication on any node; `None` when there is only one node.
    async fn backlog(&mut self) -> Result<Option<u64>, TargetError>;

    /// Writes a batch. Every document must be answered for, and by success.
    async fn bulk_docs(&mut self, db: &str, batch: &DocBatch) -> Result<WriteOutcome, TargetError>;

    /// Reads a document as JSON and returns its length in bytes.
    async fn get(&mut self, db: &str, id: u64) -> Result<u64, TargetError>;

    /// Streams all documents' rows and counts them.
    async fn all_docs(&mut self, db: &str, include_docs: bool) -> Result<u64, TargetError>;

    /// Streams all changes and counts them.
    async fn changes(&mut self, db: &str) -> Result<u64, TargetError>;

    /// Writes one new document, whose JSON holds its id.
    async fn put_one(&mut self, db: &str, id: &str, doc: &[u8]) -> Result<WriteOutcome, TargetError>;

    /// Waits.
    async fn pause(&mut self, time: std::time::Duration);
}
