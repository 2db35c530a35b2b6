//! Endpoints of the server level: `/`, `_up`, `_uuids`, `_all_dbs`, `_dbs_info`, `_membership`, `_node` and the like.

use actix_web::HttpResponse;
use actix_web::http::header::{CACHE_CONTROL, HeaderValue};
use bytes::Bytes;
use futures_util::stream;
use serde_json::{Value, json};

use settee_actors::coordinator::DbError;
use settee_engine::ids::DbName;

use crate::config::MaintenanceMode;

use super::database::write_db_info;
use super::error::{HttpError, write_json_string};
use super::params::{AllDocsQuery, IdKey, Integer, integer};
use super::reply::{self, COUCHDB_VERSION, Handled};
use super::request::{Request, Verb};
use super::router::Segments;
use super::{config_api, outside, session, stats, unimplemented};

/// Handles `/`.
pub fn welcome(request: &Request) -> Handled {
    request.allow("GET,HEAD")?;
    Ok(reply::json_value(
        200,
        &json!({
            "couchdb": "Welcome",
            "version": COUCHDB_VERSION,
            "git_sha": "settee",
            "uuid": request.app.coordinator.uuid().to_string(),
            "features": ["partitioned"],
            "vendor": {"name": "settee", "version": env!("CARGO_PKG_VERSION")},
        }),
    ))
}

/// Handles one name of the server level.
pub async fn handle(request: &Request, name: &'static str, segments: &Segments<'_>) -> Handled {
    let alone = segments.len() == 1;
    match name {
        "_up" if alone => up(request),
        "_uuids" if alone => uuids(request),
        "_session" if alone => session::handle(request).await,
        "_all_dbs" if alone => all_dbs(request).await,
        "_dbs_info" if alone => dbs_info(request).await,
        "_active_tasks" if alone => {
            request.allow("GET,HEAD")?;
            Ok(reply::json(200, Bytes::from_static(b"[]\n")))
        }
        "_membership" if alone => membership(request),
        "_utils" => utils(request, segments),
        "favicon.ico" => no_file(request),
        "_node" => node(request, segments).await,
        _ => match unimplemented::server(name) {
            Some(reason) => Err(HttpError::not_implemented(reason)),
            None => Err(HttpError::not_found("missing")),
        },
    }
}

fn up(request: &Request) -> Handled {
    request.allow("GET,HEAD")?;
    Ok(match request.settings.couchdb.maintenance_mode {
        MaintenanceMode::Off => reply::json(200, Bytes::from_static(b"{\"seeds\":{},\"status\":\"ok\"}\n")),
        MaintenanceMode::On => reply::json(404, Bytes::from_static(b"{\"status\":\"maintenance_mode\"}\n")),
        MaintenanceMode::NoLoadBalancing => reply::json(404, Bytes::from_static(b"{\"status\":\"nolb\"}\n")),
    })
}

fn uuids(request: &Request) -> Handled {
    request.allow("GET,HEAD")?;
    let max = request.settings.uuids.max_count;
    let count = match request.query.get("count").map(integer) {
        None => 1,
        Some(Some(Integer::Count(count))) if count <= max => count,
        Some(Some(Integer::Count(_))) => return Err(HttpError::bad_request("count parameter too large")),
        Some(_) => return Err(HttpError::bad_request("count must be a positive integer")),
    };
    let mut body = b"{\"uuids\":[".to_vec();
    for index in 0..count {
        if index > 0 {
            body.push(b',');
        }
        write_json_string(&mut body, &request.app.uuids.one(&request.settings.uuids));
    }
    body.extend_from_slice(b"]}\n");
    let etag = format!("\"{}\"", outside::random_hex());
    let mut response = reply::json(200, body);
    reply::set_etag(&mut response, &etag);
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    reply::set(headers, "pragma", "no-cache");
    reply::set(headers, "expires", "Mon, 01 Jan 1990 00:00:00 GMT");
    Ok(response)
}

