//! A whole run: workers with the gateway, clients, origins, faults, changes of configuration, the end.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ringmain_engine::Addr;
use ringmain_engine::backend::sim::{Fault, Plan, Step, World};
use ringmain_engine::testing::{ClusterConfig, SimCluster};
use ringmain_gateway::Gateway;
use ringmain_gateway::model::{
    Action, ActiveHealth, Balance, Config, Endpoint, Forward, HashKey, HealthCheck, Hostname, Limits,
    Listener, Mirror, OutlierDetection, Protocol, Retry, RetryBudget, RetryOn, Route, Rule, Share, SlowStart,
    StatusRange, StreamRoute, Upstream, WeightedBackend, Where,
};
use ringmain_web::testing::Inside;
use ringmain_web::{Server, Site};

use crate::Named;
use crate::bounds::{self, Bounds};
use crate::bytes::{Caller, KINDS, Kind, Ledger, Parrot};
use crate::clients::{Client, Weather};
use crate::filters;
use crate::origins::Origin;

/// Steps after which a run counts as stuck.
const STEP_LIMIT: usize = 2_000_000;

/// How many origins there are.
const ORIGINS: u16 = 3;

pub(crate) struct Run {
    cluster: SimCluster<Server>,
    clients: Vec<Client>,
    origins: Vec<Origin>,
    callers: Vec<Caller>,
    parrots: Vec<Parrot>,
    ledger: Ledger,
    /// How many callers there are to be.
    calls: usize,
    world: World,
    gateway: Gateway,
    site: Arc<Site>,
    inside: Vec<Inside>,
    asked: u64,
    wanted: usize,
    /// Bytes of a body at most.
    most: usize,
    calm: bool,
    stopping: bool,
    bounds: Bounds,
    steps: usize,
    /// The configuration does not change any more.
    quiet: bool,
    /// Last, so that it speaks when all else is gone.
    named: Named,
}

fn plan(seed: u64) -> Plan {
    let mut plan = if is_calm(seed) {
        Plan::calm()
    } else {
        Plan::mixed(seed)
    };
    plan.trace = 5_000;
    plan.sockets = 1 << 12;
    plan.backlog = 1024;
    plan
}

/// Every fourth world is calm, with good origins: there all requests are answered.
fn is_calm(seed: u64) -> bool {
    seed % 4 == 3
}

/// Where requests come in.
fn front() -> Addr {
    at(80)
}

/// Where connections of a kind come in.
fn gate(kind: Kind) -> Addr {
    match kind {
        Kind::Tcp => at(90),
        Kind::Named(_) => at(443),
    }
}

fn at(port: u16) -> Addr {
    Addr::Inet(SocketAddr::from(([127, 0, 0, 1], port)))
}

fn origin(number: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 8000 + number))
}

/// One of many configurations that do the same in different ways.
fn config(world: &World, calm: bool, bounds: &Bounds) -> Config {
    let count = 1 + world.below(usize::from(ORIGINS)) as u16;
    let first = world.below(usize::from(ORIGINS)) as u16;
    let endpoints = (0..count).map(|step| Endpoint::new(Where::Address(origin((first + step) % ORIGINS))));
    let mut upstream = Upstream::new("origin", endpoints.collect());
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
    upstream.retry_budget = RetryBudget {
        percent: world.below(101) as u8,
        least: world.below(20) as u32,
    };
    upstream.slow_start = (world.below(4) == 0).then(SlowStart::default);
    upstream.connect_timeout = patience(calm);
    bounds.upstream(&mut upstream);
    let mut rule = Rule::new(Action::Forward(Box::new(forward(world, calm))));
    rule.policies = bounds.policies();
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
        upstreams: vec![
            upstream.into(),
            parrots(world, "few", calm),
            parrots(world, "many", calm),
        ],
        limits: Limits {
            upstream_connections: (world.below(3) == 0).then(|| 1 + world.below(6) as u32),
            ..Limits::default()
        },
        ..Config::default()
    }
}

/// How long connecting may take.
fn patience(calm: bool) -> Duration {
    Duration::from_secs(if calm { 600 } else { 3 })
}

fn listener(name: &str, address: Addr, protocol: Protocol) -> Arc<Listener> {
    Arc::new(Listener {
        name: name.into(),
        addresses: vec![address],
        protocol,
        hostnames: Vec::new(),
        tls: None,
        proxy_protocol: None,
        redirect_to_https: None,
        client_address: Default::default(),
        limits: Default::default(),
        policies: Vec::new(),
    })
}

