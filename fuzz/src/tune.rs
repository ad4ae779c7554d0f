//! What the tuner reads: names of settings, sets of CPUs, journals that a crash has cut; and the kernel's attributes.

use std::path::Path;

use ringmain_sys::netlink;
use ringmain_tune::cpus::Cpus;
use ringmain_tune::journal::{line, records};
use ringmain_tune::root::Key;

/// Laws: no panic on any bytes; names and sets come back the same through text; of a journal's beginning the records are
/// those that the whole begins with, whatever comes behind; attributes hold no more than their bytes.
///
/// # Panics
/// When a law is broken.
pub fn run(input: &[u8]) {
    attributes(input);
    journal(input);
    let Ok(text) = std::str::from_utf8(input) else {
        return;
    };
    if let Ok(key) = text.parse::<Key>() {
        assert_eq!(key.to_string(), text, "a name shows itself as it was");
        assert!(key.same(text, text));
    }
    for cpus in [Cpus::list(text), Cpus::mask(text)].into_iter().flatten() {
        let (list, mask) = (cpus.to_string(), cpus.to_mask());
        assert_eq!(
            Cpus::list(&list).as_ref(),
            Some(&cpus),
            "through the list `{list}`"
        );
        assert_eq!(
            Cpus::mask(&mask).as_ref(),
            Some(&cpus),
            "through the mask `{mask}`"
        );
    }
}

fn attributes(input: &[u8]) {
    let held: usize = netlink::attributes(input).map(|(_, value)| value.len() + 4).sum();
    assert!(held <= input.len(), "{held} of {} bytes", input.len());
}

fn journal(input: &[u8]) {
    let path = Path::new("journal");
    let Ok((found, whole)) = records(path, input) else {
        return;
    };
    let whole = usize::try_from(whole).expect("no longer than the input");
    assert!(whole <= input.len());
    let (again, length) = records(path, &input[..whole]).expect("what was read is read again");
    assert_eq!((&again, length), (&found, whole as u64));
    let written: Vec<u8> = found.iter().flat_map(line).collect();
    let (again, _) = records(path, &written).expect("what is written is read");
    assert_eq!(again, found);
}
