//! Codecs: the Erlang external term format, JSON, the compression container and checksums.
//!
//! This layer turns bytes into other bytes. It knows no file, no document and no tree; it allocates nothing per value on
//! its hot paths, and answers hostile input with an error: lengths are believed only as far as bytes are there, nesting
//! is walked without recursion or under a named bound, and big integers are converted under a named bound.

pub mod checksum;
pub mod compress;
pub mod fuzz;
pub mod json;
pub mod term;
