//! A node with its HTTP server, in this process, over a directory of its own.

use std::net::TcpListener;
use std::sync::Arc;

use settee::blocking::wait;
use settee::config::Persist;
use settee::http::{HttpDeps, HttpHandle, HttpServer};
use settee::{BlockingNode, NodeConfig};
use tokio::sync::SetOnce;

use crate::client::Client;

/// A running server. The directory goes with it.
pub struct Server {
    node: Option<BlockingNode>,
    http: Option<HttpHandle>,
    /// Not logged in.
    pub anonymous: Client,
    /// Logged in as server admin.
    pub admin: Client,
    _directory: tempfile::TempDir,
}

impl Server {
    /// Starts one with the admin `adm`, password `pass`.
    pub fn start() -> Self {
        Self::with(&[])
    }

    /// Starts one with more settings.
    pub fn with(settings: &[(&str, &str, &str)]) -> Self {
        Self::held_until(settings, None)
    }

    /// Starts one that lets nobody log in before `admins_ready` is set.
    pub fn held_until(settings: &[(&str, &str, &str)], admins_ready: Option<Arc<SetOnce<()>>>) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let mut config = NodeConfig::new(directory.path())
            .set("admins", "adm", "pass")
            .set("chttpd_auth", "secret", "92de07df7e7a3fe14808cef90a7cc0d9")
            // Real hashes take too long for a test; one round is as good here.
            .set("chttpd_auth", "iterations", "1");
        for (section, key, value) in settings {
            config = config.set(section, key, value);
        }
        let node = BlockingNode::open(config).expect("the node opens");
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let coordinator = node.node().coordinator().clone();
        let deps = HttpDeps {
            coordinator,
            config: node.node().config().clone(),
            workers: Some(2),
            admins_ready,
        };
        let http = HttpServer::start(deps, listener).expect("the server starts");
        let anonymous = Client::new(http.addr());
        let admin = anonymous.with_basic("adm", "pass");
        Self {
            node: Some(node),
            http: Some(http),
            anonymous,
            admin,
            _directory: directory,
        }
    }

    /// Starts one with a database `db`.
    pub fn with_db() -> Self {
        let server = Self::start();
        assert_eq!(server.admin.put("/db", "").status, 201);
        server
    }

    /// Sets a key, for as long as the server runs.
    pub fn set(&self, section: &str, key: &str, value: &str) {
        let node = self.node.as_ref().expect("the node runs");
        let config = node.node().config();
        wait(config.set(section, key, value, Persist::No)).expect("a setting that is accepted");
    }

    /// Stops the HTTP server gracefully.
    pub fn stop_http(&mut self) {
        if let Some(http) = self.http.take() {
            wait(http.stop(true));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(http) = self.http.take() {
            wait(http.stop(false));
        }
        if let Some(node) = self.node.take() {
            node.shutdown();
        }
    }
}
