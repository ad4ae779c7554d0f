//! What a peer may make this codec read or do. Every limit with its unit and what happens beyond it.

/// Limits of one connection. There is no decoder without them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Payload bytes of a data frame, as on the wire. More: [`FaultKind::FrameTooLarge`](super::FaultKind), 1009,
    /// known from the header.
    pub frame_bytes: u64,
    /// Bytes of a message, all fragments together and inflated. More: `MessageTooLarge`, 1009, at the latest after
    /// one more piece was inflated; never handed out.
    pub message_bytes: u64,
    /// Control frames and empty fragments between two calls of
    /// [`renew_budget`](super::Decoder::renew_budget): they cost work and bring nothing. More:
    /// `TooManyControlFrames`, 1008.
    pub control_frames: u32,
}

impl Limits {
    /// Sensible for a server that faces the internet and renews the budget every second or so.
    pub const INTERNET: Self = Self {
        frame_bytes: 1024 * 1024,
        message_bytes: 1024 * 1024,
        control_frames: 100,
    };
}

impl Default for Limits {
    fn default() -> Self {
        Self::INTERNET
    }
}

const _: () = assert!(
    Limits::INTERNET.frame_bytes <= Limits::INTERNET.message_bytes,
    "a frame is part of a message"
);
