//! The shared cache of parsed B-tree nodes.
