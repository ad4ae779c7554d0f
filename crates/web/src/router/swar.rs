//! Eight bytes of a path at a time.
//!
//! Owns the bit tricks that find bytes in a word. Does not know the meaning of the bytes.

/// Bytes of a word.
pub(crate) const BYTES: usize = 8;

const LOW: u64 = 0x0101_0101_0101_0101;
const HIGH: u64 = 0x8080_8080_8080_8080;

/// Returns the eight bytes from `at`, the first one lowest.
///
/// # Panics
/// If there are fewer.
#[inline]
pub(crate) fn load(bytes: &[u8], at: usize) -> u64 {
    let bytes = bytes[at..at + BYTES].try_into().expect("eight bytes");
    u64::from_le_bytes(bytes)
}

/// Returns up to eight bytes from `at`, the first one lowest, padded with zeros.
///
/// # Panics
/// If `at` is beyond the end.
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

/// Returns a word of this byte only.
#[inline]
pub(crate) const fn all(byte: u8) -> u64 {
    LOW * byte as u64
}

/// Sets the highest bit of each zero byte. The lowest bit set is exact; a byte of value 1 that follows a zero byte may be marked
/// too.
#[inline]
pub(crate) const fn zeros(word: u64) -> u64 {
    word.wrapping_sub(LOW) & !word & HIGH
}

/// Marks bytes as [`zeros`], for those equal to `byte`; one that differs in the last bit may follow.
#[inline]
pub(crate) const fn equal(word: u64, byte: u8) -> u64 {
    zeros(word ^ all(byte))
}

/// Returns the index of the byte with the lowest bit set; eight without any.
#[inline]
pub(crate) const fn first(found: u64) -> usize {
    found.trailing_zeros() as usize / 8
}

/// Returns the first `bytes` bytes of a word, zeros after them. `bytes` is at most eight.
#[inline]
pub(crate) const fn keep(word: u64, bytes: usize) -> u64 {
    if bytes >= BYTES {
        return word;
    }
    word & !(u64::MAX << (8 * bytes))
}
