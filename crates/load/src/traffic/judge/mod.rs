//! Whether an answer is what was expected, and what is kept of it.
//!
//! Compiled checks and captures. Knows no socket and counts nothing.

#[cfg(test)]
mod tests;

use std::fmt;
use std::ops::RangeInclusive;

use memchr::memmem::Finder;
use ringmain_wire::h1::Fields;
use serde_json::Value;

use super::draft::{Capture, Check, Expect, Source, Test};
use super::error::{Part, Problem};
use super::pointer::Pointer;
use super::template::{Names, shorten};
use super::values::Values;
use crate::limits;

/// What an answer did not pass. Made without allocating: it may be every answer that fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FailedCheck<'s> {
    expected: &'s str,
    found: Excerpt,
}

impl<'s> FailedCheck<'s> {
    /// For an answer whose body is longer than [`limits::CHECKED_BODY_BYTES`]: it was not kept, so nothing can be said
    /// about it.
    #[must_use]
    pub fn body_too_long() -> FailedCheck<'s> {
        FailedCheck {
            expected: "a body of at most 1 MiB, as checks and captures look at",
            found: Excerpt::of(&[b"a longer one"]),
        }
    }

    /// What should have come, as in `status 200`. The same for all answers that fail at the same place.
    #[must_use]
    pub fn expected(&self) -> &'s str {
        self.expected
    }

    /// What came: short, and nothing but printable ASCII.
    #[must_use]
    pub fn found(&self) -> &str {
        self.found.as_str()
    }
}

const _: () = assert!(limits::CHECKED_BODY_BYTES == 1 << 20, "as `body_too_long` says");

impl fmt::Display for FailedCheck<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "expected {}, found {}", self.expected(), self.found())
    }
}

/// Text of limited length, kept in place.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Excerpt {
    text: [u8; Excerpt::BYTES],
    length: u8,
}

impl Excerpt {
    const BYTES: usize = 96;
    const MORE: &[u8] = b"...";

    /// The parts in a row, escaped; cut off where it is too long.
    fn of(parts: &[&[u8]]) -> Excerpt {
        let mut excerpt = Excerpt {
            text: [0; Excerpt::BYTES],
            length: 0,
        };
        for &byte in parts.iter().copied().flatten() {
            // The longest is `\x00`.
            let mut escaped = [0; 4];
            let mut used = 0;
            for character in std::ascii::escape_default(byte) {
                escaped[used] = character;
                used += 1;
            }
            let plain = matches!(byte, b'"' | b'\'' | b'\\');
            let shown = if plain { &[byte][..] } else { &escaped[..used] };
            if usize::from(excerpt.length) + shown.len() > Excerpt::BYTES - Excerpt::MORE.len() {
                excerpt.push(Excerpt::MORE);
                break;
            }
            excerpt.push(shown);
        }
        excerpt
    }

    fn push(&mut self, bytes: &[u8]) {
        let start = usize::from(self.length);
        self.text[start..start + bytes.len()].copy_from_slice(bytes);
        self.length += bytes.len() as u8;
    }

    fn as_str(&self) -> &str {
        str::from_utf8(&self.text[..usize::from(self.length)]).expect("escaped bytes are ASCII")
    }
}

impl fmt::Debug for Excerpt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_str().fmt(f)
    }
}

/// What is made of the answers to one step.
#[derive(Clone, Debug)]
pub(super) struct Judge {
    first: (u16, u16),
    others: Box<[(u16, u16)]>,
    expected_status: String,
    checks: Box<[Compiled]>,
    captures: Box<[Taken]>,
}

/// A check or capture, and how a failure of it is told.
#[derive(Clone, Debug)]
struct Compiled {
    look: Look,
    expected: String,
}

#[derive(Clone, Debug)]
struct Taken {
    slot: usize,
    from: From,
    expected: String,
}

