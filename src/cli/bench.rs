//! `settee bench`: fabric_bench in this process, through the same coordinator that HTTP uses, or over HTTP.

use super::Failure;
use super::args::{BenchArgs, DocSizeArg};
use crate::bench::{
    self, DocBatch, DocSize, Environment, Figures, HttpTarget, Options, Outcome, Output, Progress, Target,
    TargetError, WriteOutcome, report,
};
use crate::node::{Node, NodeConfig};
use bytes::Bytes;
use settee_actors::coordinator::{
    AllDocsArgs, ChangesArgs, ChangesEvent, Coordinator, CreateDb, DbError, OpenDoc, ParseDocs, RawDocs,
    UpdateDocs,
};
use settee_actors::runtime::Placement;
use settee_engine::doc::JsonOptions;
use settee_engine::ids::{DbName, DocId};
use std::io::Write;
use std::time::Duration;
use tokio::runtime::Builder;
use tokio::task::LocalSet;

/// Runs the benchmark and prints its lines, or one JSON object.
///
/// # Errors
/// What kept it from running to its end.
pub fn run(args: BenchArgs) -> Result<(), Failure> {
    let options = Options {
        q: args.q,
        n: args.n,
        doc_size: match args.doc_size {
            DocSizeArg::Small => DocSize::Small,
            DocSizeArg::Medium => DocSize::Medium,
            DocSizeArg::Large => DocSize::Large,
        },
        docs: args.docs,
        batch_size: args.batch_size,
        individual_docs: args.individual_docs,
        ..Options::default()
    };
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let outcome = LocalSet::new().block_on(&runtime, async {
        match &args.url {
            Some(url) => measure(&mut HttpTarget::new(url)?, &options, args.json).await,
            None => in_process(&args, options).await,
        }
    })?;
    if args.json {
        let json = report::json(&options, &outcome.environment, &outcome.rows);
        writeln!(std::io::stdout(), "{json}")?;
    }
    Ok(())
}

async fn measure<T: Target>(target: &mut T, options: &Options, json: bool) -> Result<Outcome, Failure> {
    let mut stdout = std::io::stdout();
    let lines: Option<&mut (dyn Write + Send)> = if json { None } else { Some(&mut stdout) };
    let progress = if json {
        Progress::hidden()
    } else {
        Progress::visible()
    };
    Ok(bench::run(target, options, Output { lines, progress }).await?)
}

/// Runs against a node of this process, on one of its own event loops, as a request would.
async fn in_process(args: &BenchArgs, options: Options) -> Result<Outcome, Failure> {
    let temporary = match &args.data {
        Some(_) => None,
        None => Some(tempfile::Builder::new().prefix("settee-bench-").tempdir_in(".")?),
    };
    let data = match (&args.data, &temporary) {
        (Some(data), _) => data.clone(),
        (None, Some(temporary)) => temporary.path().to_owned(),
        (None, None) => return Err("no data directory".into()),
    };
    let node = Node::open(NodeConfig {
        sets: args.set.clone(),
        ..NodeConfig::new(data)
    })
    .await?;
    let mut target = NodeTarget {
        coordinator: node.coordinator().clone(),
    };
    let json = args.json;
    let (sender, outcome) = tokio::sync::oneshot::channel();
    let run = async move {
        let outcome = measure(&mut target, &options, json)
            .await
            .map_err(|error| error.to_string());
        // The receiver waits below; it is gone only when the whole program is.
        let _ = sender.send(outcome);
    };
    if !node.system().spawn_task(Placement::Arbiter(0), run) {
        return Err("the event loop is gone".into());
    }
    let outcome = outcome.await?;
    node.shutdown().await;
    Ok(outcome?)
}

/// The node of this process.
struct NodeTarget {
    coordinator: Coordinator,
}

fn failed(error: DbError) -> TargetError {
    TargetError::Unexpected(error.to_string())
}

fn name(db: &str) -> Result<DbName, TargetError> {
    DbName::new(db).map_err(|error| TargetError::Unexpected(error.to_string()))
}

