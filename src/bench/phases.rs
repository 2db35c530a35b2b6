//! The phases, one after the other, each timed by itself.

#![expect(clippy::disallowed_methods, reason = "a benchmark lives in real time")]

use super::Options;
use super::documents::{DocBatch, DocGenerator};
use super::progress::Progress;
use super::random::Random;
use super::report::{self, Environment, Row};
use super::target::{Target, TargetError, WriteOutcome};
use std::io::{self, Write};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use thiserror::Error;

/// What the names of the benchmark's databases begin with; unix microseconds follow.
const DB_PREFIX: &str = "fabricbenchdb-";

/// Databases left over by runs that broke off are deleted when they are older.
const LEFTOVER_AGE: Duration = Duration::from_secs(8 * 60 * 60);

/// Seed of the ids that are read: the same documents in every run.
const READ_SEED: u64 = 0;

/// Time between two looks at the backlog of internal replication.
const BACKLOG_PAUSE: Duration = Duration::from_secs(4);

/// Single reads and writes between two movements of the bar.
const PROGRESS_STEP: u64 = 100;

/// Why a run failed.
#[derive(Debug, Error)]
pub enum BenchError {
    /// The target did not do what it was asked.
    #[error(transparent)]
    Target(#[from] TargetError),
    /// A phase did not find what was written.
    #[error("{phase}: expected {expected}, found {found}")]
    UnexpectedCount {
        /// The phase.
        phase: &'static str,
        /// What was written.
        expected: u64,
        /// What was found.
        found: u64,
    },
    /// A single document was written by too few copies.
    #[error("a single write was only accepted, not written by a quorum")]
    OnlyAccepted,
    /// A batch has no documents, so that the run would never end.
    #[error("batch size must be at least 1")]
    NoBatch,
    /// The lines could not be printed.
    #[error("cannot print: {0}")]
    Output(#[from] io::Error),
}

/// Where results go.
pub struct Output<'a> {
    /// Gets the lines while they come; `None` when only the outcome is wanted.
    pub lines: Option<&'a mut (dyn Write + Send)>,
    /// Shows how far a phase has come.
    pub progress: Progress,
}

/// What a run measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// On what.
    pub environment: Environment,
    /// The phases' results, in order.
    pub rows: Vec<Row>,
}

