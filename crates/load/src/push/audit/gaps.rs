//! Sequence numbers that subscriptions have skipped and not received since, as ranges.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::limits;

/// Missing sequence numbers of all subscriptions of a thread.
#[derive(Clone, Debug, Default)]
pub(super) struct Gaps {
    /// The exclusive end of each range, by subscription and first number.
    ranges: BTreeMap<(u32, u32), u32>,
}

impl Gaps {
    /// Records that a subscription has skipped these numbers. Beyond [`limits::AUDITED_GAPS`] ranges the last range of a subscription
    /// grows instead, if it has one.
    pub(super) fn insert(&mut self, track: u32, missing: Range<u32>) {
        if missing.is_empty() {
            return;
        }
        if self.ranges.len() < limits::AUDITED_GAPS {
            self.ranges.insert((track, missing.start), missing.end);
        } else if let Some((_, end)) = self.before(track, u32::MAX) {
            *end = missing.end;
        }
    }

    /// Records that a subscription has received a number after all.
    pub(super) fn fill(&mut self, track: u32, sequence: u32) {
        let Some((start, end)) = self.before(track, sequence) else {
            return;
        };
        let until = *end;
        if until <= sequence {
            return;
        }
        *end = sequence;
        if start == sequence {
            self.ranges.remove(&(track, start));
        }
        self.insert(track, sequence + 1..until);
    }

    /// Returns what a subscription lacks of these numbers.
    pub(super) fn within(&self, track: u32, window: Range<u32>) -> impl Iterator<Item = Range<u32>> {
        let Range { start, end } = window;
        self.ranges
            .range((track, 0)..=(track, u32::MAX))
            .map(move |((_, from), until)| start.max(*from)..end.min(*until))
            .filter(|missing| !missing.is_empty())
    }

    /// Returns the last range of a subscription that starts at or before a number.
    fn before(&mut self, track: u32, sequence: u32) -> Option<(u32, &mut u32)> {
        let mut ranges = self.ranges.range_mut((track, 0)..=(track, sequence));
        let ((_, start), end) = ranges.next_back()?;
        Some((*start, end))
    }
}
