//! The process behind `_all_docs` and `_local_docs`: a merge of the shards by id.

use super::{RUN_BYTES, tell_damaged};
use crate::coordinator::{DbError, Rows, read_failed};
use crate::open_db::DbLease;
use crate::runtime::{BlockingPool, Ctx, Next, PoolError, Process, Reason, Snapshot};
use crate::stats::Counters;
use settee_engine::cluster::{AllDocsMerge, Drained, MergeState, RowBatch};
use settee_engine::db::{self, DocDamage, FoldCursor, LocalCursor, ROW_SEPARATOR};
use std::sync::Arc;
use tokio::sync::mpsc::{OwnedPermit, Sender, error::TrySendError};

/// Rows of the first batch of each shard; later ones are larger, so that a short answer is quick.
const FIRST_BATCH_ROWS: usize = 128;
/// How much larger each next batch is.
const BATCH_GROWTH: usize = 4;

/// Batches of a shard that wait in the merge before no more are asked for.
const BATCHES_AHEAD: usize = 2;

/// What the client gets: a run of rows, then nothing at the end. A stream that stops without the end was cut off.
pub type RowsItem = Result<Option<Rows>, DbError>;

/// A walk over one shard.
pub enum RowCursor {
    /// Over documents.
    Docs(Box<FoldCursor>),
    /// Over local documents.
    Locals(Box<LocalCursor>),
}

impl RowCursor {
    fn next_batch(&mut self, rows_max: usize) -> Result<Option<RowBatch>, db::DbError> {
        match self {
            Self::Docs(cursor) => cursor.next_batch(rows_max),
            Self::Locals(cursor) => cursor.next_batch(rows_max),
        }
    }

    fn take_damaged(&mut self) -> Vec<DocDamage> {
        match self {
            Self::Docs(cursor) => cursor.take_damaged(),
            Self::Locals(_) => Vec::new(),
        }
    }
}

/// What a rows process is made from.
pub struct RowsRequestArgs {
    /// A walk for each shard, with the lease that keeps it open.
    pub cursors: Vec<(DbLease, RowCursor)>,
    /// The merge, which knows direction, skip and limit.
    pub merge: AllDocsMerge,
    /// Where the rows go.
    pub rows: Sender<RowsItem>,
    /// Where batches are made.
    pub pool: BlockingPool,
    /// Counters of the node.
    pub counters: Arc<Counters>,
}

/// Messages of a rows process, all from itself.
pub enum RowsMsg {
    /// A batch is made; the cursor comes back with it.
    Batch {
        /// Index of the shard.
        shard: usize,
        /// The walk.
        cursor: RowCursor,
        /// What it brought.
        batch: Box<Result<Option<RowBatch>, db::DbError>>,
    },
    /// The pool did not make a batch.
    Lost(PoolError),
    /// The client has room for another run.
    Room(OwnedPermit<RowsItem>),
    /// The client is gone.
    Gone,
}

/// What was handed on.
#[derive(PartialEq, Eq)]
enum Given {
    Run,
    Nothing,
    End,
}

/// The process.
pub struct RowsRequest {
    args: RowsRequestArgs,
    idle: Vec<Option<RowCursor>>,
    batch_rows: Vec<usize>,
    waiting_for_room: bool,
    given: u64,
}

impl Process for RowsRequest {
    type Args = RowsRequestArgs;
    type Msg = RowsMsg;
    const NAME: &'static str = "rows_request";

    fn init(mut args: RowsRequestArgs, ctx: &mut Ctx<Self>) -> Result<Self, Reason> {
        let cursors = std::mem::take(&mut args.cursors);
        let count = cursors.len();
        let (leases, idle): (Vec<DbLease>, Vec<Option<RowCursor>>) = cursors
            .into_iter()
            .map(|(lease, cursor)| (lease, Some(cursor)))
            .unzip();
        let rows = args.rows.clone();
        ctx.spawn_future(
            async move {
                rows.closed().await;
                drop(leases);
            },
            |()| RowsMsg::Gone,
        );
        let mut process = Self {
            args,
            idle,
            batch_rows: vec![FIRST_BATCH_ROWS; count],
            waiting_for_room: false,
            given: 0,
        };
        process.ask(ctx);
        Ok(process)
    }