/// Who gets connections: `few` those of one name, `many` all others.
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
        })
    };
    vec![
        stream("tcp", "bytes", None, "many"),
        stream("one", "named", Some("a.sim"), "many"),
        stream("wide", "named", Some("*.b.sim"), "few"),
    ]
}

/// Who gets which kinds, and where.
const PARROTS: [(u16, &str, &[Kind]); 3] = [
    (9000, "many", &[KINDS[0], KINDS[1]]),
    (9001, "many", &[KINDS[0], KINDS[1]]),
    (9100, "few", &[KINDS[2]]),
];

/// Those of that name; in a bad world with one that is not there.
fn parrots(world: &World, name: &str, calm: bool) -> Arc<Upstream> {
    let there = PARROTS
        .iter()
        .filter(|(_, of, _)| *of == name)
        .map(|(port, ..)| *port);
    let nobody = (!calm && world.below(3) == 0).then_some(9999);
    let ports = there.chain(nobody);
    let endpoint = |port| Endpoint::new(Where::Address(SocketAddr::from(([127, 0, 0, 1], port))));
    let mut upstream = Upstream::new(name, ports.map(endpoint).collect());
    upstream.pool.connections = 1 + world.below(4) as u32;
    upstream.connect_timeout = patience(calm);
    upstream.into()
}

/// How many clients there are, and bytes of a body at most.
fn sizes(world: &World, calm: bool) -> (usize, usize) {
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
    (wanted, most)
}

