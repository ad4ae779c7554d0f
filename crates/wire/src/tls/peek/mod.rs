//! The first message of a TLS client, read and not answered: which name it asks for and what it offers to speak.
//!
//! ```text
//! bytes from the connection's first one ─▶ HelloScanner::look ─▶ NeedMore │ Hello │ an error
//! ```
//!
//! For whoever passes a connection on to another server by the name in it (RFC 6066 §3). Nothing is decrypted, and nothing of
//! it may be trusted: a client may say any name.
//!
//! *Laws*, each with a test: any cut of the input gives the same outcome; no input panics; memory is bounded by
//! [`limits::HELLO_BYTES`]; each byte is looked at once.

use crate::tls::limits;

#[cfg(test)]
mod tests;

/// What a client's first message says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hello {
    /// The host that it asks for, in small letters and without a final dot. `None`: it does not say.
    pub server_name: Option<String>,
    /// The protocols that it offers (RFC 7301), in its order.
    pub alpn: Vec<Vec<u8>>,
}

/// How far a message has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Looked {
    /// It is not whole.
    NeedMore,
    /// It is.
    Hello(Hello),
}

/// Why there is no such message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoHello {
    /// The connection begins with something else, or with a message that is broken.
    #[error("expected the ClientHello of TLS 1.0 or newer, found {0}")]
    NotTls(&'static str),
    /// It is longer than any client's in use.
    #[error(
        "expected a ClientHello of at most {} bytes, records included, found a longer one",
        limits::HELLO_BYTES
    )]
    TooLong,
}

/// Bytes in front of each record's contents (RFC 8446 §5.1).
const RECORD_HEADER: usize = 5;
/// Contents of a record without encryption.
const RECORD_BYTES: usize = 1 << 14;
/// Bytes in front of a handshake message: its type and its length.
const MESSAGE_HEADER: usize = 4;

const HANDSHAKE: u8 = 22;
const CLIENT_HELLO: u8 = 1;
const SERVER_NAME: u16 = 0;
const HOST_NAME: u8 = 0;
const ALPN: u16 = 16;

/// Reads the message as it comes. Good for one connection.
#[derive(Debug, Default)]
pub struct HelloScanner {
    /// Bytes of the connection that were looked at.
    at: usize,
    header: [u8; RECORD_HEADER],
    /// Bytes of `header` that are there.
    held: usize,
    /// Bytes of the present record that are to come.
    left: usize,
    /// The message so far, out of its records.
    message: Vec<u8>,
}

impl HelloScanner {
    /// One that has seen nothing.
    #[must_use]
    pub fn new() -> HelloScanner {
        HelloScanner::default()
    }

    /// Looks at all that has come so far: `bytes` begins with the connection's first byte each time. What is behind the message
    /// is not looked at.
    ///
    /// # Errors
    /// There will be no such message, whatever comes.
    pub fn look(&mut self, bytes: &[u8]) -> Result<Looked, NoHello> {
        let end = bytes.len().min(limits::HELLO_BYTES);
        while self.at < end {
            if self.left == 0 {
                self.header[self.held] = bytes[self.at];
                self.at += 1;
                self.held += 1;
                self.look_at_header()?;
                continue;
            }
            let count = self.left.min(end - self.at);
            self.message.extend_from_slice(&bytes[self.at..self.at + count]);
            self.at += count;
            self.left -= count;
            if let Some(message) = self.whole()? {
                return read(message).map(Looked::Hello);
            }
        }
        if bytes.len() >= limits::HELLO_BYTES {
            return Err(NoHello::TooLong);
        }
        Ok(Looked::NeedMore)
    }

