//! Selection of a request's endpoint: by health, then by the balancing algorithm.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use ringmain_engine::Cx;

use super::pool::PoolEndpoint;
use super::{UpstreamEndpoint, UpstreamSnapshot, UpstreamState};
use crate::balance::{HashRing, Maglev, RoundRobin, WeightRanges, less_loaded, seeded_hash, stable_hash};
use crate::fault::Fault;
use crate::limits;
use crate::model::{Balance, HashKey, SlowStart, Upstream};

/// The precomputed part of an upstream's balancing.
#[derive(Debug)]
pub(crate) struct Balancer {
    shares: WeightRanges,
    kind: Algorithm,
}

#[derive(Debug)]
enum Algorithm {
    RoundRobin,
    LeastRequest,
    PeakEwma(Duration),
    Ring(HashRing, HashKey),
    Maglev(Maglev, HashKey),
    Random,
}

impl Balancer {
    /// Builds the state for endpoints with these names and weights.
    pub(crate) fn new(config: &Upstream, endpoints: &[(String, u32)]) -> Balancer {
        let named = || endpoints.iter().map(|(name, weight)| (name.as_str(), *weight));
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
        };
        Balancer {
            shares: WeightRanges::new(endpoints.iter().map(|(_, weight)| u64::from(*weight))),
            kind,
        }
    }

    /// Returns the part of a request that is hashed, if the algorithm uses one.
    pub(crate) fn hash_key(&self) -> Option<&HashKey> {
        match &self.kind {
            Algorithm::Ring(_, key) | Algorithm::Maglev(_, key) => Some(key),
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
}

impl HealthView {
    /// Forces a refresh.
    pub(super) fn reset(&mut self) {
        self.until = 0;
    }

    fn refresh(&mut self, shared: &UpstreamState, current: &UpstreamSnapshot, now: u64) {
        let generation = shared.health_version();
        if generation == self.generation && now < self.until && self.usable.len() == current.endpoints.len() {
            return;
        }
        self.generation = generation;
        self.until = u64::MAX;
        let endpoints = &current.endpoints;
        let lasting = endpoints.iter().any(|endpoint| !endpoint.draining);
        let is_wanted = |endpoint: &UpstreamEndpoint| !(endpoint.draining && lasting);
        self.usable.clear();
        let (mut healthy, mut responding) = (0, 0);
        for endpoint in endpoints {
            let health = endpoint.state.health();
            let (is_well, until) = health.is_healthy(now);
            self.until = self.until.min(until);
            let wanted = is_wanted(endpoint);
            self.usable.push(wanted && is_well);
            healthy += usize::from(wanted && is_well);
            responding += usize::from(wanted && health.responds(now));
        }
        let least = usize::from(current.config.health.panic_percent);
        if healthy * 100 < responding * least {
            // Below the panic threshold: too few endpoints would break under the whole load. Endpoints that accept no connections take no load.
            self.set_usable(endpoints, |endpoint| {
                is_wanted(endpoint) && endpoint.state.health().responds(now)
            });
        } else if healthy == 0 {
            // A failed connection is cheap, and only an attempt shows whether it fails again.
            self.set_usable(endpoints, |endpoint| {
                is_wanted(endpoint) && endpoint.state.health().is_last_resort(now)
            });
        } else {
            self.count = healthy;
        }
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
    pub(super) cx: &'a Cx,
}

/// Selects an endpoint. Returns its index.
pub(super) fn select_endpoint(
    shared: &UpstreamState,
    current: &UpstreamSnapshot,
    ends: &[Rc<PoolEndpoint>],
    wellness: &mut HealthView,
    turns: &mut RoundRobin,
    wish: &SelectionContext<'_>,
) -> Result<usize, Fault> {
    if ends.is_empty() {
        return Err(current.fault_without_endpoints);
    }
    wellness.refresh(shared, current, wish.now);
    let regardless = wish.ignore_health && wellness.count == 0;
    if wellness.count == 0 && !regardless {
        return Err(Fault::AllDown);
    }
    let usable = |index: usize| wellness.usable[index] || regardless;
    let fresh = |index: usize| usable(index) && !is_tried(wish.tried, &ends[index]);
    let reachable = |index: usize| usable(index) && !is_tried(wish.unreachable, &ends[index]);
    affinity_endpoint(current, wish, &fresh)
        .or_else(|| balance(current, turns, wish, &fresh))
        .or_else(|| balance(current, turns, wish, &reachable))
        .or_else(|| balance(current, turns, wish, &usable))
        .ok_or(Fault::AllDown)
}

/// Returns whether there is a usable endpoint that is not in `tried`.
pub(super) fn has_untried_endpoint(
    shared: &UpstreamState,
    current: &UpstreamSnapshot,
    ends: &[Rc<PoolEndpoint>],
    wellness: &mut HealthView,
    tried: &[Rc<PoolEndpoint>],
    now: u64,
) -> bool {
    wellness.refresh(shared, current, now);
    let usable = wellness.usable.iter().zip(ends).filter(|(usable, _)| **usable);
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
    wish: &SelectionContext<'_>,
    usable: &dyn Fn(usize) -> bool,
) -> Option<usize> {
    let endpoints = || current.endpoints.iter().enumerate();
    match wish.affinity {
        AffinityHint::None => None,
        AffinityHint::Token(token) => {
            let (index, endpoint) = endpoints().find(|(_, endpoint)| endpoint.token == token)?;
            // A draining endpoint still serves clients with affinity to it.
            let finishes =
                endpoint.draining && wish.tried.is_empty() && endpoint.state.health().is_healthy(wish.now).0;
            (usable(index) || finishes).then_some(index)
        }
        // Rendezvous hashing: when the endpoint with the highest score is removed, only its own requests move.
        AffinityHint::KeyHash(key) => {
            let score = |endpoint: &UpstreamEndpoint| {
                let share =
                    (seeded_hash(key, &endpoint.token.to_le_bytes()) >> 11) as f64 / (1_u64 << 53) as f64;
                f64::from(endpoint.weight) / -(share.max(f64::MIN_POSITIVE)).ln()
            };
            let usable = endpoints().filter(|(index, _)| usable(*index));
            let scored = usable.map(|(index, endpoint)| (index, score(endpoint)));
            scored
                .max_by(|one, two| one.1.total_cmp(&two.1))
                .map(|(index, _)| index)
        }
    }
}

fn balance(
    current: &UpstreamSnapshot,
    turns: &mut RoundRobin,
    wish: &SelectionContext<'_>,
    usable: &dyn Fn(usize) -> bool,
) -> Option<usize> {
    let picker = &current.balancer;
    let weight = |index: usize| effective_weight(current, index, wish.now);
    let draw = || draw_by_weight(current, wish, usable);
    match (&picker.kind, wish.key) {
        (Algorithm::RoundRobin, _) => {
            let count = current.endpoints.len();
            turns.next((0..count).map(|index| if usable(index) { weight(index) } else { 0 }))
        }
        (Algorithm::Ring(ring, _), Some(key)) => ring.find(key, usable),
        (Algorithm::Maglev(table, _), Some(key)) => table.find(key, usable),
        // Without a key to hash, at random.
        (Algorithm::Random | Algorithm::Ring(..) | Algorithm::Maglev(..), _) => draw(),
        (Algorithm::LeastRequest | Algorithm::PeakEwma(_), _) => {
            let one = draw()?;
            if current.endpoints.len() == 1 {
                return Some(one);
            }
            // Two draws of one endpoint give no comparison.
            let two = (0..DRAWS).filter_map(|_| draw()).find(|two| *two != one);
            let Some(two) = two else { return Some(one) };
            let load = |index: usize| effective_load(current, index, wish.now);
            Some(less_loaded(
                (one, load(one), weight(one)),
                (two, load(two), weight(two)),
            ))
        }
    }
}

/// The number of draws without a usable endpoint before all are scanned.
const DRAWS: usize = 8;

/// Draws an endpoint at random by weight.
fn draw_by_weight(
    current: &UpstreamSnapshot,
    wish: &SelectionContext<'_>,
    usable: &dyn Fn(usize) -> bool,
) -> Option<usize> {
    let count = current.endpoints.len();
    let drawn = (0..DRAWS).filter_map(|_| {
        let index = current.balancer.shares.draw(wish.cx.random())?;
        // During slow start an endpoint accepts only part of its draws.
        let share = current
            .config
            .slow_start
            .map_or(PERMILLE, |slow| slow_start_factor(current, index, wish.now, slow));
        (usable(index) && (share == PERMILLE || wish.cx.random() % PERMILLE < share)).then_some(index)
    });
    let mut drawn = drawn;
    drawn.next().or_else(|| {
        let start = wish.cx.random() as usize % count;
        let mut all = (start..count).chain(0..start);
        all.find(|index| usable(*index) && current.endpoints[*index].weight > 0)
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
    let share = current
        .config
        .slow_start
        .map_or(PERMILLE, |slow| slow_start_factor(current, index, now, slow));
    weight * share
}

/// Returns the fraction of its weight that an endpoint has during slow start, in thousandths.
fn slow_start_factor(current: &UpstreamSnapshot, index: usize, now: u64, slow: SlowStart) -> u64 {
    let age = current.endpoints[index].state.health().healthy_for(now);
    let window = u64::try_from(slow.window.as_nanos()).unwrap_or(u64::MAX).max(1);
    if age >= window {
        return PERMILLE;
    }
    let grown = (u128::from(age) * u128::from(PERMILLE) / u128::from(window)) as u64;
    grown.max(u64::from(slow.from_percent) * 10)
}
