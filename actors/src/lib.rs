//! `settee-actors`: who does it. The Erlang-like runtime and every process of the database.
//!
//! [`tree`] starts a node's processes; [`coordinator`] is what the world asks. Nothing here knows of HTTP or of ini
//! files, and only `runtime/driver.rs` names actix.

pub mod cache_cleaner;
pub mod coordinator;
pub mod db;
pub mod open_db;
pub mod options;
pub mod request;
pub mod runtime;
pub mod server;
pub mod stats;
pub mod tree;
