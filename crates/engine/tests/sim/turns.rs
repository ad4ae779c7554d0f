//! Turns that last: what is written leaves within a millisecond, and a long step is not taken for a queue.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use ringmain_engine::backend::Time;
use ringmain_engine::{Conn, ConnId, Handler, Post, Start, Via, limits};
use ringmain_sim::{ClusterConfig, Peer, Plan, SimCluster, World};

use crate::courier::HANDLER;
use crate::run::addr;
use ringmain_sim::seeds::{self, Named};

const STEPS: usize = 100_000;
const CLIENTS: usize = 20;

/// Who computes for each request.
#[derive(Clone, Copy, PartialEq)]
enum By {
    Handler,
    Task,
    Letter,
}

/// Computes for a while for each request, and answers.
struct Computing {
    world: World,
    by: By,
    cost: Duration,
    post: Post<ConnId>,
    /// When each answer was written, and how long its request had been queued.
    written: Rc<RefCell<Vec<(Time, Duration)>>>,
}

impl Computing {
    fn answer(&self, conn: Conn<'_>) {
        let queued = conn.cx().queued();
        self.world.jump(self.cost);
        conn.write(b"done").expect("it is open");
        self.written.borrow_mut().push((self.world.now(), queued));
    }
}

impl Handler for Computing {
    type Conn = ();
    type Mail = ConnId;

    fn open(&mut self, _conn: Conn<'_>, _via: Via) -> Option<()> {
        Some(())
    }

    fn data(&mut self, conn: Conn<'_>, _state: &mut (), bytes: &mut [u8]) -> usize {
        match self.by {
            By::Handler => self.answer(conn),
            By::Letter => drop(self.post.send(0, conn.id())),
            By::Task => {
                let (cx, id) = (conn.cx().clone(), conn.id());
                let (world, cost, written) = (self.world.clone(), self.cost, Rc::clone(&self.written));
                let task = conn.cx().spawn(async move {
                    world.jump(cost);
                    cx.conn(id).write(b"done").expect("it is open");
                    written.borrow_mut().push((world.now(), Duration::ZERO));
                });
                task.expect("there is room");
            }
        }
        bytes.len()
    }

    fn mail(&mut self, cx: &ringmain_engine::Cx, id: ConnId) {
        self.answer(cx.conn(id));
    }
}

struct Scene {
    named: Named,
    world: World,
    cluster: SimCluster<Computing>,
    peers: Vec<Peer>,
    written: Rc<RefCell<Vec<(Time, Duration)>>>,
}

impl Scene {
    /// All clients have sent a request, and none was answered.
    fn new(seed: u64, test: &'static str, by: By, cost: Duration) -> Scene {
        let mut plan = Plan::calm();
        plan.trace = 100_000;
        let world = World::new(seed, plan, 1);
        let named = crate::named(seed, test, &world);
        let written: Rc<RefCell<Vec<_>>> = Rc::default();
        let config = ClusterConfig {
            workers: 1,
            ..ClusterConfig::default()
        };
        let listeners = [(0, addr(HANDLER), HANDLER)];
        let cluster = SimCluster::new(&world, config, &listeners, |start: Start<ConnId>| Computing {
            world: world.clone(),
            by,
            cost,
            post: start.post,
            written: Rc::clone(&written),
        });
        let peers: Vec<Peer> = (0..CLIENTS)
            .map(|_| world.connect(&addr(HANDLER)).expect("it listens"))
            .collect();
        for peer in &peers {
            peer.write(b"x").expect("it is open");
        }
        Scene {
            named,
            world,
            cluster,
            peers,
            written,
        }
    }

    fn run(&mut self) {
        let mut got = 0;
        for _ in 0..STEPS {
            got += self.peers.iter().map(|peer| peer.read(100).len()).sum::<usize>();
            if got == CLIENTS * b"done".len() {
                return;
            }
            self.cluster.step();
        }
        panic!("not all are answered: {got} bytes");
    }

    /// When the worker handed each answer to its back-end, in order.
    fn sent(&self) -> Vec<Time> {
        let trace = self.world.trace_text();
        let sends = trace.lines().filter_map(|line| {
            let mut words = line.split_whitespace();
            let time: u64 = words.next()?.parse().ok()?;
            (words.next()? == "ns" && words.next()? == "send").then_some(Time(time))
        });
        sends.collect()
    }

    fn end(mut self) {
        self.cluster.stop();
        for _ in 0..STEPS {
            if self.cluster.is_done() {
                return drop(self.named);
            }
            self.cluster.step();
        }
        panic!("the worker never ends");
    }
}

#[test]
fn what_is_finished_leaves_a_turn_that_lasts_within_a_millisecond() {
    let name = "what_is_finished_leaves_a_turn_that_lasts_within_a_millisecond";
    for seed in seeds::some(30) {
        for by in [By::Handler, By::Task, By::Letter] {
            for cost in [Duration::from_millis(5), Duration::from_micros(300)] {
                let mut all = Scene::new(seed, name, by, cost);
                all.run();
                let (written, sent) = (all.written.borrow().clone(), all.sent());
                assert_eq!((written.len(), sent.len()), (CLIENTS, CLIENTS));
                for ((written, _), sent) in written.iter().zip(&sent) {
                    let waited = sent.since(*written);
                    let most = limits::FLUSH_WITHIN + cost;
                    assert!(waited < most, "waited {waited:?} in a turn of steps of {cost:?}");
                    // A step that is longer than that leaves at once.
                    assert!(cost < limits::FLUSH_WITHIN || waited.is_zero(), "{waited:?}");
                }
                all.end();
            }
        }
    }
}

#[test]
fn long_steps_are_not_taken_for_a_queue_and_short_ones_are() {
    let name = "long_steps_are_not_taken_for_a_queue_and_short_ones_are";
    let mut longest = Duration::ZERO;
    for seed in seeds::some(30) {
        let most = |cost: Duration| {
            let mut all = Scene::new(seed, name, By::Handler, cost);
            all.run();
            let most = all.written.borrow().iter().map(|(_, queued)| *queued).max();
            all.end();
            most.expect("there are answers")
        };
        assert!(most(Duration::from_millis(1500)) < Duration::from_millis(5));
        assert!(most(limits::LONG_STEP) < Duration::from_millis(5));
        let short = limits::LONG_STEP - Duration::from_millis(1);
        longest = longest.max(most(short));
    }
    // How many are in one batch follows from the seed.
    assert!(
        longest >= limits::LONG_STEP,
        "no two were in one batch: {longest:?}"
    );
}
