//! Slots of streams: found by number, used again.

use std::collections::BTreeMap;

use super::*;

fn record(id: u32) -> Record {
    Record::new(id, 0, 0)
}

/// A generator of its own, so that the test repeats exactly.
fn next(seed: &mut u64) -> usize {
    *seed = seed
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1_442_695_040_888_963_407);
    (*seed >> 33) as usize
}

#[test]
fn it_is_as_a_map_is() {
    for start in 0..50_u64 {
        let mut seed = start;
        let mut streams = Streams::new();
        let mut twin: BTreeMap<u32, Stream> = BTreeMap::new();
        let mut id = 1;
        for _ in 0..2000 {
            if next(&mut seed).is_multiple_of(2) || twin.is_empty() {
                // Sometimes numbers are left out.
                id += 2 * (1 + (next(&mut seed) % 9 / 8 * next(&mut seed) % 70) as u32);
                let stream = streams.insert(record(id));
                assert!(
                    twin.values().all(|other| other.slot != stream.slot),
                    "seed {start}"
                );
                twin.insert(id, stream);
            } else {
                let place = next(&mut seed) % twin.len();
                let (&id, &stream) = twin.iter().nth(place).expect("within");
                twin.remove(&id);
                streams.remove(stream);
                assert!(streams.get(stream).is_none(), "seed {start}");
                assert_eq!(streams.find(id), None, "seed {start}");
            }
            assert_eq!(streams.len(), twin.len(), "seed {start}");
            for (&id, &stream) in &twin {
                assert_eq!(streams.find(id), Some(stream), "seed {start}");
            }
        }
    }
}

#[test]
fn many_at_once_leave_no_memory() {
    let mut streams = Streams::new();
    let all: Vec<Stream> = (0..500)
        .map(|place| streams.insert(record(2 * place + 1)))
        .collect();
    assert!(streams.memory() > 500 * size_of::<Record>());
    for stream in all {
        streams.remove(stream);
    }
    assert_eq!(streams.memory(), 0);
}

#[test]
fn a_record_is_small() {
    assert!(size_of::<Record>() <= 40, "{}", size_of::<Record>());
}
