//! Selection of the next endpoint. Pure: loads and random numbers are arguments.
//!
//! Endpoints are identified by their index in a list. Each selection is among those that `usable` accepts; a lookup by hash
//! continues from the hashed position to the next usable endpoint, so that only the keys of a removed endpoint move.

mod load;
mod maglev;
mod ring;

#[cfg(test)]
mod tests;

pub use load::{LOAD_HEADER, LoadReport};
pub(crate) use load::{NodeLoad, ReceivedReport, SharedReport};
pub(crate) use maglev::Maglev;
pub(crate) use ring::HashRing;

use std::time::Duration;

/// Cumulative weights of endpoints: a draw takes logarithmic time.
#[derive(Debug)]
pub(crate) struct WeightRanges {
    /// The end of each endpoint's range, in order.
    upper_bounds: Box<[u64]>,
}

impl WeightRanges {
    /// Builds the ranges from weights, in the order of the endpoints.
    pub(crate) fn new(weights: impl IntoIterator<Item = u64>) -> WeightRanges {
        let mut end = 0;
        let upper_bounds = weights.into_iter().map(|weight| {
            end += weight;
            end
        });
        WeightRanges {
            upper_bounds: upper_bounds.collect(),
        }
    }

    /// Returns the index that a random number falls to; `None` if the sum of the weights is 0.
    pub(crate) fn draw(&self, random: u64) -> Option<usize> {
        let total = self.upper_bounds.last().copied().filter(|total| *total > 0)?;
        let number = (u128::from(random) * u128::from(total)) >> 64;
        Some(
            self.upper_bounds
                .partition_point(|end| u128::from(*end) <= number),
        )
    }
}

/// Smooth weighted round robin: on each turn every endpoint is credited its weight, and the one with the most credit is
/// selected and pays the sum of the weights.
#[derive(Debug, Default)]
pub(crate) struct RoundRobin {
    credit: Vec<i64>,
}

impl RoundRobin {
    /// Returns the index of the next endpoint; `None` if no weight is above zero.
    pub(crate) fn next(&mut self, weights: impl Iterator<Item = u64>) -> Option<usize> {
        let mut total = 0;
        let mut best = None;
        for (index, weight) in weights.enumerate() {
            if self.credit.len() <= index {
                self.credit.push(0);
            }
            let weight = i64::try_from(weight).unwrap_or(i64::MAX >> 32);
            if weight == 0 {
                continue;
            }
            total += weight;
            self.credit[index] += weight;
            if best.is_none_or(|best: usize| self.credit[index] > self.credit[best]) {
                best = Some(index);
            }
        }
        let best = best?;
        self.credit[best] -= total;
        Some(best)
    }

    /// Discards all credit. Called when the list of endpoints changes.
    pub(crate) fn reset(&mut self) {
        self.credit.clear();
    }
}

/// Returns the less loaded of two endpoints, relative to weight. Each argument is an index, a load and a weight.
pub(crate) fn less_loaded(a: (usize, u64, u64), b: (usize, u64, u64)) -> usize {
    let (first, load, weight) = a;
    let (second, other_load, other_weight) = b;
    // load / weight without a division; the new request is counted, so that idle endpoints differ by weight.
    if u128::from(load + 1) * u128::from(other_weight) <= u128::from(other_load + 1) * u128::from(weight) {
        first
    } else {
        second
    }
}

/// A peak-sensitive moving average of response times: old values decay, a slower response counts in full at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ewma {
    /// Nanoseconds.
    pub(crate) value: u64,
    /// The instant of the last observation, in nanoseconds.
    pub(crate) at: u64,
}

impl Ewma {
    /// Returns the average as decayed at `now`, in nanoseconds.
    pub(crate) fn decayed(self, now: u64, half_life: Duration) -> u64 {
        let age = now.saturating_sub(self.at) as f64;
        let half_life = half_life.as_nanos().max(1) as f64;
        (self.value as f64 * (-age / half_life).exp2()) as u64
    }

    /// Returns the average after a response that took `sample` nanoseconds.
    pub(crate) fn with_sample(self, now: u64, sample: u64, half_life: Duration) -> Ewma {
        let decayed = self.decayed(now, half_life);
        let value = if sample > decayed {
            sample
        } else {
            let age = now.saturating_sub(self.at) as f64;
            let old_share = (-age / half_life.as_nanos().max(1) as f64).exp2();
            (self.value as f64 * old_share + sample as f64 * (1.0 - old_share)) as u64
        };
        Ewma { value, at: now }
    }
}

/// Returns a hash of a key that is the same in every process, so that keys keep their endpoints over restarts.
pub(crate) fn stable_hash(key: &[u8]) -> u64 {
    seeded_hash(0, key)
}

/// Returns a hash of a key with a seed, for several independent hashes of one key.
pub(crate) fn seeded_hash(seed: u64, key: &[u8]) -> u64 {
    let mix = |mut word: u64| {
        word ^= word >> 32;
        word = word.wrapping_mul(0xd6e8_feb8_6659_fd93);
        word ^= word >> 32;
        word = word.wrapping_mul(0xd6e8_feb8_6659_fd93);
        word ^ word >> 32
    };
    let (words, tail) = key.as_chunks::<8>();
    let start = mix(seed.wrapping_add(0x9e37_79b9_7f4a_7c15) ^ key.len() as u64);
    let hash = words.iter().fold(start, |hash, word| {
        mix(hash.rotate_left(29) ^ u64::from_le_bytes(*word)).wrapping_add(0x9e37_79b9_7f4a_7c15)
    });
    let tail = tail.iter().fold(0, |word, &byte| word << 8 | u64::from(byte));
    mix(hash.rotate_left(29) ^ tail)
}
