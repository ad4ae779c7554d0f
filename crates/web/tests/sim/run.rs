//! A whole run: workers with the application, clients, faults, the end.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ringmain_engine::{Addr, limits as engine_limits};
use ringmain_sim::{ClusterConfig, Fault, Plan, SimCluster, Step, World};
use ringmain_tls::Connector;
use ringmain_web::testing::{ServerInternals, counted_addresses};
use ringmain_web::{CompiledApp, Limits, ListenerProtocol, Server};

use crate::app;
use crate::clients::{Client, Weather};
use crate::link::{self, Link};
use crate::requests::Ask;
use crate::sockets::SocketClient;
use crate::streams::StreamClient;
use ringmain_sim::seeds::Named;

/// Listeners by their numbers.
const CLEAR: u32 = 0;
const TLS: u32 = 1;

/// Steps after which a run counts as stuck.
const STEP_LIMIT: usize = 2_000_000;

pub(crate) struct Run {
    cluster: SimCluster<Server>,
    clients: Vec<Client>,
    sockets: Vec<SocketClient>,
    /// Of HTTP/2.
    streams: Vec<StreamClient>,
    world: World,
    app: Arc<CompiledApp>,
    inside: Vec<ServerInternals>,
    workers: usize,
    asked: u64,
    wanted: usize,
    /// Bytes of a body at most.
    most: usize,
    draining: bool,
    stopping: bool,
    connector: Connector,
    /// The same, for HTTP/2.
    http2: Connector,
    /// Last, so that it speaks when all else is gone.
    named: Named,
}

/// The world of a seed: every fourth is calm and has large bodies.
fn plan(seed: u64) -> Plan {
    let mut plan = if seed % 4 == 3 {
        Plan::calm()
    } else {
        Plan::mixed(seed)
    };
    plan.trace = 5_000;
    plan.sockets = 1 << 12;
    plan
}

/// Limits that are reached now and then.
fn limits(world: &World) -> Limits {
    let mut limits = Limits::default();
    if world.below(3) == 0 {
        limits.running_requests = 1 + world.below(3);
    }
    if world.below(4) == 0 {
        limits.requests_per_connection = Some(1 + world.below(5) as u32);
    }
    if world.below(2) == 0 {
        limits.body_bytes = 100 + world.below(4000) as u64;
    }
    // A slow reader that continues to upload after its last response may lose the end of the response: the timeout is tested
    // elsewhere.
    limits.linger = Duration::from_secs(3600);
    limits.linger_bytes = 1 << 30;
    limits
}

impl Run {
    pub(crate) fn new(seed: u64) -> Run {
        let workers = 1 + (seed % 3) as usize;
        let world = World::new(seed, plan(seed), workers);
        let named = crate::named(seed, &world);
        let config = ClusterConfig {
            workers,
            // In two worlds of five slow readers soon hold more than their share.
            held_bytes: if seed % 5 < 2 {
                48 * 1024
            } else {
                engine_limits::HELD_BYTES
            },
            grace: Duration::from_millis(world.below(4) as u64 * 700),
            ..ClusterConfig::default()
        };
        let app = app::app(limits(&world))
            .listener(TLS, ListenerProtocol::https(&link::acceptor()))
            .build()
            .expect("its routes and limits are right");
        let listeners: Vec<_> = (0..workers)
            .flat_map(|worker| [CLEAR, TLS].map(|number| (worker, address(number), number)))
            .collect();
        let mut inside = Vec::new();
        let cluster = SimCluster::new(&world, config, &listeners, |start| {
            let server = app.server(start);
            inside.push(ServerInternals::new(&server));
            server
        });
        let wanted = 1 + world.below(8);
        let large = seed % 4 == 3 && world.below(3) == 0;
        let most = match (large, world.below(3)) {
            (true, _) => 1_300_000,
            (false, 0) => 60,
            (false, 1) => 1000,
            (false, _) => 5000,
        };
        Run {
            cluster,
            clients: Vec::new(),
            sockets: Vec::new(),
            streams: Vec::new(),
            world,
            app,
            inside,
            workers,
            asked: 0,
            wanted: if large { wanted.min(3) } else { wanted },
            most,
            draining: false,
            stopping: false,
            connector: link::connector(&[]),
            http2: link::connector(&[b"h2".to_vec()]),
            named,
        }
    }

