//! Streams of rows: `_all_docs`, `_local_docs` and `_changes`.

use super::documents::shard_of;
use super::{
    AllDocsArgs, ChangesArgs, ChangesEvent, ChangesStyle, Coordinator, DbError, KeyArg, Namespace, Rows,
    Since,
};
use crate::open_db::DbLease;
use crate::request::{
    ChangesRequest, ChangesRequestArgs, RUNS_AHEAD, RowCursor, RowsItem, RowsRequest, RowsRequestArgs,
    ShardFeed,
};
use crate::runtime::SpawnOptions;
use settee_engine::cluster::{
    AllDocsMerge, AllDocsMeta, AllDocsOptions, Epochs, PackedSeq, SeqEntry, ShardMap, ShardMeta, ShardSeq,
    StartSeq, calculate_start_seq, plan_workers, workers_from_zero,
};
use settee_engine::codec::json::write_json_string;
use settee_engine::db::{
    ChangesOptions, FoldCursor, FoldOptions, LocalCursor, ROW_SEPARATOR, Rendering, Snapshot,
};
use settee_engine::doc::{AttachmentData, JsonOptions};
use settee_engine::ids::{DbName, DocId, NodeName};
use settee_engine::storage::vfs::Wait;
use std::borrow::Cow;
use std::sync::Arc;
use tokio::sync::mpsc;

/// First id that is no design document.
const DESIGN_START: &[u8] = b"_design/";
/// First id behind all design documents.
const DESIGN_END: &[u8] = b"_design0";
/// Rows of a `keys` query that are read before they are given.
const KEYS_AT_ONCE: usize = 128;

/// Merged rows, in order.
pub struct RowStream {
    meta: AllDocsMeta,
    source: Source,
}

enum Source {
    Process(mpsc::Receiver<RowsItem>),
    Keys(Box<Keys>),
    Ended,
}

/// The rows of a `keys` query: each is looked up in its turn.
struct Keys {
    coordinator: Coordinator,
    map: Arc<ShardMap>,
    leases: Vec<DbLease>,
    keys: std::vec::IntoIter<KeyArg>,
    args: AllDocsArgs,
}

impl RowStream {
    /// Documents in the database; unknown for local documents.
    #[must_use]
    pub fn total_rows(&self) -> Option<u64> {
        self.meta.total_rows
    }

    /// Documents before the first row; unknown with `keys`.
    #[must_use]
    pub fn offset(&self) -> Option<u64> {
        self.meta.offset
    }

    /// The packed update sequence, when asked for.
    #[must_use]
    pub fn update_seq(&self) -> Option<&str> {
        self.meta.update_seq.as_deref()
    }

    /// The next rows; none at the end.
    pub async fn next(&mut self) -> Option<Result<Rows, DbError>> {
        let item = match &mut self.source {
            Source::Ended => return None,
            Source::Keys(keys) => keys.next().await,
            Source::Process(rows) => match rows.recv().await {
                Some(item) => item,
                None => Err(DbError::Internal("the stream of rows was cut off".to_owned())),
            },
        };
        match item {
            Ok(Some(rows)) => Some(Ok(rows)),
            Ok(None) => {
                self.source = Source::Ended;
                None
            }
            Err(error) => {
                self.source = Source::Ended;
                Some(Err(error))
            }
        }
    }
}

