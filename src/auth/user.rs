//! The user of a request, and `_users` documents.

use serde_json::{Map, Value, json};

use super::bootstrap;
use super::password::{HashError, HashPolicy, PasswordHash};
use super::random::RandomError;
use crate::config::ConfigTable;

/// The role of server admins.
pub(super) const ADMIN: &str = "_admin";

/// Who a request comes from.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UserCtx {
    /// The name; `None` when nobody is logged in.
    pub name: Option<String>,
    /// The roles.
    pub roles: Vec<String>,
}

impl UserCtx {
    /// Nobody is logged in.
    pub fn anonymous() -> Self {
        Self::default()
    }

    /// A server admin.
    pub fn admin(name: impl Into<String>) -> Self {
        Self {
            name: Some(name.into()),
            roles: vec![ADMIN.to_owned()],
        }
    }

    /// The server itself, which may do everything.
    pub fn internal() -> Self {
        Self {
            name: None,
            roles: vec![ADMIN.to_owned()],
        }
    }

    /// Whether it has the role `_admin`.
    pub fn is_server_admin(&self) -> bool {
        self.has_role(ADMIN)
    }

    /// Whether it has exactly this role.
    pub fn has_role(&self, role: &str) -> bool {
        self.roles.iter().any(|mine| mine == role)
    }

    /// `{"name":…,"roles":[…]}`, as `/_session` shows it.
    pub fn to_json(&self) -> Value {
        json!({"name": self.name, "roles": self.roles})
    }
}

/// What authentication needs of a `_users` document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserDoc {
    /// The name.
    pub name: String,
    /// The roles, without `_admin`, which a document cannot give.
    pub roles: Vec<String>,
    /// The password's hash.
    pub hash: PasswordHash,
    /// Whether a one-time code is asked for as well, so that a password alone must not be enough.
    pub totp: bool,
}

/// Why a `_users` document cannot be used to log in.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UserDocError {
    /// It has conflicts: nobody can tell which password is right.
    #[error(
        "User document conflicts must be resolved before the document is used for authentication purposes."
    )]
    Conflicts,
    /// The name is missing, or the roles are no list of strings.
    #[error("the user document has no name, or roles that are no list of strings")]
    Malformed,
    /// The hash cannot be used.
    #[error(transparent)]
    Hash(#[from] HashError),
}

impl UserDoc {
    /// Reads a document that was fetched with `conflicts=true`.
    ///
    /// # Errors
    ///
    /// When it has conflicts, or members are missing or of wrong types.
    pub fn from_json(doc: &Value) -> Result<Self, UserDocError> {
        let (name, roles) = identity(doc)?;
        let doc = doc.as_object().ok_or(UserDocError::Malformed)?;
        Ok(Self {
            name,
            roles,
            hash: PasswordHash::from_doc(doc)?,
            totp: doc.contains_key("totp"),
        })
    }

    /// The user that a right password makes of a request.
    pub fn user_ctx(&self) -> UserCtx {
        UserCtx {
            name: Some(self.name.clone()),
            roles: self.roles.clone(),
        }
    }
}

/// The name and the roles in a document, without `_admin`, which a document cannot give.
fn identity(doc: &Value) -> Result<(String, Vec<String>), UserDocError> {
    let doc = doc.as_object().ok_or(UserDocError::Malformed)?;
    if doc.contains_key("_conflicts") {
        return Err(UserDocError::Conflicts);
    }
    let name = doc
        .get("name")
        .and_then(Value::as_str)
        .ok_or(UserDocError::Malformed)?;
    let none = Vec::new();
    let listed = match doc.get("roles") {
        None => &none,
        Some(Value::Array(roles)) => roles,
        Some(_) => return Err(UserDocError::Malformed),
    };
    let mut roles = Vec::with_capacity(listed.len());
    for role in listed {
        let role = role.as_str().ok_or(UserDocError::Malformed)?;
        if role != ADMIN {
            roles.push(role.to_owned());
        }
    }
    Ok((name.to_owned(), roles))
}

/// Who logs in under a name, if the password is right.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    /// The user that a right password makes of a request.
    pub ctx: UserCtx,
    /// The password's hash.
    pub hash: PasswordHash,
    /// Whether a one-time code is asked for as well.
    pub totp: bool,
}

impl Account {
    /// The account of `name`: the server admin's in `table`, the user's of the `_users` document `doc` (fetched with
    /// `conflicts=true`), or both in one: the admin's password counts then, with the roles of both.
    ///
    /// # Errors
    ///
    /// When the hash or the document cannot be used.
    pub fn find(table: &ConfigTable, name: &str, doc: Option<&Value>) -> Result<Option<Self>, UserDocError> {
        let Some(hash) = bootstrap::admin(table, name)? else {
            let user = doc.map(UserDoc::from_json).transpose()?;
            return Ok(user.filter(|user| user.name == name).map(|user| Self {
                ctx: user.user_ctx(),
                totp: user.totp,
                hash: user.hash,
            }));
        };
        let mut ctx = UserCtx::admin(name);
        // A server admin needs no password in the document, and is not kept out by a document that makes no sense.
        match doc.map(identity).transpose() {
            Ok(Some((of, roles))) if of == name => ctx.roles.extend(roles),
            Err(UserDocError::Conflicts) => return Err(UserDocError::Conflicts),
            _ => {}
        }
        Ok(Some(Self {
            ctx,
            hash,
            totp: false,
        }))
    }
}

