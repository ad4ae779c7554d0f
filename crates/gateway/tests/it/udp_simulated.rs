//! UDP sessions in virtual time, and in a network that loses, doubles and reorders datagrams while endpoints appear and disappear.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use ringmain_engine::Addr;
use ringmain_gateway::Gateway;
use ringmain_gateway::fault::Fault::ConnectRefused as Refused;
use ringmain_gateway::model::{Config, Endpoint, EndpointLocation, Protocol};
use ringmain_gateway::stats::{DatagramReport, SessionEnd};
use ringmain_sim::{ClusterConfig, Fault, PeerDatagrams, Plan, SimCluster, World};
use ringmain_web::Server;

use crate::l4_rig::to;

/// The address of the gateway.
const FRONT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 9)), 53);

/// Virtual time after which an awaited event counts as missing.
const PATIENCE: Duration = Duration::from_hours(2);

fn server_addr(number: u8) -> SocketAddr {
    SocketAddr::new(Ipv4Addr::new(10, 0, 1, number).into(), 53)
}

/// The addresses of clients by number.
type Flood<'a> = &'a dyn Fn(u16) -> SocketAddr;

struct Scene {
    world: World,
    cluster: SimCluster<Server>,
    gateway: Gateway,
    workers: usize,
}

impl Scene {
    fn new(seed: u64, plan: Plan, workers: usize, config: Config) -> Scene {
        Scene::at(FRONT, seed, plan, workers, config)
    }

    /// The same with another address of the gateway.
    fn at(front: SocketAddr, seed: u64, plan: Plan, workers: usize, mut config: Config) -> Scene {
        let listener = Arc::make_mut(&mut config.listeners[0]);
        listener.addresses = vec![Addr::Inet(front)];
        let world = World::new(seed, plan, workers);
        let gateway = Gateway::new(Arc::new(config), Duration::ZERO);
        assert_eq!(gateway.problems(), [], "a configuration without problems");
        gateway.leave_datagrams_to_workers();
        let site = gateway.app().build().expect("an application");
        let config = ClusterConfig {
            workers,
            ..ClusterConfig::default()
        };
        let cluster = SimCluster::new(&world, config, &[], |start| site.server(start));
        Scene {
            world,
            cluster,
            gateway,
            workers,
        }
    }

    /// Returns whether an event within `span` was left, which has happened then.
    fn step_within(&mut self, span: Duration) -> bool {
        let until = self.world.now().after(span);
        let is_idle = (0..self.workers).all(|worker| self.world.worker_idle(worker));
        if is_idle && self.world.next_event_time().is_none_or(|at| at > until) {
            return false;
        }
        self.cluster.step();
        true
    }

    /// Lets virtual time pass.
    fn pass(&mut self, span: Duration) {
        let until = self.world.now().after(span);
        while self.step_within(until.since(self.world.now())) {}
        self.world.jump(until.since(self.world.now()));
        // Timers that are due by now.
        while self.step_within(Duration::ZERO) {}
    }

    /// Runs the world until `is_true`.
    #[track_caller]
    fn until(&mut self, what: &str, mut is_true: impl FnMut(&mut Scene) -> bool) {
        let until = self.world.now().after(PATIENCE);
        while !is_true(self) {
            let left = until.since(self.world.now());
            assert!(!left.is_zero(), "{what}: not within {PATIENCE:?} of virtual time");
            if !self.step_within(left) {
                self.world.jump(Duration::from_secs(1));
            }
        }
    }

    fn report(&self) -> DatagramReport {
        let all = self.gateway.datagram_reports();
        let named = all.into_iter().find(|report| &*report.name == "all");
        named.expect("datagrams with a route")
    }

    fn stop(mut self) {
        self.cluster.stop();
        self.until("the end of the workers", |scene| scene.cluster.is_done());
    }
}

/// Answers all datagrams that have arrived with themselves.
fn echo(server: &PeerDatagrams) -> usize {
    let mut count = 0;
    while let Some((from, data)) = server.recv_from() {
        server.send_to(from, &data);
        count += 1;
    }
    count
}

#[test]
fn a_session_ends_when_idle() {
    let config = to(Protocol::Udp, &[server_addr(1)], |_, _, _| {});
    let mut scene = Scene::new(1, Plan::calm(), 1, config);
    let server = scene.world.peer_datagrams(server_addr(1));
    let client = scene
        .world
        .peer_datagrams("10.0.2.1:4000".parse().expect("an address"));
    for turn in 0..3 {
        client.send_to(FRONT, b"hello");
        scene.until("a question", |_| echo(&server) > 0);
        scene.until("an answer", |_| {
            client.recv_from() == Some((FRONT, b"hello".to_vec()))
        });
        // Within the idle time of 60 s.
        scene.pass(Duration::from_secs(50));
        let report = scene.report();
        assert_eq!((report.opened, report.open_sessions()), (1, 1), "turn {turn}");
    }
    scene.pass(Duration::from_secs(20));
    let report = scene.report();
    assert_eq!((report.opened, report.open_sessions()), (1, 0));
    assert_eq!(report.ended[SessionEnd::Idle as usize], 1);
    scene.stop();
}

