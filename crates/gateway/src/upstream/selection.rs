//! Selection of a request's endpoint: by health, then by the balancing algorithm.

#[cfg(test)]
mod push_tests;
#[cfg(test)]
mod tests;

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use super::pool::PoolEndpoint;
use super::zones::{DistanceTiers, TierShares};
use super::{UpstreamEndpoint, UpstreamSnapshot, UpstreamState};
use crate::balance::{
    HashRing, Maglev, NodeLoad, RoundRobin, WeightRanges, less_loaded, seeded_hash, stable_hash,
};
use crate::fault::Fault;
use crate::limits;
use crate::model::{Balance, Distance, HashKey, SlowStart, Upstream};

/// The precomputed part of an upstream's balancing.
#[derive(Debug)]
pub(crate) struct Balancer {
    shares: WeightRanges,
    kind: Algorithm,
    /// `None`: distances do not matter.
    tiers: Option<DistanceTiers>,
}

/// An endpoint as balancing knows it: the text of its address, by which it is hashed.
pub(crate) struct BalancedEndpoint {
    pub(crate) name: String,
    pub(crate) weight: u32,
    pub(crate) distance: Distance,
    pub(crate) zone: Option<Arc<str>>,
}

#[derive(Debug)]
enum Algorithm {
    RoundRobin,
    LeastRequest,
    PeakEwma(Duration),
    Ring(HashRing, HashKey),
    Maglev(Maglev, HashKey),
    Random,
    Push(Option<HashKey>),
}

impl Balancer {
    /// Builds the state for these endpoints.
    pub(crate) fn new(config: &Upstream, endpoints: &[BalancedEndpoint]) -> Balancer {
        let named = || {
            endpoints
                .iter()
                .map(|endpoint| (endpoint.name.as_str(), endpoint.weight))
        };
        let located = endpoints.iter().map(|endpoint| {
            let BalancedEndpoint {
                distance,
                zone,
                weight,
                ..
            } = endpoint;
            (*distance, zone.clone(), *weight)
        });
        let tiers = config.zones.map(|_| located.collect::<Vec<_>>());
        let kind = match &config.balance {
            Balance::RoundRobin => Algorithm::RoundRobin,
            Balance::LeastRequest => Algorithm::LeastRequest,
            Balance::PeakEwma { half_life } => Algorithm::PeakEwma(*half_life),
            Balance::RingHash(key) => {
                let ring = HashRing::new(named(), limits::RING_POINTS, limits::RING_POINTS_MOST);
                Algorithm::Ring(ring, key.clone())
            }
            Balance::Maglev(key) => {
                Algorithm::Maglev(Maglev::new(named(), limits::MAGLEV_PLACES), key.clone())
            }
            Balance::Random => Algorithm::Random,
            Balance::Push(push) => Algorithm::Push(push.key.clone()),
        };
        Balancer {
            shares: WeightRanges::new(endpoints.iter().map(|endpoint| u64::from(endpoint.weight))),
            kind,
            tiers: tiers.and_then(|located| DistanceTiers::new(config, &located)),
        }
    }

    /// Returns the part of a request that is hashed, if the algorithm uses one.
    pub(crate) fn hash_key(&self) -> Option<&HashKey> {
        match &self.kind {
            Algorithm::Ring(_, key) | Algorithm::Maglev(_, key) => Some(key),
            Algorithm::Push(key) => key.as_ref(),
            _ => None,
        }
    }

    /// Returns the half-life of measured response times, if they are used.
    pub(crate) fn half_life(&self) -> Option<Duration> {
        match self.kind {
            Algorithm::PeakEwma(half_life) => Some(half_life),
            _ => None,
        }
    }
}

/// A worker's view of the health of endpoints; refreshed when health has changed.
#[derive(Debug, Default)]
pub(super) struct HealthView {
    generation: u64,
    /// The instant, in nanoseconds, at which an endpoint may become healthy again.
    until: u64,
    usable: Vec<bool>,
    count: usize,
    /// `None`: distances do not matter now.
    shares: Option<TierShares>,
}

impl HealthView {
    /// Forces a refresh.
    pub(super) fn reset(&mut self) {
        self.until = 0;
    }

