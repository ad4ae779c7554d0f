//! Entries of the log behind a push cluster.

use ringmain_cluster::log::Entry;

/// Laws: no panic; a decoded entry is encoded and decoded as the same entry; no more memory than the input is needed.
///
/// # Panics
/// If a law is broken.
pub fn run(input: &[u8]) {
    let Ok(entry) = Entry::decode(input) else {
        return;
    };
    let encoded = entry.encode();
    assert_eq!(Entry::decode(&encoded).as_ref(), Ok(&entry), "encoded again");
    assert!(
        encoded.len() <= input.len(),
        "{} bytes became {}",
        input.len(),
        encoded.len()
    );
}
