//! New clients at push servers that report their load: each seed is a history of clients that connect and disconnect, servers that end,
//! and reports that are late, missing or wrong.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use super::tests::staged;
use super::{AffinityHint, HealthView, SelectionContext, select_endpoint};
use crate::balance::{LoadReport, RoundRobin, stable_hash};
use crate::fault::Fault;
use crate::health::CheckVerdict;
use crate::limits;
use crate::model::{Balance, Distance, Endpoint, EndpointLocation, HashKey, PushBalance, Upstream};
use crate::upstream::pool::{PoolEndpoint, build_endpoints};
use crate::upstream::{ActiveGuard, UpstreamSnapshot, UpstreamState};

const SEEDS: u64 = 4;

/// The interval of reports, in nanoseconds, and the time for which one is valid.
const INTERVAL: u64 = 5_000_000_000;
const VALIDITY: u64 = 17_000_000_000;

/// Clients that connect between two reports.
const BATCH: usize = 100;

/// A push server: its clients, whichever gateway they use.
#[derive(Clone, Copy, Debug)]
struct Server {
    weight: u32,
    max: Option<u32>,
    distance: Distance,
    clients: u32,
    leaving: bool,
}

const SERVER: Server = Server {
    weight: 1,
    max: Some(100_000),
    distance: Distance::Elsewhere,
    clients: 0,
    leaving: false,
};

/// A gateway in front of the servers, with its own view of their loads.
struct Gateway {
    state: Arc<UpstreamState>,
    current: Arc<UpstreamSnapshot>,
    endpoints: Vec<Rc<PoolEndpoint>>,
    health: HealthView,
    round_robin: RoundRobin,
    random: RefCell<fastrand::Rng>,
    now: u64,
    /// The connections of clients: the server of each.
    connections: Vec<(usize, ActiveGuard)>,
}

impl Gateway {
    fn new(seed: u64, servers: &[Server], balance: Balance, factor: Option<u16>) -> Gateway {
        let endpoints = (0_u8..).zip(servers).map(|(number, server)| Endpoint {
            weight: server.weight,
            distance: server.distance,
            ..Endpoint::new(EndpointLocation::Address(SocketAddr::from((
                [10, 0, 0, number],
                80,
            ))))
        });
        let state = staged(Upstream {
            balance,
            hash_balance_factor: factor,
            ..Upstream::new("push", endpoints.collect())
        });
        let current = state.snapshot();
        Gateway {
            endpoints: build_endpoints(&current, &[], true),
            state,
            current,
            health: HealthView::default(),
            round_robin: RoundRobin::default(),
            random: RefCell::new(fastrand::Rng::with_seed(seed)),
            now: 1,
            connections: Vec::new(),
        }
    }

    fn push(seed: u64, servers: &[Server]) -> Gateway {
        Gateway::new(seed, servers, Balance::Push(PushBalance::default()), None)
    }