impl Coordinator {
    /// Documents in the order of their ids.
    ///
    /// # Errors
    /// As [`Coordinator::shards`], or what opening met.
    pub async fn all_docs(&self, db: &DbName, args: AllDocsArgs) -> Result<RowStream, DbError> {
        let map = self.shards(db).await?;
        let leases = self.leases(&map).await?;
        let bounds = fold_options(&args);
        let mut merge = new_merge(leases.len(), &args);
        let mut meta = AllDocsMeta::default();
        for (worker, lease) in leases.iter().enumerate() {
            let snapshot = lease.snapshot();
            let (bounds, namespace) = (bounds.clone(), args.namespace);
            let asked = args.keys.is_none();
            let (total, offset) = self
                .read(move |wait| shard_meta(&snapshot, &bounds, namespace, asked, wait))
                .await?;
            let snapshot = lease.snapshot();
            let update_seq = args.update_seq.then(|| self.entry(&map, worker, &snapshot));
            let shard_meta = ShardMeta {
                total: Some(total),
                offset,
                update_seq,
            };
            if let Some(whole) = merge.meta(worker, shard_meta) {
                meta = whole;
            }
        }
        if args.keys.is_some() {
            return Ok(self.keys_stream(map, leases, args, meta));
        }
        let cursors = leases.into_iter().map(|lease| {
            let cursor = FoldCursor::new(lease.snapshot(), &bounds);
            (lease, RowCursor::Docs(Box::new(cursor)))
        });
        self.rows_stream(cursors.collect(), merge, meta)
    }

    /// Local documents in the order of their ids.
    ///
    /// # Errors
    /// As [`Coordinator::all_docs`].
    pub async fn local_docs(&self, db: &DbName, args: AllDocsArgs) -> Result<RowStream, DbError> {
        let map = self.shards(db).await?;
        let leases = self.leases(&map).await?;
        let mut merge = new_merge(leases.len(), &args);
        let mut meta = AllDocsMeta::default();
        for (worker, lease) in leases.iter().enumerate() {
            let snapshot = lease.snapshot();
            let update_seq = args.update_seq.then(|| self.entry(&map, worker, &snapshot));
            if let Some(whole) = merge.meta(
                worker,
                ShardMeta {
                    total: None,
                    offset: None,
                    update_seq,
                },
            ) {
                meta = whole;
            }
        }
        if args.keys.is_some() {
            return Ok(self.keys_stream(map, leases, args, meta));
        }
        let bounds = fold_options(&args);
        let cursors = leases.into_iter().map(|lease| {
            let cursor = LocalCursor::new(&lease.snapshot(), &bounds);
            (lease, RowCursor::Locals(Box::new(cursor)))
        });
        self.rows_stream(cursors.collect(), merge, meta)
    }

    fn rows_stream(
        &self,
        cursors: Vec<(DbLease, RowCursor)>,
        merge: AllDocsMerge,
        meta: AllDocsMeta,
    ) -> Result<RowStream, DbError> {
        let (sender, rows) = mpsc::channel(RUNS_AHEAD);
        let shared = self.shared();
        let args = RowsRequestArgs {
            cursors,
            merge,
            rows: sender,
            pool: shared.pool.clone(),
            counters: Arc::clone(&shared.counters),
        };
        self.inner
            .system
            .spawn::<RowsRequest>(args, SpawnOptions::default())
            .map_err(|_| DbError::ShuttingDown)?;
        Ok(RowStream {
            meta,
            source: Source::Process(rows),
        })
    }

    fn keys_stream(
        &self,
        map: Arc<ShardMap>,
        leases: Vec<DbLease>,
        mut args: AllDocsArgs,
        meta: AllDocsMeta,
    ) -> RowStream {
        let mut keys = args.keys.take().unwrap_or_default();
        if args.descending {
            keys.reverse();
        }
        let skip = usize::try_from(args.skip).unwrap_or(usize::MAX).min(keys.len());
        keys.drain(..skip);
        keys.truncate(usize::try_from(args.limit).unwrap_or(usize::MAX));
        let meta = AllDocsMeta { offset: None, ..meta };
        let keys = Keys {
            coordinator: self.clone(),
            map,
            leases,
            keys: keys.into_iter(),
            args,
        };
        RowStream {
            meta,
            source: Source::Keys(Box::new(keys)),
        }
    }

    /// A shard's part of the packed sequence, at its snapshot.
    fn entry(&self, map: &ShardMap, worker: usize, snapshot: &Snapshot) -> SeqEntry {
        let header = snapshot.header();
        let epoch = header
            .epochs
            .first()
            .and_then(|(node, _)| NodeName::new(node).ok());
        let node = self.node_name().clone();
        SeqEntry {
            range: map.shards()[worker].range(),
            seq: ShardSeq::epoch(
                header.update_seq,
                header.uuid.as_bytes(),
                Some(&epoch.unwrap_or_else(|| node.clone())),
            ),
            node,
        }
    }