#[test]
fn a_session_ends_with_its_last_response_or_soon() {
    let config = to(Protocol::Udp, &[server_addr(1)], |_, route, _| {
        route.datagrams.responses = Some(2);
        route.datagrams.idle = Some(Duration::from_secs(5));
    });
    let mut scene = Scene::new(2, Plan::calm(), 1, config);
    let server = scene.world.peer_datagrams(server_addr(1));
    let client = scene
        .world
        .peer_datagrams("10.0.2.1:4000".parse().expect("an address"));
    client.send_to(FRONT, b"a question");
    let mut from = None;
    scene.until("a question", |_| {
        from = server.recv_from().map(|(from, _)| from);
        from.is_some()
    });
    let from = from.expect("just found");
    server.send_to(from, b"one");
    scene.until("an answer", |_| client.recv_from().is_some());
    assert_eq!(scene.report().open_sessions(), 1);
    server.send_to(from, b"two");
    scene.until("the other answer", |_| client.recv_from().is_some());
    scene.pass(Duration::from_millis(10));
    assert_eq!(scene.report().ended[SessionEnd::Complete as usize], 1);
    // A response that is missing ends it later.
    client.send_to(FRONT, b"a question");
    scene.until("a question", |_| server.recv_from().is_some());
    scene.pass(Duration::from_secs(4));
    assert_eq!(scene.report().open_sessions(), 1);
    scene.pass(Duration::from_secs(2));
    assert_eq!(scene.report().ended[SessionEnd::Idle as usize], 1);
    scene.stop();
}

/// One ICMP error is enough: other sessions go to the other endpoint for a while.
#[test]
fn an_endpoint_with_icmp_errors_is_skipped() {
    let config = to(Protocol::Udp, &[server_addr(1), server_addr(2)], |_, _, _| {});
    let mut scene = Scene::new(3, Plan::calm(), 1, config);
    let server = scene.world.peer_datagrams(server_addr(2));
    // Until the worker has opened its socket.
    scene.pass(Duration::from_millis(5));
    for number in 1..=6 {
        let addr = SocketAddr::new(Ipv4Addr::new(10, 0, 2, number).into(), 4000);
        let client = scene.world.peer_datagrams(addr);
        let mut attempts = 0;
        while client.recv_from().is_none() {
            attempts += 1;
            assert!(attempts <= 2, "client {number}");
            client.send_to(FRONT, b"hello");
            scene.pass(Duration::from_millis(5));
            echo(&server);
            scene.pass(Duration::from_millis(5));
        }
    }
    let faults = scene.gateway.fault_counts();
    let refused = faults.iter().find(|(fault, _)| *fault == Refused);
    assert_eq!(refused, Some(&(Refused, 1)));
    scene.stop();
}

/// Every client is served by a network with faults, with answers to its own datagrams only, from the address that it has sent to, while
/// an endpoint stops receiving and another one is removed. All sessions end.
/// A client address with many ports, or a network with many addresses, opens more sessions than there is room for.
#[test]
fn a_flood_leaves_the_sessions_of_others_alone() {
    const FLOOD: u16 = 500;
    let front6: SocketAddr = "[2001:db8:9::9]:53".parse().expect("an address");
    let v4 = |network: u16, host: u16, port| {
        let host = Ipv4Addr::new(10, 1, network as u8, host as u8);
        SocketAddr::new(host.into(), port)
    };
    let v6 = |network, host: u16, port| {
        let host = Ipv6Addr::new(0x2001, 0xdb8, 0, network, host, 1, 2, 3);
        SocketAddr::new(host.into(), port)
    };
    // The flood from one IPv4 address, and from a whole /64.
    let cases: [(SocketAddr, Flood<'_>, Flood<'_>); 2] = [
        (FRONT, &|n| v4(1, n, 4000), &|n| v4(2, 1, 1000 + n)),
        (front6, &|n| v6(100 + n, 1, 4000), &|n| v6(2, n, 1000 + n % 7)),
    ];
    for (front, victim, flood) in cases {
        for workers in [1, 2] {
            let seed = workers as u64;
            let config = {
                let mut config = to(Protocol::Udp, &[server_addr(1)], |_, route, _| {
                    route.datagrams.idle = Some(Duration::from_secs(3600));
                });
                config.limits.datagram_sessions = 100;
                config.limits.datagram_sessions_per_address = Some(20);
                config
            };
            let mut scene = Scene::at(front, seed, Plan::calm(), workers, config);
            let server = scene.world.peer_datagrams(server_addr(1));
            let victims: Vec<PeerDatagrams> =
                (1..=10).map(|n| scene.world.peer_datagrams(victim(n))).collect();
            let mut opened = 0;
            let mut exchange = |scene: &mut Scene, clients: &[PeerDatagrams]| {
                for client in clients {
                    client.send_to(front, b"hello");
                    scene.until("a question", |_| echo(&server) > 0);
                    scene.until("an answer", |_| client.recv_from().is_some());
                }
                let report = scene.report();
                let new = report.opened - opened;
                opened = report.opened;
                (new, report.ended[SessionEnd::Evicted as usize])
            };
            assert_eq!(exchange(&mut scene, &victims), (10, 0));
            let attackers: Vec<PeerDatagrams> = (1..=FLOOD)
                .map(|n| scene.world.peer_datagrams(flood(n)))
                .collect();
            let (new, evicted) = exchange(&mut scene, &attackers);
            assert_eq!(new, u64::from(FLOOD), "{front}, {workers} workers");
            // Each worker has its part of the share; the kernel's choice of the worker is random.
            assert!(
                evicted >= u64::from(FLOOD) - 20,
                "{front}, {workers} workers: {evicted}"
            );
            assert_eq!(
                exchange(&mut scene, &victims),
                (0, evicted),
                "{front}, {workers} workers: the sessions of others"
            );
            scene.stop();
        }
    }
}

