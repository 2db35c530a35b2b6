//! What the start of a server does to its settings: an identity, a cookie secret, hashed admins, and a first admin.

use std::fmt;
use std::str::FromStr;

use super::password::{HashError, HashPolicy, PasswordHash};
use super::random::{RandomError, random_hex, random_password};
use crate::config::{ChangeError, ConfigStack, ConfigTable, Persist};

/// The section of server admins.
const ADMINS: &str = "admins";
/// The name of the admin that is made when there is none.
const FIRST_ADMIN: &str = "admin";

/// An admin from the command line: `NAME:PASSWORD`.
///
/// ```
/// let admin: settee::auth::AdminArg = "ada:pass:word".parse()?;
/// assert_eq!((admin.name.as_str(), admin.password.as_str()), ("ada", "pass:word"));
/// # Ok::<(), settee::auth::AdminArgError>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct AdminArg {
    /// The name.
    pub name: String,
    /// The password.
    pub password: String,
}

impl fmt::Debug for AdminArg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AdminArg")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// An argument that names no admin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AdminArgError {
    /// There is no colon, or nothing before or behind it.
    #[error("an admin is given as NAME:PASSWORD")]
    Form,
    /// The name is reserved, or cannot be written to an ini file.
    #[error("an admin's name must not begin with _ or contain brackets or control characters")]
    Name,
}

impl FromStr for AdminArg {
    type Err = AdminArgError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (name, password) = text.split_once(':').ok_or(AdminArgError::Form)?;
        let name = name.trim();
        if name.is_empty() || password.is_empty() {
            return Err(AdminArgError::Form);
        }
        if name.starts_with('_') || name.contains(|c: char| c.is_control() || c == '[' || c == ']') {
            return Err(AdminArgError::Name);
        }
        Ok(Self {
            name: name.to_owned(),
            password: password.to_owned(),
        })
    }
}

/// The admin that was made because there was none. Print the password once; only its hash is kept.
#[derive(Clone, PartialEq, Eq)]
pub struct FirstAdmin {
    /// The name.
    pub name: String,
    /// The password, which nobody can read again.
    pub password: String,
}

impl fmt::Debug for FirstAdmin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FirstAdmin")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// What [`prepare`] found.
#[derive(Debug, Default)]
pub struct Prepared {
    /// The admin that is made because there was none.
    pub first_admin: Option<FirstAdmin>,
    /// The admins whose passwords are still to be hashed, and set.
    pub pending: PendingAdmins,
}

/// Admins whose passwords are to be hashed, which takes some tenths of a second for each.
#[derive(Default)]
pub struct PendingAdmins {
    admins: Vec<PendingAdmin>,
    policy: Option<HashPolicy>,
}

struct PendingAdmin {
    name: String,
    password: String,
    /// The value in the files of the data directory.
    kept: Option<String>,
}

/// A value of the section `[admins]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdminHash {
    /// The admin.
    pub name: String,
    /// The hash, as it is written.
    pub value: String,
}

impl fmt::Debug for PendingAdmins {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list()
            .entries(self.admins.iter().map(|admin| &admin.name))
            .finish()
    }
}

impl PendingAdmins {
    /// Whether there is nothing to hash.
    pub fn is_empty(&self) -> bool {
        self.admins.is_empty()
    }

    /// Hashes the passwords, each at the cost of `[chttpd_auth] iterations` rounds. A hash of the same password that is
    /// kept already stays, for a new salt would end all sessions whenever the password is given in the environment or on
    /// the command line.
    ///
    /// # Errors
    ///
    /// When the operating system has no random numbers.
    pub fn hash(&self) -> Result<Vec<AdminHash>, RandomError> {
        let Some(policy) = &self.policy else {
            return Ok(Vec::new());
        };
        self.admins.iter().map(|admin| admin.hash(policy)).collect()
    }
}

impl PendingAdmin {
    fn hash(&self, policy: &HashPolicy) -> Result<AdminHash, RandomError> {
        let password = self.password.as_bytes();
        let kept = self.kept.as_ref().filter(|value| {
            matches!(PasswordHash::from_admin_value(value),
                Ok(Some(hash)) if hash.verify(password, policy) == Ok(true))
        });
        let value = match kept {
            Some(value) => value.clone(),
            // New hashes are plain PBKDF2, which always has a form for this section.
            None => PasswordHash::create(password, policy)?
                .to_admin_value()
                .expect("a new hash is not over a simple one"),
        };
        let name = self.name.clone();
        Ok(AdminHash { name, value })
    }
}

