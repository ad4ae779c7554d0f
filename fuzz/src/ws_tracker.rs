//! Boundaries of WebSocket frames: the tracker of a proxy, cut anywhere, against a reader that has all bytes at once.
//!
//! The first two bytes of an input are the position of the cut, the rest is one direction of a WebSocket.

use ringmain_wire::ws::FrameTracker;

/// Laws: no panic; a cut changes nothing; boundaries are those of the other reader; what [`FrameTracker::advance_to_boundary`] processes
/// ends at the first of these.
///
/// # Panics
/// If a law is broken.
pub fn run(input: &[u8]) {
    let Some((cut, bytes)) = input.split_first_chunk::<2>() else {
        return;
    };
    let (ends, has_close) = boundaries(bytes);
    let whole = advanced(bytes);
    assert_eq!(
        whole.is_at_boundary(),
        bytes.is_empty() || ends.last() == Some(&bytes.len())
    );
    assert_eq!(whole.has_close(), has_close);

    let cut = usize::from(u16::from_be_bytes(*cut)) % (bytes.len() + 1);
    let mut tracker = advanced(&bytes[..cut]);
    assert_eq!(
        tracker.is_at_boundary(),
        cut == 0 || ends.contains(&cut),
        "cut at {cut}"
    );
    let is_inside = !tracker.is_at_boundary();
    let used = tracker.advance_to_boundary(&bytes[cut..]);
    let next = ends.iter().find(|end| **end > cut && is_inside);
    assert_eq!(
        used,
        next.map_or(if is_inside { bytes.len() - cut } else { 0 }, |end| end - cut)
    );
    tracker.advance(&bytes[cut + used..]);
    assert_eq!(tracker, whole, "cut at {cut}");
}

fn advanced(bytes: &[u8]) -> FrameTracker {
    let mut tracker = FrameTracker::default();
    tracker.advance(bytes);
    tracker
}

/// Returns the ends of the complete frames (RFC 6455 §5.2), and whether the header of a Close frame is complete.
fn boundaries(bytes: &[u8]) -> (Vec<usize>, bool) {
    let (mut ends, mut has_close, mut at) = (Vec::new(), false, 0);
    while let [first, second, ..] = bytes[at..] {
        let (width, mask) = match second & 0x7F {
            126 => (2, second >> 7),
            127 => (8, second >> 7),
            _ => (0, second >> 7),
        };
        let header = 2 + width + 4 * usize::from(mask);
        if bytes.len() - at < header {
            break;
        }
        has_close |= first & 0x0F == 8;
        let mut length = [0; 8];
        length[8 - width..].copy_from_slice(&bytes[at + 2..at + 2 + width]);
        let payload = match width {
            0 => u64::from(second & 0x7F),
            _ => u64::from_be_bytes(length),
        };
        let left = (bytes.len() - at - header) as u64;
        if payload > left {
            break;
        }
        at += header + payload as usize;
        ends.push(at);
    }
    (ends, has_close)
}
