//! Where a client is sent to: a URI reference (RFC 9110 §10.2.2) that cannot split the head or be read as another.

#[cfg(test)]
mod tests;

use crate::error::{Error, Result};

/// Why an answer has no `Location`: the application's mistake.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum LocationFault {
    /// Nowhere.
    #[error("a redirect needs a target")]
    Empty,
    /// A character that no URI has.
    #[error(
        "a redirect's target is a URI: `{}` at byte {at} is to be percent-encoded",
        found.escape_default()
    )]
    Character {
        /// The first of them.
        found: char,
        /// From 0.
        at: usize,
    },
    /// Not a redirection.
    #[error("a redirect's status is 301, 302, 303, 307 or 308, not {0}")]
    Status(u16),
}

/// The value of a `Location` field for a redirection with `status`.
///
/// A backslash is refused with everything else that no URI has (RFC 3986 §2): browsers read it as a slash, and
/// `/\example.org` would lead to another host.
///
/// # Errors
/// 500 with a [`LocationFault`] for the log.
pub(crate) fn of_redirect(status: u16, target: &str) -> Result<&[u8]> {
    if !matches!(status, 301 | 302 | 303 | 307 | 308) {
        return Err(Error::internal(LocationFault::Status(status)));
    }
    check(target)
}

/// The value of a `Location` field, also for 201.
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
