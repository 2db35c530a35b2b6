//! Attachment bytes in both directions, chunk by chunk.

use super::documents::shard_of;
use super::{Coordinator, DbError, OpenedDoc};
use crate::db::DbMsg;
use crate::open_db::DbLease;
use bytes::Bytes;
use futures_util::Stream;
use futures_util::future::BoxFuture;
use settee_engine::db::{DbError as EngineError, Snapshot};
use settee_engine::doc::stream::{Announced, StreamOptions, StreamWriter};
use settee_engine::doc::{Attachment, Encoding};
use settee_engine::ids::{DbName, DocId};
use settee_engine::storage::vfs::Wait;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

impl Coordinator {
    /// The bytes of an attachment as they are stored, encoding untouched.
    ///
    /// # Errors
    /// As [`Coordinator::shards`]; what reading meets comes in the stream.
    pub async fn attachment(
        &self,
        db: &DbName,
        doc: &OpenedDoc,
        index: usize,
    ) -> Result<AttachmentStream, DbError> {
        self.attachment_range(db, doc, index, 0..u64::MAX).await
    }

    /// A range of the stored bytes of an attachment.
    ///
    /// # Errors
    /// As [`Coordinator::attachment`].
    pub async fn attachment_range(
        &self,
        db: &DbName,
        doc: &OpenedDoc,
        index: usize,
        range: Range<u64>,
    ) -> Result<AttachmentStream, DbError> {
        let map = self.shards(db).await?;
        let attachment = doc
            .doc
            .atts
            .get(index)
            .ok_or_else(|| DbError::Internal("no such attachment".to_owned()))?;
        let shard = map
            .shards()
            .get(doc.shard)
            .ok_or_else(|| DbError::Internal("no such shard".to_owned()))?;
        let lease = self.lease(shard.name()).await?;
        Ok(AttachmentStream::new(self.clone(), lease, attachment, range))
    }

    /// Takes the bytes of an upload as they come; the result goes into an edit of the same document.
    ///
    /// # Errors
    /// As [`Coordinator::shards`], or what opening the shard met.
    pub async fn attachment_sink(
        &self,
        db: &DbName,
        id: &DocId,
        name: &str,
        content_type: &str,
        announced: Announced,
    ) -> Result<AttachmentSink, DbError> {
        let map = self.shards(db).await?;
        let lease = self.lease(map.shards()[shard_of(&map, id)?].name()).await?;
        let options = &self.shared().prepare.streams;
        let writer = StreamWriter::new(options, content_type, announced.encoding);
        Ok(AttachmentSink {
            coordinator: self.clone(),
            lease,
            name: name.to_owned(),
            content_type: content_type.to_owned(),
            announced,
            writer,
            chunks: 0,
            stream: Vec::new(),
        })
    }
}

/// An upload on its way into a shard file. Dropping it leaves bytes in the file that no document names; compaction
/// removes them.
pub struct AttachmentSink {
    coordinator: Coordinator,
    lease: DbLease,
    name: String,
    content_type: String,
    announced: Announced,
    writer: StreamWriter,
    /// Chunks that the writer has handed out.
    chunks: u64,
    stream: Vec<(u64, u64)>,
}

impl AttachmentSink {
    /// Bytes taken so far.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.writer.len()
    }

    /// Whether no byte has been taken.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.writer.is_empty()
    }

    /// Takes the next bytes.
    ///
    /// # Errors
    /// What writing met.
    pub async fn write(&mut self, data: &[u8]) -> Result<(), DbError> {
        let mut chunks = Vec::new();
        let Ok(()) = self
            .writer
            .write(data, &mut collect(&mut chunks, &mut self.chunks));
        self.append_all(chunks).await
    }

    /// Ends the upload. Keep the lease until the edit that names the attachment is written: as long as the shard is open,
    /// its next commit covers these bytes, but a shard that is closed and opened again cuts them off.
    ///
    /// # Errors
    /// When the bytes are not those that were announced, or what writing met.
    pub async fn finish(mut self) -> Result<(Attachment, DbLease), DbError> {
        let mut chunks = Vec::new();
        let writer = std::mem::replace(
            &mut self.writer,
            StreamWriter::new(&StreamOptions::default(), "", Encoding::Identity),
        );
        let Ok(end) = writer.finish(&mut collect(&mut chunks, &mut self.chunks));
        self.append_all(chunks).await?;
        let mut attachment = end.into_attachment(&self.name, &self.content_type, 0, &self.announced)?;
        attachment.stream = self.stream;
        Ok((attachment, self.lease))
    }

    async fn append_all(&mut self, chunks: Vec<Vec<u8>>) -> Result<(), DbError> {
        for chunk in chunks {
            let at = append(&self.coordinator, &self.lease, chunk).await?;
            self.stream.push(at);
        }
        Ok(())
    }
}

