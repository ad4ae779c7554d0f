//! Request heads: the server's side of parsing. Answers nothing and routes nothing.

use super::authority::Authority;
use super::fault::{FaultKind, Found, PeerFault};
use super::fields::{FieldTable, Fields, Known};
use super::framing::{self, ConnectionOptions, Framing, Version};
use super::grammar::{self, TOKEN};
use super::head::{self, HeadScanner, Parsed, StartLine};
use super::limits::Limits;
use super::method::Method;
use super::target::Target;

/// A request's head, borrowed from the input and from the table of its fields.
#[derive(Clone, Copy, Debug)]
pub struct RequestHead<'a> {
    /// The method.
    pub method: Method<'a>,
    /// The target, by form.
    pub target: Target<'a>,
    /// The target as it stands in the request line.
    pub target_text: &'a str,
    /// The version.
    pub version: Version,
    /// All fields.
    pub fields: Fields<'a>,
    /// Host and perhaps port: the target's own, else `Host` (RFC 9112 §3.2.2). Always there in HTTP/1.1.
    pub authority: Option<Authority<'a>>,
    /// Where the body ends. Never `UntilClose`.
    pub framing: Framing,
    /// Whether the client lets the connection live on after this request.
    pub keep_alive: bool,
    /// Whether the client waits for `100 Continue` before it sends the body (there is one).
    pub expect_continue: bool,
    /// The value of `Upgrade`, if the client offers to switch. Until a 101 is sent the framing above holds.
    pub upgrade: Option<&'a [u8]>,
    /// What extended CONNECT asks for (RFC 8441); in HTTP/2 only.
    pub protocol: Option<&'a str>,
}

impl<'a> RequestHead<'a> {
    /// An extended CONNECT (RFC 8441) as the request that asks for the same by HTTP/1.1: a GET with `upgrade` and without content.
    /// What its stream brings is what would follow the switch. `None` for any other request.
    #[must_use]
    pub fn as_upgrade(&self) -> Option<RequestHead<'a>> {
        let protocol = self.protocol.filter(|_| self.method == Method::Connect)?;
        let framing = match self.framing {
            Framing::Length(length) => Framing::Length(length),
            _ => Framing::None,
        };
        Some(RequestHead {
            method: Method::Get,
            framing,
            upgrade: Some(protocol.as_bytes()),
            ..*self
        })
    }
}

/// Parses one request head at the start of `input`.
///
/// `input` is all that is buffered of this request and what follows it; on [`Parsed::Partial`] call again
/// with the same bytes and more. The `scanner` belongs to the connection, the `table` may be shared.
///
/// # Errors
/// The first rule or limit that the client broke; then the scanner returns it for ever.
#[inline]
pub fn parse_request<'a>(
    input: &'a [u8],
    limits: &Limits,
    scanner: &mut HeadScanner,
    table: &'a mut FieldTable,
) -> Result<Parsed<RequestHead<'a>>, PeerFault> {
    let result = parse(input, limits, scanner, table);
    scanner.settle(&result);
    result
}

#[inline]
fn parse<'a>(
    input: &'a [u8],
    limits: &Limits,
    scanner: &mut HeadScanner,
    table: &'a mut FieldTable,
) -> Result<Parsed<RequestHead<'a>>, PeerFault> {
    let mut line = RequestLine {
        method_at: 0,
        target_at: 0,
        query_at: 0,
        target_end: 0,
        is_get: false,
        version: Version::Http11,
    };
    let Some(bytes) = head::read(input, limits, scanner, &mut line, table)? else {
        return Ok(Parsed::Partial);
    };
    let fields = table.fields(input);
    let (method, target_text) = line.texts(input);
    let target = match Target::origin(method, target_text, line.query_at - line.target_at) {
        Some(target) => target,
        None => Target::parse(method, target_text)
            .map_err(|(kind, index)| PeerFault::byte(kind, input, line.target_at + index))?,
    };
    if method == Method::Connect && !limits.connect {
        return Err(PeerFault::new(FaultKind::ConnectRefused, 0, Found::This));
    }
    let version = line.version;
    let host = host(version, &fields)?;
    let framing = framing::of_request(method, version, &fields)?;
    let options = ConnectionOptions::of(&fields);
    let head = RequestHead {
        method,
        target,
        target_text,
        version,
        fields,
        authority: target.authority().or(host),
        framing,
        keep_alive: options.persists(version),
        expect_continue: expects_continue(version, framing, &fields)?,
        upgrade: options.upgrade(version, &fields),
        protocol: None,
    };
    Ok(Parsed::Complete { head, bytes })
}

