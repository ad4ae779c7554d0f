//! What a peer can do wrong in HTTP/2, with the error code that tells it and how much is lost by it. The caller's faults are
//! `Misuse`.

use std::fmt;

use super::code::ErrorCode;
use crate::faults::faults;

/// A peer broke a rule or a limit.
///
/// *What to do*: nothing has to be sent, the RST_STREAM or GOAWAY is in the output already. With [`Scope::Connection`] nothing more
/// is read: send what is there, then close. With [`Scope::Stream`] the stream is gone and the connection lives on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerFault {
    /// The rule.
    pub kind: FaultKind,
    /// What is lost.
    pub scope: Scope,
}

/// What a fault ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// The whole connection.
    Connection,
    /// One stream, by its number.
    Stream(u32),
}

// The one table of faults: the error code that answers it, what was expected, where that stands.
faults! {
    /// The rules.
    enum FaultKind;

    /// The connection does not begin with the preface.
    Preface 1 "the client's connection preface" "RFC 9113 §3.4",
    /// The first frame is no SETTINGS.
    SettingsFirst 1 "SETTINGS as the first frame" "RFC 9113 §3.4",
    /// A frame beyond the size that was agreed on.
    FrameTooLarge 6 "frames of at most 16,384 bytes" "RFC 9113 §4.2",
    /// A frame whose length its type does not have.
    FrameSize 6 "a length that fits the frame's type" "RFC 9113 §4.2",
    /// A frame of a stream on the connection, or the other way round.
    FrameStream 1 "a stream where the frame's type has one, and none elsewhere" "RFC 9113 §6",
    /// More padding than payload.
    Padding 1 "padding within the frame" "RFC 9113 §6.1",
    /// Another frame in the middle of a header block, or a CONTINUATION without one.
    Continuation 1 "CONTINUATION of the block that has begun, and only there" "RFC 9113 §6.10",
    /// A frame on a stream that nobody has opened.
    StreamIdle 1 "a stream that was opened" "RFC 9113 §5.1",
    /// A frame on a stream that its sender has ended.
    StreamClosed 5 "no frame on a stream that was ended" "RFC 9113 §5.1",
    /// A stream whose number is not above the ones before, or is the other side's.
    StreamNumber 1 "numbers of streams that grow, odd ones from clients" "RFC 9113 §5.1.1",
    /// More streams at once than were allowed.
    TooManyStreams 7 "no more streams at once than SETTINGS_MAX_CONCURRENT_STREAMS" "RFC 9113 §5.1.2",
    /// A stream that depends on itself.
    SelfDependency 1 "a stream that depends on another" "RFC 7540 §5.3.1",
    /// A value that a setting cannot have.
    Setting 1 "values that the settings can have" "RFC 9113 §6.5.2",
    /// An initial window of 2³¹ bytes or more.
    InitialWindow 3 "an initial window below 2^31" "RFC 9113 §6.5.2",
    /// A window update of 0.
    WindowIncrement 1 "a window update above 0" "RFC 9113 §6.9",
    /// A window of 2³¹ bytes or more.
    WindowOverflow 3 "a window below 2^31" "RFC 9113 §6.9.1",
    /// More data than the window lets through.
    Window 3 "no more data than the window lets through" "RFC 9113 §6.9.1",
    /// A push, which nobody allowed.
    Push 1 "no PUSH_PROMISE: SETTINGS_ENABLE_PUSH is 0" "RFC 9113 §8.4",

    /// A header block that is none.
    HeaderBlock 9 "a header block of whole fields" "RFC 7541 §5",
    /// An index beyond both tables.
    TableIndex 9 "an index of the static or dynamic table" "RFC 7541 §2.3.3",
    /// A change of the table's size where or to what it cannot be.
    TableSizeUpdate 9 "at most two changes of the table's size, at the beginning of a block and within SETTINGS" "RFC 7541 §4.2",

    /// A field name with a capital letter.
    FieldNameCase 1 "field names in lower case" "RFC 9113 §8.2.1",
    /// A field name that is no token.
    FieldName 1 "field names of token characters" "RFC 9113 §8.2.1",
    /// A field value with a control character, or a space at one of its ends.
    FieldValue 1 "field values without control characters and outer spaces" "RFC 9113 §8.2.1",
    /// A field that belongs to a connection of HTTP/1.
    ConnectionField 1 "no field of a connection" "RFC 9113 §8.2.2",
    /// A `TE` that is not `trailers`.
    Te 1 "`te: trailers` or none" "RFC 9113 §8.2.2",
    /// A pseudo-header field that is not known.
    PseudoUnknown 1 "pseudo-header fields that are known" "RFC 9113 §8.3",
    /// A pseudo-header field behind others, in trailers, or in the wrong kind of message.
    PseudoPlace 1 "pseudo-header fields of the message's kind, before others" "RFC 9113 §8.3",
    /// A pseudo-header field that is there twice.
    PseudoRepeated 1 "each pseudo-header field once" "RFC 9113 §8.3",
    /// A pseudo-header field that is not there.
    PseudoMissing 1 "`:method`, `:scheme` and `:path`, or `:status`" "RFC 9113 §8.3.1",
    /// A method that is no token.
    Method 1 "a method of token characters" "RFC 9113 §8.3.1",
    /// A scheme that is none.
    Scheme 1 "a scheme" "RFC 9113 §8.3.1",
    /// An authority that is none, or none at all.
    Authority 1 "a host and perhaps a port in `:authority` or `host`" "RFC 9113 §8.3.1",
    /// `:authority` and `host` differ.
    AuthorityHost 1 "`host` as `:authority` says" "RFC 9113 §8.3.1",
    /// A path that is empty or none.
    Path 1 "a path that begins with `/`, or `*` for OPTIONS" "RFC 9113 §8.3.1",
    /// A status that is none, or that HTTP/2 does not have.
    Status 1 "a status of three digits, not 101" "RFC 9113 §8.3.2",
    /// A protocol that is no token, or without CONNECT, or nobody allowed it.
    Protocol 1 "`:protocol` with CONNECT, where SETTINGS_ENABLE_CONNECT_PROTOCOL is 1" "RFC 8441 §4",
    /// CONNECT with a scheme or path, or without `host:port`.
    Connect 1 "CONNECT with `host:port` in `:authority` alone" "RFC 9113 §8.5",
    /// A `Content-Length` that is no number, or says several.
    ContentLength 1 "one `content-length`, a number" "RFC 9113 §8.1.1",
    /// A body of another length than was said.
    ContentLengthSum 1 "a body as long as `content-length` says" "RFC 9113 §8.1.1",
    /// An expectation that is not known.
    Expectation 1 "`expect: 100-continue` or none" "RFC 9110 §10.1.1",
    /// Trailers that do not end the stream, or a second head.
    Trailers 1 "trailers with END_STREAM" "RFC 9113 §8.1",
    /// A field that trailers cannot have.
    TrailerField 1 "trailers without fields that frame or route" "RFC 9110 §6.5.1",
    /// An interim answer that ends the stream.
    InterimEnd 1 "a final answer behind interim ones" "RFC 9113 §8.1",

    /// A head beyond its limit of bytes.
    HeadTooLarge 11 "a head within its limit of bytes" "RFC 9113 §10.5.1",
    /// A head beyond its limit of fields.
    TooManyFields 11 "a head within its limit of fields" "RFC 9113 §10.5.1",
    /// A header block beyond its limit of bytes or frames, whatever it says.
    BlockTooLarge 11 "a header block within its limit of bytes and frames" "RFC 9113 §10.5.1",
    /// More streams given up or broken than the budget.
    TooManyResets 11 "streams given up within their budget" "RFC 9113 §10.5",
    /// More PING, SETTINGS, PRIORITY and unknown frames than the budget.
    TooManyControlFrames 11 "control frames within their budget" "RFC 9113 §10.5",
    /// More window updates than the budget.
    TooManyWindowUpdates 11 "window updates within their budget" "RFC 9113 §10.5",
    /// More empty frames than the budget.
    TooManyEmptyFrames 11 "empty frames within their budget" "RFC 9113 §10.5",
    /// More frames of very little data than the budget.
    TooManySmallFrames 11 "frames of little data within their budget" "RFC 9113 §10.5",
}

