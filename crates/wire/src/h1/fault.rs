//! What a peer can do wrong, with the status that answers it. The caller's own faults are `Misuse`.

use std::fmt;

use crate::faults::faults;

/// A peer broke a rule or a limit. The message cannot be used, and the connection cannot either.
///
/// *What to do*: as a server send [`status`](Self::status) with `Connection: close`, then close; as a client
/// close (a gateway answers its own client 502). The codec that returned it reads nothing any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerFault {
    /// The rule.
    pub kind: FaultKind,
    /// Where: bytes from the start of the head, or of the body with its framing.
    pub at: u64,
    /// What stood there.
    pub found: Found,
}

/// What was found where something else was expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// A byte.
    Byte(u8),
    /// The end of the input.
    End,
    /// More than this many (bytes or fields, as the kind says).
    MoreThan(u64),
    /// What the kind's name says: nothing to add.
    This,
}

// The one table of faults: the status that answers it, what was expected, where that stands.
faults! {
    /// The rules.
    enum FaultKind;

    /// A line that ends in LF without CR.
    BareLineFeed 400 "CRLF at the end of a line" "RFC 9112 §2.2",
    /// A CR without LF.
    BareCarriageReturn 400 "LF after CR" "RFC 9112 §2.2",
    /// The request line or status line exceeds its limit.
    StartLineTooLong 414 "a start line within its limit of bytes" "RFC 9112 §3",
    /// The head exceeds its limit.
    HeadTooLarge 431 "a head within its limit of bytes" "RFC 6585 §5",
    /// The head has more fields than its limit.
    TooManyFields 431 "a head within its limit of fields" "RFC 6585 §5",
    /// The method is no token, or is not followed by one space.
    Method 400 "a method of token characters and one space" "RFC 9112 §3.1",
    /// The request target is empty, or has a byte that no URI has, or a fragment.
    Target 400 "a request target of visible ASCII without `#`, and one space" "RFC 9112 §3.2",
    /// The request target's form does not fit the method.
    TargetForm 400 "`/path`, `http://host/path`, `*` for OPTIONS or `host:port` for CONNECT" "RFC 9112 §3.2",
    /// No HTTP version where one must be (HTTP/0.9 too).
    Version 400 "`HTTP/1.1` or `HTTP/1.0` before CRLF" "RFC 9112 §2.3",
    /// A version that is not 1.0 or 1.1.
    VersionUnsupported 505 "version 1.1 or 1.0" "RFC 9110 §15.6.6",
    /// `CONNECT`, which is off.
    ConnectRefused 501 "a method other than CONNECT" "RFC 9110 §9.3.6",
    /// `CONNECT` that announces content.
    ConnectContent 400 "CONNECT without content" "RFC 9110 §9.3.6",
    /// A status line that does not read `HTTP/1.x NNN reason`.
    StatusLine 502 "`HTTP/1.1` or `HTTP/1.0`, a space, three digits, a reason" "RFC 9112 §4",
    /// A field name that is empty or no token; whitespace before the colon.
    FieldName 400 "a field name of token characters, then a colon" "RFC 9112 §5.1",
    /// A field line without a colon.
    FieldColon 400 "a colon in a field line" "RFC 9112 §5",
    /// A control character in a field value.
    FieldValue 400 "a field value without control characters" "RFC 9110 §5.5",
    /// A line that begins with whitespace.
    FoldedLine 400 "a field line that does not begin with whitespace" "RFC 9112 §5.2",
    /// A name that some recipients take for a framing field, such as `Transfer_Encoding`.
    FramingNameVariant 400 "framing fields by their exact names" "RFC 9112 §11.2",
    /// No `Host` in HTTP/1.1.
    HostMissing 400 "a Host field" "RFC 9112 §3.2",
    /// Two `Host` fields.
    HostRepeated 400 "one Host field" "RFC 9112 §3.2",
    /// `Host` or the target's authority is no host with an optional port.
    Authority 400 "a host without user information, and perhaps a port" "RFC 9110 §4.2",
    /// `Content-Length` is not a number, or a list, or beyond 2⁶³ − 1.
    ContentLength 400 "one decimal number up to 2^63 - 1" "RFC 9110 §8.6",
    /// Two `Content-Length` fields.
    ContentLengthRepeated 400 "one Content-Length field" "RFC 9112 §6.3",
    /// `Transfer-Encoding` that is empty, doubled, has parameters, or does not end in `chunked`.
    TransferEncoding 400 "`chunked`, once and last" "RFC 9112 §6.1",
    /// A transfer coding other than `chunked`.
    TransferCodingUnknown 501 "no transfer coding but `chunked`" "RFC 9112 §6.1",
    /// `Transfer-Encoding` in HTTP/1.0.
    TransferEncodingOldVersion 400 "no Transfer-Encoding in HTTP/1.0" "RFC 9112 §6.1",
    /// `Transfer-Encoding` and `Content-Length` in one request.
    TransferEncodingAndLength 400 "either Transfer-Encoding or Content-Length" "RFC 9112 §6.1",
    /// An expectation other than `100-continue`.
    Expectation 417 "no expectation but `100-continue`" "RFC 9110 §10.1.1",
    /// A chunk size that is not 1 to 16 hexadecimal digits up to 2⁶³ − 1, or what follows it.
    ChunkSize 400 "1 to 16 hexadecimal digits, then `;` or CRLF" "RFC 9112 §7.1",
    /// A control character in a chunk extension.
    ChunkExtension 400 "chunk extensions without control characters" "RFC 9112 §7.1.1",
    /// A chunk's size line exceeds its limit.
    ChunkLineTooLong 400 "a chunk's size line within its limit of bytes" "RFC 9112 §7.1.1",
    /// The chunk extensions of a body exceed their limit.
    ChunkExtensionsTooLong 400 "chunk extensions within the body's limit of bytes" "RFC 9112 §7.1.1",
    /// No CRLF after a chunk's data.
    ChunkEnd 400 "CRLF after the data of a chunk" "RFC 9112 §7.1",
    /// The trailer section exceeds its limit.
    TrailersTooLarge 431 "trailers within their limit of bytes" "RFC 6585 §5",
    /// More trailer fields than the limit.
    TooManyTrailers 431 "trailers within their limit of fields" "RFC 6585 §5",
    /// A trailer field that would change framing or routing.
    TrailerForbidden 400 "no framing or routing field among the trailers" "RFC 9110 §6.5.1",
    /// The body exceeds its limit.
    BodyTooLarge 413 "a body within its limit of bytes" "RFC 9110 §15.5.14",
    /// The input ended before the message.
    Truncated 400 "the rest of the message" "RFC 9112 §8",
}

