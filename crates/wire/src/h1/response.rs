//! Response heads: the client's side of parsing. Follows nothing and retries nothing.

use super::fault::{FaultKind, PeerFault};
use super::fields::{FieldTable, Fields};
use super::framing::{self, ConnectionOptions, Framing, Version};
use super::grammar;
use super::head::{self, HeadScanner, Parsed, StartLine};
use super::limits::Limits;
use super::method::Method;

/// A response's head, borrowed from the input and from the table of its fields.
#[derive(Clone, Copy, Debug)]
pub struct ResponseHead<'a> {
    /// The version.
    pub version: Version,
    /// 100 to 999.
    pub status: u16,
    /// The reason phrase; may be empty and may have bytes above 0x7F.
    pub reason: &'a [u8],
    /// All fields.
    pub fields: Fields<'a>,
    /// Where the body ends.
    pub framing: Framing,
    /// Whether the connection may carry another request after this response.
    pub keep_alive: bool,
    /// Whether the bytes after this head are no HTTP/1 any more: 101, or 2xx to CONNECT.
    pub switches: bool,
}

impl ResponseHead<'_> {
    /// Whether another response to the same request follows (RFC 9110 §15.2).
    #[must_use]
    pub const fn is_interim(&self) -> bool {
        matches!(self.status, 100..=199) && self.status != 101
    }
}

/// Parses one response head at the start of `input`, the answer to a request with `method`.
///
/// As [`parse_request`](super::parse_request) otherwise.
///
/// # Errors
/// The first rule or limit that the server broke; then the scanner returns it for ever.
pub fn parse_response<'a>(
    input: &'a [u8],
    method: Method<'_>,
    limits: &Limits,
    scanner: &mut HeadScanner,
    table: &'a mut FieldTable,
) -> Result<Parsed<ResponseHead<'a>>, PeerFault> {
    let result = parse(input, method, limits, scanner, table);
    scanner.settle(&result);
    result
}

fn parse<'a>(
    input: &'a [u8],
    method: Method<'_>,
    limits: &Limits,
    scanner: &mut HeadScanner,
    table: &'a mut FieldTable,
) -> Result<Parsed<ResponseHead<'a>>, PeerFault> {
    let mut line = StatusLine {
        version: Version::Http11,
        status: 0,
        reason_at: 0,
        reason_end: 0,
    };
    let Some(bytes) = head::read(input, limits, scanner, &mut line, table)? else {
        return Ok(Parsed::Partial);
    };
    let fields = table.fields(input);
    let StatusLine { version, status, .. } = line;
    let (framing, reusable) = framing::of_response(method, status, version, &fields)?;
    let switches = status == 101 || (method == Method::Connect && matches!(status, 200..=299));
    let head = ResponseHead {
        version,
        status,
        reason: &input[line.reason_at..line.reason_end],
        fields,
        framing,
        keep_alive: reusable && !switches && ConnectionOptions::of(&fields).persists(version),
        switches,
    };
    Ok(Parsed::Complete { head, bytes })
}

/// `HTTP-version SP status-code SP [ reason-phrase ] CRLF` (RFC 9112 §4), read.
struct StatusLine {
    version: Version,
    status: u16,
    reason_at: usize,
    reason_end: usize,
}

impl StartLine for StatusLine {
    const SKIPS_EMPTY_LINE: bool = false;

    fn parse(&mut self, input: &[u8], at: usize) -> Result<usize, PeerFault> {
        let version = framing::version(input.get(at..at + 8).unwrap_or_default())
            .map_err(|kind| PeerFault::byte(kind, input, at))?;
        if input.get(at + 8) != Some(&b' ') {
            return Err(PeerFault::byte_or_line_end(FaultKind::StatusLine, input, at + 8));
        }
        let mut status = 0;
        for index in at + 9..at + 12 {
            match input.get(index) {
                Some(digit) if digit.is_ascii_digit() => status = status * 10 + u16::from(digit - b'0'),
                _ => return Err(PeerFault::byte_or_line_end(FaultKind::StatusLine, input, index)),
            }
        }
        if status < 100 {
            return Err(PeerFault::byte(FaultKind::StatusLine, input, at + 9));
        }
        // RFC 9112 §4 wants the space also before an empty reason; many servers leave both away.
        let reason_at = match input.get(at + 12) {
            Some(b' ') => at + 13,
            Some(b'\r') => at + 12,
            _ => return Err(PeerFault::byte_or_line_end(FaultKind::StatusLine, input, at + 12)),
        };
        let end = grammar::text_end(input, reason_at);
        if input.get(end..end + 2) != Some(b"\r\n") {
            return Err(PeerFault::byte_or_line_end(FaultKind::StatusLine, input, end));
        }
        *self = Self {
            version,
            status,
            reason_at,
            reason_end: end,
        };
        Ok(end + 2)
    }
}
