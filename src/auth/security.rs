//! Security objects: who is a member and who an admin of a database.

use serde_json::{Value, json};

use super::user::{ADMIN, UserCtx};
use crate::config::DefaultSecurity;

/// Why a security object is not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SecurityError {
    /// It is not an object.
    #[error("the security object must be a JSON object")]
    NotObject,
    /// `admins` or `members` is not an object.
    #[error("admins or members must be a JSON list of strings")]
    Group,
    /// `names` is no list of strings.
    #[error("names must be a JSON list of strings")]
    Names,
    /// `roles` is no list of strings.
    #[error("roles must be a JSON list of strings")]
    Roles,
}

/// A refusal: 401 for nobody, who may log in; 403 for somebody.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Denied {
    /// Nobody is logged in: status 401, `unauthorized`.
    #[error("{0}")]
    Unauthorized(&'static str),
    /// The user may not: status 403, `forbidden`.
    #[error("{0}")]
    Forbidden(&'static str),
}

/// The members of a security object, under their old name if need be.
fn members(security: &Value) -> &Value {
    match &security["members"] {
        Value::Null => &security["readers"],
        members => members,
    }
}

fn strings<'a>(group: &'a Value, key: &str) -> &'a [Value] {
    group[key].as_array().map_or(&[], Vec::as_slice)
}

fn listed(group: &Value, ctx: &UserCtx) -> bool {
    ctx.is_server_admin()
        || strings(group, "roles")
            .iter()
            .any(|role| role.as_str().is_some_and(|role| ctx.has_role(role)))
        || ctx
            .name
            .as_deref()
            .is_some_and(|name| strings(group, "names").iter().any(|listed| listed == name))
}

/// Whether the user is an admin of the database (server admins always are).
pub fn is_admin(security: &Value, ctx: &UserCtx) -> bool {
    listed(&security["admins"], ctx)
}

/// Whether the user may read and write documents: admins, listed members, and everyone where no member is listed.
///
/// A `names` or `roles` that is not a list lists nobody, and keeps the database closed.
pub fn is_member(security: &Value, ctx: &UserCtx) -> bool {
    let members = members(security);
    let empty = |key: &str| match &members[key] {
        Value::Null => true,
        Value::Array(list) => list.is_empty(),
        _ => false,
    };
    let open = matches!(members, Value::Null | Value::Object(_)) && empty("names") && empty("roles");
    is_admin(security, ctx) || open || listed(members, ctx)
}

/// Refuses a user who is not a member.
///
/// # Errors
///
/// The refusal with CouchDB's text.
pub fn check_member(security: &Value, ctx: &UserCtx) -> Result<(), Denied> {
    match (is_member(security, ctx), &ctx.name) {
        (true, _) => Ok(()),
        (false, None) => Err(Denied::Unauthorized("You are not authorized to access this db.")),
        (false, Some(_)) => Err(Denied::Forbidden("You are not allowed to access this db.")),
    }
}

/// Refuses a user who is not an admin of the database.
///
/// # Errors
///
/// The refusal with CouchDB's text.
pub fn check_admin(security: &Value, ctx: &UserCtx) -> Result<(), Denied> {
    const REASON: &str = "You are not a db or server admin.";
    match (is_admin(security, ctx), &ctx.name) {
        (true, _) => Ok(()),
        (false, None) => Err(Denied::Unauthorized(REASON)),
        (false, Some(_)) => Err(Denied::Forbidden(REASON)),
    }
}

/// Checks a security object before it is stored. Other members than admins and members may be anything.
///
/// # Errors
///
/// When a list is not a list of strings.
pub fn validate_security_object(security: &Value) -> Result<(), SecurityError> {
    if !security.is_object() {
        return Err(SecurityError::NotObject);
    }
    let missing = Value::Null;
    let members = security.get("members").or_else(|| security.get("readers"));
    for group in [security.get("admins"), members] {
        // A group that is there must be an object; `null` is none.
        let Some(group) = group else { continue };
        if !group.is_object() {
            return Err(SecurityError::Group);
        }
        for (key, error) in [("names", SecurityError::Names), ("roles", SecurityError::Roles)] {
            match group.get(key).unwrap_or(&missing) {
                Value::Array(list) if list.iter().all(Value::is_string) => {}
                Value::Null if !group.as_object().is_some_and(|group| group.contains_key(key)) => {}
                _ => return Err(error),
            }
        }
    }
    Ok(())
}

