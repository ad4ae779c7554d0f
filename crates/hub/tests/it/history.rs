//! A channel's history, compared with a naive one: a client that reconnects receives all that it missed, or a gap is reported.

use std::time::Duration;

use ringmain_hub::history::{Epoch, History, HistoryOptions, HistoryQuery, Recovery};

const KEEP: HistoryOptions = HistoryOptions {
    publications: 3,
    bytes: 100,
    ttl: Duration::from_secs(10),
};

fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn filled(count: u64, keep: HistoryOptions) -> History<u64> {
    let mut history = History::new(Epoch::new(7), keep);
    for number in 1..=count {
        assert_eq!(history.publish(number, 10, at(0)), number, "offsets count from 1");
    }
    history
}

fn all(recovered: Recovery<'_, u64>) -> Option<Vec<u64>> {
    match recovered {
        Recovery::All(items) => {
            assert!(
                items.iter().all(|(offset, item)| offset == *item),
                "an offset and its publication"
            );
            Some(items.into_iter().map(|(offset, _)| offset).collect())
        }
        Recovery::Gap => None,
    }
}

#[test]
fn missed_publications_are_returned_in_order() {
    let mut history = filled(5, KEEP);
    let epoch = Some(Epoch::new(7));
    assert_eq!(all(history.recover(2, epoch, 10, at(1))), Some(vec![3, 4, 5]));
    assert_eq!(all(history.recover(4, epoch, 10, at(1))), Some(vec![5]));
    assert_eq!(
        all(history.recover(5, epoch, 10, at(1))),
        Some(vec![]),
        "nothing was missed"
    );
    assert_eq!(
        all(history.recover(5, None, 10, at(1))),
        Some(vec![]),
        "without an epoch"
    );
}

#[test]
fn publications_that_are_not_retained_are_a_gap() {
    let mut history = filled(5, KEEP);
    let epoch = Some(Epoch::new(7));
    assert_eq!(
        all(history.recover(1, epoch, 10, at(1))),
        None,
        "the second is not kept"
    );
    assert_eq!(
        all(history.recover(2, epoch, 2, at(1))),
        None,
        "three are more than asked for"
    );
    assert_eq!(
        all(history.recover(2, Some(Epoch::new(8)), 10, at(1))),
        None,
        "another epoch"
    );
    assert_eq!(all(history.recover(6, epoch, 10, at(1))), None, "of the future");
    assert_eq!(all(history.recover(u64::MAX, epoch, 10, at(1))), None);
    assert_eq!(all(history.recover(4, epoch, 10, at(10))), None, "it has expired");
    assert_eq!(
        all(history.recover(5, epoch, 10, at(10))),
        Some(vec![]),
        "but who missed nothing has no gap"
    );
}

#[test]
fn each_history_limit_is_enforced() {
    let bytes = HistoryOptions { bytes: 25, ..KEEP };
    let history = filled(5, bytes);
    assert_eq!((history.len(), history.bytes()), (2, 20));
    let mut history = filled(5, KEEP);
    assert_eq!(history.expire(at(9)), Some(at(10)), "when the next goes");
    assert_eq!(history.expire(at(10)), None);
    assert!(history.is_empty());
    assert_eq!(history.position().offset, 5, "offsets go on");
    assert_eq!(history.publish(6, 10, at(11)), 6);
    history.set_options(
        HistoryOptions {
            publications: 0,
            ..KEEP
        },
        at(11),
    );
    assert!(history.is_empty());
    assert_eq!(
        history.publish(7, 10, at(11)),
        7,
        "without a memory there are offsets all the same"
    );
    assert_eq!(history.last(at(11)), None);
}

#[test]
fn a_publication_larger_than_the_history_is_not_retained() {
    let mut history = filled(2, KEEP);
    assert_eq!(history.publish(3, 101, at(0)), 3);
    assert_eq!((history.len(), history.bytes()), (0, 0));
    assert_eq!(all(history.recover(2, None, 10, at(0))), None);
}

