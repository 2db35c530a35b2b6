//! The configuration as one request sees it.

use std::sync::Arc;

use crate::config::{ConfigTable, Settings};
use crate::config_server::ConfigHandle;

/// One state of the configuration: the typed settings and the texts they were made from.
#[derive(Debug)]
pub struct Live {
    /// Checked and typed.
    pub settings: Arc<Settings>,
    /// As written.
    pub table: Arc<ConfigTable>,
}

impl Live {
    /// The state as it is now.
    pub fn now(config: &ConfigHandle) -> Self {
        Self {
            settings: config.settings(),
            table: config.table(),
        }
    }
}
