//! A whole run: workers, clients, an upstream server, faults and jumps of the clock, then the end.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ringmain_engine::{Addr, limits};
use ringmain_sim::{ClusterConfig, Fault, Plan, SimCluster, Step, World};

use crate::clients::{Client, Upstream};
use crate::courier::{Courier, HANDLER, Letter, PROXY, STREAM, Seen, Way};
use ringmain_sim::seeds::Named;

/// Steps after which a run counts as stuck.
const STEP_LIMIT: usize = 600_000;
/// Rounds that clients have before time leaps: they take no virtual time, so no deadline may pass only
/// because they had no occasion to act.
const PATIENCE: usize = 64;
/// Spans by which the clock jumps, together below every deadline that a client must keep.
const JUMPS: [Duration; 3] = [
    Duration::from_millis(5),
    Duration::from_secs(1),
    Duration::from_secs(8),
];

pub(crate) fn addr(port: u32) -> Addr {
    Addr::Inet(SocketAddr::from(([127, 0, 0, 1], port as u16)))
}

/// A jump beyond every deadline, as when a machine sleeps: streams may break then, and nothing else.
const LEAP: Duration = Duration::from_secs(3600);

/// Where the clients' upstream listens.
pub(crate) const UPSTREAM: u32 = 99;

pub(crate) struct Run {
    pub(crate) cluster: SimCluster<Courier>,
    pub(crate) clients: Vec<Client>,
    pub(crate) seen: Rc<RefCell<Seen>>,
    world: World,
    upstream: Upstream,
    config: ClusterConfig,
    wanted: usize,
    jumps: usize,
    nudges: Arc<AtomicU64>,
    patience: usize,
    sockets_short: bool,
    /// Nobody comes any more.
    ending: bool,
    /// Last, so that it speaks when all else is gone.
    named: Named,
}

/// The world of a seed: every fourth is calm, some have small tables.
fn plan(seed: u64) -> (Plan, bool) {
    let mut plan = if seed % 4 == 3 {
        Plan::calm()
    } else {
        Plan::mixed(seed)
    };
    plan.trace = 20_000;
    let short = seed % 8 == 5;
    if short {
        plan.sockets = 6 + (seed / 8 % 8) as usize;
    }
    (plan, short)
}

/// Listeners of all three kinds: on every worker, or on the first alone.
fn listeners(workers: usize, lopsided: bool) -> Vec<(usize, Addr, u32)> {
    let listening = if lopsided { 1 } else { workers };
    let all = |worker| [HANDLER, STREAM, PROXY].map(|tag| (worker, addr(tag), tag));
    (0..listening).flat_map(all).collect()
}

impl Run {
    pub(crate) fn new(seed: u64, test: &'static str) -> Run {
        let (plan, sockets_short) = plan(seed);
        let workers = 1 + (seed % 5) as usize % 4;
        let world = World::new(seed, plan, workers);
        let crowded = world.below(2) == 0;
        let config = ClusterConfig {
            // In three worlds of seven slow readers soon hold more than their share.
            held_bytes: if seed % 7 < 3 {
                48 * 1024
            } else {
                limits::HELD_BYTES
            },
            workers,
            capacity: if crowded { 2 + world.below(6) as u32 } else { 1000 },
            max_connections: if crowded { 6 + world.below(12) as u32 } else { 4000 },
            queue_limit: world.below(12) as u32,
            mail_per_pair: 1 + world.below(4),
            inbox: 2,
            grace: Duration::from_millis(world.below(4) as u64 * 700),
            drain_spread: Duration::from_millis(300),
        };
        let lopsided = world.below(4) == 0;
        let mut run = Run::with(seed, test, world, config, &listeners(workers, lopsided));
        run.sockets_short = sockets_short;
        run.wanted = 1 + run.world.below(24);
        run
    }

