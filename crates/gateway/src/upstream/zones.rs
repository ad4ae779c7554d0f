//! Endpoints by their distance: how many requests each distance gets, and draws among its endpoints. Pure.
//!
//! ```text
//! near endpoints' healthy weight ─▶ the load that they carry ─┬─ all of it ─▶ every request
//!                                                             └─ a part ────▶ that part; the rest goes to the next distance
//! ```

#[cfg(test)]
mod tests;

use std::sync::Arc;

use super::UpstreamEndpoint;
use crate::balance::WeightRanges;
use crate::limits;
use crate::model::{Distance, Upstream, ZonePreference};

/// The whole of the requests.
const PERMILLE: u64 = 1000;

/// The endpoints of an upstream that prefers near ones, by distance.
#[derive(Debug)]
pub(super) struct DistanceTiers {
    preference: ZonePreference,
    tiers: [Tier; Distance::ALL.len()],
    /// Distinct zones; endpoints without a zone count as one.
    zones: u64,
}

/// The endpoints of one distance.
#[derive(Debug)]
pub(super) struct Tier {
    indexes: Box<[u32]>,
    weights: WeightRanges,
}

/// The weight of a tier's endpoints that accept new requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct TierLoad {
    pub(super) weight: u64,
    pub(super) healthy: u64,
}

/// The part of the requests that each distance gets, in thousandths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TierShares([u64; Distance::ALL.len()]);

impl DistanceTiers {
    /// Groups endpoints with these weights. `None`: the upstream prefers none, or all are equally near.
    pub(super) fn new(config: &Upstream, endpoints: &[(Distance, Option<Arc<str>>, u32)]) -> Option<Self> {
        let preference = config.zones?;
        let first = endpoints.first()?.0;
        if endpoints.iter().all(|(distance, ..)| *distance == first) {
            return None;
        }
        let tier = |wanted: Distance| {
            let all = (0..).zip(endpoints);
            let own = all.filter(|(_, (distance, ..))| *distance == wanted);
            let (indexes, weights): (Vec<u32>, Vec<u64>) = own
                .map(|(index, (.., weight))| (index, u64::from(*weight)))
                .unzip();
            Tier {
                indexes: indexes.into(),
                weights: WeightRanges::new(weights),
            }
        };
        let mut zones: Vec<&Option<Arc<str>>> = endpoints.iter().map(|(_, zone, _)| zone).collect();
        zones.sort_unstable();
        zones.dedup();
        Some(DistanceTiers {
            preference,
            tiers: Distance::ALL.map(tier),
            zones: zones.len() as u64,
        })
    }

    /// Returns the endpoints of a distance.
    pub(super) fn tier(&self, distance: Distance) -> &Tier {
        &self.tiers[distance as usize]
    }

    /// Returns the weights of the endpoints that accept requests, by distance.
    pub(super) fn loads(
        endpoints: &[Arc<UpstreamEndpoint>],
        is_accepting: impl Fn(&UpstreamEndpoint) -> bool,
        is_healthy: impl Fn(usize) -> bool,
    ) -> [TierLoad; Distance::ALL.len()] {
        let mut loads = [TierLoad::default(); Distance::ALL.len()];
        for (index, endpoint) in endpoints.iter().enumerate() {
            let load = &mut loads[endpoint.distance as usize];
            let weight = u64::from(endpoint.weight);
            load.weight += if is_accepting(endpoint) { weight } else { 0 };
            load.healthy += if is_healthy(index) { weight } else { 0 };
        }
        loads
    }

    /// Returns the part of each distance. `None`: no endpoint is healthy.
    pub(super) fn shares(&self, loads: &[TierLoad; Distance::ALL.len()]) -> Option<TierShares> {
        let mut shares = [0; Distance::ALL.len()];
        let mut rest = PERMILLE;
        for (share, load) in shares.iter_mut().zip(loads).filter(|(_, load)| load.weight > 0) {
            let carried = PERMILLE * limits::ZONE_LOAD_PERCENT * load.healthy / (100 * load.weight);
            *share = carried.min(rest);
            rest -= *share;
        }
        let sum = PERMILLE - rest;
        if sum == 0 {
            return None;
        }
        // No distance can carry the rest: each gets more than it should, in proportion.
        shares
            .iter_mut()
            .for_each(|share| *share = *share * PERMILLE / sum);
        if self.preference == ZonePreference::Balance {
            self.cap_near(&mut shares, loads);
        }
        Some(TierShares(shares))
    }

    /// Limits near endpoints to the requests that their share of the endpoints can carry.
    fn cap_near(&self, shares: &mut [u64; Distance::ALL.len()], loads: &[TierLoad; Distance::ALL.len()]) {
        let [node, zone, elsewhere] = loads.map(|load| load.healthy);
        let near = shares[0] + shares[1];
        let cap = PERMILLE * (node + zone) * self.zones / (node + zone + elsewhere).max(1);
        if elsewhere == 0 || near <= cap {
            return;
        }
        shares[0] = shares[0] * cap / near;
        shares[1] = cap - shares[0];
        shares[2] = PERMILLE - cap;
    }
}

impl TierShares {
    /// Returns the distance that a random number falls to.
    pub(super) fn draw(&self, random: u64) -> Distance {
        let mut number = ((u128::from(random) * u128::from(PERMILLE)) >> 64) as u64;
        for (distance, share) in Distance::ALL.into_iter().zip(self.0) {
            if number < share {
                return distance;
            }
            number -= share;
        }
        // Thousandths that were rounded off.
        let largest = Distance::ALL
            .into_iter()
            .zip(self.0)
            .max_by_key(|(_, share)| *share);
        largest.map_or(Distance::Elsewhere, |(distance, _)| distance)
    }
}

impl Tier {
    /// Returns the index of an endpoint that a random number falls to by weight.
    pub(super) fn draw(&self, random: u64) -> Option<usize> {
        let index = self.weights.draw(random)?;
        Some(self.indexes[index] as usize)
    }

    /// Returns the indexes of the endpoints.
    pub(super) fn indexes(&self) -> &[u32] {
        &self.indexes
    }
}
