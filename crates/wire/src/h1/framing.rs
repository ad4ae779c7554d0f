//! Where a message ends and whether the connection lives on (RFC 9112 §6, §9.3): decided here and nowhere else.

use super::fault::{FaultKind, Found, PeerFault};
use super::fields::{Fields, Known};
use super::grammar::{self, TOKEN};
use super::method::Method;

/// A protocol version that is spoken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Version {
    /// HTTP/1.0.
    Http10,
    /// HTTP/1.1.
    Http11,
    /// HTTP/2, whose messages are those of `h2`; nothing of this module writes or reads it.
    Http2,
}

/// How a body is delimited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// There is no body.
    None,
    /// `Content-Length`, bytes.
    Length(u64),
    /// `Transfer-Encoding: chunked`.
    Chunked,
    /// By the end of the connection; responses only.
    UntilClose,
}

/// The largest length that is read or written: recipients with signed numbers are out there.
pub(super) const LENGTH_LIMIT: u64 = i64::MAX as u64;

/// The version that `text` (8 bytes, such as `HTTP/1.1`) names.
#[inline]
pub(super) fn version(text: &[u8]) -> Result<Version, FaultKind> {
    match text {
        b"HTTP/1.1" => Ok(Version::Http11),
        b"HTTP/1.0" => Ok(Version::Http10),
        // RFC 9112 §2.3: "HTTP" in capitals, one digit, a dot, one digit.
        [b'H', b'T', b'T', b'P', b'/', major, b'.', minor]
            if major.is_ascii_digit() && minor.is_ascii_digit() =>
        {
            Err(FaultKind::VersionUnsupported)
        }
        _ => Err(FaultKind::Version),
    }
}

/// What `Connection` says, as far as this module acts on it.
#[derive(Clone, Copy, Default)]
pub(super) struct ConnectionOptions {
    close: bool,
    keep_alive: bool,
    upgrade: bool,
}

impl ConnectionOptions {
    /// RFC 9110 §7.6.1: a list, case-insensitive, perhaps on several lines.
    #[inline]
    pub(super) fn of(fields: &Fields<'_>) -> Self {
        let mut options = Self::default();
        let Some(first) = fields.known(Known::Connection) else {
            return options;
        };
        // What nearly all clients say, in nearly all cases they say it in.
        match first {
            b"keep-alive" | b"Keep-Alive" => options.keep_alive = true,
            b"close" | b"Close" => options.close = true,
            _ => options.add(first),
        }
        if fields.is_repeated(Known::Connection) {
            fields
                .all_known(Known::Connection)
                .skip(1)
                .for_each(|value| options.add(value));
        }
        options
    }

    fn add(&mut self, value: &[u8]) {
        for option in grammar::list(value) {
            match option.len() {
                5 => self.close |= option.eq_ignore_ascii_case(b"close"),
                7 => self.upgrade |= option.eq_ignore_ascii_case(b"upgrade"),
                10 => self.keep_alive |= option.eq_ignore_ascii_case(b"keep-alive"),
                _ => {}
            }
        }
    }

    /// RFC 9112 §9.3.
    #[inline]
    pub(super) fn persists(self, version: Version) -> bool {
        !self.close && (version == Version::Http11 || self.keep_alive)
    }

    /// RFC 9110 §7.8: `Upgrade` counts in HTTP/1.1 and if `Connection` names it.
    #[inline]
    pub(super) fn upgrade<'a>(self, version: Version, fields: &Fields<'a>) -> Option<&'a [u8]> {
        if self.upgrade && version == Version::Http11 {
            fields.known(Known::Upgrade)
        } else {
            None
        }
    }
}

/// The framing of a request (RFC 9112 §6.3). It never ends with the connection.
#[inline]
pub(super) fn of_request(
    method: Method<'_>,
    version: Version,
    fields: &Fields<'_>,
) -> Result<Framing, PeerFault> {
    let coding = fields.record(Known::TransferEncoding);
    let length = fields.record(Known::ContentLength);
    let framing = match (coding, length) {
        (None, None) => return Ok(Framing::None),
        (Some(coding), Some(_)) => {
            // RFC 9112 §6.1 lets a server refuse it or drop the length; recipients differ, so refuse.
            return Err(at(FaultKind::TransferEncodingAndLength, coding.value_at));
        }
        (None, Some(_)) => Framing::Length(content_length(fields)?.unwrap_or_default()),
        (Some(_), None) => {
            check_transfer_encoding(version, fields)?;
            Framing::Chunked
        }
    };
    match (method, length.or(coding)) {
        (Method::Connect, Some(field)) => Err(at(FaultKind::ConnectContent, field.value_at)),
        _ => Ok(framing),
    }
}

