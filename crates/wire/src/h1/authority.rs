//! `host [ ":" port ]` (RFC 9110 §4.2, RFC 3986 §3.2), as it stands in `Host` and in targets.
//!
//! Checks and compares: never resolves a name, and never rewrites one.

use std::fmt;
use std::net::Ipv6Addr;

use super::grammar::{self, HEX, REG_NAME};

/// A host and perhaps a port, checked; kept as bytes because nobody may ask for text.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Authority<'a>(&'a [u8]);

impl<'a> Authority<'a> {
    /// Checks `text`; on failure the index of the byte that does not fit.
    #[inline]
    pub(crate) fn new(text: &'a [u8]) -> Result<Self, usize> {
        check(text).map(|()| Self(text))
    }

    /// As [`new`](Self::new), with a port that is not empty: the target of CONNECT (RFC 9110 §9.3.6).
    pub(crate) fn with_port(text: &'a [u8]) -> Result<Self, usize> {
        check_with_port(text).map(|()| Self(text))
    }

    /// As it came, in whatever case: ASCII.
    #[must_use]
    pub fn as_bytes(self) -> &'a [u8] {
        self.0
    }

    /// Whether both name the same host and port: case does not count, and neither does a port that is empty or that of
    /// the scheme (RFC 3986 §6.2.3).
    #[must_use]
    pub fn is_equivalent(self, other: Authority<'_>, scheme: &[u8]) -> bool {
        if self.0.eq_ignore_ascii_case(other.0) {
            return true;
        }
        let default = default_port(scheme);
        let (host, port) = self.split();
        let (other_host, other_port) = other.split();
        host.eq_ignore_ascii_case(other_host) && port.or(default) == other_port.or(default)
    }

    /// The host, and the port if there is one with digits.
    fn split(self) -> (&'a [u8], Option<u32>) {
        // Colons of an IPv6 literal stand before its bracket.
        let colon = self.0.iter().rposition(|&byte| byte == b':');
        match colon {
            Some(colon) if !self.0[colon..].contains(&b']') => {
                let digits = &self.0[colon + 1..];
                let port = digits
                    .iter()
                    .fold(0, |port, &digit| port * 10 + u32::from(digit - b'0'));
                (&self.0[..colon], (!digits.is_empty()).then_some(port))
            }
            _ => (self.0, None),
        }
    }

    /// The same as text.
    #[must_use]
    pub fn as_str(self) -> &'a str {
        str::from_utf8(self.0).expect("every character of an authority is ASCII")
    }
}

/// The port of a scheme (RFC 9110 §4.2.1, §4.2.2).
fn default_port(scheme: &[u8]) -> Option<u32> {
    match scheme {
        scheme if scheme.eq_ignore_ascii_case(b"http") => Some(80),
        scheme if scheme.eq_ignore_ascii_case(b"https") => Some(443),
        _ => None,
    }
}

impl fmt::Debug for Authority<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_str().fmt(f)
    }
}

/// Checks `text`; on failure the index of the byte that does not fit (the length: something is missing).
///
/// User information is refused (RFC 9110 §4.2.4), and so is an empty host (§4.2.1).
#[inline]
fn check(text: &[u8]) -> Result<(), usize> {
    let end = if text.first() == Some(&b'[') {
        ip_literal_end(text)?
    } else {
        reg_name_end(text)?
    };
    match text.get(end) {
        None => Ok(()),
        Some(b':') => check_port(text, end + 1),
        Some(_) => Err(end),
    }
}

fn check_with_port(text: &[u8]) -> Result<(), usize> {
    check(text)?;
    match text.last() {
        Some(b':' | b']') => Err(text.len()),
        // After a checked host only a port follows a colon, and only an IPv6 literal holds other ones.
        _ if text.contains(&b':') => Ok(()),
        _ => Err(text.len()),
    }
}

#[inline]
fn reg_name_end(text: &[u8]) -> Result<usize, usize> {
    let mut end = 0;
    loop {
        end = grammar::class_end(text, end, REG_NAME);
        if text.get(end) != Some(&b'%') {
            break;
        }
        for index in [end + 1, end + 2] {
            if !text.get(index).is_some_and(|&byte| grammar::is(byte, HEX)) {
                return Err(index.min(text.len()));
            }
        }
        end += 3;
    }
    if end == 0 { Err(0) } else { Ok(end) }
}

fn ip_literal_end(text: &[u8]) -> Result<usize, usize> {
    let close = text.iter().position(|&byte| byte == b']').ok_or(text.len())?;
    let inside = str::from_utf8(&text[1..close]).map_err(|error| 1 + error.valid_up_to())?;
    inside.parse::<Ipv6Addr>().map_err(|_| 1_usize)?;
    Ok(close + 1)
}

#[inline]
fn check_port(text: &[u8], from: usize) -> Result<(), usize> {
    let mut port = 0_u32;
    for (index, byte) in text[from..].iter().enumerate() {
        let digit = u32::from(byte.wrapping_sub(b'0'));
        port = port * 10 + digit;
        if digit > 9 || port > u32::from(u16::MAX) {
            return Err(from + index);
        }
    }
    Ok(())
}
