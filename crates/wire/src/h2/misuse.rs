//! What a caller can do wrong. What peers do wrong is in `fault`.

use std::fmt;

/// The caller asked for frames that would break the protocol. Nothing was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Misuse {
    /// The stream is over, or was never there.
    NoStream,
    /// Data or trailers before a head, or a second head.
    HeadOrder,
    /// Anything on this side of a stream that was ended.
    Ended,
    /// A status that is none, or 101, which HTTP/2 does not have.
    Status,
    /// A name that is no token, or a value with control characters, or a field of a connection of HTTP/1.
    Field,
    /// A target that does not fit its method, or has no scheme.
    Target,
    /// A server that asks, or a client that answers.
    Role,
    /// More streams at once than the peer takes, or all numbers are used up: ask `can_open` first.
    TooManyStreams,
}

impl fmt::Display for Misuse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoStream => "the stream is over: look at the events before writing to it (RFC 9113 §5.1)",
            Self::HeadOrder => "one head comes first, then data, then trailers (RFC 9113 §8.1)",
            Self::Ended => "this side of the stream was ended (RFC 9113 §5.1)",
            Self::Status => "the status is not between 100 and 999, or is 101 (RFC 9113 §8.3.2)",
            Self::Field => "the field has no token for a name, a control character, or is of a connection (RFC 9113 §8.2)",
            Self::Target => "the request has no scheme, authority or path that fits its method (RFC 9113 §8.3.1)",
            Self::Role => "clients ask and servers answer (RFC 9113 §8.1)",
            Self::TooManyStreams => "the peer takes no more streams: ask `can_open` first (RFC 9113 §5.1.2)",
        })
    }
}

impl std::error::Error for Misuse {}
