//! The process behind `_changes`: passes over the shards, and waiting between them.
//!
//! A pass walks every shard from where the vector stands to its snapshot. A normal feed ends after one pass; the others
//! wait for a commit of any shard and make another, until their limit, their timeout, or the end of the database.

use super::{RUN_BYTES, RUNS_AHEAD, tell_damaged};
use crate::coordinator::{ChangesEvent, DbError, Feed, Rows, read_failed};
use crate::open_db::{DbLease, UpdateEvent};
use crate::runtime::{BlockingPool, Ctx, Info, Next, PoolError, Process, Reason, Snapshot, TimerRef};
use crate::stats::Counters;
use futures_util::future::select_all;
use settee_engine::cluster::{
    ChangeBatch, ChangeRows, ChangesMerge, ChangesOptions as MergeOptions, ChangesState, PackedSeq, SeqEntry,
    ShardSeq,
};
use settee_engine::db::{self, ChangesCursor, ChangesOptions, ROW_SEPARATOR};
use settee_engine::ids::{DocId, NodeName, ShardRange};
use settee_engine::storage::vfs::Wait;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::{OwnedPermit, Sender, error::TrySendError};
use tokio::sync::watch;

/// Rows of the first batch of each shard; later ones are larger.
const FIRST_BATCH_ROWS: usize = 128;

/// Token of the timer of a waiting feed.
const WAITING: u64 = 0;

/// One shard of a feed.
pub struct ShardFeed {
    /// Keeps the shard open.
    pub lease: DbLease,
    /// Told of commits.
    pub updates: watch::Receiver<UpdateEvent>,
    /// Its range.
    pub range: ShardRange,
    /// Behind which sequence the feed begins.
    pub since: u64,
}

/// What a changes process is made from.
pub struct ChangesRequestArgs {
    /// The shards, in the order of the vector.
    pub shards: Vec<ShardFeed>,
    /// The node whose copies are asked.
    pub node: NodeName,
    /// How each shard is walked; `since` is set for each.
    pub options: ChangesOptions,
    /// With few enough ids: the ids of each shard, which are looked up instead of walking.
    pub lookups: Option<Vec<Vec<DocId>>>,
    /// When the feed ends.
    pub feed: Feed,
    /// Only every n-th row carries a sequence.
    pub seq_interval: u64,
    /// How long a feed without heartbeat waits.
    pub timeout: Duration,
    /// How often a waiting feed says that it lives.
    pub heartbeat: Option<Duration>,
    /// Where events go.
    pub events: Sender<Result<ChangesEvent, DbError>>,
    /// Where batches are made.
    pub pool: BlockingPool,
    /// Counters of the node.
    pub counters: Arc<Counters>,
}

/// Messages of a changes process, all from itself.
pub enum ChangesMsg {
    /// A batch is made; the walk comes back with it.
    Batch {
        /// Index of the shard.
        shard: usize,
        /// The walk, and what it brought.
        made: Box<Result<Made, db::DbError>>,
    },
    /// The pool did not make a batch.
    Lost(PoolError),
    /// The client has room for another event.
    Room(OwnedPermit<Result<ChangesEvent, DbError>>),
    /// A shard was committed to, or deleted.
    Updated(UpdateEvent),
    /// The client is gone.
    Gone,
}

/// What a job brings.
pub struct Made {
    walk: Walk,
    batch: Option<ChangeBatch>,
    damaged: Vec<db::DocDamage>,
}

/// A walk over one shard, in one pass.
enum Walk {
    /// Not begun: the snapshot is taken when it begins.
    New,
    Cursor(Box<ChangesCursor>),
    /// All looked-up documents came in one batch; the walk ends at this sequence.
    LookedUp(u64),
}

