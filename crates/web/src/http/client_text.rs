//! A client's own text in responses to it: never longer than a limit, never a control character.

use std::borrow::Cow;

use crate::limits;

/// Returns `text`, cut in the middle if it is longer than [`limits::ERROR_TEXT_BYTES`]: the start shows the intention, the end
/// often the fault.
pub(crate) fn truncate(text: &str) -> Cow<'_, str> {
    if text.len() <= limits::ERROR_TEXT_BYTES {
        return Cow::Borrowed(text);
    }
    let half = limits::ERROR_TEXT_BYTES / 2;
    let start = text.floor_char_boundary(half);
    let end = text.ceil_char_boundary(text.len() - half);
    Cow::Owned(format!("{}…{}", &text[..start], &text[end..]))
}

/// Returns a field's value, escaped where it is not visible ASCII, and cut.
pub(crate) fn escape_value(value: &[u8]) -> String {
    let start = &value[..value.len().min(limits::ERROR_TEXT_BYTES)];
    let ellipsis = if start.len() < value.len() { "…" } else { "" };
    format!("{}{ellipsis}", start.escape_ascii())
}

/// Writes `number` in decimal at the end of `digits` and returns the written part.
pub(crate) fn decimal(digits: &mut [u8; 20], mut number: u64) -> &[u8] {
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            return &digits[at..];
        }
    }
}
