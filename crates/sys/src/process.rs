//! Facts about this process.

use std::fs;

/// Memory of this process that is in RAM, bytes; `None` without `/proc`.
#[must_use]
pub fn resident_bytes() -> Option<u64> {
    let text = fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = text.split(' ').nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}

/// The effective user: the one that permissions are checked against.
#[must_use]
pub fn uid() -> u32 {
    rustix::process::geteuid().as_raw()
}
