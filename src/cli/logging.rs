//! Where log lines go, and which.

use crate::config::{LogLevel, Settings};
use std::fs::OpenOptions;
use std::io::{IsTerminal, Write};
use tracing_appender::non_blocking::{NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt;

/// Variable of the environment that overrides `[log] level`, in the syntax of tracing's filters.
const FILTER_VARIABLE: &str = "SETTEE_LOG";

/// Keeps the writer of the log alive; what waits to be written is written when it goes.
#[must_use]
pub struct LogGuard {
    _worker: Option<WorkerGuard>,
}

/// Starts logging as the settings say. Lines are written by a thread of their own, so that no request waits for a
/// terminal or a disk. A second call changes nothing.
///
/// # Errors
/// When the log file cannot be opened.
pub fn start(settings: &Settings) -> std::io::Result<LogGuard> {
    let default = EnvFilter::new(format!("{},actix_server=warn", level(settings.log.level)));
    let filter = EnvFilter::try_from_env(FILTER_VARIABLE).unwrap_or(default);
    let (writer, ansi): (Box<dyn Write + Send>, bool) = match &settings.log.file {
        None => (Box::new(std::io::stderr()), std::io::stderr().is_terminal()),
        Some(path) => (
            Box::new(OpenOptions::new().create(true).append(true).open(path)?),
            false,
        ),
    };
    let (writer, worker) = NonBlockingBuilder::default().lossy(false).finish(writer);
    let started = fmt()
        .with_env_filter(filter)
        .with_target(false)
        .with_ansi(ansi)
        .with_writer(writer)
        .try_init();
    Ok(LogGuard {
        _worker: started.is_ok().then_some(worker),
    })
}

/// The name of a level for tracing, which has fewer of them.
fn level(level: LogLevel) -> &'static str {
    match level.as_str() {
        "debug" => "debug",
        "info" | "notice" => "info",
        "warning" | "warn" => "warn",
        "none" => "off",
        _ => "error",
    }
}
