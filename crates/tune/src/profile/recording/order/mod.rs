//! Records of several rings in the order of their times.
//!
//! Rings are read one after the other, round by round. What was written before the newest record of one round has been read by the end
//! of the next: so far it can be handed on in order. Knows records' times and bytes only.

#[cfg(test)]
mod tests;

use crate::profile::limits::WAITING_BYTES;

/// Records that wait.
#[derive(Debug, Default)]
pub(super) struct Order {
    bytes: Vec<u8>,
    /// Time, beginning and length of each.
    waiting: Vec<(u64, usize, usize)>,
    /// The newest time of the last round but one, and of the last.
    horizon: u64,
    newest: u64,
}

impl Order {
    /// A record was read.
    pub(super) fn push(&mut self, time: u64, record: &[u8]) {
        self.newest = self.newest.max(time);
        self.waiting.push((time, self.bytes.len(), record.len()));
        self.bytes.extend_from_slice(record);
    }

    /// All rings were read once more: hands on what is sure to be in order.
    pub(super) fn round(&mut self, each: impl FnMut(&[u8])) {
        let until = if self.bytes.len() > WAITING_BYTES {
            u64::MAX
        } else {
            self.horizon
        };
        self.hand_on(until, each);
        self.horizon = self.newest;
    }

    /// Nothing more is written: hands on all.
    pub(super) fn finish(&mut self, each: impl FnMut(&[u8])) {
        self.hand_on(u64::MAX, each);
    }

    fn hand_on(&mut self, until: u64, mut each: impl FnMut(&[u8])) {
        self.waiting.sort_by_key(|(time, ..)| *time);
        let count = self.waiting.partition_point(|(time, ..)| *time <= until);
        for (_, at, length) in &self.waiting[..count] {
            each(&self.bytes[*at..at + length]);
        }
        let mut bytes = Vec::new();
        let mut kept = Vec::new();
        for (time, at, length) in self.waiting.drain(..).skip(count) {
            kept.push((time, bytes.len(), length));
            bytes.extend_from_slice(&self.bytes[at..at + length]);
        }
        self.waiting = kept;
        self.bytes = bytes;
    }
}
