//! The PROXY protocol, versions 1 and 2 (the specification of HAProxy's authors, 2020/03/05): who a connection is from,
//! said by the proxy in front of it, before its first byte.
//!
//! Owns the form. Whether a header may be believed is for who knows where it came from.

#[cfg(test)]
mod tests;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Bytes of the longest header of version 1, its line end included (§2.1).
pub const V1_BYTES: usize = 107;

/// Bytes of the longest header of version 2 that is read: its fixed part and what proxies in use put behind addresses.
pub const V2_BYTES: usize = 16 + 2048;

/// What a header says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Who is connected to whom; `None`: the proxy itself has connected (LOCAL), or it does not say (UNKNOWN, Unix sockets).
    pub addresses: Option<Addresses>,
}

/// The two ends of the client's connection to the proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Addresses {
    /// The client.
    pub from: SocketAddr,
    /// Whom it has connected to.
    pub to: SocketAddr,
}

/// Whether a header is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parsed {
    /// All of it: the connection's own bytes begin `bytes` after the input's start.
    Complete {
        /// The header.
        header: Header,
        /// Its length.
        bytes: usize,
    },
    /// Not yet.
    Partial,
}

/// Why it is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The connection begins with something else.
    #[error("expected a PROXY protocol header, found other bytes")]
    Signature,
    /// The line of version 1 is broken.
    #[error(
        "expected `PROXY TCP4|TCP6 SOURCE DESTINATION PORT PORT`, or `PROXY UNKNOWN`, and CRLF; found something else"
    )]
    Line,
    /// Version 2 with another version, command or protocol.
    #[error("expected version 2, LOCAL or PROXY, and a stream; found code {0:#04x}")]
    Code(u8),
    /// The addresses do not fit into the length.
    #[error("expected addresses of their full length, found {0} bytes")]
    Length(u16),
}

const SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";
const V1: &[u8; 6] = b"PROXY ";

/// Reads the header at the start of `input`. On [`Parsed::Partial`] call again with the same bytes and more.
///
/// # Errors
/// [`Fault`].
pub fn parse(input: &[u8]) -> Result<Parsed, Fault> {
    let begins = |with: &[u8]| input.iter().zip(with).all(|(one, two)| one == two);
    if begins(SIGNATURE) {
        return parse_v2(input);
    }
    if begins(V1) {
        return parse_v1(input);
    }
    Err(Fault::Signature)
}

fn parse_v1(input: &[u8]) -> Result<Parsed, Fault> {
    let window = &input[..input.len().min(V1_BYTES)];
    let Some(end) = window.windows(2).position(|pair| pair == b"\r\n") else {
        return if window.len() == V1_BYTES {
            Err(Fault::Line)
        } else {
            Ok(Parsed::Partial)
        };
    };
    let line = str::from_utf8(&window[..end]).map_err(|_| Fault::Line)?;
    let header = line_v1(line).ok_or(Fault::Line)?;
    Ok(Parsed::Complete {
        header,
        bytes: end + 2,
    })
}