/// The framing of a response to a request with `method`, and whether it lets the connection be used again
/// (RFC 9112 §6.3).
pub(super) fn of_response(
    method: Method<'_>,
    status: u16,
    version: Version,
    fields: &Fields<'_>,
) -> Result<(Framing, bool), PeerFault> {
    let chunked = fields.record(Known::TransferEncoding).is_some();
    if chunked {
        check_transfer_encoding(version, fields)?;
    }
    let length = content_length(fields)?;
    let announced = chunked || length.is_some_and(|length| length > 0);
    let answer = match (method, status) {
        // RFC 9110 §8.6, RFC 9112 §6.1: these may not even announce a body. Some peers send it all the same,
        // so what follows on this connection cannot be trusted.
        (_, 100..=199 | 204) => (Framing::None, !announced),
        (Method::Connect, 200..=299) => (Framing::None, false),
        (Method::Head, _) | (_, 304) => (Framing::None, true),
        // RFC 9112 §6.3: Transfer-Encoding overrides Content-Length, and the connection closes.
        _ if chunked => (Framing::Chunked, length.is_none()),
        _ => match length {
            Some(length) => (Framing::Length(length), true),
            None => (Framing::UntilClose, false),
        },
    };
    Ok(answer)
}

/// `1*DIGIT` up to 2⁶³ − 1, in one field (RFC 9110 §8.6). A list of equal numbers is refused too: recipients
/// that take the first and those that take the last are both out there.
#[inline]
fn content_length(fields: &Fields<'_>) -> Result<Option<u64>, PeerFault> {
    let Some(value) = fields.known(Known::ContentLength) else {
        return Ok(None);
    };
    let last_at = || fields.last_at(Known::ContentLength);
    if fields.is_repeated(Known::ContentLength) {
        return Err(PeerFault::new(
            FaultKind::ContentLengthRepeated,
            last_at(),
            Found::This,
        ));
    }
    let mut length = 0_u64;
    for (index, &byte) in value.iter().enumerate() {
        let digit = u64::from(byte.wrapping_sub(b'0'));
        let next = length
            .checked_mul(10)
            .and_then(|length| length.checked_add(digit));
        match next {
            Some(next) if digit <= 9 && next <= LENGTH_LIMIT => length = next,
            _ => {
                return Err(PeerFault::new(
                    FaultKind::ContentLength,
                    last_at() + index,
                    Found::Byte(byte),
                ));
            }
        }
    }
    if value.is_empty() {
        return Err(PeerFault::new(FaultKind::ContentLength, last_at(), Found::This));
    }
    Ok(Some(length))
}

/// Exactly `chunked`, once: the only coding that is understood, and the one that must be last (RFC 9112 §6.1).
fn check_transfer_encoding(version: Version, fields: &Fields<'_>) -> Result<(), PeerFault> {
    let fault = |kind| PeerFault::new(kind, fields.last_at(Known::TransferEncoding), Found::This);
    if version == Version::Http10 {
        return Err(fault(FaultKind::TransferEncodingOldVersion));
    }
    let mut chunked = false;
    let mut others = false;
    for coding in fields.all_known(Known::TransferEncoding).flat_map(grammar::list) {
        let is_token = !coding.is_empty() && coding.iter().all(|&byte| grammar::is(byte, TOKEN));
        // Nothing may follow `chunked`, itself included.
        if chunked || !is_token {
            return Err(fault(FaultKind::TransferEncoding));
        }
        if coding.eq_ignore_ascii_case(b"chunked") {
            chunked = true;
        } else {
            others = true;
        }
    }
    match (chunked, others) {
        (true, false) => Ok(()),
        (true, true) => Err(fault(FaultKind::TransferCodingUnknown)),
        (false, _) => Err(fault(FaultKind::TransferEncoding)),
    }
}

#[cold]
fn at(kind: FaultKind, at: u32) -> PeerFault {
    PeerFault::new(kind, at as usize, Found::This)
}