    fn handle(&mut self, msg: RowsMsg, ctx: &mut Ctx<Self>) -> Next {
        match msg {
            RowsMsg::Batch {
                shard,
                mut cursor,
                batch,
            } => {
                tell_damaged(&self.args.counters, &cursor.take_damaged());
                match *batch {
                    Ok(Some(batch)) => {
                        self.args.merge.push(shard, batch);
                        self.idle[shard] = Some(cursor);
                    }
                    Ok(None) => self.args.merge.complete(shard),
                    Err(error) => return self.fail(read_failed(&error)),
                }
            }
            RowsMsg::Lost(error) => return self.fail(DbError::Internal(error.to_string())),
            RowsMsg::Room(permit) => {
                self.waiting_for_room = false;
                if self.give(permit) == Given::End {
                    return Next::Stop(Reason::Normal);
                }
            }
            RowsMsg::Gone => return Next::Stop(Reason::Normal),
        }
        self.go_on(ctx)
    }

    fn snapshot(&self) -> Snapshot {
        Snapshot::default()
            .with("rows", self.given)
            .with("waiting_for_client", self.waiting_for_room)
    }
}

impl RowsRequest {
    /// Hands on what is merged, asks for more, and ends when all is given.
    fn go_on(&mut self, ctx: &mut Ctx<Self>) -> Next {
        while !self.waiting_for_room {
            match self.args.rows.clone().try_reserve_owned() {
                Ok(permit) => match self.give(permit) {
                    Given::Run => {}
                    Given::Nothing => break,
                    Given::End => return Next::Stop(Reason::Normal),
                },
                Err(TrySendError::Full(rows)) => {
                    self.waiting_for_room = true;
                    let reserved = async move { rows.reserve_owned().await };
                    ctx.spawn_future(reserved, |permit| permit.map_or(RowsMsg::Gone, RowsMsg::Room));
                }
                Err(TrySendError::Closed(_)) => return Next::Stop(Reason::Normal),
            }
        }
        self.ask(ctx);
        Next::Continue
    }

    /// Hands on a run, or the end.
    fn give(&mut self, permit: OwnedPermit<RowsItem>) -> Given {
        let mut bytes = Vec::new();
        let Drained { rows, state } = self.args.merge.drain(&mut bytes, ROW_SEPARATOR, RUN_BYTES);
        if rows > 0 {
            self.given += rows as u64;
            permit.send(Ok(Some(Rows {
                bytes: bytes.into(),
                count: rows,
            })));
            return Given::Run;
        }
        match state {
            MergeState::Done => {
                permit.send(Ok(None));
                Given::End
            }
            MergeState::Starved | MergeState::Full => Given::Nothing,
        }
    }

    /// Asks each shard of which too little is buffered for its next batch.
    fn ask(&mut self, ctx: &mut Ctx<Self>) {
        for shard in 0..self.idle.len() {
            if self.args.merge.buffered_batches(shard) >= BATCHES_AHEAD {
                continue;
            }
            let Some(mut cursor) = self.idle[shard].take() else {
                continue;
            };
            let rows_max = self.batch_rows[shard];
            self.batch_rows[shard] = rows_max.saturating_mul(BATCH_GROWTH).min(db::BATCH_ROWS_MAX);
            let job = move || {
                let batch = cursor.next_batch(rows_max);
                (cursor, batch)
            };
            let pool = self.args.pool.clone();
            ctx.spawn_future(async move { pool.run(job).await }, move |made| match made {
                Ok((cursor, batch)) => RowsMsg::Batch {
                    shard,
                    cursor,
                    batch: Box::new(batch),
                },
                Err(error) => RowsMsg::Lost(error),
            });
        }
    }

    /// Tells the client and ends. The client takes what came before first.
    fn fail(&mut self, error: DbError) -> Next {
        let rows = self.args.rows.clone();
        let last = Err(error.clone());
        if let Err(TrySendError::Full(last)) = rows.try_send(last) {
            // The client is slow: it is told when it has taken what waits.
            tokio::task::spawn_local(async move {
                if rows.send(last).await.is_err() {
                    tracing::debug!("the client of a failed stream had gone");
                }
            });
        }
        Next::Stop(Reason::error(error))
    }
}
