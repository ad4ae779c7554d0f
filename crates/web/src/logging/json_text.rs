//! Characters of JSON strings, for the lines of both logs.
//!
//! Pure: appends to the caller's buffer.

/// Appends a character of a JSON string. Controls that JSON would allow but a terminal obeys are escaped too.
pub(super) fn push_escaped(out: &mut Vec<u8>, character: char) {
    match character {
        '"' | '\\' => out.extend_from_slice(&[b'\\', character as u8]),
        // Every control character is below U+00A0.
        _ if character.is_control() => {
            let byte = character as u8;
            out.extend_from_slice(&[b'\\', b'u', b'0', b'0', hex(byte >> 4), hex(byte & 15)]);
        }
        _ => out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes()),
    }
}

/// Returns the hexadecimal digit of a number below 16.
pub(super) fn hex(digit: u8) -> u8 {
    b"0123456789abcdef"[usize::from(digit)]
}
