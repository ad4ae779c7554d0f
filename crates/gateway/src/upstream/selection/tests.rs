//! Selection by distance while endpoints and whole zones fail and recover: each seed is a history of faults.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use super::{AffinityHint, HealthView, SelectionContext, select_endpoint};
use crate::balance::RoundRobin;
use crate::fault::Fault;
use crate::health::CheckVerdict;
use crate::model::{
    Balance, Config, Distance, Endpoint, EndpointLocation, HashKey, Upstream, ZonePreference,
};
use crate::upstream::pool::{PoolEndpoint, build_endpoints};
use crate::upstream::registry::UpstreamRegistry;
use crate::upstream::{UpstreamSnapshot, UpstreamState};

const SEEDS: u64 = 8;
const STEPS: usize = 30;
const REQUESTS: u64 = 3000;

/// Zones with this many endpoints each; the first is near.
const ZONES: [usize; 3] = [3, 3, 4];

struct Sim {
    state: Arc<UpstreamState>,
    current: Arc<UpstreamSnapshot>,
    endpoints: Vec<Rc<PoolEndpoint>>,
    health: HealthView,
    round_robin: RoundRobin,
    random: RefCell<fastrand::Rng>,
}

/// Returns the state of an upstream that is served.
pub(super) fn staged(upstream: Upstream) -> Arc<UpstreamState> {
    let name = Arc::clone(&upstream.name);
    let config = Config {
        upstreams: vec![Arc::new(upstream)],
        ..Config::default()
    };
    let mut registry = UpstreamRegistry::default();
    registry.stage(&config, None, Duration::ZERO);
    registry.commit();
    Arc::clone(registry.find(&name).expect("the upstream"))
}

impl Sim {
    fn new(seed: u64, balance: Balance, zones: Option<ZonePreference>) -> Sim {
        let mut endpoints = Vec::new();
        for (zone, count) in (0_u8..).zip(ZONES) {
            for number in 0..count as u8 {
                let address = SocketAddr::from(([10, 0, zone, number], 80));
                let mut endpoint = Endpoint::new(EndpointLocation::Address(address));
                endpoint.zone = Some(format!("zone-{zone}").into());
                endpoint.distance = if zone == 0 {
                    Distance::Zone
                } else {
                    Distance::Elsewhere
                };
                endpoints.push(endpoint);
            }
        }
        let state = staged(Upstream {
            balance,
            zones,
            ..Upstream::new("shop", endpoints)
        });
        let current = state.snapshot();
        Sim {
            endpoints: build_endpoints(&current, &[], true),
            state,
            current,
            health: HealthView::default(),
            round_robin: RoundRobin::default(),
            random: RefCell::new(fastrand::Rng::with_seed(seed)),
        }
    }

    fn select(
        &mut self,
        key: Option<u64>,
        affinity: AffinityHint,
        tried: &[Rc<PoolEndpoint>],
    ) -> Result<usize, Fault> {
        let random = || self.random.borrow_mut().u64(..);
        let context = SelectionContext {
            tried,
            unreachable: &[],
            key,
            affinity,
            ignore_health: false,
            now: 1,
            random: &random,
        };
        select_endpoint(
            &self.state,
            &self.current,
            &self.endpoints,
            &mut self.health,
            &mut self.round_robin,
            &context,
        )
    }

    fn set(&self, index: usize, is_healthy: bool) {
        let verdict = if is_healthy {
            CheckVerdict::Healthy
        } else {
            CheckVerdict::Unhealthy
        };
        self.current.endpoints[index].state.health().set_verdict(verdict);
        self.state.bump_health_version();
    }

    fn is_healthy(&self, index: usize) -> bool {
        self.current.endpoints[index].state.health().verdict() != CheckVerdict::Unhealthy
    }

    /// The number of healthy endpoints of a zone.
    fn healthy_in(&self, zone: usize) -> usize {
        let first: usize = ZONES[..zone].iter().sum();
        (first..first + ZONES[zone])
            .filter(|index| self.is_healthy(*index))
            .count()
    }

    /// Makes an endpoint fail or recover, or a whole zone.
    fn inject(&self) {
        let (index, zone, is_whole, is_healthy) = {
            let mut random = self.random.borrow_mut();
            let zone = random.usize(..ZONES.len());
            (
                random.usize(..self.endpoints.len()),
                zone,
                random.u8(..4) == 0,
                random.bool(),
            )
        };
        if !is_whole {
            return self.set(index, is_healthy);
        }
        let first: usize = ZONES[..zone].iter().sum();
        (first..first + ZONES[zone]).for_each(|index| self.set(index, is_healthy));
    }

    /// Sends requests, each with a key of its own. Returns the number at each endpoint.
    fn send(&mut self) -> Vec<u64> {
        let mut counts = vec![0; self.endpoints.len()];
        for key in 0..REQUESTS {
            if let Ok(index) = self.select(
                Some(key.wrapping_mul(0x9e37_79b9_7f4a_7c15)),
                AffinityHint::None,
                &[],
            ) {
                counts[index] += 1;
            }
        }
        counts
    }
}

