//! Deltas in the format of Fossil.
//!
//! The first two bytes of an input are the length of the source; the rest is the target, and also a delta.

use ringmain_hub::delta::fossil::{apply, create};
use ringmain_hub::limits::DELTA_BYTES;

/// Laws: no panic; a delta is shorter than its target, and leads to it; the delta of two texts is a text; the result of any delta is no
/// longer than the limit, and its announced length is right.
///
/// # Panics
/// If a law is broken.
pub fn run(input: &[u8]) {
    let Some((length, bytes)) = input.split_first_chunk::<2>() else {
        return;
    };
    let length = usize::from(u16::from_le_bytes(*length)).min(bytes.len());
    let (source, rest) = bytes.split_at(length);
    round_trip(source, rest);
    round_trip(source, &[rest, source].concat());
    for limit in [DELTA_BYTES, 16] {
        if let Ok(target) = apply(source, rest, limit) {
            assert!(target.len() <= limit);
            round_trip(source, &target);
        }
    }
}

fn round_trip(source: &[u8], target: &[u8]) {
    let Some(delta) = create(source, target) else {
        return;
    };
    assert!(delta.len() < target.len());
    assert_eq!(apply(source, &delta, DELTA_BYTES).as_deref(), Ok(target));
    if std::str::from_utf8(target).is_ok() {
        assert!(std::str::from_utf8(&delta).is_ok());
    }
}
