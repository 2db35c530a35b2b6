//! Cookie sessions: `AuthSession=` base64url of `name:HEXTIME:MAC`.
//!
//! The key of the MAC is the server's secret and the user's salt, so a new password ends all sessions of its user.

use std::time::{Duration, SystemTime};

use base64::Engine;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use hmac::{Hmac, KeyInit, Mac};
use sha1::Sha1;
use sha2::{Sha224, Sha256, Sha384, Sha512};
use subtle::ConstantTimeEq;

use crate::config::{HashAlgorithm, SameSite, Secret, Settings};

const ENGINE: GeneralPurpose = GeneralPurpose::new(
    &alphabet::URL_SAFE,
    GeneralPurposeConfig::new()
        .with_encode_padding(false)
        .with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// The longest cookie value that is looked at, in bytes; browsers keep no longer ones.
const MAX_COOKIE_BYTES: usize = 4096;

/// A cookie that cannot be taken apart; the request is bad.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("Malformed AuthSession cookie. Please clear your cookies.")]
pub struct MalformedCookie;

/// A cookie taken apart, not yet verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionCookie {
    /// Who the cookie says it is of. Fetch this user's salt to verify it.
    pub name: String,
    time: String,
    mac: Vec<u8>,
}

impl SessionCookie {
    /// Takes the value of the cookie apart.
    ///
    /// # Errors
    ///
    /// When it is not base64url of three parts, of which the first two are UTF-8.
    pub fn parse(value: &str) -> Result<Self, MalformedCookie> {
        if value.len() > MAX_COOKIE_BYTES {
            return Err(MalformedCookie);
        }
        let decoded = ENGINE.decode(value).map_err(|_| MalformedCookie)?;
        let mut parts = decoded.splitn(3, |byte| *byte == b':');
        let mut next = || parts.next().ok_or(MalformedCookie);
        let (name, time, mac) = (next()?, next()?, next()?);
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).map_err(|_| MalformedCookie);
        Ok(Self {
            name: text(name)?,
            time: text(time)?,
            mac: mac.to_vec(),
        })
    }
}

/// A verified session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Session {
    /// How long it lives, in seconds.
    pub time_left: u64,
    /// Whether the answer should carry a fresh cookie, because a tenth of its life is over.
    pub refresh: bool,
}

/// How sessions are signed, how long they live, and what their cookies look like.
#[derive(Debug, Clone)]
pub struct SessionPolicy {
    secret: Secret,
    algorithms: Vec<HashAlgorithm>,
    timeout: u64,
    persistent: bool,
    domain: Option<String>,
    same_site: Option<SameSite>,
}

impl SessionPolicy {
    /// The policy that the settings ask for; `None` without a secret, when there are no sessions.
    pub fn from_settings(settings: &Settings) -> Option<Self> {
        let auth = &settings.chttpd_auth;
        Some(Self {
            secret: auth.secret.clone()?,
            algorithms: auth.hash_algorithms.clone(),
            timeout: auth.timeout,
            persistent: auth.allow_persistent_cookies,
            domain: auth.cookie_domain.clone(),
            same_site: auth.same_site,
        })
    }

    /// The value of a cookie for a session that begins at `now` (Unix time in seconds).
    pub fn sign(&self, name: &str, salt: &str, now: u64) -> String {
        let signed = format!("{name}:{now:X}");
        let algorithm = self.algorithms.first().copied().unwrap_or(HashAlgorithm::Sha256);
        let mac = self.mac(algorithm, salt, &signed);
        let mut value = signed.into_bytes();
        value.push(b':');
        value.extend_from_slice(&mac);
        ENGINE.encode(value)
    }

    /// Whether the cookie was made here for the user with this salt and has not expired at `now` (Unix time in
    /// seconds). If not, the request counts as anonymous.
    pub fn verify(&self, cookie: &SessionCookie, salt: &str, now: u64) -> Option<Session> {
        let begun = u64::from_str_radix(&cookie.time, 16).ok()?;
        let time_left = begun
            .saturating_add(self.timeout)
            .checked_sub(now)
            .filter(|left| *left > 0)?;
        let signed = format!("{}:{}", cookie.name, cookie.time);
        let genuine = self
            .algorithms
            .iter()
            .any(|algorithm| bool::from(self.mac(*algorithm, salt, &signed).ct_eq(&cookie.mac)));
        genuine.then_some(Session {
            time_left,
            refresh: time_left.saturating_mul(10) < self.timeout.saturating_mul(9),
        })
    }

