//! The normalized request path, which routes are matched against and hooks see.
//!
//! Owns percent-decoding, dot segments and repeated slashes. Every decision based on the path (a route, a hook that admits
//! requests, a file) uses this form, so that no two decisions can interpret one path differently. Knows nothing of routes.
//!
//! Normalization, in this order:
//!
//! 1. Percent-escapes are decoded once: `%2541` becomes `%41` and remains so.
//! 2. An escaped slash is data of its segment. It is represented as [`ENCODED_SLASH`] and presented to handlers as `/` by
//!    [`display_path`].
//! 3. Repeated slashes become one, as in a file name; then dot segments are removed (RFC 3986 §5.2.4), including escaped ones,
//!    never above the root. `/a//../b` is `/b`.
//!
//! Rejected: an invalid escape, U+0000, bytes that are not UTF-8, and `..` next to an escaped slash, which as data could only
//! mislead code that opens files by it. `;` and `\` have no special meaning: `/a;x/..;/b` has three segments.

#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::fmt;

use crate::http::error::Error;
use crate::router::swar;

/// Represents an escaped slash. Nothing else produces this character: `%00` is rejected.
pub const ENCODED_SLASH: char = '\0';

const STAND_IN: u8 = ENCODED_SLASH as u8;

/// The reason why a path has no normal form. The client receives 400.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathFault {
    kind: PathFaultKind,
    /// Byte offset in the path as received.
    at: usize,
}

/// The kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathFaultKind {
    /// It does not begin with `/`.
    NotAbsolute,
    /// `%` without two hexadecimal digits.
    Escape,
    /// U+0000, escaped or not.
    Nul,
    /// The decoded bytes are not UTF-8.
    Utf8,
    /// `..` next to an encoded slash.
    Climb,
}

impl PathFault {
    fn new(kind: PathFaultKind, at: usize) -> PathFault {
        PathFault { kind, at }
    }
}

impl fmt::Display for PathFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let problem = match self.kind {
            PathFaultKind::NotAbsolute => "the path does not begin with `/`",
            PathFaultKind::Escape => "`%` without two hexadecimal digits; write `%25` for a percent sign",
            PathFaultKind::Nul => "U+0000, which is not allowed in a path",
            PathFaultKind::Utf8 => "percent-encoded bytes that are not UTF-8",
            PathFaultKind::Climb => "`..` next to an encoded slash",
        };
        write!(f, "request path, byte {}: {problem}", self.at)
    }
}

// Does not implement `std::error::Error`, so that `?` gives 400 and not 500.
impl From<PathFault> for Error {
    fn from(fault: PathFault) -> Error {
        Error::bad_request(fault.to_string())
    }
}

/// Returns the normal form of `raw`, the path of a request target without its query; `raw` is not the asterisk form.
///
/// A path already in normal form is returned unchanged. Any other is written to `scratch`, whose capacity is reused from call to
/// call; its previous content is lost.
///
/// # Errors
/// The first fault, with its offset.
#[inline]
pub fn normalise<'a>(raw: &'a str, scratch: &'a mut String) -> Result<&'a str, PathFault> {
    if !raw.starts_with('/') {
        return Err(PathFault::new(PathFaultKind::NotAbsolute, 0));
    }
    if is_plain(raw.as_bytes()) {
        return Ok(raw);
    }
    rewrite(raw, scratch)
}

/// Returns the path that [`normalise`] understands, escaped for a request line: intermediaries must forward the path on which they
/// based their decision.
///
/// Escapes of characters that need none (RFC 3986 §2.3) are decoded; the others remain, with upper-case digits. Segments are
/// removed as in [`normalise`]. The normal form of the result is therefore that of `raw`, and no recipient that decodes once can
/// interpret it differently. A path already in this form is returned unchanged; any other is written to `scratch`.
///
/// # Errors
/// As [`normalise`].
#[inline]
pub fn forwardable<'a>(raw: &'a str, scratch: &'a mut String) -> Result<&'a str, PathFault> {
    if raw.starts_with('/') && is_plain(raw.as_bytes()) {
        return Ok(raw);
    }
    // `normalise` finds every fault.
    normalise(raw, scratch)?;
    let mut bytes = std::mem::take(scratch).into_bytes();
    bytes.clear();
    keep_escapes(raw.as_bytes(), &mut bytes);
    remove_segments(&mut bytes);
    *scratch = String::from_utf8(bytes).expect("only ASCII was decoded, and whole segments are gone");
    Ok(scratch)
}

