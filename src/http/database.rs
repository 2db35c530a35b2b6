//! A database itself: create, delete, info, security, limits, and the endpoints about revisions that it lacks.

use bytes::Bytes;
use serde_json::{Map, Value};

use settee_actors::coordinator::{CreateDb, DbInfo, MissingRevs};
use settee_engine::ids::{DbName, DbNameError, DocId, Rev};

use crate::auth;

use super::document;
use super::error::{HttpError, write_json_string};
use super::params::{Integer, integer};
use super::reply::{self, Handled};
use super::request::{Request, Verb};
use super::router::{Segments, percent_encode};

/// What a name that no database can have gets on PUT.
pub fn illegal_name(error: &DbNameError) -> HttpError {
    match error {
        DbNameError::Illegal(name) => HttpError::new(
            400,
            "illegal_database_name",
            format!(
                "Name: '{name}'. Only lowercase characters (a-z), digits (0-9), and any of the characters _, $, (, ), \
                 +, -, and / are allowed. Must begin with a letter."
            ),
        ),
        DbNameError::SegmentTooLong(name) => HttpError::new(
            400,
            "database_name_too_long",
            format!("At least one path segment of `{name}` is too long."),
        ),
    }
}

/// Handles `/db`.
pub async fn root(request: &Request, db: &DbName) -> Handled {
    match request.verb {
        Verb::Get | Verb::Head => info(request, db).await,
        Verb::Put => create(request, db).await,
        Verb::Delete => delete(request, db).await,
        Verb::Post => document::post(request, db).await,
        _ => Err(HttpError::method_not_allowed("DELETE,GET,HEAD,POST")),
    }
}

async fn create(request: &Request, db: &DbName) -> Handled {
    let count = |name: &str| match request.query.get(name).map(integer) {
        None => Ok(None),
        Some(Some(Integer::Count(count))) if count > 0 => {
            u32::try_from(count).map(Some).map_err(|_| not_positive(name))
        }
        Some(_) => Err(not_positive(name)),
    };
    let options = CreateDb {
        q: count("q")?,
        n: count("n")?,
        partitioned: match request.query.get("partitioned") {
            None | Some("false") => false,
            Some("true") => true,
            Some(_) => return Err(HttpError::bad_request("Invalid `partitioned` parameter")),
        },
    };
    if request
        .query
        .get("engine")
        .is_some_and(|engine| engine != "couch")
    {
        return Err(HttpError::new(
            400,
            "invalid_engine_extension",
            "invalid engine extension",
        ));
    }
    request.app.coordinator.create_db(db, options).await?;
    let mut response = reply::ok(201);
    reply::set_location(
        &mut response,
        &format!("{}/{}", request.origin(), percent_encode(db.as_str().as_bytes())),
    );
    Ok(response)
}

fn not_positive(name: &str) -> HttpError {
    HttpError::bad_request(format!("The `{name}` value should be a positive integer."))
}

async fn delete(request: &Request, db: &DbName) -> Handled {
    if request.query.get("rev").is_some() {
        return Err(HttpError::bad_request(
            "You tried to DELETE a database with a ?=rev parameter. Did you mean to DELETE a document instead?",
        ));
    }
    request.app.coordinator.delete_db(db).await?;
    Ok(reply::ok(200))
}

async fn info(request: &Request, db: &DbName) -> Handled {
    let info = request.app.coordinator.db_info(db).await?;
    let mut body = Vec::with_capacity(512);
    write_db_info(&mut body, &info);
    body.push(b'\n');
    Ok(reply::json(200, body))
}

/// Appends the object that `GET /db` gives.
pub fn write_db_info(out: &mut Vec<u8>, info: &DbInfo) {
    out.extend_from_slice(b"{\"instance_start_time\":");
    write_json_string(out, &info.instance_start_time);
    out.extend_from_slice(b",\"db_name\":");
    write_json_string(out, &info.db_name);
    out.extend_from_slice(b",\"purge_seq\":");
    write_json_string(out, &info.purge_seq);
    out.extend_from_slice(b",\"update_seq\":");
    write_json_string(out, &info.update_seq);
    let props = if info.partitioned {
        "{\"partitioned\":true}"
    } else {
        "{}"
    };
    out.extend_from_slice(
        format!(
            ",\"sizes\":{{\"file\":{},\"external\":{},\"active\":{}}},\"props\":{props},\"doc_del_count\":{},\
             \"doc_count\":{},\"disk_format_version\":{},\"compact_running\":{},\
             \"cluster\":{{\"q\":{},\"n\":{},\"w\":{},\"r\":{}}}}}",
            info.sizes_file,
            info.sizes_external,
            info.sizes_active,
            info.doc_del_count,
            info.doc_count,
            info.disk_format_version,
            info.compact_running,
            info.q,
            info.n,
            info.w,
            info.r
        )
        .as_bytes(),
    );
}