    /// The value of a `Set-Cookie` header that begins or prolongs a session at `now` (Unix time in seconds).
    pub fn set_cookie(&self, name: &str, salt: &str, now: u64, https: bool) -> String {
        let life = self
            .persistent
            .then(|| (now.saturating_add(self.timeout), self.timeout));
        self.header(&self.sign(name, salt, now), life, https)
    }

    /// The value of a `Set-Cookie` header that makes a browser forget its session.
    pub fn clear_cookie(&self, https: bool) -> String {
        self.header("", Some((0, 0)), https)
    }

    fn header(&self, value: &str, life: Option<(u64, u64)>, https: bool) -> String {
        let mut header = format!("AuthSession={value}; Version=1");
        if let Some((expires, max_age)) = life {
            header.push_str(&format!("; Expires={}; Max-Age={max_age}", http_date(expires)));
        }
        if https {
            header.push_str("; Secure");
        }
        if let Some(domain) = &self.domain {
            header.push_str(&format!("; Domain={domain}"));
        }
        header.push_str("; Path=/; HttpOnly");
        match self.same_site {
            Some(SameSite::Strict) => header.push_str("; SameSite=Strict"),
            Some(SameSite::Lax) => header.push_str("; SameSite=Lax"),
            Some(SameSite::None) => header.push_str("; SameSite=None"),
            None => {}
        }
        header
    }

    fn mac(&self, algorithm: HashAlgorithm, salt: &str, text: &str) -> Vec<u8> {
        let key = [self.secret.expose().as_bytes(), salt.as_bytes()].concat();
        let text = text.as_bytes();
        match algorithm {
            HashAlgorithm::Sha => mac::<Hmac<Sha1>>(&key, text),
            HashAlgorithm::Sha224 => mac::<Hmac<Sha224>>(&key, text),
            HashAlgorithm::Sha256 => mac::<Hmac<Sha256>>(&key, text),
            HashAlgorithm::Sha384 => mac::<Hmac<Sha384>>(&key, text),
            HashAlgorithm::Sha512 => mac::<Hmac<Sha512>>(&key, text),
        }
    }
}

fn mac<M: Mac + KeyInit>(key: &[u8], text: &[u8]) -> Vec<u8> {
    let mut mac = <M as KeyInit>::new_from_slice(key).expect("HMAC takes keys of every length");
    mac.update(text);
    mac.finalize().into_bytes().to_vec()
}

/// The date of a `Set-Cookie` header; times that the format cannot show become its last day.
fn http_date(unix: u64) -> String {
    const LAST: u64 = 253_402_300_799;
    httpdate::fmt_http_date(SystemTime::UNIX_EPOCH + Duration::from_secs(unix.min(LAST)))
}

