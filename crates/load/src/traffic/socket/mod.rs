//! What WebSockets are opened with and what is sent over them: a handshake and a message, compiled once.
//!
//! The handshake's head comes of `h1::RequestEncoder` and `ws::Opening`, as that of a request does; where its key stands it is
//! cut, since each connection has a key of its own. Knows neither frames nor connections.

#[cfg(test)]
mod tests;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use ringmain_wire::h1::{Framing, ResponseHead};
use ringmain_wire::ws::{Deflation, HandshakeFault, Kind, Opening};

use super::Sequence;
use super::compile::{Head, body_length, body_pieces};
use super::draft::{Body, Request};
use super::error::{Part, Problem};
use super::template::{Names, Piece};
use super::values::Values;
use crate::limits;
use crate::plan::{Messages, Protocol};

/// Bytes of a handshake's random number (RFC 6455 §4.1).
pub(crate) const NONCE_BYTES: usize = 16;

/// The same in base64.
const KEY_BYTES: usize = 24;

/// Headers that the handshake itself has.
const OURS: [&str; 4] = [
    "Sec-WebSocket-Key",
    "Sec-WebSocket-Version",
    "Sec-WebSocket-Accept",
    "Sec-WebSocket-Extensions",
];

/// What is spoken over WebSockets.
#[derive(Clone, Debug)]
pub struct Socket {
    /// The head up to the key, and what follows that.
    before: Box<[Piece]>,
    after: Box<[u8]>,
    protocols: Box<[String]>,
    deflation: Option<Deflation>,
    content: Content,
}

/// What a message holds.
#[derive(Clone, Debug)]
pub(crate) enum Content {
    /// So many bytes that tell it from others, if there are enough; binary.
    Marked(u32),
    /// The same text each time.
    Text(Box<str>),
    /// The same bytes each time.
    Binary(Bytes),
    /// Text with tokens.
    Template(Template),
}

/// Text with tokens.
#[derive(Clone, Debug)]
pub(crate) struct Template {
    pieces: Box<[Piece]>,
    most: u32,
}

impl Socket {
    /// Of `request` the target, the host and the headers open each connection; `Sec-WebSocket-Protocol` among them says which
    /// subprotocols are offered. The body is the message: text, or bytes sent as binary, or, if there is none, `bytes` of
    /// binary that tell messages apart.
    ///
    /// # Errors
    /// A part of the request that cannot be sent; a message of more than [`limits::ECHO_BYTES`]; a header that the handshake
    /// has itself.
    pub(super) fn new(request: &Request, bytes: u32, deflate: bool) -> Result<Socket, Problem> {
        let names = Names::new();
        let mut head = Head::new(request, &names)?;
        let protocols = protocols(request, &mut head)?;
        let deflation = deflate.then_some(Deflation::SHARED);
        let offered: Vec<&str> = protocols.iter().map(String::as_str).collect();
        let nonce = [0; NONCE_BYTES];
        let opening = Opening::new(nonce, &offered, deflation).map_err(|misuse| {
            let at = header(request, "Sec-WebSocket-Protocol").unwrap_or_default();
            Problem::new(Part::Header(at), "names of subprotocols", misuse.to_string())
        })?;
        let bytes_of_head = head.encode(request, |mut encoder| {
            opening.write_fields(&mut encoder)?;
            encoder.finish_with_upgrade(Framing::None, b"websocket")
        })?;
        // The last one: nothing that the user wrote stands behind it but names of subprotocols, which have no `=`.
        let at = memchr::memmem::rfind(&bytes_of_head, &key(nonce)).expect("the handshake has its key");
        Ok(Socket {
            before: head.cut(&bytes_of_head[..at]),
            after: bytes_of_head[at + KEY_BYTES..].into(),
            content: Content::new(&request.body, bytes, &names)?,
            protocols,
            deflation,
        })
    }

    /// What a message holds.
    pub(crate) fn content(&self) -> &Content {
        &self.content
    }

