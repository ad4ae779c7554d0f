//! Users and groups by name, from this host's own files.
//!
//! Reads `/etc/passwd` and `/etc/group` only: a directory service would need libc's plug-ins, and numbers
//! always work.

use std::fs;

/// Why a `USER[:GROUP]` could not be resolved.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected {expected}; found `{found}`")]
pub struct OwnerError {
    /// What would have been accepted.
    pub expected: &'static str,
    /// What was given.
    pub found: String,
}

/// Resolves `USER`, `USER:GROUP` or `:GROUP`, each a name or a number, to numbers.
///
/// # Errors
/// Says which part is unknown on this host.
pub fn owner(spec: &str) -> Result<(Option<u32>, Option<u32>), OwnerError> {
    let (user, group) = spec.split_once(':').map_or((spec, None), |(u, g)| (u, Some(g)));
    if user.is_empty() && group.is_none_or(str::is_empty) {
        return Err(OwnerError {
            expected: "USER, USER:GROUP or :GROUP",
            found: spec.to_owned(),
        });
    }
    let user = match user {
        "" => None,
        name => Some(lookup("/etc/passwd", name).ok_or_else(|| OwnerError {
            expected: "a user of /etc/passwd or a user number",
            found: name.to_owned(),
        })?),
    };
    let group = match group {
        None => None,
        Some(name) => Some(lookup("/etc/group", name).ok_or_else(|| OwnerError {
            expected: "a group of /etc/group or a group number",
            found: name.to_owned(),
        })?),
    };
    Ok((user, group))
}

/// Both files hold `NAME:PASSWORD:NUMBER:…` lines.
fn lookup(file: &str, name: &str) -> Option<u32> {
    // The largest number means "leave alone" to chown(2).
    if let Ok(number) = name.parse::<u32>() {
        return (number != u32::MAX).then_some(number);
    }
    let text = fs::read_to_string(file).ok()?;
    text.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next()? == name)
            .then(|| fields.nth(1)?.parse().ok())
            .flatten()
    })
}