#[derive(Clone, Debug)]
enum Look {
    Header { name: String, test: Tested },
    Body(Tested),
    Json { pointer: Pointer, equals: Value },
}

#[derive(Clone, Debug)]
enum Tested {
    Contains(Box<Finder<'static>>),
    Equals(Box<[u8]>),
}

#[derive(Clone, Debug)]
enum From {
    Header(String),
    Json(Pointer),
    Between {
        before: Box<Finder<'static>>,
        after: Box<Finder<'static>>,
    },
}

impl Judge {
    /// Compiles what is expected and kept. New names are added to `names`.
    pub(super) fn new(expect: &Expect, captures: &[Capture], names: &mut Names) -> Result<Judge, Problem> {
        let statuses = statuses(&expect.statuses)?;
        let checks = expect.checks.iter().enumerate();
        let checks = checks.map(|(index, check)| compile_check(check, Part::Check(index)));
        let checks = checks.collect::<Result<_, _>>()?;
        let captures = captures.iter().enumerate();
        let captures = captures.map(|(index, capture)| compile_capture(capture, Part::Capture(index), names));
        let captures = captures.collect::<Result<_, _>>()?;
        Ok(Judge {
            first: statuses[0],
            others: statuses[1..].into(),
            expected_status: told(&statuses),
            checks,
            captures,
        })
    }

    #[inline]
    pub(super) fn judge<'s>(
        &'s self,
        status: u16,
        fields: &Fields<'_>,
        body: &[u8],
        values: &mut Values,
    ) -> Result<(), FailedCheck<'s>> {
        let within = |&(first, last): &(u16, u16)| first <= status && status <= last;
        if !within(&self.first) && !self.others.iter().any(within) {
            return Err(self.other_status(status));
        }
        if self.checks.is_empty() && self.captures.is_empty() {
            return Ok(());
        }
        self.judge_content(fields, body, values)
    }

    /// Whether more than status and fields is looked at.
    pub(super) fn needs_body(&self) -> bool {
        let checks = self.checks.iter();
        let captures = self.captures.iter();
        checks.map(|check| &check.look).any(Look::needs_body)
            || captures.map(|taken| &taken.from).any(From::needs_body)
    }

    /// Whether fields are looked at.
    pub(super) fn needs_fields(&self) -> bool {
        let checks = self.checks.iter();
        let captures = self.captures.iter();
        checks.map(|check| &check.look).any(|look| !look.needs_body())
            || captures.map(|taken| &taken.from).any(|from| !from.needs_body())
    }

    pub(super) fn captures(&self) -> bool {
        !self.captures.is_empty()
    }

    #[cold]
    fn other_status(&self, status: u16) -> FailedCheck<'_> {
        let digits = [status / 100 % 10, status / 10 % 10, status % 10].map(|digit| b'0' + digit as u8);
        FailedCheck {
            expected: &self.expected_status,
            found: Excerpt::of(&[b"status ", &digits]),
        }
    }

    fn judge_content(
        &self,
        fields: &Fields<'_>,
        body: &[u8],
        values: &mut Values,
    ) -> Result<(), FailedCheck<'_>> {
        for check in &self.checks {
            check.look.pass(fields, body).map_err(|found| FailedCheck {
                expected: &check.expected,
                found,
            })?;
        }
        for taken in &self.captures {
            taken.take(fields, body, values).map_err(|found| FailedCheck {
                expected: &taken.expected,
                found,
            })?;
        }
        Ok(())
    }
}

/// Statuses that an answer to a request can have: an interim one is none.
const STATUSES: RangeInclusive<u16> = 200..=999;

/// At least one.
fn statuses(ranges: &[RangeInclusive<u16>]) -> Result<Vec<(u16, u16)>, Problem> {
    if ranges.is_empty() {
        return Ok(vec![(200, 399)]);
    }
    let ranges = ranges.iter().map(|range| (*range.start(), *range.end()));
    let ranges = ranges.map(|(first, last)| {
        if first <= last && STATUSES.contains(&first) && STATUSES.contains(&last) {
            return Ok((first, last));
        }
        let expected = "statuses from 200 to 999, the smaller first";
        Err(Problem::new(Part::Status, expected, format!("{first} to {last}")))
    });
    ranges.collect()
}

