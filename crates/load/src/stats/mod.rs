//! Statistics of few numbers: what rounds have in common and how sure that is.
//!
//! Plain functions of finite numbers. Knows nothing of what they measure.

#[cfg(test)]
mod tests;

use fastrand::Rng;

/// How often the numbers are drawn anew for an interval.
pub const RESAMPLES: usize = 10_000;

/// The share of intervals that should hold the true value.
pub const CONFIDENCE: f64 = 0.95;

/// The middle of some numbers and how far apart they are.
#[derive(Clone, Copy, Debug, PartialEq)]
#[expect(missing_docs, reason = "named by what they are")]
pub struct Spread {
    pub median: f64,
    pub min: f64,
    pub max: f64,
}

/// A median and the interval that it lies in with [`CONFIDENCE`].
#[derive(Clone, Copy, Debug, PartialEq)]
#[expect(missing_docs, reason = "named by what they are")]
pub struct Estimate {
    pub median: f64,
    pub low: f64,
    pub high: f64,
}

impl Spread {
    /// Of some numbers; `None` if there are none or one is not finite.
    #[must_use]
    pub fn of(numbers: &[f64]) -> Option<Spread> {
        let sorted = sorted(numbers)?;
        Some(Spread {
            median: middle(&sorted),
            min: sorted[0],
            max: sorted[sorted.len() - 1],
        })
    }

    /// The distance from the least to the greatest as a share of the median; zero if the median is.
    #[must_use]
    pub fn relative(&self) -> f64 {
        relative(self.max - self.min, self.median)
    }
}

impl Estimate {
    /// Whether the interval leaves out `value`.
    #[must_use]
    pub fn excludes(&self, value: f64) -> bool {
        value < self.low || value > self.high
    }
}

/// The middle one, or the mean of the two middle ones; `None` if there are none or one is not finite.
#[must_use]
pub fn median(numbers: &[f64]) -> Option<f64> {
    Some(middle(&sorted(numbers)?))
}

/// How far `number` is from `median`, up or down, as a share of that; zero if the median is.
#[must_use]
pub fn deviation(number: f64, median: f64) -> f64 {
    relative((number - median).abs(), median)
}

/// The percentile bootstrap of the median: draws as many numbers as there are, with replacement, [`RESAMPLES`] times, and
/// takes what [`CONFIDENCE`] of the medians lie between. The same numbers and seed give the same interval. `None` if
/// there are no numbers or one is not finite.
///
/// Of few numbers it is narrow: five that all lie on one side of a value give an interval that excludes the value, and
/// one time in sixteen they do so by chance.
#[must_use]
pub fn bootstrap(numbers: &[f64], seed: u64) -> Option<Estimate> {
    let sorted = sorted(numbers)?;
    let mut rng = Rng::with_seed(seed);
    // Draws are of ranks: sorting small integers is cheaper, and equal numbers cost nothing extra.
    let mut ranks = vec![0; sorted.len()];
    let mut medians = Vec::with_capacity(RESAMPLES);
    for _ in 0..RESAMPLES {
        ranks.fill_with(|| rng.usize(..sorted.len()));
        ranks.sort_unstable();
        let (lower, upper) = middles(ranks.len());
        medians.push(mean(sorted[ranks[lower]], sorted[ranks[upper]]));
    }
    medians.sort_unstable_by(f64::total_cmp);
    let tail = (RESAMPLES as f64 * (1.0 - CONFIDENCE) / 2.0).round() as usize;
    Some(Estimate {
        median: middle(&sorted),
        low: medians[tail],
        high: medians[RESAMPLES - 1 - tail],
    })
}

fn sorted(numbers: &[f64]) -> Option<Vec<f64>> {
    if numbers.is_empty() || numbers.iter().any(|number| !number.is_finite()) {
        return None;
    }
    let mut sorted = numbers.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    Some(sorted)
}

/// The places of the two middle ones of so many; the same place twice if there is one middle.
fn middles(count: usize) -> (usize, usize) {
    ((count - 1) / 2, count / 2)
}

fn middle(sorted: &[f64]) -> f64 {
    let (lower, upper) = middles(sorted.len());
    mean(sorted[lower], sorted[upper])
}

/// Halved first, so that the sum of two large ones stays finite.
fn mean(one: f64, other: f64) -> f64 {
    if one == other {
        one
    } else {
        one / 2.0 + other / 2.0
    }
}

fn relative(distance: f64, median: f64) -> f64 {
    if median == 0.0 {
        0.0
    } else {
        distance / median.abs()
    }
}
