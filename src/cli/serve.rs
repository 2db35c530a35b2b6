//! `settee serve`: a node with its HTTP face, until a signal.

use super::Failure;
use super::args::ServeArgs;
use super::logging;
use crate::auth::{self, AdminArg, AdminHash};
use crate::config::{ConfigStack, LoadOptions, Persist};
use crate::http::{HttpDeps, HttpServer};
use crate::node::Node;
use std::io::Write;
use std::net::TcpListener;
use std::sync::Arc;
use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::SetOnce;
use tokio::task::LocalSet;

/// Serves until SIGINT or SIGTERM, then stops in order; SIGHUP reads the settings anew.
///
/// # Errors
/// What kept the server from starting.
pub fn run(args: ServeArgs) -> Result<(), Failure> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    LocalSet::new().block_on(&runtime, serve(args))
}

async fn serve(args: ServeArgs) -> Result<(), Failure> {
    std::fs::create_dir_all(&args.data).map_err(|error| format!("{}: {error}", args.data.display()))?;
    let mut sets = args.set;
    if let Some(port) = args.port {
        sets.push(format!("chttpd/port={port}"));
    }
    let mut stack = ConfigStack::load(LoadOptions {
        ini_files: args.ini,
        data_dir: Some(args.data.clone()),
        env: std::env::vars().collect(),
        sets,
        ..LoadOptions::default()
    })?;
    let admin = args.admin.as_deref().map(str::parse::<AdminArg>).transpose()?;
    let prepared = auth::prepare(&mut stack, admin.as_ref())?;
    let settings = stack.settings();
    let _log = logging::start(&settings)?;
    for warning in stack.warnings() {
        tracing::warn!("{warning}");
    }
    let address = listen_address(&settings.chttpd.bind_address);
    let listener = TcpListener::bind((address.as_str(), settings.chttpd.port))
        .map_err(|error| format!("cannot listen on {address}:{}: {error}", settings.chttpd.port))?;
    let admins_ready = Arc::new(SetOnce::new());
    // Hashing goes on while the node opens and answers its first requests.
    let hashing = tokio::task::spawn_blocking(move || prepared.pending.hash());
    let node = Node::open_with(stack, &args.data, args.name.as_deref()).await?;
    let deps = HttpDeps {
        coordinator: node.coordinator().clone(),
        config: node.config().clone(),
        workers: None,
        admins_ready: Some(Arc::clone(&admins_ready)),
    };
    let server = HttpServer::start(deps, listener)?;
    let mut out = std::io::stdout();
    if let Some(first) = &prepared.first_admin {
        writeln!(
            out,
            "first start: administrator {} with password {}",
            first.name, first.password
        )?;
    }
    writeln!(out, "settee listening on http://{}", server.addr())?;
    out.flush()?;
    for AdminHash { name, value } in hashing.await?? {
        node.config().set("admins", &name, &value, Persist::Yes).await?;
    }
    // Only set here, once.
    let _ = admins_ready.set(());
    wait_for_stop(&node).await?;
    server.stop(true).await;
    node.shutdown().await;
    Ok(())
}

async fn wait_for_stop(node: &Node) -> Result<(), Failure> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut hangup = signal(SignalKind::hangup())?;
    loop {
        tokio::select! {
            _ = interrupt.recv() => return Ok(()),
            _ = terminate.recv() => return Ok(()),
            _ = hangup.recv() => match node.config().reload().await {
                Ok(()) => tracing::info!("settings read anew"),
                Err(error) => tracing::error!(%error, "settings stay as they were"),
            },
        }
    }
}

/// `any` is CouchDB's word for all addresses.
fn listen_address(bind_address: &str) -> String {
    match bind_address {
        "any" => "0.0.0.0".to_owned(),
        address => address.trim_start_matches('[').trim_end_matches(']').to_owned(),
    }
}