fn told(statuses: &[(u16, u16)]) -> String {
    let one = |&(first, last): &(u16, u16)| {
        if first == last {
            first.to_string()
        } else {
            format!("{first} to {last}")
        }
    };
    format!(
        "status {}",
        statuses.iter().map(one).collect::<Vec<_>>().join(" or ")
    )
}

fn compile_check(check: &Check, part: Part) -> Result<Compiled, Problem> {
    Ok(match check {
        Check::Header { name, test } => Compiled {
            expected: format!("header {} {}", field_name(name, part)?, told_test(test)),
            look: Look::Header {
                name: name.clone(),
                test: compile_test(test, part)?,
            },
        },
        Check::Body(test) => Compiled {
            expected: format!("body {}", told_test(test)),
            look: Look::Body(compile_test(test, part)?),
        },
        Check::Json { pointer, equals } => Compiled {
            expected: format!("JSON {} at `{pointer}`", shorten(&equals.to_string())),
            look: Look::Json {
                pointer: compile_pointer(pointer, part)?,
                equals: equals.clone(),
            },
        },
    })
}

fn told_test(test: &Test) -> String {
    match test {
        Test::Contains(text) => format!("with \"{}\" in it", shorten(text)),
        Test::Equals(text) => format!("equal to \"{}\"", shorten(text)),
    }
}

fn compile_test(test: &Test, part: Part) -> Result<Tested, Problem> {
    match test {
        Test::Contains(text) => Ok(Tested::Contains(finder(text, part)?)),
        Test::Equals(text) => Ok(Tested::Equals(text.as_bytes().into())),
    }
}

fn finder(text: &str, part: Part) -> Result<Box<Finder<'static>>, Problem> {
    if text.is_empty() {
        let found = "an empty one, which is everywhere";
        return Err(Problem::new(part, "a text to look for", found));
    }
    Ok(Box::new(Finder::new(text.as_bytes()).into_owned()))
}

fn compile_pointer(text: &str, part: Part) -> Result<Pointer, Problem> {
    Pointer::new(text).ok_or_else(|| {
        let expected =
            "a JSON pointer (RFC 6901): empty, or `/name/0/name`, with `~0` for `~` and `~1` for `/`";
        Problem::new(part, expected, format!("`{}`", shorten(text)))
    })
}

/// A name that an answer can have.
fn field_name(name: &str, part: Part) -> Result<&str, Problem> {
    let token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    if !name.is_empty() && name.bytes().all(token) {
        return Ok(name);
    }
    let expected = "a header name of letters, digits and hyphens";
    Err(Problem::new(part, expected, format!("`{}`", shorten(name))))
}

fn compile_capture(capture: &Capture, part: Part, names: &mut Names) -> Result<Taken, Problem> {
    let name = &capture.name;
    let letter = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    if name.is_empty() || name.len() > 64 || !name.bytes().all(letter) {
        let expected = "a name of 1 to 64 letters, digits, `-` and `_`";
        return Err(Problem::new(part, expected, format!("`{}`", shorten(name))));
    }
    let (from, place) = match &capture.from {
        Source::Header(header) => {
            let place = format!("header {}", field_name(header, part)?);
            (From::Header(header.clone()), place)
        }
        Source::Json(pointer) => {
            let place = format!("JSON string, number or boolean at `{pointer}`");
            (From::Json(compile_pointer(pointer, part)?), place)
        }
        Source::Between { before, after } => {
            let place = format!("body with \"{}\" … \"{}\"", shorten(before), shorten(after));
            let (before, after) = (finder(before, part)?, finder(after, part)?);
            (From::Between { before, after }, place)
        }
    };
    let slot = names
        .iter()
        .position(|known| known == name)
        .unwrap_or(names.len());
    if slot == limits::VALUES {
        let expected = format!("at most {} captured values in a flow", limits::VALUES);
        return Err(Problem::new(part, expected, format!("one more: `{name}`")));
    }
    if slot == names.len() {
        names.push(name.clone());
    }
    let expected = format!("{place}, to capture as `{name}`");
    Ok(Taken { slot, from, expected })
}

