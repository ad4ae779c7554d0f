//! Names of sessions.

use std::fmt;

/// The name of a session for its client's other requests. It cannot be guessed.
pub(crate) struct SessionName {
    pub(crate) worker: usize,
    pub(crate) secret: u128,
}

impl SessionName {
    /// Parses a session name. `None`: the text is none.
    pub(crate) fn parse(text: &str) -> Option<SessionName> {
        let (worker, secret) = text.split_once('.')?;
        let is_hex = |part: &str| part.bytes().all(|byte| byte.is_ascii_hexdigit());
        if !is_hex(worker) || !is_hex(secret) || secret.len() != 32 {
            return None;
        }
        Some(SessionName {
            worker: usize::from(u16::from_str_radix(worker, 16).ok()?),
            secret: u128::from_str_radix(secret, 16).ok()?,
        })
    }
}

impl fmt::Display for SessionName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}.{:032x}", self.worker, self.secret)
    }
}
