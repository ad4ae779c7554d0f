//! The client in the simulated world: servers with bad manners, a network with faults, a clock without noise. Whatever
//! happens, every request ends in exactly one count, every schedule is kept, every round ends, and nothing is left.
//!
//! `SIM_SEEDS=10000` runs the long suite (`cargo xtask suite sim`), `SIM_SEED=n` one seed.

mod server;
mod socket;
mod streams;

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use ringmain_engine::backend::Time;
use ringmain_engine::{Addr, Choice};
use ringmain_sim::seeds::{self, Named};
use ringmain_sim::{ClusterConfig, SimCluster, World};

use self::server::Server;
use super::{Client, News, Order, share, window};
use crate::figures::Figures;
use crate::limits;
use crate::plan::{Extent, Pace, Plan, Protocol};
use crate::traffic::{Body, Capture, FlowDraft, Request, Source, StepDraft, Traffic};

/// Steps after which a run counts as stuck. A closed loop of several requests a connection takes more than 5 million in 100 ms without delays.
const STEP_LIMIT: usize = 50_000_000;

/// Steps that clients whose round is over may still take until all is still.
const STEPS_TO_REST: usize = 20_000;

#[test]
fn every_seed_keeps_its_promises() {
    let mut answered = 0;
    let mut runs = 0;
    for seed in seeds::all() {
        answered += Run::new(seed).finish();
        runs += 1;
    }
    assert!(
        answered > 5 * runs || !seeds::are_many(runs),
        "{answered} answers in {runs} runs"
    );
}

/// As one does in this seed.
#[test]
fn a_worker_that_wakes_after_its_measured_time_counts_its_arrivals() {
    Run::new(4478).finish();
}

/// What one worker has told.
#[derive(Debug, Default)]
struct Told {
    figures: Figures,
    intervals: u64,
    under_way: Vec<window::Told>,
    elapsed: Option<Duration>,
}

impl Told {
    fn put_together(&mut self) {
        for told in self.under_way.drain(..) {
            self.figures.merge(&told.figures);
        }
    }
}

struct Run {
    world: World,
    cluster: SimCluster<Client>,
    server: Server,
    news: Vec<Receiver<News>>,
    told: Vec<Told>,
    plan: Arc<Plan>,
    traffic: Arc<Traffic>,
    standing: usize,
    begin: Time,
    /// Nothing goes wrong but what the seed's server does.
    calm: bool,
    bad: bool,
    /// No worker is ever slow.
    punctual: bool,
    /// The end was ordered.
    cut: bool,
    random: fastrand::Rng,
    named: Named,
}

fn addr() -> Addr {
    "10.0.0.1:80".parse().expect("an address")
}

fn step(target: &str, pause: Option<Duration>) -> StepDraft {
    StepDraft {
        name: String::new(),
        request: Request::get(target, "test"),
        pause,
        captures: Vec::new(),
    }
}

fn flow(steps: Vec<StepDraft>) -> FlowDraft {
    FlowDraft {
        name: String::new(),
        weight: 1,
        steps,
    }
}

fn traffic(random: &mut fastrand::Rng, calm: bool) -> Traffic {
    let pause = |random: &mut fastrand::Rng| {
        (random.u32(0..2) == 0).then(|| Duration::from_micros(random.u64(1..10_000)))
    };
    let mut login = step("/login", pause(random));
    login.captures.push(Capture {
        name: "token".into(),
        from: Source::Json("/token".into()),
    });
    let mut upload = step("/upload", None);
    upload.request.method = "POST".into();
    let length = if calm && random.u32(0..4) == 0 {
        400_000
    } else {
        700
    };
    upload.request.body = Body::Bytes(vec![b'u'; length].into());
    let show = step("/show/{{value:token}}", pause(random));
    let again = step("/again", pause(random));
    let flows = match random.u32(0..5) {
        0 => vec![flow(vec![login, show, again])],
        1 => vec![flow(vec![login, show]), flow(vec![again])],
        2 => vec![flow(vec![upload])],
        3 => vec![flow(vec![upload]), flow(vec![step("/other/{{seq}}", None)])],
        _ => vec![flow(vec![step("/one", None)])],
    };
    Traffic::mix(&flows).expect("flows")
}