    fn select(&mut self, key: Option<u64>) -> Result<usize, Fault> {
        let random = || self.random.borrow_mut().u64(..);
        let context = SelectionContext {
            tried: &[],
            unreachable: &[],
            key,
            affinity: AffinityHint::None,
            ignore_health: false,
            now: self.now,
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

    /// Connects a client. Returns its server.
    fn connect(&mut self, servers: &mut [Server], key: Option<u64>) -> usize {
        let index = self.select(key).expect("a server");
        self.connections
            .push((index, self.current.endpoints[index].state.count_request()));
        servers[index].clients += 1;
        index
    }

    /// Disconnects a client at random.
    fn disconnect(&mut self, servers: &mut [Server]) {
        if self.connections.is_empty() {
            return;
        }
        let at = self.random.borrow_mut().usize(..self.connections.len());
        let (index, _) = self.connections.swap_remove(at);
        servers[index].clients -= 1;
    }

    /// Disconnects the clients of a server that has ended.
    fn disconnect_all(&mut self, servers: &mut [Server], index: usize) {
        self.connections.retain(|(other, _)| *other != index);
        servers[index].clients = 0;
    }

    /// Receives a health check's response of a server, with this report.
    fn receive(&self, index: usize, report: Option<LoadReport>) {
        let until = self.now + VALIDITY;
        if self.current.endpoints[index].state.record_load(report, until) {
            self.state.bump_health_version();
        }
    }

    /// Receives a true report of each server.
    fn receive_all(&self, servers: &[Server]) {
        for (index, server) in servers.iter().enumerate() {
            self.receive(index, Some(true_report(server)));
        }
    }

    fn set_healthy(&self, index: usize, is_healthy: bool) {
        let verdict = match is_healthy {
            true => CheckVerdict::Healthy,
            false => CheckVerdict::Unhealthy,
        };
        self.current.endpoints[index].state.health().set_verdict(verdict);
        self.state.bump_health_version();
    }

    /// Connects clients without reports between them.
    fn connect_all(&mut self, servers: &mut [Server], clients: usize, key: Option<u64>) {
        for _ in 0..clients {
            self.connect(servers, key);
        }
    }

    /// Connects clients in batches, with true reports before each.
    fn fill(&mut self, servers: &mut [Server], clients: usize) {
        for number in 0..clients {
            if number % BATCH == 0 {
                self.now += INTERVAL;
                self.receive_all(servers);
            }
            self.connect(servers, None);
        }
    }

    fn connections_to(&self, index: usize) -> u32 {
        let connections = self.connections.iter().filter(|(other, _)| *other == index);
        u32::try_from(connections.count()).expect("few")
    }
}

fn true_report(server: &Server) -> LoadReport {
    LoadReport {
        clients: server.clients,
        max: server.max,
        leaving: server.leaving,
    }
}

fn clients(servers: &[Server]) -> Vec<u32> {
    servers.iter().map(|server| server.clients).collect()
}

/// Checks that each number is within `percent` of the expected one.
fn check_near(found: &[u32], expected: &[u32], percent: u32, place: &str) {
    for (found_one, expected_one) in found.iter().zip(expected) {
        let is_near = found_one.abs_diff(*expected_one) * 100 <= expected_one * percent;
        assert!(is_near, "{place}: expected about {expected:?}, found {found:?}");
    }
}

#[test]
fn less_loaded_servers_are_filled_first() {
    for seed in 0..SEEDS {
        // Clients of other gateways, of which this one knows by reports alone.
        let mut servers = [900, 100, 500, 0].map(|clients| Server { clients, ..SERVER });
        Gateway::push(seed, &servers).fill(&mut servers, 4500);
        check_near(&clients(&servers), &[1500; 4], 5, &format!("seed {seed}"));
    }
}

#[test]
fn several_gateways_fill_servers_evenly() {
    for seed in 0..SEEDS {
        let mut servers = [SERVER; 5];
        let mut gateways: Vec<_> = (0..4)
            .map(|number| Gateway::push(seed * 4 + number, &servers))
            .collect();
        for _ in 0..20 {
            for gateway in &mut gateways {
                gateway.fill(&mut servers, BATCH);
            }
        }
        check_near(&clients(&servers), &[1600; 5], 10, &format!("seed {seed}"));
    }
}

#[test]
fn weights_and_room_give_shares() {
    for seed in 0..SEEDS {
        let place = format!("seed {seed}");
        let mut servers = [1, 2, 3].map(|weight| Server { weight, ..SERVER });
        Gateway::push(seed, &servers).fill(&mut servers, 6000);
        check_near(&clients(&servers), &[1000, 2000, 3000], 10, &place);
        let mut servers = [1000, 2000, 5000].map(|max| Server {
            max: Some(max),
            ..SERVER
        });
        Gateway::push(seed, &servers).fill(&mut servers, 4000);
        check_near(&clients(&servers), &[500, 1000, 2500], 10, &place);
        // Without a maximum a server has room for an assumed number.
        let assumed = limits::PUSH_CLIENTS_ASSUMED;
        let mut servers = [None, Some(assumed)].map(|max| Server { max, ..SERVER });
        Gateway::push(seed, &servers).fill(&mut servers, 2000);
        check_near(&clients(&servers), &[1000; 2], 5, &place);
    }
}

#[test]
fn full_servers_receive_no_clients_while_others_have_room() {
    for seed in 0..SEEDS {
        let mut servers = [50, 300, 1000].map(|max| Server {
            max: Some(max),
            ..SERVER
        });
        let mut gateway = Gateway::push(seed, &servers);
        gateway.fill(&mut servers, 1350);
        assert_eq!(clients(&servers), [50, 300, 1000], "seed {seed}: exactly full");
        // All are full by their reports: they admit or reject clients themselves.
        gateway.fill(&mut servers, 300);
        assert_eq!(clients(&servers).iter().sum::<u32>(), 1650, "seed {seed}");
    }
}

#[test]
fn the_zone_is_first_until_it_is_half_as_loaded_again() {
    let near = Server {
        distance: Distance::Zone,
        ..SERVER
    };
    for seed in 0..SEEDS {
        let place = format!("seed {seed}");
        // Servers of other zones have clients of their own gateways.
        let far = Server {
            clients: 1000,
            ..SERVER
        };
        let mut servers = [near, near, far, far, far];
        let mut gateway = Gateway::push(seed, &servers);
        gateway.fill(&mut servers, 2900);
        assert_eq!(clients(&servers)[2..], [1000; 3], "{place}: all clients are near");
        check_near(&clients(&servers)[..2], &[1450; 2], 5, &place);
        gateway.fill(&mut servers, 6000);
        // 11,900 clients: near servers have 1.5 times the load of the others.
        let far = 11_900 / 6;
        check_near(
            &clients(&servers),
            &[far * 3 / 2, far * 3 / 2, far, far, far],
            5,
            &place,
        );
        // Without servers of the zone, all others.
        gateway.set_healthy(0, false);
        gateway.set_healthy(1, false);
        let before = clients(&servers);
        gateway.fill(&mut servers, 300);
        assert_eq!(clients(&servers)[..2], before[..2], "{place}");
    }
}

#[test]
fn leaving_servers_receive_no_clients() {
    for (seed, balance) in [
        Balance::Push(PushBalance::default()),
        Balance::LeastRequest,
        Balance::Maglev(HashKey::Path),
    ]
    .into_iter()
    .enumerate()
    {
        let mut servers = [SERVER; 3];
        let mut gateway = Gateway::new(seed as u64, &servers, balance.clone(), None);
        let mut key = 0;
        let mut connect = |gateway: &mut Gateway, servers: &mut [Server]| {
            for _ in 0..300 {
                key += 1;
                gateway.connect(servers, Some(stable_hash(&u64::to_le_bytes(key))));
            }
        };
        gateway.receive_all(&servers);
        connect(&mut gateway, &mut servers);
        servers[1].leaving = true;
        let before = servers[1].clients;
        gateway.receive_all(&servers);
        connect(&mut gateway, &mut servers);
        assert_eq!(servers[1].clients, before, "{balance:?}");
        // It remains excluded when no report arrives any more: it ends.
        gateway.now += 2 * VALIDITY;
        connect(&mut gateway, &mut servers);
        assert_eq!(servers[1].clients, before, "{balance:?}");
        // Its successor at the same address reports again.
        servers[1].leaving = false;
        gateway.receive_all(&servers);
        connect(&mut gateway, &mut servers);
        assert!(servers[1].clients > before, "{balance:?}");
        // If all leave, clients are not refused.
        servers.iter_mut().for_each(|server| server.leaving = true);
        gateway.receive_all(&servers);
        connect(&mut gateway, &mut servers);
    }
}

/// The ways in which the first server's reports are wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lie {
    /// It has no clients, whatever it has.
    Empty,
    /// It is full, whatever it has.
    Full,
    /// Always the same number.
    Frozen,
    /// Anything.
    Random,
    /// No report.
    Silent,
}

#[test]
fn a_server_that_lies_gains_no_more_than_its_share() {
    for (seed, lie) in (0..SEEDS).flat_map(|seed| {
        let lies = [Lie::Empty, Lie::Full, Lie::Frozen, Lie::Random, Lie::Silent];
        lies.map(|lie| (seed, lie))
    }) {
        let place = format!("seed {seed}, {lie:?}");
        let mut servers = [SERVER; 4];
        let mut gateway = Gateway::push(seed, &servers);
        let mut random = fastrand::Rng::with_seed(seed);
        for number in 0..4000 {
            if number % BATCH == 0 {
                gateway.now += INTERVAL;
                gateway.receive_all(&servers);
                let truth = true_report(&servers[0]);
                let report = match lie {
                    Lie::Empty => Some(LoadReport { clients: 0, ..truth }),
                    Lie::Frozen => Some(LoadReport {
                        clients: 200,
                        ..truth
                    }),
                    Lie::Full => Some(LoadReport {
                        clients: u32::MAX,
                        ..truth
                    }),
                    Lie::Random => Some(LoadReport {
                        clients: random.u32(..),
                        max: random.bool().then(|| random.u32(1..)),
                        leaving: random.bool(),
                    }),
                    Lie::Silent => None,
                };
                gateway.receive(0, report);
            }
            if random.u8(..5) == 0 {
                gateway.disconnect(&mut servers);
            }
            gateway.connect(&mut servers, None);
        }
        let all = clients(&servers);
        let mean = all.iter().sum::<u32>() / 4;
        assert!(all[0] * 100 <= mean * 115, "{place}: {all:?}");
        // The others share the rest evenly.
        let rest = all[1..].iter().sum::<u32>() / 3;
        check_near(&all[1..], &[rest; 3], 10, &place);
        if lie == Lie::Full {
            assert_eq!(all[0], 0, "{place}");
        }
        if lie == Lie::Silent {
            // Compared by connections, it has its share.
            check_near(&all, &[mean; 4], 10, &place);
        }
    }
}

#[test]
fn stale_reports_are_replaced_by_connections() {
    for seed in 0..SEEDS {
        // The reports say that the first server is by far the least loaded, and are the last ones.
        let mut servers = [0, 5000, 5000].map(|clients| Server { clients, ..SERVER });
        let mut gateway = Gateway::push(seed, &servers);
        gateway.receive_all(&servers);
        gateway.now += VALIDITY;
        gateway.connect_all(&mut servers, 300, None);
        let while_valid = gateway.connections_to(0);
        assert!(
            while_valid >= 170,
            "seed {seed}: {while_valid} of 300 by the report"
        );
        gateway.now += 1;
        gateway.connect_all(&mut servers, 3000, None);
        let connections: Vec<_> = (0..3).map(|index| gateway.connections_to(index)).collect();
        check_near(
            &connections,
            &[1100; 3],
            5,
            &format!("seed {seed}, by connections"),
        );
    }
}

#[test]
fn servers_that_end_and_return_are_filled_again() {
    for seed in 0..SEEDS {
        let mut servers = [SERVER; 4];
        let mut gateway = Gateway::push(seed, &servers);
        let mut random = fastrand::Rng::with_seed(seed);
        let mut is_up = [true; 4];
        for step in 0..60 {
            let index = random.usize(..4);
            if is_up.iter().filter(|is_up| **is_up).count() > 1 || !is_up[index] {
                is_up[index] = !is_up[index];
                gateway.set_healthy(index, is_up[index]);
                gateway.disconnect_all(&mut servers, index);
            }
            gateway.now += INTERVAL;
            for (index, server) in servers.iter().enumerate().filter(|(index, _)| is_up[*index]) {
                gateway.receive(index, Some(true_report(server)));
            }
            for _ in 0..BATCH {
                let index = gateway.connect(&mut servers, None);
                assert!(is_up[index], "seed {seed}, step {step}");
            }
        }
        // In peace all are even again, since new clients go to the emptier ones.
        (0..4).for_each(|index| gateway.set_healthy(index, true));
        gateway.fill(&mut servers, 10_000);
        let mean = clients(&servers).iter().sum::<u32>() / 4;
        check_near(&clients(&servers), &[mean; 4], 5, &format!("seed {seed}"));
    }
}

fn keyed() -> Balance {
    Balance::Push(PushBalance {
        key: Some(HashKey::Source),
    })
}

#[test]
fn clients_of_a_key_share_a_server_within_the_bound() {
    for (seed, balance, factor) in (0..SEEDS).flat_map(|seed| {
        let rings = [Balance::RingHash(HashKey::Path), Balance::Maglev(HashKey::Path)];
        let rings = rings.map(|ring| (seed, ring, Some(150)));
        rings
            .into_iter()
            .chain([(seed, keyed(), None), (seed, keyed(), Some(200))])
    }) {
        let place = format!("seed {seed}, {balance:?}, {factor:?}");
        let mut servers = [SERVER; 5];
        let mut gateway = Gateway::new(seed, &servers, balance.clone(), factor);
        let mut random = fastrand::Rng::with_seed(seed);
        // One key has half the clients, and 500 keys have the others.
        let hot = random.u64(..);
        let keys: Vec<_> = (0..500).map(|_| random.u64(..)).collect();
        let mut moved = 0;
        for number in 0..4000 {
            if number % BATCH == 0 {
                gateway.now += INTERVAL;
                gateway.receive_all(&servers);
            }
            let key = if random.bool() {
                hot
            } else {
                keys[random.usize(..keys.len())]
            };
            gateway.connect(&mut servers, Some(key));
            let all = clients(&servers);
            let (largest, total) = (all.iter().max().unwrap_or(&0), all.iter().sum::<u32>());
            let bound = (total * u32::from(factor.unwrap_or(limits::PUSH_KEY_FACTOR))).div_ceil(500);
            assert!(*largest <= bound, "{place}: {all:?} after {number}");
            moved += usize::from(number >= 2000 && gateway.select(Some(key)) != gateway.select(Some(key)));
        }
        assert_eq!(moved, 0, "{place}: a key has one server at a time");
    }
    // Without a bound all clients of the key are on one server.
    let mut servers = [SERVER; 5];
    let mut gateway = Gateway::new(1, &servers, Balance::RingHash(HashKey::Path), None);
    gateway.connect_all(&mut servers, 1000, Some(7));
    assert_eq!(clients(&servers).iter().max(), Some(&1000));
}

#[test]
fn keys_of_a_server_that_leaves_move_and_others_stay() {
    for seed in 0..SEEDS {
        let mut servers = [SERVER; 4];
        let mut gateway = Gateway::new(seed, &servers, keyed(), Some(1000));
        gateway.receive_all(&servers);
        let keys: Vec<u64> = (0..400)
            .map(|number: u64| stable_hash(&number.to_le_bytes()))
            .collect();
        let before: Vec<_> = keys.iter().map(|key| gateway.select(Some(*key))).collect();
        servers[2].leaving = true;
        gateway.receive_all(&servers);
        for (key, before) in keys.iter().zip(&before) {
            let after = gateway.select(Some(*key));
            match before {
                Ok(2) => assert_ne!(after, Ok(2), "seed {seed}"),
                _ => assert_eq!(after, *before, "seed {seed}"),
            }
        }
        // One without a key goes to the less loaded.
        servers[0].clients = 1000;
        gateway.receive_all(&servers);
        for _ in 0..50 {
            let index = gateway.connect(&mut servers, None);
            assert!(index != 2, "seed {seed}");
        }
        assert_eq!(gateway.connections_to(0), 0, "seed {seed}");
    }
}
