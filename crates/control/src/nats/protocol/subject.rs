//! Subjects: words separated by dots.

use super::SUBJECT_BYTES;

/// Returns whether a text is a subject to publish to: words separated by dots, none empty or a wildcard.
#[must_use]
pub fn is_subject(text: &str) -> bool {
    is_name(text) && text.split('.').all(|word| !matches!(word, "*" | ">"))
}

/// Returns whether a text is a filter to subscribe to: like [`is_subject`], but a word may be `*`, any word, and the last one `>`,
/// any words.
#[must_use]
pub fn is_filter(text: &str) -> bool {
    let all = text.strip_suffix(".>").unwrap_or(text);
    text == ">" || (is_name(all) && all.split('.').all(|word| word != ">"))
}

fn is_name(text: &str) -> bool {
    let is_printable = |byte: u8| byte > b' ' && byte != 0x7f;
    text.len() <= SUBJECT_BYTES
        && text.bytes().all(is_printable)
        && text.split('.').all(|word| !word.is_empty())
}