/// Messages over WebSocket, as good as all kinds of them.
fn messages(random: &mut fastrand::Rng) -> Traffic {
    let body = match random.u32(0..4) {
        0 => Body::Text("the same each time".into()),
        1 => Body::Text("{{seq}} of {{random-hex:40}}".into()),
        _ => Body::None,
    };
    let request = Request {
        body,
        ..Request::get("/{{uuid}}", "test")
    };
    let bytes = [1, 20, 3000][random.usize(..3)];
    Traffic::messages(request, bytes, random.bool()).expect("messages")
}

fn plan(random: &mut fastrand::Rng, traffic: &Traffic, workers: usize) -> Plan {
    let rate = [200.0, 1000.0, 3333.3, 20_000.0][random.usize(..4)];
    let millis = |random: &mut fastrand::Rng, range: Range<u64>| Duration::from_millis(random.u64(range));
    let echo = random.u32(0..6) == 0;
    let protocol = match traffic.socket() {
        Some(socket) => socket.protocol(),
        None if echo => {
            let bytes = [1, 20, 3000][random.usize(..3)];
            Protocol::Echo { bytes }
        }
        None if random.u32(0..3) == 0 => Protocol::Http2,
        None => Protocol::Http1,
    };
    Plan {
        target: addr(),
        others: Vec::new(),
        sources: Vec::new(),
        protocol,
        tls: None,
        connections: random.u32(workers as u32..workers as u32 + 5),
        pipeline: if traffic.may_pipeline() || protocol == Protocol::Http2 {
            [1, 1, 2, 7][random.usize(..4)]
        } else {
            1
        },
        reconnect_after: (random.u32(0..4) == 0).then(|| random.u64(1..5)),
        pace: [Pace::Closed, Pace::Constant(rate), Pace::Poisson(rate)][random.usize(..3)],
        extent: if random.bool() {
            Extent::Count(random.u64(0..80))
        } else {
            Extent::Time(millis(random, 1..120))
        },
        warmup: if random.bool() {
            Duration::ZERO
        } else {
            millis(random, 1..40)
        },
        rounds: 1,
        timeout: millis(random, 5..60),
        connect_timeout: Duration::from_secs(1),
        interval: millis(random, 10..50),
        threads: workers,
        cpus: Vec::new(),
        engine: Choice::Auto,
        seed: random.u64(..),
    }
}

impl Run {
    fn new(seed: u64) -> Run {
        let mut random = fastrand::Rng::with_seed(seed);
        let workers = random.usize(1..4);
        let calm = seed.is_multiple_of(3);
        let bad = seed.is_multiple_of(2);
        let mut weather = if calm {
            ringmain_sim::Plan::calm()
        } else {
            ringmain_sim::Plan::mixed(seed)
        };
        weather.sockets = 1 << 12;
        // In a world without delays a worker that can run does so before time goes on.
        let punctual = seed.is_multiple_of(9);
        if punctual {
            weather.delay = Duration::ZERO;
        }
        let world = World::new(seed, weather, workers);
        let named = Named::new(seed, &world, "cargo test -p ringmain-load --lib sim_tests");
        let traffic = Arc::new(if random.u32(0..5) == 0 {
            messages(&mut random)
        } else {
            traffic(&mut random, calm)
        });
        let plan = Arc::new(plan(&mut random, &traffic, workers));
        let listener = world.peer_listen(&addr());
        let server = Server::new(&world, listener, random.u64(..), plan.protocol, bad);
        let config = ClusterConfig {
            workers,
            ..ClusterConfig::default()
        };
        let mut news = Vec::new();
        let cluster = SimCluster::new(&world, config, &[], |start| {
            let (tell, told) = mpsc::channel();
            news.push(told);
            Client::new(&start, &plan, &traffic, 0, None, tell)
        });
        Run {
            world,
            cluster,
            server,
            news,
            told: (0..workers).map(|_| Told::default()).collect(),
            plan,
            traffic,
            standing: 0,
            begin: Time(0),
            calm,
            bad,
            punctual,
            cut: false,
            random,
            named,
        }
    }

