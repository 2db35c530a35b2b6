//! CouchDB's password hashes, as `[admins]` values and as members of `_users` documents.

use hmac::digest::Digest;
use serde_json::{Map, Value, json};
use sha1::Sha1;
use sha2::{Sha224, Sha256, Sha384, Sha512};
use subtle::ConstantTimeEq;

use super::random::{RandomError, hex, random_hex};
use crate::config::{FromSetting, HashAlgorithm, Settings};

/// The iterations of documents that do not say.
const DEFAULT_ITERATIONS: u64 = 10_000;

/// How new hashes are made, and which old ones are accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HashPolicy {
    /// The hash function of new hashes.
    pub prf: HashAlgorithm,
    /// The rounds of new hashes.
    pub iterations: u32,
    /// Hashes with fewer rounds are refused.
    pub min_iterations: u32,
    /// Hashes with more rounds are refused.
    pub max_iterations: u32,
}

impl From<&Settings> for HashPolicy {
    fn from(settings: &Settings) -> Self {
        let auth = &settings.chttpd_auth;
        Self {
            prf: auth.pbkdf2_prf,
            iterations: auth.iterations,
            min_iterations: auth.min_iterations,
            max_iterations: auth.max_iterations,
        }
    }
}

/// Why a stored hash cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HashError {
    /// Too few rounds for this server.
    #[error("Iteration count is too low for this server")]
    TooFewIterations,
    /// Too many rounds for this server.
    #[error("Iteration count is too high for this server")]
    TooManyIterations,
    /// A hash function that CouchDB does not have.
    #[error("PRF is invalid")]
    Prf,
    /// A member or a part is missing or of the wrong type, or the scheme is not known.
    #[error("the stored password hash is malformed")]
    Malformed,
}

/// What a password is compared with.
#[derive(Clone, PartialEq, Eq)]
pub enum PasswordHash {
    /// SHA-1 of password and salt; CouchDB before 1.3.
    Simple {
        /// The hash as hexadecimal digits.
        password_sha: String,
        /// The salt, used as text.
        salt: String,
    },
    /// PBKDF2.
    Pbkdf2 {
        /// The hash function under the HMAC.
        prf: HashAlgorithm,
        /// The derived key as hexadecimal digits.
        derived_key: String,
        /// The salt, used as text.
        salt: String,
        /// The rounds.
        iterations: u32,
        /// Whether it was derived from the simple hash of the password: an old hash, hardened without the password.
        over_simple: bool,
    },
}

impl std::fmt::Debug for PasswordHash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Simple { .. } => f.write_str("Simple"),
            Self::Pbkdf2 { prf, iterations, .. } => write!(f, "Pbkdf2({prf}, {iterations})"),
        }
    }
}

impl PasswordHash {
    /// Hashes a password with a new random salt. Costs `policy.iterations` rounds.
    ///
    /// # Errors
    ///
    /// When the operating system has no random numbers.
    pub fn create(password: &[u8], policy: &HashPolicy) -> Result<Self, RandomError> {
        Ok(Self::with_salt(password, policy, random_hex()?))
    }

    /// Hashes a password with a given salt. Costs `policy.iterations` rounds.
    pub fn with_salt(password: &[u8], policy: &HashPolicy, salt: String) -> Self {
        Self::Pbkdf2 {
            prf: policy.prf,
            derived_key: derive(policy.prf, password, &salt, policy.iterations),
            salt,
            iterations: policy.iterations,
            over_simple: false,
        }
    }

    /// Reads a value of the section `[admins]`. A plain password gives `None`.
    ///
    /// # Errors
    ///
    /// [`HashError::Malformed`] for a value that begins like a hash and is none.
    pub fn from_admin_value(value: &str) -> Result<Option<Self>, HashError> {
        let (prf, rest) = if let Some(rest) = value.strip_prefix("-hashed-") {
            let (password_sha, salt) = rest.split_once(',').ok_or(HashError::Malformed)?;
            return Ok(Some(Self::Simple {
                password_sha: password_sha.to_owned(),
                salt: salt.to_owned(),
            }));
        } else if let Some(rest) = value.strip_prefix("-pbkdf2-") {
            (HashAlgorithm::Sha, rest)
        } else if let Some((prf, rest)) = value
            .strip_prefix("-pbkdf2:")
            .and_then(|rest| rest.split_once('-'))
        {
            match HashAlgorithm::from_setting(prf) {
                Ok(prf) => (prf, rest),
                // Not one of CouchDB's prefixes, and so a password.
                Err(_) => return Ok(None),
            }
        } else {
            return Ok(None);
        };
        let mut parts = rest.split(',');
        match (parts.next(), parts.next(), parts.next(), parts.next()) {
            (Some(derived_key), Some(salt), Some(iterations), None) => Ok(Some(Self::Pbkdf2 {
                prf,
                derived_key: derived_key.to_owned(),
                salt: salt.to_owned(),
                iterations: iterations.trim().parse().map_err(|_| HashError::Malformed)?,
                over_simple: false,
            })),
            _ => Err(HashError::Malformed),
        }
    }