    /// The changes of a database.
    ///
    /// # Errors
    /// [`DbError::MalformedSeq`], as [`Coordinator::shards`], or what opening met.
    pub async fn changes(&self, db: &DbName, args: ChangesArgs) -> Result<ChangesStream, DbError> {
        let map = self.shards(db).await?;
        let mut shards = Vec::with_capacity(map.shards().len());
        for (worker, since) in self.start_seqs(&map, &args.since)? {
            let lease = self.lease(map.shards()[worker].name()).await?;
            // Subscribed before the snapshot is taken, so that no commit falls between.
            let updates = lease.subscribe();
            let snapshot = lease.snapshot();
            let since = if args.descending {
                0
            } else {
                start_of(since, &snapshot, self.node_name())
            };
            shards.push(ShardFeed {
                range: map.shards()[worker].range(),
                lease,
                updates,
                since,
            });
        }
        let lookups = self.lookups(&map, &args)?;
        let only_ids = match (&args.doc_ids, &lookups) {
            (Some(ids), None) => {
                let mut ids: Vec<Vec<u8>> = ids.iter().map(|id| id.as_bytes().to_vec()).collect();
                ids.sort_unstable();
                Some(Arc::from(ids))
            }
            _ => None,
        };
        let options = ChangesOptions {
            since: 0,
            descending: args.descending,
            limit: args.limit,
            all_leaves: args.style == ChangesStyle::AllDocs,
            only_design: args.filter_design,
            only_ids,
            rendering: Rendering {
                include_docs: args.include_docs,
                conflicts: args.conflicts,
                attachments: args.attachments,
                att_encoding_info: args.att_encoding_info,
            },
        };
        let (sender, events) = mpsc::channel(RUNS_AHEAD);
        let shared = self.shared();
        let request = ChangesRequestArgs {
            shards,
            node: self.node_name().clone(),
            options,
            lookups,
            feed: args.feed,
            seq_interval: args.seq_interval,
            timeout: args.timeout,
            heartbeat: args.heartbeat,
            events: sender,
            pool: shared.pool.clone(),
            counters: Arc::clone(&shared.counters),
        };
        let spawned = self
            .inner
            .system
            .spawn::<ChangesRequest>(request, SpawnOptions::default());
        spawned.map_err(|_| DbError::ShuttingDown)?;
        Ok(ChangesStream { events: Some(events) })
    }

    /// For each shard of the map that is walked: from where.
    fn start_seqs(&self, map: &ShardMap, since: &Since) -> Result<Vec<(usize, From)>, DbError> {
        let no_ring = |_| DbError::Internal("the shards do not cover the ring".to_owned());
        let here = |node: &NodeName| node == self.node_name();
        let (workers, now) = match since {
            Since::Zero | Since::Now => (
                workers_from_zero(map, here, self.node_name()).map_err(no_ring)?,
                *since == Since::Now,
            ),
            Since::Seq(text) => {
                let vector = PackedSeq::parse(text).map_err(|_| DbError::MalformedSeq)?;
                (
                    plan_workers(&vector, map, here, |_, _| None).map_err(no_ring)?,
                    false,
                )
            }
        };
        let from = |worker: settee_engine::cluster::FeedWorker| {
            let from = if now {
                From::Now
            } else {
                From::Vector(worker.start)
            };
            (worker.shard, from)
        };
        Ok(workers.into_iter().map(from).collect())
    }

    /// The ids of each shard, when there are few enough to be looked up.
    fn lookups(&self, map: &ShardMap, args: &ChangesArgs) -> Result<Option<Vec<Vec<DocId>>>, DbError> {
        let Some(ids) = &args.doc_ids else { return Ok(None) };
        if ids.len() > self.shared().options.doc_ids_threshold || args.descending {
            return Ok(None);
        }
        let mut lookups = vec![Vec::new(); map.shards().len()];
        for id in ids {
            // What can be no id has no changes.
            let Ok(id) = DocId::new(id) else { continue };
            let shard = shard_of(map, &id)?;
            if !lookups[shard].contains(&id) {
                lookups[shard].push(id);
            }
        }
        Ok(Some(lookups))
    }
}