/// Handles `/db/_security`.
pub async fn security(request: &Request, db: &DbName) -> Handled {
    request.allow("PUT,GET,HEAD")?;
    if request.verb.reads() {
        let mut body = request.app.coordinator.security(db).await?;
        body.push(b'\n');
        return Ok(reply::json(200, body));
    }
    if db.as_str() == request.settings.chttpd_auth.authentication_db
        && !request.settings.couchdb.users_db_security_editable
    {
        return Err(HttpError::forbidden(
            "You can't edit the security object of the user database.",
        ));
    }
    let body = request.body().await?;
    let value: Value = serde_json::from_slice(&body).map_err(|_| HttpError::invalid_json())?;
    auth::validate_security_object(&value).map_err(|error| HttpError::bad_request(error.to_string()))?;
    request.app.coordinator.set_security(db, &body).await?;
    Ok(reply::ok(200))
}

/// Reads a body that has to be one positive JSON integer.
async fn positive_body(request: &Request, name: &str) -> Result<u64, HttpError> {
    let value = request.body_json().await?;
    value
        .as_u64()
        .filter(|number| *number > 0)
        .ok_or_else(|| HttpError::bad_request(format!("`{name}` must be positive integer")))
}

fn number(value: u64) -> Handled {
    Ok(reply::json(200, format!("{value}\n")))
}

/// Handles `/db/_revs_limit`.
pub async fn revs_limit(request: &Request, db: &DbName) -> Handled {
    request.allow("PUT,GET,HEAD")?;
    if request.verb.reads() {
        return number(request.app.coordinator.revs_limit(db).await?);
    }
    let limit = positive_body(request, "revs_limit").await?;
    request.app.coordinator.set_revs_limit(db, limit).await?;
    Ok(reply::ok(200))
}

/// Handles `/db/_purged_infos_limit`.
pub async fn purged_infos_limit(request: &Request, db: &DbName) -> Handled {
    request.allow("PUT,GET,HEAD")?;
    if request.verb.reads() {
        return number(request.app.coordinator.purged_infos_limit(db).await?);
    }
    let limit = positive_body(request, "purged_infos_limit").await?;
    request.app.coordinator.set_purged_infos_limit(db, limit).await?;
    Ok(reply::ok(200))
}

/// Handles `/db/_ensure_full_commit`: every acknowledged write is on disk already.
pub async fn ensure_full_commit(request: &Request, db: &DbName) -> Handled {
    request.allow("POST")?;
    request.require_json()?;
    let info = request.app.coordinator.db_info(db).await?;
    let mut body = b"{\"ok\":true,\"instance_start_time\":".to_vec();
    write_json_string(&mut body, &info.instance_start_time);
    body.extend_from_slice(b"}\n");
    Ok(reply::json(201, body))
}

/// Handles `/db/_shards` and `/db/_shards/{docid}`.
pub async fn shards(request: &Request, db: &DbName, segments: &Segments<'_>) -> Handled {
    request.allow("GET,HEAD")?;
    let map = request.app.coordinator.shards(db).await?;
    let body = match segments.len() {
        2 => document::shard_map_json(&map),
        _ => {
            let id = DocId::from_bytes(&segments.join_from(2)).map_err(HttpError::from)?;
            document::shard_of_json(&map, &id)
        }
    };
    Ok(reply::json_value(200, &body))
}

/// Handles `/db/_temp_view`.
pub fn temp_view() -> HttpError {
    HttpError::new(410, "gone", "Temporary views are not supported in CouchDB")
}