/// Why the settings could not be prepared.
#[derive(Debug, thiserror::Error)]
pub enum PrepareError {
    /// A setting cannot be changed.
    #[error("cannot keep [{section}] {key}: {source}")]
    Change {
        /// The section.
        section: &'static str,
        /// The key.
        key: String,
        /// Why.
        source: Box<ChangeError>,
    },
    /// No random numbers.
    #[error(transparent)]
    Random(#[from] RandomError),
}

/// Brings the settings of a server that starts into order: `[couchdb] uuid` and `[chttpd_auth] secret` are made when
/// missing, and kept in `local.ini` of the data directory, or in memory when there is none. What is left to hash and to
/// set in `[admins]` comes back: `admin`, if given; plain passwords; and when there is no admin at all, one named `admin`
/// with a random password.
///
/// # Errors
///
/// When a file cannot be written or the operating system has no random numbers.
pub fn prepare(stack: &mut ConfigStack, admin: Option<&AdminArg>) -> Result<Prepared, PrepareError> {
    if stack.settings().couchdb.uuid.is_none() {
        keep(stack, "couchdb", "uuid", &random_hex()?)?;
    }
    if stack.settings().chttpd_auth.secret.is_none() {
        keep(stack, "chttpd_auth", "secret", &random_hex()?)?;
    }
    let mut passwords = unhashed_admins(&stack.table());
    if let Some(admin) = admin {
        passwords.retain(|(name, _)| *name != admin.name);
        passwords.push((admin.name.clone(), admin.password.clone()));
    }
    let mut first_admin = None;
    if passwords.is_empty() && !has_admins(&stack.table()) {
        let (name, password) = (FIRST_ADMIN.to_owned(), random_password()?);
        passwords.push((name.clone(), password.clone()));
        first_admin = Some(FirstAdmin { name, password });
    }
    let admins = passwords.into_iter().map(|(name, password)| PendingAdmin {
        kept: stack.persisted(ADMINS, &name).map(str::to_owned),
        name,
        password,
    });
    let pending = PendingAdmins {
        admins: admins.collect(),
        policy: Some(HashPolicy::from(&*stack.settings())),
    };
    Ok(Prepared { first_admin, pending })
}

/// The admins whose passwords are not hashed, as name and password: after a change of `[admins]`, set each to the
/// [admin value](PasswordHash::to_admin_value) of a new hash.
pub fn unhashed_admins(table: &ConfigTable) -> Vec<(String, String)> {
    table
        .section(ADMINS)
        .filter(|(_, value)| matches!(PasswordHash::from_admin_value(value), Ok(None)))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

/// Whether any server admin is set.
pub fn has_admins(table: &ConfigTable) -> bool {
    table.section(ADMINS).next().is_some()
}

/// The hash of the server admin of this name; `None` when there is none, or its password is not hashed yet.
///
/// # Errors
///
/// [`HashError::Malformed`] when the value begins like a hash and is none.
pub fn admin(table: &ConfigTable, name: &str) -> Result<Option<PasswordHash>, HashError> {
    match table.get(ADMINS, name) {
        Some(value) => PasswordHash::from_admin_value(value),
        None => Ok(None),
    }
}

fn keep(stack: &mut ConfigStack, section: &'static str, key: &str, value: &str) -> Result<(), PrepareError> {
    let persist = if stack.local_ini().is_some() {
        Persist::Yes
    } else {
        Persist::No
    };
    stack
        .set(section, key, value, persist)
        .map(drop)
        .map_err(|source| PrepareError::Change {
            section,
            key: key.to_owned(),
            source: Box::new(source),
        })
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;
    use crate::config::LoadOptions;

    fn load(folder: &Path, sets: &[&str], env: &[(&str, &str)]) -> ConfigStack {
        let owned = |(a, b): &(&str, &str)| ((*a).to_owned(), (*b).to_owned());
        ConfigStack::load(LoadOptions {
            data_dir: Some(folder.into()),
            sets: ["chttpd_auth/iterations=3"]
                .iter()
                .chain(sets)
                .map(|set| (*set).to_owned())
                .collect(),
            env: env.iter().map(owned).collect(),
            ..LoadOptions::default()
        })
        .unwrap()
    }

    /// Prepares, hashes and keeps, as a server does while it starts.
    fn start(stack: &mut ConfigStack, admin: Option<&AdminArg>) -> Prepared {
        let prepared = prepare(stack, admin).unwrap();
        for AdminHash { name, value } in prepared.pending.hash().unwrap() {
            keep(stack, ADMINS, &name, &value).unwrap();
        }
        prepared
    }

    fn logs_in(stack: &ConfigStack, name: &str, password: &str) -> bool {
        let policy = HashPolicy::from(&*stack.settings());
        let hash = admin(&stack.table(), name).unwrap();
        hash.is_some_and(|hash| hash.verify(password.as_bytes(), &policy) == Ok(true))
    }

    #[test]
    fn the_first_start_makes_an_admin_and_the_second_does_not() {
        let folder = tempfile::tempdir().unwrap();
        let mut stack = load(folder.path(), &[], &[]);
        let first = start(&mut stack, None).first_admin.unwrap();
        assert_eq!(first.name, "admin");
        assert!(first.password.len() >= 20);
        assert!(logs_in(&stack, "admin", &first.password));
        let text = fs::read_to_string(folder.path().join("local.ini")).unwrap();
        assert!(!text.contains(&first.password));
        let mut again = load(folder.path(), &[], &[]);
        let prepared = start(&mut again, None);
        assert!(prepared.first_admin.is_none() && prepared.pending.is_empty());
        assert!(logs_in(&again, "admin", &first.password));
        assert_eq!(again.settings().couchdb.uuid, stack.settings().couchdb.uuid);
        assert_eq!(
            again
                .settings()
                .chttpd_auth
                .secret
                .as_ref()
                .unwrap()
                .expose()
                .len(),
            32
        );
        assert_eq!(fs::read_to_string(folder.path().join("local.ini")).unwrap(), text);
    }

    #[test]
    fn plain_passwords_are_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let local = folder.path().join("local.ini");
        fs::write(&local, "[admins]\n; people\nJo = s3cret ; mine\n").unwrap();
        let mut stack = load(folder.path(), &[], &[]);
        assert_eq!(format!("{:?}", start(&mut stack, None).pending), "[\"Jo\"]");
        assert!(logs_in(&stack, "Jo", "s3cret"));
        assert!(!logs_in(&stack, "jo", "s3cret"));
        let text = fs::read_to_string(&local).unwrap();
        assert!(
            text.contains("; people\nJo = -pbkdf2:sha256-") && text.contains(",3 ; mine\n"),
            "{text}"
        );
        assert!(!text.contains("s3cret"));
    }

    #[test]
    fn a_password_given_at_every_start_keeps_its_salt() {
        let folder = tempfile::tempdir().unwrap();
        let env = [("COUCHDB_USER", "op"), ("COUCHDB_PASSWORD", "x ; y")];
        let arg: AdminArg = "ada:pass:word".parse().unwrap();
        let again = || {
            let mut stack = load(folder.path(), &[], &env);
            start(&mut stack, Some(&arg));
            assert!(logs_in(&stack, "op", "x ; y") && logs_in(&stack, "ada", "pass:word"));
            fs::read_to_string(folder.path().join("local.ini")).unwrap()
        };
        assert_eq!(again(), again());
        let other: AdminArg = "ada:new".parse().unwrap();
        let mut stack = load(folder.path(), &[], &[]);
        start(&mut stack, Some(&other));
        assert!(logs_in(&stack, "ada", "new") && logs_in(&stack, "op", "x ; y"));
    }

    #[test]
    fn without_a_data_directory_it_is_in_memory() {
        let mut stack = ConfigStack::load(LoadOptions {
            sets: vec!["chttpd_auth/iterations=3".into(), "admins/jo=pw".into()],
            ..LoadOptions::default()
        })
        .unwrap();
        start(&mut stack, None);
        assert!(logs_in(&stack, "jo", "pw"));
        assert!(stack.settings().chttpd_auth.secret.is_some());
    }

    #[test]
    fn arguments() {
        for (text, error) in [
            ("ada", AdminArgError::Form),
            (":x", AdminArgError::Form),
            ("ada:", AdminArgError::Form),
            ("_ada:x", AdminArgError::Name),
            ("a[b:x", AdminArgError::Name),
        ] {
            assert_eq!(text.parse::<AdminArg>(), Err(error));
        }
    }
}
