//! The HTTP API end to end: a node and its server in this process, and a client that shows the bytes as they came.

mod attachments;
mod client;
mod documents;
mod server;
mod server_level;
mod streams;