/// From where a shard is walked.
enum From {
    /// What comes after the call.
    Now,
    /// What a packed sequence says, or zero.
    Vector(settee_engine::cluster::StartVector),
}

/// The sequence behind which the walk of a shard begins; 0 where the sequence is not of this file.
fn start_of(from: From, snapshot: &Snapshot, node: &NodeName) -> u64 {
    let header = snapshot.header();
    let From::Vector(vector) = from else {
        return header.update_seq;
    };
    let epochs: Vec<(NodeName, u64)> = header
        .epochs
        .iter()
        .filter_map(|(name, seq)| Some((NodeName::new(name).ok()?, *seq)))
        .collect();
    let epochs: Epochs<'_> = &epochs;
    match calculate_start_seq(node, header.uuid.as_bytes(), epochs, &vector) {
        StartSeq::At(seq) => seq.min(header.update_seq),
        StartSeq::Rewind(reason) => {
            tracing::warn!(file = %snapshot.file().path().display(), ?reason, "a changes feed begins at 0 again");
            0
        }
        StartSeq::SplitTarget { .. } | StartSeq::Source { .. } => {
            tracing::warn!(file = %snapshot.file().path().display(), "a changes feed begins at 0: the file is another one");
            0
        }
    }
}

fn new_merge(workers: usize, args: &AllDocsArgs) -> AllDocsMerge {
    AllDocsMerge::new(
        workers,
        AllDocsOptions {
            descending: args.descending,
            skip: args.skip,
            limit: args.limit,
        },
    )
}

/// The bounds of the walk over each shard.
fn fold_options(args: &AllDocsArgs) -> FoldOptions {
    let mut start = args.start_key.as_ref().map(|key| key.as_bytes().to_vec());
    let mut end = args.end_key.as_ref().map(|key| key.as_bytes().to_vec());
    let mut inclusive_end = args.inclusive_end;
    if args.namespace == Namespace::Design {
        let (low, high) = match args.descending {
            false => (&mut start, &mut end),
            true => (&mut end, &mut start),
        };
        if low.as_deref().is_none_or(|low| low < DESIGN_START) {
            *low = Some(DESIGN_START.to_vec());
        }
        if high.as_deref().is_none_or(|high| high >= DESIGN_END) {
            *high = Some(DESIGN_END.to_vec());
            inclusive_end |= args.descending;
        }
    }
    FoldOptions {
        start,
        end,
        inclusive_end,
        descending: args.descending,
        limit: args.skip.saturating_add(args.limit),
        rendering: Rendering {
            include_docs: args.include_docs,
            conflicts: args.conflicts,
            attachments: args.attachments,
            att_encoding_info: args.att_encoding_info,
        },
    }
}

/// Documents in a shard, and those before the first row.
fn shard_meta(
    snapshot: &Snapshot,
    bounds: &FoldOptions,
    namespace: Namespace,
    with_offset: bool,
    wait: Wait,
) -> Result<(u64, Option<u64>), settee_engine::db::DbError> {
    let (before_all, total) = match namespace {
        Namespace::All => (0, snapshot.counts()?.live),
        Namespace::Design => {
            let before = snapshot.count_docs_before(DESIGN_START, wait)?;
            (
                before,
                snapshot
                    .count_docs_before(DESIGN_END, wait)?
                    .saturating_sub(before),
            )
        }
    };
    if !with_offset {
        return Ok((total, None));
    }
    let offset = match (&bounds.start, bounds.descending) {
        (None, _) => 0,
        (Some(start), false) => snapshot
            .count_docs_before(start, wait)?
            .saturating_sub(before_all),
        (Some(start), true) => {
            let up_to = snapshot.count_docs_up_to(start, wait)?.saturating_sub(before_all);
            total.saturating_sub(up_to)
        }
    };
    Ok((total, Some(offset.min(total))))
}