/// Why a password in a `_users` document cannot be hashed.
#[derive(Debug, thiserror::Error)]
pub enum HashDocError {
    /// It is not a string; the write is forbidden.
    #[error("Password value of '{0}' is invalid.")]
    NotText(Value),
    /// No salt.
    #[error(transparent)]
    Random(#[from] RandomError),
}

/// Replaces the member `password` of a `_users` document that is about to be written by its hash, and tells whether
/// there was one. `null` and a missing member leave the document as it is. Costs `policy.iterations` rounds.
///
/// With `preserve_salt` the document's salt is used again, which keeps sessions alive: for a stronger hash of the same
/// password.
///
/// # Errors
///
/// When the password is not a string or the operating system has no random numbers.
pub fn hash_user_password(
    doc: &mut Map<String, Value>,
    policy: &HashPolicy,
    preserve_salt: bool,
) -> Result<bool, HashDocError> {
    let password = match doc.get("password") {
        None | Some(Value::Null) => return Ok(false),
        Some(Value::String(password)) => password.clone(),
        Some(other) => return Err(HashDocError::NotText(other.clone())),
    };
    let salt = doc.get("salt").and_then(Value::as_str);
    let hash = match salt.filter(|_| preserve_salt) {
        Some(salt) => PasswordHash::with_salt(password.as_bytes(), policy, salt.to_owned()),
        None => PasswordHash::create(password.as_bytes(), policy)?,
    };
    doc.shift_remove("password");
    hash.write_to_doc(doc);
    Ok(true)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::config::HashAlgorithm;

    const POLICY: HashPolicy = HashPolicy {
        prf: HashAlgorithm::Sha256,
        iterations: 3,
        min_iterations: 1,
        max_iterations: 10,
    };

    #[test]
    fn a_written_password_logs_in() {
        let mut doc = json!({"_id": "org.couchdb.user:jo", "name": "jo", "type": "user", "roles": ["r", "_admin"],
            "password": "x", "salt": "old"});
        let members = doc.as_object_mut().unwrap();
        assert!(hash_user_password(members, &POLICY, false).unwrap());
        assert!(!hash_user_password(members, &POLICY, false).unwrap());
        assert!(!members.contains_key("password"));
        assert_ne!(members["salt"], "old");
        let user = UserDoc::from_json(&doc).unwrap();
        assert_eq!(user.hash.verify(b"x", &POLICY), Ok(true));
        assert_eq!(user.user_ctx().to_json(), json!({"name": "jo", "roles": ["r"]}));
        doc["password"] = json!("y");
        let salt = doc["salt"].clone();
        hash_user_password(doc.as_object_mut().unwrap(), &POLICY, true).unwrap();
        assert_eq!(doc["salt"], salt);
        doc["password"] = json!(7);
        assert!(hash_user_password(doc.as_object_mut().unwrap(), &POLICY, true).is_err());
    }

    #[test]
    fn an_admin_counts_before_a_document() {
        let doc = json!({"name": "jo", "roles": ["r"], "password_sha": "x", "salt": "s"});
        let table = ConfigTable::from_pairs([
            ("admins", "jo", "-hashed-y,t"),
            ("admins", "al", "-pbkdf2-broken"),
        ]);
        let both = Account::find(&table, "jo", Some(&doc)).unwrap().unwrap();
        assert_eq!(
            (both.hash.salt(), both.ctx.roles),
            ("t", vec!["_admin".to_owned(), "r".to_owned()])
        );
        let user = Account::find(&ConfigTable::default(), "jo", Some(&doc))
            .unwrap()
            .unwrap();
        assert_eq!((user.hash.salt(), user.ctx.is_server_admin()), ("s", false));
        assert_eq!(Account::find(&table, "nobody", None), Ok(None));
        assert_eq!(Account::find(&table, "other", Some(&doc)), Ok(None));
        assert!(Account::find(&table, "al", None).is_err());
        // CouchDB's documents of server admins have no password.
        let bare = json!({"name": "jo", "roles": ["q"]});
        let admin = Account::find(&table, "jo", Some(&bare)).unwrap().unwrap();
        assert_eq!(admin.ctx.roles, ["_admin", "q"]);
        assert!(Account::find(&ConfigTable::default(), "jo", Some(&bare)).is_err());
    }

    #[test]
    fn documents_that_cannot_log_in() {
        let hashed = json!({"name": "jo", "password_sha": "x", "salt": "s"});
        let with = |key: &str, value: Value| {
            let mut doc = hashed.clone();
            doc[key] = value;
            UserDoc::from_json(&doc)
        };
        assert!(with("roles", json!([])).is_ok());
        assert!(with("totp", json!({})).unwrap().totp);
        assert_eq!(with("_conflicts", json!(["1-a"])), Err(UserDocError::Conflicts));
        assert_eq!(with("roles", json!([1])), Err(UserDocError::Malformed));
        assert_eq!(with("roles", json!("r")), Err(UserDocError::Malformed));
        assert_eq!(with("name", json!(1)), Err(UserDocError::Malformed));
        assert_eq!(
            with("password_sha", json!(1)),
            Err(UserDocError::Hash(HashError::Malformed))
        );
        assert_eq!(UserDoc::from_json(&json!([])), Err(UserDocError::Malformed));
    }
}
