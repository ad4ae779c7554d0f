//! Header blocks, one after the other on one connection: ours against `fluke-hpack`. What ours takes as a request, the other must
//! take, and read the same fields.
//!
//! An input is blocks, each behind a byte that says its length.

use std::time::Duration;

use ringmain_wire::h2::{Connection, Event, HeadBuffer, Limits, PREFACE, Role};

/// Blocks of an input.
const BLOCKS: usize = 64;

/// Laws: no panic; the other reads what ours reads.
///
/// # Panics
/// When a law is broken.
pub fn run(input: &[u8]) {
    let limits = Limits {
        streams: BLOCKS as u32,
        ..Limits::INTERNET
    };
    let mut out = Vec::new();
    let mut connection = Connection::new(Role::Server, &limits, Duration::ZERO, &mut out);
    let mut heads = HeadBuffer::new(&limits);
    let mut theirs = fluke_hpack::Decoder::new();
    let opening = [PREFACE, &[0, 0, 0, 4, 0, 0, 0, 0, 0][..]].concat();
    let opened = connection.receive(&opening, Duration::ZERO, &mut heads, &mut out);
    assert!(opened.is_ok());
    let mut rest = input;
    for count in 0..BLOCKS as u32 {
        let Some((&length, behind)) = rest.split_first() else {
            return;
        };
        let (block, behind) = behind.split_at(behind.len().min(usize::from(length)));
        rest = behind;
        let mut frame = vec![0, 0, block.len() as u8, 1, 5];
        frame.extend_from_slice(&(1 + 2 * count).to_be_bytes());
        frame.extend_from_slice(block);
        let Ok(step) = connection.receive(&frame, Duration::ZERO, &mut heads, &mut out) else {
            // No block: the other is more lenient about some.
            return;
        };
        // Whatever is said of its fields, the table goes on.
        let fields = theirs.decode(block);
        let Event::Request { head, .. } = step.event else {
            if fields.is_err() {
                return;
            }
            continue;
        };
        let fields = fields.unwrap_or_else(|error| panic!("{error:?}: {}", block.escape_ascii()));
        // Cookies are joined, the pseudo-header fields are elsewhere, a length that is said twice is once.
        let plain = |name: &[u8]| name != b"cookie" && name != b"content-length" && !name.starts_with(b":");
        let ours: Vec<_> = head.fields.iter().filter(|field| plain(field.name)).collect();
        let other: Vec<_> = fields.iter().filter(|(name, _)| plain(name)).collect();
        assert_eq!(ours.len(), other.len(), "{}", block.escape_ascii());
        for (one, (name, value)) in ours.iter().zip(other) {
            assert_eq!((one.name, one.value), (&name[..], &value[..]));
        }
        let path = fields.iter().find(|(name, _)| name == b":path");
        if let Some((_, path)) = path {
            assert_eq!(head.target_text.as_bytes(), &path[..]);
        }
    }
}