/// Cuts a sorted list of names to what a query asks for.
fn select(names: Vec<String>, query: &AllDocsQuery) -> Vec<String> {
    if let Some(keys) = &query.keys {
        let wanted = |key: &IdKey| match key {
            IdKey::Id(name) if names.binary_search(name).is_ok() => Some(name.clone()),
            _ => None,
        };
        return keys.iter().filter_map(wanted).collect();
    }
    // Whatever is no string orders below every name.
    let order = |name: &String, key: &IdKey| match key {
        IdKey::Id(key) => name.cmp(key),
        IdKey::Other(_) => std::cmp::Ordering::Greater,
    };
    let (low, high) = if query.descending {
        (&query.end_key, &query.start_key)
    } else {
        (&query.start_key, &query.end_key)
    };
    let inside = |name: &String| {
        let above = low.as_ref().is_none_or(|key| match order(name, key) {
            std::cmp::Ordering::Equal => !query.descending || query.inclusive_end,
            order => order.is_gt(),
        });
        let below = high.as_ref().is_none_or(|key| match order(name, key) {
            std::cmp::Ordering::Equal => query.descending || query.inclusive_end,
            order => order.is_lt(),
        });
        above && below
    };
    let mut selected: Vec<String> = names.into_iter().filter(inside).collect();
    if query.descending {
        selected.reverse();
    }
    let skip = usize::try_from(query.skip).unwrap_or(usize::MAX);
    let limit = usize::try_from(query.limit).unwrap_or(usize::MAX);
    selected.into_iter().skip(skip).take(limit).collect()
}

/// An ETag over the whole list of databases, which changes with every creation and deletion.
fn list_etag(names: &[String]) -> String {
    use std::hash::{Hash, Hasher};
    let mut hasher = std::collections::hash_map::DefaultHasher::new();
    names.hash(&mut hasher);
    format!("\"{:016x}\"", hasher.finish())
}

async fn all_dbs(request: &Request) -> Handled {
    request.allow("GET,HEAD")?;
    let query = AllDocsQuery::read(&request.query, None)?;
    let names = request.app.coordinator.all_dbs().await?;
    let etag = list_etag(&names);
    if request.etag_matches(&etag) {
        return Ok(reply::not_modified(&etag));
    }
    let mut body = b"[".to_vec();
    for (index, name) in select(names, &query).iter().enumerate() {
        if index > 0 {
            body.push(b',');
        }
        write_json_string(&mut body, name);
    }
    body.extend_from_slice(b"]\n");
    let mut response = reply::json(200, body);
    reply::set_etag(&mut response, &etag);
    Ok(response)
}

async fn dbs_info(request: &Request) -> Handled {
    request.allow("GET,HEAD,POST")?;
    if request.verb == Verb::Post {
        request.require_json()?;
        let body = request.body_object().await?;
        let keys = match body.get("keys") {
            None => return Err(HttpError::bad_request("`keys` member must exist.")),
            Some(Value::Array(keys)) => keys,
            Some(_) => return Err(HttpError::bad_request("`keys` member must be an array.")),
        };
        if keys.len() as u64 > request.settings.chttpd.max_db_number_for_dbs_info_req {
            return Err(HttpError::bad_request("too_many_keys"));
        }
        let mut names = Vec::with_capacity(keys.len());
        for key in keys {
            match key {
                Value::String(name) => names.push(name.clone()),
                _ => {
                    return Err(HttpError::bad_request(
                        "`keys` member must be an array of database names.",
                    ));
                }
            }
        }
        return Ok(info_stream(request, names, true));
    }
    let query = AllDocsQuery::read(&request.query, None)?;
    let names = request.app.coordinator.all_dbs().await?;
    let etag = list_etag(&names);
    if request.etag_matches(&etag) {
        return Ok(reply::not_modified(&etag));
    }
    let mut response = info_stream(request, select(names, &query), false);
    reply::set_etag(&mut response, &etag);
    Ok(response)
}

/// Streams the info of one database after the other. `tell_missing` says whether unknown ones get an error entry.
fn info_stream(request: &Request, names: Vec<String>, tell_missing: bool) -> HttpResponse {
    struct State {
        app: std::sync::Arc<super::App>,
        names: std::vec::IntoIter<String>,
        first: bool,
        ended: bool,
    }
    let state = State {
        app: request.app.clone(),
        names: names.into_iter(),
        first: true,
        ended: false,
    };
    let rows = stream::try_unfold(state, move |mut state| async move {
        if state.ended {
            return Ok(None);
        }
        let mut out = Vec::new();
        if state.first {
            out.push(b'[');
        }
        loop {
            let Some(name) = state.names.next() else {
                state.ended = true;
                out.extend_from_slice(b"]\n");
                return Ok(Some((Bytes::from(out), state)));
            };
            let info = match DbName::new(&name) {
                Ok(db) => state.app.coordinator.db_info(&db).await,
                Err(_) => Err(DbError::DatabaseDoesNotExist(name.clone())),
            };
            let separator: &[u8] = if state.first { b"" } else { b"," };
            match info {
                Ok(info) => {
                    out.extend_from_slice(separator);
                    out.extend_from_slice(b"{\"key\":");
                    write_json_string(&mut out, &name);
                    out.extend_from_slice(b",\"info\":");
                    write_db_info(&mut out, &info);
                    out.push(b'}');
                }
                Err(DbError::DatabaseDoesNotExist(_)) if tell_missing => {
                    out.extend_from_slice(separator);
                    out.extend_from_slice(b"{\"key\":");
                    write_json_string(&mut out, &name);
                    out.extend_from_slice(b",\"error\":\"not_found\"}");
                }
                Err(DbError::DatabaseDoesNotExist(_)) => continue,
                Err(error) => return Err(HttpError::from(error)),
            }
            state.first = false;
            return Ok(Some((Bytes::from(out), state)));
        }
    });
    reply::json_stream(200, rows)
}

