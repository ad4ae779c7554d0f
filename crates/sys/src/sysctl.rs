//! Kernel settings under `/proc/sys`.

use std::fs;
use std::path::Path;

/// The value of a setting such as `net.core.somaxconn`, without the line's end. A name part that itself holds
/// a dot is written with slashes: `net/ipv4/conf/eth0.1/rp_filter`. `None` if there is no such setting or it may
/// not be read.
#[must_use]
pub fn read(name: &str) -> Option<String> {
    let path = if name.contains('/') {
        name.to_owned()
    } else {
        name.replace('.', "/")
    };
    if path.split('/').any(|part| part.is_empty() || part == "..") {
        return None;
    }
    let text = fs::read_to_string(Path::new("/proc/sys").join(path)).ok()?;
    Some(text.trim_end().to_owned())
}
