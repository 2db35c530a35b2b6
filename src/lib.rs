//! settee: a CouchDB-compatible, sharded document database made of supervised actors.

pub mod config;
