//! What is special about the database of users: passwords are hashed before they are stored, documents have a fixed
//! shape, and who is no server admin sees only their own.

use actix_web::web;
use bytes::Bytes;
use serde_json::{Map, Value};
use settee_engine::ids::{DbName, DocId};

use crate::auth::{HashDocError, HashPolicy, hash_user_password};

use super::error::HttpError;
use super::request::Request;

/// What the id of a user's document begins with.
const PREFIX: &str = "org.couchdb.user:";

/// Whether this is the database of users.
pub fn is_users_db(request: &Request, db: &DbName) -> bool {
    db.as_str() == request.settings.chttpd_auth.authentication_db
}

/// Hides other users' documents.
///
/// # Errors
/// 404.
pub fn check_read(request: &Request, db: &DbName, id: &DocId) -> Result<(), HttpError> {
    match !is_users_db(request, db) || may_touch(request, id.as_str()) {
        true => Ok(()),
        false => Err(HttpError::not_found("missing")),
    }
}

/// Makes the JSON of a document ready to be written; other databases' documents pass as they are.
///
/// # Errors
/// 403 for a document that is no user's.
pub async fn before_write(
    request: &Request,
    db: &DbName,
    id: &DocId,
    json: Bytes,
) -> Result<Bytes, HttpError> {
    if !is_users_db(request, db) || id.is_local() || id.is_design() {
        return Ok(json);
    }
    let Value::Object(doc) = readable(&json)? else {
        return Ok(json);
    };
    let doc = ready(request, id.as_str(), doc).await?;
    Ok(Bytes::from(Value::Object(doc).to_string()))
}

/// The same for all documents of `_bulk_docs`.
///
/// # Errors
/// 403 for a document that is no user's.
pub async fn before_bulk(request: &Request, db: &DbName, json: Bytes) -> Result<Bytes, HttpError> {
    if !is_users_db(request, db) {
        return Ok(json);
    }
    let Value::Object(mut body) = readable(&json)? else {
        return Ok(json);
    };
    if let Some(Value::Array(docs)) = body.get_mut("docs") {
        for doc in docs {
            let Value::Object(members) = doc else { continue };
            let id = members
                .get("_id")
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned();
            if !id.starts_with('_') {
                let taken = std::mem::take(members);
                *members = ready(request, &id, taken).await?;
            }
        }
    }
    Ok(Bytes::from(Value::Object(body).to_string()))
}

/// What cannot be looked at must not be stored: numbers beyond a double, and deep nesting, are refused here.
fn readable(json: &[u8]) -> Result<Value, HttpError> {
    serde_json::from_slice(json)
        .map_err(|error| HttpError::bad_request(format!("a user document must be plain JSON: {error}")))
}

/// Refuses a deletion, an attachment or a copy that concerns another user's document.
///
/// # Errors
/// 403.
pub fn check_owner(request: &Request, db: &DbName, id: &DocId) -> Result<(), HttpError> {
    match !is_users_db(request, db) || may_touch(request, id.as_str()) {
        true => Ok(()),
        false => Err(HttpError::forbidden(
            "You may only update your own user document.",
        )),
    }
}

/// Whether a document of the database of users is the user's own, or the user is an admin.
fn may_touch(request: &Request, id: &str) -> bool {
    let own = request.user.name.as_deref();
    request.user.is_server_admin() || (own.is_some() && id.strip_prefix(PREFIX) == own)
}

async fn ready(
    request: &Request,
    id: &str,
    mut doc: Map<String, Value>,
) -> Result<Map<String, Value>, HttpError> {
    if doc.get("_deleted") == Some(&Value::Bool(true)) {
        return match may_touch(request, id) {
            true => Ok(doc),
            false => Err(HttpError::forbidden(
                "You may only delete your own user document.",
            )),
        };
    }
    validate(
        id,
        &doc,
        request.user.is_server_admin(),
        request.user.name.as_deref(),
    )?;
    let policy = HashPolicy::from(&*request.settings);
    if doc.get("password").is_none_or(Value::is_null) {
        return Ok(doc);
    }
    web::block(move || hash_user_password(&mut doc, &policy, false).map(|_| doc))
        .await
        .map_err(|_| HttpError::internal("hashing the password was cancelled"))?
        .map_err(|error| match error {
            HashDocError::NotText(_) => HttpError::forbidden(error.to_string()),
            HashDocError::Random(error) => HttpError::internal(error.to_string()),
        })
}

/// The rules of a user's document.
fn validate(
    id: &str,
    doc: &Map<String, Value>,
    server_admin: bool,
    user: Option<&str>,
) -> Result<(), HttpError> {
    let forbidden = |reason: &'static str| Err(HttpError::forbidden(reason));
    if doc.get("type").and_then(Value::as_str) != Some("user") {
        return forbidden("doc.type must be user");
    }
    let Some(name) = doc.get("name").and_then(Value::as_str) else {
        return forbidden("doc.name is required");
    };
    let roles = match doc.get("roles") {
        Some(Value::Array(roles)) => roles,
        Some(_) => return forbidden("doc.roles must be an array"),
        None => return forbidden("doc.roles must exist"),
    };
    if id.strip_prefix(PREFIX) != Some(name) {
        return forbidden("Doc ID must be of the form org.couchdb.user:name");
    }
    for role in roles {
        match role.as_str() {
            None => return forbidden("doc.roles can only contain strings"),
            Some("_metrics") if server_admin => {}
            Some(role) if role.starts_with('_') => {
                return forbidden("No system roles (starting with underscore) in users db.");
            }
            Some(_) => {}
        }
    }
    if name.starts_with('_') {
        return forbidden("Username may not start with underscore.");
    }
    if name.contains(':') {
        return forbidden("Character `:` is not allowed in usernames.");
    }
    if !server_admin && user != Some(name) {
        return forbidden("You may only update your own user document.");
    }
    if !server_admin && !roles.is_empty() {
        return forbidden("Only _admin may set roles");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(id: &str, doc: Value) -> Result<(), String> {
        let doc = doc.as_object().expect("an object").clone();
        validate(id, &doc, true, None).map_err(|error| error.reason.unwrap_or_default().into_owned())
    }

    #[test]
    fn users_have_a_shape() {
        let id = "org.couchdb.user:joe";
        assert_eq!(
            check(
                id,
                json!({"type": "user", "name": "joe", "roles": ["a", "_metrics"]})
            ),
            Ok(())
        );
        let refused = |id: &str, doc| check(id, doc).expect_err("refused");
        assert_eq!(
            refused(id, json!({"name": "joe", "roles": []})),
            "doc.type must be user"
        );
        assert_eq!(
            refused(id, json!({"type": "user", "roles": []})),
            "doc.name is required"
        );
        assert_eq!(
            refused(id, json!({"type": "user", "name": "joe", "roles": [1]})),
            "doc.roles can only contain strings"
        );
        let system = json!({"type": "user", "name": "joe", "roles": ["_admin"]});
        assert_eq!(
            refused(id, system),
            "No system roles (starting with underscore) in users db."
        );
        let colon = json!({"type": "user", "name": "a:b", "roles": []});
        assert_eq!(
            refused("org.couchdb.user:a:b", colon),
            "Character `:` is not allowed in usernames."
        );
        let other = json!({"type": "user", "name": "ann", "roles": []});
        assert_eq!(
            refused(id, other),
            "Doc ID must be of the form org.couchdb.user:name"
        );
    }
}