/// How requests are sent on.
fn forward(world: &World, calm: bool) -> Forward {
    let mut forward = Forward::to("origin");
    forward.backends.push(WeightedBackend::new("origin"));
    forward.timeouts.idle = Some(Duration::from_secs(if calm { 600 } else { 2 }));
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

/// Copies, sometimes: of some requests, to the same origins or to nobody.
fn mirrors(world: &World) -> Vec<Mirror> {
    let count = [0, 0, 1, 2][world.below(4)];
    let mirror = |_| Mirror {
        share: Share {
            part: 1 + world.below(3) as u32,
            of: 3,
        },
        body_bytes: world.below(10_000) as u64,
        ..Mirror::to("origin")
    };
    (0..count).map(mirror).collect()
}

/// The same without anybody who asks.
fn quiet(mut config: Config) -> Config {
    Arc::make_mut(&mut config.upstreams[0]).health.active = None;
    config
}

impl Run {
    pub(crate) fn new(seed: u64) -> Run {
        let workers = 1 + (seed % 3) as usize;
        let calm = is_calm(seed);
        let world = World::new(seed, plan(seed), workers);
        let named = Named {
            seed,
            world: world.clone(),
        };
        let cluster_config = ClusterConfig {
            workers,
            grace: Duration::from_millis(world.below(4) as u64 * 700),
            ..ClusterConfig::default()
        };
        let origins = (0..ORIGINS).map(|number| {
            let addr = Addr::Inet(origin(number));
            Origin::new(&world, addr, seed ^ u64::from(number) << 32, !calm)
        });
        let origins = origins.collect();
        let ledger = Ledger::default();
        let parrots = PARROTS.iter().map(|(port, _, kinds)| {
            let seed = seed ^ u64::from(*port) << 32;
            Parrot::new(&world, &at(*port), &ledger, kinds, seed, !calm)
        });
        let parrots = parrots.collect();
        let bounds = Bounds::draw(&world).with_filters(seed % 5 == 2);
        let gateway = filters::gateway(config(&world, calm, &bounds));
        let site = gateway
            .app()
            .limits(bounds::limits(calm))
            .build()
            .expect("an application");
        let gates = gateway.addrs();
        assert_eq!(gates, [front(), gate(KINDS[0]), gate(KINDS[1])]);
        let gates = || (0..).zip(&gates);
        let listeners =
            (0..workers).flat_map(|worker| gates().map(move |(tag, addr)| (worker, addr.clone(), tag)));
        let listeners: Vec<_> = listeners.collect();
        let mut inside = Vec::new();
        let cluster = SimCluster::new(&world, cluster_config, &listeners, |start| {
            let server = site.server(start);
            inside.push(Inside::of(&server));
            server
        });
        let (wanted, most) = sizes(&world, calm);
        let calls = world.below(6);
        Run {
            cluster,
            clients: Vec::new(),
            origins,
            callers: Vec::new(),
            parrots,
            ledger,
            calls,
            world,
            gateway,
            site,
            inside,
            asked: 0,
            wanted,
            most,
            calm,
            stopping: false,
            bounds,
            steps: 0,
            quiet: false,
            named,
        }
    }

    pub(crate) fn world(&self) -> World {
        self.world.clone()
    }

    /// Runs to the end; returns how many answers were right, how many failures were told, and how many connections were passed on
    /// as a whole.
    pub(crate) fn finish(mut self) -> (usize, usize, usize) {
        self.serve("serving");
        if self.calm && self.bounds.lets_one_in() {
            // Whatever was refused before: whoever comes alone now is let in.
            self.alone();
        }
        // Also those that are kept, when their time is over. From here on nobody asks who is well.
        let last = Arc::new(quiet(config(&self.world, self.calm, &self.bounds)));
        self.gateway.replace(last, Duration::ZERO);
        self.quiet = true;
        self.drive("emptying", |run| {
            // Copies have no client whose connection would end behind them.
            let copies = run
                .gateway
                .upstreams()
                .iter()
                .any(|upstream| upstream.requests > 0);
            !copies && (0..run.inside.len()).all(|worker| run.cluster.connections(worker) == 0)
        });
        for (worker, inside) in self.inside.iter().enumerate() {
            assert_eq!(inside.running(), 0, "requests that run on worker {worker}");
        }
        for upstream in self.gateway.upstreams() {
            assert_eq!(
                (upstream.requests, upstream.connections, upstream.waiting),
                (0, 0, 0),
                "{upstream:?}"
            );
            assert!(
                upstream.endpoints.iter().all(|endpoint| endpoint.requests == 0),
                "{upstream:?}"
            );
        }
        self.bounds.held(&self.gateway);
        let open = self
            .gateway
            .streams()
            .iter()
            .map(|stream| stream.open())
            .sum::<u64>();
        assert_eq!(open, 0, "connections that are passed on");
        self.end();
        let whole = self.callers.iter().filter(|caller| caller.whole).count();
        assert!(!self.calm || whole == self.calls, "{:?}", self.callers);
        let right = self.clients.iter().map(|client| client.right).sum();
        (right, self.clients.iter().map(Client::failed).sum(), whole)
    }

    fn serve(&mut self, phase: &str) {
        self.drive(phase, |run| {
            run.clients.iter().filter(|client| client.done).count() == run.wanted
                && run.callers.iter().filter(|caller| caller.done).count() == run.calls
        });
    }

    /// One more client with one request, when all others are done.
    fn alone(&mut self) {
        self.drive("finishing", |run| {
            run.gateway
                .upstreams()
                .iter()
                .all(|upstream| upstream.requests == 0)
        });
        let before: usize = self.clients.iter().map(|client| client.right).sum();
        let peer = self.world.connect(&front()).expect("the listener is there");
        let ids = self.asked..self.asked + 1;
        self.asked += 1;
        self.wanted += 1;
        self.clients
            .push(Client::new(&self.world, peer, ids, self.most, true));
        self.serve("serving one alone");
        let after: usize = self.clients.iter().map(|client| client.right).sum();
        let reset = self.world.count(Fault::Reset) > 0;
        assert!(after == before + 1 || reset, "whoever comes alone is let in");
    }

    /// Shuts down, gracefully or not, and checks that all is returned.
    fn end(&mut self) {
        let graceful = self.world.below(4) > 0;
        if graceful {
            self.cluster.shut_down();
            for _ in 0..self.world.below(400) {
                self.step();
            }
        }
        self.stopping = true;
        if !graceful || self.world.below(2) == 0 {
            self.cluster.stop();
        }
        self.drive("stopping", |run| run.cluster.is_done());
        self.origins.iter_mut().for_each(Origin::close_all);
        self.parrots.iter_mut().for_each(Parrot::close_all);
        self.drive("settling", |run| run.world.next_event_time().is_none());
        self.origins.clear();
        self.parrots.clear();
        self.drive("settling", |run| run.world.next_event_time().is_none());
        assert_eq!(self.world.leaks(), Vec::<String>::new());
        for (worker, inside) in self.inside.iter().enumerate() {
            assert!(inside.is_gone(), "worker {worker} left something: {inside:?}");
            let panics = self.cluster.counters(worker).panics.load(Ordering::Relaxed);
            assert_eq!(panics, 0, "panics that reached worker {worker}");
        }
        for upstream in self.gateway.upstreams() {
            assert_eq!(upstream.connections, 0, "{upstream:?}");
        }
        let totals = self.site.stats().totals();
        assert!(
            totals.classes[5] == 0 || !self.calm || self.bounds.fill(),
            "{totals:?}"
        );
    }

    /// One step of the world and of everybody in it.
    fn step(&mut self) -> Step {
        let step = if self.others_first() {
            Step::Moved
        } else {
            self.cluster.step()
        };
        if !self.stopping && !self.quiet && self.world.below(300) == 0 {
            let problems = self.gateway.replace(
                Arc::new(config(&self.world, self.calm, &self.bounds)),
                Duration::ZERO,
            );
            assert_eq!(problems, []);
        }
        self.origins.iter_mut().for_each(Origin::act);
        self.steps += 1;
        if self.steps.is_multiple_of(16) {
            self.bounds.hold(&self.gateway);
        }
        self.parrots.iter_mut().for_each(Parrot::act);
        let weather = Weather {
            broken: !self.calm || self.stopping || self.world.count(Fault::Reset) > 0,
            bounds: self.bounds,
        };
        for client in &mut self.clients {
            if let Err(error) = client.act(&self.world, weather) {
                panic!("seed {}: {error}\n{client:?}\n{weather:?}", self.named.seed);
            }
        }
        for caller in &mut self.callers {
            if let Err(error) = caller.act(&self.world, weather) {
                panic!("seed {}: {error}\n{caller:?}\n{weather:?}", self.named.seed);
            }
        }
        step
    }

    /// Whether the next thing would be a leap of time over what somebody does before.
    fn others_first(&self) -> bool {
        let now = self.world.now();
        let next = self.world.next_event_time();
        let leap = |over: Duration| next.is_none_or(|at| at.since(now) > over);
        leap(Duration::from_micros(500)) && (self.clients_busy() || self.origins_busy())
    }

    fn clients_busy(&self) -> bool {
        self.clients.iter().any(Client::is_busy) || self.callers.iter().any(Caller::is_busy)
    }

    fn origins_busy(&self) -> bool {
        self.origins.iter().any(Origin::is_busy) || self.parrots.iter().any(Parrot::is_busy)
    }

    fn drive(&mut self, phase: &str, until: impl Fn(&Run) -> bool) {
        for _ in 0..STEP_LIMIT {
            if until(self) {
                return;
            }
            if self.clients.len() < self.wanted && !self.stopping && self.world.below(20) == 0 {
                self.dial();
            }
            if self.callers.len() < self.calls && !self.stopping && self.world.below(20) == 0 {
                self.call();
            }
            self.leap_to_origins();
            let busy = self.clients_busy() || self.origins_busy();
            if self.step() == Step::Quiet && !busy {
                self.world.jump(Duration::from_millis(100));
            }
        }
        let clients: Vec<_> = self.clients.iter().filter(|client| !client.done).collect();
        let callers: Vec<_> = self.callers.iter().filter(|caller| !caller.done).collect();
        panic!(
            "seed {}: stuck while {phase}\n{clients:?}\n{callers:?}\n{:?}",
            self.named.seed,
            self.gateway.upstreams()
        );
    }

    /// What an origin does at a time of its own must not be leapt over.
    fn leap_to_origins(&mut self) {
        let now = self.world.now();
        let origins = self.origins.iter().filter_map(Origin::due);
        let Some(due) = origins.chain(self.parrots.iter().filter_map(Parrot::due)).min() else {
            return;
        };
        let quiet = self.world.next_event_time().is_none_or(|at| at > due);
        let workers = (0..self.inside.len()).all(|worker| self.world.worker_idle(worker));
        if due > now && quiet && workers && !self.clients_busy() {
            self.world.jump(due.since(now));
        }
    }

    fn call(&mut self) {
        let kind = self.world.below(KINDS.len());
        if let Ok(peer) = self.world.connect(&gate(KINDS[kind])) {
            let what = (self.callers.len() as u64, kind);
            let caller = Caller::new(&self.world, peer, &self.ledger, what, self.most, self.calm);
            self.callers.push(caller);
        }
    }

    fn dial(&mut self) {
        let count = 1 + self.world.below(8) as u64;
        if let Ok(peer) = self.world.connect(&front()) {
            let ids = self.asked..self.asked + count;
            self.asked += count;
            self.clients
                .push(Client::new(&self.world, peer, ids, self.most, self.calm));
        }
    }
}
