//! What came of one subscription: whether a publication is new, late, or here for the second time.
//!
//! Eight bytes, of which half say which of the last 32 sequence numbers have come.

/// Numbers before the highest that are remembered.
const REMEMBERED: u32 = 32;

/// The publications of one channel as one client has them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Track {
    /// The highest number that came; 0 before the first.
    highest: u32,
    /// Of those before it, the nearest in the lowest bit.
    seen: u32,
}

/// What a publication is to the one who gets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arrival {
    /// Newer than all before.
    New,
    /// Older than one that came before, and here for the first time.
    Late,
    /// Here already.
    Double,
    /// So much older than what came before that it may be late or doubled.
    Old,
}

impl Track {
    /// The highest number so far; 0 for none.
    #[inline]
    pub(super) fn highest(self) -> u32 {
        self.highest
    }

    /// The publication of this number has come.
    #[inline]
    pub(super) fn take(&mut self, sequence: u32) -> Arrival {
        if sequence > self.highest {
            let step = sequence - self.highest;
            // The one that was the highest is among those before now; zero was none.
            let with = (u64::from(self.seen) << 1) | u64::from(self.highest > 0);
            self.seen = match step {
                1..=REMEMBERED => (with << (step - 1)) as u32,
                _ => 0,
            };
            self.highest = sequence;
            return Arrival::New;
        }
        let back = self.highest - sequence;
        if back == 0 {
            return Arrival::Double;
        }
        if back > REMEMBERED {
            return Arrival::Old;
        }
        let bit = 1 << (back - 1);
        if self.seen & bit != 0 {
            return Arrival::Double;
        }
        self.seen |= bit;
        Arrival::Late
    }
}

#[cfg(test)]
mod tests;
