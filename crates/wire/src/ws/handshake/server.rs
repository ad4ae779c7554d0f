//! The server's side: a request's head in, the fields of the 101 out (RFC 6455 §4.2).

use super::fault::{HandshakeFault, HandshakeFaultKind as Kind};
use super::{ACCEPT, EXTENSIONS, KEY, PROTOCOL, PROTOCOLS, VERSION, VERSIONS, holds, is_token, key, only};
use crate::h1::grammar;
use crate::h1::{Fields, Framing, Known, Method, Misuse, RequestHead, ResponseEncoder, Version};
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
    accept: [u8; key::ACCEPT_BYTES],
    agreement: Option<Agreement>,
}

/// Checks a request's head, and chooses from what the client offers.
///
/// # Errors
/// The first rule of the opening handshake that the client broke.
pub fn accept<'w>(head: &RequestHead<'_>, wish: &ServerWish<'w>) -> Result<Acceptance<'w>, HandshakeFault> {
    let fields = &head.fields;
    check_request(head)?;
    let key = only(fields, KEY)
        .filter(|key| key::is_key(key))
        .ok_or(Kind::Key)?;
    let protocol = protocol(fields, wish.protocols)?;
    let offers = fields.all(EXTENSIONS);
    let agreement = match &wish.deflation {
        Some(wish) => extension::agree(offers, wish),
        None => extension::check(offers).map(|()| None),
    };
    Ok(Acceptance {
        protocol,
        accept: key::accept(key),
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

/// The first of the client's subprotocols that the server knows.
fn protocol<'w>(fields: &Fields<'_>, known: &[&'w str]) -> Result<Option<&'w str>, Kind> {
    let offered = || fields.all(PROTOCOLS).flat_map(grammar::list);
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
        head.field(ACCEPT, &self.accept)?;
        if let Some(protocol) = self.protocol {
            head.field(PROTOCOLS, protocol.as_bytes())?;
        }
        if let Some(agreement) = &self.agreement {
            head.field(EXTENSIONS, agreement.value().as_bytes())?;
        }
        Ok(())
    }
}
