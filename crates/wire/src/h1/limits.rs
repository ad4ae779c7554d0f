//! What a peer may make this codec read or hold. Every limit with its unit and what happens beyond it.

/// Limits of one connection. There is no codec without them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a whole head, from the first byte (a skipped empty line included) to the empty line at its
    /// end. More: [`FaultKind::HeadTooLarge`](super::FaultKind), 431. The caller must be able to buffer as much.
    pub head_bytes: u32,
    /// Bytes of a request line or status line with its line end. More: `StartLineTooLong`, 414.
    pub start_line_bytes: u32,
    /// Field lines of a head. More: `TooManyFields`, 431. Also the capacity of a
    /// [`FieldTable`](super::FieldTable).
    pub fields: u16,
    /// Bytes of a chunk's size line with its extensions and line end. More: `ChunkLineTooLong`, 400.
    pub chunk_line_bytes: u32,
    /// Bytes of chunk extensions in one body, all chunks together. More: `ChunkExtensionsTooLong`, 400.
    pub chunk_extension_bytes: u32,
    /// Bytes of a trailer section with the empty line at its end. More: `TrailersTooLarge`, 431. The caller
    /// must be able to buffer as much.
    pub trailer_bytes: u32,
    /// Field lines of a trailer section. More: `TooManyTrailers`, 431.
    pub trailer_fields: u16,
    /// Bytes of a body without its framing; `None`: no limit here. More: `BodyTooLarge`, 413, known at once
    /// when the length was declared.
    pub body_bytes: Option<u64>,
    /// Whether `CONNECT` (authority form) is understood. If not: `ConnectRefused`, 501.
    pub connect: bool,
}

impl Limits {
    /// Sensible for a server that faces the internet.
    pub const INTERNET: Self = Self {
        head_bytes: 32 * 1024,
        start_line_bytes: 8 * 1024,
        fields: 100,
        chunk_line_bytes: 256,
        chunk_extension_bytes: 4 * 1024,
        trailer_bytes: 8 * 1024,
        trailer_fields: 32,
        body_bytes: None,
        connect: false,
    };
}

impl Default for Limits {
    fn default() -> Self {
        Self::INTERNET
    }
}

const _: () = {
    let limits = Limits::INTERNET;
    assert!(limits.start_line_bytes < limits.head_bytes);
    assert!(
        limits.trailer_bytes <= limits.head_bytes,
        "a buffer for heads also holds trailers"
    );
    assert!(limits.trailer_fields <= limits.fields);
    // Sixteen digits, a semicolon and CRLF fit at least.
    assert!(limits.chunk_line_bytes >= 19);
};