#[test]
fn queries_run_in_both_directions() {
    let mut history = filled(5, KEEP);
    let mut offsets = |since, limit, reverse| {
        let query = HistoryQuery {
            since,
            limit,
            reverse,
        };
        let found = history.query(query, at(1));
        found.into_iter().map(|(offset, _)| offset).collect::<Vec<_>>()
    };
    assert_eq!(offsets(None, 10, false), [3, 4, 5]);
    assert_eq!(offsets(None, 2, false), [3, 4]);
    assert_eq!(offsets(None, 2, true), [5, 4]);
    assert_eq!(offsets(Some(4), 10, false), [5]);
    assert_eq!(offsets(Some(4), 10, true), [3]);
    assert!(offsets(Some(5), 10, false).is_empty());
    assert!(offsets(Some(3), 0, false).is_empty());
}

#[test]
fn epochs_survive_a_round_trip() {
    for number in [0, 1, 0xabc, u64::MAX] {
        let epoch = Epoch::new(number);
        assert_eq!(Epoch::parse(&epoch.to_string()), Some(epoch));
    }
    for text in [
        "",
        "0",
        "00000000000000000",
        "000000000000000G",
        "ABCDEF0123456789",
        "+00000000000000a",
    ] {
        assert_eq!(Epoch::parse(text), None, "{text}");
    }
}

/// A subscriber that disconnects and reconnects.
#[derive(Default)]
struct Reader {
    is_subscribed: bool,
    /// The offset and the epoch of the last publication that it received.
    last: Option<(u64, Epoch)>,
    /// The publications that it received since its last gap.
    has: Vec<u64>,
}

/// All publications of an epoch with their times.
struct Naive {
    epoch: Epoch,
    published: Vec<(usize, Duration)>,
    keep: HistoryOptions,
}

impl Naive {
    /// Returns whether a publication is retained by the limits alone: by the number, the size and the times of the publications after it.
    fn keeps(&self, offset: u64, now: Duration) -> bool {
        let index = offset as usize - 1;
        let behind = &self.published[index..];
        // A publication that was dropped stays dropped: each later publication may have dropped it.
        let crowded = behind.len() > self.keep.publications;
        let heavy = (1..=behind.len())
            .any(|count| behind[..count].iter().map(|(bytes, _)| bytes).sum::<usize>() > self.keep.bytes);
        let old = now >= self.published[index].1 + self.keep.ttl;
        !(crowded || heavy || old)
    }
}

#[test]
fn gaps_are_always_reported_in_random_runs() {
    for seed in 0..500 {
        println!("seed {seed}");
        let mut random = fastrand::Rng::with_seed(seed);
        let keep = HistoryOptions {
            publications: random.usize(0..8),
            bytes: random.usize(1..200),
            ttl: at(random.u64(1..20)),
        };
        let mut now = at(0);
        let mut naive = Naive {
            epoch: Epoch::new(random.u64(..)),
            published: Vec::new(),
            keep,
        };
        let mut history = History::new(naive.epoch, keep);
        let mut readers: Vec<Reader> = (0..4).map(|_| Reader::default()).collect();
        for _ in 0..300 {
            match random.u8(0..10) {
                0..4 => {
                    let bytes = random.usize(0..60);
                    naive.published.push((bytes, now));
                    let offset = history.publish(naive.published.len() as u64, bytes, now);
                    for reader in readers.iter_mut().filter(|reader| reader.is_subscribed) {
                        reader.has.push(offset);
                        reader.last = Some((offset, naive.epoch));
                    }
                }
                4 => now += Duration::from_millis(random.u64(0..3000)),
                5 => {
                    let reader = random.usize(0..readers.len());
                    readers[reader].is_subscribed = false;
                }
                6 if random.u8(0..10) == 0 => {
                    // The history was lost and is created again.
                    naive = Naive {
                        epoch: Epoch::new(random.u64(..)),
                        published: Vec::new(),
                        keep,
                    };
                    history = History::new(naive.epoch, keep);
                    readers.iter_mut().for_each(|reader| reader.is_subscribed = false);
                }
                _ => {
                    let reader = random.usize(0..readers.len());
                    come_back(&mut readers[reader], &mut history, &naive, now);
                }
            }
            for reader in &readers {
                assert!(
                    reader.has.windows(2).all(|pair| pair[0] + 1 == pair[1]),
                    "seed {seed}: {:?}",
                    reader.has
                );
            }
        }
    }
}

