//! Older records of a partition, of brokers that read upwards only: a window below a position is read, and its newest part is taken.

use std::collections::VecDeque;

use ringmain_cluster::log::{LogEvent, Partition, Record};

/// The positions that one window covers, at least and at most.
const WINDOW: [u64; 2] = [16, 1 << 20];
/// The positions of the first window.
pub(super) const FIRST_WINDOW: u64 = 4096;

/// The newest records of a window that is being read, of so many bytes: one at least.
#[derive(Debug)]
pub(super) struct NewestRecords {
    records: VecDeque<Record>,
    limit: usize,
    bytes: usize,
    /// The bytes of every record that was read.
    read: usize,
}

impl NewestRecords {
    pub(super) fn new(limit: usize) -> NewestRecords {
        NewestRecords {
            records: VecDeque::new(),
            limit,
            bytes: 0,
            read: 0,
        }
    }

    /// Adds the next record. Drops the oldest ones above the limit.
    pub(super) fn push(&mut self, record: Record) {
        self.bytes += record.cost();
        self.read += record.cost();
        self.records.push_back(record);
        while self.bytes > self.limit
            && self.records.len() > 1
            && let Some(oldest) = self.records.pop_front()
        {
            self.bytes -= oldest.cost();
        }
    }

    /// Returns whether none was dropped.
    fn is_whole(&self) -> bool {
        self.bytes == self.read
    }
}

/// The newest part of a window.
#[derive(Debug, PartialEq)]
pub(super) struct OlderPart {
    pub(super) records: Vec<Record>,
    /// The number from which on the records are complete.
    pub(super) from: u64,
    /// The log has nothing below.
    pub(super) is_first: bool,
    /// The number of positions for the next window, so that it has about as many bytes as are requested.
    pub(super) next_window: u64,
}

impl OlderPart {
    /// Takes the records that were read from `start` up to `before`. `first`: the oldest number of the log.
    pub(super) fn new(newest: NewestRecords, start: u64, before: u64, first: u64) -> OlderPart {
        let is_whole = newest.is_whole();
        let NewestRecords {
            records, limit, read, ..
        } = newest;
        let window = before.saturating_sub(start).max(1);
        let [least, most] = WINDOW;
        let next_window = match read {
            read if read > limit => (u128::from(window) * limit as u128 / read as u128) as u64,
            read if read < limit / 4 => window * 2,
            _ => window,
        };
        OlderPart {
            from: match records.front() {
                Some(oldest) if !is_whole => oldest.number,
                _ => start.min(before),
            },
            is_first: is_whole && start <= first,
            records: records.into(),
            next_window: next_window.clamp(least, most),
        }
    }

    /// Returns the event of this part.
    pub(super) fn event(self, partition: Partition, now_ms: i64) -> LogEvent {
        LogEvent::Older {
            partition,
            from: self.from,
            records: self.records,
            is_first: self.is_first,
            now_ms,
        }
    }
}

#[cfg(test)]
mod tests {
    use ringmain_cluster::log::Record;

    use super::{NewestRecords, OlderPart, WINDOW};

    fn records(numbers: std::ops::Range<u64>, limit: usize) -> NewestRecords {
        let mut records = NewestRecords::new(limit);
        for number in numbers {
            records.push(Record::read(number, 0, b""));
            assert!(records.bytes <= limit || records.records.len() == 1);
        }
        records
    }

    fn numbers(part: &OlderPart) -> Vec<u64> {
        part.records.iter().map(|record| record.number).collect()
    }

    #[test]
    fn a_window_that_fits_is_taken_as_a_whole() {
        let part = OlderPart::new(records(5..8, 1 << 20), 5, 1005, 1);
        assert_eq!(
            (numbers(&part), part.from, part.is_first),
            (vec![5, 6, 7], 5, false)
        );
        assert_eq!(part.next_window, 2000);
        let rest = OlderPart::new(records(1..5, 1 << 20), 1, 5, 1);
        assert_eq!((rest.from, rest.is_first, rest.next_window), (1, true, WINDOW[0]));
    }

    #[test]
    fn the_newest_part_of_a_larger_one_is_taken() {
        let cost = Record::read(0, 0, b"").cost();
        let part = OlderPart::new(records(1..5, 2 * cost), 1, 1001, 1);
        assert_eq!((numbers(&part), part.from, part.is_first), (vec![3, 4], 3, false));
        assert_eq!(part.next_window, 500);
        let one = OlderPart::new(records(1..5, 1), 1, 5, 1);
        assert_eq!(
            (numbers(&one), one.from, one.next_window),
            (vec![4], 4, WINDOW[0])
        );
        let alone = OlderPart::new(records(4..5, 1), 3, 5, 3);
        assert_eq!((numbers(&alone), alone.from, alone.is_first), (vec![4], 3, true));
    }

    #[test]
    fn a_window_without_records_is_complete() {
        let part = OlderPart::new(NewestRecords::new(1000), 100, 200, 1);
        assert_eq!((numbers(&part), part.from, part.is_first), (vec![], 100, false));
        let none = OlderPart::new(NewestRecords::new(1000), 300, 200, 300);
        assert_eq!((none.from, none.is_first), (200, true));
    }
}
