//! The ring, shard maps, packed sequences and quorum state machines.
