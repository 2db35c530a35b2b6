//! `_session`: logging in with a cookie, looking who one is, logging out.

use std::collections::BTreeMap;

use actix_web::HttpResponse;
use bytes::Bytes;
use serde_json::{Value, json};

use crate::auth::{Credentials, SessionPolicy};

use super::authenticate::{log_in, wrong_password};
use super::error::HttpError;
use super::live::Live;
use super::outside;
use super::params::Query;
use super::reply::{self, Handled};
use super::request::{Request, Verb};

/// Handles `/_session`.
pub async fn handle(request: &Request) -> Handled {
    request.allow("GET,HEAD,POST,DELETE")?;
    match request.verb {
        Verb::Post => log_in_with_cookie(request).await,
        Verb::Delete => log_out(request),
        _ => who(request),
    }
}

fn policy(request: &Request) -> Result<SessionPolicy, HttpError> {
    SessionPolicy::from_settings(&request.settings)
        .ok_or_else(|| HttpError::internal("there are no sessions without [chttpd_auth] secret"))
}

fn who(request: &Request) -> Handled {
    if request.user.name.is_none() && request.query.get("basic") == Some("true") {
        return Err(HttpError::unauthorized("Please login."));
    }
    let mut info = serde_json::Map::new();
    if let Some(db) = request.app.config.table().get("chttpd_auth", "authentication_db") {
        info.insert("authentication_db".to_owned(), Value::from(db));
    }
    info.insert("authentication_handlers".to_owned(), json!(["cookie", "default"]));
    if let Some(handler) = request.handler {
        info.insert("authenticated".to_owned(), Value::from(handler));
    }
    Ok(reply::json_value(
        200,
        &json!({"ok": true, "userCtx": request.user.to_json(), "info": info}),
    ))
}

/// The members of a login, from JSON or from a form.
async fn login_members(request: &Request) -> Result<BTreeMap<String, String>, HttpError> {
    let body = request.body().await?;
    let media = request.media_type();
    if media.eq_ignore_ascii_case("application/json") {
        let value: Value = serde_json::from_slice(&body).map_err(|_| HttpError::invalid_json())?;
        let Value::Object(members) = value else {
            return Err(HttpError::bad_request("Request body must be a JSON object"));
        };
        let text = |(name, value): (String, Value)| value.as_str().map(|value| (name, value.to_owned()));
        return Ok(members.into_iter().filter_map(text).collect());
    }
    if media.eq_ignore_ascii_case("application/x-www-form-urlencoded") {
        let text = std::str::from_utf8(&body).map_err(|_| HttpError::bad_request("invalid form"))?;
        let form = Query::parse(text)?;
        return Ok(form
            .iter()
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect());
    }
    Err(HttpError::new(
        415,
        "bad_content_type",
        "Content-Type must be application/x-www-form-urlencoded or application/json",
    ))
}

async fn log_in_with_cookie(request: &Request) -> Handled {
    let policy = policy(request)?;
    let members = login_members(request).await?;
    let name = match (members.get("name"), members.get("username")) {
        (Some(one), Some(other)) if one != other => {
            return Err(HttpError::bad_request(
                "request body contains different usernames",
            ));
        }
        (Some(name), _) | (None, Some(name)) => name.clone(),
        (None, None) => return Err(HttpError::bad_request("request body must contain a username")),
    };
    let password = members.get("password").cloned().unwrap_or_default().into_bytes();
    let live = Live::now(&request.app.config);
    let account = match log_in(&request.app, &live, Credentials { name, password }, &request.http).await {
        Ok(account) => account,
        Err(error) if error.status == 401 => {
            let cookie = policy.clear_cookie(false);
            if let Some(page) = request.query.get("fail") {
                return Ok(redirect(request, page, &cookie));
            }
            return Err(wrong_password().with_header("Set-Cookie", cookie));
        }
        Err(error) => return Err(error),
    };
    let name = account.user.name.clone().unwrap_or_default();
    let cookie = policy.set_cookie(&name, account.salt(), outside::unix_seconds(), false);
    if let Some(page) = request.query.get("next") {
        return Ok(redirect(request, page, &cookie));
    }
    let mut response = reply::json_value(
        200,
        &json!({"ok": true, "name": account.user.name, "roles": account.user.roles}),
    );
    reply::set(response.headers_mut(), "set-cookie", &cookie);
    Ok(response)
}

fn log_out(request: &Request) -> Handled {
    let cookie = policy(request)?.clear_cookie(false);
    if let Some(page) = request.query.get("next") {
        return Ok(redirect(request, page, &cookie));
    }
    let mut response = reply::ok(200);
    reply::set(response.headers_mut(), "set-cookie", &cookie);
    Ok(response)
}

/// 302 to a page of this server. Only its path counts, so that nobody is sent elsewhere.
fn redirect(request: &Request, page: &str, cookie: &str) -> HttpResponse {
    let path = if page.starts_with('/') && !page.starts_with("//") {
        page
    } else {
        "/"
    };
    let mut response = reply::bare(302, Bytes::new());
    reply::set_location(&mut response, &format!("{}{path}", request.origin()));
    reply::set(response.headers_mut(), "set-cookie", cookie);
    response
}