/// A sink that keeps chunks until they can be sent; their positions are only counted.
fn collect<'a>(
    chunks: &'a mut Vec<Vec<u8>>,
    count: &'a mut u64,
) -> impl FnMut(&[u8]) -> Result<u64, Infallible> + 'a {
    move |chunk| {
        chunks.push(chunk.to_vec());
        *count += 1;
        Ok(*count)
    }
}

async fn append(coordinator: &Coordinator, lease: &DbLease, chunk: Vec<u8>) -> Result<(u64, u64), DbError> {
    let chunk = Bytes::from(chunk);
    coordinator
        .tell(lease, |reply| DbMsg::AppendAttachment(chunk, reply))
        .await
}

/// The stored bytes of an attachment, one chunk of the file after the other.
pub struct AttachmentStream {
    coordinator: Coordinator,
    /// Keeps the shard open while the stream lives.
    _lease: DbLease,
    snapshot: Arc<Snapshot>,
    chunks: VecDeque<Part>,
    reading: Option<BoxFuture<'static, Result<Bytes, DbError>>>,
}

/// A chunk of the file, and which of its bytes are wanted.
struct Part {
    position: u64,
    length: u64,
    wanted: Range<usize>,
}

impl AttachmentStream {
    fn new(coordinator: Coordinator, lease: DbLease, attachment: &Attachment, range: Range<u64>) -> Self {
        let mut chunks = VecDeque::with_capacity(attachment.stream.len());
        let mut before = 0u64;
        for (position, length) in &attachment.stream {
            let begin = range.start.saturating_sub(before).min(*length);
            let end = range.end.saturating_sub(before).min(*length);
            if begin < end {
                let wanted =
                    usize::try_from(begin).unwrap_or(usize::MAX)..usize::try_from(end).unwrap_or(usize::MAX);
                chunks.push_back(Part {
                    position: *position,
                    length: *length,
                    wanted,
                });
            }
            before = before.saturating_add(*length);
        }
        let snapshot = lease.snapshot();
        Self {
            coordinator,
            _lease: lease,
            snapshot,
            chunks,
            reading: None,
        }
    }

    /// All bytes at once.
    ///
    /// # Errors
    /// What reading met.
    pub async fn read_all(mut self) -> Result<Vec<u8>, DbError> {
        let mut all = Vec::new();
        while let Some(part) = self.chunks.pop_front() {
            all.extend_from_slice(
                &read_part(self.coordinator.clone(), Arc::clone(&self.snapshot), part).await?,
            );
        }
        Ok(all)
    }
}

async fn read_part(coordinator: Coordinator, snapshot: Arc<Snapshot>, part: Part) -> Result<Bytes, DbError> {
    let Part {
        position,
        length,
        wanted,
    } = part;
    let read = move |wait: Wait| -> Result<Vec<u8>, EngineError> {
        let mut out = Vec::new();
        snapshot.read_attachment_chunk(position, length, wait, &mut out)?;
        Ok(out)
    };
    let data = Bytes::from(coordinator.read(read).await?);
    Ok(data.slice(wanted.start.min(data.len())..wanted.end.min(data.len())))
}

impl Stream for AttachmentStream {
    type Item = Result<Bytes, DbError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.reading.is_none() {
            let Some(part) = self.chunks.pop_front() else {
                return Poll::Ready(None);
            };
            let read = read_part(self.coordinator.clone(), Arc::clone(&self.snapshot), part);
            self.reading = Some(Box::pin(read));
        }
        let Some(reading) = self.reading.as_mut() else {
            return Poll::Ready(None);
        };
        match reading.as_mut().poll(cx) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(done) => {
                self.reading = None;
                if done.is_err() {
                    self.chunks.clear();
                }
                Poll::Ready(Some(done))
            }
        }
    }
}
