//! What a peer can do wrong once frames flow, with the close code that tells it. The opening handshake has a table
//! of its own, the caller's faults are `Misuse`.

use std::fmt;

use super::close::CloseCode;
use crate::faults::faults;

/// A peer broke a rule or a limit. Nothing more is read from it.
///
/// *What to do*: if a Close may still be sent, send one with [`close_code`](Self::close_code), then disconnect without
/// waiting for an answer (RFC 6455 §7.1.7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerFault {
    /// The rule.
    pub kind: FaultKind,
    /// Where: bytes from the end of the opening handshake to the start of the frame.
    pub at: u64,
    /// What stood there.
    pub found: Found,
}

/// What was found where something else was expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// A byte of a frame's header.
    Byte(u8),
    /// A number, such as a length or a close code.
    Number(u64),
    /// More than this many bytes or frames, as the kind says.
    MoreThan(u64),
    /// What the kind's name says: nothing to add.
    This,
}

// The one table of faults: the close code that answers it, what was expected, where that stands.
faults! {
    /// The rules.
    enum FaultKind;

    /// A reserved bit that no extension gave a meaning here.
    ReservedBits 1002 "reserved bits of 0, but RSV1 on the first frame of a deflated message" "RFC 6455 §5.2",
    /// An opcode that has no meaning.
    Opcode 1002 "opcode 0, 1, 2, 8, 9 or 10" "RFC 6455 §5.2",
    /// A control frame without FIN.
    ControlFragmented 1002 "control frames in one piece" "RFC 6455 §5.5",
    /// A control frame of more than 125 bytes.
    ControlTooLong 1002 "control frames of at most 125 bytes" "RFC 6455 §5.5",
    /// A continuation while no message is under way.
    ContinuationAlone 1002 "text or binary: no message is under way" "RFC 6455 §5.4",
    /// A new message in the middle of one.
    MessageInMessage 1002 "a continuation: a message is under way" "RFC 6455 §5.4",
    /// A client's frame without a mask.
    MaskMissing 1002 "masked frames from a client" "RFC 6455 §5.1",
    /// A server's frame with a mask.
    MaskForbidden 1002 "frames without a mask from a server" "RFC 6455 §5.1",
    /// A length in more bytes than it needs.
    LengthNotMinimal 1002 "a length in as few bytes as it fits" "RFC 6455 §5.2",
    /// A length of 2⁶³ or more.
    LengthHighBit 1002 "a length below 2^63" "RFC 6455 §5.2",
    /// A Close with a payload of one byte.
    CloseLength 1002 "a Close without payload, or with a code of two bytes" "RFC 6455 §5.5.1",
    /// A close code that may not be sent.
    CloseCode 1002 "a close code of 1000 to 1003, 1007 to 1014 or 3000 to 4999" "RFC 6455 §7.4",
    /// A close reason that is not UTF-8.
    CloseReason 1007 "a close reason in UTF-8" "RFC 6455 §5.5.1",
    /// A text message that is not UTF-8.
    Text 1007 "text in UTF-8" "RFC 6455 §8.1",
    /// A deflated message that does not inflate.
    Deflate 1007 "blocks that DEFLATE knows" "RFC 7692 §7.2.2",
    /// A data frame beyond its limit.
    FrameTooLarge 1009 "data frames within their limit of bytes" "RFC 6455 §10.4",
    /// A message beyond its limit, inflated.
    MessageTooLarge 1009 "messages within their limit of bytes" "RFC 6455 §10.4",
    /// More control frames and empty fragments than the budget.
    TooManyControlFrames 1008 "control frames and empty fragments within their budget" "RFC 6455 §10.4",
    /// The connection ended without a Close. 1006 is for logs; nothing can be sent.
    Truncated 1006 "a Close before the end of the connection" "RFC 6455 §7.1.5",
}

impl FaultKind {
    /// The code of the Close that tells the peer; `None` if there is nobody to tell.
    #[must_use]
    pub const fn close_code(self) -> Option<CloseCode> {
        CloseCode::new(self.row().0)
    }
}

impl PeerFault {
    /// The code of the Close that tells the peer; `None` if there is nobody to tell.
    #[must_use]
    pub const fn close_code(&self) -> Option<CloseCode> {
        self.kind.close_code()
    }
}

impl fmt::Display for PeerFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (code, expected, section) = self.kind.row();
        write!(f, "in the frame at byte {}: expected {expected}; found ", self.at)?;
        match self.found {
            Found::Byte(byte) => write!(f, "{byte:#04x}")?,
            Found::Number(number) => write!(f, "{number}")?,
            Found::MoreThan(limit) => write!(f, "more than {limit}")?,
            Found::This => write!(f, "{:?}", self.kind)?,
        }
        write!(f, " ({section}; close {code})")
    }
}

impl std::error::Error for PeerFault {}
