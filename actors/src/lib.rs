//! `settee-actors`: who does it. The Erlang-like runtime and every process of the database.

pub mod runtime;
