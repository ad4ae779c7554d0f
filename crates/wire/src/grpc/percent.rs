//! `grpc-message`: text for people, percent-encoded (gRPC over HTTP/2, Status-Message).

use std::borrow::Cow;

const DIGITS: &[u8; 16] = b"0123456789ABCDEF";

/// Appends a message as the value of `grpc-message`.
pub fn encode_message(out: &mut String, message: &str) {
    for byte in message.bytes() {
        match byte {
            b'%' | 0..=0x1F | 0x7F.. => {
                out.push('%');
                out.push(char::from(DIGITS[usize::from(byte >> 4)]));
                out.push(char::from(DIGITS[usize::from(byte & 15)]));
            }
            // A field's value has none around it.
            b' ' if out.is_empty() => out.push_str("%20"),
            byte => out.push(char::from(byte)),
        }
    }
    if out.ends_with(' ') {
        out.truncate(out.len() - 1);
        out.push_str("%20");
    }
}

/// The message that a value of `grpc-message` says. Never fails: what is no escape stands for itself, what is not UTF-8 is replaced,
/// as the specification asks of readers.
#[must_use]
pub fn decode_message(value: &[u8]) -> Cow<'_, str> {
    if !value.contains(&b'%') {
        return String::from_utf8_lossy(value);
    }
    let mut bytes = Vec::with_capacity(value.len());
    let mut rest = value;
    while let [first, behind @ ..] = rest {
        let digits = (behind.first().copied().and_then(digit)).zip(behind.get(1).copied().and_then(digit));
        match digits {
            Some((high, low)) if *first == b'%' => {
                bytes.push(high << 4 | low);
                rest = &behind[2..];
            }
            _ => {
                bytes.push(*first);
                rest = behind;
            }
        }
    }
    Cow::Owned(String::from_utf8_lossy(&bytes).into_owned())
}

fn digit(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).map(|digit| digit as u8)
}
