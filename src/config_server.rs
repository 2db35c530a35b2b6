//! The settings process: it owns the layers, takes changes as messages, and tells what changes at run time.
//!
//! A change is checked as a whole, written, then applied, then seen by readers, who take the newest settings without a
//! message. Called by: HTTP and the embedding program.

use crate::config::{ChangeError, ConfigStack, ConfigTable, LoadError, Persist, Settings};
use arc_swap::ArcSwap;
use settee_actors::runtime::{
    CallError, Ctx, Next, Process, Reason, Ref, ReplyTo, Snapshot, SpawnError, SpawnOptions, System,
};
use settee_actors::tree::Tunables;
use std::sync::Arc;
use std::time::Duration;
use thiserror::Error;

/// How long a change may take: it writes and syncs a small file.
const DEADLINE: Duration = Duration::from_secs(30);

/// Messages of the settings process.
#[derive(Debug)]
pub enum ConfigMsg {
    /// Set a key; answers the old value.
    Set {
        /// Section of the ini file.
        section: String,
        /// Key in the section.
        key: String,
        /// New value.
        value: String,
        /// Whether it is written to the data directory.
        persist: Persist,
        /// Who is answered.
        reply: ReplyTo<Result<Option<String>, ChangeError>>,
    },
    /// Delete a key; answers the old value.
    Delete {
        /// Section of the ini file.
        section: String,
        /// Key in the section.
        key: String,
        /// Whether it is deleted from the data directory.
        persist: Persist,
        /// Who is answered.
        reply: ReplyTo<Result<Option<String>, ChangeError>>,
    },
    /// Read all files again.
    Reload(ReplyTo<Result<(), LoadError>>),
}

/// Why a change did not happen.
#[derive(Debug, Error)]
pub enum ConfigCallError {
    /// It is not accepted, or could not be written.
    #[error(transparent)]
    Change(#[from] ChangeError),
    /// The files cannot be read.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The settings process did not answer.
    #[error(transparent)]
    Call(#[from] CallError),
}

/// What readers see.
#[derive(Debug)]
pub struct Published {
    settings: ArcSwap<Settings>,
    table: ArcSwap<ConfigTable>,
}

/// A handle on the settings. Cloning is cheap.
#[derive(Clone, Debug)]
pub struct ConfigHandle {
    published: Arc<Published>,
    process: Ref<ConfigMsg>,
}

impl ConfigHandle {
    /// The typed settings as they are now.
    #[must_use]
    pub fn settings(&self) -> Arc<Settings> {
        self.published.settings.load_full()
    }

    /// All keys as they are now.
    #[must_use]
    pub fn table(&self) -> Arc<ConfigTable> {
        self.published.table.load_full()
    }

    /// Sets a key; gives the old value.
    ///
    /// # Errors
    /// [`ConfigCallError`]; nothing has changed then.
    pub async fn set(
        &self,
        section: &str,
        key: &str,
        value: &str,
        persist: Persist,
    ) -> Result<Option<String>, ConfigCallError> {
        let (section, key, value) = (section.to_owned(), key.to_owned(), value.to_owned());
        let make = |reply| ConfigMsg::Set {
            section,
            key,
            value,
            persist,
            reply,
        };
        Ok(self.process.call(DEADLINE, make).await??)
    }

    /// Deletes a key; gives the old value.
    ///
    /// # Errors
    /// [`ConfigCallError`]; nothing has changed then.
    pub async fn delete(
        &self,
        section: &str,
        key: &str,
        persist: Persist,
    ) -> Result<Option<String>, ConfigCallError> {
        let (section, key) = (section.to_owned(), key.to_owned());
        let make = |reply| ConfigMsg::Delete {
            section,
            key,
            persist,
            reply,
        };
        Ok(self.process.call(DEADLINE, make).await??)
    }

    /// Reads all files again.
    ///
    /// # Errors
    /// [`ConfigCallError`]; the old settings stay then.
    pub async fn reload(&self) -> Result<(), ConfigCallError> {
        Ok(self.process.call(DEADLINE, ConfigMsg::Reload).await??)
    }
}

/// The process. It is temporary: the layers are a value that only it has, so it cannot be made anew.
pub struct ConfigServer {
    stack: ConfigStack,
    tunables: Tunables,
    published: Arc<Published>,
    changes: u64,
}

impl ConfigServer {
    /// Starts the process in a node's system.
    ///
    /// # Errors
    /// When the system is stopping.
    pub fn start(
        system: &System,
        stack: ConfigStack,
        tunables: Tunables,
    ) -> Result<ConfigHandle, SpawnError> {
        let published = Arc::new(Published {
            settings: ArcSwap::new(stack.settings()),
            table: ArcSwap::new(stack.table()),
        });
        let args = (stack, tunables, Arc::clone(&published));
        let process = system.spawn::<Self>(args, SpawnOptions::default().named("config"))?;
        Ok(ConfigHandle { published, process })
    }

    /// Applies what can change at run time, then lets readers see it.
    fn publish(&mut self) {
        let settings = self.stack.settings();
        let cache = &settings.bt_engine_cache;
        self.tunables
            .set_cache_bytes(usize::try_from(cache.max_size).unwrap_or(usize::MAX));
        self.tunables
            .set_cache_leave_percent(u8::try_from(cache.leave_percent).unwrap_or(u8::MAX));
        self.published.settings.store(settings);
        self.published.table.store(self.stack.table());
        self.changes += 1;
    }
}

impl Process for ConfigServer {
    type Args = (ConfigStack, Tunables, Arc<Published>);
    type Msg = ConfigMsg;
    const NAME: &'static str = "config";

    fn init((stack, tunables, published): Self::Args, _ctx: &mut Ctx<Self>) -> Result<Self, Reason> {
        Ok(Self {
            stack,
            tunables,
            published,
            changes: 0,
        })
    }

    fn handle(&mut self, msg: ConfigMsg, _ctx: &mut Ctx<Self>) -> Next {
        match msg {
            ConfigMsg::Set {
                section,
                key,
                value,
                persist,
                reply,
            } => {
                let changed = self.stack.set(&section, &key, &value, persist);
                self.answer(changed.map(|change| change.old), reply);
            }
            ConfigMsg::Delete {
                section,
                key,
                persist,
                reply,
            } => {
                let changed = self.stack.delete(&section, &key, persist);
                self.answer(changed.map(|change| change.old), reply);
            }
            ConfigMsg::Reload(reply) => {
                let reloaded = self.stack.reload().map(drop);
                if reloaded.is_ok() {
                    self.publish();
                }
                reply.reply(reloaded);
            }
        }
        Next::Continue
    }

    fn snapshot(&self) -> Snapshot {
        Snapshot::default().with("changes", self.changes)
    }
}

impl ConfigServer {
    fn answer(
        &mut self,
        changed: Result<Option<String>, ChangeError>,
        reply: ReplyTo<Result<Option<String>, ChangeError>>,
    ) {
        if changed.is_ok() {
            self.publish();
        }
        reply.reply(changed);
    }
}
