//! What a peer can do wrong in a body, with the status code that the call ends with. The caller's faults are `Misuse`.

use std::fmt;

use super::code::Code;
use crate::faults::faults;

/// A peer broke a rule or a limit. Nothing more is read of its body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerFault {
    /// The rule.
    pub kind: FaultKind,
    /// Where: bytes from the start of the body (of the message, where it is inflated) to what is at fault.
    pub at: u64,
    /// What stood there.
    pub found: Found,
}

/// What was found where something else was expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// A byte.
    Byte(u8),
    /// A number, such as a length.
    Number(u64),
    /// More than this many bytes.
    MoreThan(u64),
    /// What the kind says.
    This,
}

faults! {
    /// Which rule or limit was broken.
    enum FaultKind;
    /// A flag that is none.
    Flag 13 "a flag of 0 or 1 (128 for trailers of gRPC-Web)" "gRPC over HTTP/2, Length-Prefixed-Message",
    /// A message beyond its limit, as it came or inflated.
    MessageTooLarge 8 "messages within their limit of bytes" "gRPC over HTTP/2, Length-Prefixed-Message",
    /// The body ended within a message.
    Truncated 13 "the rest of the message" "gRPC over HTTP/2, Length-Prefixed-Message",
    /// Something behind the trailers of gRPC-Web.
    AfterTrailers 13 "nothing behind the trailers" "gRPC-Web, Protocol differences",
    /// Trailers of gRPC-Web beyond their limit.
    TrailersTooLarge 8 "trailers within their limit of bytes" "gRPC-Web, Protocol differences",
    /// A line of gRPC-Web's trailers that is none.
    TrailerLine 13 "lines of `name: value`, each with CRLF" "gRPC-Web, Protocol differences",
    /// What is not base64.
    Text 13 "base64 in groups of four, padded" "gRPC-Web, application/grpc-web-text",
    /// The body ended within a group of base64.
    TextTruncated 13 "the rest of a group of base64" "gRPC-Web, application/grpc-web-text",
    /// The compressed flag without an encoding.
    NotEncoded 13 "no compressed message: `grpc-encoding` names no encoding" "gRPC over HTTP/2, Message-Encoding",
    /// A message that is not in its encoding.
    Encoded 13 "a message in its encoding" "gRPC over HTTP/2, Message-Encoding",
}

impl FaultKind {
    /// The status of a call that ends so.
    #[must_use]
    pub fn code(self) -> Code {
        Code::of_number(self.row().0.into())
    }
}

impl PeerFault {
    /// The status of a call that ends so.
    #[must_use]
    pub fn code(&self) -> Code {
        self.kind.code()
    }
}

impl fmt::Display for PeerFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (_, expected, section) = self.kind.row();
        write!(f, "at byte {}: expected {expected}; found ", self.at)?;
        match self.found {
            Found::Byte(byte) => write!(f, "{byte:#04x}")?,
            Found::Number(number) => write!(f, "{number}")?,
            Found::MoreThan(limit) => write!(f, "more than {limit}")?,
            Found::This => write!(f, "{:?}", self.kind)?,
        }
        write!(f, " ({section})")
    }
}

impl std::error::Error for PeerFault {}
