//! Tokens in texts, and what is sent in their place.
//!
//! | token | in its place |
//! |---|---|
//! | `{{seq}}` | the next number: 0, 1, 2, … over all connections of the run, in no order between workers |
//! | `{{random:1..1000}}` | a whole number, each as likely, both ends included |
//! | `{{random-hex:16}}` | so many random hexadecimal digits |
//! | `{{uuid}}` | a random UUID (version 4) |
//! | `{{value:NAME}}` | what an earlier step of the flow has captured under that name |
//! | `{{{{` | `{{` itself |
//!
//! All but a captured value are of letters, digits and hyphens, so they fit wherever a text does. A captured value
//! is the server's; where it would end what it stands in, it is changed ([`Place`] says how). No value can end a line, a
//! head or a body early.

#[cfg(test)]
mod tests;

use super::values::Values;
use super::{Sequence, error::Part, error::Problem};
use crate::limits;

/// Something that is sent differently each time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Token {
    Sequence,
    Random { first: u64, last: u64 },
    Hex { digits: usize },
    Uuid,
    Value { slot: usize },
}

/// Where a token stands; it decides what becomes of a captured value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// At the beginning of the target: as in `Target`, but `http://authority` is left out, as of a `Location`, and
    /// without a `/` then one is put before it.
    TargetStart,
    /// In the target: bytes that cannot stand there are percent-encoded, and so is `#`. Others, `%` and `&` among them,
    /// stand as they are, so that a captured path or query can be used.
    Target,
    /// In a field value: control characters are left out, CR and LF with them.
    Field,
    /// In a body: as it is, since the body's length is counted after it.
    Body,
    /// In a string of a JSON body: quotes, backslashes and control characters are escaped.
    Json,
}

/// A part of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Piece {
    /// These bytes.
    Literal(Box<[u8]>),
    /// What this token gives.
    Hole(Token, Place),
}

/// What one part of a text is, before it is known where it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Span {
    Text(String),
    Token(Token),
}

/// The names that a flow has captured so far; a name's index is its slot.
pub(super) type Names = Vec<String>;

/// Cuts a text at its tokens. Neighbouring texts are one, and none is empty.
///
/// # Errors
/// A token that is none, or a value that no earlier step captures; `part` is where the text stands.
pub(super) fn parse(text: &str, part: Part, names: &Names) -> Result<Vec<Span>, Problem> {
    let mut spans = Vec::new();
    let mut literal = String::new();
    let mut rest = text;
    while let Some(at) = rest.find("{{") {
        literal.push_str(&rest[..at]);
        rest = &rest[at + 2..];
        if let Some(after) = rest.strip_prefix("{{") {
            literal.push_str("{{");
            rest = after;
            continue;
        }
        let Some(end) = rest.find("}}") else {
            let expected = "`}}` at the end of a token (`{{{{` is a literal `{{`)";
            return Err(Problem::new(part, expected, format!("`{{{{{}`", shorten(rest))));
        };
        let token = token(rest[..end].trim(), part, names)?;
        if !literal.is_empty() {
            spans.push(Span::Text(std::mem::take(&mut literal)));
        }
        spans.push(Span::Token(token));
        rest = &rest[end + 2..];
    }
    literal.push_str(rest);
    if !literal.is_empty() {
        spans.push(Span::Text(literal));
    }
    Ok(spans)
}

fn token(text: &str, part: Part, names: &Names) -> Result<Token, Problem> {
    let found = || format!("`{{{{{}}}}}`", shorten(text));
    let (name, argument) = match text.split_once(':') {
        Some((name, argument)) => (name.trim(), Some(argument.trim())),
        None => (text, None),
    };
    match (name, argument) {
        ("seq", None) => Ok(Token::Sequence),
        ("uuid", None) => Ok(Token::Uuid),
        ("random", argument) => range(argument.unwrap_or_default()).ok_or_else(|| {
            let expected = "two whole numbers below 2^64, the smaller first, as in `{{random:1..1000}}`";
            Problem::new(part, expected, found())
        }),
        ("random-hex", argument) => hex(argument.unwrap_or_default()).ok_or_else(|| {
            let most = limits::RANDOM_HEX;
            let expected = format!("1 to {most} digits, as in `{{{{random-hex:16}}}}`");
            Problem::new(part, expected, found())
        }),
        ("value", argument) => value(argument.unwrap_or_default(), part, names),
        _ => {
            let expected = "one of the tokens `{{seq}}`, `{{random:1..1000}}`, `{{random-hex:16}}`, `{{uuid}}`, \
                            `{{value:NAME}}` (`{{{{` is a literal `{{`)";
            Err(Problem::new(part, expected, found()))
        }
    }
}

fn range(text: &str) -> Option<Token> {
    let (first, last) = text.split_once("..")?;
    let (first, last) = (number(first.trim())?, number(last.trim())?);
    (first <= last).then_some(Token::Random { first, last })
}

fn hex(text: &str) -> Option<Token> {
    let digits = usize::try_from(number(text)?).ok()?;
    (1..=limits::RANDOM_HEX)
        .contains(&digits)
        .then_some(Token::Hex { digits })
}

/// Digits only: no sign.
fn number(text: &str) -> Option<u64> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then_some(())?;
    text.parse().ok()
}

