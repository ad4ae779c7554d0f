//! What a caller can do wrong. What peers do wrong is in `fault` and `handshake`.

use std::fmt;

/// The caller asked for bytes that would break the protocol. Nothing was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Misuse {
    /// A frame after Close.
    AfterClose,
    /// A message, or a fragment of the other kind, while a fragmented message is under way.
    MessageOpen,
    /// A server with a source of mask keys, or a client without.
    Mask,
    /// A ping or pong of more than 125 bytes.
    ControlTooLong,
    /// A close reason of more than 123 bytes.
    ReasonTooLong,
    /// A deflated message where permessage-deflate was not agreed on.
    NotNegotiated,
    /// A deflater with a larger window than was agreed on.
    Window,
    /// A message deflated for many, on a connection that keeps a context between messages.
    ContextKept,
    /// A name of a subprotocol that is no token, or is there twice.
    Protocol,
}

impl fmt::Display for Misuse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::AfterClose => "nothing may follow a Close: ask `closing()` first (RFC 6455 §5.5.1)",
            Self::MessageOpen => {
                "a fragmented message is under way: end it with `last` before the next (RFC 6455 §5.4)"
            }
            Self::Mask => "a client gives mask keys, a server gives none (RFC 6455 §5.1)",
            Self::ControlTooLong => "a ping or pong holds at most 125 bytes (RFC 6455 §5.5)",
            Self::ReasonTooLong => "a close reason holds at most 123 bytes (RFC 6455 §5.5.1)",
            Self::NotNegotiated => "permessage-deflate was not agreed on: send the message plain (RFC 7692 §5)",
            Self::Window => {
                "the deflater's window is larger than agreed: use one of at most `own_window` (RFC 7692 §7.1.2)"
            }
            Self::ContextKept => {
                "this connection keeps a deflate context: send it the plain variant (RFC 7692 §7.1.1)"
            }
            Self::Protocol => "subprotocols are different tokens (RFC 6455 §4.1)",
        })
    }
}

impl std::error::Error for Misuse {}
