//! settee: a CouchDB-compatible, sharded document database made of supervised actors.
//!
//! # Embedding
//!
//! A [`Node`] is a value: open it over a directory, use its databases, shut it down. Everything that the server does
//! goes through the same calls.
//!
//! ```
//! use settee::{BlockingNode, NodeConfig};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let directory = tempfile::tempdir()?;
//! let node = BlockingNode::open(NodeConfig::new(directory.path()))?;
//! let notes = node.ensure_database("notes")?;
//! let rev = notes.put("first", br#"{"text":"hello"}"#)?;
//! let json = notes.get("first")?;
//! assert_eq!(json, format!(r#"{{"_id":"first","_rev":"{rev}","text":"hello"}}"#).into_bytes());
//! node.shutdown();
//! # Ok(())
//! # }
//! ```
//!
//! Inside an event loop use [`Node`] and [`Database`], whose calls are async; [`BlockingNode`] and [`BlockingDatabase`]
//! are the same for plain threads. [`Node::coordinator`] has everything that is asked of databases,
//! [`Node::system`] the actor system in which the node lives, and [`Node::supervise`] puts a process of your own under
//! the node's supervisor. [`config`] tells how settings are layered.
//!
//! # Features
//!
//! `http` is the HTTP face, `cli` the command line; both are on by default. An embedding program without them writes
//! `default-features = false`.

#[cfg(feature = "http")]
pub mod auth;
#[cfg(feature = "cli")]
pub mod bench;
pub mod blocking;
#[cfg(feature = "cli")]
pub mod cli;
pub mod config;
pub mod config_server;
pub mod database;
#[cfg(feature = "http")]
pub mod http;
pub mod node;

pub use blocking::{BlockingDatabase, BlockingNode};
pub use database::Database;
pub use node::{Node, NodeConfig, OpenError};
pub use settee_actors as actors;
pub use settee_engine as engine;
