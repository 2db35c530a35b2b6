//! CouchDB's built-in benchmark, `fabric_bench`, as a driver over anything that can hold a database: this process or a
//! server at an address.
//!
//! The documents, the phases, what is timed in each of them and the printed lines are CouchDB's, so that numbers can be
//! laid side by side; one client, one request at a time.

mod documents;
#[cfg(test)]
mod fake_server;
mod http_target;
mod phases;
mod progress;
mod random;
pub mod report;
mod target;

pub use documents::{DocBatch, DocGenerator, DocSize};
pub use http_target::HttpTarget;
pub use phases::{BenchError, Outcome, Output, run};
pub use progress::Progress;
pub use random::Random;
pub use report::{Environment, Row};
pub use target::{Figures, Target, TargetError, WriteOutcome};

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Shards of the database; the server's default when absent.
    pub q: Option<u32>,
    /// Copies of each shard; the server's default when absent.
    pub n: Option<u32>,
    /// Size of the documents.
    pub doc_size: DocSize,
    /// Documents written in bulk, read one by one, and streamed.
    pub docs: u64,
    /// Documents per bulk request, at least one.
    pub batch_size: u64,
    /// Documents written one by one.
    pub individual_docs: u64,
    /// Seed of the documents' content.
    pub seed: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            q: None,
            n: None,
            doc_size: DocSize::Medium,
            docs: 100_000,
            batch_size: 1000,
            individual_docs: 1000,
            seed: 1,
        }
    }
}

impl Options {
    /// The options that CouchDB prints, by name.
    fn parameters(&self) -> Vec<(&'static str, String)> {
        let or_default =
            |value: Option<u32>| value.map_or_else(|| "default".to_owned(), |value| value.to_string());
        vec![
            ("batch_size", self.batch_size.to_string()),
            ("doc_size", self.doc_size.name().to_owned()),
            ("docs", self.docs.to_string()),
            ("individual_docs", self.individual_docs.to_string()),
            ("n", or_default(self.n)),
            ("q", or_default(self.q)),
        ]
    }
}

/// The result of a future that does not wait for anything.
#[cfg(test)]
fn ready<R>(future: impl Future<Output = R>) -> R {
    let future = std::pin::pin!(future);
    match future.poll(&mut std::task::Context::from_waker(std::task::Waker::noop())) {
        std::task::Poll::Ready(result) => result,
        std::task::Poll::Pending => panic!("the future waits"),
    }
}
