//! Records put together as the kernel would send them: threads' names, processes that start others, the ends of stacks.

use super::Recorder;
use super::spaces::Frame;

/// A record from its parts.
fn record(kind: u32, misc: u16, parts: &[&[u8]]) -> Vec<u8> {
    let body = parts.concat();
    let mut out = kind.to_ne_bytes().to_vec();
    out.extend(misc.to_ne_bytes());
    out.extend(u16::try_from(8 + body.len()).unwrap().to_ne_bytes());
    out.extend(body);
    out
}

fn u32s(numbers: &[u32]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_ne_bytes()).collect()
}

fn u64s(numbers: &[u64]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_ne_bytes()).collect()
}

fn sample(process: u32, thread: u32, chain: &[u64]) -> Vec<u8> {
    let count = u64s(&[chain.len() as u64]);
    record(
        9,
        2,
        &[
            &u64s(&[chain[0]]),
            &u32s(&[process, thread]),
            &u64s(&[1]),
            &count,
            &u64s(chain),
        ],
    )
}

fn named(process: u32, thread: u32, name: &[u8], by_exec: bool) -> Vec<u8> {
    record(
        3,
        u16::from(by_exec) << 13,
        &[&u32s(&[process, thread]), name, b"\0", &[0; 16]],
    )
}

fn started(process: u32, parent: u32, thread: u32, by: u32) -> Vec<u8> {
    record(
        7,
        0,
        &[&u32s(&[process, parent, thread, by]), &u64s(&[1]), &[0; 16]],
    )
}

#[test]
fn threads_have_the_name_of_who_started_them_until_they_take_their_own() {
    let kernel = -128_i64 as u64;
    let user = -512_i64 as u64;
    let mut recorder = Recorder::new(false);
    for bytes in [
        named(1, 1, b"server", true),
        started(1, 1, 2, 1),
        sample(1, 2, &[kernel, 0xffff_8000, 0xffff_9000, user, 0x1000]),
        named(1, 2, b"worker", false),
        sample(1, 2, &[user, 0x1000, 0x2000]),
        sample(9, 9, &[user, 0x1000]),
        record(2, 0, &[&u64s(&[1, 5]), &[0; 16]]),
        record(5, 0, &[&u64s(&[1, 5, 1]), &[0; 16]]),
        record(77, 0, &[&[0; 24]]),
    ] {
        recorder.record(&bytes);
    }
    let found: Vec<_> = recorder.recording.stacks.iter().collect();
    let kernel = [Frame::Kernel(0xffff_8000), Frame::Kernel(0xffff_8fff)];
    let expected: [(&str, &[Frame], u64); 3] = [
        ("server", &[kernel[0], kernel[1], Frame::Nowhere], 1),
        ("worker", &[Frame::Nowhere, Frame::Nowhere], 1),
        ("[unknown]", &[Frame::Nowhere], 1),
    ];
    assert_eq!(found, expected);
    let counts = recorder.recording.counts;
    assert_eq!((counts.samples, counts.lost, counts.throttled), (3, 5, 1));
}

#[test]
fn a_stack_as_deep_as_the_kernel_walks_is_cut() {
    let mut recorder = Recorder::new(false);
    let deep: Vec<u64> = std::iter::once(-512_i64 as u64)
        .chain((1..=127).map(|at| at << 12))
        .collect();
    recorder.record(&sample(1, 1, &deep));
    let (_, frames, _) = recorder.recording.stacks.iter().next().unwrap();
    assert_eq!((frames.len(), frames[127]), (128, Frame::Cut));
    assert_eq!(recorder.recording.counts.cut, 1);
}
