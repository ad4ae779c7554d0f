//! Older records of a partition, of brokers that read upwards only: a window below a position is read, and its newest part is taken.

use ringmain_cluster::log::{LogEvent, Partition, Record};

/// The positions that one window covers, at least and at most.
const WINDOW: [u64; 2] = [256, 1 << 20];
/// The positions of the first window.
pub(super) const FIRST_WINDOW: u64 = 4096;

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
    /// Takes so many bytes of the records from `start` up to `before`, which the log has all of. `first`: the oldest number of the log.
    pub(super) fn new(
        mut records: Vec<Record>,
        start: u64,
        before: u64,
        first: u64,
        bytes: usize,
    ) -> OlderPart {
        let mut size = 0;
        let is_kept = |record: &&Record| {
            let is_room = size == 0 || size + record.cost() <= bytes;
            size += record.cost();
            is_room
        };
        let kept = records.iter().rev().take_while(is_kept).count();
        let records = records.split_off(records.len() - kept);
        let is_whole = size <= bytes;
        let window = before.saturating_sub(start).max(1);
        let [least, most] = WINDOW;
        let next_window = match size {
            size if size > bytes => window / 2,
            size if size < bytes / 4 => window * 2,
            _ => window,
        };
        OlderPart {
            from: match records.first() {
                Some(oldest) if !is_whole => oldest.number,
                _ => start.min(before),
            },
            is_first: is_whole && start <= first,
            records,
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

    use super::{OlderPart, WINDOW};

    fn records(numbers: std::ops::Range<u64>) -> Vec<Record> {
        numbers.map(|number| Record::read(number, 0, b"")).collect()
    }

    fn numbers(part: &OlderPart) -> Vec<u64> {
        part.records.iter().map(|record| record.number).collect()
    }

    #[test]
    fn a_window_that_fits_is_taken_as_a_whole() {
        let part = OlderPart::new(records(5..8), 5, 1005, 1, 1 << 20);
        assert_eq!(
            (numbers(&part), part.from, part.is_first),
            (vec![5, 6, 7], 5, false)
        );
        assert_eq!(part.next_window, 2000);
        let rest = OlderPart::new(records(1..5), 1, 5, 1, 1 << 20);
        assert_eq!((rest.from, rest.is_first, rest.next_window), (1, true, WINDOW[0]));
    }

    #[test]
    fn the_newest_part_of_a_larger_one_is_taken() {
        let cost = records(0..1)[0].cost();
        let part = OlderPart::new(records(1..5), 1, 1001, 1, 2 * cost);
        assert_eq!((numbers(&part), part.from, part.is_first), (vec![3, 4], 3, false));
        assert_eq!(part.next_window, 500);
        let one = OlderPart::new(records(1..5), 1, 5, 1, 1);
        assert_eq!((numbers(&one), one.from), (vec![4], 4));
    }

    #[test]
    fn a_window_without_records_is_complete() {
        let part = OlderPart::new(Vec::new(), 100, 200, 1, 1000);
        assert_eq!((numbers(&part), part.from, part.is_first), (vec![], 100, false));
        let none = OlderPart::new(Vec::new(), 300, 200, 300, 1000);
        assert_eq!((none.from, none.is_first), (200, true));
    }
}
