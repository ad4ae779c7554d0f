//! What a client's first message says of name and version: rustls tells the name to nobody but the choice of certificates.
//!
//! Reads what rustls reads too, and refuses nothing: what is wrong with a hello is for rustls to say.

use rustls::pki_types::DnsName;

use super::limits::HEADER;

/// Bytes of a message's head: its kind and its length.
const MESSAGE_HEAD: usize = 4;
const HANDSHAKE_RECORD: u8 = 22;
const CLIENT_HELLO: u8 = 1;
const TLS12: u16 = 0x0303;
const SERVER_NAME: u16 = 0;
const HOST_NAME: u8 = 0;

/// A hello that comes in records.
#[derive(Debug, Default)]
pub(super) enum Hello {
    /// What came of it so far: memory only where it is in several records.
    #[default]
    Nothing,
    Part(Vec<u8>),
    /// It was read.
    Read(Said),
}

/// What a hello says.
#[derive(Debug, Default)]
pub(super) struct Said {
    server_name: Option<String>,
    /// Whether its version is below TLS 1.2.
    old: bool,
}

impl Hello {
    /// Looks at one more record, header included, before anybody else changes it.
    pub(super) fn record(&mut self, record: &[u8]) {
        let content = record.get(HEADER..).unwrap_or_default();
        let read = match self {
            Self::Read(_) => return,
            // Not a hello, or not one to wait for: refused by rustls.
            _ if record[0] != HANDSHAKE_RECORD => return,
            Self::Nothing => read(content),
            Self::Part(part) => {
                part.extend_from_slice(content);
                read(part)
            }
        };
        match (read, &mut *self) {
            (Some(said), _) => *self = Self::Read(said),
            (None, Self::Nothing) => *self = Self::Part(content.to_vec()),
            (None, _) => {}
        }
    }

    pub(super) fn server_name(&self) -> Option<&str> {
        match self {
            Self::Read(said) => said.server_name.as_deref(),
            _ => None,
        }
    }

    pub(super) fn is_old(&self) -> bool {
        matches!(self, Self::Read(Said { old: true, .. }))
    }
}

/// What a hello says; `None` as long as it is not whole.
fn read(message: &[u8]) -> Option<Said> {
    let &[kind, a, b, c] = message.get(..MESSAGE_HEAD)? else {
        return None;
    };
    if kind != CLIENT_HELLO {
        return Some(Said::default());
    }
    let length = u32::from_be_bytes([0, a, b, c]) as usize;
    let body = message.get(MESSAGE_HEAD..MESSAGE_HEAD + length)?;
    let old = body
        .first_chunk()
        .is_some_and(|version| u16::from_be_bytes(*version) < TLS12);
    Some(Said {
        server_name: name(body),
        old,
    })
}

/// The name, in lower case. RFC 8446 §4.1.2: version, random, session, suites, compression, extensions.
fn name(body: &[u8]) -> Option<String> {
    let mut rest = body.get(2 + 32..)?;
    take(&mut rest, 1)?;
    take(&mut rest, 2)?;
    take(&mut rest, 1)?;
    let mut extensions = take(&mut rest, 2)?;
    while let Some((&[a, b], mut after)) = extensions.split_first_chunk() {
        let data = take(&mut after, 2)?;
        extensions = after;
        if u16::from_be_bytes([a, b]) == SERVER_NAME {
            return host(data);
        }
    }
    None
}

/// RFC 6066 §3: a list, whose one host name counts.
fn host(mut data: &[u8]) -> Option<String> {
    let mut list = take(&mut data, 2)?;
    while let Some((&kind, mut after)) = list.split_first() {
        let name = take(&mut after, 2)?;
        list = after;
        if kind == HOST_NAME {
            let name = DnsName::try_from(name).ok()?;
            return Some(name.as_ref().to_ascii_lowercase());
        }
    }
    None
}

/// Takes a vector with its length in front, in `width` bytes.
fn take<'a>(rest: &mut &'a [u8], width: usize) -> Option<&'a [u8]> {
    let (length, after) = rest.split_at_checked(width)?;
    let length = length
        .iter()
        .fold(0, |length, &byte| length << 8 | usize::from(byte));
    let (vector, after) = after.split_at_checked(length)?;
    *rest = after;
    Some(vector)
}
