//! A client's own text in what it is told: never longer than a limit, never a control character.

use std::borrow::Cow;

use crate::limits;

/// `text`, cut in the middle if it is longer than [`limits::ERROR_TEXT_BYTES`]: the start says what was meant, the
/// end often what was wrong with it.
pub(crate) fn cut(text: &str) -> Cow<'_, str> {
    if text.len() <= limits::ERROR_TEXT_BYTES {
        return Cow::Borrowed(text);
    }
    let half = limits::ERROR_TEXT_BYTES / 2;
    let start = text.floor_char_boundary(half);
    let end = text.ceil_char_boundary(text.len() - half);
    Cow::Owned(format!("{}…{}", &text[..start], &text[end..]))
}

/// A field's value, escaped where it is not visible ASCII, and cut.
pub(crate) fn shown(value: &[u8]) -> String {
    let start = &value[..value.len().min(limits::ERROR_TEXT_BYTES)];
    let more = if start.len() < value.len() { "…" } else { "" };
    format!("{}{more}", start.escape_ascii())
}

/// `number` in decimal, at the end of `digits`.
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