    /// A cluster without clients.
    pub(crate) fn with(
        seed: u64,
        test: &'static str,
        world: World,
        config: ClusterConfig,
        listeners: &[(usize, Addr, u32)],
    ) -> Run {
        let named = crate::named(seed, test, &world);
        let upstream = Upstream::new(world.peer_listen(&addr(UPSTREAM)));
        let seen: Rc<RefCell<Seen>> = Rc::default();
        let cluster = SimCluster::new(&world, config, listeners, |start| {
            Courier::new(start, addr(UPSTREAM), Rc::clone(&seen))
        });
        Run {
            cluster,
            clients: Vec::new(),
            seen,
            world,
            upstream,
            config,
            wanted: 0,
            jumps: 2,
            nudges: Arc::default(),
            patience: PATIENCE,
            sockets_short: false,
            ending: false,
            named,
        }
    }

    pub(crate) fn world(&self) -> World {
        self.world.clone()
    }

    /// Runs to the end; returns how many clients got every byte back.
    pub(crate) fn finish(mut self) -> u64 {
        let early = self.world.below(3) == 0;
        let half = self.wanted / 2;
        self.drive("serving", |run| {
            let done = run.clients.iter().filter(|client| client.done).count();
            done == run.wanted || (early && done >= half)
        });
        if !early {
            self.check_unbroken();
            // With its client gone every connection ends by itself.
            self.drive("emptying", |run| {
                (0..run.config.workers).all(|worker| run.cluster.connections(worker) == 0)
            });
        }
        self.end();
        self.clients.iter().filter(|client| client.is_whole()).count() as u64
    }

    /// Shuts down, gracefully or not, and checks that all is returned.
    pub(crate) fn end(&mut self) {
        // Some still come while it shuts down: they are served, or turned away.
        self.ending = self.world.below(2) == 0;
        if self.world.below(2) == 0 {
            self.cluster.shut_down();
            if self.world.below(3) == 0 {
                for _ in 0..self.world.below(200) {
                    self.step();
                }
                self.cluster.stop();
            }
        } else {
            self.cluster.stop();
        }
        self.drive("stopping", |run| run.cluster.is_done());
        self.drive("settling", |run| run.world.next_event_time().is_none());
        assert_eq!(self.world.leaks(), Vec::<String>::new());
        let seen = self.seen.borrow();
        assert_eq!(seen.faults, Vec::<String>::new());
        assert_eq!(seen.opened, seen.closed, "closed() for all that opened");
        let told = seen.connected + seen.not_connected;
        assert_eq!(
            seen.asked, told,
            "open() or not_connected() for all that were asked for"
        );
        assert!(
            seen.nudges <= self.nudges.load(Ordering::Relaxed),
            "mail is not doubled"
        );
        let mut sum = [0; 4];
        for worker in 0..self.config.workers {
            let counters = self.cluster.counters(worker);
            assert_eq!(counters.panics.load(Ordering::Relaxed), 0, "worker {worker}");
            assert_eq!(self.cluster.connections(worker), 0, "worker {worker}");
            sum[0] += counters.given.load(Ordering::Relaxed);
            sum[1] += counters.adopted.load(Ordering::Relaxed);
        }
        assert!(sum[1] <= sum[0], "{} adopted of {} given", sum[1], sum[0]);
    }

    /// Without a cause nobody's stream may have broken.
    fn check_unbroken(&self) {
        let count = |faults: &[Fault]| -> u64 { faults.iter().map(|fault| self.world.count(*fault)).sum() };
        let resets = count(&[Fault::Reset, Fault::AcceptAborted]);
        let connects = count(&[Fault::ConnectRefused, Fault::ConnectTimeout, Fault::OpenFails]);
        if resets > 0 || self.leaps() {
            return;
        }
        for client in &self.clients {
            let relayed = client.tag == PROXY || client.tag == HANDLER && client.way == Way::Relay;
            let all = client.tag != HANDLER || client.way.echoes_all();
            let unlucky = relayed && (connects > 0 || self.sockets_short);
            let must = client.manner.stays() && all && !unlucky;
            assert!(
                !must || client.is_whole(),
                "seed {}: a stream broke without a cause: {:?} by {} after {} bytes, {:?}",
                self.named.seed,
                client.way,
                client.tag,
                client.checked(),
                self.seen.borrow().reasons
            );
        }
        let seen = self.seen.borrow();
        let (seen, sent) = (seen.nudges, self.nudges.load(Ordering::Relaxed));
        assert!(
            seen + 2 * self.config.workers as u64 >= sent,
            "{seen} of {sent} letters came"
        );
    }