    /// What of a record's header is there must be one of a handshake: nobody is waited for who speaks something else.
    fn look_at_header(&mut self) -> Result<(), NoHello> {
        match self.held {
            1 if self.header[0] != HANDSHAKE => Err(NoHello::NotTls("other bytes")),
            // SSL 3.0 has the same form; nobody is to speak it (RFC 7568).
            2 if self.header[1] != 3 => Err(NoHello::NotTls("another version")),
            RECORD_HEADER => {
                let length = usize::from(u16::from_be_bytes([self.header[3], self.header[4]]));
                if length == 0 || length > RECORD_BYTES {
                    return Err(NoHello::NotTls("a record of a length that none may have"));
                }
                self.left = length;
                self.held = 0;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// The message without its header, once all of it is there.
    fn whole(&self) -> Result<Option<&[u8]>, NoHello> {
        let kind = self.message.first();
        if kind.is_some_and(|kind| *kind != CLIENT_HELLO) {
            return Err(NoHello::NotTls("another message"));
        }
        let Some((header, body)) = self.message.split_at_checked(MESSAGE_HEADER) else {
            return Ok(None);
        };
        let length = u32::from_be_bytes([0, header[1], header[2], header[3]]) as usize;
        if length > limits::HELLO_BYTES {
            return Err(NoHello::TooLong);
        }
        Ok(body.get(..length))
    }
}

/// A message, from behind its header to its end (RFC 8446 §4.1.2, RFC 5246 §7.4.1.2).
fn read(message: &[u8]) -> Result<Hello, NoHello> {
    const BROKEN: NoHello = NoHello::NotTls("a ClientHello whose lengths are wrong");
    let mut rest = Reader(message);
    let mut hello = Hello::default();
    // Version and random number.
    rest.take(2 + 32).ok_or(BROKEN)?;
    let session = rest.vector8().ok_or(BROKEN)?;
    let suites = rest.vector16().ok_or(BROKEN)?;
    let compressions = rest.vector8().ok_or(BROKEN)?;
    if session.len() > 32 || suites.len() < 2 || suites.len() % 2 != 0 || compressions.is_empty() {
        return Err(BROKEN);
    }
    if rest.0.is_empty() {
        // Clients of TLS 1.2 may have no extensions.
        return Ok(hello);
    }
    let mut extensions = Reader(rest.vector16().ok_or(BROKEN)?);
    if !rest.0.is_empty() {
        return Err(BROKEN);
    }
    let (mut named, mut offered) = (false, false);
    while !extensions.0.is_empty() {
        let kind = extensions.number16().ok_or(BROKEN)?;
        let body = extensions.vector16().ok_or(BROKEN)?;
        match kind {
            SERVER_NAME => {
                once(&mut named)?;
                hello.server_name = server_name(body)?;
            }
            ALPN => {
                once(&mut offered)?;
                hello.alpn = alpn(body)?;
            }
            _ => {}
        }
    }
    Ok(hello)
}

/// RFC 8446 §4.2.
fn once(seen: &mut bool) -> Result<(), NoHello> {
    if std::mem::replace(seen, true) {
        Err(NoHello::NotTls("a ClientHello with one extension twice"))
    } else {
        Ok(())
    }
}

/// RFC 6066 §3: a list in which the only kind of name that there is comes once.
fn server_name(body: &[u8]) -> Result<Option<String>, NoHello> {
    const BROKEN: NoHello = NoHello::NotTls("a ClientHello whose server name is none");
    let mut rest = Reader(body);
    let mut list = Reader(rest.vector16().ok_or(BROKEN)?);
    if !rest.0.is_empty() || list.0.is_empty() {
        return Err(BROKEN);
    }
    let mut found = None;
    while !list.0.is_empty() {
        let kind = list.take(1).ok_or(BROKEN)?[0];
        let name = list.vector16().ok_or(BROKEN)?;
        if kind != HOST_NAME {
            continue;
        }
        let name = name.strip_suffix(b".").unwrap_or(name);
        let fits = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
        if found.is_some()
            || name.is_empty()
            || name.len() > limits::SERVER_NAME_BYTES
            || !name.iter().all(fits)
        {
            return Err(BROKEN);
        }
        found = Some(String::from_utf8_lossy(name).to_ascii_lowercase());
    }
    Ok(found)
}

/// RFC 7301 §3.1.
fn alpn(body: &[u8]) -> Result<Vec<Vec<u8>>, NoHello> {
    const BROKEN: NoHello = NoHello::NotTls("a ClientHello whose list of protocols is none");
    let mut rest = Reader(body);
    let mut list = Reader(rest.vector16().ok_or(BROKEN)?);
    if !rest.0.is_empty() || list.0.is_empty() {
        return Err(BROKEN);
    }
    let mut protocols = Vec::new();
    while !list.0.is_empty() {
        let protocol = list.vector8().filter(|name| !name.is_empty()).ok_or(BROKEN)?;
        protocols.push(protocol.to_vec());
    }
    Ok(protocols)
}

/// Bytes that are taken from the front.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn number16(&mut self) -> Option<u16> {
        let bytes = self.take(2)?;
        Some(u16::from_be_bytes([bytes[0], bytes[1]]))
    }

    /// What has its length in one byte before it.
    fn vector8(&mut self) -> Option<&'a [u8]> {
        let length = self.take(1)?[0];
        self.take(usize::from(length))
    }

    /// The same with two bytes.
    fn vector16(&mut self) -> Option<&'a [u8]> {
        let length = self.number16()?;
        self.take(usize::from(length))
    }
}
