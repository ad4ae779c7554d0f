//! Files that outputs are compared with, byte by byte.

use std::path::Path;

/// Compares an output with the file of that name beneath this folder; `UPDATE_GOLDEN` in the environment writes it instead.
///
/// # Panics
/// If they differ.
pub(super) fn check(name: &str, found: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("src/profile")
        .join(name);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, found).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(found, expected, "{} differs", path.display());
}
