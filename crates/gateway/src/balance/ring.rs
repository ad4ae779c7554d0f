//! Ketama-style hash ring: a key belongs to the endpoint of the first point at or after its hash.

use super::seeded_hash;

/// A hash ring.
#[derive(Debug)]
pub(crate) struct HashRing {
    /// Points and their endpoints, in ascending order.
    pub(super) points: Box<[(u64, u32)]>,
}

impl HashRing {
    /// Builds a ring with `points` points for the lightest endpoint, and at most about `max_points` points in all. Points depend on names
    /// only, so that rings of similar lists of endpoints are similar.
    pub(crate) fn new<'n>(
        endpoints: impl IntoIterator<Item = (&'n str, u32)>,
        points: u32,
        max_points: usize,
    ) -> HashRing {
        let endpoints: Vec<_> = endpoints.into_iter().collect();
        let total: u64 = endpoints.iter().map(|(_, weight)| u64::from(*weight)).sum();
        let min_weight = endpoints
            .iter()
            .map(|(_, weight)| *weight)
            .filter(|weight| *weight > 0)
            .min();
        let min_weight = u64::from(min_weight.unwrap_or(1));
        // The lightest has `points`; where that exceeds the limit, all are scaled down, to at least one point each.
        let total_points = u128::from(points) * u128::from(total) / u128::from(min_weight.max(1));
        let shrink = (total_points / max_points.max(1) as u128) + 1;
        let mut all = Vec::new();
        for (index, (name, weight)) in (0_u32..).zip(&endpoints) {
            let count = u128::from(points) * u128::from(*weight) / u128::from(min_weight) / shrink;
            let count = if *weight == 0 { 0 } else { count.max(1) };
            for point in 0..count as u64 {
                all.push((seeded_hash(point, name.as_bytes()), index));
            }
        }
        all.sort_unstable();
        HashRing { points: all.into() }
    }

    /// Returns the endpoint of a hash: that of the first point from there on which `is_usable` accepts.
    pub(crate) fn find(&self, hash: u64, is_usable: impl Fn(usize) -> bool) -> Option<usize> {
        let start = self.points.partition_point(|(point, _)| *point < hash);
        let (before, after) = self.points.split_at(start);
        let mut points = after.iter().chain(before).map(|(_, index)| *index as usize);
        points.find(|index| is_usable(*index))
    }
}
