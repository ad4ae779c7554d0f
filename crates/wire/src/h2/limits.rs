//! What a peer may make this codec read, hold or do. Every limit with its unit and what happens beyond it.

use std::time::Duration;

/// Bytes of a dynamic table, either direction, as RFC 7541 §4.1 counts: the default, which is never changed. Its memory is at most
/// about twice that, and nothing on a connection that is not used.
pub const TABLE_BYTES: usize = 4096;

/// Bytes of a frame's payload, either direction: the default, which is never changed.
pub const FRAME_BYTES: usize = 16_384;

/// Streams that a server has reset of which late frames are still ignored: those beyond answer late frames by another reset, which
/// counts in [`Budgets::resets`].
pub const RESET_MEMORY: usize = 64;

/// Streams that a server answers to their end for each reset that they give back. One for one would let a peer pay for costly
/// requests that it resets by cheap ones that it does not.
pub const ANSWERS_PER_RESET: u8 = 8;

/// Streams that a client may reset before their response's head within [`EARLY_RESET_WINDOW`], if these are half of the streams
/// that it has opened in that time or more. Beyond: `TooManyResets`.
pub const EARLY_RESETS: u8 = 100;

/// See [`EARLY_RESETS`].
pub const EARLY_RESET_WINDOW: Duration = Duration::from_mins(1);

/// Limits of one connection. There is no connection without them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a head or of trailers, as RFC 9113 §6.5.2 counts them: 32 beside name and value of each field. More:
    /// [`FaultKind::HeadTooLarge`](super::FaultKind) on the stream (for a request: 431). Announced. Also bounds the header block on
    /// the wire; more of that: `BlockTooLarge` on the connection.
    pub head_bytes: u32,
    /// Fields of a head or of trailers. More: `TooManyFields`, as above.
    pub fields: u16,
    /// CONTINUATION frames of one header block. More: `BlockTooLarge` on the connection.
    pub continuations: u16,
    /// Streams that the peer may have open at once. More: `TooManyStreams` on the stream. Announced.
    pub streams: u32,
    /// Bytes of a body that may come on a stream before the caller has [consumed](super::Connection::consume) any: what the caller
    /// must be able to hold of each. Announced; until the peer has read that, 65,535 may come where this is less (RFC 9113 §6.9.2).
    /// More: `Window` on the stream.
    pub stream_window: u32,
    /// The same of all streams together, at least 65,535. More: `Window` on the connection.
    pub connection_window: u32,
    /// Whether CONNECT is understood. If not: `Connect` on the stream.
    pub connect: bool,
    /// Whether extended CONNECT is (RFC 8441). Announced. If not: `Protocol` on the stream.
    pub extended_connect: bool,
    /// How much work for nothing a peer may make.
    pub budgets: Budgets,
}

/// What may be spent at once, and how much of it comes back each second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// At once.
    pub most: u32,
    /// Each second.
    pub per_second: u32,
}

/// Budgets of what costs work and brings nothing. Beyond each the connection ends with ENHANCE_YOUR_CALM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budgets {
    /// Streams that the peer resets before they are answered, or has reset by breaking a rule. [`ANSWERS_PER_RESET`] streams that
    /// are answered to their end give one back. More: `TooManyResets`.
    pub resets: Rate,
    /// PING, SETTINGS, PRIORITY, late and unknown frames. Each frame of data that is sent, and each stream that is answered, brings one
    /// back: clients measure by pings, and give up what is on its way. More: `TooManyControlFrames`.
    pub control: Rate,
    /// Window updates. Each frame of data that is sent brings two back. More: `TooManyWindowUpdates`.
    pub window_updates: Rate,
    /// Frames that carry nothing: DATA without a byte that ends no stream, CONTINUATION without one. More: `TooManyEmptyFrames`.
    pub empty: Rate,
    /// Frames of less than [`SMALL_DATA`] bytes of data that do not end a stream. Frames of data that are sent, or that bring more
    /// than that, bring some back. More: `TooManySmallFrames`.
    pub small: Rate,
}

/// Bytes of data below which a frame is small: its header and handling weigh more.
pub const SMALL_DATA: usize = 32;

impl Limits {
    /// Sensible for a server that faces the internet.
    pub const INTERNET: Self = Self {
        head_bytes: 32 * 1024,
        fields: 100,
        continuations: 8,
        streams: 256,
        stream_window: 256 * 1024,
        connection_window: 1024 * 1024,
        connect: false,
        extended_connect: false,
        budgets: Budgets {
            resets: Rate {
                most: 100,
                per_second: 10,
            },
            control: Rate {
                most: 1000,
                per_second: 100,
            },
            window_updates: Rate {
                most: 2000,
                per_second: 1000,
            },
            empty: Rate {
                most: 100,
                per_second: 10,
            },
            small: Rate {
                most: 100_000,
                per_second: 50_000,
            },
        },
    };
}

impl Default for Limits {
    fn default() -> Self {
        Self::INTERNET
    }
}

const _: () = {
    let limits = Limits::INTERNET;
    assert!(limits.connection_window >= 65_535 && limits.connection_window < 1 << 31);
    assert!(limits.stream_window < 1 << 31);
    assert!(TABLE_BYTES <= u16::MAX as usize);
};
