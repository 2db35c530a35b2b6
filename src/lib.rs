//! settee: a CouchDB-compatible, sharded document database made of supervised actors.

#[cfg(feature = "http")]
pub mod auth;
pub mod config;