    /// The value for the section `[admins]`. `None` for a hash over a simple hash, which has no such form.
    pub fn to_admin_value(&self) -> Option<String> {
        match self {
            Self::Simple { password_sha, salt } => Some(format!("-hashed-{password_sha},{salt}")),
            Self::Pbkdf2 {
                prf,
                derived_key,
                salt,
                iterations,
                over_simple: false,
            } => Some(format!("-pbkdf2:{prf}-{derived_key},{salt},{iterations}")),
            Self::Pbkdf2 {
                over_simple: true, ..
            } => None,
        }
    }

    /// Reads the members of a `_users` document.
    ///
    /// # Errors
    ///
    /// When members are missing, of wrong types, or name an unknown scheme or hash function.
    pub fn from_doc(doc: &Map<String, Value>) -> Result<Self, HashError> {
        let text = |key: &str| match doc.get(key) {
            Some(Value::String(text)) => Ok(Some(text.as_str())),
            None => Ok(None),
            Some(_) => Err(HashError::Malformed),
        };
        let salt = text("salt")?.unwrap_or_default().to_owned();
        let over_simple = match text("password_scheme")?.unwrap_or("simple") {
            "simple" => {
                let password_sha = text("password_sha")?.ok_or(HashError::Malformed)?.to_owned();
                return Ok(Self::Simple { password_sha, salt });
            }
            "pbkdf2" => false,
            "simple+pbkdf2" => true,
            _ => return Err(HashError::Malformed),
        };
        let iterations = match doc.get("iterations") {
            None => DEFAULT_ITERATIONS,
            Some(number) => number.as_u64().ok_or(HashError::Malformed)?,
        };
        let prf = text("pbkdf2_prf")?.unwrap_or("sha");
        Ok(Self::Pbkdf2 {
            prf: HashAlgorithm::from_setting(prf).map_err(|_| HashError::Prf)?,
            derived_key: text("derived_key")?.ok_or(HashError::Malformed)?.to_owned(),
            salt,
            iterations: u32::try_from(iterations).map_err(|_| HashError::TooManyIterations)?,
            over_simple,
        })
    }

    /// Puts the hash into the members of a `_users` document, in place of any other.
    pub fn write_to_doc(&self, doc: &mut Map<String, Value>) {
        for member in ["password_sha", "derived_key", "iterations", "pbkdf2_prf"] {
            doc.shift_remove(member);
        }
        let mut put = |member: &str, value: Value| doc.insert(member.to_owned(), value);
        match self {
            Self::Simple { password_sha, salt } => {
                put("password_scheme", json!("simple"));
                put("salt", json!(salt));
                put("password_sha", json!(password_sha));
            }
            Self::Pbkdf2 {
                prf,
                derived_key,
                salt,
                iterations,
                over_simple,
            } => {
                let scheme = if *over_simple { "simple+pbkdf2" } else { "pbkdf2" };
                put("password_scheme", json!(scheme));
                put("pbkdf2_prf", json!(prf.as_str()));
                put("salt", json!(salt));
                put("iterations", json!(iterations));
                put("derived_key", json!(derived_key));
            }
        }
    }

    /// The salt, which is part of the key of the user's session cookies.
    pub fn salt(&self) -> &str {
        match self {
            Self::Simple { salt, .. } | Self::Pbkdf2 { salt, .. } => salt,
        }
    }

