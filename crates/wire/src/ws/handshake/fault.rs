//! What a peer can do wrong in the opening handshake, with the status that answers it.

use std::fmt;

use super::{PROTOCOL, VERSION, VERSIONS};
use crate::faults::faults;
use crate::h1::{Misuse, ResponseEncoder};

/// A peer's head opens no WebSocket.
///
/// *What to do*: as a server answer [`status`](HandshakeFaultKind::status) with the fields of
/// [`write_fields`](Self::write_fields); as a client close (a gateway answers its own client 502).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HandshakeFault {
    /// The rule.
    pub kind: HandshakeFaultKind,
}

// The one table of faults: the status that answers it, what was expected, where that stands.
faults! {
    /// The rules of the opening handshake.
    enum HandshakeFaultKind;

    /// A method other than GET.
    Method 405 "GET" "RFC 6455 §4.1",
    /// HTTP/1.0, which cannot switch.
    HttpVersion 400 "HTTP/1.1" "RFC 6455 §4.1",
    /// A request with content: recipients differ about where the frames begin.
    Content 400 "a request without content" "RFC 9112 §6",
    /// No `Upgrade` to `websocket`.
    Upgrade 426 "`Upgrade: websocket`" "RFC 6455 §4.2.1",
    /// `Upgrade` without `Connection: upgrade`.
    Connection 400 "`Connection: upgrade`" "RFC 6455 §4.2.1",
    /// No `Sec-WebSocket-Version`, or not 13.
    Version 426 "`Sec-WebSocket-Version: 13`" "RFC 6455 §4.4",
    /// The same over HTTP/2, where no status says which protocol would do.
    VersionOther 400 "`sec-websocket-version: 13`" "RFC 6455 §4.4, RFC 8441 §5",
    /// Two of it.
    VersionRepeated 400 "one Sec-WebSocket-Version" "RFC 6455 §11.3.5",
    /// Not exactly one `Sec-WebSocket-Key`, or not of 16 bytes in base64.
    Key 400 "one Sec-WebSocket-Key of 16 bytes in base64" "RFC 6455 §4.2.1",
    /// `Sec-WebSocket-Protocol` that is no list of different tokens.
    Protocols 400 "different subprotocols, each a token" "RFC 6455 §4.1",
    /// `Sec-WebSocket-Extensions` that does not follow its grammar.
    Extensions 400 "extensions and their parameters, each a token" "RFC 6455 §9.1",
    /// A response that does not switch.
    Status 502 "status 101" "RFC 6455 §4.1",
    /// A switch to something else.
    UpgradeOther 502 "`Upgrade: websocket` and `Connection: upgrade` in the response" "RFC 6455 §4.1",
    /// Not exactly one `Sec-WebSocket-Accept`, or not the one for our key.
    Accept 502 "the Sec-WebSocket-Accept of our key" "RFC 6455 §4.1",
    /// A subprotocol that was not asked for.
    ProtocolUnasked 502 "a subprotocol that was asked for, or none" "RFC 6455 §4.1",
    /// An extension that was not offered, or not so.
    ExtensionUnasked 502 "no extension but as it was offered" "RFC 6455 §9.1",
}

impl HandshakeFaultKind {
    /// The status with which a server answers, or a gateway whose server it was.
    #[must_use]
    pub const fn status(self) -> u16 {
        self.row().0
    }
}

impl HandshakeFault {
    /// Adds to the answer's head what its status asks for: 426 names the protocol and the version that would do, 405
    /// the method.
    ///
    /// # Errors
    /// `FramingField` if `head` has another status.
    pub fn write_fields(&self, head: &mut ResponseEncoder<'_>) -> Result<(), Misuse> {
        match self.kind.status() {
            405 => head.field("Allow", b"GET"),
            426 => {
                head.offer_upgrade(PROTOCOL)?;
                head.field(VERSIONS, VERSION)
            }
            _ => Ok(()),
        }
    }
}

impl fmt::Display for HandshakeFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (status, expected, section) = self.kind.row();
        write!(
            f,
            "expected {expected}; found {:?} ({section}; answer {status})",
            self.kind
        )
    }
}

impl std::error::Error for HandshakeFault {}

impl From<HandshakeFaultKind> for HandshakeFault {
    fn from(kind: HandshakeFaultKind) -> Self {
        Self { kind }
    }
}