impl NodeTarget {
    async fn write(&self, db: &str, docs: RawDocs) -> Result<WriteOutcome, TargetError> {
        let expected = docs.docs.len();
        let edits = self
            .coordinator
            .parse_docs(docs, ParseDocs::default())
            .await
            .map_err(failed)?;
        let results = self
            .coordinator
            .update_docs(&name(db)?, edits, UpdateDocs::default())
            .await
            .map_err(failed)?;
        if results.len() != expected {
            return Err(TargetError::Unexpected(format!(
                "{} answers for {expected} documents",
                results.len()
            )));
        }
        let mut outcome = WriteOutcome::Ok;
        for result in results {
            let updated = result.map_err(|refusal| TargetError::Unexpected(refusal.to_string()))?;
            if updated.accepted {
                outcome = WriteOutcome::Accepted;
            }
        }
        Ok(outcome)
    }
}

impl Target for NodeTarget {
    async fn environment(&mut self) -> Result<Environment, TargetError> {
        Ok(Environment {
            nodes: vec![self.coordinator.node_name().to_string()],
            n: 0,
            q: 0,
            os: Environment::this_os(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            git_sha: "-".to_owned(),
            vm: "settee, in process".to_owned(),
        })
    }

    async fn all_dbs(&mut self) -> Result<Vec<String>, TargetError> {
        self.coordinator.all_dbs().await.map_err(failed)
    }

    async fn create_db(&mut self, db: &str, q: Option<u32>, n: Option<u32>) -> Result<(), TargetError> {
        let options = CreateDb {
            q,
            n,
            partitioned: false,
        };
        self.coordinator
            .create_db(&name(db)?, options)
            .await
            .map_err(failed)
    }

    async fn delete_db(&mut self, db: &str) -> Result<(), TargetError> {
        self.coordinator.delete_db(&name(db)?).await.map_err(failed)
    }

    async fn disable_compaction(&mut self, _db: &str) -> Result<(), TargetError> {
        // Nothing compacts by itself.
        Ok(())
    }

    async fn figures(&mut self, db: &str) -> Result<Figures, TargetError> {
        let info = self.coordinator.db_info(&name(db)?).await.map_err(failed)?;
        Ok(Figures {
            doc_count: info.doc_count,
            q: info.q.into(),
            n: info.n.into(),
        })
    }

    async fn backlog(&mut self) -> Result<Option<u64>, TargetError> {
        Ok(None)
    }

    async fn bulk_docs(&mut self, db: &str, batch: &DocBatch) -> Result<WriteOutcome, TargetError> {
        let docs = RawDocs {
            text: batch.body.clone(),
            docs: batch.docs.clone(),
        };
        self.write(db, docs).await
    }

    async fn get(&mut self, db: &str, id: u64) -> Result<u64, TargetError> {
        let id = DocId::new(&id.to_string()).map_err(|error| TargetError::Unexpected(error.to_string()))?;
        let opened = self
            .coordinator
            .open_doc(&name(db)?, &id, &OpenDoc::default())
            .await
            .map_err(failed)?;
        let mut json = Vec::with_capacity(opened.doc.body.len() + 64);
        let written = opened.doc.write_json(&mut json, &JsonOptions::default());
        written.map_err(|error| TargetError::Unexpected(error.to_string()))?;
        Ok(json.len() as u64)
    }

    async fn all_docs(&mut self, db: &str, include_docs: bool) -> Result<u64, TargetError> {
        let args = AllDocsArgs {
            include_docs,
            ..AllDocsArgs::default()
        };
        let mut stream = self
            .coordinator
            .all_docs(&name(db)?, args)
            .await
            .map_err(failed)?;
        let mut rows = 0;
        while let Some(run) = stream.next().await {
            rows += run.map_err(failed)?.len() as u64;
        }
        Ok(rows)
    }

    async fn changes(&mut self, db: &str) -> Result<u64, TargetError> {
        let mut stream = self
            .coordinator
            .changes(&name(db)?, ChangesArgs::default())
            .await
            .map_err(failed)?;
        let mut rows = 0;
        while let Some(event) = stream.next().await {
            if let ChangesEvent::Rows(run) = event.map_err(failed)? {
                rows += run.len() as u64;
            }
        }
        Ok(rows)
    }

    async fn put_one(&mut self, db: &str, _id: &str, doc: &[u8]) -> Result<WriteOutcome, TargetError> {
        let docs = RawDocs {
            text: Bytes::copy_from_slice(doc),
            docs: std::iter::once(0..doc.len()).collect(),
        };
        self.write(db, docs).await
    }

    async fn pause(&mut self, time: Duration) {
        tokio::time::sleep(time).await;
    }
}
