//! A whole run: workers with the gateway, clients, origins, faults, changes of configuration, the end.

mod configuration;
mod recovery;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ringmain_engine::{Addr, limits};
use ringmain_gateway::Gateway;
use ringmain_sim::{ClusterConfig, Fault, Plan, SimCluster, Step, World};
use ringmain_web::testing::ServerInternals;
use ringmain_web::{CompiledApp, Server};

pub(crate) use self::configuration::listener;
use self::configuration::{PARROTS, config, longest_idle, quiet, sizes};
use crate::clients::{Client, Habits, Weather};
use crate::filters;
use crate::l4::{Caller, KINDS, Kind, Ledger, Parrot};
use crate::load_limits::{self, Bounds};
use crate::origins::Origin;
use crate::policy_services::Asked;
use ringmain_sim::seeds::Named;

/// Steps after which a run counts as stuck.
const STEP_LIMIT: usize = 2_000_000;

/// The number of origins.
const ORIGINS: u16 = 3;

pub(crate) struct Run {
    cluster: SimCluster<Server>,
    clients: Vec<Client>,
    origins: Vec<Origin>,
    callers: Vec<Caller>,
    parrots: Vec<Parrot>,
    ledger: Ledger,
    /// The number of callers to start.
    calls: usize,
    world: World,
    gateway: Gateway,
    site: Arc<CompiledApp>,
    inside: Vec<ServerInternals>,
    asked: u64,
    wanted: usize,
    /// Bytes of a body at most.
    most: usize,
    calm: bool,
    stopping: bool,
    bounds: Bounds,
    /// The services that policies query.
    asks: Asked,
    /// All phases but the first: the configuration stays.
    settled: bool,
    steps: usize,
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

/// Returns the address for requests.
fn front() -> Addr {
    at(80)
}

/// Returns the address for connections of a kind.
fn gate(kind: Kind) -> Addr {
    match kind {
        Kind::Tcp => at(90),
        Kind::Named(_) => at(443),
    }
}

pub(crate) fn at(port: u16) -> Addr {
    Addr::Inet(SocketAddr::from(([127, 0, 0, 1], port)))
}

pub(crate) fn origin(number: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 8000 + number))
}

fn cluster(world: &World, seed: u64, workers: usize) -> ClusterConfig {
    ClusterConfig {
        workers,
        // In two worlds of five slow readers soon hold more than their share.
        held_bytes: if seed % 5 < 2 {
            48 * 1024
        } else {
            limits::HELD_BYTES
        },
        grace: Duration::from_millis(world.below(4) as u64 * 700),
        ..ClusterConfig::default()
    }
}

