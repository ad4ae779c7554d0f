//! Eight bytes of a path at a time.
//!
//! Owns the bit tricks that find bytes in a word. Knows nothing of what the bytes mean.

/// Bytes of a word.
pub(crate) const BYTES: usize = 8;

const LOW: u64 = 0x0101_0101_0101_0101;
const HIGH: u64 = 0x8080_8080_8080_8080;

/// The eight bytes from `at`, the first one lowest.
///
/// # Panics
/// When there are fewer.
#[inline]
pub(crate) fn load(bytes: &[u8], at: usize) -> u64 {
    let bytes = bytes[at..at + BYTES].try_into().expect("eight bytes");
    u64::from_le_bytes(bytes)
}

/// The bytes from `at`, at most eight, the first one lowest; zeros where there are none.
///
/// # Panics
/// When `at` is beyond the end.
#[inline]
pub(crate) fn load_padded(bytes: &[u8], at: usize) -> u64 {
    let left = bytes.len() - at;
    if left >= BYTES {
        return load(bytes, at);
    }
    if bytes.len() >= BYTES && left > 0 {
        return load(bytes, bytes.len() - BYTES) >> (8 * (BYTES - left));
    }
    let tail = bytes[at..].iter().rev();
    tail.fold(0, |word, &byte| word << 8 | u64::from(byte))
}

/// A word of this byte only.
#[inline]
pub(crate) const fn all(byte: u8) -> u64 {
    LOW * byte as u64
}

/// The highest bit of each zero byte. The lowest bit found is exact; a byte of value 1 that follows a zero byte may
/// be found too.
#[inline]
pub(crate) const fn zeros(word: u64) -> u64 {
    word.wrapping_sub(LOW) & !word & HIGH
}

/// As [`zeros`], for the bytes equal to `byte`; one that differs from it in the last bit may follow.
#[inline]
pub(crate) const fn equal(word: u64, byte: u8) -> u64 {
    zeros(word ^ all(byte))
}

/// Which byte the lowest bit found lies in; eight if none was.
#[inline]
pub(crate) const fn first(found: u64) -> usize {
    found.trailing_zeros() as usize / 8
}

/// The first `bytes` bytes of a word, zeros after them. `bytes` is at most eight.
#[inline]
pub(crate) const fn keep(word: u64, bytes: usize) -> u64 {
    if bytes >= BYTES {
        return word;
    }
    word & !(u64::MAX << (8 * bytes))
}
