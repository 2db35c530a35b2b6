//! Reading the documents of a large request on several threads.

use super::{Coordinator, DbError, pool_failed};
use bytes::Bytes;
use futures_util::future::try_join_all;
use settee_engine::doc::{DocEdit, DocError, DocLimits, EditOptions, IdSource, parse_edits};
use settee_engine::ids::DocId;
use std::ops::Range;
use std::sync::Arc;

/// Bytes of documents that one job reads at the least; what is shorter is not worth another thread.
const JOB_BYTES_MIN: usize = 32 * 1024;
/// Jobs that one request is cut into at the most.
const JOBS_MAX: usize = 16;

/// Documents as JSON, each in its place in one text.
#[derive(Clone, Debug, Default)]
pub struct RawDocs {
    /// The text.
    pub text: Bytes,
    /// Where in the text each document stands.
    pub docs: Vec<Range<usize>>,
}

/// How the documents of a request are read.
#[derive(Clone)]
pub struct ParseDocs {
    /// Whether they are new edits; replicated ones must name their revisions.
    pub new_edits: bool,
    /// Bounds.
    pub limits: DocLimits,
    /// Makes the id of a document that has none; without it, such a document is refused.
    pub make_id: Option<Arc<dyn Fn() -> DocId + Send + Sync>>,
}

impl Default for ParseDocs {
    fn default() -> Self {
        Self {
            new_edits: true,
            limits: DocLimits::default(),
            make_id: None,
        }
    }
}

impl std::fmt::Debug for ParseDocs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ParseDocs")
            .field("new_edits", &self.new_edits)
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}

impl Coordinator {
    /// Reads documents into edits, in their order; large requests on the blocking pool, so that they take all cores and do
    /// not hold up this one's event loop.
    ///
    /// # Errors
    /// Why the first bad one is no document.
    pub async fn parse_docs(&self, raw: RawDocs, options: ParseDocs) -> Result<Vec<DocEdit>, DbError> {
        let runs = cut(&raw.docs);
        if runs.len() < 2 {
            return Ok(parse_run(&raw, 0..raw.docs.len(), &options)?);
        }
        let total = raw.docs.len();
        let raw = Arc::new(raw);
        let jobs = runs.into_iter().map(|run| {
            let (raw, options) = (Arc::clone(&raw), options.clone());
            self.shared().pool.run(move || parse_run(&raw, run, &options))
        });
        let parsed = try_join_all(jobs).await.map_err(pool_failed)?;
        let mut edits = Vec::with_capacity(total);
        for run in parsed {
            edits.append(&mut run?);
        }
        Ok(edits)
    }
}

fn parse_run(raw: &RawDocs, run: Range<usize>, options: &ParseDocs) -> Result<Vec<DocEdit>, DocError> {
    let options = EditOptions {
        id: match &options.make_id {
            Some(make) => IdSource::BodyOr(&**make),
            None => IdSource::Body,
        },
        new_edits: options.new_edits,
        limits: options.limits,
    };
    let docs = raw.docs.get(run).unwrap_or_default();
    let texts = docs
        .iter()
        .map(|doc| raw.text.get(doc.clone()).unwrap_or_default());
    parse_edits(texts, &options)
}

/// Cuts documents into runs of about the same number of bytes.
fn cut(docs: &[Range<usize>]) -> Vec<Range<usize>> {
    let total: usize = docs.iter().map(ExactSizeIterator::len).sum();
    let jobs = (total / JOB_BYTES_MIN).clamp(1, JOBS_MAX);
    let share = total / jobs;
    let mut runs = Vec::with_capacity(jobs);
    let (mut first, mut bytes) = (0, 0);
    for (index, doc) in docs.iter().enumerate() {
        bytes += doc.len();
        if bytes >= share {
            runs.push(first..index + 1);
            (first, bytes) = (index + 1, 0);
        }
    }
    if first < docs.len() {
        runs.push(first..docs.len());
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_hold_every_document_once_and_about_the_same_number_of_bytes() {
        assert!(cut(&[]).is_empty());
        assert_eq!(cut(&[0..10, 11..20]), [Range { start: 0, end: 2 }]);
        let docs: Vec<Range<usize>> = (0..1000).map(|index| index * 400..index * 400 + 399).collect();
        let runs = cut(&docs);
        assert!((2..=JOBS_MAX + 1).contains(&runs.len()), "{}", runs.len());
        let joined: Vec<usize> = runs.iter().cloned().flatten().collect();
        assert_eq!(joined, (0..1000).collect::<Vec<_>>());
        let lengths: Vec<usize> = runs.iter().map(ExactSizeIterator::len).collect();
        assert!(
            lengths[..lengths.len() - 1]
                .iter()
                .all(|length| *length == lengths[0]),
            "{lengths:?}"
        );
        // One document larger than all others takes a run of its own.
        let uneven = [0..10, 10..1_000_000, 1_000_000..1_000_010];
        assert_eq!(cut(&uneven), [0..2, 2..3]);
    }
}
