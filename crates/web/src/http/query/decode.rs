//! Decoding of `%XX` and `+`, and the check of their syntax.
//!
//! Knows bytes and pairs, not their purpose.

use std::borrow::Cow;
use std::fmt;

/// A fault in a pair.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct DecodeFault {
    /// The pair's number, from 1; empty pieces count.
    pub(super) pair: usize,
    /// The byte of the whole string, from 1.
    pub(super) at: usize,
    kind: DecodeFaultKind,
}

#[derive(Debug, PartialEq, Eq)]
enum DecodeFaultKind {
    Escape,
    Encoding,
}

impl fmt::Display for DecodeFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.kind {
            DecodeFaultKind::Escape => "expected two hexadecimal digits after `%`",
            DecodeFaultKind::Encoding => "expected percent-encoded UTF-8",
        })
    }
}

/// Checks that every escape is valid and every name and value is UTF-8.
pub(super) fn check(raw: &[u8]) -> Result<(), DecodeFault> {
    if raw.is_ascii() && !raw.contains(&b'%') {
        return Ok(());
    }
    let mut start = 0;
    for (index, pair) in raw.split(|&byte| byte == b'&').enumerate() {
        let (name, value) = halves(pair);
        let value_start = start + pair.len() - value.len();
        for (half, half_start) in [(name, start), (value, value_start)] {
            check_half(half).map_err(|(at, kind)| DecodeFault {
                pair: index + 1,
                at: half_start + at + 1,
                kind,
            })?;
        }
        start += pair.len() + 1;
    }
    Ok(())
}

/// Returns the fault and its offset in `half`.
fn check_half(half: &[u8]) -> Result<(), (usize, DecodeFaultKind)> {
    let mut ascii = true;
    for (at, &byte) in half.iter().enumerate() {
        ascii &= byte.is_ascii();
        if byte == b'%' {
            let escaped = escape(&half[at..]).ok_or((at, DecodeFaultKind::Escape))?;
            ascii &= escaped.is_ascii();
        }
    }
    if ascii || String::from_utf8(bytes(half).collect()).is_ok() {
        return Ok(());
    }
    Err((0, DecodeFaultKind::Encoding))
}

/// Splits a pair (the text between two `&`) into name and value, still encoded.
pub fn halves(pair: &[u8]) -> (&[u8], &[u8]) {
    match pair.iter().position(|&byte| byte == b'=') {
        Some(at) => (&pair[..at], &pair[at + 1..]),
        None => (pair, &[]),
    }
}

/// Returns the text of a validated name or value.
pub(super) fn text(half: &[u8]) -> Cow<'_, str> {
    let checked = "checked when the pairs were taken";
    if half.iter().any(|byte| matches!(byte, b'%' | b'+')) {
        Cow::Owned(String::from_utf8(bytes(half).collect()).expect(checked))
    } else {
        Cow::Borrowed(str::from_utf8(half).expect(checked))
    }
}

/// Returns the decoded bytes of a name or value; an invalid escape is taken literally.
pub fn bytes(half: &[u8]) -> impl Iterator<Item = u8> {
    let mut rest = half;
    std::iter::from_fn(move || {
        let &first = rest.first()?;
        let (byte, taken) = match (first, escape(rest)) {
            (b'+', _) => (b' ', 1),
            (_, Some(byte)) => (byte, 3),
            (_, None) => (first, 1),
        };
        rest = &rest[taken..];
        Some(byte)
    })
}

/// Decodes the escape at the start of `text`.
fn escape(text: &[u8]) -> Option<u8> {
    let &[b'%', high, low, ..] = text else { return None };
    let digit = |byte: u8| char::from(byte).to_digit(16);
    Some((digit(high)? * 16 + digit(low)?) as u8)
}
