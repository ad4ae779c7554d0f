//! What happened in a simulation: a bounded tail to print, and a hash of everything to compare.
//!
//! Owns the record. Knows nothing of what the numbers mean.

use std::collections::VecDeque;
use std::fmt::Write as _;

/// One thing that happened, at a virtual time in nanoseconds.
#[derive(Clone, Copy, Debug)]
struct Entry {
    time: u64,
    what: &'static str,
    numbers: [u64; 3],
}

/// The record of a run.
#[derive(Debug)]
pub(super) struct Trace {
    tail: VecDeque<Entry>,
    limit: usize,
    hash: u64,
    count: u64,
}

impl Trace {
    /// Keeps the last `limit` entries; the hash covers all of them.
    pub(super) fn new(limit: usize) -> Trace {
        Trace {
            tail: VecDeque::new(),
            limit,
            hash: 0xcbf2_9ce4_8422_2325,
            count: 0,
        }
    }

    pub(super) fn note(&mut self, time: u64, what: &'static str, numbers: [u64; 3]) {
        self.count += 1;
        for byte in what.bytes() {
            self.mix(u64::from(byte));
        }
        self.mix(time);
        for number in numbers {
            self.mix(number);
        }
        if self.limit > 0 {
            if self.tail.len() == self.limit {
                self.tail.pop_front();
            }
            self.tail.push_back(Entry { time, what, numbers });
        }
    }

    pub(super) fn hash(&self) -> u64 {
        self.hash
    }

    /// The last `lines` entries as text, oldest first.
    pub(super) fn text(&self, lines: usize) -> String {
        let mut text = String::new();
        for entry in self.tail.iter().skip(self.tail.len().saturating_sub(lines)) {
            let [a, b, c] = entry.numbers;
            writeln!(text, "{:>12} ns  {:<18} {a} {b} {c}", entry.time, entry.what)
                .expect("a String takes all text");
        }
        text
    }

    fn mix(&mut self, number: u64) {
        self.hash = (self.hash ^ number).wrapping_mul(0x0000_0100_0000_01b3);
        self.hash ^= self.hash >> 29;
    }
}