    fn refresh(&mut self, state: &UpstreamState, current: &UpstreamSnapshot, now: u64) {
        let generation = state.health_version();
        if generation == self.generation && now < self.until && self.usable.len() == current.endpoints.len() {
            return;
        }
        self.generation = generation;
        self.until = u64::MAX;
        let endpoints = &current.endpoints;
        let is_permanent = |endpoint: &UpstreamEndpoint| !endpoint.draining && !endpoint.state.is_leaving();
        let has_permanent = endpoints.iter().any(|endpoint| is_permanent(endpoint));
        let accepts_new = |endpoint: &UpstreamEndpoint| is_permanent(endpoint) || !has_permanent;
        self.usable.clear();
        let (mut healthy, mut responding) = (0, 0);
        for endpoint in endpoints {
            let health = endpoint.state.health();
            let (is_well, until) = health.is_healthy(now);
            self.until = self.until.min(until);
            let is_accepted = accepts_new(endpoint);
            self.usable.push(is_accepted && is_well);
            healthy += usize::from(is_accepted && is_well);
            responding += usize::from(is_accepted && health.responds(now));
        }
        self.shares = None;
        let threshold = usize::from(current.config.health.panic_percent);
        if healthy * 100 < responding * threshold {
            // Below the panic threshold: too few endpoints would break under the whole load. Endpoints that accept no connections take no load.
            self.set_usable(endpoints, |endpoint| {
                accepts_new(endpoint) && endpoint.state.health().responds(now)
            });
        } else if healthy == 0 {
            // A failed connection is cheap, and only an attempt shows whether it fails again.
            self.set_usable(endpoints, |endpoint| {
                accepts_new(endpoint) && endpoint.state.health().is_last_resort(now)
            });
        } else {
            self.count = healthy;
            self.shares = current.balancer.tiers.as_ref().and_then(|tiers| {
                let loads = DistanceTiers::loads(endpoints, accepts_new, |index| self.usable[index]);
                tiers.shares(&loads)
            });
        }
    }

    /// Draws the distance of a request's endpoint; the same for the same key while the health of endpoints is the same. `None`: any.
    fn draw_distance(&self, context: &SelectionContext<'_>) -> Option<Distance> {
        let shares = self.shares.as_ref()?;
        let key = match context.affinity {
            AffinityHint::KeyHash(key) => Some(key),
            _ => context.key,
        };
        Some(shares.draw(match key {
            Some(key) => seeded_hash(DISTANCE_SEED, &key.to_le_bytes()),
            None => (context.random)(),
        }))
    }

    fn set_usable(
        &mut self,
        endpoints: &[Arc<UpstreamEndpoint>],
        mut is_usable: impl FnMut(&UpstreamEndpoint) -> bool,
    ) {
        self.count = 0;
        for (usable, endpoint) in self.usable.iter_mut().zip(endpoints) {
            *usable = is_usable(endpoint);
            self.count += usize::from(*usable);
        }
    }
}

/// The affinity of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum AffinityHint {
    /// None: the balancing algorithm selects.
    #[default]
    None,
    /// The endpoint with this name (its token), as long as it is healthy.
    Token(u64),
    /// The same endpoint for the same number, as long as it is healthy.
    KeyHash(u64),
}

/// Returns the name of an endpoint that clients receive.
pub(crate) fn endpoint_token(upstream: &str, addr: &str) -> u64 {
    seeded_hash(stable_hash(upstream.as_bytes()), addr.as_bytes())
}

/// The inputs of a selection besides the upstream.
pub(super) struct SelectionContext<'a> {
    /// Endpoints that have failed for this request.
    pub(super) tried: &'a [Rc<PoolEndpoint>],
    /// Endpoints to which no connection could be established.
    pub(super) unreachable: &'a [Rc<PoolEndpoint>],
    /// The hash of the request's key.
    pub(super) key: Option<u64>,
    pub(super) affinity: AffinityHint,
    /// Select an unhealthy endpoint rather than none.
    pub(super) ignore_health: bool,
    pub(super) now: u64,
    /// Returns a random number.
    pub(super) random: &'a dyn Fn() -> u64,
}

/// The seed of the hash by which a key's distance is drawn: independent of the hash that selects its endpoint.
const DISTANCE_SEED: u64 = 0x7a6f_6e65;