#[test]
fn clients_are_served_through_faults() {
    for seed in 0..40 {
        // Printed if a seed fails.
        println!("seed {seed}");
        serve_through_faults(seed);
    }
}

fn faulty_config(seed: u64, addrs: &[SocketAddr]) -> Config {
    let mut config = to(Protocol::Udp, addrs, |_, route, _| {
        route.datagrams.idle = Some(Duration::from_secs(30));
        if seed.is_multiple_of(2) {
            route.datagrams.responses = Some(1);
        }
    });
    // Some seeds have less room than clients.
    config.limits.datagram_sessions = if seed.is_multiple_of(5) { 6 } else { 64 };
    config
}

fn serve_through_faults(seed: u64) {
    const CLIENTS: u16 = 12;
    const ANSWERS: u32 = 20;
    let plan = Plan::calm()
        .with(Fault::DatagramLost, 100)
        .with(Fault::DatagramTwice, 50)
        .with(Fault::DatagramRefused, 20)
        .with(Fault::SlowWire, 50)
        .with(Fault::NoBuffers, 50)
        .with(Fault::ReceiveStops, 100)
        .with(Fault::OpenFails, if seed.is_multiple_of(4) { 100 } else { 0 })
        .with(Fault::AtOnce, 100);
    let workers = 1 + (seed % 3) as usize;
    let addrs = [1, 2, 3].map(server_addr);
    let mut scene = Scene::new(seed, plan, workers, faulty_config(seed, &addrs));
    let mut servers: Vec<Option<PeerDatagrams>> = addrs
        .iter()
        .map(|addr| Some(scene.world.peer_datagrams(*addr)))
        .collect();
    let clients: Vec<PeerDatagrams> = (0..CLIENTS)
        .map(|number| {
            let addr = SocketAddr::new(Ipv4Addr::new(10, 0, 2, number as u8).into(), 4000 + number);
            scene.world.peer_datagrams(addr)
        })
        .collect();
    let mut answers: BTreeMap<u16, u32> = BTreeMap::new();
    let mut sent = 0_u32;
    let mut round = 0;
    while answers.len() < usize::from(CLIENTS) || answers.values().any(|count| *count < ANSWERS) {
        round += 1;
        assert!(round < 2_000, "seed {seed}: {answers:?}");
        for (number, client) in (0..).zip(&clients) {
            sent += 1;
            client.send_to(FRONT, format!("{number} {sent}").as_bytes());
        }
        if round == 10 {
            // It answers with ICMP errors from now on.
            servers[0] = None;
        }
        if round == 20 {
            let kept = [addrs[0], addrs[2]].map(|addr| Endpoint::new(EndpointLocation::Address(addr)));
            assert!(scene.gateway.set_endpoints("all", kept.to_vec()));
        }
        for _ in 0..4 {
            scene.pass(Duration::from_millis(5));
            servers.iter().flatten().for_each(|server| {
                echo(server);
            });
        }
        for (number, client) in (0_u16..).zip(&clients) {
            while let Some((from, data)) = client.recv_from() {
                assert_eq!(from, FRONT);
                let text = String::from_utf8(data).expect("text");
                let asked = text.split(' ').next().expect("a number");
                assert_eq!(asked, number.to_string(), "another client's answer");
                *answers.entry(number).or_default() += 1;
            }
        }
    }
    scene.pass(Duration::from_secs(120));
    let report = scene.report();
    assert_eq!(report.open_sessions(), 0, "seed {seed}: {report:?}");
    assert!(report.opened >= u64::from(CLIENTS));
    scene.stop();
}
