//! Who may do what: the one table of requirements, and the check of a database's security object.

use serde_json::Value;

use crate::auth::{self, Denied, UserCtx};

use super::error::HttpError;
use super::request::Verb;
use super::router::{DatabasePart, Segments, Target};

/// What a request needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// Nothing.
    Nobody,
    /// A logged-in user.
    User,
    /// Server admin.
    ServerAdmin,
    /// Server admin, or the role `_metrics`.
    Metrics,
    /// Member of the database.
    Member,
    /// Admin of the database; whoever is not gets 401.
    DatabaseTask,
    /// Admin of the database; anonymous gets 401, others 403.
    DatabaseAdmin,
}

/// The authorisation table.
pub fn need(target: &Target, verb: Verb, segments: &Segments<'_>, admin_only_all_dbs: bool) -> Need {
    match target {
        Target::Welcome => Need::Nobody,
        Target::Server(name) => match *name {
            "favicon.ico" | "_utils" | "_up" | "_uuids" | "_session" => Need::Nobody,
            "_replicate" | "_search_analyze" | "_nouveau_analyze" => Need::User,
            "_all_dbs" | "_dbs_info" if !admin_only_all_dbs => Need::Nobody,
            "_node" if matches!(segments.text(2), Some("_stats" | "_system" | "_prometheus")) => {
                Need::Metrics
            }
            _ => Need::ServerAdmin,
        },
        Target::Database(name, part) => database_need(name, part, verb),
    }
}

fn database_need(name: &[u8], part: &DatabasePart, verb: Verb) -> Need {
    let system = matches!(name, b"_users" | b"_replicator");
    match part {
        _ if name.starts_with(b"_") && !system => Need::ServerAdmin,
        DatabasePart::Root if matches!(verb, Verb::Put | Verb::Delete) => Need::ServerAdmin,
        DatabasePart::Endpoint(endpoint) => match *endpoint {
            "_purge" | "_sync_shards" => Need::ServerAdmin,
            "_purged_infos_limit" if verb == Verb::Put => Need::ServerAdmin,
            "_time_seq" if verb == Verb::Delete => Need::ServerAdmin,
            "_compact" | "_view_cleanup" => Need::DatabaseTask,
            "_security" | "_revs_limit" | "_auto_purge" if verb == Verb::Put => Need::DatabaseAdmin,
            "_index" if !verb.reads() => Need::DatabaseAdmin,
            "_all_docs" | "_changes" if system => Need::ServerAdmin,
            _ => Need::Member,
        },
        DatabasePart::DesignFunction("_view" | "_list") if system => Need::ServerAdmin,
        DatabasePart::Document(id) | DatabasePart::JoinedDesign(id) | DatabasePart::Attachment(id, _)
            if id.starts_with(b"_design/") && matches!(verb, Verb::Put | Verb::Delete) =>
        {
            Need::DatabaseAdmin
        }
        _ => Need::Member,
    }
}

/// Checks what can be checked without looking at a database.
///
/// # Errors
/// 401 with the sentence that belongs to the requirement.
pub fn check_server(need: Need, user: &UserCtx) -> Result<(), HttpError> {
    let refusal = match need {
        Need::User if user.name.is_none() && !user.is_server_admin() => "You are not an authenticated user",
        Need::ServerAdmin if !user.is_server_admin() => "You are not a server admin.",
        Need::Metrics if !user.is_server_admin() && !user.has_role("_metrics") => {
            "You are not a server admin or read-only metrics user"
        }
        _ => return Ok(()),
    };
    Err(HttpError::unauthorized(refusal))
}

/// Checks a requirement against the security object of a database.
///
/// # Errors
/// 401 or 403 with the sentence that belongs to the requirement.
pub fn check_database(need: Need, user: &UserCtx, security: &Value) -> Result<(), HttpError> {
    let outcome = match need {
        Need::Nobody | Need::User | Need::ServerAdmin | Need::Metrics => return check_server(need, user),
        Need::Member => auth::check_member(security, user),
        Need::DatabaseAdmin => auth::check_admin(security, user),
        Need::DatabaseTask if auth::is_admin(security, user) => Ok(()),
        Need::DatabaseTask => return Err(HttpError::unauthorized("You are not a server or db admin.")),
    };
    outcome.map_err(|denied| match denied {
        Denied::Unauthorized(sentence) => HttpError::unauthorized(sentence),
        Denied::Forbidden(sentence) => HttpError::forbidden(sentence),
    })
}

