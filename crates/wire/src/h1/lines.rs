//! Field lines one after the other, up to the empty line; heads and trailers share it.
//!
//! ```text
//!        ┌────────────────────────────┐ resumes here with more input
//!        ▼                            │
//!  line ─┬─ whole ─▶ Field ─▶ next line
//!        ├─ CRLF ──▶ End
//!        ├─ cut ───▶ Cut (its LF is not there yet, and may still come within the limit)
//!        └─ else ──▶ PeerFault
//! ```
//!
//! A line is judged only when its LF is there, or cannot come any more within the limit. So the verdict does
//! not depend on how the input was cut. Knows no name and no meaning of a field.

use super::fault::{FaultKind, Found, PeerFault};
use super::fields::{Known, Record};
use super::grammar::{self, TOKEN};

/// What a section of lines may hold, and what to call it when it holds more.
#[derive(Clone, Copy, Debug)]
pub(super) struct Caps {
    pub(super) bytes: u32,
    pub(super) fields: u16,
    pub(super) too_large: FaultKind,
    pub(super) too_many: FaultKind,
}

/// How far a section is read.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cursor {
    /// Where the first line that is not read begins.
    pub(super) line: u32,
    /// No LF between `line` and here.
    pub(super) seen: u32,
    /// Field lines read.
    pub(super) fields: u16,
}

/// What the next line is.
pub(super) enum Step {
    /// A field line; its record went to the sink.
    Field,
    /// The empty line; the section ends at this offset.
    End(usize),
    Cut,
}

impl Cursor {
    /// Begins the line at `at`.
    #[inline]
    pub(super) fn begin(&mut self, at: usize) {
        self.line = at as u32;
        self.seen = at as u32;
    }

    /// Reads the next line. `window` is the input up to the section's limit. A field goes to `sink` rather than
    /// into the result, which would carry it through memory twice.
    #[inline]
    pub(super) fn next(
        &mut self,
        window: &[u8],
        caps: &Caps,
        sink: &mut impl FnMut(Record),
    ) -> Result<Step, PeerFault> {
        let at = self.line as usize;
        let first = window.get(at).copied();
        if first == Some(b'\r') && window.get(at + 1) == Some(&b'\n') {
            return Ok(Step::End(at + 2));
        }
        if self.fields == caps.fields && first.is_some_and(|byte| byte != b'\r') {
            let found = Found::MoreThan(u64::from(caps.fields));
            return Err(PeerFault::new(caps.too_many, at, found));
        }
        if self.seen > self.line && !self.ends(window) {
            return self.cut(window, caps);
        }
        match field_line(window, at, sink) {
            Ok(end) => {
                self.begin(end);
                self.fields += 1;
                Ok(Step::Field)
            }
            Err(fault) if self.ends(window) => Err(fault),
            Err(_) => self.cut(window, caps),
        }
    }

    /// Whether the current line's LF is in `window`. Looks at no byte twice.
    pub(super) fn ends(&mut self, window: &[u8]) -> bool {
        let rest = window.get(self.seen as usize..).unwrap_or_default();
        let line_feed = rest.iter().position(|&byte| byte == b'\n');
        self.seen += line_feed.unwrap_or(rest.len()) as u32;
        line_feed.is_some()
    }

    #[cold]
    fn cut(&self, window: &[u8], caps: &Caps) -> Result<Step, PeerFault> {
        if window.len() < caps.bytes as usize {
            return Ok(Step::Cut);
        }
        Err(PeerFault::new(
            caps.too_large,
            window.len(),
            Found::MoreThan(u64::from(caps.bytes)),
        ))
    }
}

/// `field-name ":" OWS field-value OWS CRLF` (RFC 9112 §5); returns where the next line begins.
///
/// A fault is true only if the line's LF is in `input`.
#[inline]
fn field_line(input: &[u8], at: usize, sink: &mut impl FnMut(Record)) -> Result<usize, PeerFault> {
    let (known, name_end) = field_name(input, at)?;
    let mut value_at = name_end + 1;
    while input.get(value_at).is_some_and(|&byte| grammar::is_space(byte)) {
        value_at += 1;
    }
    let end = grammar::text_end(input, value_at);
    if input.get(end) != Some(&b'\r') || input.get(end + 1) != Some(&b'\n') {
        return Err(PeerFault::byte_or_line_end(FaultKind::FieldValue, input, end));
    }
    let mut value_end = end;
    while value_end > value_at && grammar::is_space(input[value_end - 1]) {
        value_end -= 1;
    }
    sink(Record {
        name_at: at as u32,
        name_end: name_end as u32,
        value_at: value_at as u32,
        value_end: value_end as u32,
        known,
    });
    Ok(end + 2)
}

/// A name and where its colon is.
///
/// What equals a known name is a token, so only other names are looked at byte by byte.
#[inline]
fn field_name(input: &[u8], at: usize) -> Result<(Option<Known>, usize), PeerFault> {
    if let Some(colon) = grammar::find_near(input, at, b':')
        && let Some(known) = Known::at(input, at, colon)
    {
        return Ok((Some(known), colon));
    }
    let name_end = grammar::class_end(input, at, TOKEN);
    if name_end == at || input.get(name_end) != Some(&b':') {
        return Err(name_fault(input, at, name_end));
    }
    let name = &input[at..name_end];
    if is_framing_variant(name) {
        return Err(PeerFault::new(FaultKind::FramingNameVariant, at, Found::This));
    }
    // Near the end of the input nothing was compared above.
    Ok((Known::of(name), name_end))
}

#[cold]
fn name_fault(input: &[u8], at: usize, name_end: usize) -> PeerFault {
    let kind = match input.get(name_end) {
        // RFC 9112 §5.2: obs-fold; §2.2: whitespace before the first field.
        Some(b' ' | b'\t') if name_end == at => FaultKind::FoldedLine,
        Some(b'\r') if name_end > at => FaultKind::FieldColon,
        // RFC 9112 §5.1: no whitespace between name and colon.
        _ => FaultKind::FieldName,
    };
    PeerFault::byte_or_line_end(kind, input, name_end)
}

/// CGI-like recipients write `_` for whatever is no letter and no digit, so such a name frames the message for
/// them and not for us. `name` is a token.
#[inline]
pub(super) fn is_framing_variant(name: &[u8]) -> bool {
    let (framing, hyphen) = match name.len() {
        14 => (Known::ContentLength, 7),
        17 => (Known::TransferEncoding, 8),
        _ => return false,
    };
    let framing = framing.name().as_bytes();
    name[hyphen] != b'-'
        && !name[hyphen].is_ascii_alphanumeric()
        && framing[..hyphen].eq_ignore_ascii_case(&name[..hyphen])
        && framing[hyphen + 1..].eq_ignore_ascii_case(&name[hyphen + 1..])
}