impl Look {
    fn needs_body(&self) -> bool {
        !matches!(self, Look::Header { .. })
    }

    fn pass(&self, fields: &Fields<'_>, body: &[u8]) -> Result<(), Excerpt> {
        match self {
            Look::Header { name, test } if fields.all(name).any(|value| test.pass(value)) => Ok(()),
            Look::Header { name, .. } => Err(match fields.get(name) {
                Some(value) => quoted(value),
                None => Excerpt::of(&[b"no such header"]),
            }),
            Look::Body(test) if test.pass(body) => Ok(()),
            Look::Body(_) => Err(quoted(body)),
            Look::Json { pointer, equals } => match pointer.find(body) {
                Ok(Some(value)) if value == *equals => Ok(()),
                Ok(Some(value)) => Err(Excerpt::of(&[value.to_string().as_bytes()])),
                Ok(None) => Err(Excerpt::of(&[b"nothing at that pointer of ", body])),
                Err(_) => Err(no_json(body)),
            },
        }
    }
}

impl Tested {
    fn pass(&self, text: &[u8]) -> bool {
        match self {
            Tested::Contains(finder) => finder.find(text).is_some(),
            Tested::Equals(bytes) => **bytes == *text,
        }
    }
}

impl From {
    fn needs_body(&self) -> bool {
        !matches!(self, From::Header(_))
    }
}

impl Taken {
    fn take(&self, fields: &Fields<'_>, body: &[u8], values: &mut Values) -> Result<(), Excerpt> {
        match &self.from {
            From::Header(name) => match fields.get(name) {
                Some(value) => self.keep(value, values),
                None => Err(Excerpt::of(&[b"no such header"])),
            },
            From::Json(pointer) => match pointer.find(body) {
                Ok(Some(Value::String(text))) => self.keep(text.as_bytes(), values),
                Ok(Some(value @ (Value::Number(_) | Value::Bool(_)))) => {
                    self.keep(value.to_string().as_bytes(), values)
                }
                Ok(Some(value)) => Err(Excerpt::of(&[value.to_string().as_bytes()])),
                Ok(None) => Err(Excerpt::of(&[b"nothing at that pointer of ", body])),
                Err(_) => Err(no_json(body)),
            },
            From::Between { before, after } => {
                let start = before.find(body).map(|at| at + before.needle().len());
                let rest = start.map(|start| &body[start..]);
                match rest.and_then(|rest| after.find(rest).map(|end| &rest[..end])) {
                    Some(text) => self.keep(text, values),
                    None => Err(quoted(body)),
                }
            }
        }
    }

    fn keep(&self, value: &[u8], values: &mut Values) -> Result<(), Excerpt> {
        if values.set(self.slot, value) {
            Ok(())
        } else {
            Err(Excerpt::of(&[b"more than 4096 bytes: ", value]))
        }
    }
}

const _: () = assert!(limits::VALUE_BYTES == 4_096, "as `keep` says");

fn quoted(text: &[u8]) -> Excerpt {
    match text {
        [] => Excerpt::of(&[b"nothing"]),
        text => Excerpt::of(&[b"\"", text, b"\""]),
    }
}

fn no_json(body: &[u8]) -> Excerpt {
    match body {
        [] => Excerpt::of(&[b"an empty body"]),
        body => Excerpt::of(&[b"no JSON: ", body]),
    }
}
