//! Codecs: Erlang external terms, JSON, compression.
