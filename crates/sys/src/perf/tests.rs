//! Records as the kernel writes them, byte by byte; and samples of a thread of this test, where the kernel gives them.

use std::hint::black_box;

use super::record::{self, Copied, Mapped, Record, Sample};
use super::ring::split;
use super::{Clock, Counter, Ring, Sampling, UserStack};

/// A record from its parts, each in the machine's order of bytes.
fn bytes(kind: u32, misc: u16, parts: &[&[u8]]) -> Vec<u8> {
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

/// Process, thread and time, as at the end of each record that is no sample.
fn trailer(time: u64) -> Vec<u8> {
    [u32s(&[7, 8]), u64s(&[time])].concat()
}

#[test]
fn a_sample_has_both_parts_of_its_stack() {
    let kernel = -128_i64 as u64;
    let user = -512_i64 as u64;
    let chain = u64s(&[
        6,
        kernel,
        0xffff_ffff_8000_0010,
        0xffff_ffff_8000_0020,
        user,
        0x40_0010,
        0x40_0020,
    ]);
    let record = bytes(
        9,
        1,
        &[
            &u64s(&[0xffff_ffff_8000_0010]),
            &u32s(&[7, 8]),
            &u64s(&[99]),
            &chain,
        ],
    );
    assert_eq!(record::time(&record), Some(99));
    let expected = Sample {
        process: 7,
        thread: 8,
        ip: 0xffff_ffff_8000_0010,
        kernel: vec![0xffff_ffff_8000_0010, 0xffff_ffff_8000_0020],
        user: vec![0x40_0010, 0x40_0020],
        copied: None,
    };
    assert_eq!(record::read(&record, false), Some(Record::Sample(expected)));
}

#[test]
#[cfg(target_arch = "x86_64")]
fn a_copied_stack_is_as_long_as_it_was() {
    let head = [u64s(&[0x40_0010]), u32s(&[7, 8]), u64s(&[99, 0])].concat();
    let registers = u64s(&[2, 0x7fff_0020, 0x7fff_0000, 0x40_0010]);
    let stack = [u64s(&[16]), vec![1; 8], vec![9; 8], u64s(&[8])].concat();
    let record = bytes(9, 2, &[&head, &registers, &stack]);
    let Some(Record::Sample(sample)) = record::read(&record, true) else {
        panic!("it is a sample");
    };
    let expected = Copied {
        ip: 0x40_0010,
        sp: 0x7fff_0000,
        fp: 0x7fff_0020,
        lr: 0,
        stack: &[1; 8],
    };
    assert_eq!(sample.copied, Some(expected));
    // A thread of the kernel has neither registers nor a stack.
    let record = bytes(9, 1, &[&head, &u64s(&[0, 0])]);
    let Some(Record::Sample(sample)) = record::read(&record, true) else {
        panic!("it is a sample");
    };
    assert_eq!(sample.copied, None);
}

#[test]
fn what_happens_to_processes_is_read() {
    let table = [
        (
            bytes(
                10,
                2,
                &[
                    &u32s(&[7, 8]),
                    &u64s(&[0x1000, 0x2000, 0x3000]),
                    &u32s(&[8, 1]),
                    &u64s(&[42, 0]),
                    &u32s(&[5, 2]),
                    b"/bin/a\0\0",
                    &trailer(5),
                ],
            ),
            Record::Mapped(Mapped {
                process: 7,
                start: 0x1000,
                length: 0x2000,
                offset: 0x3000,
                device: (8, 1),
                inode: 42,
                executable: true,
                path: b"/bin/a",
            }),
        ),
        (
            bytes(3, 1 << 13, &[&u32s(&[7, 8]), b"worker\0\0", &trailer(5)]),
            Record::Named {
                process: 7,
                thread: 8,
                name: b"worker",
                by_exec: true,
            },
        ),
        (
            bytes(7, 0, &[&u32s(&[9, 7, 10, 8]), &u64s(&[5]), &trailer(5)]),
            Record::Started {
                process: 9,
                parent: 7,
                thread: 10,
                by: 8,
            },
        ),
        (
            bytes(4, 0, &[&u32s(&[9, 7, 10, 8]), &u64s(&[5]), &trailer(5)]),
            Record::Ended {
                process: 9,
                thread: 10,
            },
        ),
        (bytes(2, 0, &[&u64s(&[1, 12]), &trailer(5)]), Record::Lost(12)),
        (bytes(13, 0, &[&u64s(&[3]), &trailer(5)]), Record::Lost(3)),
        (bytes(5, 0, &[&u64s(&[5, 1, 1]), &trailer(5)]), Record::Throttled),
    ];
    for (bytes, expected) in table {
        assert_eq!(record::read(&bytes, false), Some(expected));
        assert_eq!(record::time(&bytes), Some(5));
        // Cut anywhere, it is nothing or something, and no panic.
        for end in 0..bytes.len() {
            let _ = (record::read(&bytes[..end], true), record::time(&bytes[..end]));
        }
    }
}

#[test]
fn records_are_told_apart_by_their_lengths() {
    let two = [bytes(2, 0, &[&[1; 8]]), bytes(3, 0, &[&[2; 16]])].concat();
    let mut found = Vec::new();
    split(&two, &mut |record| found.push(record.len()));
    assert_eq!(found, [16, 24]);
    // A length that cannot be ends it.
    for wrong in [0_u16, 7, 100] {
        let mut bytes = bytes(2, 0, &[&[1; 8]]);
        bytes[6..8].copy_from_slice(&wrong.to_ne_bytes());
        split(&bytes, &mut |_| panic!("nothing is whole"));
    }
}

/// Works until the kernel has surely taken samples: for so many turns that take far longer than its intervals.
fn work() -> u64 {
    (0..40_000_000_u64).fold(0, |sum, number| black_box(sum ^ number.wrapping_mul(31)))
}

#[test]
fn a_thread_is_sampled() {
    let mut sampling = Sampling {
        clock: Clock::Timer,
        frequency: 1000,
        kernel: false,
        user: UserStack::FramePointers,
        on_exec: false,
        wake_bytes: 1 << 12,
    };
    for user in [UserStack::FramePointers, UserStack::Copied(4096)] {
        sampling.user = user;
        let cpus = crate::cpu::allowed();
        let open = |cpu: &usize| Counter::open(&sampling, None, *cpu as u32);
        let counters = match cpus.iter().map(open).collect::<Result<Vec<_>, _>>() {
            Ok(counters) => counters,
            Err(error) => {
                println!("SKIPPED: the kernel gives no samples here: {error}");
                return;
            }
        };
        let mut rings: Vec<Ring> = counters
            .iter()
            .map(|counter| Ring::map(counter, 1 << 16).unwrap())
            .collect();
        for counter in &counters {
            counter.enable().unwrap();
        }
        black_box(work());
        for counter in &counters {
            counter.disable().unwrap();
        }
        let (mut samples, mut stacks) = (0, 0);
        for ring in &mut rings {
            ring.drain(|bytes| {
                if let Some(Record::Sample(sample)) = record::read(bytes, user != UserStack::FramePointers) {
                    assert_eq!(sample.process, std::process::id());
                    samples += 1;
                    stacks += usize::from(!sample.user.is_empty() || sample.copied.is_some());
                }
            });
        }
        assert!(
            samples > 0 && stacks == samples,
            "{samples} samples, {stacks} stacks, {user:?}"
        );
    }
}