/// The process.
pub struct ChangesRequest {
    args: ChangesRequestArgs,
    merge: ChangesMerge,
    walks: Vec<Option<Walk>>,
    rows: ChangeRows,
    rows_sent: u64,
    outbox: VecDeque<Result<ChangesEvent, DbError>>,
    waiting_for_room: bool,
    pass: Pass,
    timer: Option<TimerRef>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Pass {
    Walking,
    /// Waiting for a commit.
    Waiting,
    /// The last event is in the outbox.
    Over,
}

impl Process for ChangesRequest {
    type Args = ChangesRequestArgs;
    type Msg = ChangesMsg;
    const NAME: &'static str = "changes_request";

    fn init(args: ChangesRequestArgs, ctx: &mut Ctx<Self>) -> Result<Self, Reason> {
        let entries = args.shards.iter().map(|shard| SeqEntry {
            node: args.node.clone(),
            range: shard.range,
            seq: form(&shard.lease.snapshot(), shard.since, &args.node),
        });
        let vector = PackedSeq {
            entries: entries.collect(),
        };
        let merge = ChangesMerge::new(
            vector,
            MergeOptions {
                limit: args.options.limit,
                seq_interval: args.seq_interval,
            },
        );
        let events = args.events.clone();
        ctx.spawn_future(async move { events.closed().await }, |()| ChangesMsg::Gone);
        let mut process = Self {
            args,
            merge,
            walks: Vec::new(),
            rows: ChangeRows::default(),
            rows_sent: 0,
            outbox: VecDeque::new(),
            waiting_for_room: false,
            pass: Pass::Walking,
            timer: None,
        };
        process.begin_pass(ctx);
        process.ask_idle(ctx);
        Ok(process)
    }

    fn handle(&mut self, msg: ChangesMsg, ctx: &mut Ctx<Self>) -> Next {
        match msg {
            ChangesMsg::Batch { shard, made } => match *made {
                Ok(made) => self.take(shard, made, ctx),
                Err(error) => self.end_with(Err(read_failed(&error))),
            },
            ChangesMsg::Lost(error) => self.end_with(Err(DbError::Internal(error.to_string()))),
            ChangesMsg::Room(permit) => {
                self.waiting_for_room = false;
                if let Some(event) = self.outbox.pop_front() {
                    permit.send(event);
                }
            }
            ChangesMsg::Updated(UpdateEvent::Updated(_)) if self.pass == Pass::Waiting => {
                self.begin_pass(ctx)
            }
            ChangesMsg::Updated(UpdateEvent::Deleted) if self.pass == Pass::Waiting => self.end(),
            ChangesMsg::Updated(_) => {}
            ChangesMsg::Gone => return Next::Stop(Reason::Normal),
        }
        self.give(ctx)
    }

    fn handle_info(&mut self, info: Info, ctx: &mut Ctx<Self>) -> Next {
        if info != Info::Timer(WAITING) || self.pass != Pass::Waiting {
            return Next::Continue;
        }
        match self.args.heartbeat {
            Some(heartbeat) => {
                // A client that does not take its heartbeats needs no more of them.
                if self.outbox.is_empty() {
                    self.outbox.push_back(Ok(ChangesEvent::Heartbeat));
                }
                self.timer = Some(ctx.send_after(heartbeat, WAITING));
            }
            None => self.end(),
        }
        self.give(ctx)
    }

