//! Where log lines go, and which.

use crate::config::{LogLevel, Settings};
use std::fs::OpenOptions;
use std::sync::Mutex;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt;

/// Variable of the environment that overrides `[log] level`, in the syntax of tracing's filters.
const FILTER_VARIABLE: &str = "SETTEE_LOG";

/// Starts logging as the settings say. A second call changes nothing.
///
/// # Errors
/// When the log file cannot be opened.
pub fn start(settings: &Settings) -> std::io::Result<()> {
    let default = EnvFilter::new(format!("{},actix_server=warn", level(settings.log.level)));
    let filter = EnvFilter::try_from_env(FILTER_VARIABLE).unwrap_or(default);
    let builder = fmt().with_env_filter(filter).with_target(false);
    let started = match &settings.log.file {
        None => builder.with_writer(std::io::stderr).try_init(),
        Some(path) => {
            let file = OpenOptions::new().create(true).append(true).open(path)?;
            builder.with_ansi(false).with_writer(Mutex::new(file)).try_init()
        }
    };
    if started.is_err() {
        tracing::debug!("logging had been started before");
    }
    Ok(())
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
