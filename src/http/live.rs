//! The configuration as the HTTP layer sees it: read on every request, changed through `_node/{name}/_config`.

use std::sync::Arc;

use arc_swap::ArcSwap;
use parking_lot::Mutex;

use crate::config::{ConfigStack, ConfigTable, Settings};

/// One state of the configuration: the typed settings and the texts they were made from.
#[derive(Debug)]
pub struct Live {
    /// Checked and typed.
    pub settings: Arc<Settings>,
    /// As written.
    pub table: Arc<ConfigTable>,
}

/// The layered configuration together with its current state, which readers take without a lock.
pub struct LiveConfig {
    stack: Mutex<ConfigStack>,
    live: ArcSwap<Live>,
}

impl LiveConfig {
    /// Takes over a loaded configuration.
    pub fn new(stack: ConfigStack) -> Self {
        let live = ArcSwap::from_pointee(Self::state(&stack));
        Self { stack: Mutex::new(stack), live }
    }

    fn state(stack: &ConfigStack) -> Live {
        Live { settings: stack.settings(), table: stack.table() }
    }

    /// The current state.
    pub fn live(&self) -> Arc<Live> {
        self.live.load_full()
    }

    /// The current typed settings.
    pub fn settings(&self) -> Arc<Settings> {
        self.live.load().settings.clone()
    }

    /// Runs a change, which may write an ini file, and publishes what came of it.
    pub fn change<T>(&self, change: impl FnOnce(&mut ConfigStack) -> T) -> T {
        let mut stack = self.stack.lock();
        let outcome = change(&mut stack);
        self.live.store(Arc::new(Self::state(&stack)));
        outcome
    }
}
