//! One process per shard of the node cache: it lets usage decay and removes what nobody uses.
//!
//! Called by: nobody; it wakes by its own timers. The table itself is read and filled by whoever walks a tree.

use crate::runtime::{Ctx, Info, Next, Process, Reason, Snapshot};
use settee_engine::storage::NodeCache;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

/// Time between two rounds of decay.
const PERIOD: Duration = Duration::from_millis(3000);
/// Time between two looks for unused entries, while the cache is fuller than it should be.
const POLL: Duration = Duration::from_millis(100);

/// Token of the timer for decay.
const DECAY: u64 = 0;
/// Token of the timer for another look.
const CLEAN: u64 = 1;

/// What a cleaner is made from.
#[derive(Clone, Debug)]
pub struct CleanerArgs {
    /// The cache.
    pub cache: Arc<NodeCache>,
    /// Which of its shards.
    pub shard: usize,
    /// `[bt_engine_cache] leave_percent`, changed at run time.
    pub leave_percent: Arc<AtomicU8>,
}

/// A cleaner.
pub struct CacheCleaner {
    args: CleanerArgs,
    polling: bool,
    evicted: u64,
}

impl Process for CacheCleaner {
    type Args = CleanerArgs;
    type Msg = ();
    const NAME: &'static str = "cache_cleaner";

    fn init(args: CleanerArgs, ctx: &mut Ctx<Self>) -> Result<Self, Reason> {
        ctx.send_interval(PERIOD, DECAY);
        let mut cleaner = Self {
            args,
            polling: false,
            evicted: 0,
        };
        // A cleaner that died may have left its table in any state of use; it begins with an empty one.
        if ctx.restarts() > 0 {
            cleaner.evicted += cleaner.args.cache.shards()[cleaner.args.shard].clear() as u64;
        }
        Ok(cleaner)
    }

    fn handle(&mut self, (): (), _ctx: &mut Ctx<Self>) -> Next {
        Next::Continue
    }

    fn handle_info(&mut self, info: Info, ctx: &mut Ctx<Self>) -> Next {
        let shard = &self.args.cache.shards()[self.args.shard];
        match info {
            Info::Timer(DECAY) => shard.decay(),
            Info::Timer(CLEAN) => self.polling = false,
            _ => return Next::Continue,
        }
        let evicted = shard.clean(self.args.leave_percent.load(Ordering::Relaxed));
        self.evicted += evicted.unwrap_or(0) as u64;
        // Too full, and nothing was unused: entries may become so at the next decay, or others' may.
        if evicted == Some(0) && !self.polling && !shard.is_empty() {
            self.polling = true;
            ctx.send_after(POLL, CLEAN);
        }
        Next::Continue
    }

    fn snapshot(&self) -> Snapshot {
        Snapshot::default()
            .with("shard", self.args.shard)
            .with("evicted", self.evicted)
    }
}
