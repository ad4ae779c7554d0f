//! The queue against a plain vector of bytes, over random writes, short sends and frozen pieces.

use std::io::IoSlice;

use bytes::Bytes;

use super::Output;
use crate::limits;
use crate::worker::pool::Pool;

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }
}

/// What is in flight, copied, with where it lies.
type InFlight = Vec<(*const u8, Vec<u8>)>;

fn freeze(output: &mut Output) -> InFlight {
    let mut slices = [IoSlice::new(&[]); limits::SEND_PIECES];
    let count = output.freeze(&mut slices);
    slices[..count].iter().map(|s| (s.as_ptr(), s.to_vec())).collect()
}

fn some_bytes(random: &mut Random, most: usize) -> Vec<u8> {
    // Eight at a time: tests are not optimised.
    let len = random.below(most);
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        bytes.extend_from_slice(&random.next().to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

#[test]
fn what_is_sent_is_what_was_written() {
    for seed in 1..400 {
        println!("seed {seed}");
        let mut random = Random(seed);
        let (mut output, mut pool) = (Output::default(), Pool::default());
        let mut expected: Vec<u8> = Vec::new();
        let mut in_flight: Option<InFlight> = None;
        for _ in 0..200 {
            match random.below(4) {
                0 | 1 => {
                    let most = [16, 3000, 40_000][random.below(3)];
                    let bytes = some_bytes(&mut random, most);
                    expected.extend_from_slice(&bytes);
                    if random.below(3) == 0 {
                        output.write_frame(Bytes::from(bytes), random.below(2) == 0, &mut pool);
                    } else {
                        output.write(&bytes, &mut pool);
                    }
                }
                2 if in_flight.is_none() && !output.is_empty() => in_flight = Some(freeze(&mut output)),
                _ => finish(
                    &mut output,
                    &mut pool,
                    &mut expected,
                    in_flight.take(),
                    &mut random,
                ),
            }
            assert_eq!(output.len(), expected.len());
            check_frozen(&output, in_flight.as_ref());
        }
    }
}

/// The memory in flight is where it was and holds what it held.
fn check_frozen(output: &Output, in_flight: Option<&InFlight>) {
    let Some(in_flight) = in_flight else { return };
    let pieces = output
        .head
        .iter()
        .chain(output.tail.iter().flat_map(|tail| tail.iter()));
    let mut skip = output.sent as usize;
    for ((start, bytes), piece) in in_flight.iter().zip(pieces) {
        let now = &piece.bytes()[skip..];
        skip = 0;
        assert_eq!((*start, &bytes[..]), (now.as_ptr(), &now[..bytes.len()]));
    }
}

fn finish(
    output: &mut Output,
    pool: &mut Pool,
    expected: &mut Vec<u8>,
    sent: Option<InFlight>,
    random: &mut Random,
) {
    let Some(sent) = sent else { return };
    let pieces: Vec<_> = sent.into_iter().map(|(_, bytes)| bytes).collect();
    let all = pieces.concat();
    assert!(!all.is_empty() && all.len() <= limits::SEND_BYTES);
    let taken = random.below(all.len() + 1);
    let rest = expected.split_off(taken);
    let wanted = std::mem::replace(expected, rest);
    assert_eq!(&all[..taken], &wanted[..]);
    output.advance(taken, pool);
}

#[test]
fn an_empty_queue_holds_no_memory() {
    let (mut output, mut pool) = (Output::default(), Pool::default());
    for _ in 0..64 {
        output.write(&[7; 5000], &mut pool);
        output.write_frame(Bytes::from_static(b"frame"), false, &mut pool);
    }
    while !output.is_empty() {
        let sent = freeze(&mut output).iter().map(|(_, bytes)| bytes.len()).sum();
        output.advance(sent, &mut pool);
    }
    assert!(output.head.is_none() && output.tail.is_none());
    assert!(size_of::<Output>() <= 64, "{}", size_of::<Output>());
}

#[test]
fn many_small_frames_are_one_send_and_few_are_not_copied() {
    let (mut output, mut pool) = (Output::default(), Pool::default());
    let frames: Vec<Bytes> = (0..100).map(|number| Bytes::from(vec![number; 150])).collect();
    for (number, frame) in frames.iter().enumerate() {
        output.write_frame(frame.clone(), number > 0, &mut pool);
    }
    let sent = freeze(&mut output);
    for (frame, (start, _)) in frames.iter().zip(&sent).take(limits::SHARED_PIECES) {
        assert_eq!(frame.as_ptr(), *start, "shared");
    }
    let all: Vec<u8> = sent.into_iter().flat_map(|(_, bytes)| bytes).collect();
    assert_eq!(all, frames.concat());
    output.advance(all.len(), &mut pool);
    // A large one is not copied, and none that comes alone in its turn.
    for bytes in [1, limits::JOINED_FRAME_BYTES + 1] {
        for _ in 0..limits::SEND_PIECES {
            let frame = Bytes::from(vec![0; bytes]);
            output.write_frame(frame, bytes > 1, &mut pool);
        }
        let sent = freeze(&mut output);
        assert_eq!(sent.len(), limits::SEND_PIECES);
        output.advance(limits::SEND_PIECES * bytes, &mut pool);
    }
}