    /// Whether `password` is the one that was hashed. Costs the rounds of the hash; compares in constant time.
    ///
    /// # Errors
    ///
    /// When the rounds are outside of `policy`.
    pub fn verify(&self, password: &[u8], policy: &HashPolicy) -> Result<bool, HashError> {
        let (stored, computed) = match self {
            Self::Simple { password_sha, salt } => (password_sha, simple(password, salt)),
            Self::Pbkdf2 {
                prf,
                derived_key,
                salt,
                iterations,
                over_simple,
            } => {
                if *iterations < policy.min_iterations.max(1) {
                    return Err(HashError::TooFewIterations);
                }
                if *iterations > policy.max_iterations {
                    return Err(HashError::TooManyIterations);
                }
                let computed = if *over_simple {
                    derive(*prf, simple(password, salt).as_bytes(), salt, *iterations)
                } else {
                    derive(*prf, password, salt, *iterations)
                };
                (derived_key, computed)
            }
        };
        Ok(stored.as_bytes().ct_eq(computed.as_bytes()).into())
    }

    /// Spends the time of a verification, so that a user who does not exist answers no faster than one who does.
    pub fn verify_nobody(password: &[u8], policy: &HashPolicy) {
        let key = derive(
            policy.prf,
            password,
            "00000000000000000000000000000000",
            policy.iterations,
        );
        std::hint::black_box(key);
    }

    /// Whether a new hash of the same password would differ in scheme, hash function or rounds.
    pub fn needs_upgrade(&self, policy: &HashPolicy) -> bool {
        !matches!(self, Self::Pbkdf2 { prf, iterations, over_simple: false, .. }
            if *prf == policy.prf && *iterations == policy.iterations)
    }
}

fn simple(password: &[u8], salt: &str) -> String {
    hex(&Sha1::new()
        .chain_update(password)
        .chain_update(salt.as_bytes())
        .finalize())
}

