//! What a peer may make this codec read. Every limit with its unit and what happens beyond it.

/// Limits of one body. There is no decoder without them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a message as it comes. More: [`FaultKind::MessageTooLarge`](super::FaultKind), known from its prefix. Inflating has a
    /// limit of its own.
    pub message_bytes: u32,
    /// Bytes of gRPC-Web's trailers. More: `TrailersTooLarge`, known from their prefix.
    pub trailer_bytes: u32,
}

impl Limits {
    /// What other implementations have by default, so that peers are used to it.
    pub const INTERNET: Self = Self {
        message_bytes: 4 * 1024 * 1024,
        trailer_bytes: 16 * 1024,
    };
}

impl Default for Limits {
    fn default() -> Self {
        Self::INTERNET
    }
}
