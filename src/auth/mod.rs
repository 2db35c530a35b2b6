//! Who a request comes from, and what it may do: plain functions and values, with no network in them.
//!
//! A password hash costs some tenths of a second on purpose. What does so says it; run it where blocking is allowed,
//! and ask the [`CredentialCache`] first.

mod basic;
mod bootstrap;
mod cache;
mod password;
mod random;
mod security;
mod session;
mod user;

pub use basic::{Basic, BasicError, Credentials, parse_basic};
pub use bootstrap::{
    AdminArg, AdminArgError, AdminHash, FirstAdmin, PendingAdmins, PrepareError, Prepared, admin, has_admins,
    prepare, unhashed_admins,
};
pub use cache::CredentialCache;
pub use password::{HashError, HashPolicy, PasswordHash};
pub use random::{RandomError, random_hex, random_password};
pub use security::{
    Denied, SecurityError, check_admin, check_member, default_security_object, is_admin, is_member,
    validate_security_object,
};
pub use session::{MalformedCookie, Session, SessionCookie, SessionPolicy, session_cookie};
pub use user::{Account, HashDocError, UserCtx, UserDoc, UserDocError, hash_user_password};