/// Returns true if `raw` has a dot segment, escaped or not: recipients may resolve it in different ways.
#[must_use]
pub fn has_dot_segment(raw: &str) -> bool {
    // Most paths have neither of the two characters that begin a dot segment.
    raw.as_bytes()
        .windows(2)
        .any(|pair| matches!(pair, b"/." | b"/%"))
        && raw.split('/').any(|segment| {
            let mut rest = segment.as_bytes();
            let mut dots = 0;
            while let Some(length) = decode_dot(rest) {
                rest = &rest[length..];
                dots += 1;
            }
            rest.is_empty() && (1..=2).contains(&dots)
        })
}

/// Returns the length of a dot at the front, escaped or not.
fn decode_dot(text: &[u8]) -> Option<usize> {
    match text {
        [b'.', ..] => Some(1),
        [b'%', b'2', b'e' | b'E', ..] => Some(3),
        _ => None,
    }
}

/// Returns the normal form of a normal path with escaped slashes and backslashes read as slashes. `None`: it has none.
#[must_use]
pub fn with_slashes(normal: &str) -> Option<String> {
    let is_slash = |&byte: &u8| byte == STAND_IN || byte == b'\\';
    if !normal.as_bytes().iter().any(is_slash) {
        return None;
    }
    let slash = |byte: u8| if is_slash(&byte) { b'/' } else { byte };
    let mut bytes: Vec<u8> = normal.bytes().map(slash).collect();
    remove_segments(&mut bytes);
    Some(String::from_utf8(bytes).expect("ASCII for ASCII, and whole segments are gone"))
}

/// Appends a normal path, escaped for use in a request line.
pub fn escape(normal: &str, out: &mut String) {
    for &byte in normal.as_bytes() {
        match byte {
            STAND_IN => out.push_str("%2F"),
            // RFC 3986 §3.3: characters that a segment may contain unescaped.
            b'/' | b'!' | b'$' | b'&'..=b',' | b';' | b'=' | b':' | b'@' => out.push(char::from(byte)),
            byte if is_unreserved(byte) => out.push(char::from(byte)),
            byte => push_escape(byte, |byte| out.push(char::from(byte))),
        }
    }
}

/// RFC 3986 §2.3.
fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}

fn push_escape(byte: u8, mut push: impl FnMut(u8)) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    for digit in [
        b'%',
        DIGITS[usize::from(byte >> 4)],
        DIGITS[usize::from(byte & 15)],
    ] {
        push(digit);
    }
}

/// Appends `raw`, which has a normal form, with only the escapes that are needed.
fn keep_escapes(raw: &[u8], out: &mut Vec<u8>) {
    let mut at = 0;
    while at < raw.len() {
        let (byte, length) = decode_unit(raw, at).unwrap_or((raw[at], 1));
        if length == 1 || is_unreserved(byte) {
            out.push(byte);
        } else {
            push_escape(byte, |byte| out.push(byte));
        }
        at += length;
    }
}

/// Returns text of a normal path as a handler sees it, with escaped slashes as `/`. Such text may begin with a slash or have empty
/// pieces; it never has a piece `..`.
pub fn display_path(text: &str) -> Cow<'_, str> {
    if text.as_bytes().contains(&STAND_IN) {
        Cow::Owned(text.replace(ENCODED_SLASH, "/"))
    } else {
        Cow::Borrowed(text)
    }
}

/// Returns true if the path is in normal form: no `%`, no U+0000, no slash followed by a slash or a dot.
fn is_plain(path: &[u8]) -> bool {
    let mut at = 0;
    while at + swar::BYTES < path.len() {
        let word = swar::load(path, at);
        // `.` and `/` differ in the last bit only. A byte that `equal` reports wrongly follows one that it reports rightly, so the
        // result is correct.
        let next = swar::load(path, at + 1) | swar::all(1);
        let pair = swar::equal(word, b'/') & swar::equal(next, b'/');
        if (swar::equal(word, b'%') | swar::zeros(word) | pair) != 0 {
            return false;
        }
        at += swar::BYTES;
    }
    let mut before = 0;
    path[at..].iter().all(|&byte| {
        let pair = before == b'/' && byte | 1 == b'/';
        before = byte;
        !(pair || byte == b'%' || byte == STAND_IN)
    })
}