impl Keys {
    async fn next(&mut self) -> RowsItem {
        let mut bytes = Vec::new();
        let mut count = 0;
        while count < KEYS_AT_ONCE {
            let Some(key) = self.keys.next() else { break };
            if count > 0 {
                bytes.extend_from_slice(ROW_SEPARATOR);
            }
            self.row(key, &mut bytes).await?;
            count += 1;
        }
        Ok((count > 0).then(|| Rows {
            bytes: bytes.into(),
            count,
        }))
    }

    async fn row(&self, key: KeyArg, out: &mut Vec<u8>) -> Result<(), DbError> {
        let id = match key {
            KeyArg::Id(id) => id,
            KeyArg::Other(json) => {
                not_found(json.as_bytes(), out);
                return Ok(());
            }
        };
        let mut text = Vec::new();
        write_json_string(&mut text, id.as_bytes());
        let wanted = self.args.namespace == Namespace::All || id.as_bytes().starts_with(DESIGN_START);
        let Some(id) = DocId::new(&id).ok().filter(|_| wanted) else {
            not_found(&text, out);
            return Ok(());
        };
        let snapshot = self.leases[shard_of(&self.map, &id)?].snapshot();
        let args = self.args.clone();
        let row = self
            .coordinator
            .read(move |wait| keyed_row(&snapshot, &id, &text, &args, wait))
            .await?;
        out.extend_from_slice(&row);
        Ok(())
    }
}

fn not_found(key: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"key\":");
    out.extend_from_slice(key);
    out.extend_from_slice(b",\"error\":\"not_found\"}");
}

fn keyed_row(
    snapshot: &Snapshot,
    id: &DocId,
    key: &[u8],
    args: &AllDocsArgs,
    wait: Wait,
) -> Result<Vec<u8>, settee_engine::db::DbError> {
    use settee_engine::db::{DocLookup, ReadDoc};
    let mut out = Vec::new();
    let what = ReadDoc {
        conflicts: args.conflicts,
        ..ReadDoc::default()
    };
    let DocLookup::Found(found) = snapshot.open_doc(id, &what, wait)? else {
        not_found(key, &mut out);
        return Ok(out);
    };
    out.extend_from_slice(b"{\"id\":");
    out.extend_from_slice(key);
    out.extend_from_slice(b",\"key\":");
    out.extend_from_slice(key);
    out.extend_from_slice(b",\"value\":{\"rev\":\"");
    if let Some(rev) = found.doc.rev() {
        rev.write_text(&mut out);
    }
    out.push(b'"');
    if found.doc.deleted {
        out.extend_from_slice(b",\"deleted\":true");
    }
    out.push(b'}');
    match (args.include_docs, found.doc.deleted) {
        (false, _) => {}
        (true, true) => out.extend_from_slice(b",\"doc\":null"),
        (true, false) => {
            let mut bodies = Vec::new();
            if args.attachments {
                for attachment in &found.doc.atts {
                    bodies.push(snapshot.attachment_bytes(attachment, wait)?);
                }
            }
            let options = JsonOptions {
                conflicts: &found.conflicts,
                att_encoding_info: args.att_encoding_info,
                ..JsonOptions::default()
            };
            out.extend_from_slice(b",\"doc\":");
            found
                .doc
                .write_json_with(&mut out, &options, |index, _| match bodies.get(index) {
                    Some(body) => AttachmentData::Inline(Cow::Borrowed(body)),
                    None => AttachmentData::Stub,
                })?;
        }
    }
    out.push(b'}');
    Ok(out)
}

/// The events of a changes feed.
pub struct ChangesStream {
    events: Option<mpsc::Receiver<Result<ChangesEvent, DbError>>>,
}

impl ChangesStream {
    /// The next event; none behind the end.
    pub async fn next(&mut self) -> Option<Result<ChangesEvent, DbError>> {
        let event = match self.events.as_mut()?.recv().await {
            Some(event) => event,
            None => Err(DbError::Internal("the changes feed was cut off".to_owned())),
        };
        if matches!(event, Err(_) | Ok(ChangesEvent::End { .. })) {
            self.events = None;
        }
        Some(event)
    }
}