    pub(crate) fn world(&self) -> World {
        self.world.clone()
    }

    /// Runs to the end; returns the number of responses.
    pub(crate) fn finish(mut self) -> usize {
        let early = self.world.below(3) == 0;
        let half = self.world.below(self.wanted + 1);
        self.drive("serving", |run| {
            let done = run.done();
            done == run.wanted || (early && done >= half)
        });
        if !early {
            self.drive("emptying", |run| {
                (0..run.workers).all(|worker| run.cluster.connections(worker) == 0)
            });
            self.check_idle();
        }
        self.end();
        let messages: usize = self.sockets.iter().map(SocketClient::answered).sum();
        let streams: usize = self.streams.iter().map(StreamClient::answered).sum();
        self.clients.iter().map(Client::answered).sum::<usize>() + messages + streams
    }

    /// Clients that are through.
    fn done(&self) -> usize {
        let clients = self.clients.iter().filter(|client| client.done).count();
        let sockets = self.sockets.iter().filter(|socket| socket.done).count();
        clients + sockets + self.streams.iter().filter(|client| client.done).count()
    }

    fn is_busy(&self) -> bool {
        self.clients.iter().any(Client::is_busy)
            || self.sockets.iter().any(SocketClient::is_busy)
            || self.streams.iter().any(StreamClient::is_busy)
    }

    /// With no connection left nothing runs, and only idle tasks are pooled.
    fn check_idle(&self) {
        for (worker, inside) in self.inside.iter().enumerate() {
            assert_eq!(inside.running(), 0, "requests that run on worker {worker}");
            assert_eq!(inside.collected(), 0, "bodies that worker {worker} counts");
            assert_eq!(self.cluster.held(worker), 0, "bytes that worker {worker} holds");
            let tasks = self.cluster.tasks(worker) as usize;
            assert_eq!(tasks, inside.idle_tasks(), "tasks of worker {worker}");
        }
        assert_eq!(counted_addresses(&self.app), 0, "addresses that are counted");
    }

    /// Shuts down, gracefully or not, and checks that all is returned.
    fn end(&mut self) {
        self.draining = true;
        let graceful = self.world.below(4) > 0;
        if graceful {
            self.cluster.shut_down();
            for _ in 0..self.world.below(400) {
                self.step();
            }
        }
        if !graceful || self.world.below(3) == 0 {
            self.stopping = true;
            self.cluster.stop();
        }
        self.drive("stopping", |run| run.cluster.is_done());
        self.stopping = true;
        self.drive("settling", |run| run.world.next_event_time().is_none());
        assert_eq!(self.world.leaks(), Vec::<String>::new());
        assert_eq!(counted_addresses(&self.app), 0, "addresses that are counted");
        assert_eq!(
            self.app.stats().totals().sockets,
            0,
            "sockets that were not told their end"
        );
        for (worker, inside) in self.inside.iter().enumerate() {
            assert!(inside.is_released(), "worker {worker} left something: {inside:?}");
            let panics = self.cluster.counters(worker).panics.load(Ordering::Relaxed);
            assert_eq!(panics, 0, "panics that reached worker {worker}");
        }
    }

    fn weather(&self) -> Weather {
        let count = |faults: &[Fault]| -> u64 { faults.iter().map(|fault| self.world.count(*fault)).sum() };
        let limits = self.app.limits();
        Weather {
            broken: self.stopping || count(&[Fault::Reset, Fault::AcceptAborted]) > 0,
            draining: self.draining,
            crowded: limits.running_requests < 100,
            requests_per_connection: limits.requests_per_connection.map(|most| most as usize),
        }
    }

