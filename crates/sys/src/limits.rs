//! Resource limits of this process.

use std::io;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// How many descriptors this process may hold: the soft limit that counts, and the hard one up to which
/// it may raise itself. `u64::MAX` means no limit.
#[must_use]
pub fn open_files() -> (u64, u64) {
    let limit = getrlimit(Resource::Nofile);
    (
        limit.current.unwrap_or(u64::MAX),
        limit.maximum.unwrap_or(u64::MAX),
    )
}

/// Raises the soft limit of open descriptors to the hard one; returns the soft limit that then holds.
///
/// # Errors
/// As `setrlimit(2)`; a soft limit equal to the hard one is left alone and cannot fail.
pub fn raise_open_files() -> io::Result<u64> {
    let limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        setrlimit(
            Resource::Nofile,
            Rlimit {
                current: limit.maximum,
                maximum: limit.maximum,
            },
        )?;
    }
    Ok(open_files().0)
}
