//! SHA-256 sums, and the file with the sums of a release, in the format of `sha256sum`.

use std::collections::BTreeMap;

use sha2::{Digest, Sha256};

/// Returns the SHA-256 sum in hexadecimal.
pub(crate) fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// Returns the file with the sum of each file: `sha256sum --check SHA256SUMS` reads it.
pub(crate) fn sums(files: &BTreeMap<String, Vec<u8>>) -> String {
    let line = |(name, bytes): (&String, &Vec<u8>)| format!("{}  {name}\n", sha256(bytes));
    files.iter().map(line).collect()
}
