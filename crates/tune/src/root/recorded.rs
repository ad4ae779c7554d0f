//! What only system calls tell, as text in a file: a line for each.
//!
//! ```text
//! ethtool:eth0/driver = ena
//! ethtool:eth0/rings ! Operation not supported    refused, and why
//! refuses /proc/irq/40/smp_affinity_list = Input/output error
//! ignores ethtool:eth0/gro                         a write is taken and changes nothing
//! ```
//!
//! A question without a line is one that nobody asked when the host was recorded: unknown. Lines that begin with `#` say
//! something to people.

use std::fs;
use std::io;
use std::path::Path;

use super::{Key, Reading};

/// What a refusal says where there is no such thing.
const UNSUPPORTED: &str = "Operation not supported";

pub(super) fn read(file: &Path, key: &Key) -> Reading {
    let text = fs::read_to_string(file).unwrap_or_default();
    let name = key.to_string();
    for line in text.lines() {
        let Some(rest) = line.trim().strip_prefix(&name) else {
            continue;
        };
        match rest.trim_start().split_at_checked(1) {
            Some(("=", value)) => return Reading::Value(value.trim().to_owned()),
            Some(("!", why)) if why.trim() == UNSUPPORTED => return Reading::Absent,
            Some(("!", why)) => return Reading::Unknown(why.trim().to_owned()),
            _ => {}
        }
    }
    Reading::Unknown("not recorded".into())
}

/// Whether a write has an effect.
///
/// # Errors
/// Where it is refused.
pub(super) fn takes(file: &Path, key: &Key) -> io::Result<bool> {
    let text = fs::read_to_string(file).unwrap_or_default();
    let name = key.to_string();
    for line in text.lines().map(str::trim) {
        if line
            .strip_prefix("ignores ")
            .is_some_and(|rest| rest.trim() == name)
        {
            return Ok(false);
        }
        let refusal = line
            .strip_prefix("refuses ")
            .and_then(|rest| rest.split_once('='));
        if let Some((_, why)) = refusal.filter(|(found, _)| found.trim() == name) {
            return Err(io::Error::other(why.trim().to_owned()));
        }
    }
    Ok(true)
}

pub(super) fn write(file: &Path, key: &Key, value: &str) -> io::Result<()> {
    let text = fs::read_to_string(file)?;
    let name = key.to_string();
    let is_it = |line: &str| {
        let rest = line.trim().strip_prefix(&name);
        rest.is_some_and(|rest| rest.trim_start().starts_with('='))
    };
    if !text.lines().any(is_it) {
        return Err(io::Error::new(io::ErrorKind::Unsupported, UNSUPPORTED));
    }
    let lines = text.lines().map(|line| {
        if is_it(line) {
            format!("{name} = {value}\n")
        } else {
            format!("{line}\n")
        }
    });
    fs::write(file, lines.collect::<String>())
}