/// Selects an endpoint. Returns its index.
pub(super) fn select_endpoint(
    state: &UpstreamState,
    current: &UpstreamSnapshot,
    endpoints: &[Rc<PoolEndpoint>],
    health: &mut HealthView,
    round_robin: &mut RoundRobin,
    context: &SelectionContext<'_>,
) -> Result<usize, Fault> {
    if endpoints.is_empty() {
        return Err(current.fault_without_endpoints);
    }
    health.refresh(state, current, context.now);
    let ignores_health = context.ignore_health && health.count == 0;
    if health.count == 0 && !ignores_health {
        return Err(Fault::AllDown);
    }
    let is_usable = |index: usize| health.usable[index] || ignores_health;
    let is_untried = |index: usize| is_usable(index) && !is_tried(context.tried, &endpoints[index]);
    let is_reachable = |index: usize| is_usable(index) && !is_tried(context.unreachable, &endpoints[index]);
    let distance = health.draw_distance(context);
    let is_preferred =
        |index: usize| Some(current.endpoints[index].distance) == distance && is_untried(index);
    let by_affinity = match (distance, context.affinity) {
        (Some(_), AffinityHint::KeyHash(_)) => affinity_endpoint(current, context, &is_preferred),
        _ => None,
    };
    let preferred = by_affinity
        .or_else(|| affinity_endpoint(current, context, &is_untried))
        .or_else(|| distance.and_then(|at| balance(current, round_robin, context, Some(at), &is_preferred)));
    let mut balance =
        |is_usable: &dyn Fn(usize) -> bool| balance(current, round_robin, context, None, is_usable);
    preferred
        .or_else(|| balance(&is_untried))
        .or_else(|| balance(&is_reachable))
        .or_else(|| balance(&is_usable))
        .ok_or(Fault::AllDown)
}

/// Returns whether there is a usable endpoint that is not in `tried`.
pub(super) fn has_untried_endpoint(
    state: &UpstreamState,
    current: &UpstreamSnapshot,
    endpoints: &[Rc<PoolEndpoint>],
    health: &mut HealthView,
    tried: &[Rc<PoolEndpoint>],
    now: u64,
) -> bool {
    health.refresh(state, current, now);
    let usable = health.usable.iter().zip(endpoints).filter(|(usable, _)| **usable);
    usable
        .map(|(_, end)| end)
        .any(|end| end.endpoint.weight > 0 && !is_tried(tried, end))
}

fn is_tried(tried: &[Rc<PoolEndpoint>], end: &PoolEndpoint) -> bool {
    tried.iter().any(|other| other.endpoint.addr == end.endpoint.addr)
}

/// Returns the endpoint that the request's affinity selects.
fn affinity_endpoint(
    current: &UpstreamSnapshot,
    context: &SelectionContext<'_>,
    is_usable: &dyn Fn(usize) -> bool,
) -> Option<usize> {
    let endpoints = || current.endpoints.iter().enumerate();
    match context.affinity {
        AffinityHint::None => None,
        AffinityHint::Token(token) => {
            let (index, endpoint) = endpoints().find(|(_, endpoint)| endpoint.token == token)?;
            // A draining endpoint still serves clients with affinity to it.
            let serves_affinity = endpoint.draining
                && context.tried.is_empty()
                && endpoint.state.health().is_healthy(context.now).0;
            (is_usable(index) || serves_affinity).then_some(index)
        }
        AffinityHint::KeyHash(key) => rendezvous(current, key, is_usable),
    }
}

/// Selects a usable endpoint by rendezvous hashing: when the endpoint with the highest score is removed, only its own requests move.
fn rendezvous(current: &UpstreamSnapshot, key: u64, is_usable: &dyn Fn(usize) -> bool) -> Option<usize> {
    let score = |endpoint: &UpstreamEndpoint| {
        let factor = (seeded_hash(key, &endpoint.token.to_le_bytes()) >> 11) as f64 / (1_u64 << 53) as f64;
        f64::from(endpoint.weight) / -(factor.max(f64::MIN_POSITIVE)).ln()
    };
    let endpoints = current.endpoints.iter().enumerate();
    let usable = endpoints.filter(|(index, _)| is_usable(*index));
    let scored = usable.map(|(index, endpoint)| (index, score(endpoint)));
    scored
        .max_by(|one, second| one.1.total_cmp(&second.1))
        .map(|(index, _)| index)
}

