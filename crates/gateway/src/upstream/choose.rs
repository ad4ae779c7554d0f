//! Which endpoint a request goes to: those that are well, and of them whose turn it is.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use ringmain_engine::Cx;

use super::local::End;
use super::{Current, Endpoint, Shared};
use crate::balance::{Maglev, Ring, Shares, Turns, hash, hash_with, less_loaded};
use crate::fault::Fault;
use crate::limits;
use crate::model::{Balance, HashKey, SlowStart, Upstream};

/// How an upstream's endpoints are chosen: what of it can be worked out before.
#[derive(Debug)]
pub(crate) struct Picker {
    shares: Shares,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    InTurn,
    LeastRequest,
    PeakEwma(Duration),
    Ring(Ring, HashKey),
    Maglev(Maglev, HashKey),
    Random,
}

impl Picker {
    /// Of endpoints with these names and weights.
    pub(crate) fn new(config: &Upstream, endpoints: &[(String, u32)]) -> Picker {
        let named = || endpoints.iter().map(|(name, weight)| (name.as_str(), *weight));
        let kind = match &config.balance {
            Balance::RoundRobin => Kind::InTurn,
            Balance::LeastRequest => Kind::LeastRequest,
            Balance::PeakEwma { half_life } => Kind::PeakEwma(*half_life),
            Balance::RingHash(key) => {
                let ring = Ring::new(named(), limits::RING_POINTS, limits::RING_POINTS_MOST);
                Kind::Ring(ring, key.clone())
            }
            Balance::Maglev(key) => Kind::Maglev(Maglev::new(named(), limits::MAGLEV_PLACES), key.clone()),
            Balance::Random => Kind::Random,
        };
        Picker {
            shares: Shares::new(endpoints.iter().map(|(_, weight)| u64::from(*weight))),
            kind,
        }
    }

    /// What of a request is hashed.
    pub(crate) fn key(&self) -> Option<&HashKey> {
        match &self.kind {
            Kind::Ring(_, key) | Kind::Maglev(_, key) => Some(key),
            _ => None,
        }
    }

    /// How long answers that were measured count half.
    pub(crate) fn half_life(&self) -> Option<Duration> {
        match self.kind {
            Kind::PeakEwma(half_life) => Some(half_life),
            _ => None,
        }
    }
}

/// What a worker knows of who is well; looked at anew when something has changed.
#[derive(Debug, Default)]
pub(super) struct Wellness {
    generation: u64,
    /// Nanoseconds: by then somebody may be well again.
    until: u64,
    usable: Vec<bool>,
    count: usize,
}

impl Wellness {
    /// Has it looked at again.
    pub(super) fn reset(&mut self) {
        self.until = 0;
    }

    fn follow(&mut self, shared: &Shared, current: &Current, now: u64) {
        let generation = shared.health_generation();
        if generation == self.generation && now < self.until && self.usable.len() == current.endpoints.len() {
            return;
        }
        self.generation = generation;
        self.until = u64::MAX;
        let endpoints = &current.endpoints;
        let lasting = endpoints.iter().any(|endpoint| !endpoint.draining);
        let is_wanted = |endpoint: &Endpoint| !(endpoint.draining && lasting);
        self.usable.clear();
        let (mut healthy, mut responding) = (0, 0);
        for endpoint in endpoints {
            let health = endpoint.state.health();
            let (is_well, until) = health.is_well(now);
            self.until = self.until.min(until);
            let wanted = is_wanted(endpoint);
            self.usable.push(wanted && is_well);
            healthy += usize::from(wanted && is_well);
            responding += usize::from(wanted && health.responds(now));
        }
        let least = usize::from(current.config.health.panic_percent);
        if healthy * 100 < responding * least {
            // Too few would break under the load of many. Endpoints that accept no connections carry none of it.
            self.use_those(endpoints, |endpoint| {
                is_wanted(endpoint) && endpoint.state.health().responds(now)
            });
        } else if healthy == 0 {
            // A failed connection is cheap, and whether it fails again is only known by trying.
            self.use_those(endpoints, |endpoint| {
                is_wanted(endpoint) && endpoint.state.health().is_last_resort(now)
            });
        } else {
            self.count = healthy;
        }
    }