/// PBKDF2 with a key as long as the hash, as hexadecimal digits.
fn derive(prf: HashAlgorithm, password: &[u8], salt: &str, iterations: u32) -> String {
    use pbkdf2::pbkdf2_hmac_array as derive;
    let salt = salt.as_bytes();
    match prf {
        HashAlgorithm::Sha => hex(&derive::<Sha1, 20>(password, salt, iterations)),
        HashAlgorithm::Sha224 => hex(&derive::<Sha224, 28>(password, salt, iterations)),
        HashAlgorithm::Sha256 => hex(&derive::<Sha256, 32>(password, salt, iterations)),
        HashAlgorithm::Sha384 => hex(&derive::<Sha384, 48>(password, salt, iterations)),
        HashAlgorithm::Sha512 => hex(&derive::<Sha512, 64>(password, salt, iterations)),
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    const POLICY: HashPolicy = HashPolicy {
        prf: HashAlgorithm::Sha256,
        iterations: 10,
        min_iterations: 1,
        max_iterations: 1_000_000,
    };

    fn admin(value: &str) -> PasswordHash {
        PasswordHash::from_admin_value(value).unwrap().unwrap()
    }

    /// Written by CouchDB 3.5.2 for the password `pass`.
    #[test]
    fn a_hash_of_couchdb_verifies() {
        let value = "-pbkdf2:sha256-31f08966590819b039ee57b1e1f0bb8087d1f6ee22c745ae065f26615bac155a,\
                     3bfbe5ada1e4ede5fef4e2711729e37c,600000";
        let hash = admin(value);
        assert_eq!(hash.verify(b"pass", &POLICY), Ok(true));
        assert_eq!(hash.verify(b"Pass", &POLICY), Ok(false));
        assert_eq!(hash.to_admin_value().unwrap(), value);
        assert_eq!(hash.salt(), "3bfbe5ada1e4ede5fef4e2711729e37c");
    }

    /// The vectors of RFC 6070, and the first 32 bytes of that of RFC 7914 for SHA-256.
    #[test]
    fn published_vectors_of_pbkdf2() {
        for (iterations, key) in [
            (1, "0c60c80f961f0e71f3a9b524af6012062fe037a6"),
            (2, "ea6c014dc72d6f8ccd1ed92ace1d41f0d8de8957"),
            (4096, "4b007901b765489abead49d926f721d065a429c1"),
        ] {
            assert_eq!(derive(HashAlgorithm::Sha, b"password", "salt", iterations), key);
        }
        assert_eq!(
            derive(HashAlgorithm::Sha256, b"passwd", "salt", 1),
            "55ac046e56e3089fec1691c22544b605f94185216dde0465e68b9d57c20dacbc"
        );
    }

    #[test]
    fn old_forms_verify() {
        let old = admin("-pbkdf2-4b007901b765489abead49d926f721d065a429c1,salt,4096");
        assert_eq!(old.verify(b"password", &POLICY), Ok(true));
        // SHA-1 of "passwordsalt".
        let simple = admin("-hashed-c88e9c67041a74e0357befdff93f87dde0904214,salt");
        assert_eq!(simple.verify(b"password", &POLICY), Ok(true));
        assert!(old.needs_upgrade(&POLICY) && simple.needs_upgrade(&POLICY));
        assert_eq!(PasswordHash::from_admin_value("secret"), Ok(None));
        assert_eq!(PasswordHash::from_admin_value("-pbkdf2:md5-x"), Ok(None));
        for bad in [
            "-pbkdf2-x",
            "-pbkdf2-x,y",
            "-pbkdf2:sha256-x,y,z",
            "-hashed-x",
            "-pbkdf2-a,b,1,c",
            "-pbkdf2-a,b,-1",
        ] {
            assert_eq!(
                PasswordHash::from_admin_value(bad),
                Err(HashError::Malformed),
                "{bad}"
            );
        }
    }

    #[test]
    fn documents_round_trip() {
        for over_simple in [false, true] {
            let salt = "abc".to_owned();
            let password: Vec<u8> = if over_simple {
                simple(b"p", &salt).into_bytes()
            } else {
                b"p".to_vec()
            };
            let PasswordHash::Pbkdf2 {
                prf,
                derived_key,
                iterations,
                ..
            } = PasswordHash::with_salt(&password, &POLICY, salt.clone())
            else {
                unreachable!("new hashes are PBKDF2")
            };
            let hash = PasswordHash::Pbkdf2 {
                prf,
                derived_key,
                salt,
                iterations,
                over_simple,
            };
            let mut doc = Map::new();
            doc.insert("password_sha".into(), json!("old"));
            hash.write_to_doc(&mut doc);
            assert!(!doc.contains_key("password_sha"));
            let read = PasswordHash::from_doc(&doc).unwrap();
            assert!(read == hash);
            assert_eq!(read.verify(b"p", &POLICY), Ok(true));
            assert_eq!(read.needs_upgrade(&POLICY), over_simple);
        }
    }

    #[test]
    fn documents_that_do_not_say_are_old() {
        let doc = |value: Value| PasswordHash::from_doc(value.as_object().unwrap());
        let simple =
            doc(json!({"password_sha": "c88e9c67041a74e0357befdff93f87dde0904214", "salt": "salt"})).unwrap();
        assert_eq!(simple.verify(b"password", &POLICY), Ok(true));
        let old = json!({"password_scheme": "pbkdf2", "salt": "salt", "iterations": 4096,
            "derived_key": "4b007901b765489abead49d926f721d065a429c1"});
        assert_eq!(doc(old).unwrap().verify(b"password", &POLICY), Ok(true));
    }

    #[test]
    fn hostile_documents_are_refused() {
        let doc = |value: Value| PasswordHash::from_doc(value.as_object().unwrap());
        let hash = |iterations: u64| {
            doc(
                json!({"password_scheme": "pbkdf2", "salt": "s", "derived_key": "k", "iterations": iterations}),
            )
        };
        assert_eq!(
            hash(0).unwrap().verify(b"x", &POLICY),
            Err(HashError::TooFewIterations)
        );
        assert_eq!(
            hash(2_000_000).unwrap().verify(b"x", &POLICY),
            Err(HashError::TooManyIterations)
        );
        assert!(matches!(hash(1 << 40), Err(HashError::TooManyIterations)));
        for bad in [
            json!({}),
            json!({"password_scheme": 1}),
            json!({"password_scheme": "rot13"}),
            json!({"password_scheme": "pbkdf2", "derived_key": null}),
            json!({"password_scheme": "pbkdf2", "derived_key": "k", "iterations": -1}),
            json!({"password_scheme": "pbkdf2", "derived_key": "k", "iterations": "1"}),
        ] {
            assert!(matches!(doc(bad), Err(HashError::Malformed)));
        }
        let prf = doc(json!({"password_scheme": "pbkdf2", "derived_key": "k", "pbkdf2_prf": "md5"}));
        assert!(matches!(prf, Err(HashError::Prf)));
    }
}