impl Run {
    pub(crate) fn new(seed: u64) -> Run {
        let workers = 1 + (seed % 3) as usize;
        let calm = is_calm(seed);
        let world = World::new(seed, plan(seed), workers);
        let named = crate::named(seed, &world);
        let cluster_config = cluster(&world, seed, workers);
        let asks = Asked::draw(&world, seed, calm);
        let origins = (0..ORIGINS).map(|number| {
            let addr = Addr::Inet(origin(number));
            Origin::new(&world, addr, seed ^ u64::from(number) << 32, !calm, &asks)
        });
        let origins = origins.collect();
        let ledger = Ledger::default();
        let parrots = PARROTS.iter().map(|(port, _, kinds)| {
            let seed = seed ^ u64::from(*port) << 32;
            Parrot::new(&world, &at(*port), &ledger, kinds, seed, !calm)
        });
        let parrots = parrots.collect();
        let bounds = Bounds::draw(&world, asks.counts()).with_filters(seed % 5 == 2);
        let gateway = filters::gateway(config(&world, calm, &bounds, &asks));
        let site = gateway
            .app()
            .limits(load_limits::limits(calm))
            .build()
            .expect("an application");
        let gates = gateway.listen_addrs();
        assert_eq!(gates, [front(), gate(KINDS[0]), gate(KINDS[1])]);
        let gates = || (0..).zip(&gates);
        let listeners =
            (0..workers).flat_map(|worker| gates().map(move |(tag, addr)| (worker, addr.clone(), tag)));
        let listeners: Vec<_> = listeners.collect();
        let mut inside = Vec::new();
        let cluster = SimCluster::new(&world, cluster_config, &listeners, |start| {
            let server = site.server(start);
            inside.push(ServerInternals::new(&server));
            server
        });
        let (wanted, most) = sizes(&world, calm, &asks);
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
            asks,
            settled: false,
            steps: 0,
            named,
        }
    }

    pub(crate) fn world(&self) -> World {
        self.world.clone()
    }

    /// Runs to the end. Returns the numbers of correct responses, of reported failures, and of connections that were forwarded in full.
    pub(crate) fn finish(mut self) -> (usize, usize, usize) {
        self.serve("serving");
        self.settled = true;
        if self.calm && self.bounds.lets_one_in() {
            // Whatever was refused before: a single request is admitted now.
            self.alone();
        }
        self.recover();
        // Pooled connections, too, once their idle timeout has expired. From here on there are no health checks.
        let last = Arc::new(quiet(config(&self.world, self.calm, &self.bounds, &self.asks)));
        self.asks.renew();
        self.gateway.replace(last, Duration::ZERO);
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
            assert_eq!(inside.collected(), 0, "bodies that worker {worker} counts");
            assert_eq!(self.cluster.held(worker), 0, "bytes that worker {worker} holds");
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
        let timeouts = self.clients.iter().map(Client::timeouts);
        let timeouts = timeouts.fold([0; 2], |all, one| [all[0] + one[0], all[1] + one[1]]);
        self.bounds.held(&self.gateway, timeouts);
        self.asks.held(&self.gateway);
        let open = self
            .gateway
            .stream_reports()
            .iter()
            .map(|stream| stream.open_connections())
            .sum::<u64>();
        assert_eq!(open, 0, "connections that are passed on");
        self.end();
        let whole = self.callers.iter().filter(|caller| caller.whole).count();
        assert!(!self.calm || whole == self.calls, "{:?}", self.callers);
        let right = self.clients.iter().map(Client::right).sum();
        (right, self.clients.iter().map(Client::failed).sum(), whole)
    }

    fn serve(&mut self, phase: &str) {
        self.drive(phase, |run| {
            run.clients.iter().filter(|client| client.is_done()).count() == run.wanted
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
        let before: usize = self.clients.iter().map(Client::right).sum();
        self.send_one(Asked::favour);
        self.serve("serving one alone");
        let after: usize = self.clients.iter().map(Client::right).sum();
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
        self.asks.close();
        self.origins.iter_mut().for_each(Origin::close_all);
        self.parrots.iter_mut().for_each(Parrot::close_all);
        self.drive("settling", |run| run.world.next_event_time().is_none());
        self.origins.clear();
        self.parrots.clear();
        self.drive("settling", |run| run.world.next_event_time().is_none());
        assert_eq!(self.world.leaks(), Vec::<String>::new());
        for (worker, inside) in self.inside.iter().enumerate() {
            assert!(inside.is_released(), "worker {worker} left something: {inside:?}");
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
        if !self.settled && self.world.below(300) == 0 {
            let problems = self.gateway.replace(
                Arc::new(config(&self.world, self.calm, &self.bounds, &self.asks)),
                Duration::ZERO,
            );
            assert_eq!(problems, []);
        }
        self.asks.act();
        self.origins.iter_mut().for_each(Origin::act);
        self.steps += 1;
        if self.steps.is_multiple_of(16) {
            self.bounds.hold(&self.gateway, self.asked, self.world.now());
            self.nobody_waits_in_vain();
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

    /// Returns whether the next event would be an advance of time past an action of a peer.
    fn others_first(&self) -> bool {
        let now = self.world.now();
        let next = self.world.next_event_time();
        let leap = |over: Duration| next.is_none_or(|at| at.since(now) > over);
        leap(Duration::from_micros(500)) && (self.clients_busy() || self.origins_busy())
    }

    fn clients_busy(&self) -> bool {
        let now = self.world.now();
        let resumes = |client: &Client| client.due().is_some_and(|at| at <= now);
        self.clients
            .iter()
            .any(|client| client.is_busy() || resumes(client))
            || self.callers.iter().any(Caller::is_busy)
    }

    fn origins_busy(&self) -> bool {
        let asked = self.asks.due().is_some_and(|at| at <= self.world.now());
        asked || self.origins.iter().any(Origin::is_busy) || self.parrots.iter().any(Parrot::is_busy)
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
        let clients: Vec<_> = self.clients.iter().filter(|client| !client.is_done()).collect();
        let callers: Vec<_> = self.callers.iter().filter(|caller| !caller.done).collect();
        let busy: Vec<_> = self.origins.iter().map(Origin::told).collect();
        panic!(
            "seed {}: stuck while {phase}\n{clients:?}\n{callers:?}\n{:?}\nbusy: {busy:?}",
            self.named.seed,
            self.gateway.upstreams()
        );
    }

    /// Advances time to the next action of an origin at most.
    fn leap_to_origins(&mut self) {
        let now = self.world.now();
        let origins = self.origins.iter().filter_map(Origin::due);
        let clients = self.clients.iter().filter_map(Client::due);
        let others = self
            .parrots
            .iter()
            .filter_map(Parrot::due)
            .chain(self.asks.due())
            .chain(clients);
        let Some(due) = origins.chain(others).min() else {
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
            let id = self.callers.len() as u64;
            let caller = Caller::new(&self.world, peer, &self.ledger, id, kind, self.most, self.calm);
            self.callers.push(caller);
        }
    }

    fn dial(&mut self) {
        let count = 1 + self.world.below(8) as u64;
        if let Ok(peer) = self.world.connect(&front()) {
            let ids = self.asked..self.asked + count;
            self.asked += count;
            let client = Client::new(&self.world, peer, ids, self.habits(), &self.asks);
            self.clients.push(client);
        }
    }

    /// Returns the properties of its clients.
    fn habits(&self) -> Habits {
        Habits {
            most: self.most,
            calm: self.calm,
            live: self.bounds.live && !self.asks.is_crowd(),
            idle: longest_idle(self.calm),
        }
    }
}