    /// Runs to the end; returns how many answers were counted.
    fn finish(mut self) -> u64 {
        let workers = self.told.len();
        self.drive("connecting", |run| run.standing == workers);
        for worker in 0..workers {
            let order = Order::Begin { at: self.begin };
            self.cluster.inbox(worker).post(order).expect("it runs");
        }
        if self.random.u32(0..8) == 0 {
            let until = self
                .world
                .now()
                .after(Duration::from_millis(self.random.u64(0..60)));
            self.drive("loading", |run| run.is_over() || run.world.now() >= until);
            self.cut = true;
            for worker in 0..workers {
                // It may be over, but it is there.
                self.cluster.inbox(worker).post(Order::End).expect("it runs");
            }
        }
        self.drive("loading", Run::is_over);
        self.check();
        if self.random.bool() {
            // As a round ends: who has a way to say goodbye does, and what is left when the grace time is over goes.
            self.cluster.shut_down();
        } else {
            self.rest();
            self.cluster.stop();
        }
        self.drive("stopping", |run| run.cluster.is_done());
        assert_eq!(
            self.world.leaks(),
            Vec::<String>::new(),
            "seed {}",
            self.named.seed
        );
        for worker in 0..workers {
            let panics = self.cluster.counters(worker).panics.load(Ordering::Relaxed);
            assert_eq!(panics, 0, "seed {}: panics of worker {worker}", self.named.seed);
        }
        self.told.iter().map(|told| told.figures.counts.answered).sum()
    }

    fn is_over(&self) -> bool {
        self.told.iter().all(|told| told.elapsed.is_some())
    }

    /// A client whose round is over does nothing more, even if its connections are gone.
    fn rest(&mut self) {
        self.server.close_all();
        let still = |run: &Run| run.server.due().is_none() && run.world.next_event_time().is_none();
        for _ in 0..STEPS_TO_REST {
            let idle = (0..self.told.len()).all(|worker| self.world.worker_idle(worker));
            if idle && still(self) {
                return;
            }
            self.step();
        }
        panic!("seed {}: busy after the end: {:?}", self.named.seed, self.plan);
    }

    fn drive(&mut self, phase: &str, until: impl Fn(&Run) -> bool) {
        for _ in 0..STEP_LIMIT {
            self.listen();
            if until(self) {
                return;
            }
            self.step();
        }
        panic!(
            "seed {}: stuck while {phase} in {:?}; {:?}",
            self.named.seed, self.plan, self.server.seen
        );
    }

    /// One step of the world, or of the server if the world would leap over what that does.
    fn step(&mut self) {
        let idle = (0..self.told.len()).all(|worker| self.world.worker_idle(worker));
        let now = self.world.now();
        let next = self.world.next_event_time();
        match self.server.due() {
            Some(due) if idle && next.is_none_or(|next| due <= next) => {
                if due > now {
                    self.world.jump(due.since(now));
                }
            }
            _ => {
                self.cluster.step();
            }
        }
        self.server.act();
    }

    fn listen(&mut self) {
        for (worker, news) in self.news.iter().enumerate() {
            let told = &mut self.told[worker];
            while let Ok(news) = news.try_recv() {
                assert!(told.elapsed.is_none(), "nothing after the end");
                match news {
                    News::Standing { now } => {
                        self.standing += 1;
                        self.begin = self.begin.max(now);
                    }
                    News::NotConnected { .. } | News::Began { .. } => {}
                    News::Interval { index, figures } => {
                        assert_eq!(index, told.intervals, "in order");
                        told.intervals += 1;
                        told.under_way.extend(figures);
                        assert!(told.under_way.len() <= limits::INTERVALS_UNDER_WAY);
                        // Half of the runs put nothing together before the end.
                        if self.named.seed.is_multiple_of(2) {
                            told.put_together();
                        }
                    }
                    News::Ended {
                        index,
                        figures,
                        elapsed,
                        ..
                    } => {
                        assert_eq!(index, told.intervals, "in order");
                        told.put_together();
                        told.figures.merge(&figures);
                        told.elapsed = Some(elapsed);
                    }
                }
            }
        }
    }

