//! Requests that compute for a while in a filter, many concurrent ones on a worker: finished responses are sent within a millisecond,
//! and do not wait for the rest of the loop turn.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use ringmain_engine::backend::Time;
use ringmain_engine::{Addr, limits};
use ringmain_gateway::Gateway;
use ringmain_gateway::filter::{
    Cx, Filter, FilterUse, Filters, Flow, Options, Outcome, RequestHead, RequestInfo, ResponseHead,
};
use ringmain_gateway::model::{
    Action, Config, Endpoint, EndpointLocation, Forward, Policy, Protocol, Route, Rule, Upstream,
};
use ringmain_sim::{ClusterConfig, Peer, PeerListener, Plan, SimCluster, Step, World};
use ringmain_web::Server;
use ringmain_web::testing::ReplyReader;

use crate::run::{at, listener, origin};
use ringmain_sim::seeds::Named;

/// Steps after which a scene counts as stuck.
const STEPS: usize = 100_000;

const CLIENTS: usize = 12;

/// The computing time of one request.
const COST: Duration = Duration::from_millis(5);

/// The hook in which a request computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Request,
    Response,
}

/// The state that filters compute with, since they are created by a worker and may hold no state of a test.
#[derive(Default)]
struct Bench {
    world: Option<World>,
    at: Option<Phase>,
    /// The instants at which they finished.
    done: Vec<Time>,
}

thread_local! {
    static BENCH: RefCell<Bench> = RefCell::default();
}

struct Computing;

impl Computing {
    fn compute(&self, at: Phase) -> Outcome<'_> {
        BENCH.with_borrow_mut(|bench| {
            if bench.at == Some(at)
                && let Some(world) = &bench.world
            {
                world.jump(COST);
                bench.done.push(world.now());
            }
        });
        Ok(Flow::Continue)
    }
}

impl Filter for Computing {
    type Exchange = ();

    fn begin(&self, _: &RequestInfo<'_>) {}

    fn request_head<'a>(&'a self, (): &'a mut (), _: &'a mut RequestHead<'_>) -> Outcome<'a> {
        self.compute(Phase::Request)
    }

    fn response_head<'a>(&'a self, (): &'a mut (), _: &'a mut ResponseHead<'_>) -> Outcome<'a> {
        self.compute(Phase::Response)
    }
}

struct Scene {
    named: Named,
    world: World,
    cluster: SimCluster<Server>,
    listener: PeerListener,
    /// Connections of the origin, and the bytes of a request received on each.
    guests: Vec<(Peer, Vec<u8>)>,
    clients: Vec<(Peer, ReplyReader)>,
    _gateway: Gateway,
}

fn config() -> Config {
    let mut upstream = Upstream::new(
        "origin",
        vec![Endpoint::new(EndpointLocation::Address(origin(0)))],
    );
    upstream.pool.connections = CLIENTS as u32;
    let mut rule = Rule::new(Action::Forward(Box::new(Forward::to("origin"))));
    rule.policies = vec![Policy::Filter(Arc::new(FilterUse {
        name: "computing".into(),
        options: Options::Nothing,
    }))];
    let route = Route {
        name: "all".into(),
        listeners: Vec::new(),
        hostnames: Vec::new(),
        rules: vec![rule],
    };
    Config {
        listeners: vec![listener("web", at(80), Protocol::Http)],
        routes: vec![route.into()],
        upstreams: vec![upstream.into()],
        ..Config::default()
    }
}

/// Runs a scene to its end.
pub(crate) fn run(seed: u64) {
    for phase in [Phase::Request, Phase::Response] {
        let mut scene = Scene::new(seed);
        // Connections are open and pooled when it matters.
        scene.round();
        BENCH.with_borrow_mut(|bench| {
            *bench = Bench {
                world: Some(scene.world.clone()),
                at: Some(phase),
                done: Vec::new(),
            };
        });
        let begun = scene.world.now();
        scene.round();
        let bench = BENCH.take();
        let sent = scene.sent(begun);
        assert_eq!(bench.done.len(), CLIENTS, "seed {seed}: {phase:?}");
        for done in &bench.done {
            let left = sent.iter().find(|at| *at >= done).expect("it was sent");
            let waited = left.since(*done);
            assert!(
                waited < limits::FLUSH_WITHIN,
                "seed {seed}: what was finished in the {phase:?} waited {waited:?}"
            );
        }
        scene.end();
    }
}

impl Scene {
    fn new(seed: u64) -> Scene {
        let mut plan = Plan::calm();
        plan.trace = 100_000;
        let world = World::new(seed, plan, 1);
        let named = crate::named(seed, &world);
        let listener = world.peer_listen(&Addr::Inet(origin(0)));
        let filters = Filters::new().add("computing", |_: &Options| Ok(|_: &Cx| Computing));
        let gateway = Gateway::with_filters(Arc::new(config()), filters, Duration::ZERO);
        let site = gateway.app().build().expect("an application");
        let settings = ClusterConfig {
            workers: 1,
            ..ClusterConfig::default()
        };
        let cluster = SimCluster::new(&world, settings, &[(0, at(80), 0)], |start| site.server(start));
        let clients = (0..CLIENTS).map(|_| (world.connect(&at(80)).expect("it listens"), ReplyReader::new()));
        Scene {
            named,
            clients: clients.collect(),
            world,
            cluster,
            listener,
            guests: Vec::new(),
            _gateway: gateway,
        }
    }

    /// Sends a request from every client at once; the origin sends every response at once when it has all requests.
    fn round(&mut self) {
        for (peer, _) in &self.clients {
            let request = b"GET / HTTP/1.1\r\nHost: sim\r\n\r\n";
            assert_eq!(peer.write(request).expect("it is open"), request.len());
        }
        let mut replies = 0;
        for _ in 0..STEPS {
            self.serve();
            for (peer, reader) in &mut self.clients {
                reader.feed(&peer.read(usize::MAX));
                if let Some(reply) = reader.next("GET").expect("a response") {
                    assert_eq!(reply.status(), 200);
                    replies += 1;
                }
            }
            if replies == CLIENTS {
                return;
            }
            if self.cluster.step() == Step::Quiet {
                self.world.jump(Duration::from_millis(1));
            }
        }
        panic!("seed {}: {replies} of {CLIENTS} have a response", self.named.seed);
    }

    fn serve(&mut self) {
        while let Some(peer) = self.listener.accept() {
            self.guests.push((peer, Vec::new()));
        }
        for (peer, received) in &mut self.guests {
            received.extend(peer.read(usize::MAX));
        }
        let has_request = |(_, received): &&mut (Peer, Vec<u8>)| received.ends_with(b"\r\n\r\n");
        let asked: Vec<_> = self.guests.iter_mut().filter(has_request).collect();
        if asked.len() == CLIENTS {
            for (peer, received) in asked {
                let response = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ndone";
                assert_eq!(peer.write(response).expect("it is open"), response.len());
                received.clear();
            }
        }
    }

    /// Returns the instants since `since` at which the worker handed bytes to its back-end.
    fn sent(&self, since: Time) -> Vec<Time> {
        let trace = self.world.trace_text();
        let sends = trace.lines().filter_map(|line| {
            let mut words = line.split_whitespace();
            let time = Time(words.next()?.parse().ok()?);
            (words.next()? == "ns" && words.next()? == "send" && time >= since).then_some(time)
        });
        sends.collect()
    }

    fn end(mut self) {
        self.cluster.stop();
        for _ in 0..STEPS {
            if self.cluster.is_done() {
                return;
            }
            self.cluster.step();
        }
        panic!("seed {}: the worker never ends", self.named.seed);
    }
}