    fn use_those(&mut self, endpoints: &[Arc<Endpoint>], mut is_usable: impl FnMut(&Endpoint) -> bool) {
        self.count = 0;
        for (usable, endpoint) in self.usable.iter_mut().zip(endpoints) {
            *usable = is_usable(endpoint);
            self.count += usize::from(*usable);
        }
    }
}

/// Which endpoint a request should go to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Prefer {
    /// Whoever's turn it is.
    #[default]
    Any,
    /// The one of this name ([`token`]), as long as it is well.
    Named(u64),
    /// The same one for the same number, as long as it is well.
    Hashed(u64),
}

/// The name of an endpoint that clients are told.
pub(crate) fn token(upstream: &str, addr: &str) -> u64 {
    hash_with(hash(upstream.as_bytes()), addr.as_bytes())
}

/// What a choice depends on, besides the upstream.
pub(super) struct Wish<'a> {
    /// Endpoints that have failed this request.
    pub(super) tried: &'a [Rc<End>],
    /// Endpoints to which no connection could be established.
    pub(super) unreachable: &'a [Rc<End>],
    /// A hash of what tells requests apart.
    pub(super) key: Option<u64>,
    pub(super) prefer: Prefer,
    /// Whether an unhealthy endpoint is chosen rather than none.
    pub(super) regardless: bool,
    pub(super) now: u64,
    pub(super) cx: &'a Cx,
}

/// Chooses one of the endpoints, by its place.
pub(super) fn choose(
    shared: &Shared,
    current: &Current,
    ends: &[Rc<End>],
    wellness: &mut Wellness,
    turns: &mut Turns,
    wish: &Wish<'_>,
) -> Result<usize, Fault> {
    if ends.is_empty() {
        return Err(current.absence);
    }
    wellness.follow(shared, current, wish.now);
    let regardless = wish.regardless && wellness.count == 0;
    if wellness.count == 0 && !regardless {
        return Err(Fault::AllDown);
    }
    let usable = |index: usize| wellness.usable[index] || regardless;
    let fresh = |index: usize| usable(index) && !is_tried(wish.tried, &ends[index]);
    let reachable = |index: usize| usable(index) && !is_tried(wish.unreachable, &ends[index]);
    preferred(current, wish, &fresh)
        .or_else(|| pick(current, turns, wish, &fresh))
        .or_else(|| pick(current, turns, wish, &reachable))
        .or_else(|| pick(current, turns, wish, &usable))
        .ok_or(Fault::AllDown)
}

/// Whether there is an endpoint that can be chosen and is none of `tried`.
pub(super) fn has_untried(
    shared: &Shared,
    current: &Current,
    ends: &[Rc<End>],
    wellness: &mut Wellness,
    (tried, now): (&[Rc<End>], u64),
) -> bool {
    wellness.follow(shared, current, now);
    let usable = wellness.usable.iter().zip(ends).filter(|(usable, _)| **usable);
    usable
        .map(|(_, end)| end)
        .any(|end| end.endpoint.weight > 0 && !is_tried(tried, end))
}

fn is_tried(tried: &[Rc<End>], end: &End) -> bool {
    tried.iter().any(|other| other.endpoint.addr == end.endpoint.addr)
}