/// `method SP request-target SP HTTP-version CRLF` (RFC 9112 §3): where its parts are.
struct RequestLine {
    method_at: usize,
    /// One space after the method.
    target_at: usize,
    /// Its first `?`, else its end.
    query_at: usize,
    target_end: usize,
    /// The method of most requests.
    is_get: bool,
    version: Version,
}

impl StartLine for RequestLine {
    const SKIPS_EMPTY_LINE: bool = true;

    #[inline]
    fn parse(&mut self, input: &[u8], at: usize) -> Result<usize, PeerFault> {
        let is_get = input.get(at..at + 4) == Some(b"GET ");
        let method_end = if is_get {
            at + 3
        } else {
            grammar::class_end(input, at, TOKEN)
        };
        if method_end == at || input.get(method_end) != Some(&b' ') {
            return Err(PeerFault::byte_or_line_end(FaultKind::Method, input, method_end));
        }
        let target_at = method_end + 1;
        let (target_end, query_at) = grammar::target_end(input, target_at);
        if target_end == target_at || input.get(target_end) != Some(&b' ') {
            return Err(target_fault(input, target_at, target_end));
        }
        let version_at = target_end + 1;
        let version = match input.get(version_at..version_at + 10) {
            Some(b"HTTP/1.1\r\n") => Version::Http11,
            Some(b"HTTP/1.0\r\n") => Version::Http10,
            _ => return Err(version_fault(input, version_at)),
        };
        *self = Self {
            method_at: at,
            target_at,
            query_at,
            target_end,
            is_get,
            version,
        };
        Ok(version_at + 10)
    }
}

impl RequestLine {
    #[inline]
    fn texts<'a>(&self, input: &'a [u8]) -> (Method<'a>, &'a str) {
        let method = if self.is_get {
            Method::Get
        } else {
            let method = &input[self.method_at..self.target_at - 1];
            Method::registered(method).unwrap_or_else(|| Method::Other(ascii(method)))
        };
        (method, ascii(&input[self.target_at..self.target_end]))
    }
}

/// RFC 9112 §3.2: exactly one valid `Host` in HTTP/1.1, at most one in HTTP/1.0. It must be valid also where
/// the target overrides it.
#[inline]
fn host<'a>(version: Version, fields: &Fields<'a>) -> Result<Option<Authority<'a>>, PeerFault> {
    let Some(record) = fields.record(Known::Host) else {
        return match version {
            Version::Http10 => Ok(None),
            _ => Err(PeerFault::new(FaultKind::HostMissing, 0, Found::This)),
        };
    };
    if fields.is_repeated(Known::Host) {
        return Err(PeerFault::new(
            FaultKind::HostRepeated,
            fields.last_at(Known::Host),
            Found::This,
        ));
    }
    let value = fields.known(Known::Host).unwrap_or_default();
    let host = Authority::new(value).map_err(|index| {
        let found = value.get(index).map_or(Found::This, |&byte| Found::Byte(byte));
        PeerFault::new(FaultKind::Authority, record.value_at as usize + index, found)
    })?;
    Ok(Some(host))
}

/// RFC 9110 §10.1.1: ignored in HTTP/1.0, and moot without a body.
#[inline]
fn expects_continue(version: Version, framing: Framing, fields: &Fields<'_>) -> Result<bool, PeerFault> {
    let Some(value) = fields.known(Known::Expect) else {
        return Ok(false);
    };
    if version == Version::Http10 {
        return Ok(false);
    }
    if fields.is_repeated(Known::Expect) || !value.eq_ignore_ascii_case(b"100-continue") {
        return Err(PeerFault::new(
            FaultKind::Expectation,
            fields.last_at(Known::Expect),
            Found::This,
        ));
    }
    Ok(!matches!(framing, Framing::None | Framing::Length(0)))
}

#[cold]
fn target_fault(input: &[u8], target_at: usize, target_end: usize) -> PeerFault {
    let kind = match input.get(target_end) {
        // A line end instead of a version: HTTP/0.9.
        Some(b'\r') if target_end > target_at => FaultKind::Version,
        _ => FaultKind::Target,
    };
    PeerFault::byte_or_line_end(kind, input, target_end)
}

#[cold]
fn version_fault(input: &[u8], at: usize) -> PeerFault {
    let version = input.get(at..at + 8).unwrap_or_default();
    match framing::version(version) {
        Ok(_) => PeerFault::byte_or_line_end(FaultKind::Version, input, at + 8),
        Err(kind) => PeerFault::byte(kind, input, at),
    }
}

/// Bytes that were checked by class.
#[inline]
fn ascii(bytes: &[u8]) -> &str {
    str::from_utf8(bytes).expect("tokens and targets were checked to be ASCII")
}