fn algorithms() -> [Balance; 6] {
    [
        Balance::RoundRobin,
        Balance::LeastRequest,
        Balance::PeakEwma {
            half_life: Duration::from_secs(5),
        },
        Balance::Random,
        Balance::RingHash(HashKey::Source),
        Balance::Maglev(HashKey::Source),
    ]
}

#[test]
fn requests_stay_near_while_zones_fail_and_recover() {
    let mut lost = 0;
    for (seed, balance) in (0..SEEDS).flat_map(|seed| algorithms().map(|balance| (seed, balance))) {
        let mut sim = Sim::new(seed, balance.clone(), Some(ZonePreference::Prefer));
        for step in 0..STEPS {
            sim.inject();
            let counts = sim.send();
            let place = format!("seed {seed}, step {step}, {balance:?}: {counts:?}");
            let healthy = sim.healthy_in(0) + sim.healthy_in(1) + sim.healthy_in(2);
            let sent: u64 = counts.iter().sum();
            assert_eq!(sent, if healthy == 0 { 0 } else { REQUESTS }, "{place}");
            for (index, count) in counts.iter().enumerate() {
                assert!(
                    sim.is_healthy(index) || *count == 0,
                    "{index} is unhealthy, {place}"
                );
            }
            let far = sim.healthy_in(1) + sim.healthy_in(2);
            let (near_load, far_load) = (
                (1400 * sim.healthy_in(0) / ZONES[0]).min(1000),
                1400 * far / (ZONES[1] + ZONES[2]),
            );
            let far_load = far_load.min(1000 - near_load);
            let expected = REQUESTS * near_load as u64 / (near_load + far_load).max(1) as u64;
            let near: u64 = counts[..ZONES[0]].iter().sum();
            assert!(
                near.abs_diff(expected) <= REQUESTS / 20,
                "{near} of {expected}, {place}"
            );
            lost += usize::from(near_load == 0 && far > 0);
        }
    }
    assert!(lost > 0, "the near zone was lost in no history");
}

#[test]
fn near_endpoints_share_their_requests_evenly() {
    for (seed, balance) in (0..SEEDS).flat_map(|seed| algorithms().map(|balance| (seed, balance))) {
        let mut sim = Sim::new(seed, balance.clone(), Some(ZonePreference::Balance));
        let counts = sim.send();
        // A third of the requests of three zones are near, and three of ten endpoints carry nine tenths of a third.
        let near: u64 = counts[..ZONES[0]].iter().sum();
        let expected = REQUESTS * 9 / 10;
        assert!(
            near.abs_diff(expected) <= REQUESTS / 20,
            "seed {seed}, {balance:?}: {counts:?}"
        );
        // Rings and tables have every endpoint: gaps between the near ones differ.
        let tolerance = match balance {
            Balance::RingHash(_) | Balance::Maglev(_) => near / 6,
            _ => near / 20,
        };
        for count in &counts[..ZONES[0]] {
            let is_even = count.abs_diff(near / ZONES[0] as u64) <= tolerance;
            assert!(is_even, "seed {seed}, {balance:?}: {counts:?}");
        }
    }
}

#[test]
fn a_key_keeps_its_endpoint_and_a_retry_leaves_the_zone() {
    let seed = 3;
    let mut sim = Sim::new(
        seed,
        Balance::RingHash(HashKey::Source),
        Some(ZonePreference::Prefer),
    );
    for key in 0..200 {
        for affinity in [AffinityHint::None, AffinityHint::KeyHash(key)] {
            let first = sim.select(Some(key), affinity, &[]).unwrap();
            assert!(first < ZONES[0], "{first}");
            assert_eq!(sim.select(Some(key), affinity, &[]), Ok(first));
        }
    }
    let tried: Vec<_> = sim.endpoints[..ZONES[0]].to_vec();
    let next = sim.select(Some(1), AffinityHint::None, &tried).unwrap();
    assert!(next >= ZONES[0], "{next}");
    // A client that has a session in another zone stays there.
    let token = sim.current.endpoints[5].token;
    assert_eq!(sim.select(None, AffinityHint::Token(token), &[]), Ok(5));
}

#[test]
fn draining_endpoints_near_by_get_nothing() {
    let mut sim = Sim::new(1, Balance::LeastRequest, None);
    let even = sim.send();
    assert!(even.iter().all(|count| *count > REQUESTS / 20), "{even:?}");
    let mut config = (*sim.current.config).clone();
    config.zones = Some(ZonePreference::Prefer);
    config.endpoints[..2]
        .iter_mut()
        .for_each(|endpoint| endpoint.draining = true);
    let mut registry = UpstreamRegistry::default();
    let config = Config {
        upstreams: vec![Arc::new(config)],
        ..Config::default()
    };
    registry.stage(&config, None, Duration::ZERO);
    registry.commit();
    sim.state = Arc::clone(registry.find("shop").unwrap());
    sim.current = sim.state.snapshot();
    sim.endpoints = build_endpoints(&sim.current, &[], true);
    sim.health.reset();
    assert_eq!(sim.send()[2], REQUESTS);
}