/// Reads `{"id":["1-a",…],…}`.
fn wanted_revs(body: Map<String, Value>) -> Result<Vec<(DocId, Vec<Rev>)>, HttpError> {
    let mut wanted = Vec::with_capacity(body.len());
    for (id, revs) in body {
        let Value::Array(revs) = revs else {
            return Err(HttpError::bad_request("Invalid revisions, must be a list"));
        };
        let mut parsed = Vec::with_capacity(revs.len());
        for rev in revs {
            let text = rev.as_str().ok_or_else(document::invalid_rev)?;
            parsed.push(document::parse_rev(text)?);
        }
        wanted.push((DocId::new(&id).map_err(HttpError::from)?, parsed));
    }
    Ok(wanted)
}

async fn missing(request: &Request, db: &DbName) -> Result<Vec<MissingRevs>, HttpError> {
    request.allow("POST")?;
    request.require_json()?;
    let mut wanted = wanted_revs(request.body_object().await?)?;
    wanted.sort_by(|(one, _), (other, _)| one.cmp(other));
    let mut missing = request.app.coordinator.missing_revs(db, wanted).await?;
    missing.retain(|entry| !entry.missing.is_empty());
    Ok(missing)
}

/// Handles `/db/_revs_diff`.
pub async fn revs_diff(request: &Request, db: &DbName) -> Handled {
    let missing = missing(request, db).await?;
    let mut out = b"{".to_vec();
    for (index, entry) in missing.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        write_json_string(&mut out, entry.id.as_str());
        out.extend_from_slice(b":{\"missing\":");
        document::write_revs(&mut out, &entry.missing);
        if !entry.possible_ancestors.is_empty() {
            out.extend_from_slice(b",\"possible_ancestors\":");
            document::write_revs(&mut out, &entry.possible_ancestors);
        }
        out.push(b'}');
    }
    out.extend_from_slice(b"}\n");
    Ok(reply::json(200, Bytes::from(out)))
}

/// Handles `/db/_missing_revs`.
pub async fn missing_revs(request: &Request, db: &DbName) -> Handled {
    let missing = missing(request, db).await?;
    let mut out = b"{\"missing_revs\":{".to_vec();
    for (index, entry) in missing.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        write_json_string(&mut out, entry.id.as_str());
        out.push(b':');
        document::write_revs(&mut out, &entry.missing);
    }
    out.extend_from_slice(b"}}\n");
    Ok(reply::json(200, Bytes::from(out)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn info_has_couchdbs_members_in_order() {
        let info = DbInfo {
            db_name: "db".to_owned(),
            instance_start_time: "0".to_owned(),
            update_seq: "1-x".to_owned(),
            purge_seq: "0-x".to_owned(),
            doc_count: 1,
            doc_del_count: 2,
            sizes_file: 3,
            sizes_external: 4,
            sizes_active: 5,
            disk_format_version: 8,
            compact_running: false,
            partitioned: true,
            q: 2,
            n: 1,
            w: 1,
            r: 1,
        };
        let mut out = Vec::new();
        write_db_info(&mut out, &info);
        assert_eq!(
            String::from_utf8(out).expect("UTF-8"),
            "{\"instance_start_time\":\"0\",\"db_name\":\"db\",\"purge_seq\":\"0-x\",\"update_seq\":\"1-x\",\
             \"sizes\":{\"file\":3,\"external\":4,\"active\":5},\"props\":{\"partitioned\":true},\"doc_del_count\":2,\
             \"doc_count\":1,\"disk_format_version\":8,\"compact_running\":false,\
             \"cluster\":{\"q\":2,\"n\":1,\"w\":1,\"r\":1}}"
        );
    }

    #[test]
    fn bad_lists_of_revisions_are_refused() {
        let read = |text: &str| {
            let value: Value = serde_json::from_str(text).expect("JSON");
            wanted_revs(value.as_object().expect("an object").clone())
        };
        assert_eq!(
            read(r#"{"d":["1-aa"],"x":true}"#).expect_err("no list"),
            HttpError::bad_request("Invalid revisions, must be a list")
        );
        assert_eq!(
            read(r#"{"d":[5]}"#).expect_err("no text"),
            HttpError::bad_request("Invalid rev format")
        );
        assert_eq!(read(r#"{"d":["1-aa","2-b"]}"#).expect("good").len(), 1);
    }
}