fn value(name: &str, part: Part, names: &Names) -> Result<Token, Problem> {
    if let Some(slot) = names.iter().position(|known| known == name) {
        return Ok(Token::Value { slot });
    }
    let expected = match names.as_slice() {
        [] => "a value that an earlier step of the flow captures; none captures any".to_owned(),
        names => format!(
            "a value that an earlier step of the flow captures: {}",
            names.join(", ")
        ),
    };
    Err(Problem::new(
        part,
        expected,
        format!("`{{{{value:{}}}}}`", shorten(name)),
    ))
}

/// At most 40 characters of a text, for a message.
pub(crate) fn shorten(text: &str) -> String {
    let mut short: String = text.chars().take(40).flat_map(char::escape_debug).collect();
    if text.chars().nth(40).is_some() {
        short.push('…');
    }
    short
}

impl Token {
    /// Bytes that it gives at least and at most, in a body.
    pub(super) fn bytes(self, place: Place) -> (usize, usize) {
        match self {
            Token::Sequence => (1, 20),
            Token::Random { first, last } => (decimal_digits(first), decimal_digits(last)),
            Token::Hex { digits } => (digits, digits),
            Token::Uuid => (UUID_BYTES, UUID_BYTES),
            Token::Value { .. } if place == Place::Json => (0, limits::VALUE_BYTES * JSON_ESCAPE_BYTES),
            Token::Value { .. } => (0, limits::VALUE_BYTES),
        }
    }
}

impl Piece {
    /// Appends it.
    pub(super) fn write(
        &self,
        out: &mut Vec<u8>,
        values: &Values,
        random: &mut fastrand::Rng,
        sequence: &mut Sequence,
    ) {
        match self {
            Piece::Literal(bytes) => out.extend_from_slice(bytes),
            Piece::Hole(token, place) => match *token {
                Token::Sequence => write_decimal(out, sequence.next()),
                Token::Random { first, last } => write_decimal(out, random.u64(first..=last)),
                Token::Hex { digits } => write_hex(out, digits, random),
                Token::Uuid => write_uuid(out, random),
                Token::Value { slot } => write_value(out, values.value(slot), *place),
            },
        }
    }
}

pub(super) fn decimal_digits(number: u64) -> usize {
    number.checked_ilog10().map_or(1, |log| log as usize + 1)
}

pub(super) fn write_decimal(out: &mut Vec<u8>, mut number: u64) {
    let start = out.len();
    out.resize(start + decimal_digits(number), b'0');
    for digit in out[start..].iter_mut().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
    }
}

const HEX: &[u8; 16] = b"0123456789abcdef";

fn write_hex(out: &mut Vec<u8>, digits: usize, random: &mut fastrand::Rng) {
    let mut left = digits;
    while left > 0 {
        let mut bits = random.u64(..);
        for _ in 0..left.min(16) {
            out.push(HEX[(bits & 15) as usize]);
            bits >>= 4;
        }
        left -= left.min(16);
    }
}

const UUID_BYTES: usize = 36;

/// RFC 9562 §5.4.
fn write_uuid(out: &mut Vec<u8>, random: &mut fastrand::Rng) {
    let mut bits = random.u128(..);
    bits = bits & !(0xF << 76) | 4 << 76;
    bits = bits & !(0b11 << 62) | 0b10 << 62;
    for place in (0..32).rev() {
        out.push(HEX[(bits >> (4 * place)) as usize & 15]);
        if matches!(place, 24 | 20 | 16 | 12) {
            out.push(b'-');
        }
    }
}

/// `\u0000`.
const JSON_ESCAPE_BYTES: usize = 6;

fn write_value(out: &mut Vec<u8>, value: &[u8], place: Place) {
    match place {
        Place::Body => out.extend_from_slice(value),
        Place::Target => write_target(out, value),
        Place::TargetStart => {
            let path = without_origin(value);
            if path.first() != Some(&b'/') {
                out.push(b'/');
            }
            write_target(out, path);
        }
        // RFC 9110 §5.5: what `h1` takes as a field value, and only that.
        Place::Field => out.extend(
            value
                .iter()
                .filter(|&&byte| byte == b'\t' || (byte >= 0x20 && byte != 0x7F)),
        ),
        Place::Json => write_json(out, value),
    }
}

fn write_target(out: &mut Vec<u8>, value: &[u8]) {
    for &byte in value {
        if byte.is_ascii_graphic() && byte != b'#' {
            out.push(byte);
        } else {
            let digits = [HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]];
            out.extend_from_slice(&[
                b'%',
                digits[0].to_ascii_uppercase(),
                digits[1].to_ascii_uppercase(),
            ]);
        }
    }
}

/// What stands behind `http://authority`, and all if it does not begin like that.
fn without_origin(value: &[u8]) -> &[u8] {
    let begins = |scheme: &[u8]| {
        value
            .get(..scheme.len())
            .is_some_and(|start| start.eq_ignore_ascii_case(scheme))
    };
    let scheme = if begins(b"http://") {
        7
    } else if begins(b"https://") {
        8
    } else {
        return value;
    };
    let rest = &value[scheme..];
    let path = rest.iter().position(|byte| matches!(byte, b'/' | b'?' | b'#'));
    &rest[path.unwrap_or(rest.len())..]
}

/// RFC 8259 §7.
fn write_json(out: &mut Vec<u8>, value: &[u8]) {
    for &byte in value {
        match byte {
            b'"' | b'\\' => out.extend_from_slice(&[b'\\', byte]),
            0..0x20 => {
                out.extend_from_slice(b"\\u00");
                out.extend_from_slice(&[HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]);
            }
            _ => out.push(byte),
        }
    }
}
