//! Character classes of HTTP/1.1 and the scans over them. Knows bytes, not lines.

/// `tchar` (RFC 9110 §5.6.2).
pub(crate) const TOKEN: u8 = 1;
/// What a request target may hold: visible ASCII but `#`. More than a URI's characters, because browsers
/// send `|`, `^`, `{` as they are; less than other servers take: no bytes above 0x7E.
pub(crate) const TARGET: u8 = 2;
/// What a registered name, an IPv4 address may hold (RFC 3986 §3.2.2) without escapes.
pub(super) const REG_NAME: u8 = 4;
/// `HEXDIG` in either case.
pub(super) const HEX: u8 = 8;

static CLASS: [u8; 256] = classes();

const fn classes() -> [u8; 256] {
    let mut table = [0; 256];
    let mut byte = 0_usize;
    while byte < 256 {
        let b = byte as u8;
        if b.is_ascii_alphanumeric() {
            table[byte] |= TOKEN | REG_NAME;
        }
        if b.is_ascii_hexdigit() {
            table[byte] |= HEX;
        }
        if b.is_ascii_graphic() && b != b'#' {
            table[byte] |= TARGET;
        }
        byte += 1;
    }
    table = with(table, b"!#$%&'*+-.^_`|~", TOKEN);
    with(table, b"-._~!$&'()*+,;=", REG_NAME)
}

const fn with(mut table: [u8; 256], bytes: &[u8], class: u8) -> [u8; 256] {
    let mut at = 0;
    while at < bytes.len() {
        table[bytes[at] as usize] |= class;
        at += 1;
    }
    table
}

/// Whether `byte` is of `class`.
#[inline]
pub(super) fn is(byte: u8, class: u8) -> bool {
    CLASS[usize::from(byte)] & class != 0
}

/// The index of the first byte at or after `from` that is not of `class`; the length if there is none.
#[inline]
pub(crate) fn class_end(input: &[u8], from: usize, class: u8) -> usize {
    let rest = input.get(from..).unwrap_or_default();
    from + rest
        .iter()
        .position(|&byte| !is(byte, class))
        .unwrap_or(rest.len())
}

/// A byte of a field value, reason phrase or chunk extension: `HTAB / SP / VCHAR / obs-text` (RFC 9110 §5.5).
#[inline]
pub(super) fn is_text(byte: u8) -> bool {
    (byte >= 0x20 && byte != 0x7F) || byte == b'\t'
}

/// The index of the first byte at or after `from` that is no text; the length if there is none.
///
/// That byte is CR in a valid line, so one scan both checks a value and finds its end.
#[inline]
pub(crate) fn text_end(input: &[u8], from: usize) -> usize {
    let mut at = from;
    let mut words = 0;
    while let Some(word) = input.get(at..).and_then(|rest| rest.first_chunk::<8>()) {
        let word = u64::from_le_bytes(*word);
        match first_control(word) {
            None => at += 8,
            Some(index) if (word >> (8 * index)) as u8 == b'\t' => at += index + 1,
            Some(index) => return at + index,
        }
        words += 1;
        // Most values end before.
        if words == 2 {
            at = blocks_end(input, at);
        }
    }
    let rest = input.get(at..).unwrap_or_default();
    at + rest.iter().position(|&byte| !is_text(byte)).unwrap_or(rest.len())
}

/// The end of as many whole blocks of text as there are. No exit within a block, so that the compiler makes vector
/// instructions of it.
#[inline]
fn blocks_end(input: &[u8], from: usize) -> usize {
    let mut at = from;
    while let Some(block) = input.get(at..).and_then(|rest| rest.first_chunk::<32>())
        && block.iter().fold(true, |text, &byte| text & is_text(byte))
    {
        at += 32;
    }
    at
}

const ONES: u64 = u64::MAX / 255;
const HIGH: u64 = ONES * 0x80;

/// The index of the lowest byte of `word` below 0x20 or equal to 0x7F.
#[inline]
fn first_control(word: u64) -> Option<usize> {
    // A borrow can only mark bytes above a true hit, so the lowest mark is exact.
    let below_space = word.wrapping_sub(ONES * 0x20) & !word;
    let delete = (word ^ (ONES * 0x7F)).wrapping_sub(ONES) & !word;
    lowest((below_space | delete) & HIGH)
}

/// The index of the first `byte` within 24 bytes at or after `from`; `None` also near the end of the input.
#[inline]
pub(super) fn find_near(input: &[u8], from: usize, byte: u8) -> Option<usize> {
    let near: &[u8; 24] = input.get(from..)?.first_chunk()?;
    let (words, _) = near.as_chunks::<8>();
    for (index, word) in words.iter().enumerate() {
        // As above: the lowest mark is exact.
        let differs = u64::from_le_bytes(*word) ^ (ONES * u64::from(byte));
        if let Some(place) = lowest(differs.wrapping_sub(ONES) & !differs & HIGH) {
            return Some(from + 8 * index + place);
        }
    }
    None
}

/// The index of the byte that holds the lowest mark.
#[inline]
fn lowest(marks: u64) -> Option<usize> {
    (marks != 0).then(|| (marks.trailing_zeros() / 8) as usize)
}

/// Optional whitespace (RFC 9110 §5.6.3).
#[inline]
pub(crate) fn is_space(byte: u8) -> bool {
    byte == b' ' || byte == b'\t'
}

/// `value` without the optional whitespace around it.
#[inline]
pub(crate) fn trim(value: &[u8]) -> &[u8] {
    let mut value = value;
    while let [first, rest @ ..] = value
        && is_space(*first)
    {
        value = rest;
    }
    while let [rest @ .., last] = value
        && is_space(*last)
    {
        value = rest;
    }
    value
}

/// The members of a comma-separated list (RFC 9110 §5.6.1), trimmed; empty ones too.
pub(crate) fn list(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|&byte| byte == b',').map(trim)
}
