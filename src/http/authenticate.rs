//! Finding the user of a request: session cookie, then Basic.
//!
//! A password hash costs tenths of a second on purpose, so it is computed on a blocking thread, and credentials that
//! were verified lately are remembered. Too many wrong passwords from one address lock an account for a while.

use std::sync::Arc;
use std::time::{Duration, Instant};

use actix_web::http::header::{AUTHORIZATION, COOKIE};
use actix_web::{HttpRequest, web};
use ahash::AHashMap;
use parking_lot::Mutex;
use settee_actors::coordinator::{DbError, OpenDoc};
use settee_engine::ids::{DbName, DocId};
use subtle::ConstantTimeEq;

use crate::auth::{
    Basic, CredentialCache, Credentials, HashPolicy, PasswordHash, RandomError, SessionCookie, SessionPolicy,
    UserCtx, UserDoc, parse_basic, session_cookie,
};
use crate::config::Settings;

use super::App;
use super::document;
use super::error::HttpError;
use super::live::Live;
use super::outside;
use super::request::{header, known_header};

/// Wrong passwords from one address for one account until it is locked there.
const LOCKOUT_THRESHOLD: u32 = 5;
/// How long an account stays locked after the last wrong password.
const LOCKOUT_LIFETIME: Duration = Duration::from_millis(300_000);
/// Most accounts whose failures are remembered.
const LOCKOUT_OBJECTS_MAX: usize = 10_000;

/// What the server remembers about logins.
pub struct Authentication {
    verified: Option<CredentialCache>,
    lockouts: Mutex<AHashMap<(String, String, String), Failures>>,
    started: Instant,
}

#[derive(Debug, Clone, Copy)]
struct Failures {
    count: u32,
    last: Instant,
}

