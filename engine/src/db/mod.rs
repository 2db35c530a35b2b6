//! One database file: snapshots to read, batches to write.
