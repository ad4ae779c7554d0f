//! A ring of points: a key belongs to the endpoint of the first point behind its hash.

use super::hash_with;

/// See the module.
#[derive(Debug)]
pub(crate) struct Ring {
    /// In order of their places.
    pub(super) points: Box<[(u64, u32)]>,
}

impl Ring {
    /// With so many points for each unit of weight. Names say where points lie, so that a ring of almost the same
    /// endpoints is almost the same.
    pub(crate) fn new<'n>(
        endpoints: impl IntoIterator<Item = (&'n str, u32)>,
        points: u32,
        most: usize,
    ) -> Ring {
        let endpoints: Vec<_> = endpoints.into_iter().collect();
        let total: u64 = endpoints.iter().map(|(_, weight)| u64::from(*weight)).sum();
        let least = endpoints
            .iter()
            .map(|(_, weight)| *weight)
            .filter(|weight| *weight > 0)
            .min();
        let least = u64::from(least.unwrap_or(1));
        // The lightest has `points`; if that were too many in all, everybody has less, at least one.
        let wanted = u128::from(points) * u128::from(total) / u128::from(least.max(1));
        let shrink = (wanted / most.max(1) as u128) + 1;
        let mut all = Vec::new();
        for (index, (name, weight)) in (0_u32..).zip(&endpoints) {
            let count = u128::from(points) * u128::from(*weight) / u128::from(least) / shrink;
            let count = if *weight == 0 { 0 } else { count.max(1) };
            for point in 0..count as u64 {
                all.push((hash_with(point, name.as_bytes()), index));
            }
        }
        all.sort_unstable();
        Ring { points: all.into() }
    }

    /// The endpoint of a hash; of those that may not be used the next one.
    pub(crate) fn find(&self, hash: u64, usable: impl Fn(usize) -> bool) -> Option<usize> {
        let start = self.points.partition_point(|(place, _)| *place < hash);
        let (before, behind) = self.points.split_at(start);
        let mut points = behind.iter().chain(before).map(|(_, index)| *index as usize);
        points.find(|index| usable(*index))
    }
}