fn come_back(reader: &mut Reader, history: &mut History<u64>, naive: &Naive, now: Duration) {
    if reader.is_subscribed {
        return;
    }
    reader.is_subscribed = true;
    let top = naive.published.len() as u64;
    if let Some((offset, epoch)) = reader.last {
        let reference = epoch == naive.epoch && (offset + 1..=top).all(|offset| naive.keeps(offset, now));
        match history.recover(offset, Some(epoch), usize::MAX, now) {
            Recovery::All(items) => {
                assert!(reference, "an unreported gap");
                reader.has.extend(items.into_iter().map(|(offset, _)| offset));
            }
            Recovery::Gap => {
                assert!(!reference, "a gap although all is retained");
                reader.has.clear();
            }
        }
    }
    assert_eq!(history.position().offset, top);
    reader.last = Some((top, naive.epoch));
}

/// Numbers 10, 20 and 30 of a log: the others are those of other channels.
#[test]
fn a_position_in_a_hole_is_covered_from_the_publication_below() {
    let mut history = History::new(Epoch::new(7), KEEP);
    history.raise_floor(4);
    for number in [10, 20, 30] {
        assert!(history.publish_at(number, number, 10, at(0)));
    }
    for (offset, expected) in [(4, 4), (9, 4), (10, 10), (19, 10), (20, 20), (35, 30)] {
        assert_eq!(history.covered_from(offset), expected, "{offset}");
    }
    // The first one is dropped.
    assert!(history.publish_at(40, 40, 10, at(0)));
    assert_eq!(history.covered_from(15), 10);
    let dense = filled(3, KEEP);
    assert_eq!(
        [0, 1, 2, 3].map(|offset| dense.covered_from(offset)),
        [0, 1, 2, 3]
    );
}

/// Number 4 of a log began the epoch: at 0 a client has missed as much as at 4.
#[test]
fn offset_0_recovers_while_all_publications_of_the_epoch_are_retained() {
    let epoch = Epoch::new(7);
    let mut history = History::new(epoch, KEEP);
    history.raise_floor(4);
    for number in [10, 20, 30] {
        assert!(history.publish_at(number, number, 10, at(0)));
    }
    let numbers = |history: &mut History<u64>, offset, epoch| match history.recover(offset, epoch, 100, at(0))
    {
        Recovery::All(items) => Some(items.into_iter().map(|(offset, _)| offset).collect::<Vec<_>>()),
        Recovery::Gap => None,
    };
    assert_eq!(
        numbers(&mut history, 0, Some(epoch)),
        None,
        "the start is unknown"
    );
    assert_eq!(history.lowest_recoverable(), 4);
    history.set_epoch_start(4);
    assert_eq!(numbers(&mut history, 0, Some(epoch)), Some(vec![10, 20, 30]));
    assert_eq!((history.lowest_recoverable(), history.covered_from(9)), (0, 0));
    assert_eq!(numbers(&mut history, 0, None), None, "it may be of another epoch");
    assert_eq!(numbers(&mut history, 0, Some(Epoch::new(8))), None);

    assert!(history.publish_at(40, 40, 10, at(0)), "the first one is dropped");
    assert_eq!(numbers(&mut history, 0, Some(epoch)), None);
    assert_eq!(history.lowest_recoverable(), 10);

    let other = Epoch::new(8);
    history.start_epoch(other);
    assert_eq!(
        numbers(&mut history, 0, Some(other)),
        None,
        "its start is unknown"
    );
    history.set_epoch_start(40);
    assert_eq!(
        numbers(&mut history, 0, Some(other)),
        Some(vec![]),
        "those before are of another epoch"
    );
}
