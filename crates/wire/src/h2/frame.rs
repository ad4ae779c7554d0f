//! Frame headers (RFC 9113 §4.1). Knows no payload.

/// Bytes of a frame's header.
pub(super) const HEADER: usize = 9;

/// The client's first bytes (RFC 9113 §3.4).
pub const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

pub(super) const DATA: u8 = 0;
pub(super) const HEADERS: u8 = 1;
pub(super) const PRIORITY: u8 = 2;
pub(super) const RST_STREAM: u8 = 3;
pub(super) const SETTINGS: u8 = 4;
pub(super) const PUSH_PROMISE: u8 = 5;
pub(super) const PING: u8 = 6;
pub(super) const GOAWAY: u8 = 7;
pub(super) const WINDOW_UPDATE: u8 = 8;
pub(super) const CONTINUATION: u8 = 9;

pub(super) const ACK: u8 = 1;
pub(super) const END_STREAM: u8 = 1;
pub(super) const END_HEADERS: u8 = 4;
pub(super) const PADDED: u8 = 8;
pub(super) const WITH_PRIORITY: u8 = 0x20;

/// A frame's header.
#[derive(Clone, Copy, Debug)]
pub(super) struct Header {
    pub(super) length: usize,
    pub(super) kind: u8,
    pub(super) flags: u8,
    pub(super) stream: u32,
}

impl Header {
    /// At the start of `input`; `None`: more of it has to come.
    #[inline]
    pub(super) fn read(input: &[u8]) -> Option<Header> {
        let &[a, b, c, kind, flags, s, t, u, v] = input.first_chunk::<HEADER>()?;
        Some(Header {
            length: usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c),
            kind,
            flags,
            // One bit is reserved and ignored.
            stream: u32::from_be_bytes([s & 0x7F, t, u, v]),
        })
    }

    pub(super) fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

/// A header as bytes.
#[inline]
pub(super) fn header(length: usize, kind: u8, flags: u8, stream: u32) -> [u8; HEADER] {
    let [_, a, b, c] = (length as u32).to_be_bytes();
    let [s, t, u, v] = stream.to_be_bytes();
    [a, b, c, kind, flags, s, t, u, v]
}

/// Appends a frame.
pub(super) fn write(kind: u8, flags: u8, stream: u32, payload: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&header(payload.len(), kind, flags, stream));
    out.extend_from_slice(payload);
}

/// Four bytes of a payload as a number.
pub(super) fn number(payload: &[u8]) -> Option<u32> {
    Some(u32::from_be_bytes(*payload.first_chunk::<4>()?))
}
