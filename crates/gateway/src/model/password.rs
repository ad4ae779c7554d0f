//! Password hashes, as `htpasswd`, `argon2` and `mkpasswd` write them, and their verification.

use std::fmt;
use std::sync::Arc;

use argon2::Argon2;
use argon2::password_hash::PasswordVerifier;
use argon2::password_hash::phc;
use sha_crypt::{PasswordHashRef, ShaCrypt};

use super::TextError;
use crate::limits;

/// A password hash: bcrypt (`$2y$`), Argon2 (`$argon2id$`) or SHA-crypt (`$5$`, `$6$`). No log and no dump shows it.
#[derive(Clone, PartialEq, Eq)]
pub struct PasswordHash(Arc<str>);

/// The algorithm of a hash.
enum HashAlgorithm {
    Bcrypt,
    Argon2,
    ShaCrypt,
}

impl HashAlgorithm {
    fn of(text: &str) -> Option<HashAlgorithm> {
        let has_prefix = |prefixes: &[&str]| prefixes.iter().any(|prefix| text.starts_with(prefix));
        if has_prefix(&["$2a$", "$2b$", "$2x$", "$2y$"]) {
            return Some(HashAlgorithm::Bcrypt);
        }
        if has_prefix(&["$argon2id$", "$argon2i$", "$argon2d$"]) {
            return Some(HashAlgorithm::Argon2);
        }
        has_prefix(&["$5$", "$6$"]).then_some(HashAlgorithm::ShaCrypt)
    }
}

impl PasswordHash {
    /// Parses a hash.
    ///
    /// # Errors
    /// It uses another algorithm (MD5, SHA-1 and DES-crypt hashes are guessed quickly), is malformed, or exceeds one of the [`limits`]:
    /// bcrypt's cost, Argon2's memory and passes, SHA-crypt's rounds.
    pub fn parse(text: &str) -> Result<PasswordHash, TextError> {
        // The error omits the text, which may be a password.
        let fault = |expected: String| TextError {
            expected,
            found: "something else".to_owned(),
        };
        let kinds = "a hash by bcrypt, argon2 or SHA-crypt, such as `htpasswd -B` makes";
        let kind = HashAlgorithm::of(text).ok_or_else(|| fault(kinds.to_owned()))?;
        let is_valid = match kind {
            HashAlgorithm::Bcrypt => {
                let parts: bcrypt::HashParts = text.parse().map_err(|_| fault(kinds.to_owned()))?;
                parts.get_cost() <= limits::BCRYPT_COST
            }
            HashAlgorithm::Argon2 => {
                let hash = phc::PasswordHash::new(text).map_err(|_| fault(kinds.to_owned()))?;
                let cost = argon2::Params::try_from(&hash).map_err(|_| fault(kinds.to_owned()))?;
                if hash.salt.is_none() || hash.hash.is_none() {
                    return Err(fault(WHOLE.to_owned()));
                }
                cost.m_cost() <= limits::ARGON2_KIB && cost.t_cost() <= limits::ARGON2_PASSES
            }
            HashAlgorithm::ShaCrypt => {
                PasswordHashRef::new(text).map_err(|_| fault(kinds.to_owned()))?;
                if !has_whole_digest(text) {
                    return Err(fault(WHOLE.to_owned()));
                }
                rounds(text).is_some_and(|rounds| rounds <= limits::SHA_CRYPT_ROUNDS)
            }
        };
        if !is_valid {
            return Err(fault(format!(
                "a hash that costs at most 2^{} rounds of bcrypt, {} MiB and {} passes of argon2, or {} rounds of SHA-crypt",
                limits::BCRYPT_COST,
                limits::ARGON2_KIB / 1024,
                limits::ARGON2_PASSES,
                limits::SHA_CRYPT_ROUNDS
            )));
        }
        Ok(PasswordHash(text.into()))
    }

    /// Returns the hash as configured, as a key for cached results.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Returns the bytes of memory that a check takes.
    pub(crate) fn memory(&self) -> u64 {
        let blocks = match HashAlgorithm::of(&self.0) {
            Some(HashAlgorithm::Argon2) => phc::PasswordHash::new(&self.0)
                .ok()
                .and_then(|hash| argon2::Params::try_from(&hash).ok())
                .map_or(limits::ARGON2_KIB, |params| params.m_cost()),
            // bcrypt's tables take 4 KiB.
            _ => 8,
        };
        u64::from(blocks) << 10
    }

    /// Returns whether the hash is that of `password`. Takes about 10 to 1000 ms of CPU time: never call it on a worker.
    #[must_use]
    pub fn verify(&self, password: &[u8]) -> bool {
        match HashAlgorithm::of(&self.0) {
            Some(HashAlgorithm::Bcrypt) => bcrypt::verify(password, &self.0).unwrap_or(false),
            Some(HashAlgorithm::Argon2) => phc::PasswordHash::new(&self.0)
                .is_ok_and(|hash| Argon2::default().verify_password(password, &hash).is_ok()),
            Some(HashAlgorithm::ShaCrypt) => PasswordHashRef::new(&self.0)
                .is_ok_and(|hash| ShaCrypt::default().verify_password(password, hash).is_ok()),
            None => false,
        }
    }
}

/// Rejects a hash from a file of users that was read while it was being written.
const WHOLE: &str = "a whole hash, up to the end of its digest";

/// Returns whether the text after the last `$` of a SHA-crypt hash has the length of a SHA-256 or SHA-512 digest in its base64.
fn has_whole_digest(text: &str) -> bool {
    let length = if text.starts_with("$5$") { 43 } else { 86 };
    text.rsplit('$')
        .next()
        .is_some_and(|digest| digest.len() == length)
}

/// Returns the rounds of a SHA-crypt hash. Default: 5000.
fn rounds(text: &str) -> Option<u32> {
    let field = text.split('$').nth(2)?;
    match field.strip_prefix("rounds=") {
        Some(rounds) => rounds.parse().ok(),
        None => Some(5000),
    }
}

impl fmt::Debug for PasswordHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PasswordHash")
    }
}
