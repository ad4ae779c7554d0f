//! What a caller can do wrong while encoding. What peers do wrong is in `fault`.

use std::fmt;

/// The caller asked for bytes that would not mean what it thinks. Nothing was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Misuse {
    /// A method that is no token.
    Method,
    /// A target with a byte that would end it, or of a form that does not fit the method.
    Target,
    /// A host that is none.
    Host,
    /// A status that does not have three digits, or 101 without a switch.
    Status,
    /// A field name that is no token.
    FieldName,
    /// A field value with CR, LF, NUL or another control character: it would split the message.
    FieldValue,
    /// A field that the encoder writes itself: `Content-Length`, `Transfer-Encoding`, `Connection`,
    /// `Upgrade`, `Host`, and their look-alikes.
    FramingField,
    /// A body where none may be: 1xx, 204, CONNECT and 2xx to it.
    BodyForbidden,
    /// A declared length, or that of a chunk, beyond 2⁶³ − 1: no recipient would take it.
    LengthTooLarge,
    /// `chunked` to an HTTP/1.0 client, who would not understand it.
    ChunkedToOldPeer,
    /// A request that would last until close.
    RequestUntilClose,
    /// More data than the declared length leaves room for.
    BodyTooLong {
        /// Bytes that the length still allowed.
        left: u64,
    },
    /// The body ended before the declared length.
    BodyTooShort {
        /// Bytes missing.
        left: u64,
    },
    /// Data or a second end after the end of the body.
    BodyOver,
    /// Trailers on a body that is not chunked.
    TrailersWithoutChunks,
}

impl fmt::Display for Misuse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Method => "the method is no token: use letters, digits and hyphens (RFC 9110 §9.1)",
            Self::Target => {
                "the target does not fit the method or holds a byte to be percent-encoded (RFC 9112 §3.2)"
            }
            Self::Host => "the host is not `host` or `host:port` (RFC 9110 §7.2)",
            Self::Status => {
                "the status is not between 100 and 999, or is 101 without a switch (RFC 9110 §15)"
            }
            Self::FieldName => "the field name is no token: use letters, digits and hyphens (RFC 9110 §5.1)",
            Self::FieldValue => {
                "the field value holds a control character: it would split the message (RFC 9110 §5.5)"
            }
            Self::FramingField => {
                "the field is written by the encoder: say it by the framing and the exchange"
            }
            Self::BodyForbidden => {
                "a body after 1xx, 204, CONNECT or a 2xx to it: end the head with Framing::None"
            }
            Self::LengthTooLarge => "the length is beyond 2^63 - 1: send Framing::Chunked in smaller pieces",
            Self::ChunkedToOldPeer => {
                "chunked to an HTTP/1.0 client: declare the length or use Framing::UntilClose"
            }
            Self::RequestUntilClose => {
                "a request cannot last until close: declare the length or use Framing::Chunked"
            }
            Self::BodyTooLong { left } => {
                return write!(
                    f,
                    "more data than the {left} bytes that the declared length leaves"
                );
            }
            Self::BodyTooShort { left } => {
                return write!(f, "the body ended {left} bytes before its declared length");
            }
            Self::BodyOver => "data after the end of the body",
            Self::TrailersWithoutChunks => "trailers need Framing::Chunked (RFC 9110 §6.5)",
        })
    }
}

impl std::error::Error for Misuse {}
