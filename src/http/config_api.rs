//! `_node/{name}/_config`: reading and changing settings.

use std::sync::Arc;

use serde_json::{Map, Value};

use crate::config::{ChangeError, Persist, is_protected};

use super::authenticate::hash_admin;
use super::error::HttpError;
use super::live::LiveConfig;
use super::reply::{self, Handled};
use super::request::{Request, Verb};
use super::router::Segments;

/// Handles `_node/{name}/_config` and the paths below it; `segments` is the whole path.
pub async fn handle(request: &Request, segments: &Segments<'_>) -> Handled {
    let name = |index: usize| {
        segments.text(index).ok_or_else(|| HttpError::bad_request("Invalid configuration section / key / value"))
    };
    match segments.len() {
        3 => {
            request.allow("GET")?;
            Ok(reply::json_value(200, &Value::Object(whole(request))))
        }
        4 if segments.bytes(3) == Some(b"_reload") => {
            request.allow("POST")?;
            reload(request).await
        }
        4 => {
            request.allow("GET")?;
            Ok(reply::json_value(200, &Value::Object(section(request, name(3)?))))
        }
        5 => one(request, name(3)?, name(4)?).await,
        _ => Err(HttpError::not_found("missing")),
    }
}

fn section(request: &Request, name: &str) -> Map<String, Value> {
    let live = request.app.config.live();
    live.table.section(name).map(|(key, value)| (key.to_owned(), Value::from(value))).collect()
}

fn whole(request: &Request) -> Map<String, Value> {
    let live = request.app.config.live();
    live.table.sections().map(|name| (name.to_owned(), Value::Object(section(request, name)))).collect()
}

async fn one(request: &Request, section: &str, key: &str) -> Handled {
    request.allow("GET,PUT,DELETE")?;
    let persist = if request.header("x-couch-persist") == Some("false") { Persist::No } else { Persist::Yes };
    if request.verb.reads() {
        let live = request.app.config.live();
        let value = live.table.get(section, key).ok_or_else(unknown)?;
        return Ok(reply::json_value(200, &Value::from(value)));
    }
    if is_protected(section) {
        return Err(HttpError::forbidden("Config section blacklisted for modification over HTTP API."));
    }
    let new = if request.verb == Verb::Put {
        match request.body_json().await? {
            Value::String(text) => Some(text),
            _ => return Err(HttpError::bad_request("a JSON string expected")),
        }
    } else {
        None
    };
    let old = change(request.app.config.clone(), section.to_owned(), key.to_owned(), new, persist).await?;
    tracing::info!(section, key, "a setting was changed over HTTP");
    Ok(reply::json_value(200, &Value::from(old.unwrap_or_default())))
}

/// Changes one key on a blocking thread, because the change is written to a file.
async fn change(
    config: Arc<LiveConfig>,
    section: String,
    key: String,
    new: Option<String>,
    persist: Persist,
) -> Result<Option<String>, HttpError> {
    let new = match new {
        // A new admin's password is hashed before anything is written.
        Some(password) if section == "admins" => {
            let live = config.live();
            let hashed = actix_web::web::block(move || hash_admin(&live.settings, &password)).await;
            Some(hashed.map_err(|_| HttpError::internal("hashing the password was cancelled"))??)
        }
        other => other,
    };
    let outcome = actix_web::web::block(move || {
        config.change(|stack| match new {
            Some(value) => stack.set(&section, &key, &value, persist),
            None => stack.delete(&section, &key, persist),
        })
    })
    .await
    .map_err(|_| HttpError::internal("the change was cancelled"))?;
    match outcome {
        Ok(change) => Ok(change.old),
        Err(ChangeError::Unknown) => Err(unknown()),
        Err(error @ ChangeError::Write { .. }) => Err(HttpError::internal(error.to_string())),
        Err(error) => Err(HttpError::bad_request(error.to_string())),
    }
}

fn unknown() -> HttpError {
    HttpError::not_found("unknown_config_value")
}

async fn reload(request: &Request) -> Handled {
    let config = request.app.config.clone();
    actix_web::web::block(move || config.change(|stack| stack.reload().map(|_| ()).map_err(|error| error.to_string())))
        .await
        .map_err(|_| HttpError::internal("the reload was cancelled"))?
        .map_err(HttpError::bad_request)?;
    Ok(reply::ok(200))
}
