//! The actor runtime: Erlang processes, links, monitors and supervisors over actix.