/// Reads a stored security object. One that cannot be understood grants nothing beyond server admins.
pub fn read_security(json: &[u8]) -> Value {
    let closed = || serde_json::json!({"admins": {"roles": ["_admin"]}, "members": {"roles": ["_admin"]}});
    serde_json::from_slice::<Value>(json)
        .ok()
        .filter(Value::is_object)
        .unwrap_or_else(closed)
}

#[cfg(test)]
mod tests {
    use super::super::router::route;
    use super::*;

    fn user(name: &str, roles: &[&str]) -> UserCtx {
        UserCtx {
            name: (!name.is_empty()).then(|| name.to_owned()),
            roles: roles.iter().map(|role| (*role).to_owned()).collect(),
        }
    }

    fn need_of(path: &str, verb: Verb) -> Need {
        let segments = Segments::parse(path, true).expect("a good path");
        need(&route(&segments), verb, &segments, true)
    }

    #[test]
    fn every_kind_of_path_has_its_need() {
        let table = [
            ("/", Verb::Get, Need::Nobody),
            ("/_up", Verb::Get, Need::Nobody),
            ("/_session", Verb::Post, Need::Nobody),
            ("/_replicate", Verb::Post, Need::User),
            ("/_all_dbs", Verb::Get, Need::ServerAdmin),
            ("/_active_tasks", Verb::Get, Need::ServerAdmin),
            ("/_node/_local/_stats", Verb::Get, Need::Metrics),
            ("/_node/_local/_config", Verb::Get, Need::ServerAdmin),
            ("/db", Verb::Get, Need::Member),
            ("/db", Verb::Put, Need::ServerAdmin),
            ("/db", Verb::Delete, Need::ServerAdmin),
            ("/db/_purge", Verb::Post, Need::ServerAdmin),
            ("/db/_compact", Verb::Post, Need::DatabaseTask),
            ("/db/_security", Verb::Get, Need::Member),
            ("/db/_security", Verb::Put, Need::DatabaseAdmin),
            ("/db/_design/x", Verb::Get, Need::Member),
            ("/db/_design/x", Verb::Put, Need::DatabaseAdmin),
            ("/db/_design%2Fx", Verb::Delete, Need::DatabaseAdmin),
            ("/db/_design/x/att", Verb::Put, Need::DatabaseAdmin),
            ("/db/doc", Verb::Put, Need::Member),
            ("/_stats", Verb::Get, Need::ServerAdmin),
            ("/_users/_all_docs", Verb::Get, Need::ServerAdmin),
            ("/_users/org.couchdb.user:a", Verb::Get, Need::Member),
        ];
        for (path, verb, expected) in table {
            assert_eq!(need_of(path, verb), expected, "{verb:?} {path}");
        }
    }

    #[test]
    fn members_are_checked_by_name_and_role() {
        let security = read_security(br#"{"admins":{"names":["boss"]},"members":{"roles":["team"]}}"#);
        let check =
            |need, user: &UserCtx| check_database(need, user, &security).map_err(|error| error.status);
        assert_eq!(check(Need::Member, &user("", &[])), Err(401));
        assert_eq!(check(Need::Member, &user("joe", &[])), Err(403));
        assert_eq!(check(Need::Member, &user("joe", &["team"])), Ok(()));
        assert_eq!(check(Need::Member, &user("boss", &[])), Ok(()));
        assert_eq!(check(Need::DatabaseAdmin, &user("joe", &["team"])), Err(403));
        assert_eq!(check(Need::DatabaseAdmin, &user("", &[])), Err(401));
        assert_eq!(check(Need::DatabaseTask, &user("joe", &["team"])), Err(401));
        assert_eq!(check(Need::DatabaseAdmin, &user("root", &["_admin"])), Ok(()));
    }

    #[test]
    fn an_unreadable_object_is_closed() {
        for json in [&b"junk"[..], b"[]", b"1"] {
            assert!(check_database(Need::Member, &user("joe", &[]), &read_security(json)).is_err());
        }
        assert!(check_database(Need::Member, &user("", &[]), &read_security(b"{}")).is_ok());
    }

    #[test]
    fn server_refusals_are_always_401() {
        let joe = user("joe", &[]);
        let error = check_server(Need::ServerAdmin, &joe).expect_err("refused");
        assert_eq!(error, HttpError::unauthorized("You are not a server admin."));
        assert!(check_server(Need::Metrics, &user("joe", &["_metrics"])).is_ok());
        assert!(check_server(Need::User, &user("", &[])).is_err());
    }
}
