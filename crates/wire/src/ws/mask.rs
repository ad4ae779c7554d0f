//! Masking (RFC 6455 §5.3): in place, eight bytes at a time.

/// Masks or unmasks `data` with `key`; the first byte takes the key's first byte.
pub(super) fn apply(data: &mut [u8], key: [u8; 4]) {
    let word = u64::from(u32::from_ne_bytes(key));
    let word = word << 32 | word;
    let (words, rest) = data.as_chunks_mut::<8>();
    for bytes in words {
        *bytes = (u64::from_ne_bytes(*bytes) ^ word).to_ne_bytes();
    }
    for (byte, key) in rest.iter_mut().zip(word.to_ne_bytes()) {
        *byte ^= key;
    }
}

/// The key for what follows the next `bytes` bytes.
pub(super) fn after(mut key: [u8; 4], bytes: usize) -> [u8; 4] {
    key.rotate_left(bytes % 4);
    key
}
