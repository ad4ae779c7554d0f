//! Configurations that follow each other: comparing the changed upstreams alone has the same result as comparing every upstream.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use super::{UpstreamRegistry, UpstreamState};
use crate::model::{Config, Endpoint, EndpointLocation, Name, Upstream};

const SEEDS: u64 = 10;
const STEPS: usize = 60;
const NAMES: usize = 8;

fn endpoints(random: &mut fastrand::Rng) -> Vec<Endpoint> {
    let count = random.usize(..3);
    let endpoint = |_| {
        let address = EndpointLocation::Address(([127, 0, 0, 1], random.u16(1..5)).into());
        Endpoint::new(address)
    };
    (0..count).map(endpoint).collect()
}

fn upstream(random: &mut fastrand::Rng) -> Arc<Upstream> {
    let name = format!("up{}", random.usize(..NAMES));
    Arc::new(Upstream::new(&*name, endpoints(random)))
}

/// Adds, replaces, moves or removes an upstream. Names may occur twice.
fn change(config: &mut Config, random: &mut fastrand::Rng) {
    let all = &mut config.upstreams;
    let at = random.usize(..=all.len());
    match random.u8(..4) {
        0 => all.insert(at, upstream(random)),
        1 if at < all.len() => all[at] = upstream(random),
        2 if at < all.len() => {
            let moved = all.remove(at);
            all.push(moved);
        }
        3 if at < all.len() => drop(all.remove(at)),
        _ => {}
    }
}

/// Each upstream with its endpoints.
fn served(registry: &UpstreamRegistry) -> Vec<String> {
    let upstreams = registry.iter();
    let lines = upstreams.map(|upstream| {
        let current = upstream.snapshot();
        let endpoints = current.endpoints.iter().map(|endpoint| endpoint.addr.to_string());
        format!("{}: {:?}", upstream.name, endpoints.collect::<Vec<_>>())
    });
    lines.collect()
}

/// The endpoints with a state.
fn stored(registry: &UpstreamRegistry) -> BTreeSet<(Name, String)> {
    registry.endpoints.keys().cloned().collect()
}

/// The endpoints of upstreams.
fn used(registry: &UpstreamRegistry) -> BTreeSet<(Name, String)> {
    let of_upstream = |upstream: &Arc<UpstreamState>| -> Vec<_> {
        let current = upstream.snapshot();
        let addresses = current.endpoints.iter().map(|endpoint| endpoint.addr.to_string());
        addresses
            .map(|address| (Name::clone(&upstream.name), address))
            .collect()
    };
    registry.iter().flat_map(of_upstream).collect()
}

#[test]
fn changed_upstreams_give_what_all_give() {
    let mut partly = 0;
    for seed in 0..SEEDS {
        let mut random = fastrand::Rng::with_seed(seed);
        let (mut following, mut whole) = (UpstreamRegistry::default(), UpstreamRegistry::default());
        let mut config = Config::default();
        let mut last = Config::default();
        for step in 0..STEPS {
            let place = format!("seed {seed}, step {step}");
            if random.u8(..4) == 0 {
                let name = format!("up{}", random.usize(..NAMES));
                let endpoints = endpoints(&mut random);
                let is_known = following.set_endpoints(&name, endpoints.clone());
                assert_eq!(is_known, whole.set_endpoints(&name, endpoints), "{place}");
            }
            change(&mut config, &mut random);
            following.stage(&config, Some(&last), Duration::ZERO);
            whole.stage(&config, None, Duration::ZERO);
            partly += usize::from(following.unlisted.is_some());
            if random.u8(..6) == 0 {
                following.discard();
                whole.discard();
                config = last.clone();
            } else {
                following.commit();
                whole.commit();
                last = config.clone();
            }
            assert_eq!(served(&following), served(&whole), "{place}");
            // No state of an endpoint that is gone stays.
            assert_eq!(stored(&following), used(&following), "{place}");
            assert_eq!(stored(&whole), used(&whole), "{place}");
        }
    }
    assert!(partly > 0);
}
