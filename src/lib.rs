//! settee: a CouchDB-compatible, sharded document database made of supervised actors.

#[cfg(feature = "http")]
pub mod auth;
#[cfg(feature = "cli")]
pub mod bench;
pub mod config;
