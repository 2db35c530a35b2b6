//! The append-only file and the B-trees in it.