    /// One step of the world and of everybody in it.
    pub(crate) fn step(&mut self) -> Step {
        let step = if self.clients_first() {
            Step::Moved
        } else {
            self.cluster.step()
        };
        for client in &mut self.clients {
            client.act(&self.world);
        }
        self.upstream.act();
        step
    }

    pub(crate) fn drive(&mut self, phase: &str, until: impl Fn(&Run) -> bool) {
        for _ in 0..STEP_LIMIT {
            if until(self) {
                return;
            }
            self.step();
            if phase != "settling" {
                self.disturb();
            }
        }
        let waiting: Vec<String> = self
            .clients
            .iter()
            .filter(|client| !client.done)
            .map(|client| format!("{client:?}"))
            .collect();
        let loads: Vec<u32> = (0..self.config.workers)
            .map(|worker| self.cluster.connections(worker))
            .collect();
        panic!(
            "seed {}: stuck while {phase} with {loads:?} connections, {:?}: {waiting:#?}",
            self.named.seed, self.config
        );
    }

    /// New clients, letters from outside, jumps of the clocks.
    fn disturb(&mut self) {
        if self.clients.len() < self.wanted && !self.ending && self.world.below(8) == 0 {
            let tag = [HANDLER, HANDLER, HANDLER, STREAM, PROXY][self.world.below(5)];
            self.dial(tag);
        }
        match self.world.below(2000) {
            0 if self.jumps > 0 => {
                self.jumps -= 1;
                let span = if self.leaps() {
                    LEAP
                } else {
                    JUMPS[self.world.below(JUMPS.len())]
                };
                self.world.jump(span);
            }
            1 => self.world.jump_wall(self.world.below(200_000) as i64 - 100_000),
            2..=6 => self.nudge(),
            _ => {}
        }
    }

    fn leaps(&self) -> bool {
        self.named.seed % 16 == 9
    }

    fn dial(&mut self, tag: u32) {
        let Ok(peer) = self.world.connect(&addr(tag)) else {
            return;
        };
        let way = Way::ALL[self.world.below(Way::ALL.len())];
        // Now and then far more than the marks, unless everything goes through tiny buffers.
        let large = self.named.seed % 4 == 3 && self.world.below(12) == 0;
        let total = self.world.below(if large { 300_000 } else { 4000 });
        let key = self.clients.len() as u64 + 1;
        let client = Client::new(&self.world, peer, key, tag, way, total);
        self.clients.push(client);
    }

    fn nudge(&mut self) {
        let inbox = self.cluster.inbox(self.world.below(self.config.workers));
        let nudges = Arc::clone(&self.nudges);
        self.world.run_outside(Box::new(move || {
            // A full inbox refuses it, which is the sender's to see.
            if inbox.post(Letter::Nudge).is_ok() {
                nudges.fetch_add(1, Ordering::Relaxed);
            }
        }));
    }

    fn clients_first(&mut self) -> bool {
        let next = self.world.next_event_time();
        let leap = next.is_some_and(|at| at.since(self.world.now()) > Duration::from_millis(1));
        // Who reads slowly still reads in no time.
        let reading = |client: &Client| !client.done && client.manner.stays() && client.peer.readable() > 0;
        if leap && self.clients.iter().any(reading) {
            return true;
        }
        if !leap || self.patience == 0 {
            self.patience = PATIENCE;
            return false;
        }
        self.patience -= 1;
        true
    }
}