/// The security object of a database that never got one. `node_local` is true for a database that is not spread over
/// the cluster.
pub fn default_security_object(default: DefaultSecurity, node_local: bool) -> Value {
    let open = match default {
        DefaultSecurity::Everyone => true,
        DefaultSecurity::AdminLocal => !node_local,
        DefaultSecurity::AdminOnly => false,
    };
    if open {
        json!({})
    } else {
        json!({"members": {"roles": [ADMIN]}, "admins": {"roles": [ADMIN]}})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(name: &str, roles: &[&str]) -> UserCtx {
        UserCtx {
            name: Some(name.to_owned()),
            roles: roles.iter().map(|role| (*role).to_owned()).collect(),
        }
    }

    #[test]
    fn who_is_a_member() {
        let nobody = UserCtx::anonymous();
        let jo = user("jo", &["Dev"]);
        for (security, anonymous, member, admin) in [
            (json!({}), true, true, false),
            (json!({"admins": {"names": ["jo"]}}), true, true, true),
            (json!({"members": {"names": [], "roles": []}}), true, true, false),
            (json!({"members": {"names": ["jo"]}}), false, true, false),
            (json!({"members": {"roles": ["Dev"]}}), false, true, false),
            (json!({"members": {"roles": ["dev"]}}), false, false, false),
            (json!({"members": {"roles": ["_admin"]}}), false, false, false),
            (
                json!({"members": {"names": ["al"]}, "admins": {"roles": ["Dev"]}}),
                false,
                true,
                true,
            ),
            (json!({"readers": {"names": ["al"]}}), false, false, false),
            (json!({"members": {"names": "jo"}}), false, false, false),
            (json!({"members": [1]}), false, false, false),
        ] {
            assert_eq!(is_member(&security, &nobody), anonymous, "{security}");
            assert_eq!(is_member(&security, &jo), member, "{security}");
            assert_eq!(is_admin(&security, &jo), admin, "{security}");
            assert!(!is_admin(&security, &nobody), "{security}");
            assert!(is_member(&security, &UserCtx::admin("x")) && is_admin(&security, &UserCtx::internal()));
        }
    }

    #[test]
    fn refusals_name_the_reason() {
        let closed = default_security_object(DefaultSecurity::AdminOnly, false);
        let refused = check_member(&closed, &UserCtx::anonymous());
        assert_eq!(
            refused,
            Err(Denied::Unauthorized("You are not authorized to access this db."))
        );
        let refused = check_member(&closed, &user("jo", &[]));
        assert_eq!(
            refused,
            Err(Denied::Forbidden("You are not allowed to access this db."))
        );
        assert!(matches!(
            check_admin(&closed, &user("jo", &[])),
            Err(Denied::Forbidden(_))
        ));
        assert_eq!(
            default_security_object(DefaultSecurity::AdminLocal, false),
            json!({})
        );
        assert_eq!(default_security_object(DefaultSecurity::AdminLocal, true), closed);
    }

    #[test]
    fn security_objects_are_checked() {
        for (security, result) in [
            (json!({}), Ok(())),
            (
                json!({"cloudant": {"x": 1}, "admins": {"names": ["a"], "roles": []}}),
                Ok(()),
            ),
            (json!([]), Err(SecurityError::NotObject)),
            (json!({"admins": []}), Err(SecurityError::Group)),
            (json!({"members": null}), Err(SecurityError::Group)),
            (json!({"members": {"names": "a"}}), Err(SecurityError::Names)),
            (json!({"members": {"names": null}}), Err(SecurityError::Names)),
            (json!({"readers": {"roles": [1]}}), Err(SecurityError::Roles)),
        ] {
            assert_eq!(validate_security_object(&security), result, "{security}");
        }
    }
}