/// Selects a usable endpoint by the balancing algorithm. With `distance`, all usable endpoints have it.
fn balance(
    current: &UpstreamSnapshot,
    round_robin: &mut RoundRobin,
    context: &SelectionContext<'_>,
    distance: Option<Distance>,
    is_usable: &dyn Fn(usize) -> bool,
) -> Option<usize> {
    let picker = &current.balancer;
    let weight = |index: usize| effective_weight(current, index, context.now);
    let draw = || draw_by_weight(current, context, distance, is_usable);
    match (&picker.kind, context.key) {
        (Algorithm::RoundRobin, _) => {
            let count = current.endpoints.len();
            round_robin.next((0..count).map(|index| if is_usable(index) { weight(index) } else { 0 }))
        }
        (Algorithm::Push(_), key) => balance_push(current, context, key, is_usable),
        (Algorithm::Ring(ring, _), Some(key)) => {
            find_bounded(current, context.now, is_usable, |accepts| ring.find(key, accepts))
        }
        (Algorithm::Maglev(table, _), Some(key)) => {
            find_bounded(current, context.now, is_usable, |accepts| {
                table.find(key, accepts)
            })
        }
        // Without a key to hash, at random.
        (Algorithm::Random | Algorithm::Ring(..) | Algorithm::Maglev(..), _) => draw(),
        (Algorithm::LeastRequest | Algorithm::PeakEwma(_), _) => {
            let first = draw()?;
            if current.endpoints.len() == 1 {
                return Some(first);
            }
            // Two draws of one endpoint give no comparison.
            let second = (0..DRAWS).filter_map(|_| draw()).find(|second| *second != first);
            let Some(second) = second else { return Some(first) };
            let load = |index: usize| effective_load(current, index, context.now);
            Some(less_loaded(
                (first, load(first), weight(first)),
                (second, load(second), weight(second)),
            ))
        }
    }
}

/// Returns whether the endpoint with an index may be selected.
type IsUsable<'a> = &'a dyn Fn(usize) -> bool;

