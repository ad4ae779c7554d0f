//! The server's side: a request's head in, the fields of the 101 out (RFC 6455 §4.2), or of the 200 over HTTP/2 (RFC 8441 §5).

use super::fault::{HandshakeFault, HandshakeFaultKind as Kind};
use super::{ACCEPT, EXTENSIONS, KEY, PROTOCOL, PROTOCOLS, VERSION, VERSIONS, holds, is_token, key, only};
use crate::h1::grammar;
use crate::h1::{FieldBlock, Fields, Framing, Known, Method, Misuse, RequestHead, ResponseEncoder, Version};
use crate::ws::extension::{self, Agreement, Deflation};

/// What a server is willing to speak.
#[derive(Clone, Copy, Debug, Default)]
pub struct ServerWish<'w> {
    /// Subprotocols it knows. The client's order of preference decides.
    pub protocols: &'w [&'w str],
    /// permessage-deflate, and how at most; `None`: never.
    pub deflation: Option<Deflation>,
}

/// A request that opens a WebSocket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acceptance<'w> {
    /// The subprotocol; `None` if the client named none that the server knows. The server may refuse that (400).
    pub protocol: Option<&'w str>,
    /// Over HTTP/2 there is no key, and no answer to one.
    accept: Option<[u8; key::ACCEPT_BYTES]>,
    agreement: Option<Agreement>,
}

/// Checks a request's head, and chooses from what the client offers. Over HTTP/2 it is that of an extended CONNECT, or the
/// [same as a GET](RequestHead::as_upgrade).
///
/// # Errors
/// The first rule of the opening handshake that the client broke.
pub fn accept<'w>(head: &RequestHead<'_>, wish: &ServerWish<'w>) -> Result<Acceptance<'w>, HandshakeFault> {
    let fields = &head.fields;
    let accept = match head.version {
        Version::Http2 => {
            check_stream(head)?;
            None
        }
        Version::Http10 | Version::Http11 => {
            check_request(head)?;
            let key = only(fields, KEY).filter(|key| key::is_key(key));
            Some(key::accept(key.ok_or(Kind::Key)?))
        }
    };
    let protocol = protocol(fields, wish.protocols)?;
    let offers = fields.all(EXTENSIONS);
    let agreement = match &wish.deflation {
        Some(wish) => extension::agree(offers, wish),
        None => extension::check(offers).map(|()| None),
    };
    Ok(Acceptance {
        protocol,
        accept,
        agreement: agreement.map_err(|_| Kind::Extensions)?,
    })
}

fn check_request(head: &RequestHead<'_>) -> Result<(), Kind> {
    let fields = &head.fields;
    if !holds(fields, Known::Upgrade, PROTOCOL) {
        return Err(Kind::Upgrade);
    }
    if head.method != Method::Get {
        return Err(Kind::Method);
    }
    if head.version != Version::Http11 {
        return Err(Kind::HttpVersion);
    }
    if !holds(fields, Known::Connection, b"upgrade") {
        return Err(Kind::Connection);
    }
    if !matches!(head.framing, Framing::None | Framing::Length(0)) {
        return Err(Kind::Content);
    }
    let mut versions = fields.all(VERSIONS);
    match (versions.next(), versions.next()) {
        (Some(VERSION), None) => Ok(()),
        (_, Some(_)) => Err(Kind::VersionRepeated),
        _ => Err(Kind::Version),
    }
}

/// RFC 8441 §5: what says in HTTP/1.1 that a connection is to be switched is not said; the rest is the same.
fn check_stream(head: &RequestHead<'_>) -> Result<(), Kind> {
    let asked = head.protocol.map(str::as_bytes);
    if !asked.is_some_and(|protocol| protocol.eq_ignore_ascii_case(PROTOCOL)) {
        return Err(Kind::Upgrade);
    }
    if matches!(head.framing, Framing::Length(_)) {
        return Err(Kind::Content);
    }
    let mut versions = head.fields.all(VERSIONS);
    match (versions.next(), versions.next()) {
        (Some(VERSION), None) => Ok(()),
        (_, Some(_)) => Err(Kind::VersionRepeated),
        _ => Err(Kind::VersionOther),
    }
}

/// The first of the client's subprotocols that the server knows.
fn protocol<'w>(fields: &Fields<'_>, known: &[&'w str]) -> Result<Option<&'w str>, Kind> {
    // Empty elements count for nothing, and a list of them is none (RFC 9110 §5.6.1.2): some clients send one.
    let offered = || {
        let names = fields.all(PROTOCOLS).flat_map(grammar::list);
        names.filter(|name| !name.is_empty())
    };
    let mut chosen = None;
    for (index, name) in offered().enumerate() {
        // Quadratic in a number that the head's limits bound.
        if !is_token(name) || offered().take(index).any(|other| other == name) {
            return Err(Kind::Protocols);
        }
        if chosen.is_none() {
            chosen = known.iter().find(|known| known.as_bytes() == name);
        }
    }
    Ok(chosen.copied())
}

impl Acceptance<'_> {
    /// permessage-deflate, if it was agreed on: for the decoder and the encoder.
    #[must_use]
    pub fn deflation(&self) -> Option<Deflation> {
        self.agreement.map(|agreement| agreement.deflation)
    }

    /// Adds the handshake's fields to the head of a 101; then [`switch`](ResponseEncoder::switch) to `websocket`.
    ///
    /// # Errors
    /// `FieldValue` if the server's own subprotocol is no field value.
    pub fn write_fields(&self, head: &mut ResponseEncoder<'_>) -> Result<(), Misuse> {
        if let Some(accept) = &self.accept {
            head.field(ACCEPT, accept)?;
        }
        if let Some(protocol) = self.protocol {
            head.field(PROTOCOLS, protocol.as_bytes())?;
        }
        if let Some(agreement) = &self.agreement {
            head.field(EXTENSIONS, agreement.value().as_bytes())?;
        }
        Ok(())
    }

    /// Adds the handshake's fields to those of a 200 over HTTP/2.
    ///
    /// # Errors
    /// `FieldValue` if the server's own subprotocol is no field value.
    pub fn add_fields(&self, fields: &mut FieldBlock) -> Result<(), Misuse> {
        if let Some(protocol) = self.protocol {
            fields.push(PROTOCOLS, protocol.as_bytes())?;
        }
        if let Some(agreement) = &self.agreement {
            fields.push(EXTENSIONS, agreement.value().as_bytes())?;
        }
        Ok(())
    }
}