    /// Whether messages are text or binary.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match &self.content {
            Content::Marked(_) | Content::Binary(_) => Kind::Binary,
            Content::Text(_) | Content::Template(_) => Kind::Text,
        }
    }

    /// What a plan says of it.
    #[must_use]
    pub fn protocol(&self) -> Protocol {
        Protocol::WebSocket(Messages {
            text: self.kind() == Kind::Text,
            bytes: self.most_bytes(),
            deflate: self.deflation.is_some(),
        })
    }

    /// Bytes of a message at most.
    #[must_use]
    pub fn most_bytes(&self) -> u32 {
        match &self.content {
            Content::Marked(bytes) => *bytes,
            Content::Text(text) => text.len() as u32,
            Content::Binary(bytes) => bytes.len() as u32,
            Content::Template(template) => template.most,
        }
    }

    /// Appends a handshake with the key of `nonce`.
    pub(crate) fn write_opening(
        &self,
        out: &mut Vec<u8>,
        nonce: [u8; NONCE_BYTES],
        random: &mut fastrand::Rng,
        sequence: &mut Sequence,
    ) {
        let values = Values::default();
        for piece in &self.before {
            piece.write(out, &values, random, sequence);
        }
        out.extend_from_slice(&key(nonce));
        out.extend_from_slice(&self.after);
    }

    /// What the server agreed to in its answer to the handshake with the key of `nonce`.
    pub(crate) fn conclude(
        &self,
        nonce: [u8; NONCE_BYTES],
        head: &ResponseHead<'_>,
    ) -> Result<Option<Deflation>, HandshakeFault> {
        let offered: Vec<&str> = self.protocols.iter().map(String::as_str).collect();
        let opening = Opening::new(nonce, &offered, self.deflation).expect("it was made before");
        opening.conclude(head).map(|opened| opened.deflation)
    }
}

impl Content {
    fn new(body: &Body, bytes: u32, names: &Names) -> Result<Content, Problem> {
        let pieces = body_pieces(body, names)?;
        let (_, most) = body_length(&pieces);
        if most > limits::ECHO_BYTES as usize {
            let expected = format!("a message of at most {} bytes", limits::ECHO_BYTES);
            return Err(Problem::new(Part::Body, expected, format!("{most}")));
        }
        Ok(match (body, pieces.as_slice()) {
            (Body::None, _) => Content::Marked(bytes),
            (Body::Bytes(bytes), _) => Content::Binary(bytes.clone()),
            (_, []) => Content::Text(Box::default()),
            (_, [Piece::Literal(text)]) => {
                let text = String::from_utf8(text.to_vec());
                Content::Text(text.expect("it was a text").into())
            }
            _ => Content::Template(Template {
                pieces: pieces.into(),
                most: most as u32,
            }),
        })
    }
}

impl Template {
    /// Appends a message.
    pub(crate) fn write(&self, out: &mut Vec<u8>, random: &mut fastrand::Rng, sequence: &mut Sequence) {
        let values = Values::default();
        for piece in &self.pieces {
            piece.write(out, &values, random, sequence);
        }
    }
}

/// The key of a nonce (RFC 6455 §4.1).
fn key(nonce: [u8; NONCE_BYTES]) -> [u8; KEY_BYTES] {
    let mut key = [0; KEY_BYTES];
    let written = STANDARD.encode_slice(nonce, &mut key);
    debug_assert_eq!(written, Ok(KEY_BYTES));
    key
}

fn header(request: &Request, name: &str) -> Option<usize> {
    let mut headers = request.headers.iter();
    headers.position(|(other, _)| other.eq_ignore_ascii_case(name))
}

/// Takes the subprotocols out of the headers: the handshake writes them.
fn protocols(request: &Request, head: &mut Head) -> Result<Box<[String]>, Problem> {
    for name in OURS {
        if let Some(index) = header(request, name) {
            let expected = "a header that the handshake does not write itself";
            return Err(Problem::new(Part::Header(index), expected, format!("`{name}`")));
        }
    }
    let mut protocols = Vec::new();
    for (index, (name, value)) in request.headers.iter().enumerate() {
        if name.eq_ignore_ascii_case("Sec-WebSocket-Protocol") {
            protocols.extend(value.split(',').map(|name| name.trim().to_owned()));
            head.skip(index);
        }
    }
    Ok(protocols.into())
}