    /// Executes one step of the world and of each client.
    fn step(&mut self) -> Step {
        let step = if self.clients_first() {
            Step::Moved
        } else {
            self.cluster.step()
        };
        let weather = self.weather();
        for client in &mut self.clients {
            if let Err(error) = client.act(&self.world, weather) {
                let seed = self.named.seed;
                panic!(
                    "seed {seed}: {error}\n{client:?}\n{weather:?}, {:?}",
                    self.app.limits()
                );
            }
        }
        for socket in &mut self.sockets {
            if let Err(error) = socket.act(&self.world, weather) {
                panic!("seed {}: {error}\n{socket:?}\n{weather:?}", self.named.seed);
            }
        }
        for client in &mut self.streams {
            if let Err(error) = client.act(&self.world, weather) {
                panic!("seed {}: {error}\n{client:?}\n{weather:?}", self.named.seed);
            }
        }
        step
    }

    /// Returns true if the next event would jump past an action of a client at the current time.
    fn clients_first(&self) -> bool {
        let next = self.world.next_event_time();
        let leap = next.is_some_and(|at| at.since(self.world.now()) > Duration::from_micros(500));
        leap && self.is_busy()
    }

    fn drive(&mut self, phase: &str, until: impl Fn(&Run) -> bool) {
        for _ in 0..STEP_LIMIT {
            if until(self) {
                return;
            }
            if self.clients.len() + self.sockets.len() + self.streams.len() < self.wanted
                && !self.stopping
                && self.world.below(20) == 0
            {
                self.dial();
            }
            let busy = self.is_busy();
            if self.step() == Step::Quiet && !busy {
                // A sleeping client wakes at a time that the world does not know.
                self.world.jump(Duration::from_secs(1));
            }
        }
        let waiting: Vec<&Client> = self.clients.iter().filter(|client| !client.done).collect();
        let sockets: Vec<&SocketClient> = self.sockets.iter().filter(|socket| !socket.done).collect();
        let streams: Vec<&StreamClient> = self.streams.iter().filter(|client| !client.done).collect();
        panic!(
            "seed {}: stuck while {phase}; {waiting:#?} {sockets:#?} {streams:#?}",
            self.named.seed
        );
    }

    fn dial(&mut self) {
        let by_tls = self.world.below(2) == 0;
        let http2 = self.world.below(3) == 0;
        let Ok(peer) = self.world.connect(&address(if by_tls { TLS } else { CLEAR })) else {
            return;
        };
        // Some end without a word, as many do.
        let announces = self.world.below(4) > 0;
        let connector = if http2 { &self.http2 } else { &self.connector };
        let peer = Link::new(peer, by_tls.then_some(connector), announces);
        if http2 {
            let ids = self.asked + 1..self.asked + 2 + self.world.below(12) as u64;
            self.asked = ids.end;
            let client = StreamClient::new(&self.world, peer, ids, self.most, self.app.limits());
            return self.streams.push(client);
        }
        if self.world.below(3) == 0 {
            self.asked += 1;
            let socket = SocketClient::new(&self.world, peer, self.asked, self.most);
            return self.sockets.push(socket);
        }
        let count = 1 + self.world.below(8);
        let mut asks = Vec::new();
        // Behind a request that asks for the end none may follow (RFC 9112 §9.6).
        while asks.len() < count && !asks.last().is_some_and(|ask: &Ask| ask.wants_close) {
            self.asked += 1;
            asks.push(Ask::draw(&self.world, self.asked, self.most, self.app.limits()));
        }
        self.clients.push(Client::new(&self.world, peer, asks));
    }
}

fn address(listener: u32) -> Addr {
    let ports = [80, 443];
    Addr::Inet(SocketAddr::from(([127, 0, 0, 1], ports[listener as usize])))
}
