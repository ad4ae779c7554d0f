//! The boundaries of frames in one direction of a WebSocket whose messages are not read: for an intermediary that has to add a frame.

/// Bytes of the longest header (RFC 6455 §5.2).
const HEADER_BYTES: usize = 14;

/// The opcode of a Close frame.
const CLOSE: u8 = 0x8;

/// Follows the frames of a stream of bytes. It checks none: after bytes that are no frames its boundaries mean nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FrameTracker {
    header: [u8; HEADER_BYTES],
    /// Bytes of the current header so far.
    filled: u8,
    /// Bytes of the current payload that are still to follow.
    payload_left: u64,
    has_close: bool,
}

impl FrameTracker {
    /// Processes all bytes.
    pub fn advance(&mut self, bytes: &[u8]) {
        let mut rest = bytes;
        while !rest.is_empty() {
            rest = &rest[self.step(rest)..];
        }
    }

    /// Processes bytes until the first boundary. Returns their number, 0 at a boundary.
    pub fn advance_to_boundary(&mut self, bytes: &[u8]) -> usize {
        let mut used = 0;
        while used < bytes.len() && !self.is_at_boundary() {
            used += self.step(&bytes[used..]);
        }
        used
    }

    /// Returns whether the last byte ended a frame, or none was processed.
    #[must_use]
    pub fn is_at_boundary(&self) -> bool {
        self.filled == 0 && self.payload_left == 0
    }

    /// Returns whether a Close frame has begun: no frame may follow it.
    #[must_use]
    pub fn has_close(&self) -> bool {
        self.has_close
    }

    /// Processes bytes up to the end of the header or the payload, at least one.
    fn step(&mut self, bytes: &[u8]) -> usize {
        if self.payload_left > 0 {
            let count = self.payload_left.min(bytes.len() as u64);
            self.payload_left -= count;
            return count as usize;
        }
        for (index, &byte) in bytes.iter().enumerate() {
            self.header[usize::from(self.filled)] = byte;
            self.filled += 1;
            if self.filled == self.header_length() {
                self.has_close |= self.header[0] & 0x0F == CLOSE;
                self.payload_left = self.payload_length();
                self.filled = 0;
                return index + 1;
            }
        }
        bytes.len()
    }

    /// Returns the length of the header, as far as its first bytes name it.
    fn header_length(&self) -> u8 {
        if self.filled < 2 {
            return 2;
        }
        let length = match self.header[1] & 0x7F {
            126 => 2,
            127 => 8,
            _ => 0,
        };
        let mask = if self.header[1] & 0x80 == 0 { 0 } else { 4 };
        2 + length + mask
    }

    fn payload_length(&self) -> u64 {
        let long = |bytes: &[u8]| {
            bytes
                .iter()
                .fold(0, |length, &byte| length << 8 | u64::from(byte))
        };
        match self.header[1] & 0x7F {
            126 => long(&self.header[2..4]),
            127 => long(&self.header[2..10]),
            short => u64::from(short),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::FrameTracker;

    /// Frames of both roles with each form of the length, the last one a Close frame; and their lengths.
    fn frames() -> (Vec<u8>, Vec<usize>) {
        let mut bytes = Vec::new();
        let mut lengths = Vec::new();
        for (first, payload, mask) in [
            (0x81, 0, false),
            (0x81, 5, true),
            (0x02, 126, false),
            (0x00, 126, true),
            (0x80, 65_536, false),
            (0x82, 65_537, true),
            (0x89, 125, false),
            (0x88, 2, false),
        ] {
            let start = bytes.len();
            let masked = if mask { 0x80 } else { 0 };
            bytes.push(first);
            match payload {
                0..126_usize => bytes.push(masked | payload as u8),
                126..65_536 => {
                    bytes.push(masked | 126);
                    bytes.extend_from_slice(&(payload as u16).to_be_bytes());
                }
                _ => {
                    bytes.push(masked | 127);
                    bytes.extend_from_slice(&(payload as u64).to_be_bytes());
                }
            }
            if mask {
                bytes.extend_from_slice(&[0xFF; 4]);
            }
            bytes.resize(bytes.len() + payload, 0x88);
            lengths.push(bytes.len() - start);
        }
        (bytes, lengths)
    }

    #[test]
    fn boundaries_are_those_of_the_frames_however_the_bytes_are_cut() {
        let (bytes, lengths) = frames();
        for piece in [1, 2, 3, 7, 1000, bytes.len()] {
            let mut tracker = FrameTracker::default();
            let mut boundaries = lengths.iter().scan(0, |end, length| {
                *end += length;
                Some(*end)
            });
            let mut next = boundaries.next();
            let mut at = 0;
            for bytes in bytes.chunks(piece) {
                tracker.advance(bytes);
                at += bytes.len();
                while next.is_some_and(|end| end < at) {
                    next = boundaries.next();
                }
                assert_eq!(
                    tracker.is_at_boundary(),
                    next == Some(at),
                    "pieces of {piece}, byte {at}"
                );
            }
            assert!(tracker.has_close());
        }
    }

    #[test]
    fn a_part_up_to_the_boundary_is_exact() {
        let (bytes, lengths) = frames();
        let mut rest = &bytes[..];
        for (number, length) in lengths.iter().enumerate() {
            let mut tracker = FrameTracker::default();
            tracker.advance(&rest[..1]);
            assert_eq!(
                tracker.advance_to_boundary(&rest[1..]),
                length - 1,
                "frame {number}"
            );
            assert!(tracker.is_at_boundary());
            assert_eq!(tracker.advance_to_boundary(&rest[1..]), 0);
            assert_eq!(tracker.has_close(), number + 1 == lengths.len());
            rest = &rest[*length..];
        }
    }
}