fn membership(request: &Request) -> Handled {
    request.allow("GET,HEAD")?;
    let name = request.app.coordinator.node_name().to_string();
    Ok(reply::json_value(
        200,
        &json!({"all_nodes": [name], "cluster_nodes": [name]}),
    ))
}

fn utils(request: &Request, segments: &Segments<'_>) -> Handled {
    request.allow("GET,HEAD")?;
    if segments.len() == 1 && !request.http.uri().path().ends_with('/') {
        let mut response = reply::bare(301, Bytes::new());
        reply::set_location(&mut response, &format!("{}/_utils/", request.origin()));
        return Ok(response);
    }
    let text = "Fauxton is not part of this server; open it elsewhere and point it to this address.\n";
    let mut response = reply::bare(404, text);
    reply::set(response.headers_mut(), "content-type", "text/plain");
    Ok(response)
}

fn no_file(request: &Request) -> Handled {
    request.allow("GET,HEAD")?;
    let mut response = reply::bare(404, "Not found.");
    reply::set(response.headers_mut(), "content-type", "text/plain");
    Ok(response)
}

async fn node(request: &Request, segments: &Segments<'_>) -> Handled {
    let Some(name) = segments.text(1) else {
        return Err(HttpError::bad_request("Incomplete path to _node request"));
    };
    let own = request.app.coordinator.node_name().to_string();
    if name != "_local" && name != own {
        return Err(HttpError::not_found(format!("no such node: {name}")));
    }
    match segments.text(2) {
        None if segments.len() == 2 => {
            request.allow("GET,HEAD")?;
            Ok(reply::json_value(200, &json!({"name": own})))
        }
        Some("_config") => config_api::handle(request, segments).await,
        Some("_stats") => stats::stats(request, segments),
        Some("_system") if segments.len() == 3 => stats::system(request),
        Some("_versions") if segments.len() == 3 => {
            request.allow("GET,HEAD")?;
            Ok(reply::json_value(
                200,
                &json!({"settee": {"version": env!("CARGO_PKG_VERSION")}, "couchdb_api": {"version": COUCHDB_VERSION}}),
            ))
        }
        Some(part) => match unimplemented::node(part) {
            Some(reason) => Err(HttpError::not_implemented(reason)),
            None => Err(HttpError::not_found("missing")),
        },
        None => Err(HttpError::not_found("missing")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::params::Query;
    use super::*;

    fn selected(raw: &str) -> String {
        let query = AllDocsQuery::read(&Query::parse(raw).expect("good"), None).expect("good");
        let names = ["a", "b", "c", "d"].map(str::to_owned).to_vec();
        select(names, &query).concat()
    }

    #[test]
    fn ranges_of_names() {
        assert_eq!(selected(""), "abcd");
        assert_eq!(selected("startkey=%22b%22&endkey=%22c%22"), "bc");
        assert_eq!(
            selected("startkey=%22b%22&endkey=%22c%22&inclusive_end=false"),
            "b"
        );
        assert_eq!(selected("descending=true&startkey=%22c%22&endkey=%22b%22"), "cb");
        assert_eq!(
            selected("descending=true&startkey=%22c%22&endkey=%22b%22&inclusive_end=false"),
            "c"
        );
        assert_eq!(selected("limit=2&skip=1"), "bc");
        assert_eq!(selected("key=%22c%22"), "c");
        assert_eq!(selected("endkey={}"), "");
        assert_eq!(selected("startkey={}"), "abcd");
        assert_eq!(selected("keys=[%22d%22,%22x%22,%22a%22]"), "da");
    }
}