    fn check(&self) {
        let seed = self.named.seed;
        let mut total = Figures::default();
        for (worker, told) in self.told.iter().enumerate() {
            let counts = &told.figures.counts;
            let over = counts.answered + counts.failed();
            assert_eq!(
                counts.sent,
                over + counts.unfinished,
                "seed {seed}: one end each: {counts:?}"
            );
            if let (Extent::Time(time), false) = (self.plan.extent, self.cut) {
                assert_eq!(told.elapsed, Some(time), "seed {seed}");
            }
            self.check_quota(worker, over);
            total.merge(&told.figures);
        }
        let counts = &total.counts;
        assert_eq!(total.service.count(), counts.answered, "seed {seed}");
        let open = self.plan.pace != Pace::Closed;
        let scheduled = if open { counts.answered } else { 0 };
        assert_eq!(total.response.count(), scheduled, "seed {seed}");
        assert!(
            !open || total.response.max() >= total.service.max(),
            "seed {seed}"
        );
        if self.plan.protocol.is_http() {
            let seen = &self.server.seen;
            assert!(
                counts.answered <= seen.answers,
                "seed {seed}: {counts:?}, {seen:?}"
            );
            assert_eq!(
                counts.statuses.values().sum::<u64>(),
                counts.answered,
                "seed {seed}"
            );
            if self.plan.warmup.is_zero() && !self.cut {
                assert!(
                    seen.requests <= counts.sent + counts.unprocessed,
                    "seed {seed}: {counts:?}, {seen:?}"
                );
            }
        }
        assert!(counts.bytes_received <= self.server.seen.bytes, "seed {seed}");
        assert!(counts.connects <= self.server.seen.connections, "seed {seed}");
        if self.calm && !self.bad {
            assert_eq!(counts.unexpected, 0, "seed {seed}: {counts:?}");
        }
        self.check_schedule(&total);
    }

    /// So many as were asked for, unless the network lets no connection come about.
    fn check_quota(&self, worker: usize, over: u64) {
        let Extent::Count(count) = self.plan.extent else {
            return;
        };
        let (seed, (_, quota)) = (self.named.seed, share(count, worker, self.told.len()));
        if !self.cut && self.calm {
            assert!(over >= quota, "seed {seed}: {over} of {quota}");
        }
        if self.plan.pipeline == 1 {
            assert!(over <= quota, "seed {seed}: {over} of {quota}");
        }
    }

    /// Each arrival of the measured time was sent or dropped, and never late by this program's doing.
    fn check_schedule(&self, total: &Figures) {
        let seed = self.named.seed;
        let single = self.traffic.flows().iter().all(|flow| flow.steps.len() == 1);
        let pauses = self
            .traffic
            .flows()
            .iter()
            .any(|flow| flow.steps[0].pause().is_some());
        if let (Pace::Constant(rate), Extent::Time(_)) = (self.plan.pace, self.plan.extent)
            && single
            && !pauses
            && self.plan.warmup.is_zero()
        {
            for (worker, told) in self.told.iter().enumerate() {
                let nanoseconds = told.elapsed.expect("it is over").as_nanos() as u64;
                let due = (worker as u64..)
                    .step_by(self.told.len())
                    .take_while(|number| ((*number as f64 * 1e9 / rate) as u64) < nanoseconds);
                let counts = &told.figures.counts;
                let all = counts.sent + counts.dropped;
                assert_eq!(
                    all,
                    due.count() as u64,
                    "seed {seed}, worker {worker}: {counts:?}"
                );
            }
        }
        if self.punctual {
            assert!(
                total.lag.max() <= Duration::from_micros(1),
                "seed {seed}: {:?} late in {:?}",
                total.lag.max(),
                self.plan
            );
        }
    }
}
