//! `settee-engine`: what is true. Bytes, trees, documents, indexes and quorums as plain synchronous code over values.
//!
//! This crate knows no actor, no async runtime, no socket and no clock of its own: time, randomness and files are
//! passed in by the caller.

pub mod cache;
pub mod cluster;
pub mod codec;
pub mod db;
pub mod doc;
pub mod ids;
pub mod limits;
pub mod storage;
