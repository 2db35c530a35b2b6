//! Layered ini configuration in the dialect of CouchDB.
