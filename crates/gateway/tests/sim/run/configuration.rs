//! The configuration of a run: the same for every observer, in different forms.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use ringmain_engine::Addr;
use ringmain_gateway::model::{
    Action, ActiveHealth, Balance, Config, Endpoint, EndpointLocation, Forward, Fraction, HashKey,
    HealthCheck, Hostname, Listener, Mirror, OutlierDetection, ProcessLimits, Protocol, Retry, RetryOn,
    Route, Rule, SlowStart, StatusRange, StreamRoute, Upstream, UpstreamProtocol, WeightedBackend,
};
use ringmain_sim::World;

use super::{ORIGINS, front, gate, origin};
use crate::l4::{KINDS, Kind};
use crate::load_limits::Bounds;
use crate::policy_services::{self, Asked};

/// One of many configurations that do the same in different ways.
pub(super) fn config(world: &World, calm: bool, bounds: &Bounds, asked: &Asked) -> Config {
    let count = 1 + world.below(usize::from(ORIGINS)) as u16;
    let first = world.below(usize::from(ORIGINS)) as u16;
    let endpoints =
        (0..count).map(|step| Endpoint::new(EndpointLocation::Address(origin((first + step) % ORIGINS))));
    let mut endpoints: Vec<_> = endpoints.collect();
    // Up to three times as many as there are origins: in calm worlds every request gets a response of an origin all the same.
    let dead_endpoints = [0, 0, 1, 2 * count, 3 * count][world.below(5)];
    for number in 0..dead_endpoints {
        let place = world.below(endpoints.len() + 1);
        endpoints.insert(place, Endpoint::new(EndpointLocation::Address(dead(number))));
    }
    let mut upstream = Upstream::new("origin", endpoints);
    upstream.health.panic_percent = [0, 0, 50, 100][world.below(4)];
    upstream.balance = match world.below(5) {
        0 => Balance::RoundRobin,
        1 => Balance::PeakEwma {
            half_life: Duration::from_secs(5),
        },
        2 => Balance::Maglev(HashKey::Path),
        3 => Balance::RingHash(HashKey::Source),
        _ => Balance::LeastRequest,
    };
    upstream.pool.connections = 1 + world.below(8) as u32;
    upstream.pool.requests_per_connection = (world.below(3) == 0).then_some(1 + world.below(5) as u32);
    upstream.pool.streams_per_connection = 1 + world.below(20) as u32;
    if world.below(2) == 0 {
        upstream.protocol = UpstreamProtocol::Http2;
    }
    check_health(world, calm, &mut upstream);
    upstream.slow_start = (world.below(4) == 0).then(SlowStart::default);
    upstream.connect_timeout = patience(calm);
    bounds.upstream(&mut upstream);
    let mut rule = Rule::new(Action::Forward(Box::new(forward(world, calm))));
    rule.policies = bounds.policies();
    rule.policies.extend(asked.policies());
    let mut upstreams = asked.upstreams(world, patience(calm));
    upstreams.push(upstream.into());
    upstreams.extend(["few", "many"].map(|name| parrots(world, name, calm)));
    let route = Route {
        name: "all".into(),
        listeners: Vec::new(),
        hostnames: Vec::new(),
        rules: vec![rule],
    };
    Config {
        listeners: vec![
            listener("web", front(), Protocol::Http),
            listener("bytes", gate(KINDS[0]), Protocol::Tcp),
            listener("named", gate(KINDS[1]), Protocol::TlsPassthrough),
        ],
        routes: vec![route.into()],
        streams: streams(calm),
        upstreams,
        limits: ProcessLimits {
            upstream_connections: (world.below(3) == 0 && !bounds.live).then(|| 1 + world.below(6) as u32),
            ..ProcessLimits::default()
        },
        ..Config::default()
    }
}

/// Health checks, outlier detection, both or neither.
fn check_health(world: &World, calm: bool, upstream: &mut Upstream) {
    if world.below(3) == 0 {
        upstream.health.active = Some(ActiveHealth {
            every: Duration::from_millis(100 + world.below(5000) as u64),
            timeout: Duration::from_secs(if calm { 60 } else { 1 }),
            ..ActiveHealth::new(HealthCheck::Connect)
        });
    }
    if world.below(3) == 0 {
        upstream.health.outliers = Some(OutlierDetection {
            consecutive: 2,
            ejected: Duration::from_secs(1),
            ..OutlierDetection::default()
        });
    }
}

/// An endpoint that refuses every connection.
fn dead(number: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 2], 7000 + number))
}

/// Returns the timeout for connecting.
fn patience(calm: bool) -> Duration {
    Duration::from_secs(if calm { 600 } else { 3 })
}

pub(crate) fn listener(name: &str, address: Addr, protocol: Protocol) -> Arc<Listener> {
    Arc::new(Listener {
        name: name.into(),
        addresses: vec![address],
        protocol,
        hostnames: Vec::new(),
        tls: None,
        proxy_protocol: None,
        redirect_to_https: None,
        paths: Default::default(),
        client_address: Default::default(),
        limits: Default::default(),
        policies: Vec::new(),
    })
}

