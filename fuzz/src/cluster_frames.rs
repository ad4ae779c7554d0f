//! Frames between the nodes of a push cluster.
//!
//! The first two bytes of an input determine where the rest is cut.

use ringmain_cluster::frame::{Frame, FrameDecoder, FrameError};

/// Laws: no panic; a cut changes neither the frames nor the error; a decoded frame is encoded and decoded as the same frame.
///
/// # Panics
/// If a law is broken.
pub fn run(input: &[u8]) {
    let Some((cut, bytes)) = input.split_first_chunk::<2>() else {
        return;
    };
    let cut = usize::from(u16::from_be_bytes(*cut)) % (bytes.len() + 1);
    let whole = decode(&[bytes]);
    assert_eq!(decode(&[&bytes[..cut], &bytes[cut..]]), whole, "cut at {cut}");
    let single: Vec<&[u8]> = bytes.chunks(1).collect();
    assert_eq!(decode(&single), whole, "byte by byte");
    for frame in whole.0 {
        let mut encoded = Vec::new();
        frame.encode(&mut encoded);
        let (frames, error) = decode(&[&encoded]);
        assert_eq!((frames, error), (vec![frame], None), "encoded again");
    }
}

/// Returns the frames, and the error that follows them.
fn decode(parts: &[&[u8]]) -> (Vec<Frame>, Option<FrameError>) {
    let mut decoder = FrameDecoder::default();
    let mut frames = Vec::new();
    for part in parts {
        decoder.feed(part);
        loop {
            match decoder.next_frame() {
                Ok(Some(frame)) => frames.push(frame),
                Ok(None) => break,
                Err(error) => return (frames, Some(error)),
            }
        }
    }
    (frames, None)
}
