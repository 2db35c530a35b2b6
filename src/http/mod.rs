//! CouchDB's HTTP API on actix-web.
//!
//! This layer parses requests, checks who may do what, calls the [`Coordinator`](settee_actors::coordinator::Coordinator)
//! and frames the answers byte for byte as CouchDB does. It keeps no documents and knows no files.
//!
//! One request passes through here in this order: path and query are decoded (`router`, `params`), a cross-origin
//! preflight is answered (`cors`), the user is found (`authenticate`), the requirement of the path is checked
//! (`access`), the endpoint's handler runs, and the reply gets what every reply carries (`reply`). Every refusal is an
//! [`HttpError`](error::HttpError), which is turned into bytes in one place.

mod access;
mod all_docs;
mod attachment;
mod authenticate;
mod body;
mod bulk;
mod bulk_get;
mod changes;
mod config_api;
mod copy;
mod cors;
mod database;
mod dispatch;
mod doc_reply;
mod document;
mod error;
mod error_table;
mod live;
mod multipart;
mod open_revs;
mod outside;
mod params;
mod range;
mod reply;
mod request;
mod router;
mod server;
mod server_level;
mod session;
mod stats;
pub mod unimplemented;
mod upload;
mod users;
mod uuids;

pub use server::{App, HttpDeps, HttpHandle, HttpServer, Stopping};