/// Returns the stream routes: `few` receives the connections of one name, `many` all others.
fn streams(calm: bool) -> Vec<Arc<StreamRoute>> {
    let stream = |name: &str, listener: &str, host: Option<&str>, to: &str| {
        Arc::new(StreamRoute {
            name: name.into(),
            listeners: vec![listener.into()],
            hostnames: host
                .map(|host| Hostname::parse(host).expect("a host"))
                .into_iter()
                .collect(),
            backends: vec![WeightedBackend::new(to)],
            idle: Some(Duration::from_secs(if calm { 600 } else { 2 })),
            datagrams: Default::default(),
        })
    };
    vec![
        stream("tcp", "bytes", None, "many"),
        stream("one", "named", Some("a.sim"), "many"),
        stream("wide", "named", Some("*.b.sim"), "few"),
    ]
}

/// The parrots, with the kinds that each receives, and their ports.
pub(super) const PARROTS: [(u16, &str, &[Kind]); 3] = [
    (9000, "many", &[KINDS[0], KINDS[1]]),
    (9001, "many", &[KINDS[0], KINDS[1]]),
    (9100, "few", &[KINDS[2]]),
];

/// Those of that name, in a third of the configurations with up to five that refuse every connection.
fn parrots(world: &World, name: &str, calm: bool) -> Arc<Upstream> {
    let there = PARROTS
        .iter()
        .filter(|(_, of, _)| *of == name)
        .map(|(port, ..)| *port);
    let dead_endpoints = [0, 0, 1 + world.below(5) as u16][world.below(3)];
    let ports = there.chain(9990..9990 + dead_endpoints);
    let endpoint = |port| {
        Endpoint::new(EndpointLocation::Address(SocketAddr::from((
            [127, 0, 0, 1],
            port,
        ))))
    };
    let mut upstream = Upstream::new(name, ports.map(endpoint).collect());
    upstream.pool.connections = 1 + world.below(4) as u32;
    upstream.connect_timeout = patience(calm);
    upstream.into()
}

/// The longest time without a byte in either direction.
pub(super) fn longest_idle(calm: bool) -> Duration {
    if calm { LONG_IDLE } else { SHORT_IDLE }
}

const LONG_IDLE: Duration = Duration::from_mins(10);

/// Some clients take longer than that to send a body, with pauses that are shorter.
const SHORT_IDLE: Duration = Duration::from_secs(2);

/// Returns the number of clients, and the most bytes of a body.
pub(super) fn sizes(world: &World, calm: bool, asked: &Asked) -> (usize, usize) {
    let large = calm && world.below(3) == 0;
    let most = match (large, world.below(3)) {
        (true, _) => 700_000,
        (false, 0) => 60,
        (false, 1) => 1000,
        (false, _) => 9000,
    };
    let wanted = if large {
        1 + world.below(3)
    } else {
        1 + world.below(10)
    };
    if asked.is_crowd() {
        (70 + world.below(40), 60)
    } else {
        (wanted, most)
    }
}

/// Returns the forwarding of requests.
fn forward(world: &World, calm: bool) -> Forward {
    let mut forward = Forward::to("origin");
    forward.backends.push(WeightedBackend::new("origin"));
    forward.timeouts.idle = Some(if calm && world.below(2) == 0 {
        LONG_IDLE
    } else {
        SHORT_IDLE
    });
    forward.timeouts.per_try = (world.below(2) == 0).then_some(SHORT_IDLE);
    if !calm && world.below(3) == 0 {
        forward.timeouts.minimum_rate = 1 + world.below(5000) as u32;
    }
    forward.mirrors = mirrors(world);
    forward.hedge = (world.below(3) == 0).then(|| Duration::from_millis(1 + world.below(100) as u64));
    forward.retry = (world.below(2) == 0).then(|| Retry {
        attempts: 2,
        on: RetryOn {
            reset: world.below(2) == 0,
            timeout: world.below(2) == 0,
            statuses: match world.below(2) {
                0 => vec![StatusRange {
                    first: 403,
                    last: 599,
                }],
                _ => Vec::new(),
            },
            ..RetryOn::default()
        },
        ..Retry::default()
    });
    forward
}

/// Returns mirrors, sometimes: of some requests, to the same origins or to none.
fn mirrors(world: &World) -> Vec<Mirror> {
    let count = [0, 0, 1, 2][world.below(4)];
    let mirror = |_| Mirror {
        share: Fraction {
            part: 1 + world.below(3) as u32,
            of: 3,
        },
        body_bytes: world.below(10_000) as u64,
        ..Mirror::to("origin")
    };
    (0..count).map(mirror).collect()
}

/// Returns the same configuration without health checks.
pub(super) fn quiet(mut config: Config) -> Config {
    for upstream in &mut config.upstreams {
        Arc::make_mut(upstream).health.active = None;
    }
    for policy in &mut Arc::make_mut(&mut config.routes[0]).rules[0].policies {
        policy_services::rarely(policy);
    }
    config
}