impl FaultKind {
    /// The code that tells the peer.
    #[must_use]
    pub const fn code(self) -> ErrorCode {
        ErrorCode(self.row().0 as u32)
    }

    /// Whether it is found in a field's name, whatever its value.
    pub(super) const fn is_of_a_name(self) -> bool {
        matches!(
            self,
            Self::FieldNameCase | Self::FieldName | Self::ConnectionField | Self::PseudoUnknown
        )
    }

    pub(super) const fn of_connection(self) -> PeerFault {
        PeerFault {
            kind: self,
            scope: Scope::Connection,
        }
    }

    pub(super) const fn of_stream(self, id: u32) -> PeerFault {
        PeerFault {
            kind: self,
            scope: Scope::Stream(id),
        }
    }
}

impl PeerFault {
    /// The code that tells the peer.
    #[must_use]
    pub const fn code(&self) -> ErrorCode {
        self.kind.code()
    }
}

impl fmt::Display for PeerFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.scope {
            Scope::Connection => f.write_str("on the connection")?,
            Scope::Stream(id) => write!(f, "on stream {id}")?,
        }
        let (kind, code) = (self.kind, self.code());
        let (expected, section) = (kind.expected(), kind.section());
        write!(f, ": expected {expected}; found {kind:?} ({section}; {code})")
    }
}

impl std::error::Error for PeerFault {}