fn line_v1(line: &str) -> Option<Header> {
    let mut words = line.split(' ').skip(1);
    let family = words.next()?;
    if family == "UNKNOWN" {
        return Some(Header { addresses: None });
    }
    let address = |text: Option<&str>| -> Option<IpAddr> {
        match family {
            "TCP4" => text?.parse::<Ipv4Addr>().ok().map(IpAddr::from),
            "TCP6" => text?.parse::<Ipv6Addr>().ok().map(IpAddr::from),
            _ => None,
        }
    };
    let (from, to) = (address(words.next())?, address(words.next())?);
    let mut port = || -> Option<u16> {
        let text = words.next()?;
        let plain = text.bytes().all(|byte| byte.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
        text.parse().ok().filter(|_| plain)
    };
    let (from, to) = (SocketAddr::new(from, port()?), SocketAddr::new(to, port()?));
    let addresses = Some(Addresses { from, to });
    words.next().is_none().then_some(Header { addresses })
}

fn parse_v2(input: &[u8]) -> Result<Parsed, Fault> {
    let Some(fixed) = input.first_chunk::<16>() else {
        return Ok(Parsed::Partial);
    };
    let (command, family) = (fixed[12], fixed[13]);
    if !matches!(command, 0x20 | 0x21) {
        return Err(Fault::Code(command));
    }
    let length = u16::from_be_bytes([fixed[14], fixed[15]]);
    let bytes = fixed.len() + usize::from(length);
    if bytes > V2_BYTES {
        return Err(Fault::Length(length));
    }
    let Some(data) = input.get(fixed.len()..bytes) else {
        return Ok(Parsed::Partial);
    };
    let addresses = match (command, family) {
        (0x20, _) | (_, 0x00 | 0x31 | 0x32) => None,
        (_, 0x11) => Some(data.first_chunk::<12>().map(v4).ok_or(Fault::Length(length))?),
        (_, 0x21) => Some(data.first_chunk::<36>().map(v6).ok_or(Fault::Length(length))?),
        _ => return Err(Fault::Code(family)),
    };
    let header = Header { addresses };
    Ok(Parsed::Complete { header, bytes })
}

fn v4(data: &[u8; 12]) -> Addresses {
    let address = |at: usize| IpAddr::from([data[at], data[at + 1], data[at + 2], data[at + 3]]);
    let port = |at: usize| u16::from_be_bytes([data[at], data[at + 1]]);
    Addresses {
        from: SocketAddr::new(address(0), port(8)),
        to: SocketAddr::new(address(4), port(10)),
    }
}

fn v6(data: &[u8; 36]) -> Addresses {
    let address = |at: usize| {
        let mut octets = [0; 16];
        octets.copy_from_slice(&data[at..at + 16]);
        IpAddr::from(octets)
    };
    let port = |at: usize| u16::from_be_bytes([data[at], data[at + 1]]);
    Addresses {
        from: SocketAddr::new(address(0), port(32)),
        to: SocketAddr::new(address(16), port(34)),
    }
}

impl Header {
    /// Appends it in version 1. Addresses of two families are told as IPv6.
    pub fn write_v1(&self, out: &mut Vec<u8>) {
        let line = match self.addresses.map(Addresses::alike) {
            None => "PROXY UNKNOWN\r\n".to_owned(),
            Some(Addresses { from, to }) => {
                let family = if from.is_ipv4() { "TCP4" } else { "TCP6" };
                let (one, two) = (from.ip(), to.ip());
                format!("PROXY {family} {one} {two} {} {}\r\n", from.port(), to.port())
            }
        };
        out.extend_from_slice(line.as_bytes());
    }

    /// Appends it in version 2.
    pub fn write_v2(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(SIGNATURE);
        let Some(Addresses { from, to }) = self.addresses.map(Addresses::alike) else {
            return out.extend_from_slice(&[0x20, 0, 0, 0]);
        };
        match (from.ip(), to.ip()) {
            (IpAddr::V4(one), IpAddr::V4(two)) => {
                out.extend_from_slice(&[0x21, 0x11, 0, 12]);
                out.extend_from_slice(&one.octets());
                out.extend_from_slice(&two.octets());
            }
            (one, two) => {
                out.extend_from_slice(&[0x21, 0x21, 0, 36]);
                out.extend_from_slice(&v6_of(one).octets());
                out.extend_from_slice(&v6_of(two).octets());
            }
        }
        out.extend_from_slice(&from.port().to_be_bytes());
        out.extend_from_slice(&to.port().to_be_bytes());
    }
}

impl Addresses {
    /// Both of one family, IPv4 if they can be.
    fn alike(self) -> Addresses {
        let plain = |address: SocketAddr| SocketAddr::new(address.ip().to_canonical(), address.port());
        let (from, to) = (plain(self.from), plain(self.to));
        if from.is_ipv4() == to.is_ipv4() {
            return Addresses { from, to };
        }
        let wide = |address: SocketAddr| SocketAddr::new(v6_of(address.ip()).into(), address.port());
        Addresses {
            from: wide(from),
            to: wide(to),
        }
    }
}

fn v6_of(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    }
}