/// The endpoint that a request belongs to.
fn preferred(current: &Current, wish: &Wish<'_>, usable: &dyn Fn(usize) -> bool) -> Option<usize> {
    let endpoints = || current.endpoints.iter().enumerate();
    match wish.prefer {
        Prefer::Any => None,
        Prefer::Named(token) => {
            let (index, endpoint) = endpoints().find(|(_, endpoint)| endpoint.token == token)?;
            // One that gets nothing new still finishes what it has.
            let finishes =
                endpoint.draining && wish.tried.is_empty() && endpoint.state.health().is_well(wish.now).0;
            (usable(index) || finishes).then_some(index)
        }
        // The highest of all: if one goes, its requests go elsewhere, and no others.
        Prefer::Hashed(key) => {
            let score = |endpoint: &Endpoint| {
                let share =
                    (hash_with(key, &endpoint.token.to_le_bytes()) >> 11) as f64 / (1_u64 << 53) as f64;
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

fn pick(
    current: &Current,
    turns: &mut Turns,
    wish: &Wish<'_>,
    usable: &dyn Fn(usize) -> bool,
) -> Option<usize> {
    let picker = &current.picker;
    let weight = |index: usize| weight(current, index, wish.now);
    let draw = || draw(current, wish, usable);
    match (&picker.kind, wish.key) {
        (Kind::InTurn, _) => {
            let count = current.endpoints.len();
            turns.next((0..count).map(|index| if usable(index) { weight(index) } else { 0 }))
        }
        (Kind::Ring(ring, _), Some(key)) => ring.find(key, usable),
        (Kind::Maglev(table, _), Some(key)) => table.find(key, usable),
        // Without what would be hashed, by chance.
        (Kind::Random | Kind::Ring(..) | Kind::Maglev(..), _) => draw(),
        (Kind::LeastRequest | Kind::PeakEwma(_), _) => {
            let one = draw()?;
            if current.endpoints.len() == 1 {
                return Some(one);
            }
            // Two alike tell nothing.
            let two = (0..TRIES).filter_map(|_| draw()).find(|two| *two != one);
            let Some(two) = two else { return Some(one) };
            let load = |index: usize| load(current, index, wish.now);
            Some(less_loaded(
                (one, load(one), weight(one)),
                (two, load(two), weight(two)),
            ))
        }
    }
}

/// Draws in which nobody usable may come before all are looked through.
const TRIES: usize = 8;

/// One by chance and weight.
fn draw(current: &Current, wish: &Wish<'_>, usable: &dyn Fn(usize) -> bool) -> Option<usize> {
    let count = current.endpoints.len();
    let drawn = (0..TRIES).filter_map(|_| {
        let index = current.picker.shares.draw(wish.cx.random())?;
        // Somebody new is taken now and then only.
        let share = current
            .config
            .slow_start
            .map_or(PERMILLE, |slow| warmth(current, index, wish.now, slow));
        (usable(index) && (share == PERMILLE || wish.cx.random() % PERMILLE < share)).then_some(index)
    });
    let mut drawn = drawn;
    drawn.next().or_else(|| {
        let start = wish.cx.random() as usize % count;
        let mut all = (start..count).chain(0..start);
        all.find(|index| usable(*index) && current.endpoints[*index].weight > 0)
    })
}

/// Requests under way; by how long answers take, if that is measured.
fn load(current: &Current, index: usize, now: u64) -> u64 {
    let state = &current.endpoints[index].state;
    let active = u64::from(state.active());
    match current.picker.kind {
        // Whoever was never measured is tried.
        Kind::PeakEwma(half_life) => {
            (active + 1).saturating_mul(state.latency().decayed(now, half_life) / 1024)
        }
        _ => active,
    }
}

const PERMILLE: u64 = 1000;

/// In thousandths, so that slow start can be told.
fn weight(current: &Current, index: usize, now: u64) -> u64 {
    let weight = u64::from(current.endpoints[index].weight);
    let share = current
        .config
        .slow_start
        .map_or(PERMILLE, |slow| warmth(current, index, now, slow));
    weight * share
}

/// How much of its share an endpoint gets yet, in thousandths.
fn warmth(current: &Current, index: usize, now: u64, slow: SlowStart) -> u64 {
    let age = current.endpoints[index].state.health().age(now);
    let window = u64::try_from(slow.window.as_nanos()).unwrap_or(u64::MAX).max(1);
    if age >= window {
        return PERMILLE;
    }
    let grown = (u128::from(age) * u128::from(PERMILLE) / u128::from(window)) as u64;
    grown.max(u64::from(slow.from_percent) * 10)
}
