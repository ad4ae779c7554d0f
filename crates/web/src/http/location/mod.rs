//! The target of a redirect: a URI reference (RFC 9110 §10.2.2) that cannot split the head or be interpreted as another one.

#[cfg(test)]
mod tests;

use crate::http::error::{Error, Result};

/// The reason why a response has no `Location`: a mistake of the application.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum LocationFault {
    /// The target is empty.
    #[error("a redirect requires a target")]
    Empty,
    /// A character that is invalid in a URI.
    #[error(
        "a redirect's target is a URI: `{}` at byte {at} must be percent-encoded",
        found.escape_default()
    )]
    Character {
        /// The first invalid character.
        found: char,
        /// Its index, from 0.
        at: usize,
    },
    /// The status is not a redirect.
    #[error("a redirect's status is 301, 302, 303, 307 or 308, not {0}")]
    Status(u16),
}

/// Returns the value of a `Location` field for a redirect with `status`.
///
/// A backslash is rejected with every other character that is invalid in a URI (RFC 3986 §2): browsers read it as a slash, and
/// `/\example.org` would lead to another host.
///
/// # Errors
/// 500 with a [`LocationFault`] for the log.
pub(crate) fn for_redirect(status: u16, target: &str) -> Result<&[u8]> {
    if !matches!(status, 301 | 302 | 303 | 307 | 308) {
        return Err(Error::internal(LocationFault::Status(status)));
    }
    check(target)
}

/// Checks the value of a `Location` field, also for 201.
///
/// # Errors
/// 500 with a [`LocationFault`] for the log.
pub(crate) fn check(target: &str) -> Result<&[u8]> {
    if target.is_empty() {
        return Err(Error::internal(LocationFault::Empty));
    }
    let stray = target.char_indices().find(|&(_, found)| !is_of_uri(found));
    match stray {
        Some((at, found)) => Err(Error::internal(LocationFault::Character { found, at })),
        None => Ok(target.as_bytes()),
    }
}

/// RFC 3986 §2.1 to §2.3: `%`, reserved, unreserved.
fn is_of_uri(character: char) -> bool {
    character.is_ascii_alphanumeric() || "%:/?#[]@!$&'()*+,;=-._~".contains(character)
}