/// Finds a usable endpoint by `find`, if possible one whose load is within the bound of consistent hashing.
fn find_bounded(
    current: &UpstreamSnapshot,
    now: u64,
    is_usable: &dyn Fn(usize) -> bool,
    find: impl Fn(IsUsable<'_>) -> Option<usize>,
) -> Option<usize> {
    let bounded = current.config.hash_balance_factor.and_then(|factor| {
        let total = sum_loads(node_loads(current, now), is_usable);
        let is_within = |index: usize| node_load(current, index, now).is_within(&total, u64::from(factor));
        find(&|index| is_usable(index) && is_within(index))
    });
    // With a bound there is always one within it, unless loads change meanwhile.
    bounded.or_else(|| find(is_usable))
}

/// Selects a push server for a new client: one with room; that of the key within its bound; one of this zone, unless that is more loaded;
/// the less loaded one of two.
fn balance_push(
    current: &UpstreamSnapshot,
    context: &SelectionContext<'_>,
    key: Option<u64>,
    is_usable: &dyn Fn(usize) -> bool,
) -> Option<usize> {
    // One view of the loads for all steps.
    let loads: Vec<NodeLoad> = node_loads(current, context.now).collect();
    let has_room = |index: usize| is_usable(index) && !loads[index].is_full();
    let is_any_open = (0..loads.len()).any(has_room);
    // If all are full by their reports, they decide themselves.
    let is_open = |index: usize| is_usable(index) && (!is_any_open || has_room(index));
    let by_key = key.and_then(|key| {
        let factor = current
            .config
            .hash_balance_factor
            .unwrap_or(limits::PUSH_KEY_FACTOR);
        let total = sum_loads(loads.iter().copied(), &is_open);
        let is_within = |index: usize| is_open(index) && loads[index].is_within(&total, u64::from(factor));
        rendezvous(current, key, &is_within)
    });
    if by_key.is_some() {
        return by_key;
    }
    let is_near = |index: usize| current.endpoints[index].distance != Distance::Elsewhere;
    let near = sum_loads(loads.iter().copied(), &|index| is_open(index) && is_near(index));
    let far = sum_loads(loads.iter().copied(), &|index| is_open(index) && !is_near(index));
    let leaves_zone = !far.is_none() && (near.is_none() || near.exceeds(&far, limits::PUSH_ZONE_PERCENT));
    let is_candidate = |index: usize| is_open(index) && is_near(index) != leaves_zone;
    let first = draw_by_room(&loads, (context.random)(), &is_candidate)?;
    let second = draw_by_room(&loads, (context.random)(), &|index| {
        index != first && is_candidate(index)
    });
    let is_better = |second: &usize| loads[first].exceeds(&loads[*second], 100);
    Some(second.filter(is_better).unwrap_or(first))
}

/// Draws an endpoint at random, by the clients that it has room for and its weight.
fn draw_by_room(loads: &[NodeLoad], random: u64, is_candidate: &dyn Fn(usize) -> bool) -> Option<usize> {
    let total = sum_loads(loads.iter().copied(), is_candidate);
    let mut left = (u128::from(random) * u128::from(total.share_of(&total))) >> 64;
    let mut candidates = (0..loads.len()).filter(|index| is_candidate(*index));
    candidates.find(|index| {
        let share = u128::from(loads[*index].share_of(&total));
        let is_drawn = left < share;
        left = left.saturating_sub(share);
        is_drawn
    })
}

/// Returns the estimated load of an endpoint.
fn node_load(current: &UpstreamSnapshot, index: usize, now: u64) -> NodeLoad {
    let weight = effective_weight(current, index, now);
    current.endpoints[index].state.node_load(weight, now)
}

/// Returns the estimated load of each endpoint.
fn node_loads(current: &UpstreamSnapshot, now: u64) -> impl Iterator<Item = NodeLoad> {
    (0..current.endpoints.len()).map(move |index| node_load(current, index, now))
}

/// Returns the load of several endpoints together.
fn sum_loads(loads: impl Iterator<Item = NodeLoad>, is_included: IsUsable<'_>) -> NodeLoad {
    let mut sum = NodeLoad::NONE;
    let included = loads.enumerate().filter(|(index, _)| is_included(*index));
    included.for_each(|(_, load)| sum.add(load));
    sum
}

/// The number of draws without a usable endpoint before all are scanned.
const DRAWS: usize = 8;

/// Draws an endpoint at random by weight, of those with this distance if there is one.
fn draw_by_weight(
    current: &UpstreamSnapshot,
    context: &SelectionContext<'_>,
    distance: Option<Distance>,
    is_usable: &dyn Fn(usize) -> bool,
) -> Option<usize> {
    let tiers = current.balancer.tiers.as_ref();
    let tier = distance.and_then(|distance| Some(tiers?.tier(distance)));
    let mut draws = (0..DRAWS).filter_map(|_| {
        let random = (context.random)();
        let index = match tier {
            Some(tier) => tier.draw(random)?,
            None => current.balancer.shares.draw(random)?,
        };
        // During slow start an endpoint accepts only part of its draws.
        let factor = current.config.slow_start.map_or(PERMILLE, |slow| {
            slow_start_factor(current, index, context.now, slow)
        });
        let is_drawn = is_usable(index) && (factor == PERMILLE || (context.random)() % PERMILLE < factor);
        is_drawn.then_some(index)
    });
    draws.next().or_else(|| {
        let count = tier.map_or(current.endpoints.len(), |tier| tier.indexes().len());
        let start = (context.random)() as usize % count.max(1);
        let all = (start..count).chain(0..start);
        let mut all = all.map(|at| tier.map_or(at, |tier| tier.indexes()[at] as usize));
        all.find(|index| is_usable(*index) && current.endpoints[*index].weight > 0)
    })
}

/// Returns the requests in flight; weighted by response time where that is measured.
fn effective_load(current: &UpstreamSnapshot, index: usize, now: u64) -> u64 {
    let state = &current.endpoints[index].state;
    let active = u64::from(state.requests_in_flight());
    match current.balancer.kind {
        // An endpoint without a measurement gets a request.
        Algorithm::PeakEwma(half_life) => {
            (active + 1).saturating_mul(state.latency().decayed(now, half_life) / 1024)
        }
        _ => active,
    }
}

const PERMILLE: u64 = 1000;

/// Returns the effective weight in thousandths, to have steps for slow start.
fn effective_weight(current: &UpstreamSnapshot, index: usize, now: u64) -> u64 {
    let weight = u64::from(current.endpoints[index].weight);
    let factor = current
        .config
        .slow_start
        .map_or(PERMILLE, |slow| slow_start_factor(current, index, now, slow));
    weight * factor
}

/// Returns the fraction of its weight that an endpoint has during slow start, in thousandths.
fn slow_start_factor(current: &UpstreamSnapshot, index: usize, now: u64, slow: SlowStart) -> u64 {
    let age = current.endpoints[index].state.health().healthy_for(now);
    let window = u64::try_from(slow.window.as_nanos()).unwrap_or(u64::MAX).max(1);
    if age >= window {
        return PERMILLE;
    }
    let factor = (u128::from(age) * u128::from(PERMILLE) / u128::from(window)) as u64;
    factor.max(u64::from(slow.from_percent) * 10)
}
