//! The id of a request, common to all logs along its path. Receives random numbers; generates none.

#[cfg(test)]
mod tests;

use std::fmt;

use crate::limits;

/// A request's id: 32 random hexadecimal digits, or the id from the client or from a proxy in front. Stored inline, without
/// allocation.
#[derive(Clone, Copy)]
pub struct RequestId {
    text: [u8; limits::REQUEST_ID_BYTES],
    length: u8,
}

impl RequestId {
    /// Returns a new id of 128 random bits, in lower-case hexadecimal.
    pub(crate) fn new(high: u64, low: u64) -> RequestId {
        let mut text = [0; limits::REQUEST_ID_BYTES];
        let bytes = high.to_be_bytes().into_iter().chain(low.to_be_bytes());
        for (pair, byte) in text.chunks_exact_mut(2).zip(bytes) {
            pair[0] = HEX[usize::from(byte >> 4)];
            pair[1] = HEX[usize::from(byte & 15)];
        }
        RequestId { text, length: 32 }
    }

    /// Returns the id in an `X-Request-Id` field if it is safe in any log, URL or shell: 1 to [`limits::REQUEST_ID_BYTES`] letters,
    /// digits and `-_.~:/+=@`.
    pub(crate) fn accept(value: &[u8]) -> Option<RequestId> {
        let is_safe = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.~:/+=@".contains(byte);
        if value.is_empty() || !value.iter().all(is_safe) {
            return None;
        }
        let mut text = [0; limits::REQUEST_ID_BYTES];
        text.get_mut(..value.len())?.copy_from_slice(value);
        Some(RequestId {
            text,
            length: value.len() as u8,
        })
    }

    /// Returns the id as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        str::from_utf8(&self.text[..usize::from(self.length)]).expect("an id is ASCII")
    }
}

const _: () = assert!(limits::REQUEST_ID_BYTES <= u8::MAX as usize && limits::REQUEST_ID_BYTES >= 32);

const HEX: &[u8; 16] = b"0123456789abcdef";

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl fmt::Debug for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl PartialEq for RequestId {
    fn eq(&self, other: &RequestId) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Eq for RequestId {}
