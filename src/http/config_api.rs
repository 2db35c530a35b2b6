//! `_node/{name}/_config`: reading and changing settings.

use serde_json::{Map, Value};

use crate::config::{ChangeError, Persist, is_protected};
use crate::config_server::ConfigCallError;

use super::authenticate::hash_admin;
use super::error::HttpError;
use super::reply::{self, Handled};
use super::request::{Request, Verb};
use super::router::Segments;

/// Handles `_node/{name}/_config` and the paths below it; `segments` is the whole path.
pub async fn handle(request: &Request, segments: &Segments<'_>) -> Handled {
    let name = |index: usize| {
        segments
            .text(index)
            .ok_or_else(|| HttpError::bad_request("Invalid configuration section / key / value"))
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
    let table = request.app.config.table();
    table
        .section(name)
        .map(|(key, value)| (key.to_owned(), Value::from(value)))
        .collect()
}

fn whole(request: &Request) -> Map<String, Value> {
    let table = request.app.config.table();
    table
        .sections()
        .map(|name| (name.to_owned(), Value::Object(section(request, name))))
        .collect()
}

async fn one(request: &Request, section: &str, key: &str) -> Handled {
    request.allow("GET,PUT,DELETE")?;
    let persist = if request.header("x-couch-persist") == Some("false") {
        Persist::No
    } else {
        Persist::Yes
    };
    if request.verb.reads() {
        let table = request.app.config.table();
        let value = table.get(section, key).ok_or_else(unknown)?;
        return Ok(reply::json_value(200, &Value::from(value)));
    }
    if is_protected(section) {
        return Err(HttpError::forbidden(
            "Config section blacklisted for modification over HTTP API.",
        ));
    }
    let new = if request.verb == Verb::Put {
        match request.body_json().await? {
            Value::String(text) => Some(text),
            _ => return Err(HttpError::bad_request("a JSON string expected")),
        }
    } else {
        None
    };
    let old = match new {
        Some(value) => {
            let value = if section == "admins" {
                hashed(request, value).await?
            } else {
                value
            };
            request.app.config.set(section, key, &value, persist).await
        }
        None => request.app.config.delete(section, key, persist).await,
    }
    .map_err(refused)?;
    tracing::info!(section, key, "a setting was changed over HTTP");
    Ok(reply::json_value(200, &Value::from(old.unwrap_or_default())))
}

/// A new admin's password is hashed before anything is written, on a blocking thread.
async fn hashed(request: &Request, password: String) -> Result<String, HttpError> {
    let settings = request.settings.clone();
    let hashed = actix_web::web::block(move || hash_admin(&settings, &password)).await;
    hashed.map_err(|_| HttpError::internal("hashing the password was cancelled"))?
}

fn refused(error: ConfigCallError) -> HttpError {
    match error {
        ConfigCallError::Change(ChangeError::Unknown) => unknown(),
        ConfigCallError::Change(error @ ChangeError::Write { .. }) => HttpError::internal(error.to_string()),
        ConfigCallError::Change(error) => HttpError::bad_request(error.to_string()),
        ConfigCallError::Load(error) => HttpError::bad_request(error.to_string()),
        ConfigCallError::Call(error) => HttpError::internal(error.to_string()),
    }
}

fn unknown() -> HttpError {
    HttpError::not_found("unknown_config_value")
}

async fn reload(request: &Request) -> Handled {
    request.app.config.reload().await.map_err(refused)?;
    Ok(reply::ok(200))
}