impl FaultKind {
    /// The status with which a server answers a request that has it.
    #[must_use]
    pub const fn status(self) -> u16 {
        self.row().0
    }
}

impl PeerFault {
    #[cold]
    pub(super) fn new(kind: FaultKind, at: usize, found: Found) -> Self {
        Self {
            kind,
            at: at as u64,
            found,
        }
    }

    /// The byte at `at`, or the end of the input.
    #[cold]
    pub(super) fn byte(kind: FaultKind, input: &[u8], at: usize) -> Self {
        Self::new(
            kind,
            at,
            input.get(at).map_or(Found::End, |&byte| Found::Byte(byte)),
        )
    }

    /// Like [`byte`](Self::byte), but a line end that is no CRLF is named as what it is.
    #[cold]
    pub(super) fn byte_or_line_end(kind: FaultKind, input: &[u8], at: usize) -> Self {
        match (input.get(at), input.get(at + 1)) {
            (Some(b'\n'), _) => Self::byte(FaultKind::BareLineFeed, input, at),
            (Some(b'\r'), Some(b'\n')) => Self::byte(kind, input, at),
            (Some(b'\r'), _) => Self::byte(FaultKind::BareCarriageReturn, input, at),
            _ => Self::byte(kind, input, at),
        }
    }

    /// The status with which a server answers before it closes.
    #[must_use]
    pub const fn status(&self) -> u16 {
        self.kind.status()
    }
}

impl fmt::Display for PeerFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (status, expected, section) = self.kind.row();
        write!(f, "at byte {}: expected {expected}; found ", self.at)?;
        match self.found {
            Found::Byte(byte) => write!(f, "`{}`", byte.escape_ascii())?,
            Found::End => f.write_str("the end of the input")?,
            Found::MoreThan(limit) => write!(f, "more than {limit}")?,
            Found::This => write!(f, "{:?}", self.kind)?,
        }
        write!(f, " ({section}; answer {status} and close)")
    }
}

impl std::error::Error for PeerFault {}