/// Runs all phases against a database of its own, which is deleted afterwards, also when a phase fails.
///
/// # Errors
/// [`BenchError`]: that of the phase that failed, else that of the deletion.
pub async fn run<T: Target>(
    target: &mut T,
    options: &Options,
    mut output: Output<'_>,
) -> Result<Outcome, BenchError> {
    if options.batch_size == 0 {
        return Err(BenchError::NoBatch);
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    for leftover in target.all_dbs().await?.iter().filter(|db| is_leftover(db, now)) {
        target.delete_db(leftover).await?;
    }
    let db = format!("{DB_PREFIX}{}", now.as_micros());
    target.create_db(&db, options.q, options.n).await?;
    let result = Run {
        target,
        options,
        db: &db,
        output: &mut output,
        rows: Vec::new(),
    }
    .all()
    .await;
    let deleted = target.delete_db(&db).await;
    let outcome = result?;
    deleted?;
    Ok(outcome)
}

/// Whether a database is one that a run long ago left over.
fn is_leftover(db: &str, now: Duration) -> bool {
    let created = db
        .strip_prefix(DB_PREFIX)
        .and_then(|micros| micros.parse().ok())
        .map(Duration::from_micros);
    created.is_some_and(|created| now.saturating_sub(created) > LEFTOVER_AGE)
}

struct Run<'a, 'o, T> {
    target: &'a mut T,
    options: &'a Options,
    db: &'a str,
    output: &'a mut Output<'o>,
    rows: Vec<Row>,
}

impl<T: Target> Run<'_, '_, T> {
    async fn all(mut self) -> Result<Outcome, BenchError> {
        self.target.disable_compaction(self.db).await?;
        let figures = self.target.figures(self.db).await?;
        let environment = Environment {
            n: figures.n,
            q: figures.q,
            ..self.target.environment().await?
        };
        let options = *self.options;
        self.print(|out| report::write_parameters(out, &options))?;
        self.print(|out| report::write_environment(out, &environment))?;
        self.print(|out| report::write_inserting(out, options.docs))?;
        self.add_docs().await?;
        self.wait_for_replication().await?;
        let found = self.target.figures(self.db).await?.doc_count;
        self.expect_count("doc count", found)?;
        self.get_random_docs().await?;
        self.stream("all_docs", "All docs").await?;
        self.stream("all_docs_include_docs", "All docs w/ include_docs")
            .await?;
        self.stream("changes", "Changes").await?;
        self.single_updates().await?;
        let rows = std::mem::take(&mut self.rows);
        self.print(|out| report::write_total(out, &rows))?;
        Ok(Outcome { environment, rows })
    }

    fn print(&mut self, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<(), BenchError> {
        if let Some(lines) = &mut self.output.lines {
            write(lines)?;
            lines.flush()?;
        }
        Ok(())
    }

    fn finish(
        &mut self,
        name: &'static str,
        label: String,
        count: u64,
        begin: Instant,
    ) -> Result<(), BenchError> {
        let row = Row {
            name,
            label,
            count,
            time: begin.elapsed(),
        };
        self.output.progress.end();
        self.print(|out| report::write_row(out, &row))?;
        self.rows.push(row);
        Ok(())
    }

    fn expect_count(&self, phase: &'static str, found: u64) -> Result<(), BenchError> {
        let expected = self.options.docs;
        if found == expected {
            Ok(())
        } else {
            Err(BenchError::UnexpectedCount {
                phase,
                expected,
                found,
            })
        }
    }

    /// Bulk writes, ids descending; making the documents is part of the time, as it is in CouchDB.
    async fn add_docs(&mut self) -> Result<(), BenchError> {
        let Options {
            docs,
            batch_size,
            doc_size,
            seed,
            ..
        } = *self.options;
        let mut generator = DocGenerator::new(doc_size, seed);
        let mut batch = DocBatch::default();
        let (mut ok, mut accepted, mut left) = (0_u64, 0_u64, docs);
        self.output.progress.begin("Add docs", docs);
        let begin = Instant::now();
        while left > 0 {
            let count = left.min(batch_size);
            generator.fill((left - count + 1..=left).rev(), &mut batch);
            match self.target.bulk_docs(self.db, &batch).await? {
                WriteOutcome::Ok => ok += 1,
                WriteOutcome::Accepted => accepted += 1,
            }
            left -= count;
            self.output.progress.advance(count);
        }
        self.finish(
            "add_docs",
            format!("Add {docs} docs, ok:{ok}/accepted:{accepted}"),
            docs,
            begin,
        )
    }

    /// In a cluster: until no node has changes that others lack.
    async fn wait_for_replication(&mut self) -> Result<(), BenchError> {
        while self.target.backlog().await?.is_some() {
            self.target.pause(BACKLOG_PAUSE).await;
            match self.target.backlog().await? {
                Some(backlog) if backlog > 0 => self.print(|out| report::write_backlog(out, backlog))?,
                _ => {
                    self.target.pause(BACKLOG_PAUSE).await;
                    break;
                }
            }
        }
        Ok(())
    }

    async fn get_random_docs(&mut self) -> Result<(), BenchError> {
        let docs = self.options.docs;
        let mut random = Random::new(READ_SEED);
        self.output.progress.begin("Get random doc", docs);
        let begin = Instant::now();
        for number in 1..=docs {
            self.target.get(self.db, random.one_to(docs)).await?;
            if number % PROGRESS_STEP == 0 {
                self.output.progress.advance(PROGRESS_STEP);
            }
        }
        self.finish("get_random_doc", format!("Get random doc {docs}X"), docs, begin)
    }

    async fn stream(&mut self, name: &'static str, label: &str) -> Result<(), BenchError> {
        let docs = self.options.docs;
        self.output.progress.begin(label, docs);
        let begin = Instant::now();
        let found = match name {
            "changes" => self.target.changes(self.db).await?,
            _ => {
                self.target
                    .all_docs(self.db, name == "all_docs_include_docs")
                    .await?
            }
        };
        self.expect_count(name, found)?;
        self.finish(name, label.to_owned(), docs, begin)
    }

    async fn single_updates(&mut self) -> Result<(), BenchError> {
        let Options {
            individual_docs,
            doc_size,
            seed,
            ..
        } = *self.options;
        let mut generator = DocGenerator::new(doc_size, !seed);
        let mut doc = Vec::new();
        self.output.progress.begin("Single doc updates", individual_docs);
        let begin = Instant::now();
        for _ in 0..individual_docs {
            let id = generator.random_id().to_string();
            doc.clear();
            generator.append(&id, &mut doc);
            match self.target.put_one(self.db, &id, &doc).await? {
                WriteOutcome::Ok => {}
                WriteOutcome::Accepted => return Err(BenchError::OnlyAccepted),
            }
            self.output.progress.advance(1);
        }
        self.finish(
            "single_doc_updates",
            format!("Single doc updates {individual_docs}X"),
            individual_docs,
            begin,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::super::target::Figures;
    use super::*;
    use std::collections::BTreeMap;

    use super::super::ready;

    /// A server in memory that never waits.
    #[derive(Default)]
    struct Memory {
        dbs: BTreeMap<String, Vec<String>>,
        backlogs: Vec<Option<u64>>,
        pauses: usize,
        lose: bool,
        accept: bool,
    }

    impl Memory {
        fn db(&mut self, db: &str) -> Result<&mut Vec<String>, TargetError> {
            self.dbs
                .get_mut(db)
                .ok_or_else(|| TargetError::Unexpected(format!("no database {db}")))
        }
    }

    impl Target for Memory {
        async fn environment(&mut self) -> Result<Environment, TargetError> {
            Ok(Environment {
                version: "memory".to_owned(),
                ..Environment::default()
            })
        }

        async fn all_dbs(&mut self) -> Result<Vec<String>, TargetError> {
            Ok(self.dbs.keys().cloned().collect())
        }

        async fn create_db(&mut self, db: &str, _: Option<u32>, _: Option<u32>) -> Result<(), TargetError> {
            self.dbs.insert(db.to_owned(), Vec::new());
            Ok(())
        }

        async fn delete_db(&mut self, db: &str) -> Result<(), TargetError> {
            self.dbs.remove(db);
            Ok(())
        }

        async fn disable_compaction(&mut self, _: &str) -> Result<(), TargetError> {
            Ok(())
        }

        async fn figures(&mut self, db: &str) -> Result<Figures, TargetError> {
            Ok(Figures {
                doc_count: self.db(db)?.len() as u64,
                q: 8,
                n: 1,
            })
        }

        async fn backlog(&mut self) -> Result<Option<u64>, TargetError> {
            Ok(self.backlogs.pop().flatten())
        }

        async fn bulk_docs(&mut self, db: &str, batch: &DocBatch) -> Result<WriteOutcome, TargetError> {
            let lose = usize::from(self.lose);
            for range in &batch.docs[lose..] {
                let doc: serde_json::Value =
                    serde_json::from_slice(&batch.body[range.clone()]).expect("json");
                self.db(db)?.push(doc["_id"].as_str().expect("an id").to_owned());
            }
            Ok(if batch.docs.len() == 1 {
                WriteOutcome::Accepted
            } else {
                WriteOutcome::Ok
            })
        }

        async fn get(&mut self, db: &str, id: u64) -> Result<u64, TargetError> {
            let id = id.to_string();
            let found = self.db(db)?.contains(&id);
            if found {
                Ok(1)
            } else {
                Err(TargetError::Unexpected(id))
            }
        }

        async fn all_docs(&mut self, db: &str, _: bool) -> Result<u64, TargetError> {
            Ok(self.db(db)?.len() as u64)
        }

        async fn changes(&mut self, db: &str) -> Result<u64, TargetError> {
            Ok(self.db(db)?.len() as u64)
        }

        async fn put_one(&mut self, db: &str, id: &str, _: &[u8]) -> Result<WriteOutcome, TargetError> {
            self.db(db)?.push(id.to_owned());
            Ok(if self.accept {
                WriteOutcome::Accepted
            } else {
                WriteOutcome::Ok
            })
        }

        async fn pause(&mut self, _: Duration) {
            self.pauses += 1;
        }
    }

    const SMALL: Options = Options {
        q: Some(8),
        n: None,
        doc_size: super::super::DocSize::Small,
        docs: 7,
        batch_size: 3,
        individual_docs: 2,
        seed: 1,
    };

    fn run_small(target: &mut Memory, options: &Options) -> (Result<Outcome, BenchError>, String) {
        let mut lines = Vec::new();
        let result = {
            let output = Output {
                lines: Some(&mut lines),
                progress: Progress::hidden(),
            };
            ready(run(target, options, output))
        };
        (result, String::from_utf8(lines).expect("text"))
    }

    #[test]
    fn all_phases_run_and_clean_up() {
        let mut target = Memory::default();
        let recent = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .expect("after 1970")
            .as_micros();
        for db in [
            "fabricbenchdb-1",
            "fabricbenchdb-x",
            "other",
            &format!("fabricbenchdb-{recent}"),
        ] {
            target.dbs.insert(db.to_owned(), Vec::new());
        }
        // Popped from the end: there are peers, then 5 behind, then none behind.
        target.backlogs = vec![Some(0), Some(1), Some(5), Some(9)];
        let (outcome, lines) = run_small(&mut target, &SMALL);
        let outcome = outcome.expect("a run");
        let names: Vec<&str> = outcome.rows.iter().map(|row| row.name).collect();
        let expected = [
            "add_docs",
            "get_random_doc",
            "all_docs",
            "all_docs_include_docs",
            "changes",
            "single_doc_updates",
        ];
        assert_eq!(names, expected);
        assert_eq!(
            outcome.rows.iter().map(|row| row.count).collect::<Vec<_>>(),
            [7, 7, 7, 7, 7, 2]
        );
        assert_eq!(outcome.rows[0].label, "Add 7 docs, ok:2/accepted:1");
        assert_eq!((outcome.environment.q, outcome.environment.n), (8, 1));
        assert_eq!(target.dbs.len(), 3);
        assert!(!target.dbs.contains_key("fabricbenchdb-1"));
        assert_eq!(target.pauses, 3);
        assert!(lines.contains("    ---  mem3_sync backlog: 5\n"), "{lines}");
        assert!(
            lines.contains(" * Single doc updates 2X                  (Hz): "),
            "{lines}"
        );
        assert!(
            lines
                .lines()
                .last()
                .is_some_and(|line| line.contains("(sec):       0")),
            "{lines}"
        );
    }

    #[test]
    fn lost_documents_fail_the_run_and_the_database_goes() {
        let mut target = Memory {
            lose: true,
            ..Memory::default()
        };
        let (outcome, _) = run_small(&mut target, &SMALL);
        let error = outcome.expect_err("documents are lost");
        assert!(
            matches!(
                error,
                BenchError::UnexpectedCount {
                    phase: "doc count",
                    expected: 7,
                    found: 4
                }
            ),
            "{error}"
        );
        assert!(target.dbs.is_empty());
    }

    #[test]
    fn a_single_write_must_have_its_quorum() {
        let mut target = Memory {
            accept: true,
            ..Memory::default()
        };
        let (outcome, _) = run_small(&mut target, &SMALL);
        assert!(matches!(outcome, Err(BenchError::OnlyAccepted)));
        let (outcome, _) = run_small(
            &mut target,
            &Options {
                batch_size: 0,
                ..SMALL
            },
        );
        assert!(matches!(outcome, Err(BenchError::NoBatch)));
    }
}