    fn snapshot(&self) -> Snapshot {
        Snapshot::default()
            .with("rows", self.rows_sent)
            .with("waiting", self.pass == Pass::Waiting)
    }
}

/// The shard's part of the vector.
fn form(snapshot: &db::Snapshot, seq: u64, node: &NodeName) -> ShardSeq {
    let header = snapshot.header();
    let epoch = header
        .epochs
        .iter()
        .find(|(_, begin)| seq >= *begin)
        .or(header.epochs.last());
    let epoch = epoch.and_then(|(name, _)| NodeName::new(name).ok());
    ShardSeq::epoch(seq, header.uuid.as_bytes(), Some(epoch.as_ref().unwrap_or(node)))
}

impl ChangesRequest {
    fn begin_pass(&mut self, ctx: &mut Ctx<Self>) {
        if let Some(timer) = self.timer.take() {
            ctx.cancel(timer);
        }
        self.pass = Pass::Walking;
        let left = self.merge.limit_left();
        let vector = self.merge.vector();
        for (shard, entry) in self.args.shards.iter_mut().zip(&vector.entries) {
            shard.since = entry.seq.seq();
            shard.updates.mark_unchanged();
        }
        let options = MergeOptions {
            limit: left,
            seq_interval: self.args.seq_interval,
        };
        self.merge = ChangesMerge::new(vector, options);
        self.walks = self.args.shards.iter().map(|_| Some(Walk::New)).collect();
    }

    /// Asks every shard that is idle for its next batch, as long as the client keeps up.
    fn ask_idle(&mut self, ctx: &mut Ctx<Self>) {
        if self.pass != Pass::Walking || self.outbox.len() >= RUNS_AHEAD {
            return;
        }
        for shard in 0..self.walks.len() {
            if let Some(walk) = self.walks[shard].take() {
                self.ask(shard, walk, ctx);
            }
        }
    }

    fn ask(&mut self, shard: usize, walk: Walk, ctx: &mut Ctx<Self>) {
        let rows_max = if matches!(walk, Walk::New) {
            FIRST_BATCH_ROWS
        } else {
            db::BATCH_ROWS_MAX
        };
        let feed = &self.args.shards[shard];
        // One more than the limit: the row behind it tells how much is pending.
        let limit = self.merge.limit_left().saturating_add(1);
        let options = ChangesOptions {
            since: feed.since,
            limit,
            ..self.args.options.clone()
        };
        let snapshot = feed.lease.snapshot();
        let ids = self.args.lookups.as_ref().map(|lookups| lookups[shard].clone());
        let job = move || make(walk, snapshot, options, ids, rows_max);
        let pool = self.args.pool.clone();
        ctx.spawn_future(async move { pool.run(job).await }, move |made| match made {
            Ok(made) => ChangesMsg::Batch {
                shard,
                made: Box::new(made),
            },
            Err(error) => ChangesMsg::Lost(error),
        });
    }

    fn take(&mut self, shard: usize, made: Made, ctx: &mut Ctx<Self>) {
        tell_damaged(&self.args.counters, &made.damaged);
        if self.pass != Pass::Walking {
            return;
        }
        let mut state = match &made.batch {
            Some(batch) => self.merge.push(shard, batch, ROW_SEPARATOR, &mut self.rows),
            None => ChangesState::More,
        };
        let end = match (&made.walk, &made.batch) {
            (Walk::Cursor(cursor), None) => Some((cursor.end_seq(), cursor.pending())),
            (Walk::LookedUp(seq), _) => Some((*seq, 0)),
            _ => None,
        };
        match end {
            Some((seq, pending)) => {
                let snapshot = self.args.shards[shard].lease.snapshot();
                state = self
                    .merge
                    .complete(shard, &form(&snapshot, seq, &self.args.node), pending);
            }
            None if state == ChangesState::More => {
                self.walks[shard] = Some(made.walk);
            }
            None => {}
        }
        if self.rows.bytes.len() >= RUN_BYTES || state == ChangesState::Done {
            self.flush();
        }
        if state == ChangesState::Done {
            self.pass_done(ctx);
        }
    }

    /// Puts the rows that are merged into the outbox.
    fn flush(&mut self) {
        let rows = std::mem::take(&mut self.rows);
        if !rows.rows.is_empty() {
            self.rows_sent += rows.rows.len() as u64;
            let rows = Rows {
                bytes: rows.bytes.into(),
                count: rows.rows.len(),
            };
            self.outbox.push_back(Ok(ChangesEvent::Rows(rows)));
        }
    }

