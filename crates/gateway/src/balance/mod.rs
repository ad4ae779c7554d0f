//! Which endpoint is next. Pure: what is counted and drawn is told.
//!
//! Endpoints are known by their place in a list. Each choice is among those that `usable` lets pass; what a hash points at
//! is looked for onwards from there, so that a key whose endpoint is gone moves, and no other.

mod maglev;
mod ring;

#[cfg(test)]
mod tests;

pub(crate) use maglev::Maglev;
pub(crate) use ring::Ring;

use std::time::Duration;

/// Shares of endpoints, so that one can be drawn by chance in the logarithm of their number.
#[derive(Debug)]
pub(crate) struct Shares {
    /// Where each one's share ends.
    ends: Box<[u64]>,
}

impl Shares {
    /// Of these weights.
    pub(crate) fn new(weights: impl IntoIterator<Item = u64>) -> Shares {
        let mut end = 0;
        let ends = weights.into_iter().map(|weight| {
            end += weight;
            end
        });
        Shares { ends: ends.collect() }
    }

    /// The one that a random number falls to; `None` if all weigh nothing.
    pub(crate) fn draw(&self, random: u64) -> Option<usize> {
        let total = self.ends.last().copied().filter(|total| *total > 0)?;
        let number = (u128::from(random) * u128::from(total)) >> 64;
        Some(self.ends.partition_point(|end| u128::from(*end) <= number))
    }
}

/// Turns by weight, as evenly spread as they can be: each turn everybody gains his weight, and the richest pays for all.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    credit: Vec<i64>,
}

impl Turns {
    /// The next one of those with a weight above zero; `None` if nobody has one.
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

    /// Forgets what was: the list is another one.
    pub(crate) fn reset(&mut self) {
        self.credit.clear();
    }
}

/// Of two that were drawn, the one whose load is less for its weight.
pub(crate) fn less_loaded(one: (usize, u64, u64), two: (usize, u64, u64)) -> usize {
    let (first, load, weight) = one;
    let (second, other_load, other_weight) = two;
    // load / weight without a division; the request to come is counted, so that idle ones differ by weight.
    if u128::from(load + 1) * u128::from(other_weight) <= u128::from(other_load + 1) * u128::from(weight) {
        first
    } else {
        second
    }
}

/// How long answers take, with what is long ago counting less and what is slow now counting at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ewma {
    /// Nanoseconds.
    pub(crate) value: u64,
    /// When it was last told, nanoseconds.
    pub(crate) at: u64,
}

impl Ewma {
    /// What it is at `now`.
    pub(crate) fn decayed(self, now: u64, half_life: Duration) -> u64 {
        let age = now.saturating_sub(self.at) as f64;
        let half_life = half_life.as_nanos().max(1) as f64;
        (self.value as f64 * (-age / half_life).exp2()) as u64
    }

    /// With one more answer that took so long.
    pub(crate) fn observe(self, now: u64, took: u64, half_life: Duration) -> Ewma {
        let decayed = self.decayed(now, half_life);
        let value = if took > decayed {
            took
        } else {
            let age = now.saturating_sub(self.at) as f64;
            let keep = (-age / half_life.as_nanos().max(1) as f64).exp2();
            (self.value as f64 * keep + took as f64 * (1.0 - keep)) as u64
        };
        Ewma { value, at: now }
    }
}

/// A hash of a key, the same in every process: keys keep their endpoints over restarts.
pub(crate) fn hash(key: &[u8]) -> u64 {
    hash_with(0, key)
}

/// With a seed: several hashes of one key.
pub(crate) fn hash_with(seed: u64, key: &[u8]) -> u64 {
    let mix = |mut word: u64| {
        word ^= word >> 32;
        word = word.wrapping_mul(0xd6e8_feb8_6659_fd93);
        word ^= word >> 32;
        word = word.wrapping_mul(0xd6e8_feb8_6659_fd93);
        word ^ word >> 32
    };
    let (words, tail) = key.as_chunks::<8>();
    let start = mix(seed.wrapping_add(0x9e37_79b9_7f4a_7c15) ^ key.len() as u64);
    let whole = words.iter().fold(start, |hash, word| {
        mix(hash.rotate_left(29) ^ u64::from_le_bytes(*word)).wrapping_add(0x9e37_79b9_7f4a_7c15)
    });
    let tail = tail.iter().fold(0, |word, &byte| word << 8 | u64::from(byte));
    mix(whole.rotate_left(29) ^ tail)
}