impl Authentication {
    /// Nothing remembered yet. The settings say how many verified passwords are kept, and how long.
    ///
    /// # Errors
    /// When the operating system has no random numbers.
    pub fn new(settings: &Settings) -> Result<Self, RandomError> {
        let cache = &settings.couch_passwords_cache;
        let verified = if cache.enable {
            let objects = usize::try_from(cache.max_objects).unwrap_or(usize::MAX);
            Some(CredentialCache::new(objects, cache.max_idle)?)
        } else {
            None
        };
        Ok(Self {
            verified,
            lockouts: Mutex::new(AHashMap::new()),
            started: outside::now(),
        })
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn remembers(&self, name: &str, password: &[u8], hash: &PasswordHash) -> bool {
        let cache = self.verified.as_ref();
        cache.is_some_and(|cache| cache.contains(name, password, hash, self.now_ms()))
    }

    fn has_failures(&self) -> bool {
        !self.lockouts.lock().is_empty()
    }

    fn is_locked(&self, key: &(String, String, String)) -> bool {
        let lockouts = self.lockouts.lock();
        let failures = lockouts.get(key);
        failures
            .is_some_and(|known| known.count >= LOCKOUT_THRESHOLD && known.last.elapsed() < LOCKOUT_LIFETIME)
    }

    fn failed(&self, key: (String, String, String)) {
        let mut lockouts = self.lockouts.lock();
        if lockouts.len() >= LOCKOUT_OBJECTS_MAX && !lockouts.contains_key(&key) {
            lockouts.retain(|_, known| known.last.elapsed() < LOCKOUT_LIFETIME);
            if lockouts.len() >= LOCKOUT_OBJECTS_MAX {
                return;
            }
        }
        let known = lockouts.entry(key).or_insert(Failures {
            count: 0,
            last: outside::now(),
        });
        if known.last.elapsed() >= LOCKOUT_LIFETIME {
            known.count = 0;
        }
        known.count = known.count.saturating_add(1);
        known.last = outside::now();
    }

    fn succeeded(&self, key: &(String, String, String)) {
        self.lockouts.lock().remove(key);
    }
}

/// Who a request is from, and how that was found out.
#[derive(Debug, Clone, Default)]
pub struct Identity {
    /// The user.
    pub user: UserCtx,
    /// The handler that found the user, as `_session` names it.
    pub handler: Option<&'static str>,
    /// A `Set-Cookie` that prolongs the session.
    pub cookie: Option<String>,
}

/// A user that exists.
pub struct Account {
    /// Name and roles.
    pub user: UserCtx,
    secret: Secret,
    /// Whether a password alone is not enough.
    totp: bool,
}

enum Secret {
    Hash(PasswordHash),
    /// A password of `[admins]` that nothing has hashed yet.
    Plain(String),
}

impl Account {
    /// The salt, which is part of the key of the user's session cookies.
    pub fn salt(&self) -> &str {
        match &self.secret {
            Secret::Hash(hash) => hash.salt(),
            Secret::Plain(_) => "",
        }
    }
}

/// What a wrong password gets, and a user who does not exist.
pub fn wrong_password() -> HttpError {
    HttpError::unauthorized("Name or password is incorrect.")
}

/// Finds the user of a request.
///
/// # Errors
/// 400 for a header that cannot be decoded, 401 for a wrong password, 403 for a locked account.
pub async fn identify(app: &Arc<App>, live: &Live, http: &HttpRequest) -> Result<Identity, HttpError> {
    if let Some(identity) = by_cookie(app, live, http).await? {
        return Ok(identity);
    }
    let Some(authorization) = known_header(http, AUTHORIZATION) else {
        return Ok(Identity::default());
    };
    match parse_basic(authorization).map_err(|error| HttpError::bad_request(error.to_string()))? {
        Basic::Absent | Basic::LoggedOut => Ok(Identity::default()),
        Basic::Given(credentials) => {
            let account = log_in(app, live, credentials, http).await?;
            if account.totp {
                return Err(wrong_password());
            }
            Ok(Identity {
                user: account.user,
                handler: Some("default"),
                cookie: None,
            })
        }
    }
}

/// The address that failures are counted for.
fn peer(http: &HttpRequest) -> String {
    http.peer_addr()
        .map(|peer| peer.ip().to_string())
        .unwrap_or_default()
}

async fn by_cookie(app: &Arc<App>, live: &Live, http: &HttpRequest) -> Result<Option<Identity>, HttpError> {
    let Some(value) = known_header(http, COOKIE).and_then(session_cookie) else {
        return Ok(None);
    };
    let cookie = SessionCookie::parse(value).map_err(|error| HttpError::bad_request(error.to_string()))?;
    let Some(policy) = SessionPolicy::from_settings(&live.settings) else {
        return Ok(None);
    };
    let Some(account) = account(app, live, &cookie.name).await? else {
        return Ok(None);
    };
    let now = outside::unix_seconds();
    let Some(session) = policy.verify(&cookie, account.salt(), now) else {
        return Ok(None);
    };
    let fresh = session
        .refresh
        .then(|| policy.set_cookie(&cookie.name, account.salt(), now, false));
    Ok(Some(Identity {
        user: account.user,
        handler: Some("cookie"),
        cookie: fresh,
    }))
}

/// Looks a user up: in `[admins]`, then in the database of users.
///
/// # Errors
/// What reading the database met.
pub async fn account(app: &Arc<App>, live: &Live, name: &str) -> Result<Option<Account>, HttpError> {
    if let Some(value) = live.table.get("admins", name) {
        let secret = match PasswordHash::from_admin_value(value) {
            Ok(Some(hash)) => Secret::Hash(hash),
            Ok(None) => Secret::Plain(value.to_owned()),
            Err(error) => {
                tracing::error!(name, %error, "the password hash of an admin cannot be used");
                return Ok(None);
            }
        };
        return Ok(Some(Account {
            user: UserCtx::admin(name),
            secret,
            totp: false,
        }));
    }
    let Some(doc) = user_doc(app, live, name).await? else {
        return Ok(None);
    };
    match UserDoc::from_json(&doc) {
        Ok(found) => Ok(Some(Account {
            user: found.user_ctx(),
            totp: found.totp,
            secret: Secret::Hash(found.hash),
        })),
        Err(error) => {
            tracing::warn!(name, %error, "a user document cannot be used to log in");
            Ok(None)
        }
    }
}

async fn user_doc(app: &Arc<App>, live: &Live, name: &str) -> Result<Option<serde_json::Value>, HttpError> {
    let Ok(db) = DbName::new(&live.settings.chttpd_auth.authentication_db) else {
        return Ok(None);
    };
    let Ok(id) = DocId::new(&format!("org.couchdb.user:{name}")) else {
        return Ok(None);
    };
    let options = OpenDoc {
        conflicts: true,
        ..OpenDoc::default()
    };
    match app.coordinator.open_doc(&db, &id, &options).await {
        Ok(opened) => Ok(serde_json::from_slice(&document::plain_json(&opened)?).ok()),
        Err(DbError::NotFound(_) | DbError::DatabaseDoesNotExist(_)) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Verifies a name and a password.
///
/// # Errors
/// 401 for a wrong password or an unknown user, 403 for a locked account.
pub async fn log_in(
    app: &Arc<App>,
    live: &Live,
    credentials: Credentials,
    http: &HttpRequest,
) -> Result<Account, HttpError> {
    let Credentials { name, password } = credentials;
    let account = account(app, live, &name).await?;
    let authentication = &app.authentication;
    if let Some(Account {
        secret: Secret::Hash(hash),
        ..
    }) = &account
        && !authentication.has_failures()
        && authentication.remembers(&name, &password, hash)
        && let Some(account) = account
    {
        return Ok(account);
    }
    Box::pin(verify(authentication, live, account, name, password, peer(http))).await
}

/// The long way: with the lockouts, and with a hash of the password.
async fn verify(
    authentication: &Authentication,
    live: &Live,
    account: Option<Account>,
    name: String,
    password: Vec<u8>,
    peer: String,
) -> Result<Account, HttpError> {
    let policy = HashPolicy::from(&*live.settings);
    let cancelled = |_| HttpError::internal("verifying the password was cancelled");
    let Some(account) = account else {
        // Unknown users take as long as known ones.
        web::block(move || PasswordHash::verify_nobody(&password, &policy))
            .await
            .map_err(cancelled)?;
        return Err(wrong_password());
    };
    let key = (peer, name.clone(), account.salt().to_owned());
    if authentication.is_locked(&key) {
        return Err(HttpError::forbidden(
            "Account is temporarily locked due to multiple authentication failures",
        ));
    }
    let right = match &account.secret {
        Secret::Plain(plain) => bool::from(plain.as_bytes().ct_eq(&password)),
        Secret::Hash(hash) if authentication.remembers(&name, &password, hash) => true,
        Secret::Hash(hash) => {
            let (hash, candidate) = (hash.clone(), password.clone());
            let verified = web::block(move || hash.verify(&candidate, &policy))
                .await
                .map_err(cancelled)?;
            verified.map_err(|error| HttpError::forbidden(error.to_string()))?
        }
    };
    if !right {
        tracing::warn!(name, peer = key.0, "wrong password");
        authentication.failed(key);
        return Err(wrong_password());
    }
    authentication.succeeded(&key);
    if let (Secret::Hash(hash), Some(cache)) = (&account.secret, &authentication.verified) {
        cache.insert(&name, &password, hash, authentication.now_ms());
    }
    Ok(account)
}

/// Hashes the password of a new admin; a value that is a hash already stays.
///
/// # Errors
/// When the operating system has no random numbers, or the value begins like a hash and is none.
pub fn hash_admin(settings: &Settings, value: &str) -> Result<String, HttpError> {
    match PasswordHash::from_admin_value(value) {
        Ok(Some(_)) => Ok(value.to_owned()),
        Ok(None) => {
            let hash = PasswordHash::create(value.as_bytes(), &HashPolicy::from(settings))
                .map_err(|error| HttpError::internal(error.to_string()))?;
            hash.to_admin_value()
                .ok_or_else(|| HttpError::internal("the new hash has no text form"))
        }
        Err(error) => Err(HttpError::bad_request(error.to_string())),
    }
}

/// Adds to a 401 what makes the client ask for a password.
pub fn challenge(error: &mut HttpError, http: &HttpRequest, live: &Live) {
    if error.status != 401 {
        return;
    }
    let configured = || {
        live.table
            .get("chttpd", "WWW-Authenticate")
            .or_else(|| live.table.get("httpd", "WWW-Authenticate"))
    };
    if let Some(value) = header(http, "x-couchdb-www-authenticate").or_else(configured) {
        error.headers.push(("WWW-Authenticate", value.to_owned()));
    } else if live.settings.chttpd.require_valid_user {
        error
            .headers
            .push(("WWW-Authenticate", "Basic realm=\"server\"".to_owned()));
    } else if let Some(page) = live.table.get("chttpd_auth", "authentication_redirect") {
        let accept = header(http, "accept").unwrap_or_default();
        if accept.contains("text/html") && !accept.contains("application/json") {
            let encode = |text: &str| super::router::percent_encode(text.as_bytes());
            let reason = encode(error.reason.as_deref().unwrap_or_default());
            error.status = 302;
            let path = encode(http.uri().path());
            error
                .headers
                .push(("Location", format!("{page}?return={path}&reason={reason}")));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn five_failures_lock_one_account_at_one_address() {
        let authentication = Authentication::new(&Settings::default()).expect("random numbers");
        let key = |peer: &str| (peer.to_owned(), "joe".to_owned(), "salt".to_owned());
        for _ in 0..LOCKOUT_THRESHOLD {
            assert!(!authentication.is_locked(&key("1.2.3.4")));
            authentication.failed(key("1.2.3.4"));
        }
        assert!(authentication.is_locked(&key("1.2.3.4")));
        assert!(!authentication.is_locked(&key("5.6.7.8")));
        authentication.succeeded(&key("1.2.3.4"));
        assert!(!authentication.is_locked(&key("1.2.3.4")));
    }

    #[test]
    fn an_admins_hash_is_kept_and_a_password_is_hashed() {
        let mut settings = Settings::default();
        settings.chttpd_auth.iterations = 2;
        let hashed = hash_admin(&settings, "secret").expect("random numbers");
        assert!(hashed.starts_with("-pbkdf2:sha256-"), "{hashed}");
        assert_eq!(hash_admin(&settings, &hashed).expect("a hash"), hashed);
    }
}