    fn pass_done(&mut self, ctx: &mut Ctx<Self>) {
        let over = match self.args.feed {
            Feed::Normal => true,
            Feed::Longpoll => self.rows_sent > 0 || self.merge.limit_left() == 0,
            Feed::Continuous => self.merge.limit_left() == 0,
        };
        if over || self.args.options.descending {
            return self.end();
        }
        self.pass = Pass::Waiting;
        self.outbox.push_back(Ok(ChangesEvent::Waiting));
        let wait = self.args.heartbeat.unwrap_or(self.args.timeout);
        self.timer = Some(ctx.send_after(wait, WAITING));
        let mut updates: Vec<watch::Receiver<UpdateEvent>> = self
            .args
            .shards
            .iter()
            .map(|shard| shard.updates.clone())
            .collect();
        let since: Vec<u64> = self
            .merge
            .vector()
            .entries
            .iter()
            .map(|entry| entry.seq.seq())
            .collect();
        let changed = async move {
            let waits = updates.iter_mut().zip(since).map(|(updates, since)| {
                Box::pin(async move {
                    let new = |event: &UpdateEvent| match event {
                        UpdateEvent::Updated(seq) => *seq > since,
                        UpdateEvent::Deleted => true,
                    };
                    updates
                        .wait_for(new)
                        .await
                        .map_or(UpdateEvent::Deleted, |event| *event)
                })
            });
            select_all(waits).await.0
        };
        ctx.spawn_future(changed, ChangesMsg::Updated);
    }

    fn end(&mut self) {
        self.flush();
        let end = self.merge.end();
        let event = ChangesEvent::End {
            last_seq: end.last_seq,
            pending: end.pending.unwrap_or(0),
        };
        self.end_with(Ok(event));
    }

    fn end_with(&mut self, last: Result<ChangesEvent, DbError>) {
        self.pass = Pass::Over;
        self.outbox.push_back(last);
    }

    /// Hands on what is in the outbox, as far as the client has room.
    fn give(&mut self, ctx: &mut Ctx<Self>) -> Next {
        while !self.waiting_for_room && !self.outbox.is_empty() {
            match self.args.events.clone().try_reserve_owned() {
                Ok(permit) => {
                    if let Some(event) = self.outbox.pop_front() {
                        permit.send(event);
                    }
                }
                Err(TrySendError::Full(events)) => {
                    self.waiting_for_room = true;
                    let reserved = async move { events.reserve_owned().await };
                    ctx.spawn_future(reserved, |permit| {
                        permit.map_or(ChangesMsg::Gone, ChangesMsg::Room)
                    });
                }
                Err(TrySendError::Closed(_)) => return Next::Stop(Reason::Normal),
            }
        }
        if self.pass == Pass::Over && self.outbox.is_empty() {
            return Next::Stop(Reason::Normal);
        }
        self.ask_idle(ctx);
        Next::Continue
    }
}

/// Makes one batch; runs on the blocking pool.
fn make(
    walk: Walk,
    snapshot: Arc<db::Snapshot>,
    options: ChangesOptions,
    ids: Option<Vec<DocId>>,
    rows_max: usize,
) -> Result<Made, db::DbError> {
    if let Some(ids) = ids {
        let end = if options.descending {
            options.since
        } else {
            snapshot.header().update_seq
        };
        let (batch, damaged) = snapshot.changes_of(&ids, &options, Wait::Yes)?;
        return Ok(Made {
            walk: Walk::LookedUp(end),
            batch: Some(batch),
            damaged,
        });
    }
    let mut cursor = match walk {
        Walk::Cursor(cursor) => cursor,
        Walk::New | Walk::LookedUp(_) => Box::new(ChangesCursor::new(snapshot, options, Wait::Yes)?),
    };
    let batch = cursor.next_batch(rows_max)?;
    let damaged = cursor.take_damaged();
    Ok(Made {
        walk: Walk::Cursor(cursor),
        batch,
        damaged,
    })
}