/// The value of the cookie `AuthSession` in a `Cookie` header; `None` when it is missing or empty.
pub fn session_cookie(header: &str) -> Option<&str> {
    header
        .split(';')
        .filter_map(|pair| pair.trim().split_once('='))
        .find(|(name, _)| *name == "AuthSession")
        .map(|(_, value)| value.trim().trim_matches('"'))
        .filter(|value| !value.is_empty())
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::config::ConfigTable;

    fn policy(pairs: &[(&str, &str)]) -> SessionPolicy {
        let table = ConfigTable::from_pairs(pairs.iter().map(|(key, value)| ("chttpd_auth", *key, *value)));
        SessionPolicy::from_settings(&Settings::from_table(&table).unwrap()).unwrap()
    }

    /// Computed with another implementation of HMAC: key `92de07df7e7a3fe14808cef90a7cc0d9` and `salt`, text
    /// `jo:65A0B2C0`.
    #[test]
    fn the_bytes_are_those_of_couchdb() {
        let sha256 = policy(&[("secret", "92de07df7e7a3fe14808cef90a7cc0d9")]);
        let value = sha256.sign("jo", "salt", 0x65A0_B2C0);
        assert_eq!(
            value,
            "am86NjVBMEIyQzA6Oj7VBto3Ins7fkE8vc7ylwHmgi01gKz-NL_Q-LpJh1Q"
        );
        let sha = policy(&[
            ("secret", "92de07df7e7a3fe14808cef90a7cc0d9"),
            ("hash_algorithms", "sha"),
        ]);
        let value = sha.sign("jo", "salt", 0x65A0_B2C0);
        assert_eq!(value, "am86NjVBMEIyQzA67SjopHRaHP5e_da8-ZV8CZ8ApR4");
        let cookie = SessionCookie::parse(&value).unwrap();
        assert_eq!(cookie.name, "jo");
        assert!(
            sha256.verify(&cookie, "salt", 0x65A0_B2C0).is_some(),
            "any listed hash function verifies"
        );
    }

    #[test]
    fn sessions_end_and_are_prolonged() {
        let policy = policy(&[("secret", "s")]);
        let cookie = SessionCookie::parse(&policy.sign("jo", "salt", 1000)).unwrap();
        let at = |now| policy.verify(&cookie, "salt", now);
        assert_eq!(
            at(1000),
            Some(Session {
                time_left: 600,
                refresh: false
            })
        );
        assert_eq!(
            at(1060),
            Some(Session {
                time_left: 540,
                refresh: false
            })
        );
        assert_eq!(
            at(1061),
            Some(Session {
                time_left: 539,
                refresh: true
            })
        );
        assert_eq!(at(1599).map(|session| session.time_left), Some(1));
        assert_eq!(at(1600), None);
        assert_eq!(policy.verify(&cookie, "other", 1000), None);
    }

    #[test]
    fn forged_and_broken_cookies() {
        let policy = policy(&[("secret", "s")]);
        let parse = |text: &[u8]| SessionCookie::parse(&ENGINE.encode(text));
        assert_eq!(SessionCookie::parse("%"), Err(MalformedCookie));
        assert_eq!(parse(b"jo"), Err(MalformedCookie));
        assert_eq!(parse(b"jo:1"), Err(MalformedCookie));
        assert_eq!(parse(b"\xff:1:x"), Err(MalformedCookie));
        assert_eq!(SessionCookie::parse(&"A".repeat(5000)), Err(MalformedCookie));
        for forged in [
            &b"jo:1:x"[..],
            b"jo:FFFFFFFFFFFFFFFF:",
            b"jo:-1:x",
            b"::",
            b"jo:FFFFFFFFFFFFFFFFFF:x",
        ] {
            assert_eq!(policy.verify(&parse(forged).unwrap(), "salt", 0), None);
        }
        let mut admin = SessionCookie::parse(&policy.sign("jo", "salt", 1000)).unwrap();
        admin.name = "admin".into();
        assert_eq!(policy.verify(&admin, "salt", 1000), None);
    }

    #[test]
    fn headers() {
        let plain = policy(&[("secret", "s")]);
        let value = plain.sign("jo", "salt", 0);
        assert_eq!(
            plain.set_cookie("jo", "salt", 0, false),
            format!(
                "AuthSession={value}; Version=1; Expires=Thu, 01 Jan 1970 00:10:00 GMT; Max-Age=600; Path=/; HttpOnly"
            )
        );
        assert_eq!(
            plain.clear_cookie(true),
            "AuthSession=; Version=1; Expires=Thu, 01 Jan 1970 00:00:00 GMT; Max-Age=0; Secure; Path=/; HttpOnly"
        );
        let other = policy(&[
            ("secret", "s"),
            ("allow_persistent_cookies", "false"),
            ("cookie_domain", "example.com"),
            ("same_site", "lax"),
        ]);
        assert_eq!(
            other.set_cookie("jo", "salt", 0, true),
            format!(
                "AuthSession={value}; Version=1; Secure; Domain=example.com; Path=/; HttpOnly; SameSite=Lax"
            )
        );
        assert!(plain.set_cookie("jo", "salt", u64::MAX, false).contains("9999"));
        assert_eq!(session_cookie("a=b; AuthSession=xyz; c=d"), Some("xyz"));
        assert_eq!(session_cookie("AuthSession="), None);
        assert_eq!(session_cookie("XAuthSession=1"), None);
    }
}