#[inline(never)]
fn rewrite<'a>(raw: &str, scratch: &'a mut String) -> Result<&'a str, PathFault> {
    let mut bytes = std::mem::take(scratch).into_bytes();
    bytes.clear();
    let outcome = decode(raw.as_bytes(), &mut bytes).and_then(|()| refuse_climbs(raw, &bytes));
    if outcome.is_ok() && std::str::from_utf8(&bytes).is_ok() {
        // Whole segments are removed, so the rest remains UTF-8.
        remove_segments(&mut bytes);
    }
    match String::from_utf8(bytes) {
        Ok(text) => *scratch = text,
        Err(error) => {
            let at = raw_offset(raw, error.utf8_error().valid_up_to());
            let mut bytes = error.into_bytes();
            bytes.clear();
            *scratch = String::from_utf8(bytes).expect("nothing is UTF-8");
            // A fault found before is the more useful one.
            outcome?;
            return Err(PathFault::new(PathFaultKind::Utf8, at));
        }
    }
    outcome?;
    Ok(scratch)
}

/// Appends the decoded bytes of `raw`.
fn decode(raw: &[u8], out: &mut Vec<u8>) -> Result<(), PathFault> {
    let mut at = 0;
    while at < raw.len() {
        let (byte, length) = decode_unit(raw, at).ok_or(PathFault::new(PathFaultKind::Escape, at))?;
        if byte == 0 {
            return Err(PathFault::new(PathFaultKind::Nul, at));
        }
        let encoded_slash = byte == b'/' && length > 1;
        out.push(if encoded_slash { STAND_IN } else { byte });
        at += length;
    }
    Ok(())
}

/// Returns the byte encoded at `at` and the length of its encoding. `None`: a broken escape.
fn decode_unit(raw: &[u8], at: usize) -> Option<(u8, usize)> {
    if raw[at] != b'%' {
        return Some((raw[at], 1));
    }
    let digit = |index: usize| char::from(*raw.get(index)?).to_digit(16);
    let value = digit(at + 1)? << 4 | digit(at + 2)?;
    Some((u8::try_from(value).expect("two digits"), 3))
}

/// Returns the offset in `raw` of the decoded byte `index`. `raw` was decoded at least that far.
fn raw_offset(raw: &str, index: usize) -> usize {
    let mut at = 0;
    for _ in 0..index {
        at += decode_unit(raw.as_bytes(), at).map_or(0, |(_, length)| length);
    }
    at
}

/// Rejects `..` between escaped slashes, or between one and the end of the segment.
fn refuse_climbs(raw: &str, decoded: &[u8]) -> Result<(), PathFault> {
    let mut start = 0;
    for segment in decoded.split(|&byte| byte == b'/') {
        let mut piece_start = start;
        for piece in segment.split(|&byte| byte == STAND_IN) {
            if piece == b".." && piece.len() < segment.len() {
                return Err(PathFault::new(PathFaultKind::Climb, raw_offset(raw, piece_start)));
            }
            piece_start += piece.len() + 1;
        }
        start += segment.len() + 1;
    }
    Ok(())
}

/// Removes empty segments and dot segments in place. `path` begins with `/`.
fn remove_segments(path: &mut Vec<u8>) {
    // `path[..written]` is done and does not end in a slash; `path[read]` is the slash before the next segment.
    let (mut read, mut written) = (0, 0);
    while read < path.len() {
        let start = read + 1;
        let length = path[start..].iter().position(|&byte| byte == b'/');
        let end = length.map_or(path.len(), |length| start + length);
        let removed = match &path[start..end] {
            b"" | b"." => true,
            b".." => {
                written = path[..written]
                    .iter()
                    .rposition(|&byte| byte == b'/')
                    .unwrap_or(0);
                true
            }
            _ => false,
        };
        if !removed {
            path.copy_within(read..end, written);
            written += end - read;
        } else if end == path.len() {
            path[written] = b'/';
            written += 1;
        }
        read = end;
    }
    path.truncate(written);
}
