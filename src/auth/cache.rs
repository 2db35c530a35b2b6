//! Passwords that were verified lately, so that not every request costs a password hash.
//!
//! An entry is nothing but a keyed hash over the name, the password and the stored hash. So a copy of the memory gives
//! no password away, and when the stored hash changes (a new password, a new salt) the old entry is never found again.

use std::mem;

use ahash::AHashMap;
use hmac::{Hmac, KeyInit, Mac};
use parking_lot::Mutex;
use sha2::Sha256;

use super::password::{HashError, HashPolicy, PasswordHash};
use super::random::{RandomError, random_bytes};

type Tag = [u8; 32];

/// The cache. Share it between threads; a lookup takes a lock for one or two probes of a table.
pub struct CredentialCache {
    key: [u8; 32],
    max_objects: usize,
    max_idle_ms: u64,
    generations: Mutex<Generations>,
}

/// Two halves, of which the older is dropped when the younger is full: what was used lately moves to the younger.
#[derive(Default)]
struct Generations {
    young: AHashMap<Tag, u64>,
    old: AHashMap<Tag, u64>,
}

impl std::fmt::Debug for CredentialCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CredentialCache")
            .field("len", &self.len())
            .finish_non_exhaustive()
    }
}

impl CredentialCache {
    /// An empty cache for at most `max_objects` passwords, each forgotten when unused for `max_idle_ms` milliseconds.
    ///
    /// # Errors
    ///
    /// When the operating system has no random numbers.
    pub fn new(max_objects: usize, max_idle_ms: u64) -> Result<Self, RandomError> {
        Ok(Self {
            key: random_bytes()?,
            max_objects,
            max_idle_ms,
            generations: Mutex::new(Generations::default()),
        })
    }

    /// Whether these credentials were verified against this stored hash lately. `now_ms` is any clock that does not go
    /// backwards, in milliseconds.
    pub fn contains(&self, name: &str, password: &[u8], stored: &PasswordHash, now_ms: u64) -> bool {
        let tag = self.tag(name, password, stored);
        let mut generations = self.generations.lock();
        let used = match generations.young.get(&tag) {
            Some(used) => *used,
            None => match generations.old.remove(&tag) {
                Some(used) => used,
                None => return false,
            },
        };
        if now_ms.saturating_sub(used) >= self.max_idle_ms {
            generations.young.remove(&tag);
            return false;
        }
        self.put(&mut generations, tag, now_ms);
        true
    }

    /// Remembers credentials that [`PasswordHash::verify`] has just accepted.
    pub fn insert(&self, name: &str, password: &[u8], stored: &PasswordHash, now_ms: u64) {
        let tag = self.tag(name, password, stored);
        self.put(&mut self.generations.lock(), tag, now_ms);
    }

    /// [`PasswordHash::verify`], which is costly, only when these credentials were not verified lately.
    ///
    /// # Errors
    ///
    /// When the rounds of the hash are outside of `policy`.
    pub fn verify(
        &self,
        name: &str,
        password: &[u8],
        stored: &PasswordHash,
        policy: &HashPolicy,
        now_ms: u64,
    ) -> Result<bool, HashError> {
        if self.contains(name, password, stored, now_ms) {
            return Ok(true);
        }
        let right = stored.verify(password, policy)?;
        if right {
            self.insert(name, password, stored, now_ms);
        }
        Ok(right)
    }

    /// Forgets everything.
    pub fn clear(&self) {
        *self.generations.lock() = Generations::default();
    }

    /// How many credentials are remembered, idle ones included.
    pub fn len(&self) -> usize {
        let generations = self.generations.lock();
        generations.young.len() + generations.old.len()
    }

    /// Whether nothing is remembered.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn put(&self, generations: &mut Generations, tag: Tag, now_ms: u64) {
        let half = self.max_objects.div_ceil(2).max(1);
        if generations.young.len() >= half && !generations.young.contains_key(&tag) {
            generations.old = mem::take(&mut generations.young);
        }
        generations.young.insert(tag, now_ms);
    }

    fn tag(&self, name: &str, password: &[u8], stored: &PasswordHash) -> Tag {
        let mut mac =
            <Hmac<Sha256> as KeyInit>::new_from_slice(&self.key).expect("HMAC takes keys of every length");
        let (scheme, secret) = match stored {
            PasswordHash::Simple { password_sha, .. } => ("simple", password_sha),
            PasswordHash::Pbkdf2 { derived_key, .. } => ("pbkdf2", derived_key),
        };
        // Each part is preceded by its length, so that no two lists of parts give the same bytes.
        for part in [
            name.as_bytes(),
            password,
            scheme.as_bytes(),
            secret.as_bytes(),
            stored.salt().as_bytes(),
        ] {
            mac.update(&(part.len() as u64).to_be_bytes());
            mac.update(part);
        }
        mac.finalize().into_bytes().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored(salt: &str) -> PasswordHash {
        PasswordHash::Simple {
            password_sha: "x".into(),
            salt: salt.into(),
        }
    }

    #[test]
    fn only_the_same_credentials_and_hash_are_found() -> Result<(), RandomError> {
        let cache = CredentialCache::new(10, 1000)?;
        cache.insert("ab", b"c", &stored("s"), 0);
        assert!(cache.contains("ab", b"c", &stored("s"), 1));
        assert!(!cache.contains("a", b"bc", &stored("s"), 1));
        assert!(!cache.contains("ab", b"d", &stored("s"), 1));
        assert!(!cache.contains("ab", b"c", &stored("t"), 1));
        cache.clear();
        assert!(cache.is_empty());
        Ok(())
    }

    #[test]
    fn only_right_passwords_are_remembered() -> Result<(), Box<dyn std::error::Error>> {
        let cache = CredentialCache::new(10, 1000)?;
        let policy = HashPolicy {
            prf: crate::config::HashAlgorithm::Sha256,
            iterations: 2,
            min_iterations: 1,
            max_iterations: 2,
        };
        let stored = PasswordHash::create(b"p", &policy)?;
        assert!(!cache.verify("a", b"q", &stored, &policy, 0)?);
        assert!(cache.is_empty());
        assert!(cache.verify("a", b"p", &stored, &policy, 0)?);
        assert!(cache.contains("a", b"p", &stored, 0));
        Ok(())
    }

    #[test]
    fn idle_entries_end_and_used_ones_live_on() -> Result<(), RandomError> {
        let cache = CredentialCache::new(10, 1000)?;
        cache.insert("a", b"p", &stored("s"), 0);
        assert!(cache.contains("a", b"p", &stored("s"), 999));
        assert!(cache.contains("a", b"p", &stored("s"), 1998));
        assert!(!cache.contains("a", b"p", &stored("s"), 2998));
        assert!(!cache.contains("a", b"p", &stored("s"), 2998));
        Ok(())
    }

    #[test]
    fn it_is_bounded_and_keeps_what_is_used() -> Result<(), RandomError> {
        let cache = CredentialCache::new(100, 1000)?;
        cache.insert("often", b"p", &stored("s"), 0);
        for i in 0..10_000_u32 {
            cache.insert(&i.to_string(), b"p", &stored("s"), 0);
            if i % 10 == 0 {
                assert!(cache.contains("often", b"p", &stored("s"), 0));
            }
            assert!(cache.len() <= 100, "{}", cache.len());
        }
        Ok(())
    }
}
